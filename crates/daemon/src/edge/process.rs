//! The thread that moves packets.

use std::sync::Arc;
use std::time::Duration;

use ::edge::Edge;
use cluster::edge_link::{NodeLinks, NodeUpdate};
use cluster::forwarding::is_path_frame;
use flow::{Checksum, Disposition, Frame, Instant, PacketBatch, PortId};
use packet_io::netlink::LinkMonitor;
use packet_io::poller::{Poller, Token, Waker};
use packet_io::signal::{Signal, Signals};
use packet_io::{IoError, PacketIo, clock};

use super::fast_path::EdgeFastPath;
use super::interfaces::NETWORK;
use super::reporting::Reporting;
use crate::gateway::service::Service;
use crate::logging;
use api::EventKind;
use config::edge::EdgeSettings;
use config::validated::Port;
use control::ControlReceiver;

const PORTS: Token = Token(0);
const CONTROL: Token = Token(1);
const SIGNALS: Token = Token(2);
const LINKS: Token = Token(3);

/// The longest wait: the service manager's watchdog must be fed, and ports that went down are looked for.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Rounds of receiving before timers have their turn, lest a flood of packets makes the edge look dead.
const ROUNDS_PER_TURN_MAX: usize = 16;
/// Frames of the edge's own that are sent before packets have their turn.
const FRAMES_PER_TURN_MAX: usize = 256;

/// What the process is given, beside the configuration.
pub(super) struct Setting {
    pub(super) edge: Edge,
    pub(super) fast_path: Option<EdgeFastPath>,
    pub(super) links: NodeLinks,
    pub(super) ports: Box<dyn PacketIo + Send>,
    /// The ports as they are named, in order.
    pub(super) names: Vec<Port>,
    pub(super) signals: Signals,
    pub(super) waker: Arc<Waker>,
    pub(super) receiver: ControlReceiver,
}

/// The edge, its links and ports, and what it reports to operators.
pub(super) struct Process {
    edge: Edge,
    /// Gone before the ports: what it forwards is not received.
    fast_path: Option<EdgeFastPath>,
    links: NodeLinks,
    ports: Box<dyn PacketIo + Send>,
    carriers: LinkMonitor,
    poller: Poller,
    signals: Signals,
    waker: Arc<Waker>,
    receiver: ControlReceiver,
    reporting: Reporting,
    service: Service,
    buffer: Vec<u8>,
    served_at: Instant,
    look_at_ports_at: Instant,
    is_ending: bool,
}

impl Process {
    pub(super) fn open(settings: &EdgeSettings, setting: Setting) -> Result<Self, IoError> {
        let Setting { mut edge, mut fast_path, mut links, ports, names, signals, waker, receiver } = setting;
        let now = clock::now();
        // No node is alive before it has been received.
        settings.nodes.iter().for_each(|node| edge.set_node_alive(now, node.id, false));
        while edge.poll_event().is_some() {}
        let carriers = LinkMonitor::open(names.iter().map(|port| port.interface.clone()).collect())?;
        for (watched, state) in carriers.states().enumerate() {
            links.set_carrier(now, names[watched].id, state.is_up);
            if names[watched].id == NETWORK {
                edge.set_network_up(state.is_up);
            }
        }
        if let Some(fast_path) = &mut fast_path {
            fast_path.begin(&mut edge);
            fast_path.obey(now, &mut edge);
        }
        let poller = Poller::new()?;
        for descriptor in ports.descriptors() {
            poller.add(descriptor, PORTS)?;
        }
        poller.add(&*waker, CONTROL)?;
        poller.add(&signals, SIGNALS)?;
        poller.add(&carriers, LINKS)?;
        Ok(Self {
            reporting: Reporting::new(settings, names, now),
            edge,
            fast_path,
            links,
            ports,
            carriers,
            poller,
            signals,
            waker,
            receiver,
            service: Service::from_environment(),
            buffer: Vec::with_capacity(65_536),
            served_at: now,
            look_at_ports_at: now,
            is_ending: false,
        })
    }

    /// Moves packets until a signal ends it.
    pub(super) fn run(&mut self) -> Result<(), IoError> {
        let mut ready = Vec::new();
        self.reporting.note(clock::now(), EventKind::Started, env!("CARGO_PKG_VERSION"));
        while !self.is_ending {
            self.poller.wait(&mut ready, Some(self.wait_until_due(clock::now())))?;
            self.receive(&ready)?;
            let now = clock::now();
            self.fast_path.iter().for_each(|fast_path| fast_path.beat(now));
            self.links.handle_absence(now, now.saturating_since(self.served_at));
            self.served_at = now;
            self.links.handle_timeout(now);
            self.follow_nodes(now);
            if self.edge.poll_timeout().is_some_and(|due| due <= now) {
                self.edge.handle_timeout(now);
            }
            if let Some(fast_path) = &mut self.fast_path {
                fast_path.obey(now, &mut self.edge);
                fast_path.sweep(now, &mut self.edge);
            }
            self.send(now);
            self.report(now);
            if ready.contains(&CONTROL) {
                self.answer_control();
            }
        }
        self.service.stopping("ending");
        self.reporting.note(clock::now(), EventKind::Stopping, "");
        Ok(())
    }

    fn wait_until_due(&self, now: Instant) -> Duration {
        let due = [self.edge.poll_timeout(), self.links.poll_timeout()].into_iter().flatten().min();
        due.map_or(WAIT_MAX, |due| due.saturating_since(now).min(WAIT_MAX))
    }

    fn receive(&mut self, ready: &[Token]) -> Result<(), IoError> {
        if ready.contains(&SIGNALS) {
            while let Some(signal) = self.signals.receive() {
                match signal {
                    Signal::Terminate | Signal::Interrupt => self.is_ending = true,
                    Signal::Reload => {
                        let text = "an edge reads its file when it starts: restart it";
                        self.reporting.note(clock::now(), EventKind::ReloadRefused, text);
                    }
                }
            }
        }
        if ready.contains(&LINKS) {
            let now = clock::now();
            for change in self.carriers.poll()? {
                let port = self.reporting.note_carrier(now, change.watched, change.state);
                self.links.set_carrier(now, port, change.state.is_up);
                if port == NETWORK {
                    self.edge.set_network_up(change.state.is_up);
                }
                if let Some(fast_path) = &mut self.fast_path {
                    fast_path.follow_interfaces(now, &mut self.edge);
                }
            }
        }
        let now = clock::now();
        // A port that went down is never readable and must be looked for.
        if ready.contains(&PORTS) || self.look_at_ports_at <= now {
            self.look_at_ports_at = now + WAIT_MAX;
            self.receive_packets()?;
        }
        Ok(())
    }

    fn receive_packets(&mut self) -> Result<(), IoError> {
        for _ in 0..ROUNDS_PER_TURN_MAX {
            let Self { edge, fast_path, links, ports, reporting, .. } = self;
            let received = ports.poll(&mut |batch| {
                let now = clock::now();
                take_link_frames(now, links, edge, batch, reporting);
                let Some(fast_path) = fast_path else { return edge.handle_packets(now, batch) };
                edge.handle_packets_beside(now, batch, &mut |place| fast_path.take_activity(place));
                fast_path.obey(now, edge);
            })?;
            if received == 0 {
                break;
            }
        }
        Ok(())
    }

    /// What the links report of the nodes moves flows.
    fn follow_nodes(&mut self, now: Instant) {
        while let Some(update) = self.links.poll_update() {
            match update {
                NodeUpdate::Forwards(node) => self.edge.set_node_alive(now, node, true),
                NodeUpdate::Stopped(node) => self.edge.switched_over(now, node),
                NodeUpdate::HeartbeatsLost { node, count } => self.edge.note_heartbeats_lost(now, node, count),
                NodeUpdate::LinkAddress { node, address } => self.edge.set_link_address(node, address),
                NodeUpdate::Serves(node) => self.edge.owner_confirmed(now, node),
            }
        }
        if let Some(fast_path) = &mut self.fast_path {
            fast_path.obey(now, &mut self.edge);
        }
    }

    /// Sends what the edge and its links have. A failure is counted by the port; a lost frame is repeated by its sender.
    fn send(&mut self, now: Instant) {
        for _ in 0..FRAMES_PER_TURN_MAX {
            let next = self.links.poll_transmit(now, &mut self.buffer).map(|port| (port, Checksum::Valid));
            let next = next.or_else(|| {
                self.edge.poll_transmit(now, &mut self.buffer).map(|transmit| (transmit.port, transmit.checksum))
            });
            let Some((port, checksum)) = next else { return };
            self.transmit(port, checksum);
        }
    }

    fn transmit(&mut self, port: PortId, checksum: Checksum) {
        let length_bytes = self.buffer.len();
        if let Some(mut frame) = Frame::new(&mut self.buffer, 0, length_bytes, port) {
            frame.checksum = checksum;
            frame.disposition = Disposition::Transmit(port);
            let _ = self.ports.transmit(port, &frame);
        }
    }

    fn report(&mut self, now: Instant) {
        while let Some((at, event)) = self.edge.poll_event() {
            self.reporting.note_event(at, event);
        }
        logging::report_suppressed(now, false);
        let Self { service, reporting, edge, .. } = self;
        service.turn(now, || true, || reporting.line(edge));
    }

    fn answer_control(&mut self) {
        self.waker.clear();
        let Self { edge, fast_path, links, ports, reporting, receiver, waker, .. } = self;
        if receiver.answer_one(&mut reporting.answers(edge, fast_path.as_ref(), links, &**ports)) {
            // Another may wait: packets have their turn first.
            waker.wake();
        }
    }
}

/// Takes the frames that nodes sent to this edge from the batch. Those between nodes pass it as through a switch, but stay on the ports of
/// nodes. Those that come from the network are a stranger's.
fn take_link_frames(
    now: Instant,
    links: &mut NodeLinks,
    edge: &mut Edge,
    batch: &mut PacketBatch<'_>,
    reporting: &mut Reporting,
) {
    for frame in batch.iter_mut().filter(|frame| is_path_frame(frame.bytes())) {
        match links.handle_frame(now, frame.ingress, frame.bytes()) {
            Ok(true) => frame.disposition = Disposition::Consumed,
            Ok(false) => edge.carry_between_nodes(frame),
            Err(error) => {
                edge.refuse(frame, error.reason());
                if !error.is_routine() {
                    reporting.note_link_error(frame.ingress, &error);
                }
            }
        }
    }
}
