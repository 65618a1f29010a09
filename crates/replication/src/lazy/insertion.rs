//! Which connections are put off, and when each is due.

use core::time::Duration;

use flow::Instant;

use super::queue::{Entry, Place, Queue};
use super::{Config, Controller};
use crate::Handle;

/// Connections that are due within so short a time are looked at together.
pub const TICK: Duration = Duration::from_millis(10);
/// A connection that was due, but for which no packet had come for long, is looked at again after this time.
pub const IDLE_LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A connection that is to be looked at: [`LazyInsertion::judge`] is to hear how old it is.
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
    /// Nobody says when such a connection is over: the last packet came so long after the first.
    Heard(Duration),
}

/// How lazy insertion stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LazyStatus {
    /// Connections younger than this are not told; zero: all are told at once.
    pub threshold: Duration,
    /// The level of degradation; 0 with a fixed threshold.
    pub level: u8,
    /// Levels that there are; 0 with a fixed threshold.
    pub levels: u8,
    /// How busy the processor was in the last interval, where it was measured.
    pub utilisation_per_mille: Option<u16>,
    /// Connections that are put off now: a failover now would lose them.
    pub put_off: u32,
    /// Connections that ended before they were told, since the start.
    pub spared: u64,
    /// Connections that were put off and then told, since the start.
    pub told_late: u64,
    /// Connections that were told as soon as they began, since the start.
    pub told_at_once: u64,
}

/// Which connections are put off. One that is not known here is told like any other.
#[derive(Clone, Debug)]
pub struct LazyInsertion {
    config: Config,
    controller: Option<Controller>,
    queue: Queue,
    /// Nothing is put off for the time being: the node is about to leave.
    is_suspended: bool,
    spared: u64,
    told_late: u64,
    told_at_once: u64,
}

impl LazyInsertion {
    /// For a table of so many slots.
    #[must_use]
    pub fn new(config: Config, connections_max: u32, now: Instant) -> Self {
        let controller = match config {
            Config::Fixed(_) => None,
            Config::Dynamic(dynamic) => Some(Controller::new(dynamic, now)),
        };
        let queue = Queue::new(connections_max);
        Self { config, controller, queue, is_suspended: false, spared: 0, told_late: 0, told_at_once: 0 }
    }

    /// What decides how long connections are put off.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// How long connections are put off now; zero: not at all.
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

    /// A connection begins. True if it is put off; one that `must_be_told` never is.
    pub fn begin(&mut self, now: Instant, handle: Handle, must_be_told: bool) -> bool {
        self.queue.begin(now, handle.0);
        let may = self.controller.as_ref().map_or(!self.threshold().is_zero(), Controller::may_put_off);
        let is_put_off = may && !must_be_told && !self.is_suspended;
        if is_put_off {
            self.queue.put(now, handle.0, Place::PutOff);
        } else {
            self.told_at_once += 1;
            self.note_insertion();
            self.follow_told(now, handle);
        }
        is_put_off
    }

    /// The slot's connection took the place of one that ended here: no peer has anything of either.
    pub fn note_unheard_of(&mut self, handle: Handle) {
        self.queue.get_mut(handle.0).into_iter().for_each(|entry| entry.is_unheard_of = true);
    }

    /// Whether the connection is not told for now, or was over before it was.
    #[must_use]
    pub fn is_put_off(&self, handle: Handle) -> bool {
        matches!(self.queue.place(handle.0), Place::PutOff | Place::Idle | Place::Spared)
    }

    /// Whether no peer has ever heard of a connection with this one's tuple from this node, but for its end.
    #[must_use]
    pub fn is_unheard_of(&self, handle: Handle) -> bool {
        self.is_put_off(handle) && self.queue.get(handle.0).is_some_and(|entry| entry.is_unheard_of)
    }

    /// The connection is told now, whatever its age. True if it was put off.
    pub fn tell(&mut self, now: Instant, handle: Handle) -> bool {
        let is_put_off = self.is_put_off(handle);
        if is_put_off {
            self.told_late += 1;
            self.note_insertion();
            self.follow_told(now, handle);
        }
        is_put_off
    }

    /// The connection says its farewell: its life ends, though it may stay for a while.
    pub fn complete(&mut self, now: Instant, handle: Handle) {
        let Some(entry) = self.queue.get(handle.0).copied() else { return };
        self.count(handle, entry, now.saturating_since(entry.began));
        match entry.place {
            Place::PutOff | Place::Idle => {
                self.note_spared(entry.place);
                self.queue.put(now, handle.0, Place::Spared);
            }
            Place::Told => self.queue.put(now, handle.0, Place::None),
            Place::None | Place::Spared => {}
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

    /// The next connection that is to be looked at by `now`; [`LazyInsertion::judge`] is to be called for it before the next.
    pub fn poll_due(&self, now: Instant) -> Option<Due> {
        let place = [Place::PutOff, Place::Idle, Place::Told].into_iter().find(|place| self.is_due(*place, now))?;
        let (slot, entry) = self.queue.first(place)?;
        Some(Due { handle: Handle(slot), began: entry.began })
    }

    /// A connection that was due is so old. True if it is to be told now.
    pub fn judge(&mut self, now: Instant, handle: Handle, age: Age) -> bool {
        let Some(entry) = self.queue.get(handle.0).copied() else { return false };
        let since_it_began = now.saturating_since(entry.began);
        let age = match age {
            Age::Gone => {
                self.forget(handle);
                return false;
            }
            Age::Open => since_it_began,
            Age::Heard(age) => age.min(since_it_began),
        };
        match entry.place {
            Place::PutOff | Place::Idle if age < self.threshold() => {
                // It may well be over: that counts until a packet says otherwise.
                self.count(handle, entry, age);
                if entry.place == Place::PutOff {
                    self.controller.iter_mut().for_each(Controller::note_spared);
                }
                self.queue.put(now, handle.0, Place::Idle);
                false
            }
            Place::PutOff | Place::Idle => self.tell(now, handle),
            Place::Told => {
                self.count(handle, entry, age);
                self.queue.put(now, handle.0, Place::None);
                false
            }
            Place::None | Place::Spared => false,
        }
    }

    /// Nothing is put off from now on, until [`LazyInsertion::resume`]: all that is comes due.
    pub const fn suspend(&mut self) {
        self.is_suspended = true;
    }

    /// Connections are put off again.
    pub const fn resume(&mut self) {
        self.is_suspended = false;
    }

    /// Whether nothing is put off for the time being.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Connections that are put off, of which a failover now would lose each.
    #[must_use]
    pub fn put_off(&self) -> u32 {
        self.queue.len(Place::PutOff) + self.queue.len(Place::Idle)
    }

    /// When [`LazyInsertion::handle_timeout`] or [`LazyInsertion::poll_due`] has something to do, at the latest a
    /// [`TICK`] late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = [Place::PutOff, Place::Idle, Place::Told].into_iter().filter_map(|place| self.due_at(place));
        let due = due.min().map(|at| at + TICK);
        self.controller.as_ref().map(Controller::poll_timeout).into_iter().chain(due).min()
    }

    /// Decides on the next interval's threshold, if it is time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.controller.iter_mut().for_each(|controller| controller.handle_timeout(now));
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> LazyStatus {
        let controller = self.controller.as_ref();
        LazyStatus {
            threshold: self.threshold(),
            level: controller.map_or(0, Controller::level),
            levels: controller.map_or(0, |controller| controller.config().levels),
            utilisation_per_mille: controller.and_then(Controller::utilisation_per_mille),
            put_off: self.put_off(),
            spared: self.spared,
            told_late: self.told_late,
            told_at_once: self.told_at_once,
        }
    }

    fn due_at(&self, place: Place) -> Option<Instant> {
        let (_, entry) = self.queue.first(place)?;
        Some(match place {
            Place::PutOff => entry.began + self.threshold(),
            Place::Idle if self.is_suspended => entry.since,
            Place::Idle => entry.since + IDLE_LOOK_AGAIN,
            Place::Told | Place::None | Place::Spared => entry.began + self.lifetime_max(),
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

    /// A told connection's lifetime is of interest where thresholds come from lifetimes.
    fn follow_told(&mut self, now: Instant, handle: Handle) {
        let is_counted = self.queue.get(handle.0).is_some_and(|entry| entry.is_counted);
        let is_of_interest = self.controller.is_some() && !is_counted;
        self.queue.put(now, handle.0, if is_of_interest { Place::Told } else { Place::None });
    }

    fn note_insertion(&mut self) {
        self.controller.iter_mut().for_each(Controller::note_told);
    }

    /// One that was idle has been counted as spared by the controller when it was first looked at.
    fn note_spared(&mut self, place: Place) {
        self.spared += 1;
        if place == Place::PutOff {
            self.controller.iter_mut().for_each(Controller::note_spared);
        }
    }

    fn count(&mut self, handle: Handle, entry: Entry, lifetime: Duration) {
        let is_known = !matches!(entry.place, Place::None | Place::Spared);
        if is_known && !entry.is_counted {
            self.controller.iter_mut().for_each(|controller| controller.note_lifetime(lifetime));
            self.queue.get_mut(handle.0).into_iter().for_each(|entry| entry.is_counted = true);
        }
    }
}
