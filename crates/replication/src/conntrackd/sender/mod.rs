//! The sending half: what is to be told, what was told, and what became of it.

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

/// How far everything was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walk {
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

/// What is to be told, what was told, and what became of it.
pub(super) struct Sender {
    connections: Outbox<Entry>,
    expectations: Outbox<Expectation>,
    controls: Controls,
    log: Log,
    walk: Walk,
    /// Everything is to be told once more after that.
    walks_again: bool,
    is_open: bool,
    /// Everything was told once: what else the peer has of this node's, an earlier process of it told.
    has_told_all: bool,
    /// The peer is to be asked for everything once it says anything: questions before it were given up.
    owes_resync: bool,
    /// When `fill` first saw changes that still wait for company.
    waiting_since: Option<Instant>,
    /// When something was sent last that would be missed, and how many signs of life went after it.
    tail: Option<(Instant, u8)>,
    /// Since when nothing was heard of what is in flight, or it was asked after last.
    unheard_since: Option<Instant>,
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
            walk: Walk::Done,
            walks_again: false,
            is_open: false,
            has_told_all: false,
            owes_resync: false,
            waiting_since: None,
            tail: None,
            unheard_since: None,
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
    pub(super) fn is_walk_done(&self) -> bool {
        self.is_open && self.walk == Walk::Done && !self.walks_again
    }

    /// Whether the peer has acknowledged all that there was.
    pub(super) fn is_told(&self) -> bool {
        self.is_walk_done() && self.queued() == 0 && self.log.objects() == 0
    }

    pub(super) fn mark_changed(&mut self, handle: Handle) {
        if self.is_open {
            self.connections.marks.want(handle);
        }
    }

    pub(super) fn mark_deleted(&mut self, handle: Handle, entry: &Entry, is_told_anyway: bool) {
        if self.connections.marks.forget(handle) || is_told_anyway || !self.has_told_all {
            self.counters.left_out += u64::from(!self.connections.endings.push(entry.clone()));
        }
    }

    pub(super) fn forget(&mut self, handle: Handle) {
        self.connections.marks.forget(handle);
    }

    pub(super) fn is_connection_told(&self, handle: Handle) -> bool {
        self.connections.marks.is_told(handle)
    }

    pub(super) fn mark_expectation_changed(&mut self, handle: Handle) {
        if self.is_open {
            self.expectations.marks.want(handle);
        }
    }

    pub(super) fn mark_expectation_deleted(&mut self, handle: Handle, expectation: &Expectation) {
        if self.expectations.marks.forget(handle) || !self.has_told_all {
            self.counters.left_out += u64::from(!self.expectations.endings.push(expectation.clone()));
        }
    }

    pub(super) fn forget_expectation(&mut self, handle: Handle) {
        self.expectations.marks.forget(handle);
    }

    /// Everything is to be told.
    pub(super) const fn tell_everything(&mut self) {
        if !self.is_open {
            return;
        }
        match self.walk {
            Walk::Done => {
                self.walk = Walk::Connections(Handle(0));
                self.counters.rounds += 1;
            }
            // A peer that asks again and again is told to the end all the same.
            Walk::Connections(_) | Walk::Expectations(_) => self.walks_again = true,
        }
    }

    /// The peer hears: it is told everything, and asked for everything.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        (self.walk, self.walks_again) = (Walk::Connections(Handle(0)), false);
        self.counters.rounds += 1;
        self.ask_for_everything();
    }

    pub(super) fn ask_for_everything(&mut self) {
        self.is_resync_acknowledged = false;
        self.controls.push(Sent::Resync);
    }

    /// The peer is away, or another process. What ended is kept, as the peer may have it all the same; it is told the rest anew.
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
        (self.walk, self.walks_again, self.owes_resync) = (Walk::Done, false, false);
        (self.waiting_since, self.tail, self.unheard_since) = (None, None, None);
    }
}
