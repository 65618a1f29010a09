//! A node: its connections, its peers, and the exchange between them.

mod coverage_check;
mod exchange;
mod observing;
mod reload;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::netfilter::{Entry, Expectation};
use flow::random::SplitMix64;
use flow::{Instant, NodeId};

use crate::config::{ConfigError, Mode, PeerProfile, SyncConfig, SyncRole};
use crate::connections::dump_state::{DumpResult, DumpState};
use crate::connections::expectation_table::ExpectationTable;
use crate::connections::injection_queue::InjectionQueue;
use crate::connections::kernel::{KernelEvent, Origin};
use crate::connections::refresh::RefreshScan;
use crate::connections::{ConnectionChange, Connections, Deferral, NodeSet};
use crate::coverage::FilterCoverage;
use crate::event::{Events, SyncEvent};
use crate::mirror::Mirror;
use crate::peer::Peer;
use crate::request::{KernelRefusal, KernelRequest, RequestToken};
use crate::status::SyncCounters;

/// One node.
pub struct SyncNode {
    connections: Connections,
    peers: Vec<Peer>,
    refresh_scan: RefreshScan,
    buffers: Buffers,
    coverage: CoverageState,
    split_brains: u64,
    connections_max: u32,
}

/// Reused buffers.
#[derive(Debug, Default)]
struct Buffers {
    attributes: Vec<u8>,
    changes: Vec<ConnectionChange>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

/// The last count of the kernel's connections, and the time of the next count.
#[derive(Debug, Default)]
struct CoverageState {
    coverage: FilterCoverage,
    count_at: Instant,
}

impl SyncNode {
    /// An empty node.
    ///
    /// # Errors
    /// The configuration is inconsistent.
    pub fn new(config: SyncConfig, now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        let mut random = SplitMix64::new(config.seed);
        let mut peers = Vec::with_capacity(config.peers.len());
        for peer in &config.peers {
            peers.push(Peer::new(&config, peer, &mut random, now)?);
        }
        let role = if config.mode == Mode::MultiPrimary { SyncRole::Primary } else { config.role };
        let connections = Connections {
            node: config.node,
            mode: config.mode,
            role,
            injection: config.injection,
            filter: config.filter,
            takes_expectations: config.expectations,
            timeout_floor_s: config.timeout_floor.as_secs() as u32,
            mirror: Mirror::new(config.hash_key, config.connections_max),
            queue: InjectionQueue::default(),
            dump: DumpState::new(),
            alive: NodeSet::default(),
            primaries: NodeSet::default(),
            restarted: NodeSet::default(),
            has_conntrackd: config.peers.iter().any(|peer| matches!(peer.profile, PeerProfile::Conntrackd { .. })),
            expecting: ExpectationTable::default(),
            changes: Vec::new(),
            names: VecDeque::new(),
            ended_entries: VecDeque::new(),
            ended_expectations: VecDeque::new(),
            counters: SyncCounters::default(),
            own: 0,
            deferral: config.deferral.map(|threshold| Deferral::new(threshold, config.connections_max, now)),
            unreplicated: crate::unreplicated::Unreplicated::default(),
            lacks_room: false,
            events: Events::default(),
        };
        Ok(Self {
            connections,
            peers,
            refresh_scan: RefreshScan::default(),
            buffers: Buffers::default(),
            coverage: CoverageState::default(),
            split_brains: 0,
            connections_max: config.connections_max,
        })
    }

    /// Handles an event of the kernel that this program did not cause.
    pub fn handle_kernel_event(&mut self, now: Instant, origin: Origin, event: KernelEvent<'_>) {
        // Another program's change is intended: it makes this node the owner as packets do.
        let _ = origin;
        self.connections.handle_event(now, event);
        self.distribute();
    }

    /// Events of the kernel were lost: its table will be read, and only differences are replicated.
    pub fn handle_events_lost(&mut self, now: Instant) {
        self.connections.events_lost(now);
    }

    /// Whether to start reading the kernel's table now. The dump is then in progress until
    /// [`SyncNode::handle_dump_ended`].
    pub fn poll_dump(&mut self, now: Instant) -> bool {
        self.connections.poll_dump(now)
    }

    /// Handles a connection of the kernel's dump.
    pub fn handle_dump_entry(&mut self, now: Instant, entry: &Entry) {
        self.connections.dump_entry(now, entry);
        self.distribute();
    }

    /// Handles an expectation of the kernel's dump; after the connections.
    pub fn handle_dump_expectation(&mut self, now: Instant, expectation: &Expectation) {
        self.connections.dump_expectation(now, expectation);
        self.distribute();
    }

    /// Ends a dump of the kernel's table.
    pub fn handle_dump_ended(&mut self, now: Instant, result: DumpResult) {
        self.connections.dump_ended(now, result);
        self.distribute();
    }

    /// Fills `batch` with requests to the kernel, at most [`KERNEL_REQUESTS_MAX`](crate::KERNEL_REQUESTS_MAX) at a
    /// time; returns false, with an empty batch, when there are none. The caller executes them in order before any
    /// other input. It then reports refusals by [`SyncNode::handle_kernel_answer`], found entries by
    /// [`SyncNode::handle_kernel_found`], and finally calls [`SyncNode::handle_requests_done`].
    pub fn poll_kernel_requests(&mut self, now: Instant, batch: &mut Vec<KernelRequest>) -> bool {
        let is_filled = self.connections.poll_requests(now, batch);
        self.distribute();
        is_filled
    }

    /// The kernel's reply to a request of the last batch. Success need not be reported.
    pub fn handle_kernel_answer(&mut self, _now: Instant, token: RequestToken, answer: Result<(), KernelRefusal>) {
        if let Err(refusal) = answer {
            self.connections.refused(token, refusal);
        }
    }

    /// The kernel's reply to [`KernelAction::Get`](crate::KernelAction::Get): the connection, if it exists.
    pub fn handle_kernel_found(&mut self, now: Instant, token: RequestToken, entry: Option<&Entry>) {
        self.connections.found(now, token, entry);
        self.distribute();
    }

    /// The last batch is executed, except for reported refusals.
    pub fn handle_requests_done(&mut self, now: Instant) {
        self.connections.requests_done(now);
        self.connections.note_recovered(now);
        self.distribute();
    }

    /// Sets this node's role. It requires no kernel requests, except with an external cache: [`SyncNode::readiness`]
    /// reports when none are left. Where several nodes forward, the node is always primary.
    pub fn set_role(&mut self, now: Instant, role: SyncRole) {
        let role = if self.connections.mode == Mode::MultiPrimary { SyncRole::Primary } else { role };
        let primaries = self.claimable();
        self.connections.set_role(now, role, |owner| primaries.contains(owner));
        for peer in &mut self.peers {
            peer.send_heartbeat_now(now);
        }
        self.note_split_brain(now);
        self.distribute();
    }

    /// The node's events, oldest first, for the log.
    pub fn poll_event(&mut self) -> Option<(Instant, SyncEvent)> {
        self.connections.events.pop()
    }

    /// Requests a full resynchronisation from the peers, and a dump of the kernel's table.
    pub fn request_resync(&mut self, now: Instant) {
        self.connections.request_dump(now);
        self.peers.iter_mut().for_each(Peer::request_resync);
    }

    /// Replicates the full table to the peers.
    pub fn resync(&mut self) {
        self.peers.iter_mut().for_each(Peer::resync);
    }

    /// Shuts the node down: the datagrams polled next notify the peers.
    pub fn close(&mut self) {
        self.peers.iter_mut().for_each(Peer::close);
    }

    /// Peers whose connections this node may claim as primary: those that do not forward.
    fn claimable(&self) -> NodeSet {
        let mut claimable = NodeSet::ALL;
        for peer in &self.peers {
            let is_reachable = peer.is_up() || peer.role.is_some();
            let forwards = match self.connections.mode {
                Mode::PrimaryBackup => peer.role == Some(SyncRole::Primary) && is_reachable,
                Mode::MultiPrimary => is_reachable && peer.role != Some(SyncRole::Fault),
            };
            if forwards {
                claimable.set(peer.id, false);
            }
        }
        claimable.set(self.connections.node, false);
        claimable
    }

    /// This node's number.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.connections.node
    }
}
