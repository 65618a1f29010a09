//! A thread that moves packets: the only one, or one of several workers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use cluster::GroupId;
use cluster::node::{Node, NodeEvent, NodeStatus, Transmit};
use cluster::observation::Stopwatch;
use flow::{Instant, NodeId, WorkerId};
use network_functions::chain::ChainLayout;
use packet_io::poller::{Poller, Token, Waker};
use packet_io::signal::{Signal, Signals};
use packet_io::udp::{DatagramBatch, TTL_MAX, UdpOptions, UdpSocket};
use packet_io::{IoError, PacketIo, clock};

use super::balancing::Balancing;
use super::links::Links;
use super::mailbox::Post;
use super::members::Members;
use super::outgoing::FrameSender;
use super::reporting::Reporting;
use super::service::{self, Service};
use super::utilisation::Utilisation;
use crate::{credentials, logging};
use api::EventKind;
use config::validated::{Cluster, Config, Peer, replication_address};
use control::ControlReceiver;

const PORTS: Token = Token(0);
const REPLICATION: Token = Token(1);
const DETECTION: Token = Token(2);
const CONTROL: Token = Token(3);
const SIGNALS: Token = Token(4);
const MAILBOX: Token = Token(5);
const LINKS: Token = Token(20);

/// The longest wait: ports that went down are looked for, and rates are taken, at least this often.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// The longest wait of one of several workers with a fast path, whose program stops when one of them is not alive for the detection time.
const WAIT_MAX_OF_WORKER: Duration = Duration::from_millis(40);
/// Rounds of receiving before peers and timers have their turn, lest a flood of packets makes the node look dead.
const ROUNDS_PER_TURN_MAX: usize = 16;
/// Datagrams of a peer taken before packets have their turn.
const DATAGRAMS_PER_TURN_MAX: usize = 256;
/// A leaving node waits so long for peers to take the addresses, and to claim its connections.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(8);

/// The sockets to the peers.
struct PeerSockets {
    replication: UdpSocket,
    /// The lead's: it alone watches peers.
    detection: Option<UdpSocket>,
    /// Of each peer: its number and where its replication and its failure detection are.
    peers: Vec<(NodeId, SocketAddr, SocketAddr)>,
    /// Datagrams for replication ports that are sent together.
    batch: DatagramBatch,
}

impl PeerSockets {
    fn open(cluster: &Cluster, worker: WorkerId) -> Result<Self, IoError> {
        // Workers of equal number replicate to each other. The configuration was checked for ports that do not exist.
        let of_worker = |address| replication_address(address, worker).unwrap_or(address);
        let replication = UdpSocket::bind(of_worker(cluster.replication.local), &UdpOptions::default())?;
        let options = UdpOptions { ttl: Some(TTL_MAX), ..UdpOptions::default() };
        // Where the channels are secured, failure detection travels in them.
        let leads = worker == WorkerId::LEAD && cluster.replication.security.is_none();
        let detection = leads.then(|| UdpSocket::bind(cluster.failure_detection.local, &options)).transpose()?;
        let mut sockets = Self { replication, detection, peers: Vec::new(), batch: DatagramBatch::default() };
        sockets.set_peers(&cluster.replication.peers, worker);
        Ok(sockets)
    }

    /// The peers from now on.
    fn set_peers(&mut self, peers: &[Peer], worker: WorkerId) {
        let of_worker = |address| replication_address(address, worker).unwrap_or(address);
        let peers = peers.iter();
        self.peers = peers.map(|peer| (peer.id, of_worker(peer.address), peer.failure_detection_address)).collect();
    }

    /// Sends all datagrams that the node has for its peers: failure detection at once, the others in batches, in the order in
    /// which the node gives them out. What the kernel does not take is lost like any other datagram.
    fn send_all(&mut self, now: Instant, node: &mut Node) -> Result<(), IoError> {
        while let Some(to) = node.poll_datagram(now, self.batch.buffer()) {
            let address_of = |id: NodeId| self.peers.iter().find(|(peer, _, _)| *peer == id);
            match to {
                Transmit::Replication(id) => {
                    if let Some((_, address, _)) = address_of(id) {
                        self.batch.push(*address);
                    }
                }
                Transmit::Detection(id) => {
                    let detection = address_of(id).zip(self.detection.as_ref());
                    let datagram = self.batch.buffer();
                    detection.map(|((_, _, address), socket)| socket.send_to(datagram, *address)).transpose()?;
                }
                Transmit::Port { .. } => {}
            }
            if self.batch.is_full() {
                self.replication.send_batch(&mut self.batch)?;
            }
        }
        self.replication.send_batch(&mut self.batch)?;
        Ok(())
    }
}

/// The clock that the node measures with.
struct MonotonicClock;

impl Stopwatch for MonotonicClock {
    fn nanoseconds(&self) -> u64 {
        clock::now().as_nanos()
    }
}

/// What a data path is given, beside the configuration.
pub(super) struct Setting {
    pub(super) node: Node,
    pub(super) ports: Box<dyn PacketIo + Send>,
    /// The lead takes the process's signals, and has the configuration read again.
    pub(super) signals: Option<(Signals, SyncSender<()>)>,
    pub(super) waker: Arc<Waker>,
    pub(super) receiver: ControlReceiver,
    /// The way to the other workers, if there are any.
    pub(super) post: Option<Post>,
    /// The fingerprint of the keys and certificates that the node begins with.
    pub(super) credentials: Option<u64>,
    /// The services of the load balancer.
    pub(super) balancing: Arc<Balancing>,
    /// The members of the cluster, where they come from elsewhere than the configuration file.
    pub(super) members: Option<Arc<Members>>,
}

/// The node, what it sends and receives on, and what it reports to operators.
pub(super) struct DataPath {
    node: Node,
    ports: Box<dyn PacketIo + Send>,
    /// The lead's: the links of the ports.
    links: Option<Links>,
    peers: Option<PeerSockets>,
    poller: Poller,
    waker: Arc<Waker>,
    signals: Option<(Signals, SyncSender<()>)>,
    receiver: ControlReceiver,
    post: Option<Post>,
    reporting: Reporting,
    utilisation: Utilisation,
    service: Service,
    datagram: Vec<u8>,
    frames: FrameSender,
    /// The longest wait for something to happen.
    wait_max: Duration,
    /// When the ports are looked at even if none is readable.
    look_at_ports_at: Instant,
    /// A signal asked the node to end: when it ends even if no peer takes the addresses.
    leaving_until: Option<Instant>,
    /// The fingerprint of the keys and certificates that the node began with.
    credentials: Option<u64>,
}

impl DataPath {
    /// Opens the sockets to the peers.
    pub(super) fn open(config: &Config, setting: Setting) -> Result<Self, IoError> {
        let Setting { mut node, ports, signals, waker, receiver, post, credentials, balancing, members } = setting;
        node.pipeline_mut().observation_mut().set_stopwatch(Box::new(MonotonicClock));
        let place = node.place();
        let peers = config.cluster.as_ref().map(|cluster| PeerSockets::open(cluster, place.worker)).transpose()?;
        let links = place.leads().then(|| Links::open(&config.ports, &mut node, clock::now())).transpose()?;
        let poller = Poller::new()?;
        for descriptor in ports.descriptors() {
            poller.add(descriptor, PORTS)?;
        }
        if let Some(peers) = &peers {
            poller.add(&peers.replication, REPLICATION)?;
            peers.detection.iter().try_for_each(|detection| poller.add(detection, DETECTION))?;
        }
        poller.add(&*waker, CONTROL)?;
        signals.iter().try_for_each(|(signals, _)| poller.add(signals, SIGNALS))?;
        post.iter().try_for_each(|post| poller.add(post.bell(), MAILBOX))?;
        links.iter().try_for_each(|links| poller.add(links, LINKS))?;
        let is_awaited = post.is_some() && node.pipeline().fast_path_status().is_some();
        let wait_max = if is_awaited { WAIT_MAX_OF_WORKER } else { WAIT_MAX };
        Ok(Self {
            node,
            ports,
            links,
            peers,
            poller,
            waker,
            signals,
            receiver,
            post,
            reporting: Reporting::new(config, place, (balancing, members), clock::now()),
            utilisation: Utilisation::default(),
            service: if place.leads() { Service::from_environment() } else { Service::none() },
            datagram: vec![0; 65_536],
            frames: FrameSender::default(),
            wait_max,
            look_at_ports_at: Instant::ZERO,
            leaving_until: None,
            credentials,
        })
    }

    /// How the states of the chain lie in a connection's record.
    pub(super) fn chain_layout(&self) -> ChainLayout {
        self.node.pipeline().chain().layout()
    }

    /// The fingerprint of the keys and certificates that the node began with.
    pub(super) const fn credentials(&self) -> Option<u64> {
        self.credentials
    }

    /// Ends all workers.
    pub(super) fn stop_all(&self) {
        self.post.iter().for_each(Post::stop_all);
    }

    /// Moves packets until a signal ends it, or another worker.
    pub(super) fn run(&mut self) -> Result<(), IoError> {
        let mut ready = Vec::new();
        if self.node.place().leads() {
            self.reporting.note(clock::now(), EventKind::Started, env!("CARGO_PKG_VERSION"));
            self.reporting.note_plain_text(clock::now());
        }
        loop {
            let wait = self.wait_until_due(clock::now());
            self.poller.wait(&mut ready, Some(wait))?;
            self.receive(&ready)?;
            let now = clock::now();
            self.node.beat_fast_path(now);
            self.utilisation.measure(now, &mut self.node);
            if self.node.poll_timeout().is_some_and(|due| due <= now) {
                self.node.handle_timeout(now);
            }
            self.deliver_to_mailboxes();
            self.send_all(now)?;
            self.report(now);
            if ready.contains(&CONTROL) {
                self.answer_control();
            }
            if self.post.as_ref().is_some_and(Post::is_stopping) {
                return Ok(());
            }
            if self.may_end(now) {
                self.service.stopping("handing the addresses over");
                self.reporting.note(now, EventKind::Stopping, "");
                return self.send_all(now);
            }
        }
    }

    fn wait_until_due(&self, now: Instant) -> Duration {
        self.node.poll_timeout().map_or(self.wait_max, |due| due.saturating_since(now).min(self.wait_max))
    }

    /// Receives from the sources that the poller has found ready. A standby node that asked every source at each update
    /// would spend more on asking than on the update.
    fn receive(&mut self, ready: &[Token]) -> Result<(), IoError> {
        if ready.contains(&SIGNALS) {
            self.take_signals();
        }
        if ready.contains(&MAILBOX) {
            self.take_from_mailbox()?;
        }
        if let Some(links) = self.links.as_mut().filter(|_| ready.contains(&LINKS)) {
            links.receive(&mut self.node, clock::now())?;
        }
        if ready.contains(&DETECTION) {
            self.receive_detection()?;
        }
        if ready.contains(&REPLICATION) {
            self.receive_replication()?;
        }
        let now = clock::now();
        // A port that went down is never readable and must be looked for.
        if ready.contains(&PORTS) || self.look_at_ports_at <= now {
            self.look_at_ports_at = now + WAIT_MAX;
            self.node.set_unix_time(now, credentials::unix_time());
            self.receive_packets()?;
        }
        Ok(())
    }

    fn take_signals(&mut self) {
        while let Some((signals, reload)) = &self.signals
            && let Some(signal) = signals.receive()
        {
            let now = clock::now();
            match signal {
                Signal::Terminate | Signal::Interrupt if self.node.is_outlasted_by_fast_path() => {
                    tracing::info!("ending: the kernel forwards established connections for fast_path.restart_grace");
                    self.leaving_until = Some(now);
                }
                Signal::Terminate | Signal::Interrupt if self.leaving_until.is_none() => {
                    tracing::info!("leaving: handing the addresses over");
                    self.service.stopping("handing the addresses over");
                    self.node.leave(now);
                    self.leaving_until = Some(now + LEAVE_WAIT_MAX);
                }
                // Asked twice: at once.
                Signal::Terminate | Signal::Interrupt => self.leaving_until = Some(now),
                Signal::Reload => {
                    self.service.reloading(now);
                    // One that waits already reads the file as it is now.
                    let _ = reload.try_send(());
                }
            }
        }
    }

    /// A leaving node ends when it has handed everything over.
    fn may_end(&self, now: Instant) -> bool {
        self.leaving_until.is_some_and(|until| until <= now || self.node.has_left())
    }

    /// Handles packets. Updates are sent to the peers before the packets leave.
    fn receive_packets(&mut self) -> Result<(), IoError> {
        for _ in 0..ROUNDS_PER_TURN_MAX {
            let Self { node, ports, peers, post, reporting, .. } = self;
            let mut failed = None;
            let received = ports.poll(&mut |batch| {
                let now = clock::now();
                if let Some(post) = post {
                    post.take_messages(now, node, |at, kind, detail| reporting.remember(at, kind, detail));
                }
                node.handle_packets(now, batch);
                if let Some(post) = post {
                    post.deliver(node);
                }
                if let Some(Err(error)) = peers.as_mut().map(|peers| peers.send_all(now, node)) {
                    failed = Some(error);
                }
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
            if received == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Takes what other workers sent: messages, and packets that belong here.
    fn take_from_mailbox(&mut self) -> Result<(), IoError> {
        let Self { node, ports, peers, post: Some(post), reporting, .. } = self else { return Ok(()) };
        post.answer_bell();
        post.take_messages(clock::now(), node, |at, kind, detail| reporting.remember(at, kind, detail));
        post.take_frames(|batch, post| {
            let now = clock::now();
            node.handle_handed_over(now, batch);
            post.deliver(node);
            peers.as_mut().map_or(Ok(()), |peers| peers.send_all(now, node))?;
            ports.transmit_batch(batch);
            Ok(())
        })
    }

    /// Sends other workers what they are to know, and the lead what happened here.
    fn deliver_to_mailboxes(&mut self) {
        let Self { node, post: Some(post), reporting, .. } = self else { return };
        post.deliver(node);
        for (at, kind, detail) in reporting.take_relayed() {
            post.send_event_to_lead(at, kind, detail);
        }
    }

    fn receive_detection(&mut self) -> Result<(), IoError> {
        let Self { node, peers: Some(peers), datagram, reporting, .. } = self else { return Ok(()) };
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            let Some(detection) = &peers.detection else { break };
            let Some(received) = detection.receive(datagram)? else { break };
            let bytes = &datagram[..received.length_bytes];
            let from = peers.peers.iter().find(|(_, _, address)| address.ip() == received.from.ip());
            match from {
                Some((id, _, _)) => {
                    let ttl = received.ttl.unwrap_or(0);
                    reporting.note_peer_error(*id, node.handle_detection(clock::now(), *id, bytes, ttl));
                }
                None => reporting.note_stranger(received.from),
            }
        }
        Ok(())
    }

    fn receive_replication(&mut self) -> Result<(), IoError> {
        let Self { node, peers: Some(peers), datagram, reporting, .. } = self else { return Ok(()) };
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            let Some(received) = peers.replication.receive(datagram)? else { break };
            let bytes = &datagram[..received.length_bytes];
            match peers.peers.iter().find(|(_, address, _)| *address == received.from) {
                Some((id, _, _)) => {
                    reporting.note_peer_error(*id, node.handle_replication(clock::now(), *id, bytes));
                }
                None => reporting.note_stranger(received.from),
            }
        }
        Ok(())
    }

    fn send_all(&mut self, now: Instant) -> Result<(), IoError> {
        let Self { node, ports, peers, frames, .. } = self;
        if let Some(peers) = peers {
            peers.send_all(now, node)?;
        }
        frames.send_all(now, node, &mut **ports);
        Ok(())
    }

    fn report(&mut self, now: Instant) {
        while let Some((at, event)) = self.node.poll_event() {
            self.reporting.note_event(at, event);
            if let NodeEvent::BecameStandby { group } = event
                && self.leaving_until.is_some()
            {
                log_leaving(&self.node.status(now), group);
            }
        }
        self.reporting.log_functions(&mut self.node);
        self.reporting.pass_on(&mut self.node);
        self.reporting.take_rates(now, &mut self.node, &*self.ports);
        logging::report_suppressed(now, false);
        self.post.iter().for_each(Post::note_turn);
        let all_turn = || self.post.as_ref().is_none_or(Post::have_all_turned);
        self.service.turn(now, all_turn, || service::describe(&self.node.status(now)));
    }

    fn answer_control(&mut self) {
        self.waker.clear();
        let Self { node, ports, reporting, receiver, waker, .. } = self;
        let mut answers = reporting.answers(node, &**ports);
        if receiver.answer_one(&mut answers) {
            // Another may wait: packets have their turn first.
            waker.wake();
        }
        if let Some((sockets, peers)) = self.peers.as_mut().zip(self.reporting.take_new_peers()) {
            sockets.set_peers(&peers, self.node.place().worker);
        }
    }
}

/// Logs which peer took a group's addresses from a leaving node, if one did.
fn log_leaving(status: &NodeStatus, group: GroupId) {
    match status.peers.iter().find(|peer| peer.holds(group)) {
        Some(peer) => tracing::info!(node = peer.id.0, "handed over"),
        None if status.peers.is_empty() => tracing::info!("gave the addresses up: there is no peer"),
        None => tracing::warn!(
            "gave the addresses up, and no peer holds them: see in the peer's status why it does not take over"
        ),
    }
}
