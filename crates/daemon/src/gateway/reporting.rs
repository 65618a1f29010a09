//! What the data path reports to operators: events, status, counters, and the log.

mod addresses;
mod answers;
mod compact;
mod groups;
mod orders;
mod paths;
mod rate_limit;
mod reach;
mod roles;
mod sharing;
mod syn_proxy;
mod url_filter;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::node::{Node, NodeError, NodeEvent};
use cluster::pipeline::{Place, PortTraffic};
use flow::{DropReason, Instant, NodeId, PortId};
use membership::MemberState;
use packet_io::{PacketIo, clock, usage};

use super::balancing::Balancing;
use super::members::Members;
use crate::complaints::{Complaints, PLAIN_TEXT};
use crate::logging::limit::UNLIMITED_TARGET;
use api::{EventKind, Rates};
use config::validated::{Config, Peer};
use console::counted;
use control::EventLog;
use control::watching::Watches;

use self::groups::GroupRoles;

/// Rates are taken over this time.
const RATE_INTERVAL: Duration = Duration::from_secs(1);
/// Events of a worker that wait to be sent to the lead worker; further ones are logged only.
const EVENTS_RELAYED_MAX: usize = 256;

/// Totals from which rates are taken.
#[derive(Clone, Copy, Default)]
struct Totals {
    packets: u64,
    bytes: u64,
    begun: u64,
}

/// How often the configuration was read again.
#[derive(Clone, Copy, Default)]
struct Reloads {
    applied: u64,
    refused: u64,
}

/// What is remembered for operators.
pub(super) struct Reporting {
    node: NodeId,
    name: String,
    ports: Vec<(String, String)>,
    peer_addresses: BTreeMap<u8, SocketAddr>,
    /// Other peers, of which the sockets do not know yet.
    new_peers: Option<Vec<Peer>>,
    /// The members of the cluster, where they come from elsewhere than the configuration file.
    members: Option<Arc<Members>>,
    /// The traffic between the nodes is not encrypted.
    is_plain_text: bool,
    started_at: Instant,
    role_since: Instant,
    roles: GroupRoles,
    takeovers: u64,
    events: EventLog,
    rates: Rates,
    rates_from: (Instant, Totals),
    complaints: Complaints,
    reloads: Reloads,
    /// New connections refused for want of room, when rates were last taken.
    refused: u64,
    place: Place,
    /// Events of this worker that the lead is to remember.
    relayed: Vec<(Instant, EventKind, String)>,
    /// The first packet after the last take-over has been noted, whichever worker it came to.
    is_first_packet_noted: bool,
    /// Processor time of the thread when rates were last taken, and the share of its time that it worked then.
    cpu_time: Duration,
    load: f64,
    /// What operators look at.
    watches: Watches,
    /// The filter of compact replication, if that is configured.
    filter: compact::Filter,
    /// The services of the load balancer, and what else functions of all workers share.
    balancing: Arc<Balancing>,
    /// Rules of the SYN proxy that were active when they were last looked at.
    active_rules: BTreeSet<String>,
}

impl Reporting {
    pub(super) fn new(
        config: &Config,
        place: Place,
        (balancing, members): (Arc<Balancing>, Option<Arc<Members>>),
        now: Instant,
    ) -> Self {
        let peers = config.cluster.iter().flat_map(|cluster| &cluster.replication.peers);
        Self {
            node: config.node.id,
            name: config.node.name.clone(),
            ports: config.ports.iter().map(|port| (port.name.clone(), port.interface.clone())).collect(),
            peer_addresses: peers.map(|peer| (peer.id.0, peer.address)).collect(),
            new_peers: None,
            members,
            is_plain_text: config.cluster.as_ref().is_some_and(|cluster| cluster.replication.security.is_none()),
            started_at: now,
            role_since: now,
            roles: GroupRoles::new(config, now),
            takeovers: 0,
            events: EventLog::default(),
            rates: Rates::default(),
            rates_from: (now, Totals::default()),
            complaints: Complaints::default(),
            reloads: Reloads::default(),
            refused: 0,
            place,
            relayed: Vec::new(),
            is_first_packet_noted: false,
            cpu_time: usage::thread_cpu_time(),
            load: 0.0,
            watches: Watches::default(),
            filter: compact::Filter::new(config),
            balancing,
            active_rules: BTreeSet::new(),
        }
    }

    /// The peers from now on.
    pub(super) fn set_peers(&mut self, peers: Vec<Peer>) {
        let is_peer = |id: u8| peers.iter().any(|peer| peer.id.0 == id);
        let removed = self.peer_addresses.keys().filter(|id| !is_peer(**id));
        removed.for_each(|id| self.note_alive(NodeId(*id), false));
        self.peer_addresses = peers.iter().map(|peer| (peer.id.0, peer.address)).collect();
        self.new_peers = Some(peers);
    }

    /// Other peers since the last call.
    pub(super) fn take_new_peers(&mut self) -> Option<Vec<Peer>> {
        self.new_peers.take()
    }

    /// Failure detection reports the peer up or down.
    fn note_alive(&self, id: NodeId, is_up: bool) {
        if let Some(members) = self.members.as_ref().filter(|_| self.place.leads()) {
            members.note_peer(id, is_up);
        }
    }

    /// Remembers and logs something that happened.
    pub(super) fn note(&mut self, now: Instant, kind: EventKind, detail: &str) {
        self.note_counted(now, kind, detail, 1);
    }

    /// As [`Reporting::note`], of something that happened `count` times.
    fn note_counted(&mut self, now: Instant, kind: EventKind, detail: &str, count: u64) {
        if kind == EventKind::Warning {
            tracing::warn!("{detail}");
        } else if matches!(
            kind,
            EventKind::ReloadRefused
                | EventKind::Passive
                | EventKind::AddressConflict
                | EventKind::SplitBrain
                | EventKind::BackendDown
                | EventKind::CategoriesUnavailable
                | EventKind::MembershipLost
                | EventKind::SynProxyActive
                | EventKind::Degraded
        ) {
            tracing::warn!(detail, "{}", kind.describe());
        } else {
            tracing::info!(detail, "{}", kind.describe());
        }
        self.remember_counted(now, kind, detail, count);
    }

    /// Remembers an event of this or another worker. A worker other than the lead keeps it for the lead.
    pub(super) fn remember(&mut self, now: Instant, kind: EventKind, detail: &str) {
        self.remember_counted(now, kind, detail, 1);
    }

    fn remember_counted(&mut self, now: Instant, kind: EventKind, detail: &str, count: u64) {
        if !self.place.leads() {
            if self.relayed.len() < EVENTS_RELAYED_MAX {
                let detail =
                    format!("{detail}{}worker {}", if detail.is_empty() { "" } else { ", " }, self.place.worker.0);
                self.relayed.push((now, kind, detail));
            }
            return;
        }
        match kind {
            EventKind::BecameActive => self.is_first_packet_noted = false,
            EventKind::FirstPacketForwarded if std::mem::replace(&mut self.is_first_packet_noted, true) => return,
            _ => {}
        }
        self.events.push_counted(now, kind, detail, count);
    }

    /// Takes the events that are to be sent to the lead worker.
    pub(super) fn take_relayed(&mut self) -> Vec<(Instant, EventKind, String)> {
        std::mem::take(&mut self.relayed)
    }

    pub(super) fn note_event(&mut self, at: Instant, event: NodeEvent) {
        let peer = |id: NodeId| format!("node {}", id.0);
        match event {
            NodeEvent::PeerUp(id) => self.note_alive(id, true),
            NodeEvent::PeerDown(id) => self.note_alive(id, false),
            NodeEvent::DrainGivenUp => {
                self.members.iter().for_each(|members| members.set_own_state(MemberState::Active));
            }
            _ => {}
        }
        let (kind, detail) = match event {
            NodeEvent::PeerUp(id) => (EventKind::PeerUp, peer(id)),
            NodeEvent::PeerDown(id) => (EventKind::PeerDown, peer(id)),
            NodeEvent::Unreached { target, consequence } => self.unreached(target, consequence),
            NodeEvent::Reached { target } => self.reached(target),
            NodeEvent::PathUp { peer: id, path } => (EventKind::PathUp, self.path_to(id, path)),
            NodeEvent::PathDown { peer: id, path } => (EventKind::PathDown, self.path_to(id, path)),
            NodeEvent::Degraded { peer: id, carries_updates } => {
                (EventKind::Degraded, self.degraded(id, carries_updates))
            }
            NodeEvent::SplitBrain(id) => (
                EventKind::SplitBrain,
                format!("{} holds the same addresses as this node; the one that took them over first yields", peer(id)),
            ),
            NodeEvent::SplitBrainEnded(id) => (EventKind::SplitBrainEnded, peer(id)),
            NodeEvent::BecameActive { group, term } => {
                (self.role_since, self.takeovers) = (at, self.takeovers + 1);
                self.roles.note_change(group, at);
                (EventKind::BecameActive, self.roles.take_over(group, term))
            }
            NodeEvent::AddressesAnnounced { group, term } => (EventKind::Announced, self.roles.take_over(group, term)),
            NodeEvent::BecameStandby { group } => {
                self.role_since = at;
                self.roles.note_change(group, at);
                (EventKind::BecameStandby, self.roles.name(group).unwrap_or_default())
            }
            NodeEvent::FirstPacketAfterTakeOver => (EventKind::FirstPacketForwarded, String::new()),
            NodeEvent::ResyncStarted(id) => (EventKind::ResyncStarted, peer(id)),
            NodeEvent::ResyncCompleted(id) => (EventKind::ResyncEnded, peer(id)),
            NodeEvent::ReplicationUp(id) => (EventKind::ReplicationUp, peer(id)),
            NodeEvent::ReplicationDown(id) => (EventKind::ReplicationDown, peer(id)),
            NodeEvent::PeerRestarted(id) => (EventKind::PeerRestarted, peer(id)),
            NodeEvent::Synchronised(id) => (EventKind::Synchronised, peer(id)),
            NodeEvent::Reevaluated { ended } => (
                EventKind::Reevaluated,
                format!("{} ended", counted(usize::try_from(ended).unwrap_or(usize::MAX), "connection")),
            ),
            NodeEvent::DrainGivenUp => (
                EventKind::Warning,
                "the drain is given up, as no peer took the addresses: see what keeps it from taking over".to_owned(),
            ),
            NodeEvent::ChannelSecured(id) => (EventKind::ChannelSecured, peer(id)),
            NodeEvent::SessionKeysExchanged(id) => (EventKind::SessionKeysExchanged, peer(id)),
            NodeEvent::WorkersDiffer { peer: id, theirs, ours } => (
                EventKind::Warning,
                format!(
                    "node {} runs {theirs} workers, this node {ours}, or another release: nothing is replicated until \
                         workers.count is the same on both and both run the same release",
                    id.0
                ),
            ),
            NodeEvent::WorkerLate(worker) => (
                EventKind::Warning,
                format!("worker {} was not ready for the take-over in time: is the machine overloaded?", worker.0),
            ),
            NodeEvent::ReplicasDiffer { peer: id, connections } => (
                EventKind::ReplicasDiffer,
                format!(
                    "{} of node {} are not here as it sent them",
                    counted(connections as usize, "connection"),
                    id.0
                ),
            ),
            NodeEvent::ReplicasAgree { peer: id, repaired } => (
                EventKind::ReplicasAgree,
                format!("with node {}: {} put right", id.0, counted(repaired as usize, "connection")),
            ),
            NodeEvent::RecoveryBegan { entries } => {
                (EventKind::RecoveryBegan, format!("peers advertised {}", entry_count(entries)))
            }
            NodeEvent::RecoveryEnded { restored } => (
                EventKind::RecoveryEnded,
                format!("{} came back", counted(usize::try_from(restored).unwrap_or(usize::MAX), "connection")),
            ),
            NodeEvent::Passive(Some(reason)) => (EventKind::Passive, self.passive(&reason)),
            NodeEvent::Passive(None) => (EventKind::PassiveEnded, String::new()),
            NodeEvent::AddressConflict(conflict) => (EventKind::AddressConflict, self.conflict(&conflict)),
            NodeEvent::ReplicaIncomplete(id) => (
                EventKind::Warning,
                format!("node {}'s connections no longer fit: raise limits.connections_max to its value", id.0),
            ),
        };
        self.note(at, kind, &detail);
    }

    /// Warns if the traffic between the nodes is not encrypted.
    pub(super) fn note_plain_text(&mut self, now: Instant) {
        if self.is_plain_text {
            self.note(now, EventKind::Warning, PLAIN_TEXT);
        }
    }

    /// Warns of something that a peer sent and that could not be used, at a limited rate.
    pub(super) fn note_peer_error(&mut self, id: NodeId, result: Result<(), NodeError>) {
        if let Err(error) = result {
            self.complain(&format!("from node {}: {error}", id.0));
        }
    }

    /// A datagram from an address that is no peer's.
    pub(super) fn note_stranger(&mut self, from: SocketAddr) {
        self.complain(&format!("datagrams from {from}, which is no peer's address, are ignored"));
    }

    fn complain(&mut self, text: &str) {
        let now = clock::now();
        if let Some(count) = self.complaints.admit(now, text) {
            self.note_counted(now, EventKind::Warning, text, count);
        }
    }

    /// Logs the entries of functions.
    pub(super) fn log_functions(&mut self, node: &mut Node) {
        let log = node.pipeline_mut().log();
        log.push_summaries(clock::now());
        for entry in log.drain() {
            // Each rule has a limit of its own: all of them together come from this place.
            let (function, tuple) = (entry.function, entry.tuple);
            tracing::info!(target: UNLIMITED_TARGET, function, %tuple, "{}", entry.message);
        }
    }

    /// Passes on what operators look at.
    #[inline]
    pub(super) fn pass_on(&mut self, node: &mut Node) {
        self.watches.pass_on(node);
    }

    /// Takes rates when it is time.
    pub(super) fn take_rates(&mut self, now: Instant, node: &mut Node, ports: &dyn PacketIo) {
        let (since, before) = self.rates_from;
        let elapsed = now.saturating_since(since);
        if elapsed < RATE_INTERVAL {
            return;
        }
        let totals = self.totals(node, ports);
        let per_s = |after: u64, before: u64| after.saturating_sub(before) as f64 / elapsed.as_secs_f64();
        self.rates = Rates {
            packets_per_s: per_s(totals.packets, before.packets),
            bits_per_s: 8.0 * per_s(totals.bytes, before.bytes),
            connections_per_s: per_s(totals.begun, before.begun),
        };
        self.rates_from = (now, totals);
        self.filter.take_rate(elapsed, node);
        let cpu_time = usage::thread_cpu_time();
        self.load = cpu_time.saturating_sub(self.cpu_time).as_secs_f64() / elapsed.as_secs_f64();
        self.cpu_time = cpu_time;
        node.note_load(now, (self.load.clamp(0.0, 1.0) * 100.0) as u8);
        if self.place.leads() {
            self.watch_syn_proxy(now);
        }
        let refused = node.pipeline().counters().drops[DropReason::TableFull as usize];
        if std::mem::replace(&mut self.refused, refused) < refused {
            self.complain("the connection table is full and refuses new connections: raise limits.connections_max");
        }
    }

    fn totals(&self, node: &Node, ports: &dyn PacketIo) -> Totals {
        let traffic = (0..self.ports.len()).map(|port| traffic(node, ports, port_id(port)));
        let (packets, bytes) =
            traffic.fold((0, 0), |(packets, bytes), port| (packets + port.sent_frames, bytes + port.sent_bytes));
        Totals { packets, bytes, begun: node.pipeline().counters().begun }
    }
}

/// What a port received and sent, with what the kernel forwarded, without the frames between nodes.
fn traffic(node: &Node, ports: &dyn PacketIo, port: PortId) -> PortTraffic {
    let (counters, forwarded) = (ports.counters(port), node.pipeline().fast_path_traffic(port));
    let own = node.path_traffic(port);
    PortTraffic {
        received_frames: counters.received_frames.saturating_sub(own.received_frames) + forwarded.received_frames,
        received_bytes: counters.received_bytes.saturating_sub(own.received_bytes) + forwarded.received_bytes,
        sent_frames: counters.sent_frames.saturating_sub(own.sent_frames) + forwarded.sent_frames,
        sent_bytes: counters.sent_bytes.saturating_sub(own.sent_bytes) + forwarded.sent_bytes,
    }
}

fn entry_count(entries: u64) -> String {
    let noun = if entries == 1 { "entry" } else { "entries" };
    format!("{} {noun}", console::count(entries))
}

fn port_id(index: usize) -> PortId {
    PortId(u8::try_from(index).unwrap_or(u8::MAX))
}
