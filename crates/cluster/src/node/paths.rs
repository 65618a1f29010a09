//! Failure detection over every path there is: the replication path, and the link of each service port.
//!
//! Each path has a BFD session of its own. A peer is up while any path is, and down once all are: after a cut of the replication link
//! alone no node takes over. Heartbeats travel over all paths, so that roles stay coordinated, and handshakes of the secure channel as
//! long as the replication path is not up. What travels over a service path is what the replication port would carry, encrypted
//! by the same channel; a packet of failure detection is followed by its path's number, so that no stranger can move it to another.
//!
//! Service paths lie in the networks of hosts. While the replication path is up, they carry a packet and a heartbeat each
//! [`SLOW_INTERVAL`], to the link address of the peer. As soon as a packet is missing on the replication path, they carry as many as it
//! does, and each packet polls the peer, which answers at once. So all paths of a dead peer are down at the same time, and the live peer
//! need not have noticed anything ([decision 84](../../../../docs/decisions/0084-service-paths-are-slow-and-carry-updates.md)).
//!
//! A path that never came up counts for nothing: the peer is of a release without service paths, or has no such port.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::random;
use flow::wire::MacAddress;
use flow::{Instant, NodeId, PortId};

use super::event::Path;
use crate::failure_detector::{self, CONTROL_PACKET_BYTES, ConfigError, Event, Pace, Session, State};
use crate::forwarding::PathId;
use crate::role::Heartbeats;

/// How long the replication path alone must be down before that is reported: when a peer dies, all paths fall silent, but not in
/// the same millisecond.
const DEGRADED_AFTER: Duration = Duration::from_millis(200);
/// Datagrams of handshakes that wait to be sent over service paths; the oldest is discarded.
const HANDSHAKES_MAX: usize = 8;
/// How often a service path carries a packet and a heartbeat while the replication path is up.
pub const SLOW_INTERVAL: Duration = Duration::from_secs(1);
/// Service paths to a peer that is silent on all paths are as slow after this time.
const SILENT_FOR_LONG: Duration = Duration::from_secs(10);

/// A service path, and the peer's link address on it, if it is known; else frames go to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ServiceRoute {
    pub(super) port: PortId,
    pub(super) link_address: Option<MacAddress>,
}

/// How a path stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathStatus {
    /// The path.
    pub path: Path,
    /// The state of its BFD session.
    pub state: State,
    /// Since when it is up, or down; `None`: it was never up.
    pub since: Option<Instant>,
}

/// The path by way of a service port.
struct ServicePath {
    port: PortId,
    id: PathId,
    detector: Session,
    is_up: bool,
    changed_at: Option<Instant>,
    /// A heartbeat that waits to be sent.
    heartbeats: Option<Heartbeats>,
    /// Where the peer's frames came from that were found to be its own, since the path is up.
    link_address: Option<MacAddress>,
}

impl ServicePath {
    const fn route(&self) -> ServiceRoute {
        ServiceRoute { port: self.port, link_address: self.link_address }
    }
}

/// How the paths to a peer stand, and the sessions of those by way of service ports.
#[derive(Default)]
pub(super) struct Paths {
    service: Vec<ServicePath>,
    /// The state by the events of the replication path's detector, and since when.
    is_replication_up: bool,
    replication_changed_at: Option<Instant>,
    /// When the peer counts as reachable by service paths alone, unless that changes before.
    degraded_at: Option<Instant>,
    is_degraded: bool,
    /// Datagrams of the secure channel's handshakes, for a service path.
    handshakes: VecDeque<Vec<u8>>,
    /// The place of the path that takes the next of them.
    next: usize,
    /// The peer polls this node as soon as it misses a packet, so this node may be slow. It takes updates over service paths.
    is_polled: bool,
    pace: Pace,
    /// Since when no path is up.
    all_down_since: Option<Instant>,
    /// The heartbeat that went over service paths last, and when.
    said: Option<(Instant, Heartbeats)>,
    /// The lead worker's choice, where the peer is watched by another worker.
    route_by_lead: Option<ServiceRoute>,
}

impl Paths {
    pub(super) fn is_service_up(&self) -> bool {
        self.service.iter().any(|path| path.is_up)
    }

    pub(super) fn is_any_up(&self) -> bool {
        self.is_replication_up || self.is_service_up()
    }

    /// Does what is due. `replication` is the detector of the replication path.
    pub(super) fn handle_timeout(&mut self, now: Instant, replication: &Session) {
        if self.service.is_empty() {
            return;
        }
        let all_down_since = self.all_down_since.unwrap_or(now);
        self.all_down_since = (!self.is_any_up()).then_some(all_down_since);
        let pace = self.next_pace(now, replication);
        self.pace = pace;
        for path in &mut self.service {
            path.detector.set_pace(now, pace);
            path.detector.handle_timeout(now);
        }
    }

    fn next_pace(&self, now: Instant, replication: &Session) -> Pace {
        let is_up = replication.status().state == State::Up;
        let slow = if self.is_polled { Pace::Slow(SLOW_INTERVAL) } else { Pace::Configured };
        match (is_up, replication.missing_since(now), self.pace) {
            (true, None, _) => slow,
            (true, Some(since), _) => Pace::Urgent { since },
            _ if self.all_down_since.is_some_and(|since| since + SILENT_FOR_LONG <= now) => slow,
            (false, _, Pace::Urgent { since }) => Pace::Urgent { since },
            (false, ..) => Pace::Urgent { since: now },
        }
    }

    /// The peer announces whether it polls this node.
    pub(super) const fn set_polled(&mut self, is_polled: bool) {
        self.is_polled = is_polled;
    }

    /// A frame came by the port that was found to be the peer's own.
    pub(super) fn note_link_address(&mut self, port: PortId, address: MacAddress) {
        for path in self.service.iter_mut().filter(|path| path.port == port && path.is_up) {
            path.link_address = Some(address);
        }
    }

    /// The peer's link address on the service path, if the path is up and it is known.
    pub(super) fn link_address(&self, port: PortId) -> Option<MacAddress> {
        self.service.iter().find(|path| path.port == port)?.link_address
    }

    /// The service path that carries updates: the first that is up, while the replication path is down.
    pub(super) fn service_route(&self) -> Option<ServiceRoute> {
        let first = self.service.iter().find(|path| path.is_up && self.is_polled && !self.is_replication_up);
        first.map(ServicePath::route).or(self.route_by_lead)
    }

    /// The lead worker has chosen the service path that carries updates.
    pub(super) const fn set_route(&mut self, route: Option<ServiceRoute>) {
        self.route_by_lead = route;
    }

    pub(super) fn handle_stall(&mut self, now: Instant, stall: Duration) {
        self.service.iter_mut().for_each(|path| path.detector.handle_absence(now, stall));
    }

    pub(super) fn set_config(&mut self, now: Instant, config: failure_detector::Config) -> Result<(), ConfigError> {
        self.service.iter_mut().try_for_each(|path| path.detector.set_config(now, config))
    }

    pub(super) fn poll_timeout(&self, replication: &Session) -> Option<Instant> {
        let has_frames = !self.handshakes.is_empty() || self.service.iter().any(|path| path.heartbeats.is_some());
        let waiting = has_frames.then_some(Instant::ZERO);
        let detectors = self.service.iter().filter_map(|path| path.detector.poll_timeout());
        let is_calm = !self.service.is_empty() && !matches!(self.pace, Pace::Urgent { .. });
        let missing_at = replication.missing_at().filter(|_| is_calm);
        detectors.chain(waiting).chain(self.degraded_at).chain(missing_at).min()
    }

    /// A heartbeat goes over each path that was up at some time: a path that only one side receives on carries it too. Slow paths carry
    /// those that differ from the one before, and else one each [`SLOW_INTERVAL`].
    pub(super) fn set_heartbeats(&mut self, now: Instant, heartbeats: &Heartbeats) {
        let is_said = self.said.as_ref().is_some_and(|(at, said)| {
            now < *at + SLOW_INTERVAL && said.first == heartbeats.first && said.groups == heartbeats.groups
        });
        if is_said && matches!(self.pace, Pace::Slow(_)) {
            return;
        }
        self.said = Some((now, heartbeats.clone()));
        for path in self.service.iter_mut().filter(|path| path.changed_at.is_some()) {
            path.heartbeats = Some(heartbeats.clone());
        }
    }

    /// A datagram of a handshake goes over the replication path; while that is not up, over a service path as well.
    pub(super) fn keep_handshake(&mut self, datagram: &[u8]) {
        let has_path = !self.service.is_empty() || self.route_by_lead.is_some();
        if !has_path || self.is_replication_up {
            return;
        }
        if self.handshakes.len() >= HANDSHAKES_MAX {
            self.handshakes.pop_front();
        }
        self.handshakes.push_back(datagram.to_vec());
    }

    /// The next datagram of a handshake, and its path.
    pub(super) fn poll_handshake(&mut self) -> Option<(ServiceRoute, Vec<u8>)> {
        let datagram = self.handshakes.pop_front()?;
        Some((self.next_route()?, datagram))
    }

    /// The next packet of failure detection over a service path, with its path's number behind it.
    pub(super) fn poll_detection(&mut self, now: Instant) -> Option<(ServiceRoute, Vec<u8>)> {
        let mut packet = Vec::new();
        let path =
            |path: &mut ServicePath| path.detector.poll_transmit(now, &mut packet).then_some((path.route(), path.id.0));
        let (route, id) = self.service.iter_mut().find_map(path)?;
        packet.extend_from_slice(&id.to_be_bytes());
        Some((route, packet))
    }

    /// The next heartbeats over a service path.
    pub(super) fn poll_heartbeats(&mut self) -> Option<(ServiceRoute, Heartbeats)> {
        self.service.iter_mut().find_map(|path| Some((path.route(), path.heartbeats.take()?)))
    }

    /// The detector that a packet on this port is for, and the packet without its path's number. `None`: it was made for
    /// another path.
    pub(super) fn addressee<'a>(&mut self, port: PortId, content: &'a [u8]) -> Option<(&mut Session, &'a [u8])> {
        let (packet, of_path) = content.split_at_checked(CONTROL_PACKET_BYTES)?;
        let is_it = |path: &&mut ServicePath| path.port == port && of_path == path.id.0.to_be_bytes();
        Some((&mut self.service.iter_mut().find(is_it)?.detector, packet))
    }

    /// The next event of a service path's detector.
    pub(super) fn poll_event(&mut self) -> Option<(Path, Event)> {
        self.service.iter_mut().find_map(|path| Some((Path::Port(path.port), path.detector.poll_event()?)))
    }

    /// The longest time for which the peer may be silent on a service path while it is polled; zero without any.
    pub(super) fn detection_time(&self) -> Duration {
        let times = self.service.iter().map(|path| path.detector.polled_detection_time());
        times.fold(Duration::ZERO, Duration::max)
    }

    /// Failures are detected over the links of these ports from now on. Paths that exist already go on.
    pub(super) fn set_service(
        &mut self,
        peer: NodeId,
        ports: &[(PortId, PathId)],
        config: failure_detector::Config,
        seed: u64,
    ) {
        self.service.retain(|path| ports.contains(&(path.port, path.id)));
        for (port, id) in ports {
            if self.service.iter().any(|path| path.port == *port) {
                continue;
            }
            let seed = random::mix(seed ^ (u64::from(id.0) << 8) ^ u64::from(peer.0));
            // RFC 5880 section 6.8.1: unique among this system's sessions and not 0; random besides.
            let discriminator = (seed >> 32) as u32 & !0x1ff | u32::from(port.0) | 0x200;
            self.service.push(ServicePath {
                port: *port,
                id: *id,
                detector: Session::new(config, discriminator, seed),
                is_up: false,
                changed_at: None,
                heartbeats: None,
                link_address: None,
            });
        }
    }

    pub(super) fn has_service(&self) -> bool {
        !self.service.is_empty()
    }

    /// Whether the peer counts as reachable by service paths alone from now on.
    pub(super) fn becomes_degraded(&mut self, now: Instant) -> bool {
        let becomes = self.degraded_at.is_some_and(|at| at <= now);
        if becomes {
            (self.degraded_at, self.is_degraded) = (None, true);
        }
        becomes
    }

    /// How all paths stand, that of replication first, whose detector is in `replication`.
    pub(super) fn status(&self, replication: State) -> Vec<PathStatus> {
        let replication =
            PathStatus { path: Path::Replication, state: replication, since: self.replication_changed_at };
        let service = self.service.iter().map(|path| PathStatus {
            path: Path::Port(path.port),
            state: path.detector.status().state,
            since: path.changed_at,
        });
        core::iter::once(replication).chain(service).collect()
    }

    /// The path that the next handshake's datagram goes by: those that are up take turns, or all if none is.
    fn next_route(&mut self) -> Option<ServiceRoute> {
        if self.service.is_empty() {
            return self.route_by_lead;
        }
        let is_service_up = self.is_service_up();
        let count = self.service.len();
        let mut places = (0..count).map(|offset| (self.next + offset) % count);
        let place = places.find(|place| self.service[*place].is_up || !is_service_up)?;
        self.next = place + 1;
        Some(self.service[place].route())
    }

    /// Takes note of a detector's event. Whether the peer was up before, and is now.
    pub(super) fn note(&mut self, now: Instant, path: Path, event: Event) -> (bool, bool) {
        let was_up = self.is_any_up();
        let is_up = event == Event::Up;
        match path {
            Path::Replication => (self.is_replication_up, self.replication_changed_at) = (is_up, Some(now)),
            Path::Port(port) => {
                for path in self.service.iter_mut().filter(|path| path.port == port) {
                    (path.is_up, path.changed_at, path.link_address) = (is_up, Some(now), None);
                }
            }
        }
        if self.is_replication_up || !self.is_service_up() {
            (self.degraded_at, self.is_degraded) = (None, false);
        } else if !self.is_degraded {
            self.degraded_at = self.degraded_at.or(Some(now + DEGRADED_AFTER));
        }
        (was_up, self.is_any_up())
    }
}
