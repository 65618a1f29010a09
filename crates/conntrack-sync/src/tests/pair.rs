//! Two nodes, each with a kernel, and a link between them that may lose datagrams.

use std::collections::VecDeque;
use std::time::Duration;
use std::vec::Vec;

use flow::netfilter::{Discriminator, TcpState, Tuple};
use flow::random::SplitMix64;
use flow::{HashKey, Instant, NodeId};
use replication::conntrackd::FtfwError;
use replication::{ApplyError, PeerError, SessionConfig};

use super::kernel::{Kernel, Queued};
use crate::*;

const TICK: Duration = Duration::from_millis(1);

/// The options of a scenario.
pub(super) struct Options {
    pub(super) config: fn(&mut SyncConfig),
    /// The percentage of lost datagrams.
    pub(super) loss_percent: u64,
    pub(super) seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { config: |_| {}, loss_percent: 0, seed: 7 }
    }
}

/// A node and its kernel.
pub(super) struct Host {
    pub(super) node: SyncNode,
    pub(super) kernel: Kernel,
    pub(super) events: Vec<SyncEvent>,
    pub(super) is_running: bool,
    inbox: VecDeque<Vec<u8>>,
    dump: Option<VecDeque<flow::netfilter::Entry>>,
}

/// Two of them.
pub(super) struct Pair {
    pub(super) hosts: [Host; 2],
    pub(super) now: Instant,
    pub(super) loss_percent: u64,
    pub(super) is_partitioned: bool,
    /// Every second, packets of all connections come here.
    pub(super) kept_alive_at: Option<usize>,
    random: SplitMix64,
    options: Options,
}

fn config(node: u8, seed: u64, options: &Options) -> SyncConfig {
    let session = SessionConfig { batch_delay: Duration::from_millis(1), ..SessionConfig::default() };
    let mut config = SyncConfig {
        node: NodeId(node),
        connections_max: 10_000,
        hash_key: HashKey([1, 2]),
        seed,
        injection: Injection::Direct,
        mode: Mode::PrimaryBackup,
        role: if node == 0 { SyncRole::Primary } else { SyncRole::Backup },
        filter: SyncFilter::default(),
        expectations: true,
        deferral: None,
        timeout_floor: TIMEOUT_FLOOR_DEFAULT,
        heartbeat_interval: HEARTBEAT_INTERVAL_DEFAULT,
        peers: std::vec![SyncPeerConfig { id: NodeId(1 - node), profile: PeerProfile::Native(session) }],
        security: None,
    };
    (options.config)(&mut config);
    config
}

pub(super) fn tuple(number: u32) -> Tuple {
    let [_, a, b, c] = number.to_be_bytes();
    Tuple {
        source: [10, a, b, c].into(),
        destination: [192, 0, 2, 80].into(),
        protocol: 6,
        discriminator: Discriminator::Ports { source: 40_000, destination: 80 },
    }
}

impl Pair {
    pub(super) fn start(options: Options) -> Self {
        let now = Instant::from_millis(1000);
        let host = |node: u8| Host {
            node: SyncNode::new(config(node, u64::from(node) + options.seed, &options), now).unwrap(),
            kernel: Kernel::new(u32::from(node) * 1_000_000 + 1),
            events: Vec::new(),
            is_running: true,
            inbox: VecDeque::new(),
            dump: None,
        };
        let hosts = [host(0), host(1)];
        let (loss_percent, random) = (options.loss_percent, SplitMix64::new(options.seed));
        Self { hosts, now, loss_percent, is_partitioned: false, kept_alive_at: None, random, options }
    }

    /// As [`Pair::start`], until both have completed full resynchronisation.
    pub(super) fn ready(options: Options) -> Self {
        let mut pair = Self::start(options);
        pair.until("both are ready", |pair| pair.hosts.iter().all(|host| host.node.readiness(pair.now).is_safe()));
        pair
    }

    /// Restarts the daemon; its kernel keeps its table.
    pub(super) fn restart(&mut self, node: usize, role: SyncRole) {
        let mut config = config(node as u8, self.now.as_nanos() ^ self.options.seed, &self.options);
        config.role = role;
        let host = &mut self.hosts[node];
        host.node = SyncNode::new(config, self.now).unwrap();
        (host.dump, host.is_running) = (None, true);
        host.kernel.events.clear();
        host.kernel.has_overrun = false;
    }

    /// Restarts the whole machine.
    pub(super) fn reboot(&mut self, node: usize, role: SyncRole) {
        self.restart(node, role);
        self.hosts[node].kernel = Kernel::new(self.now.as_nanos() as u32);
    }

    /// One millisecond.
    pub(super) fn tick(&mut self) {
        self.now = self.now + TICK;
        let now = self.now;
        if let Some(node) = self.kept_alive_at.filter(|_| now.as_nanos().is_multiple_of(1_000_000_000)) {
            self.hosts[node].kernel.keep_all_alive();
        }
        for from in 0..2 {
            self.hosts[from].kernel.advance(now);
            if !self.hosts[from].is_running {
                self.hosts[from].inbox.clear();
                continue;
            }
            self.hosts[from].serve(now, NodeId(1 - from as u8));
            let mut datagram = Vec::new();
            while let Some(to) = self.hosts[from].node.poll_transmit(now, &mut datagram) {
                let is_lost = self.is_partitioned || self.random.between(1, 100) <= self.loss_percent;
                if !is_lost {
                    self.hosts[usize::from(to.0)].inbox.push_back(datagram.clone());
                }
            }
        }
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.tick();
        }
    }

    /// Runs until the condition holds; at most a minute.
    #[track_caller]
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = self.now + Duration::from_secs(60);
        while !is_so(self) {
            assert!(
                self.now < end,
                "{what}: not within a minute: {:#?}",
                self.hosts.each_ref().map(|host| host.node.status(self.now))
            );
            self.tick();
        }
    }

    /// Waits until nothing is in flight.
    #[track_caller]
    pub(super) fn settle(&mut self) {
        self.run(Duration::from_millis(50));
        self.until("both settle", |pair| {
            pair.hosts.iter().all(|host| {
                let status = host.node.status(pair.now);
                let idle = |peer: &SyncPeerStatus| {
                    peer.session.is_some_and(|session| {
                        session.queued == 0 && session.in_flight == 0 && session.sent_all && session.received_all
                    })
                };
                status.pending == 0 && !status.is_recovering && status.peers.iter().all(idle)
            })
        });
    }

    /// A whole handshake at a node's kernel.
    pub(super) fn connect(&mut self, node: usize, number: u32) {
        let tuple = tuple(number);
        for state in [TcpState::SynSent, TcpState::SynRecv, TcpState::Established] {
            self.hosts[node].kernel.packet(tuple, tuple.inverse(), state);
        }
    }

    pub(super) fn packet(&mut self, node: usize, number: u32, state: TcpState) {
        let tuple = tuple(number);
        self.hosts[node].kernel.packet(tuple, tuple.inverse(), state);
    }

    pub(super) fn state(&self, node: usize, number: u32) -> Option<TcpState> {
        self.hosts[node].kernel.get(tuple(number))?.tcp().map(|info| info.state)
    }

    pub(super) fn status(&self, node: usize) -> SyncStatus {
        self.hosts[node].node.status(self.now)
    }

    #[track_caller]
    pub(super) fn assert_kernels_agree(&self) {
        let [one, other] = [0, 1].map(|node: usize| self.hosts[node].kernel.summary());
        let differs = |(tuple, entry): &(&Tuple, &_)| other.get(tuple) != Some(entry);
        let differing: Vec<_> = one.iter().filter(differs).map(|(tuple, entry)| (entry, other.get(tuple))).collect();
        let alone: Vec<_> = other.keys().filter(|tuple| !one.contains_key(tuple)).collect();
        let first = one.keys().find(|tuple| differs(&(tuple, &one[*tuple]))).or(alone.first().copied());
        let known = first.map(|tuple| {
            self.hosts
                .each_ref()
                .map(|host| host.node.flows(0, usize::MAX).flows.into_iter().find(|flow| flow.entry.original == *tuple))
        });
        assert!(first.is_none(), "{differing:?}, and only the second has {alone:?}; of the first is known {known:#?}");
    }
}

impl Host {
    /// Executes the pending work as a daemon does.
    fn serve(&mut self, now: Instant, peer: NodeId) {
        let Self { node, kernel, .. } = self;
        if core::mem::take(&mut kernel.has_overrun) {
            node.handle_events_lost(now);
        }
        for event in kernel.events.drain(..) {
            let event = match &event {
                Queued::Began(entry) => KernelEvent::Began(entry),
                Queued::Changed(entry) => KernelEvent::Changed(entry),
                Queued::Ended(entry) => KernelEvent::Ended(entry),
                Queued::Expected(expectation) => KernelEvent::Expected(expectation),
            };
            node.handle_kernel_event(now, Origin::Packets, event);
        }
        for datagram in self.inbox.drain(..) {
            let result = node.handle_datagram(now, peer, &datagram);
            let is_full = matches!(
                result,
                Err(SyncError::Replication(PeerError::Apply(ApplyError::Full))
                    | SyncError::Conntrackd(FtfwError::Apply(ApplyError::Full)))
            );
            assert!(result.is_ok() || is_full, "{result:?}");
        }
        if node.poll_dump(now) {
            self.dump = Some(kernel.dump().into());
        }
        if let Some(dump) = &mut self.dump {
            dump.drain(..dump.len().min(100)).for_each(|entry| node.handle_dump_entry(now, &entry));
            if dump.is_empty() {
                self.dump = None;
                kernel.expectations.iter().for_each(|expected| node.handle_dump_expectation(now, expected));
                node.handle_dump_ended(now, DumpResult::Complete);
            }
        }
        let mut batch = Vec::new();
        while node.poll_kernel_requests(now, &mut batch) {
            assert!(batch.len() <= KERNEL_REQUESTS_MAX);
            for request in &batch {
                match (kernel.execute(&request.action), &request.action) {
                    (Ok(found), KernelAction::Get { .. }) => {
                        node.handle_kernel_found(now, request.token, found.as_ref())
                    }
                    (answer, _) => node.handle_kernel_answer(now, request.token, answer.map(|_| ())),
                }
            }
            node.handle_requests_done(now);
        }
        if node.poll_timeout().is_some_and(|at| at <= now) {
            node.handle_timeout(now);
        }
        while let Some((_, event)) = node.poll_event() {
            self.events.push(event);
        }
    }
}
