//! The sending half: what is to be sent, what was sent, and whether it arrived.

mod answers;
mod control;
mod endings;
mod filling;
mod log;
mod marks;
mod object;
mod outbox;

use flow::Instant;
use flow::netfilter::{Entry, Expectation};

use self::control::Controls;
use self::log::{Log, Sent};
use self::outbox::Outbox;
use super::FtfwConfig;
use crate::session::Handle;

/// What may be in flight.
struct Limits<'a> {
    config: &'a FtfwConfig,
    window: u16,
}

impl Limits<'_> {
    fn allows(&self, log: &Log) -> bool {
        log.objects() < usize::from(self.window)
    }
}

/// How far a full synchronisation has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FullSync {
    /// To the end.
    Done,
    Connections(Handle),
    Expectations(Handle),
}

/// Counters since the session was made.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SenderCounters {
    pub(super) messages: u64,
    pub(super) control: u64,
    pub(super) lost: u64,
    pub(super) resent: u64,
    pub(super) timed_out: u64,
    pub(super) left_out: u64,
    pub(super) inexpressible: u64,
    pub(super) rounds: u64,
    pub(super) asks: u64,
}

/// What is to be sent, what was sent, and whether it arrived.
pub(super) struct Sender {
    connections: Outbox<Entry>,
    expectations: Outbox<Expectation>,
    controls: Controls,
    log: Log,
    full_sync: FullSync,
    /// Another full synchronisation is to follow that.
    full_sync_pending: bool,
    is_open: bool,
    /// A full synchronisation was sent once: what else the peer has of this node's, an earlier process of it sent.
    has_sent_all: bool,
    /// The peer is to be asked for a full synchronisation once it sends anything: questions before it were given up.
    resync_pending: bool,
    /// When `fill` first saw changes that still wait for company.
    waiting_since: Option<Instant>,
    /// When something was sent last that would be missed, and how many keep-alives went after it.
    tail: Option<(Instant, u8)>,
    /// Since when no acknowledgement has come for what is in flight, or when it was asked after last.
    unanswered_since: Option<Instant>,
    /// The peer has acknowledged that it was asked for everything.
    pub(super) is_resync_acknowledged: bool,
    pub(super) counters: SenderCounters,
}

impl Sender {
    pub(super) fn new(config: &FtfwConfig, first: u32) -> Self {
        Self {
            connections: Outbox::new(config.connections_max, config.deletions_max),
            expectations: Outbox::new(config.expectations_max, config.deletions_max),
            controls: Controls::default(),
            log: Log::new(first),
            full_sync: FullSync::Done,
            full_sync_pending: false,
            is_open: false,
            has_sent_all: false,
            resync_pending: false,
            waiting_since: None,
            tail: None,
            unanswered_since: None,
            is_resync_acknowledged: false,
            counters: SenderCounters::default(),
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.connections.queued() + self.expectations.queued()
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.log.objects()
    }

    /// When the oldest message was sent that is not acknowledged, or changes were found waiting.
    pub(super) fn oldest_unacknowledged_at(&self) -> Option<Instant> {
        self.log.oldest_at().filter(|_| self.log.objects() > 0).or(self.waiting_since)
    }

    /// Whether all that there was has been sent.
    pub(super) fn is_full_sync_done(&self) -> bool {
        self.is_open && self.full_sync == FullSync::Done && !self.full_sync_pending
    }

    /// Whether the peer has acknowledged all that there was.
    pub(super) fn is_full_sync_acknowledged(&self) -> bool {
        self.is_full_sync_done() && self.queued() == 0 && self.log.objects() == 0
    }

    pub(super) fn mark_changed(&mut self, handle: Handle) {
        if self.is_open {
            self.connections.marks.want(handle);
        }
    }

    pub(super) fn mark_deleted(&mut self, handle: Handle, entry: &Entry, is_unconditional: bool) {
        if self.connections.marks.forget(handle) || is_unconditional || !self.has_sent_all {
            self.counters.left_out += u64::from(!self.connections.endings.push(entry.clone()));
        }
    }

    pub(super) fn forget(&mut self, handle: Handle) {
        self.connections.marks.forget(handle);
    }

    pub(super) fn is_replicated(&self, handle: Handle) -> bool {
        self.connections.marks.is_replicated(handle)
    }

    pub(super) fn mark_expectation_changed(&mut self, handle: Handle) {
        if self.is_open {
            self.expectations.marks.want(handle);
        }
    }

    pub(super) fn mark_expectation_deleted(&mut self, handle: Handle, expectation: &Expectation) {
        if self.expectations.marks.forget(handle) || !self.has_sent_all {
            self.counters.left_out += u64::from(!self.expectations.endings.push(expectation.clone()));
        }
    }

    pub(super) fn forget_expectation(&mut self, handle: Handle) {
        self.expectations.marks.forget(handle);
    }

    /// A full synchronisation is to be sent.
    pub(super) const fn replicate_all(&mut self) {
        if !self.is_open {
            return;
        }
        match self.full_sync {
            FullSync::Done => {
                self.full_sync = FullSync::Connections(Handle(0));
                self.counters.rounds += 1;
            }
            // A peer that asks again and again still gets each full synchronisation to its end.
            FullSync::Connections(_) | FullSync::Expectations(_) => self.full_sync_pending = true,
        }
    }

    /// The peer receives: a full synchronisation is sent, and one is asked for.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        (self.full_sync, self.full_sync_pending) = (FullSync::Connections(Handle(0)), false);
        self.counters.rounds += 1;
        self.ask_for_everything();
    }

    pub(super) fn ask_for_everything(&mut self) {
        self.is_resync_acknowledged = false;
        self.controls.push(Sent::Resync);
    }

    /// The peer is away, or another process. What ended is kept, as the peer may have it all the same; the rest is sent anew.
    pub(super) fn suspend(&mut self) {
        let Self { log, connections, expectations, .. } = self;
        log.drain(|sent| match sent {
            Sent::ConnectionEnd(id) => connections.endings.requeue(id),
            Sent::ExpectationEnd(id) => expectations.endings.requeue(id),
            _ => {}
        });
        self.controls.clear();
        self.connections.marks.suspend();
        self.expectations.marks.suspend();
        self.is_open = false;
        self.rest();
    }

    fn rest(&mut self) {
        (self.full_sync, self.full_sync_pending, self.resync_pending) = (FullSync::Done, false, false);
        (self.waiting_since, self.tail, self.unanswered_since) = (None, None, None);
    }
}
