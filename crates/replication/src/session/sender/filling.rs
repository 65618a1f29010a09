//! Filling datagrams: ends first, then changes, then what the walk comes to.

use alloc::vec::Vec;

use flow::Instant;

use super::full_sync::Stage;
use super::{Sender, Sent};
use crate::message::{DELETE, HEADER_BYTES, Kind, RESYNC_END, begin, finish};
use crate::session::{Handle, SessionConfig, Store};

/// Changes that fill so many datagrams wait for no more company.
const BATCH_DATAGRAMS: usize = 8;
/// Connections that a full synchronisation looks at for one datagram, most of which may have been sent already.
const FULL_SYNC_STEPS_MAX: u32 = 512;

/// How the attempt to write a message ended.
enum Written {
    Done,
    /// The connection is not there any more.
    Gone,
    /// It goes into the next datagram.
    NoRoom,
    /// It goes into none.
    TooLong,
}

impl Sender {
    /// Appends as many messages as there are, as fit, and as may be in flight. Returns how many. With `is_awaited`, changes
    /// do not wait for company.
    pub(in crate::session) fn fill(
        &mut self,
        now: Instant,
        config: &SessionConfig,
        store: &mut impl Store,
        is_awaited: bool,
        out: &mut Vec<u8>,
    ) -> u16 {
        let first = self.recovery.next();
        self.full_sync_resumes_at = None;
        if self.full_sync.begin_if_needed() {
            self.counters.rounds += 1;
        }
        if is_awaited || !self.waits_for_company(now, config) {
            let more = self.fill_deletions(now, config, store, out) && self.fill_changes(now, config, store, out);
            if self.queued() == 0 {
                self.waiting_since = None;
            }
            if more && self.fill_full_sync(now, config, store, out) {
                self.fill_resync_end(now, config, out);
            }
        }
        let count = self.recovery.next().wrapping_sub(first) as u16;
        self.counters.messages += u64::from(count);
        count
    }

    /// Whether the queue is to wait for more changes to share a datagram with.
    fn waits_for_company(&mut self, now: Instant, config: &SessionConfig) -> bool {
        if self.queued() == 0 {
            return false;
        }
        let since = *self.waiting_since.get_or_insert(now);
        // Several datagrams at a time wake the peer once.
        let queued_bytes = self.queued() * self.last_message_bytes.max(1);
        let is_much = queued_bytes >= BATCH_DATAGRAMS * config.datagram_bytes_max;
        now < since + config.batch_delay && !is_much && matches!(self.full_sync.stage, Stage::Done | Stage::Ending)
    }

    fn has_room(&self, config: &SessionConfig, out: &[u8], window: u16) -> bool {
        let fits = out.len() == HEADER_BYTES || out.len() + self.last_message_bytes <= config.datagram_bytes_max;
        fits && self.recovery.in_flight() < usize::from(window)
    }

    /// False when there is no room for anything more.
    fn fill_deletions(&mut self, now: Instant, config: &SessionConfig, store: &impl Store, out: &mut Vec<u8>) -> bool {
        while let Some((id, attributes)) = self.deletions.front() {
            // A connection with the same tuple that was sent, or is queued, replaces the ended one at the peer; a later
            // deletion would end the wrong one.
            if store.find(attributes).is_some_and(|handle| self.changes.is_replicated(handle)) {
                self.deletions.pop_front();
                self.deletions.release(id);
                continue;
            }
            if !self.has_room(config, out, config.in_flight_messages_max) {
                return false;
            }
            let at = begin(out, DELETE);
            out.extend_from_slice(attributes);
            if !finish(out, at) || out.len() > config.datagram_bytes_max {
                out.truncate(at);
                return false;
            }
            self.deletions.pop_front();
            self.sent(now, Sent::Deletion(id), out.len() - at);
        }
        true
    }

    /// False when there is no room for anything more.
    fn fill_changes(
        &mut self,
        now: Instant,
        config: &SessionConfig,
        store: &mut impl Store,
        out: &mut Vec<u8>,
    ) -> bool {
        while let Some(handle) = self.changes.front() {
            if !self.has_room(config, out, config.in_flight_messages_max) {
                return false;
            }
            let kind = if self.changes.is_known(handle) { Kind::Update } else { Kind::New };
            let at = out.len();
            match write_change(now, config, store, handle, kind, out) {
                Written::Done => {
                    let item = store.item(self.key, handle);
                    if self.changes.sent_front(self.recovery.next(), self.full_sync.round, item) {
                        self.full_sync.extend_barrier(self.recovery.next());
                    }
                    self.sent(now, Sent::Change(handle), out.len() - at);
                }
                Written::NoRoom => return false,
                Written::Gone => self.changes.skip_front(),
                Written::TooLong => {
                    self.counters.too_long += 1;
                    self.changes.skip_front();
                }
            }
        }
        true
    }

    /// Continues the full synchronisation. True when it is over.
    fn fill_full_sync(
        &mut self,
        now: Instant,
        config: &SessionConfig,
        store: &mut impl Store,
        out: &mut Vec<u8>,
    ) -> bool {
        let Stage::Sending(mut cursor) = self.full_sync.stage else { return true };
        let mut steps = 0;
        let at_end = loop {
            let Some(handle) = store.next_for_resync(cursor).filter(|handle| self.changes.is_valid(*handle)) else {
                break true;
            };
            cursor = handle;
            steps += 1;
            if steps > FULL_SYNC_STEPS_MAX {
                self.full_sync_resumes_at = Some(now);
                break false;
            }
            if self.changes.needs_full_sync(handle, self.full_sync.round) {
                if !self.has_room(config, out, config.resync_in_flight_messages_max) {
                    break false;
                }
                let at = out.len();
                match write_change(now, config, store, handle, Kind::New, out) {
                    Written::Done => {
                        let item = store.item(self.key, handle);
                        self.changes.sent(handle, self.recovery.next(), self.full_sync.round, item);
                        self.sent(now, Sent::Change(handle), out.len() - at);
                    }
                    Written::NoRoom => break false,
                    Written::Gone => {}
                    Written::TooLong => self.counters.too_long += 1,
                }
            }
            cursor = Handle(handle.0 + 1);
        };
        let barrier = self.recovery.next();
        self.full_sync.stage = if at_end { Stage::Settling { barrier } } else { Stage::Sending(cursor) };
        at_end
    }

    fn fill_resync_end(&mut self, now: Instant, config: &SessionConfig, out: &mut Vec<u8>) {
        if self.has_room(config, out, config.in_flight_messages_max)
            && self.full_sync.may_end(self.recovery.base(), self.changes.round_pending())
        {
            let at = begin(out, RESYNC_END);
            let fits = finish(out, at);
            debug_assert!(fits, "it has no body");
            if out.len() > config.datagram_bytes_max {
                out.truncate(at);
                return;
            }
            self.full_sync.stage = Stage::Ending;
            self.sent(now, Sent::ResyncEnd, out.len() - at);
        }
    }

    fn sent(&mut self, now: Instant, sent: Sent, message_bytes: usize) {
        self.recovery.on_sent(now, sent);
        self.last_message_bytes = message_bytes;
    }
}

fn write_change(
    now: Instant,
    config: &SessionConfig,
    store: &mut impl Store,
    handle: Handle,
    kind: Kind,
    out: &mut Vec<u8>,
) -> Written {
    let at = begin(out, kind.message_type());
    if !store.encode(now, handle, out) {
        out.truncate(at);
        return Written::Gone;
    }
    if finish(out, at) && out.len() <= config.datagram_bytes_max {
        return Written::Done;
    }
    out.truncate(at);
    if at == HEADER_BYTES { Written::TooLong } else { Written::NoRoom }
}
