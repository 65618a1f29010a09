//! The answers to operators' questions.

use crate::describe;
use cluster::forwarding;
use cluster::node::{Node, NodeStatus};
use control::metrics::{add_latencies, add_status};
use flow::DropReason;
use network_functions::firewall::{self, rule_of_counter};
use packet_io::{PacketIo, clock};

use super::roles::{peer_status, takeover};
use super::{Reporting, port_id, rate_limit, reach, sharing, syn_proxy, traffic, url_filter};
use api::metrics::{Metric, Samples};
use api::{ConnectionsStatus, DropCount, Event, NodeStatus as NodeLine, PortStatus, Status, UrlLookup, WorkerStatus};
use control::flows::Listed;
use control::orders::{Order, OrderOutcome};
use control::watching::WatchOrder;
use control::{ControlHandler, FlowsPage, FlowsQuery};

/// Everything that questions are answered from.
pub(in crate::gateway) struct Answers<'a> {
    pub(super) reporting: &'a mut Reporting,
    pub(super) node: &'a mut Node,
    pub(super) ports: &'a dyn PacketIo,
}

impl Reporting {
    /// Who answers operators' questions, and does as they wish.
    pub(in crate::gateway) fn answers<'a>(&'a mut self, node: &'a mut Node, ports: &'a dyn PacketIo) -> Answers<'a> {
        Answers { reporting: self, node, ports }
    }
}

impl Answers<'_> {
    fn port(&self, status: &NodeStatus, index: usize, name: &str, interface: &str) -> PortStatus {
        let counters = self.ports.counters(port_id(index));
        let traffic = traffic(self.node, self.ports, port_id(index));
        let link = reach::link(status, port_id(index));
        PortStatus {
            name: name.to_owned(),
            interface: interface.to_owned(),
            received_packets: traffic.received_frames,
            received_bytes: traffic.received_bytes,
            sent_packets: traffic.sent_frames,
            sent_bytes: traffic.sent_bytes,
            missed_packets: counters.receive_queue_full,
            up: link.map(|known| known.link.is_up),
            since_ns: link.map(|known| known.since.as_nanos()),
            speed_mbps: link.and_then(|known| known.link.speed_mbps),
        }
    }

    /// This worker, where it is one of several.
    fn worker(&self, status: &NodeStatus) -> Option<WorkerStatus> {
        let place = self.reporting.place;
        let pipeline = self.node.pipeline();
        let counters = pipeline.shard_counters();
        (!place.is_alone()).then(|| WorkerStatus {
            number: place.worker.0,
            connections: status.connections.into(),
            load: self.reporting.load.clamp(0.0, 1.0),
            forwarded: pipeline.counters().forwarded,
            handed_over: counters.handed_over,
            taken: counters.taken,
            redirects: pipeline.redirects() as u64,
            messages_lost: self.node.worker_messages_lost(),
        })
    }

    fn drops(&self, forwarding: &forwarding::Counters) -> Vec<DropCount> {
        let mut drops = self.node.pipeline().counters().drops;
        let failures = (0..self.reporting.ports.len())
            .map(|port| self.ports.counters(port_id(port)).transmit_failures.total())
            .sum::<u64>();
        drops[DropReason::TransmitFailed as usize] += failures;
        // What waited for a link address before it was dropped.
        drops[DropReason::NeighbourUnresolved as usize] += forwarding.unresolved_packets;
        drops[DropReason::NotActive as usize] += forwarding.abandoned_packets;
        let occurred = DropReason::ALL.iter().zip(drops).filter(|(_, packets)| *packets > 0);
        occurred.map(|(reason, packets)| DropCount { reason: reason.label().to_owned(), packets }).collect()
    }
}

impl ControlHandler for Answers<'_> {
    fn status(&mut self) -> Status {
        let now = clock::now();
        let status = self.node.status(now);
        let reporting = &*self.reporting;
        let ports = reporting.ports.iter().enumerate();
        Status {
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            node: NodeLine {
                id: reporting.node.0,
                name: reporting.name.clone(),
                role: describe::role(status.role),
                role_since_ns: reporting.role_since.as_nanos(),
                passive: status.passive.as_ref().map(|reason| reporting.passive(reason)),
                groups: reporting.roles.statuses(&status),
            },
            monotonic_now_ns: now.as_nanos(),
            uptime_s: now.saturating_since(reporting.started_at).as_secs_f64(),
            configuration: status.configuration.map(describe::fingerprint).unwrap_or_default(),
            takeover: takeover(&status),
            connections: ConnectionsStatus {
                count: status.connections.into(),
                max: status.connections_max.into(),
                unanswered: status.unanswered.into(),
                master: None,
            },
            lazy: status.lazy.as_ref().map(describe::lazy),
            rates: reporting.rates.clone(),
            peers: status.peers.iter().map(|peer| peer_status(peer, reporting)).collect(),
            ports: ports.map(|(index, (name, interface))| self.port(&status, index, name, interface)).collect(),
            next_hops: reporting.next_hops(&status),
            drops: self.drops(&status.forwarding),
            workers: self.worker(&status).into_iter().collect(),
            fast_path: self.node.pipeline().fast_path_status().map(|path| Box::new(describe::fast_path(&path))),
            classes: self
                .node
                .pipeline()
                .class_traffic()
                .map(|traffic| describe::classes(&traffic, status.connections))
                .unwrap_or_default(),
            services: if reporting.place.leads() { reporting.balancing.statuses() } else { Vec::new() },
            rate_limits: if reporting.place.leads() {
                rate_limit::statuses(&reporting.balancing.shared().rate_limit)
            } else {
                Vec::new()
            },
            syn_proxy: if reporting.place.leads() {
                syn_proxy::statuses(&reporting.balancing.shared().syn_proxy, now)
            } else {
                Vec::new()
            },
            url_filter: if reporting.place.leads() {
                url_filter::status(&reporting.balancing.shared()).map(Box::new)
            } else {
                None
            },
            membership: reporting
                .members
                .as_ref()
                .filter(|_| reporting.place.leads())
                .map(|members| Box::new(members.status())),
            redundancy: status.tunnel.as_ref().map(|tunnel| Box::new(describe::tunnel(tunnel))),
            state_service: status.state_service.as_ref().map(|service| Box::new(describe::state_service(service))),
            filter: reporting.filter.status(&status, now),
            sync: None,
            edge: None,
        }
    }

    fn flows(&mut self, query: &FlowsQuery) -> FlowsPage {
        let (pipeline, now) = (self.node.pipeline(), clock::now());
        let mut page = query.page(pipeline.table(), now);
        page.hook = pipeline.fast_path_hook();
        for listed in &mut page.connections {
            listed.class = pipeline.class(&listed.connection);
            listed.path = self.node.packet_path(now, &listed.connection.original);
        }
        let master = |listed: &Listed| Some((listed.connection.original, *pipeline.related_to(&listed.connection)?));
        page.related = page.connections.iter().filter_map(master).collect();
        page
    }

    fn counters(&mut self) -> Samples {
        let mut samples = Samples::default();
        add_status(&mut samples, &self.status());
        let pipeline = self.node.pipeline();
        samples.add_count(Metric::ConnectionsOpened, &[], pipeline.counters().begun);
        samples.add_count(Metric::ConnectionsClosed, &[], pipeline.counters().ended);
        samples.add_count(Metric::ConnectionsRelated, &[], pipeline.counters().related);
        samples.add_count(Metric::ConnectionsTakenOver, &[], pipeline.counters().taken_over);
        samples.add_count(Metric::ConnectionsDisallowed, &[], pipeline.counters().disallowed);
        let resets = pipeline.reset_counters();
        samples.add_count(Metric::FailedConnectionResets, &["sent"], resets.sent);
        samples.add_count(Metric::FailedConnectionResets, &["answered"], resets.answered);
        samples.add_count(Metric::FailedConnectionResets, &["stray"], resets.strays);
        samples.add_count(Metric::FailedConnectionResets, &["limited"], resets.limited);
        samples.add_count(Metric::Reloads, &["applied"], self.reporting.reloads.applied);
        samples.add_count(Metric::Reloads, &["refused"], self.reporting.reloads.refused);
        samples.add_count(Metric::Takeovers, &[], self.reporting.takeovers);
        samples.add_count(Metric::LogEntriesDropped, &[], pipeline.dropped_log_entries());
        let status = self.node.status(clock::now());
        samples.add_count(Metric::PacketsFragmented, &[], status.forwarding.packets_fragmented);
        samples.add_count(Metric::PacketsInFragments, &[], pipeline.fragments().len() as u64);
        samples.add_count(Metric::RouterAdvertisementsSent, &[], status.forwarding.router_advertisements);
        samples.add_count(Metric::IcmpErrorsSent, &[], status.forwarding.errors_sent);
        samples.add_count(Metric::IcmpErrorsLimited, &[], status.forwarding.errors_limited);
        samples.add_count(Metric::PacketsAwaitingNeighbour, &[], status.forwarding.waiting_packets);
        samples.add_count(Metric::AddressConflicts, &[], status.forwarding.address_conflicts);
        samples.add_count(Metric::AddressDefences, &[], status.forwarding.defences);
        samples.add_flag(Metric::Passive, &[], status.passive.is_some());
        samples.add_count(Metric::ConnectionsRelearnt, &[], pipeline.counters().relearnt);
        add_latencies(&mut samples, self.node.pipeline().observation().latencies());
        samples.add_count(Metric::RepliesHeld, &[], status.replies_held);
        samples.add_count(Metric::RepliesOverdue, &[], status.replies_overdue);
        sharing::add(&mut samples, pipeline.sharing_counters());
        for (name, counted) in pipeline.chain().names().zip(pipeline.chain_counters().functions()) {
            samples.add_count(Metric::FunctionConnections, &[name], counted.connections);
            samples.add_count(Metric::FunctionConnectionsRefused, &[name], counted.connections_refused);
            samples.add_count(Metric::FunctionPackets, &[name], counted.packets);
            samples.add_count(Metric::FunctionPacketsStopped, &[name], counted.packets_stopped);
        }
        let counters = pipeline.chain().counter_names().iter().zip(pipeline.chain_counters().values());
        for (name, value) in counters {
            let (function, event) = name.split_once('.').unwrap_or(("", name));
            let rule = rule_of_counter(event).filter(|_| function == firewall::NAME);
            match rule {
                Some((action, rule)) => samples.add_count(Metric::FirewallRulePackets, &[rule, action], *value),
                None => samples.add_count(Metric::FunctionEvents, &[function, event], *value),
            }
        }
        samples
    }

    fn events(&mut self) -> Vec<Event> {
        self.reporting.events.to_vec()
    }

    fn url(&mut self, target: &str) -> Result<UrlLookup, String> {
        url_filter::look_up(&self.reporting.balancing.shared(), clock::now(), target)
    }

    fn watch(&mut self, order: WatchOrder) -> Result<(), String> {
        self.reporting.watches.begin(self.node, order)
    }

    fn functions(&mut self) -> Vec<&'static str> {
        self.node.pipeline().chain().names().collect()
    }

    fn obey(&mut self, order: Order) -> OrderOutcome {
        self.carry_out(order)
    }
}
