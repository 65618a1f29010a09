//! Looking on while a node works. See [`crate::observation`].

use alloc::boxed::Box;

use super::Node;
use crate::observation::{Latencies, Observed, Stopwatch, Subject, TooManyWatches, WatchId};

impl Node {
    /// From now on, looks at `subject`, until [`Node::stop_observing`] or until `sights_max` things were seen. What is
    /// seen is to be polled with [`Node::poll_observed`] after every batch and every timeout.
    ///
    /// # Errors
    /// There are as many watches as there may be.
    pub fn observe(&mut self, id: WatchId, subject: Subject, sights_max: u64) -> Result<(), TooManyWatches> {
        self.pipeline.observation_mut().begin(id, subject, sights_max)
    }

    /// Ends a watch. What it has seen remains to be polled.
    pub fn stop_observing(&mut self, id: WatchId) {
        self.pipeline.observation_mut().end(id);
    }

    /// The next thing that was seen, oldest first.
    pub fn poll_observed(&mut self) -> Option<Observed> {
        self.pipeline.observation_mut().poll()
    }

    /// How many things a watch has missed because what it saw before was not polled fast enough.
    #[must_use]
    pub fn observed_missed(&self, id: WatchId) -> u64 {
        self.pipeline.observation().missed(id)
    }

    /// Lends the node a clock with which it measures how long some of its work takes.
    pub fn set_stopwatch(&mut self, stopwatch: Box<dyn Stopwatch>) {
        self.pipeline.observation_mut().latency.set_stopwatch(stopwatch);
    }

    /// How long the work takes, as far as it was measured.
    #[must_use]
    pub const fn latencies(&self) -> &Latencies {
        self.pipeline.observation().latency.measured()
    }
}
