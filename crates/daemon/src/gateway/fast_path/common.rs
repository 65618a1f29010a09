//! What the workers of a gateway have in common of its fast path.
//!
//! The program forwards for all workers or for none. It does so while all of them forward and all of them are alive: its heartbeat is
//! that of the worker which was alive the longest ago.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use flow::Instant;
use flow::fast_path::Hook;

use super::ports::AttachedPort;

/// The interface of a port, as the lead worker has found it last.
#[derive(Debug)]
struct SharedPort {
    index: AtomicU32,
    leads_elsewhere: AtomicBool,
    is_target: AtomicBool,
}

/// See the [module](self). The lock is taken when a role changes.
#[derive(Debug)]
pub(super) struct Common {
    hook: Hook,
    /// Why that is not the configured hook.
    hook_reason: Option<String>,
    /// By port; `None` for a port without a fast path.
    ports: Vec<Option<SharedPort>>,
    /// When each worker was last alive, in nanoseconds of [`Instant`]; 0: never yet.
    beaten_at_ns: Vec<AtomicU64>,
    /// Whether each worker forwards.
    forwards: Mutex<Vec<bool>>,
}

impl Common {
    /// `hook_reason`: why the hook is not the configured one.
    pub(super) fn new(
        ports: &[Option<AttachedPort>],
        workers: u8,
        (hook, hook_reason): (Hook, Option<String>),
    ) -> Self {
        let shared = |port: &AttachedPort| SharedPort {
            index: AtomicU32::new(port.index),
            leads_elsewhere: AtomicBool::new(port.leads_elsewhere),
            is_target: AtomicBool::new(port.is_target),
        };
        Self {
            hook,
            hook_reason,
            ports: ports.iter().map(|port| port.as_ref().map(shared)).collect(),
            beaten_at_ns: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            forwards: Mutex::new(vec![false; workers.into()]),
        }
    }

    /// The hook at which the program is, and why that is not the configured one.
    pub(super) fn hook(&self) -> (Hook, Option<&str>) {
        (self.hook, self.hook_reason.as_deref())
    }

    /// A worker is alive. Returns when the last of all workers was.
    pub(super) fn beat(&self, worker: usize, now: Instant) -> Instant {
        self.beaten_at_ns[worker].store(now.as_nanos(), Ordering::Relaxed);
        let beats = self.beaten_at_ns.iter().map(|beaten_at| beaten_at.load(Ordering::Relaxed));
        Instant::from_nanos(beats.min().unwrap_or(0))
    }

    /// A worker forwards, or does not. `switch` is called with whether all do, under the lock: the last call counts.
    pub(super) fn set_forwards(&self, worker: usize, forwards: bool, switch: impl FnOnce(bool)) {
        let mut all = self.forwards.lock().unwrap_or_else(PoisonError::into_inner);
        all[worker] = forwards;
        switch(!all.contains(&false));
    }

    /// The lead worker has looked at the ports.
    pub(super) fn note_ports(&self, ports: &[Option<AttachedPort>]) {
        for (shared, port) in self.ports.iter().zip(ports) {
            if let (Some(shared), Some(port)) = (shared, port) {
                shared.index.store(port.index, Ordering::Relaxed);
                shared.leads_elsewhere.store(port.leads_elsewhere, Ordering::Relaxed);
                shared.is_target.store(port.is_target, Ordering::Relaxed);
            }
        }
    }

    /// The indices of the ports' interfaces; `None` for a port to which the program cannot redirect.
    pub(super) fn interfaces(&self) -> Vec<Option<u32>> {
        let index =
            |port: &SharedPort| port.is_target.load(Ordering::Relaxed).then(|| port.index.load(Ordering::Relaxed));
        self.ports.iter().map(|port| port.as_ref().and_then(index)).collect()
    }

    /// Whether packets for this interface can be handed to the other end of its cable.
    pub(super) fn leads_elsewhere(&self, ifindex: u32) -> bool {
        let is_it = |port: &&SharedPort| port.index.load(Ordering::Relaxed) == ifindex;
        let port = self.ports.iter().flatten().find(is_it);
        port.is_some_and(|port| port.leads_elsewhere.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heartbeat_is_that_of_the_worker_which_was_alive_the_longest_ago() {
        let common = Common::new(&[], 2, (Hook::Tc, None));
        let at = Instant::from_millis;
        assert_eq!(common.beat(0, at(5)), Instant::ZERO, "the other has not begun");
        assert_eq!(common.beat(1, at(7)), at(5));
        assert_eq!(common.beat(0, at(9)), at(7));
        assert_eq!(common.beat(0, at(900)), at(7), "the other hangs");
    }

    #[test]
    fn the_program_is_on_while_all_workers_forward() {
        let common = Common::new(&[], 2, (Hook::Tc, None));
        let set = |worker, forwards| {
            let mut is_on = None;
            common.set_forwards(worker, forwards, |all| is_on = Some(all));
            is_on.expect("it is switched each time")
        };
        assert!(!set(0, true));
        assert!(set(1, true));
        assert!(!set(0, false));
        assert!(!set(1, true));
    }
}
