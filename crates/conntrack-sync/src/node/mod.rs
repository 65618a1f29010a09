//! A node: its connections, its peers, and what goes between them.

mod observing;
mod reload;
mod share;
mod talking;

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
use crate::connections::walk::Walk;
use crate::connections::{Connections, Living, Touched};
use crate::event::{Events, SyncEvent};
use crate::mirror::Mirror;
use crate::peer::Peer;
use crate::request::{KernelRefusal, KernelRequest, RequestToken};
use crate::share::Share;
use crate::status::SyncCounters;

/// One node.
pub struct SyncNode {
    connections: Connections,
    peers: Vec<Peer>,
    walk: Walk,
    buffers: Buffers,
    share: ShareState,
    split_brains: u64,
    connections_max: u32,
}

/// Room that is used again.
#[derive(Debug, Default)]
struct Buffers {
    attributes: Vec<u8>,
    touched: Vec<Touched>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

/// How much of the kernel's table is replicated, and when it was looked at.
#[derive(Debug, Default)]
struct ShareState {
    share: Share,
    count_at: Instant,
}

impl SyncNode {
    /// A node that knows nothing yet.
    ///
    /// # Errors
    /// What is unsound in the configuration.
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
            living: Living::default(),
            primaries: Living::default(),
            restarted: Living::default(),
            has_conntrackd: config.peers.iter().any(|peer| matches!(peer.profile, PeerProfile::Conntrackd { .. })),
            expecting: ExpectationTable::default(),
            touched: Vec::new(),
            names: VecDeque::new(),
            ended_entries: VecDeque::new(),
            ended_expectations: VecDeque::new(),
            counters: SyncCounters::default(),
            own: 0,
            lacks_room: false,
            events: Events::default(),
        };
        Ok(Self {
            connections,
            peers,
            walk: Walk::default(),
            buffers: Buffers::default(),
            share: ShareState::default(),
            split_brains: 0,
            connections_max: config.connections_max,
        })
    }

    /// Something happened in the kernel that this program did not bring about.
    pub fn handle_kernel_event(&mut self, now: Instant, origin: Origin, event: KernelEvent<'_>) {
        // Whoever changes a connection here means it: another program's word makes this node the master as packets do.
        let _ = origin;
        self.connections.handle_event(now, event);
        self.carry();
    }

    /// Events of the kernel were lost: its table is to be read, and only what differs is told.
    pub fn handle_events_lost(&mut self, now: Instant) {
        self.connections.events_lost(now);
    }

    /// Whether reading the kernel's table is to begin now. It is then under way until [`SyncNode::handle_dump_ended`].
    pub fn poll_dump(&mut self, now: Instant) -> bool {
        self.connections.poll_dump(now)
    }

    /// A connection that the kernel's table has.
    pub fn handle_dump_entry(&mut self, now: Instant, entry: &Entry) {
        self.connections.dump_entry(now, entry);
        self.carry();
    }

    /// An expectation that the kernel has; after the connections.
    pub fn handle_dump_expectation(&mut self, now: Instant, expectation: &Expectation) {
        self.connections.dump_expectation(now, expectation);
        self.carry();
    }

    /// The kernel's table was read, or could not be.
    pub fn handle_dump_ended(&mut self, now: Instant, result: DumpResult) {
        self.connections.dump_ended(now, result);
        self.carry();
    }

    /// Fills `batch` with what the kernel is to be asked, at most [`KERNEL_REQUESTS_MAX`](crate::KERNEL_REQUESTS_MAX) at a time; false, with nothing in
    /// it, when there is nothing. They are to be executed in their order, before anything else is handed in; then what was refused is said by
    /// [`SyncNode::handle_kernel_answer`], what was found by [`SyncNode::handle_kernel_found`], and at the end
    /// [`SyncNode::handle_requests_done`].
    pub fn poll_kernel_requests(&mut self, now: Instant, batch: &mut Vec<KernelRequest>) -> bool {
        let is_filled = self.connections.poll_requests(now, batch);
        self.carry();
        is_filled
    }

    /// The kernel's answer to a request of the batch that was polled last. That it did what it was asked for need not be said.
    pub fn handle_kernel_answer(&mut self, _now: Instant, token: RequestToken, answer: Result<(), KernelRefusal>) {
        if let Err(refusal) = answer {
            self.connections.refused(token, refusal);
        }
    }

    /// The kernel's answer to [`KernelAction::Get`](crate::KernelAction::Get): the connection, if it has it.
    pub fn handle_kernel_found(&mut self, now: Instant, token: RequestToken, entry: Option<&Entry>) {
        self.connections.found(now, token, entry);
        self.carry();
    }

    /// All of the batch that was polled last is done, but for what was refused.
    pub fn handle_requests_done(&mut self, now: Instant) {
        self.connections.requests_done(now);
        self.connections.note_recovered(now);
        self.carry();
    }

    /// Gives this node a role. No kernel work is done at this moment, but with an external cache:
    /// [`SyncNode::readiness`] says when nothing is left to do. Where several nodes forward it is primary in any case.
    pub fn set_role(&mut self, now: Instant, role: SyncRole) {
        let role = if self.connections.mode == Mode::MultiPrimary { SyncRole::Primary } else { role };
        let primaries = self.claimable();
        self.connections.set_role(now, role, |owner| primaries.contains(owner));
        for peer in &mut self.peers {
            peer.hasten_heartbeat(now);
        }
        self.note_split_brain(now);
        self.carry();
    }

    /// What happened, the oldest first, for the log.
    pub fn poll_event(&mut self) -> Option<(Instant, SyncEvent)> {
        self.connections.events.pop()
    }

    /// The peers are asked to tell everything, and what the kernel has is compared with what is known.
    pub fn request_resync(&mut self, now: Instant) {
        self.connections.want_dump(now);
        self.peers.iter_mut().for_each(Peer::request_resync);
    }

    /// The peers are told everything.
    pub fn resync(&mut self) {
        self.peers.iter_mut().for_each(Peer::resync);
    }

    /// The node leaves: the peers are told so by the datagrams that are polled next.
    pub fn close(&mut self) {
        self.peers.iter_mut().for_each(Peer::close);
    }

    /// Peers whose connections this node may claim when it is primary: those that do not forward.
    fn claimable(&self) -> Living {
        let mut claimable = Living::ALL;
        for peer in &self.peers {
            let is_heard = peer.is_up() || peer.role.is_some();
            let forwards = match self.connections.mode {
                Mode::PrimaryBackup => peer.role == Some(SyncRole::Primary) && is_heard,
                Mode::MultiPrimary => is_heard && peer.role != Some(SyncRole::Fault),
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
