//! Runs many seeds, several at once.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::report::Outcome;
use crate::{Options, run};

/// Runs `seeds` seeds from `first` on, in `jobs` threads, and passes each outcome to `take` on completion, not in the
/// order of the seeds.
pub fn run_many(first: u64, seeds: u64, jobs: NonZeroUsize, options: Options, mut take: impl FnMut(Outcome)) {
    let next = AtomicU64::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.get() {
            let sender = sender.clone();
            let next = &next;
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= seeds || sender.send(run(first.wrapping_add(index), options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        receiver.iter().for_each(&mut take);
    });
}
