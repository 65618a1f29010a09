//! Runs with random faults from an RNG seed, and the invariants at their end.

use core::time::Duration;
use std::collections::BTreeSet;
use std::vec::Vec;

use flow::netfilter::TcpState;
use flow::random::SplitMix64;

use super::pair::{Options, Pair, tuple};
use crate::*;

/// The faults of a run, beside lost datagrams.
#[derive(Clone, Copy)]
struct Faults {
    restarts: bool,
    swaps: bool,
}

struct Storm {
    pair: Pair,
    random: SplitMix64,
    primary: usize,
    /// Established connections that have not ended.
    alive: BTreeSet<u32>,
    next: u32,
}

impl Storm {
    fn start(seed: u64) -> Self {
        let mut pair = Pair::ready(Options { seed, ..Options::default() });
        pair.kept_alive_at = Some(0);
        Self { pair, random: SplitMix64::new(seed), primary: 0, alive: BTreeSet::new(), next: 1 }
    }

    fn pick(&mut self) -> Option<u32> {
        let at = self.random.between(0, self.alive.len().max(1) as u64 - 1);
        self.alive.iter().nth(at as usize).copied()
    }

    fn step(&mut self, faults: Faults) {
        match self.random.between(0, 99) {
            0..=39 => {
                self.pair.connect(self.primary, self.next);
                self.alive.insert(self.next);
                self.next += 1;
            }
            40..=59 => {
                if let Some(number) = self.pick() {
                    self.pair.packet(self.primary, number, TcpState::FinWait);
                }
            }
            60..=79 => {
                if let Some(number) = self.pick() {
                    self.pair.hosts[self.primary].kernel.delete(tuple(number));
                    self.alive.remove(&number);
                }
            }
            80..=82 => {
                let node = self.random.between(0, 1) as usize;
                self.pair.hosts[node].kernel.buffer_max = self.random.between(0, 3) as usize;
            }
            83..=87 => self.pair.hosts.iter_mut().for_each(|host| host.kernel.buffer_max = usize::MAX),
            88 => self.pair.is_partitioned = true,
            89..=92 => self.pair.is_partitioned = false,
            93 => self.pair.loss_percent = self.random.between(0, 30),
            94..=95 => {
                let count = self.random.between(1, 20) as usize;
                self.pair.hosts[1 - self.primary].kernel.refuse = Some((count, KernelRefusal::Other(12)));
            }
            96..=97 if faults.restarts => {
                let node = self.random.between(0, 1) as usize;
                let role = if node == self.primary { SyncRole::Primary } else { SyncRole::Backup };
                self.pair.restart(node, role);
            }
            98..=99 if faults.swaps => self.swap(),
            _ => {}
        }
        let pause_ms = self.random.between(0, 40);
        self.pair.run(Duration::from_millis(pause_ms));
    }

    fn calm(&mut self) {
        self.pair.is_partitioned = false;
        self.pair.loss_percent = 0;
        for host in &mut self.pair.hosts {
            (host.kernel.buffer_max, host.kernel.refuse) = (usize::MAX, None);
        }
        self.pair.settle();
        self.pair.until("it is calm", |pair| pair.hosts.iter().all(|host| host.node.readiness(pair.now).is_safe()));
        self.pair.settle();
    }

    /// Moves the addresses once readiness reports it as safe, as an operator does.
    fn swap(&mut self) {
        self.calm();
        self.check();
        self.primary = 1 - self.primary;
        self.pair.kept_alive_at = Some(self.primary);
        let now = self.pair.now;
        self.pair.hosts[self.primary].node.set_role(now, SyncRole::Primary);
        self.pair.hosts[1 - self.primary].node.set_role(now, SyncRole::Backup);
    }

    /// Live connections are in both kernels, and both agree.
    fn check(&mut self) {
        for host in &self.pair.hosts {
            let lacking: Vec<_> =
                self.alive.iter().filter(|number| host.kernel.get(tuple(**number)).is_none()).collect();
            let known = lacking.first().map(|number| {
                self.pair.hosts.each_ref().map(|host| {
                    let flows = host.node.flows(0, usize::MAX).flows;
                    let has = host.kernel.get(tuple(**number)).is_some();
                    (flows.into_iter().find(|flow| flow.entry.original == tuple(**number)), has)
                })
            });
            let node = host.node.node().0;
            assert!(lacking.is_empty(), "{lacking:?} are lacking at {node}; of the first is known: {known:#?}");
        }
        self.pair.assert_kernels_agree();
        assert_eq!(self.pair.status(0).own + self.pair.status(1).own, self.pair.status(0).connections);
    }
}

fn run(seeds: core::ops::Range<u64>, faults: Faults) {
    for seed in seeds {
        let mut storm = Storm::start(seed);
        std::println!("seed {seed}");
        (0..300).for_each(|_| storm.step(faults));
        storm.calm();
        storm.check();
    }
}

#[test]
fn both_kernels_converge_despite_any_losses() {
    run(0..40, Faults { restarts: false, swaps: false });
}

#[test]
fn moving_the_addresses_loses_no_live_connection() {
    run(1000..1040, Faults { restarts: false, swaps: true });
}

#[test]
fn restarted_daemons_lose_no_live_connection() {
    run(2000..2040, Faults { restarts: true, swaps: true });
}
