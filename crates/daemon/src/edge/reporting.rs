//! What the edge reports to operators: events, status and counters.

use ::edge::{Edge, EdgeEvent, EdgeFlow, RatePhase};
use cluster::edge_link::{LinkError, NodeLinkStatus, NodeLinks};
use flow::{ConnectionRole, DropReason, Instant, NodeId, PortId};
use packet_io::netlink::LinkState;
use packet_io::{PacketIo, clock};

use super::fast_path::EdgeFastPath;
use crate::complaints::Complaints;
use crate::describe;
use api::metrics::Samples;
use api::{
    BothWays, ConnectionsStatus, DropCount, EdgeNodeStatus, EdgeStatus, Event, EventKind, Flow, NodeRole, NodeStatus,
    PortStatus, Status,
};
use config::edge::EdgeSettings;
use config::validated::Port;
use config::value::protocol_name;
use control::flows::{FLOWS_EXAMINED_PER_PAGE_MAX, ends};
use control::metrics::add_status;
use control::orders::{Order, OrderOutcome};
use control::{ControlHandler, EventLog, FlowsPage, FlowsQuery};

/// What is remembered for operators.
pub(super) struct Reporting {
    node: NodeId,
    name: String,
    connections_max: u32,
    ports: Vec<Port>,
    carriers: Vec<Option<(LinkState, Instant)>>,
    started_at: Instant,
    events: EventLog,
    complaints: Complaints,
}

impl Reporting {
    pub(super) fn new(settings: &EdgeSettings, ports: Vec<Port>, now: Instant) -> Self {
        Self {
            node: settings.node.id,
            name: settings.node.name.clone(),
            connections_max: settings.connections_max,
            carriers: vec![None; ports.len()],
            ports,
            started_at: now,
            events: EventLog::default(),
            complaints: Complaints::default(),
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
            EventKind::ReloadRefused | EventKind::PeerDown | EventKind::PortDown => {
                tracing::warn!(detail, "{}", kind.describe());
            }
            _ => tracing::info!(detail, "{}", kind.describe()),
        }
        self.events.push_counted(now, kind, detail, count);
    }

    /// Remembers and logs an event of the edge.
    pub(super) fn note_event(&mut self, at: Instant, event: EdgeEvent) {
        let (kind, detail) = match event {
            EdgeEvent::NodeLost(node) => (EventKind::PeerDown, format!("node {}: its flows go to the others", node.0)),
            EdgeEvent::NodeReturned(node) => (EventKind::PeerUp, format!("node {} forwards packets", node.0)),
            EdgeEvent::SwitchedOver(_) => return,
            EdgeEvent::Recovered { node, resent } => {
                let (segments, syns, acknowledgements) = (resent.segments, resent.syns, resent.acknowledgements);
                let detail = format!(
                    "to node {}: {segments} segments, {syns} SYNs; {acknowledgements} acknowledgements to hosts",
                    node.0
                );
                (EventKind::Resent, detail)
            }
            EdgeEvent::RateControl { node, status } => {
                let phase = match status.phase {
                    RatePhase::Inactive => "off",
                    RatePhase::Active => "on",
                    RatePhase::Releasing => "ending",
                };
                (EventKind::RateControl, format!("node {}: {phase}", node.0))
            }
        };
        self.note(at, kind, &detail);
    }

    /// The carrier of a port changed; returns the port.
    pub(super) fn note_carrier(&mut self, now: Instant, watched: usize, state: LinkState) -> PortId {
        let (id, detail) = (self.ports[watched].id, format!("port {}", self.ports[watched].name));
        self.carriers[watched] = Some((state, now));
        self.note(now, if state.is_up { EventKind::PortUp } else { EventKind::PortDown }, &detail);
        id
    }

    /// A frame of a node was not taken.
    pub(super) fn note_link_error(&mut self, port: PortId, error: &LinkError) {
        let name = self.ports.get(usize::from(port.0)).map_or("?", |port| &port.name);
        let text = format!("port {name}: {error}");
        let now = clock::now();
        if let Some(count) = self.complaints.admit(now, &text) {
            self.note_counted(now, EventKind::Warning, &text, count);
        }
    }

    /// The edge in a line, for the service manager.
    pub(super) fn line(&self, edge: &Edge) -> String {
        let alive = edge.status().alive.iter().count();
        format!("{alive} of {} nodes forward packets", self.ports.len() - 1)
    }

    /// Who answers operators' questions.
    pub(super) fn answers<'a>(
        &'a mut self,
        edge: &'a mut Edge,
        fast_path: Option<&'a EdgeFastPath>,
        links: &'a NodeLinks,
        ports: &'a dyn PacketIo,
    ) -> Answers<'a> {
        Answers { reporting: self, edge, fast_path, links, ports }
    }
}

/// Everything that questions are answered from.
pub(super) struct Answers<'a> {
    reporting: &'a mut Reporting,
    edge: &'a mut Edge,
    fast_path: Option<&'a EdgeFastPath>,
    links: &'a NodeLinks,
    ports: &'a dyn PacketIo,
}

impl Answers<'_> {
    fn port(&self, index: usize, port: &Port) -> PortStatus {
        let counters = self.ports.counters(port.id);
        let forwarded = self.fast_path.map(|fast_path| fast_path.traffic(port.id)).unwrap_or_default();
        let carrier = self.reporting.carriers[index];
        PortStatus {
            name: port.name.clone(),
            interface: port.interface.clone(),
            received_packets: counters.received_frames + forwarded.received_frames,
            received_bytes: counters.received_bytes + forwarded.received_bytes,
            sent_packets: counters.sent_frames + forwarded.sent_frames,
            sent_bytes: counters.sent_bytes + forwarded.sent_bytes,
            missed_packets: counters.receive_queue_full,
            up: carrier.map(|(state, _)| state.is_up),
            since_ns: carrier.map(|(_, since)| since.as_nanos()),
            speed_mbps: carrier.and_then(|(state, _)| state.speed_mbps),
        }
    }

    fn node(&self, link: &NodeLinkStatus) -> EdgeNodeStatus {
        let serves = (0..cluster::edge_link::NODES_MAX).filter(|node| link.serves.serves(NodeId(*node)));
        EdgeNodeStatus {
            id: link.node.0,
            detector: describe::detector(link.state),
            since_ns: link.since.map(Instant::as_nanos),
            forwards: self.edge.status().alive.contains(link.node),
            drained: self.edge.drained().contains(link.node),
            serves: serves.collect(),
            link_address: link.address.map(|address| address.to_string()),
        }
    }

    fn edge(&self) -> EdgeStatus {
        let status = self.edge.status();
        let recovery = status.recovery;
        EdgeStatus {
            nodes: self.links.status().map(|link| self.node(&link)).collect(),
            entered: status.counters.entered,
            left: status.counters.left,
            moved: status.counters.moved,
            held_segments: status.segments_held.0.into(),
            held_segments_max: status.segments_held.1.into(),
            held_acknowledgements: status.acknowledgements_held.0.into(),
            held_bytes: status.held_bytes as u64,
            evicted: recovery.evicted,
            unholdable: recovery.unholdable,
            resent_segments: recovery.segments_resent,
            resent_syns: recovery.syns_resent,
            resent_acknowledgements: recovery.acknowledgements_resent,
        }
    }

    fn drops(&self) -> Vec<DropCount> {
        let mut drops = self.edge.status().counters.dropped;
        let failures = self.reporting.ports.iter().map(|port| self.ports.counters(port.id).transmit_failures.total());
        drops[DropReason::TransmitFailed as usize] += failures.sum::<u64>();
        let occurred = DropReason::ALL.iter().zip(drops).filter(|(_, packets)| *packets > 0);
        occurred.map(|(reason, packets)| DropCount { reason: reason.label().to_owned(), packets }).collect()
    }
}

impl ControlHandler for Answers<'_> {
    fn status(&mut self) -> Status {
        let now = clock::now();
        let reporting = &*self.reporting;
        Status {
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            node: NodeStatus {
                id: reporting.node.0,
                name: reporting.name.clone(),
                role: NodeRole::Edge,
                role_since_ns: reporting.started_at.as_nanos(),
                passive: None,
                groups: Vec::new(),
            },
            monotonic_now_ns: now.as_nanos(),
            uptime_s: now.saturating_since(reporting.started_at).as_secs_f64(),
            connections: ConnectionsStatus {
                count: self.edge.status().connections.into(),
                max: reporting.connections_max.into(),
                unanswered: 0,
                master: None,
            },
            ports: reporting.ports.iter().enumerate().map(|(index, port)| self.port(index, port)).collect(),
            drops: self.drops(),
            fast_path: self.fast_path.map(|fast_path| Box::new(fast_path.status(self.edge))),
            edge: Some(Box::new(self.edge())),
            ..Status::default()
        }
    }

    fn flows(&mut self, query: &FlowsQuery) -> FlowsPage {
        let now = clock::now();
        let mut page = FlowsPage::new(now);
        let mut from = query.cursor;
        for _ in 0..FLOWS_EXAMINED_PER_PAGE_MAX {
            let Some(flow) = self.edge.next_flow(from) else { return page };
            from = flow.place + 1;
            if query.filter.matches_described(&[flow.entering], flow.stage, ConnectionRole::Owner) {
                page.described.push(describe(&flow, now));
            }
        }
        page.next_cursor = Some(from);
        page
    }

    fn obey(&mut self, order: Order) -> OrderOutcome {
        let Order::DrainNode { node, is_drained } = order else {
            return Err("this is an edge: its nodes are drained, not itself".to_owned());
        };
        if !self.links.status().any(|link| link.node == node) {
            return Err(format!("there is no node {} in the file of this edge", node.0));
        }
        if !self.edge.set_drained(node, is_drained) {
            return Err("connections would not stay at the node: that needs affinity = \"learned\"".to_owned());
        }
        let text = if is_drained { "gets no new connections" } else { "gets new connections again" };
        let kind = if is_drained { EventKind::Draining } else { EventKind::Undrained };
        self.reporting.note(clock::now(), kind, &format!("node {} {text}", node.0));
        Ok(false)
    }

    fn counters(&mut self) -> Samples {
        let mut samples = Samples::default();
        add_status(&mut samples, &self.status());
        samples
    }

    fn events(&mut self) -> Vec<Event> {
        self.reporting.events.to_vec()
    }
}

/// A connection as an edge knows it: the node that gets its packets, and no counters.
fn describe(flow: &EdgeFlow, now: Instant) -> Flow {
    const NONE: BothWays = BothWays { original: 0, reply: 0 };
    Flow {
        protocol: protocol_name(flow.entering.protocol),
        state: flow.stage.to_owned(),
        role: format!("node {}", flow.node.0),
        owner: flow.node.0,
        original: ends(&flow.entering),
        translated: None,
        uncounted: true,
        packets: NONE,
        bytes: NONE,
        replied: flow.stage == "open",
        assured: flow.stage == "open",
        expires_s: flow.expires_at.saturating_since(now).as_secs_f64(),
        age_s: 0.0,
        egress: None,
        version: 0,
        related_to: None,
        class: None,
        path: None,
        hook: None,
        gateway_reason: None,
    }
}
