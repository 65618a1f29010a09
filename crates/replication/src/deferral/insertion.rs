//! Which connections are deferred, and when each is due.

use core::time::Duration;

use flow::Instant;

use super::queue::{Entry, Place, Queue};
use super::{Config, Controller};
use crate::Handle;

/// Connections that are due within so short a time are looked at together.
pub const TICK: Duration = Duration::from_millis(10);
/// A connection that was due, but for which no packet had come for long, is looked at again after this time.
pub const IDLE_RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A connection that is to be looked at: [`DeferralQueue::decide`] is to be given its age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// The connection.
    pub handle: Handle,
    /// When it began.
    pub began: Instant,
}

/// How old a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Age {
    /// It is not there any more, or is not this node's.
    Gone,
    /// It is open, and both its ends will want to go on, however long they are silent: its age is the time since it began.
    Open,
    /// Such a connection has no end of its own: the last packet came so long after the first.
    Observed(Duration),
}

/// The state of lazy insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeferralStatus {
    /// Connections younger than this are not replicated; zero: all are replicated at once.
    pub threshold: Duration,
    /// The level of degradation; 0 with a fixed threshold.
    pub level: u8,
    /// Levels that there are; 0 with a fixed threshold.
    pub levels: u8,
    /// How busy the processor was in the last interval, where it was measured.
    pub utilisation_per_mille: Option<u16>,
    /// Connections that are deferred now: a failover now would lose them.
    pub deferred: u32,
    /// Connections that ended before they were replicated, since the start.
    pub never_replicated: u64,
    /// Connections that were deferred and then replicated, since the start.
    pub replicated_late: u64,
    /// Connections that were replicated as soon as they began, since the start.
    pub replicated_at_once: u64,
}

/// Which connections are deferred. One that is not known here is replicated like any other.
#[derive(Clone, Debug)]
pub struct DeferralQueue {
    config: Config,
    controller: Option<Controller>,
    queue: Queue,
    /// None is deferred for the time being: the node is about to leave.
    is_suspended: bool,
    never_replicated: u64,
    replicated_late: u64,
    replicated_at_once: u64,
}

impl DeferralQueue {
    /// For a table of so many slots.
    #[must_use]
    pub fn new(config: Config, connections_max: u32, now: Instant) -> Self {
        let controller = match config {
            Config::Fixed(_) => None,
            Config::Dynamic(dynamic) => Some(Controller::new(dynamic, now)),
        };
        let queue = Queue::new(connections_max);
        Self {
            config,
            controller,
            queue,
            is_suspended: false,
            never_replicated: 0,
            replicated_late: 0,
            replicated_at_once: 0,
        }
    }

    /// What decides how long connections are deferred.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// The deferral threshold now; zero: none is deferred.
    #[must_use]
    pub fn threshold(&self) -> Duration {
        match (&self.config, &self.controller) {
            _ if self.is_suspended => Duration::ZERO,
            (_, Some(controller)) => controller.threshold(),
            (Config::Fixed(threshold), None) => *threshold,
            (Config::Dynamic(_), None) => Duration::ZERO,
        }
    }

    /// The processor was busy for this share of the time since it was measured last.
    pub fn note_utilisation(&mut self, per_mille: u16) {
        self.controller.iter_mut().for_each(|controller| controller.note_utilisation(per_mille));
    }

    /// A connection begins. True if it is deferred; an urgent one never is.
    pub fn begin(&mut self, now: Instant, handle: Handle, is_urgent: bool) -> bool {
        self.queue.begin(now, handle.0);
        let may = self.controller.as_ref().map_or(!self.threshold().is_zero(), Controller::may_defer);
        let is_deferred = may && !is_urgent && !self.is_suspended;
        if is_deferred {
            self.queue.put(now, handle.0, Place::Deferred);
        } else {
            self.replicated_at_once += 1;
            self.note_insertion();
            self.follow_replicated(now, handle);
        }
        is_deferred
    }

    /// The slot's connection replaces one that ended here: no peer has anything of either.
    pub fn note_unknown_to_peers(&mut self, handle: Handle) {
        self.queue.get_mut(handle.0).into_iter().for_each(|entry| entry.is_unknown_to_peers = true);
    }

    /// Whether the connection is not replicated for now, or was over before it was.
    #[must_use]
    pub fn is_deferred(&self, handle: Handle) -> bool {
        matches!(self.queue.place(handle.0), Place::Deferred | Place::Idle | Place::NeverReplicated)
    }

    /// Whether no peer has ever received a connection with this one's tuple from this node, but for its end.
    #[must_use]
    pub fn is_unknown_to_peers(&self, handle: Handle) -> bool {
        self.is_deferred(handle) && self.queue.get(handle.0).is_some_and(|entry| entry.is_unknown_to_peers)
    }

    /// The connection is replicated now, whatever its age. True if it was deferred.
    pub fn replicate(&mut self, now: Instant, handle: Handle) -> bool {
        let is_deferred = self.is_deferred(handle);
        if is_deferred {
            self.replicated_late += 1;
            self.note_insertion();
            self.follow_replicated(now, handle);
        }
        is_deferred
    }

    /// The connection closes: its lifetime ends, though its record may stay for a while.
    pub fn complete(&mut self, now: Instant, handle: Handle) {
        let Some(entry) = self.queue.get(handle.0).copied() else { return };
        self.count(handle, entry, now.saturating_since(entry.began));
        match entry.place {
            Place::Deferred | Place::Idle => {
                self.note_never_replicated(entry.place);
                self.queue.put(now, handle.0, Place::NeverReplicated);
            }
            Place::Replicated => self.queue.put(now, handle.0, Place::None),
            Place::None | Place::NeverReplicated => {}
        }
    }

    /// The connection is no more.
    pub fn end(&mut self, now: Instant, handle: Handle) {
        self.complete(now, handle);
        self.forget(handle);
    }

    /// The slot holds nothing of this node's any more.
    pub fn forget(&mut self, handle: Handle) {
        self.queue.begin(Instant::ZERO, handle.0);
    }

    /// The next connection that is to be looked at by `now`; [`DeferralQueue::decide`] is to be called for it before the next.
    pub fn poll_due(&self, now: Instant) -> Option<Due> {
        let place =
            [Place::Deferred, Place::Idle, Place::Replicated].into_iter().find(|place| self.is_due(*place, now))?;
        let (slot, entry) = self.queue.first(place)?;
        Some(Due { handle: Handle(slot), began: entry.began })
    }

    /// The age of a connection that was due. True if it is to be replicated now.
    pub fn decide(&mut self, now: Instant, handle: Handle, age: Age) -> bool {
        let Some(entry) = self.queue.get(handle.0).copied() else { return false };
        let since_it_began = now.saturating_since(entry.began);
        let age = match age {
            Age::Gone => {
                self.forget(handle);
                return false;
            }
            Age::Open => since_it_began,
            Age::Observed(age) => age.min(since_it_began),
        };
        match entry.place {
            Place::Deferred | Place::Idle if age < self.threshold() => {
                // It may well be over: that counts until a packet shows otherwise.
                self.count(handle, entry, age);
                if entry.place == Place::Deferred {
                    self.controller.iter_mut().for_each(Controller::note_never_replicated);
                }
                self.queue.put(now, handle.0, Place::Idle);
                false
            }
            Place::Deferred | Place::Idle => self.replicate(now, handle),
            Place::Replicated => {
                self.count(handle, entry, age);
                self.queue.put(now, handle.0, Place::None);
                false
            }
            Place::None | Place::NeverReplicated => false,
        }
    }

    /// None is deferred from now on, until [`DeferralQueue::resume`]: all that are come due.
    pub const fn suspend(&mut self) {
        self.is_suspended = true;
    }

    /// Connections are deferred again.
    pub const fn resume(&mut self) {
        self.is_suspended = false;
    }

    /// Whether deferral is suspended.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Connections that are deferred, of which a failover now would lose each.
    #[must_use]
    pub fn deferred(&self) -> u32 {
        self.queue.len(Place::Deferred) + self.queue.len(Place::Idle)
    }

    /// When [`DeferralQueue::handle_timeout`] or [`DeferralQueue::poll_due`] has something to do, at the latest a
    /// [`TICK`] late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = [Place::Deferred, Place::Idle, Place::Replicated].into_iter().filter_map(|place| self.due_at(place));
        let due = due.min().map(|at| at + TICK);
        self.controller.as_ref().map(Controller::poll_timeout).into_iter().chain(due).min()
    }

    /// Decides on the next interval's threshold, if it is time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.controller.iter_mut().for_each(|controller| controller.handle_timeout(now));
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> DeferralStatus {
        let controller = self.controller.as_ref();
        DeferralStatus {
            threshold: self.threshold(),
            level: controller.map_or(0, Controller::level),
            levels: controller.map_or(0, |controller| controller.config().levels),
            utilisation_per_mille: controller.and_then(Controller::utilisation_per_mille),
            deferred: self.deferred(),
            never_replicated: self.never_replicated,
            replicated_late: self.replicated_late,
            replicated_at_once: self.replicated_at_once,
        }
    }

    fn due_at(&self, place: Place) -> Option<Instant> {
        let (_, entry) = self.queue.first(place)?;
        Some(match place {
            Place::Deferred => entry.began + self.threshold(),
            Place::Idle if self.is_suspended => entry.since,
            Place::Idle => entry.since + IDLE_RECHECK_INTERVAL,
            Place::Replicated | Place::None | Place::NeverReplicated => entry.began + self.lifetime_max(),
        })
    }

    fn is_due(&self, place: Place, now: Instant) -> bool {
        self.due_at(place).is_some_and(|due| due <= now)
    }

    fn lifetime_max(&self) -> Duration {
        match self.config {
            Config::Dynamic(dynamic) => dynamic.lifetime_max,
            Config::Fixed(_) => Duration::ZERO,
        }
    }

    /// A replicated connection's lifetime is of interest where thresholds come from lifetimes.
    fn follow_replicated(&mut self, now: Instant, handle: Handle) {
        let is_counted = self.queue.get(handle.0).is_some_and(|entry| entry.is_counted);
        let is_of_interest = self.controller.is_some() && !is_counted;
        self.queue.put(now, handle.0, if is_of_interest { Place::Replicated } else { Place::None });
    }

    fn note_insertion(&mut self) {
        self.controller.iter_mut().for_each(Controller::note_replicated);
    }

    /// The controller counted an idle one as never replicated when it was first looked at.
    fn note_never_replicated(&mut self, place: Place) {
        self.never_replicated += 1;
        if place == Place::Deferred {
            self.controller.iter_mut().for_each(Controller::note_never_replicated);
        }
    }

    fn count(&mut self, handle: Handle, entry: Entry, lifetime: Duration) {
        let is_known = !matches!(entry.place, Place::None | Place::NeverReplicated);
        if is_known && !entry.is_counted {
            self.controller.iter_mut().for_each(|controller| controller.note_lifetime(lifetime));
            self.queue.get_mut(handle.0).into_iter().for_each(|entry| entry.is_counted = true);
        }
    }
}
