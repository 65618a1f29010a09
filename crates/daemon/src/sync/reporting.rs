//! What the daemon reports to operators: events, status, counters, and the log.

mod events;
mod peers;
mod readiness;

use control::metrics::add_status;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use conntrack_sync::{KernelRefusal, SyncEvent, SyncNode, SyncRole};
use flow::{Instant, NodeId};
use packet_io::clock;
use packet_io::ctnetlink::{Support, support};

use super::admission::node_filter;
use super::flows::Known;
use super::kernel::Kernel;
use crate::complaints::{Complaints, PLAIN_TEXT};
use crate::describe;
use api::metrics::{Metric, Samples};
use api::{
    ConnectionsStatus, Event, EventKind, KernelStatus, NodeStatus, RefusedRequests, Status, SyncOrder, SyncStatus,
    TakeoverStatus, UnreplicatedConnections,
};
use config::sync::SyncConfig;
use config::sync::validated::{Injection, Mode};
use control::flows::FLOWS_EXAMINED_PER_PAGE_MAX;
use control::orders::{Order, OrderOutcome, SyncReloadOrder};
use control::watching::WatchOrder;
use control::{ControlHandler, EventLog, FlowsPage, FlowsQuery};
use events::describe;
use peers::peer_status;
use readiness::{readiness, troubles};

/// How often it is looked at what the kernel can do, and how full its table is.
const HOST_INTERVAL: Duration = Duration::from_secs(5);

/// What is remembered for operators.
pub(super) struct Reporting {
    node: NodeId,
    name: String,
    mode: Mode,
    injection: Injection,
    peer_addresses: BTreeMap<u8, SocketAddr>,
    /// The traffic between the nodes is not encrypted.
    is_plain_text: bool,
    started_at: Instant,
    role_since: Instant,
    events: EventLog,
    complaints: Complaints,
    host: Support,
    host_at: Instant,
    takeovers: u64,
    reloads_applied: u64,
    reloads_refused: u64,
}

impl Reporting {
    pub(super) fn new(config: &SyncConfig, now: Instant) -> Self {
        let native = config.replication.as_ref().map(|native| &native.replication);
        let peers = native.into_iter().flat_map(|replication| &replication.peers);
        let mut peer_addresses: BTreeMap<u8, SocketAddr> = peers.map(|peer| (peer.id.0, peer.address)).collect();
        let conntrackd = config.conntrackd.as_ref();
        peer_addresses.extend(conntrackd.map(|conntrackd| (conntrackd.peer_id.0, conntrackd.peer.address())));
        Self {
            node: config.node.id,
            name: config.node.name.clone(),
            mode: config.mode,
            injection: config.kernel.injection,
            peer_addresses,
            is_plain_text: conntrackd.is_some() || native.is_some_and(|replication| replication.security.is_none()),
            started_at: now,
            role_since: now,
            events: EventLog::default(),
            complaints: Complaints::default(),
            host: Support::default(),
            host_at: Instant::ZERO,
            takeovers: 0,
            reloads_applied: 0,
            reloads_refused: 0,
        }
    }

    /// The daemon begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.note(now, EventKind::Started, env!("CARGO_PKG_VERSION"));
        if self.is_plain_text {
            self.note(now, EventKind::Warning, PLAIN_TEXT);
        }
    }

    /// Remembers and logs something that happened.
    pub(super) fn note(&mut self, now: Instant, kind: EventKind, detail: &str) {
        self.note_counted(now, kind, detail, 1);
    }

    /// As [`Reporting::note`], of something that happened `count` times.
    fn note_counted(&mut self, now: Instant, kind: EventKind, detail: &str, count: u64) {
        match kind {
            EventKind::Warning => tracing::warn!("{detail}"),
            EventKind::ReloadRefused | EventKind::SplitBrain | EventKind::EventsLost | EventKind::PeerDown => {
                tracing::warn!(detail, "{}", kind.describe());
            }
            _ => tracing::info!(detail, "{}", kind.describe()),
        }
        self.events.push_counted(now, kind, detail, count);
    }

    /// Remembers and logs an event of the node.
    pub(super) fn note_event(&mut self, at: Instant, event: SyncEvent) {
        if let SyncEvent::RoleChanged { role, .. } = event {
            self.role_since = at;
            self.takeovers += u64::from(role == SyncRole::Primary);
        }
        let (kind, detail) = describe(event);
        self.note(at, kind, &detail);
    }

    /// Warns of something that a peer sent and that could not be used, at a limited rate.
    pub(super) fn note_peer_error(&mut self, id: NodeId, result: Result<(), conntrack_sync::SyncError>) {
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

    /// Looks at what the kernel can do, when it is time to; warns of what is newly missing.
    pub(super) fn look_at_host(&mut self, now: Instant, node: &mut SyncNode) {
        if self.host_at > now {
            return;
        }
        self.host_at = now + HOST_INTERVAL;
        let before = std::mem::replace(&mut self.host, support());
        let connections = self.host.connections.unwrap_or_default();
        node.note_kernel_connections(now, u32::try_from(connections).unwrap_or(u32::MAX));
        // The text for a table that is nearly full has another number each time.
        let is_new = |lack: &&packet_io::ctnetlink::Lack| {
            !before.lacks.iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(*lack))
        };
        let new: Vec<String> = self.host.lacks.iter().filter(is_new).map(ToString::to_string).collect();
        new.into_iter().for_each(|lack| self.note(now, EventKind::Warning, &lack));
    }

    /// The node in a line, for the service manager.
    pub(super) fn line(&self, now: Instant, node: &SyncNode) -> String {
        let status = node.status(now);
        let up = status.peers.iter().filter(|peer| peer.is_up).count();
        format!("{}; {up} of {} peers up; {}", status.role.name(), status.peers.len(), status.readiness)
    }

    /// Who answers operators' questions, and does as they wish.
    pub(super) fn answers<'a>(&'a mut self, node: &'a mut SyncNode, kernel: &'a mut Kernel) -> Answers<'a> {
        Answers { reporting: self, node, kernel }
    }
}

/// Everything that questions are answered from.
pub(super) struct Answers<'a> {
    reporting: &'a mut Reporting,
    node: &'a mut SyncNode,
    kernel: &'a mut Kernel,
}

impl Answers<'_> {
    fn sync(&self, status: &conntrack_sync::SyncStatus) -> SyncStatus {
        let reporting = &*self.reporting;
        SyncStatus {
            mode: name_of(&Mode::ALL, reporting.mode).to_owned(),
            injection: name_of(&Injection::ALL, reporting.injection).to_owned(),
            readiness: readiness(status, &reporting.host),
            failover: status.readiness.to_string(),
            kernel: self.kernel_status(status),
            split_brain: status.peers.iter().any(|peer| peer.is_split),
            troubles: troubles(status, &reporting.host),
        }
    }

    fn kernel_status(&self, status: &conntrack_sync::SyncStatus) -> KernelStatus {
        let host = &self.reporting.host;
        let (counters, counted, injected) = (status.counters, self.kernel.counters(), status.injected);
        let refused = KernelRefusal::NAMES.iter().zip(injected.refused);
        KernelStatus {
            connections: host.connections.unwrap_or_default(),
            connections_max: host.connections_max.unwrap_or_default(),
            own: status.own.into(),
            unreplicated: unreplicated(status),
            copies: status.replicas.into(),
            injected: u64::from(status.replicas).saturating_sub(u64::from(status.not_in_kernel) + waiting(status)),
            waiting: waiting(status),
            expectation_requests: injected.expectations,
            events_made: self.kernel.events_made().to_owned(),
            event_rules_put_back: self.kernel.rules_put_back(),
            events: counted.events,
            events_malformed: counted.malformed,
            overruns: counted.overruns,
            repaired: counters.repaired,
            receive_buffer_bytes: self.kernel.buffer_bytes() as u64,
            dumps: counted.dumps,
            requests: counted.requests,
            refused: refused
                .map(|(reason, requests)| RefusedRequests { reason: (*reason).to_owned(), requests })
                .collect(),
            reinjected: counters.replicas_ended_early,
            table_full: counters.no_room,
        }
    }
}

fn unreplicated(status: &conntrack_sync::SyncStatus) -> Vec<UnreplicatedConnections> {
    let counts = status.unreplicated.counts();
    counts
        .map(|(reason, count)| UnreplicatedConnections { reason: reason.name().to_owned(), connections: count.into() })
        .collect()
}

fn waiting(status: &conntrack_sync::SyncStatus) -> u64 {
    status.pending as u64
}

fn name_of<T: PartialEq>(choices: &[(&'static str, T)], choice: T) -> &'static str {
    choices.iter().find(|(_, listed)| *listed == choice).map_or("", |(name, _)| name)
}

impl ControlHandler for Answers<'_> {
    fn status(&mut self) -> Status {
        let now = clock::now();
        let status = self.node.status(now);
        let reporting = &*self.reporting;
        let sync = self.sync(&status);
        Status {
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            node: NodeStatus {
                id: reporting.node.0,
                name: reporting.name.clone(),
                role: describe::sync_role(status.role),
                role_since_ns: reporting.role_since.as_nanos(),
                passive: None,
                groups: Vec::new(),
            },
            monotonic_now_ns: now.as_nanos(),
            uptime_s: now.saturating_since(reporting.started_at).as_secs_f64(),
            takeover: TakeoverStatus {
                ready: sync.readiness.failover_safe,
                obstacles: sync.readiness.not_safe_reasons.clone(),
            },
            connections: ConnectionsStatus {
                count: status.connections.into(),
                max: status.connections_max.into(),
                unanswered: 0,
                master: Some(status.own.into()),
            },
            peers: status.peers.iter().map(|peer| peer_status(peer, now, reporting)).collect(),
            sync: Some(Box::new(sync)),
            ..Status::default()
        }
    }

    fn flows(&mut self, query: &FlowsQuery) -> FlowsPage {
        let found = self.node.flows(query.cursor, FLOWS_EXAMINED_PER_PAGE_MAX);
        let node = self.reporting.node;
        let describe = |flow: &conntrack_sync::SyncFlow| {
            let known = Known { entry: &flow.entry, owner: flow.owner, version: flow.version };
            known.describe(node, &query.filter)
        };
        FlowsPage {
            described: found.flows.iter().filter_map(describe).collect(),
            next_cursor: found.next,
            ..FlowsPage::new(clock::now())
        }
    }

    fn counters(&mut self) -> Samples {
        let mut samples = Samples::default();
        add_status(&mut samples, &self.status());
        let counters = self.node.status(clock::now()).counters;
        samples.add_count(Metric::ConnectionsOpened, &[], counters.began);
        samples.add_count(Metric::ConnectionsClosed, &[], counters.ended);
        samples.add_count(Metric::ConnectionsTakenOver, &[], counters.taken_over + counters.claimed);
        samples.add_count(Metric::Reloads, &["applied"], self.reporting.reloads_applied);
        samples.add_count(Metric::Reloads, &["refused"], self.reporting.reloads_refused);
        samples.add_count(Metric::Takeovers, &[], self.reporting.takeovers);
        samples
    }

    fn events(&mut self) -> Vec<Event> {
        self.reporting.events.to_vec()
    }

    fn watch(&mut self, _order: WatchOrder) -> Result<(), String> {
        Err("this is mainstay sync, not a gateway: the kernel forwards, and no packet passes mainstay. `nft monitor trace` \
             shows packets' ways, tcpdump the packets, `conntrack -E` what becomes of connections"
            .to_owned())
    }

    fn obey(&mut self, order: Order) -> OrderOutcome {
        let now = clock::now();
        match order {
            Order::Sync(SyncOrder::Primary) => self.node.set_role(now, SyncRole::Primary),
            Order::Sync(SyncOrder::Backup) => self.node.set_role(now, SyncRole::Backup),
            Order::Sync(SyncOrder::Fault) => self.node.set_role(now, SyncRole::Fault),
            Order::Sync(SyncOrder::Resync) => {
                self.node.request_resync(now);
                self.node.resync();
                self.reporting.note(now, EventKind::ResyncStarted, "an operator requested it");
            }
            Order::Sync(SyncOrder::Nothing) => {}
            Order::SyncReload(order) => return self.reload(now, *order),
            Order::Note(kind, detail) => {
                self.reporting.reloads_refused += u64::from(kind == EventKind::ReloadRefused);
                self.reporting.note(now, kind, &detail);
            }
            Order::Reload(_)
            | Order::Drain { .. }
            | Order::DrainNode { .. }
            | Order::Undrain
            | Order::EndFailed
            | Order::HandleAnswer => {
                return Err("this is mainstay sync, not a gateway".to_owned());
            }
        }
        Ok(false)
    }
}

impl Answers<'_> {
    fn reload(&mut self, now: Instant, order: SyncReloadOrder) -> OrderOutcome {
        let SyncReloadOrder { config, security, summary } = order;
        self.kernel.reconfigure(&config).map_err(|error| error.to_string())?;
        self.node.set_filter(node_filter(&config.filter, config.kernel.events));
        if let Some(security) = &security {
            self.node.renew_security(now, security);
        }
        self.reporting.name.clone_from(&config.node.name);
        self.reporting.reloads_applied += 1;
        self.reporting.note(now, EventKind::Reloaded, &summary);
        Ok(false)
    }
}
