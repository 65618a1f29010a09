//! Filters, divided among threads: each thread is handed the same changes in the same order.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::config::{ConfigError, Method, StudyConfig};
use super::lane::{Lane, LaneOutcome};
use super::ops::Entry;

/// Batches that may wait for a thread; then the reader of the captures waits.
const BATCHES_MAX: usize = 8;

/// What became of each filter: method, index of the threshold, outcome.
pub(super) type Outcomes = Vec<(Method, u8, LaneOutcome)>;

/// A thread, and the way to it.
type Worker = (SyncSender<Arc<Vec<Entry>>>, JoinHandle<Outcomes>);

/// The threads.
pub(super) struct Workers {
    threads: Vec<Worker>,
}

impl Workers {
    pub(super) fn start(config: &StudyConfig) -> Result<Self, ConfigError> {
        let mut lanes: Vec<Vec<Lane>> = Vec::new();
        lanes.resize_with(config.workers, Vec::new);
        let mut number = 0;
        // The low thresholds see the most changes: they are dealt out first.
        for threshold in 0..config.thresholds_ms.len() {
            let studied = |method: &&Method| !method.is_precise() && threshold < config.thresholds_of(**method);
            for method in config.methods.iter().filter(studied) {
                let lane = Lane::new(config, *method, threshold as u8)
                    .map_err(|error| ConfigError::Filter { method: method.name(), cause: error.to_string() })?;
                lanes[number % config.workers].push(lane);
                number += 1;
            }
        }
        let threads = lanes.into_iter().filter(|lanes| !lanes.is_empty()).map(|lanes| {
            let (sender, receiver) = sync_channel::<Arc<Vec<Entry>>>(BATCHES_MAX);
            let work = move || {
                let mut lanes = lanes;
                for batch in receiver {
                    lanes.iter_mut().for_each(|lane| handle(lane, &batch));
                }
                lanes.into_iter().map(|lane| (lane.method, lane.threshold, lane.finish())).collect()
            };
            let thread = Builder::new().name("filters".into()).spawn(work).expect("the system has room for a thread");
            (sender, thread)
        });
        Ok(Self { threads: threads.collect() })
    }

    /// Hands the changes to every thread.
    ///
    /// # Panics
    /// A thread has: a defect.
    pub(super) fn hand_out(&self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        let batch = Arc::new(entries);
        for (sender, _) in &self.threads {
            sender.send(Arc::clone(&batch)).expect("the thread ends only after this side has");
        }
    }

    /// Waits until all has been handled.
    pub(super) fn finish(self) -> Outcomes {
        let mut outcomes = Outcomes::new();
        for (sender, thread) in self.threads {
            drop(sender);
            outcomes.extend(thread.join().expect("the thread did not panic"));
        }
        outcomes
    }
}

fn handle(lane: &mut Lane, batch: &[Entry]) {
    for entry in batch {
        match entry {
            Entry::Op(op) => lane.handle(op),
            Entry::Failover(probes) => lane.probe(probes),
        }
    }
}
