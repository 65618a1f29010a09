//! Requests to the kernel, in batches, and the handling of their results.
//!
//! The queue contains a connection at most once, by its slot: a request carries the state at the time of sending.
//!
//! A backup delays requests by 20 ms to 40 ms while another node is primary: changes within that time cost one request. The
//! delay ends at once when the backup becomes primary, or when no node is primary any more.
//!
//! | refused | reason | reaction |
//! |---|---|---|
//! | create | it exists | it is updated instead |
//! | update | it is missing | it is created instead |
//! | update | another reason | it is deleted and created, once |
//! | create | the table is full | retry with increasing delay |
//! | delete | it is missing | none |
//! | any | another reason | counted, reported, retried |

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use flow::Instant;
use flow::netfilter::{Entry, ProtocolInfo, TcpFlags, TcpInfo, TcpSide, TcpState};
use replication::Handle;

use super::injection_queue::{Outstanding, RequestKind, RequestResult};
use super::{ConnectionChange, Connections, ends_s};
use crate::event::SyncEvent;
use crate::mirror::{Record, flag};
use crate::request::{KernelAction, KernelRefusal, KernelRequest, RequestToken};

/// The maximum number of requests in one batch.
pub const KERNEL_REQUESTS_MAX: usize = 64;
/// The maximum number of requests for a connection and its expectations.
const REQUESTS_OF_ONE_MAX: usize = 2 + 2 * replication::representation::kernel::EXPECTATIONS_MAX;
/// The maximum number of slots taken from the queue for one batch.
const POPPED_MAX: usize = 4096;
/// The number of alternating refusals of create and update after which they count as a conflict.
const ALTERNATIONS_MAX: u8 = 4;
/// The delay before a refused request is retried, doubled with each refusal,
const RETRY_MIN: Duration = Duration::from_millis(20);
/// up to this.
const RETRY_MAX: Duration = Duration::from_secs(20);
/// The number of refusals that a full table counts as: it will not be empty soon.
const FULL_REFUSALS: u8 = 5;
/// The maximum timeout that a peer may set in the kernel: a month.
const TIMEOUT_MAX_S: u32 = 30 * 86_400;
/// The number of refusals after which a deletion is abandoned; a dump finds the rest.
const DELETE_TRIES_MAX: u8 = 8;

const _: () = assert!(REQUESTS_OF_ONE_MAX <= KERNEL_REQUESTS_MAX);

impl Connections {
    /// The time of the next request to the kernel.
    pub(crate) fn next_request_at(&self) -> Option<Instant> {
        let queue = &self.queue;
        let waiting = match (queue.ring.is_empty(), self.delays_requests() && queue.ripe == 0) {
            (true, _) => None,
            (false, true) => Some(queue.next_tick_at),
            (false, false) => Some(Instant::ZERO),
        };
        waiting.into_iter().chain(queue.retry_at()).min()
    }

    /// Connections that wait for the kernel although their delay is over.
    pub(crate) fn overdue(&self) -> usize {
        if self.delays_requests() { self.queue.ripe + self.queue.outstanding.len() } else { self.queue.pending() }
    }

    /// Queues the connection, unless it waits for a retry.
    pub(crate) fn queue(&mut self, handle: Handle, reason: u32) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        record.set(reason, true);
        if !record.is_any(flag::QUEUED | flag::RETRYING) {
            record.set(flag::QUEUED, true);
            self.queue.ring.push_back(handle.0);
        }
    }

    fn retry(&mut self, now: Instant, handle: Handle) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        record.refusals = record.refusals.saturating_add(1);
        let delay = (RETRY_MIN * (1 << record.refusals.min(10))).min(RETRY_MAX);
        if !record.is_any(flag::RETRYING) {
            record.set(flag::RETRYING, true);
            self.queue.retries.push(Reverse((now + delay, handle.0, record.generation)));
        }
    }

    fn take_up_retries(&mut self, now: Instant) {
        while let Some(Reverse((at, slot, generation))) = self.queue.retries.peek().copied() {
            if now < at {
                return;
            }
            self.queue.retries.pop();
            let Some(record) = self.mirror.get_mut(Handle(slot)) else { continue };
            if record.generation == generation && record.is_any(flag::RETRYING) {
                record.set(flag::RETRYING, false);
                if !record.is_any(flag::QUEUED) {
                    record.set(flag::QUEUED, true);
                    self.queue.ring.push_back(slot);
                }
            }
        }
    }

    /// Fills a batch; returns false when there are no requests.
    pub(crate) fn poll_requests(&mut self, now: Instant, batch: &mut Vec<KernelRequest>) -> bool {
        batch.clear();
        // Polling the next batch implies that the last one is done.
        self.requests_done(now);
        self.take_up_retries(now);
        self.queue.ripen(now, self.delays_requests());
        self.queue.batch = self.queue.batch.wrapping_add(1);
        for _ in 0..POPPED_MAX {
            if batch.len() + REQUESTS_OF_ONE_MAX > KERNEL_REQUESTS_MAX && !batch.is_empty() {
                break;
            }
            let Some(slot) = self.queue.pop_ripe() else { break };
            self.request(now, Handle(slot), batch);
        }
        !batch.is_empty()
    }

    fn request(&mut self, now: Instant, handle: Handle, batch: &mut Vec<KernelRequest>) {
        let may_create = self.may_create();
        let floor_s = self.timeout_floor_s;
        let Some(record) = self.mirror.get_mut(handle).filter(|record| record.is_any(flag::QUEUED)) else { return };
        record.set(flag::QUEUED, false);
        let generation = record.generation;
        let is_in_kernel = record.is_any(flag::IN_KERNEL);
        let mut ask = |asked: RequestKind, action: KernelAction| {
            let token = RequestToken { batch: self.queue.batch, index: self.queue.outstanding.len() as u32 };
            self.queue.outstanding.push(Outstanding { handle, generation, asked, answer: RequestResult::None });
            batch.push(KernelRequest { token, action });
        };
        if record.is_any(flag::GONE) {
            if is_in_kernel {
                ask(RequestKind::Delete, KernelAction::Delete(record.entry()));
            } else {
                self.drop_replica(handle);
            }
            return;
        }
        if record.is_any(flag::VERIFY) {
            ask(RequestKind::Get, KernelAction::Get { tuple: record.original(), zone: record.zone_of_original() });
            return;
        }
        if !record.is_any(flag::DIRTY) || (!is_in_kernel && !may_create) {
            return;
        }
        let replaces = is_in_kernel && record.is_any(flag::REPLACE);
        record.set(flag::DIRTY | flag::REPLACE, false);
        let entry = to_inject(record, floor_s);
        record.expires_s = ends_s(now, entry.timeout_s.unwrap_or(0));
        if replaces {
            ask(RequestKind::DeleteFirst, KernelAction::Delete(entry.clone()));
        }
        if is_in_kernel && !replaces {
            ask(RequestKind::Update, KernelAction::Update(entry));
        } else {
            ask(RequestKind::Create, KernelAction::Create(entry));
        }
        let Some(rare) = record.rare.as_deref_mut().filter(|rare| rare.expectations != rare.injected) else { return };
        for gone in rare.injected.iter().filter(|injected| !rare.expectations.contains(injected)) {
            ask(RequestKind::Expectation, KernelAction::DeleteExpectation(Box::new(gone.clone())));
        }
        for new in rare.expectations.iter().filter(|expected| !rare.injected.contains(expected)) {
            ask(RequestKind::Expectation, KernelAction::CreateExpectation(Box::new(new.clone())));
        }
        rare.injected.clone_from(&rare.expectations);
    }

    fn outstanding(&mut self, token: RequestToken) -> Option<&mut Outstanding> {
        if token.batch != self.queue.batch {
            return None;
        }
        self.queue.outstanding.get_mut(token.index as usize)
    }

    pub(crate) fn refused(&mut self, token: RequestToken, refusal: KernelRefusal) {
        if let Some(outstanding) = self.outstanding(token) {
            outstanding.answer = RequestResult::Refused(refusal);
        }
    }

    pub(crate) fn found(&mut self, now: Instant, token: RequestToken, entry: Option<&Entry>) {
        let Some(outstanding) = self.outstanding(token) else { return };
        outstanding.answer = RequestResult::Found;
        let (handle, generation) = (outstanding.handle, outstanding.generation);
        self.queue.counters.asked += 1;
        let Some(record) = self.mirror.get_mut(handle).filter(|record| record.generation == generation) else { return };
        record.set(flag::VERIFY, false);
        record.refusals = 0;
        match entry {
            Some(entry) => self.verified_there(now, handle, entry),
            None => self.verified_gone(now, handle),
        }
        // A pending change precedes the query.
        if self.mirror.get(handle).is_some_and(|record| record.is_any(flag::DIRTY | flag::GONE)) {
            self.queue(handle, 0);
        }
    }

    /// Completes the requests that were not refused.
    pub(crate) fn requests_done(&mut self, now: Instant) {
        let mut outstanding = core::mem::take(&mut self.queue.outstanding);
        for Outstanding { handle, generation, asked, answer } in outstanding.drain(..) {
            let Some(record) = self.mirror.get_mut(handle).filter(|record| record.generation == generation) else {
                continue;
            };
            match answer {
                RequestResult::Refused(refusal) => self.handle_refusal(now, handle, asked, refusal),
                RequestResult::Found => {}
                RequestResult::None if asked == RequestKind::Get => self.retry(now, handle),
                RequestResult::None => {
                    let was_refused = record.is_any(flag::REFUSED);
                    record.set(flag::REFUSED, false);
                    record.refusals = 0;
                    self.queue.refused_now -= u32::from(was_refused);
                    self.handle_done(now, handle, asked);
                }
            }
        }
        self.queue.outstanding = outstanding;
    }

    fn handle_done(&mut self, now: Instant, handle: Handle, asked: RequestKind) {
        let counters = &mut self.queue.counters;
        let Some(record) = self.mirror.get_mut(handle) else { return };
        match asked {
            RequestKind::Create => {
                counters.created += 1;
                record.id = 0;
                record.set(flag::IN_KERNEL, true);
                record.set(flag::FOUND, false);
                record.dump = self.dump.number();
                if self.queue.failing.is_some() && self.queue.refused_now == 0 {
                    self.queue.failing = None;
                    self.events.push(now, SyncEvent::InjectionWorks);
                }
            }
            RequestKind::Update => {
                counters.updated += 1;
                record.dump = self.dump.number();
                counters.refreshed += u64::from(record.is_any(flag::REFRESH));
            }
            RequestKind::Delete => {
                counters.deleted += 1;
                self.drop_replica(handle);
                return;
            }
            RequestKind::DeleteFirst => {
                counters.deleted += 1;
                record.set(flag::IN_KERNEL | flag::FOUND, false);
            }
            RequestKind::Get => {}
            RequestKind::Expectation => counters.expectations += 1,
        }
        if let Some(record) = self.mirror.get_mut(handle) {
            record.set(flag::REFRESH, false);
        }
    }

    fn handle_refusal(&mut self, now: Instant, handle: Handle, asked: RequestKind, refusal: KernelRefusal) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let is_expected = match (asked, refusal) {
            (RequestKind::Create, KernelRefusal::Exists) if record.refusals < ALTERNATIONS_MAX => {
                record.set(flag::IN_KERNEL | flag::FOUND, true);
                true
            }
            (RequestKind::Update, KernelRefusal::Missing) if record.refusals < ALTERNATIONS_MAX => {
                record.set(flag::IN_KERNEL | flag::FOUND, false);
                record.rare.iter_mut().for_each(|rare| rare.injected.clear());
                true
            }
            (RequestKind::DeleteFirst, KernelRefusal::Missing) => {
                return record.set(flag::IN_KERNEL | flag::FOUND, false);
            }
            (RequestKind::Delete, KernelRefusal::Missing) => return self.drop_replica(handle),
            (RequestKind::Get, KernelRefusal::Missing) => {
                record.set(flag::VERIFY, false);
                self.queue.counters.asked += 1;
                return self.verified_gone(now, handle);
            }
            // A dump finds the kernel's state.
            (RequestKind::Expectation, KernelRefusal::Exists | KernelRefusal::Missing) => return,
            _ => false,
        };
        if is_expected {
            record.refusals += 1;
            return self.queue(handle, flag::DIRTY);
        }
        self.queue.counters.refused[refusal.kind()] += 1;
        self.back_off(now, handle, asked, refusal);
    }

    fn back_off(&mut self, now: Instant, handle: Handle, asked: RequestKind, refusal: KernelRefusal) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        match asked {
            RequestKind::Expectation => return,
            RequestKind::Delete if record.refusals >= DELETE_TRIES_MAX => {
                self.queue.counters.deletions_given_up += 1;
                return self.drop_replica(handle);
            }
            RequestKind::Update
                if record.refusals < ALTERNATIONS_MAX && !matches!(refusal, KernelRefusal::NotPermitted) =>
            {
                record.refusals += 1;
                return self.queue(handle, flag::DIRTY | flag::REPLACE);
            }
            RequestKind::Create => {
                record.set(flag::IN_KERNEL | flag::FOUND, false);
                record.rare.iter_mut().for_each(|rare| rare.injected.clear());
                if !record.is_any(flag::REFUSED) {
                    record.set(flag::REFUSED, true);
                    self.queue.refused_now += 1;
                }
                if self.queue.failing.is_none() {
                    self.queue.failing = Some(refusal);
                    self.events.push(now, SyncEvent::InjectionFails(refusal));
                }
                record.set(flag::DIRTY, true);
                if refusal == KernelRefusal::Full {
                    record.refusals = record.refusals.max(FULL_REFUSALS);
                }
            }
            RequestKind::Update | RequestKind::DeleteFirst => record.set(flag::DIRTY, true),
            RequestKind::Delete | RequestKind::Get => {}
        }
        self.retry(now, handle);
    }

    /// Removes a replica that is no longer in the kernel.
    pub(crate) fn drop_replica(&mut self, handle: Handle) {
        self.set_unreplicated(handle, None);
        let Some(record) = self.mirror.get(handle) else { return };
        self.queue.refused_now -= u32::from(record.is_any(flag::REFUSED));
        self.mirror.remove(handle);
        self.note_room();
        self.changes.push(ConnectionChange::ReplicaChanged(handle));
    }
}

/// The connection in the form for the kernel: with unknown windows, segments pass without window check.
fn to_inject(record: &Record, floor_s: u32) -> Entry {
    let mut entry = record.entry();
    entry.id = None;
    entry.timeout_s = Some(kernel_timeout_s(record, floor_s));
    if let Some(ProtocolInfo::Tcp(TcpInfo { state, sides })) = entry.protocol_info {
        let liberal = |side: TcpSide| TcpSide { flags: side.flags.union(TcpFlags::BE_LIBERAL), ..side };
        let sides = Some(sides.unwrap_or_default().map(liberal));
        entry.protocol_info = Some(ProtocolInfo::Tcp(TcpInfo { state, sides }));
    }
    entry
}

/// The kernel timeout without further updates: the owner's, but long enough for a refresh.
fn kernel_timeout_s(record: &Record, floor_s: u32) -> u32 {
    let timeout_s = record.timeout_s().unwrap_or(floor_s).min(TIMEOUT_MAX_S);
    if is_closing(record) { timeout_s.max(1) } else { timeout_s.max(floor_s) }
}

/// Whether the end points are closing the connection: it ends by timeout.
pub(crate) fn is_closing(record: &Record) -> bool {
    matches!(record.tcp_state(), Some(TcpState::LastAck | TcpState::TimeWait | TcpState::Close))
}
