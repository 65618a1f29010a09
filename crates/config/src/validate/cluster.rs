//! `[replication]` and `[failure_detection]`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use cluster::edge_link::EDGES_MAX;
use cluster::node::SERVICE_PATH_BYTES_PER_S_DEFAULT;
use cluster::pipeline::WAIT_FOR_PEER_DEFAULT;
use flow::NodeId;
use replication::representation::Start;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawConfig, RawFailureDetection, RawPeer, RawReplication, Text};
use super::super::validated::{Cluster, FailureDetection, Node, Peer, Port, Replication, Representation};
use super::super::value;
use super::common::{DATAGRAM_BYTES, choice, flag, quoted, ranged, within};
use super::{family_name, one_of, parsed};

/// UDP port of BFD control packets (RFC 5881 section 4).
const BFD_PORT: u16 = 3784;
const INTERVAL_DEFAULT: Duration = Duration::from_millis(10);
const MULTIPLIER_DEFAULT: u8 = 10;
/// A node that joins listens for so long by default: its peers add it only when its record has reached them.
const JOIN_HOLD: Duration = Duration::from_secs(3);
/// Below this, a pause of the scheduler looks like a dead peer.
const DETECTION_TIME_DOUBTFUL: Duration = Duration::from_millis(30);
/// What an Ethernet frame holds after IPv4 and UDP headers.
const DATAGRAM_BYTES_DEFAULT: u16 = 1472;
/// The least rate sends a datagram in the time after which a session is to send one.
const SERVICE_PATH_BYTES_PER_S: RangeInclusive<u32> = 16_000..=1_000_000_000;
const IN_FLIGHT_MESSAGES: RangeInclusive<u16> = 256..=32_768;
const ACK_EVERY_MESSAGES: RangeInclusive<u16> = 1..=64;

pub(super) fn cluster(
    raw: &RawConfig,
    node: &Node,
    ports: &[Port],
    connections_max: u32,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Cluster> {
    let Some(section) = &raw.replication else {
        if let Some(detection) = &raw.failure_detection {
            let mistake = Mistake::new("there is no peer to watch", "add [replication] with a peer or remove this");
            diagnostics.error(detection.span(), "[failure_detection]", mistake);
        }
        return None;
    };
    if section.get_ref().peer.is_empty() && !super::membership::is_dynamic(raw) {
        let mistake = Mistake::new("no peer is named", "add a [[replication.peer]] or remove the section");
        diagnostics.error(section.span(), "[replication]", mistake);
    }
    diagnostics.describe_refused("replication.batch_delay");
    if let Some(text) = &section.get_ref().batch_delay {
        let mistake = Mistake::new("a gateway sends updates before the packets leave", "remove it: nothing waits");
        diagnostics.error(text.span(), "replication.batch_delay", mistake);
    }
    let local = own_address("replication.local", &section.get_ref().local, ports, diagnostics)?;
    let replication = replication(section.get_ref(), local, node, diagnostics);
    let defaults = RawFailureDetection::default();
    let detection = raw.failure_detection.as_ref().map_or(&defaults, Spanned::get_ref);
    let hold_min = if super::membership::is_dynamic(raw) { JOIN_HOLD } else { Duration::ZERO };
    let failure_detection = failure_detection(detection, (local, hold_min), ports, diagnostics);
    check_local_ports(raw, local, &failure_detection, diagnostics);
    let security = super::security::security(section.get_ref(), &replication, diagnostics);
    super::security::check_edges(detection, security.as_ref(), diagnostics);
    let compact = super::compact::compact(section.get_ref(), &replication, connections_max, ports, diagnostics);
    // Members are numbered below the number of nodes, and any of them may come.
    let others = (0..node.nodes).map(NodeId).filter(|id| *id != node.id);
    let peers: Vec<NodeId> = if super::membership::is_dynamic(raw) {
        others.collect()
    } else {
        replication.peers.iter().map(|peer| peer.id).collect()
    };
    let backups = super::backups::backups(section.get_ref(), node, &peers, diagnostics);
    let replication = Replication { security, compact, backups, ..replication };
    check_start(raw, section.get_ref(), &replication, diagnostics);
    super::lazy::check(raw, section.get_ref(), &replication, diagnostics);
    let reach = (peers.len(), failure_detection.edges_max);
    super::backups::check(raw, section.get_ref(), (&replication, reach), diagnostics);
    Some(Cluster { replication, failure_detection })
}

/// Finds settings that need connections replicated before the packet that was written.
fn check_start(
    raw: &RawConfig,
    section: &RawReplication,
    replication: &Replication,
    diagnostics: &mut Diagnostics<'_>,
) {
    let Some(written) = section.start.as_ref().filter(|_| replication.start != Start::FirstPacket) else { return };
    let contradictions = [
        (
            !replication.hold_first_reply.is_zero(),
            "hold_first_reply needs connections replicated from the first packet on, so that the reply seldom waits",
        ),
        (
            raw.group.len() > 1 && !replication.is_symmetric,
            "the first reply may come to a node of another group, which must know the connection by then",
        ),
    ];
    for (_, problem) in contradictions.iter().filter(|(is_so, _)| *is_so) {
        let mistake = Mistake::new(*problem, "remove start, or write start = \"first-packet\"");
        diagnostics.error(written.span(), "replication.start", mistake);
    }
}

/// An address that stays with this node.
pub(super) fn own_address(
    subject: &str,
    text: &Text,
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<SocketAddr> {
    let address = parsed(subject, text, value::socket_address, diagnostics)?;
    if address.ip().is_multicast() {
        let mistake = Mistake::new(format!("{} is a multicast address", address.ip()), "write an address of this node");
        diagnostics.error(text.span(), subject, mistake);
    }
    if ports.iter().flat_map(|port| &port.addresses).any(|shared| shared.prefix.addr() == address.ip()) {
        let mistake = Mistake::new(
            format!("{} is a shared address and moves to whichever node is active", address.ip()),
            "write an address that stays with this node",
        );
        diagnostics.error(text.span(), subject, mistake);
    }
    Some(address)
}

fn check_local_ports(
    raw: &RawConfig,
    local: SocketAddr,
    detection: &FailureDetection,
    diagnostics: &mut Diagnostics<'_>,
) {
    if detection.local == local {
        let detection_local = raw.failure_detection.as_ref().and_then(|section| section.get_ref().local.as_ref());
        let replication_local = raw.replication.as_ref().map(|section| &section.get_ref().local);
        let span = detection_local.or(replication_local).map_or(0..0, Spanned::span);
        let mistake = Mistake::new(
            format!("replication and failure detection both use {local}"),
            "give one of them another port",
        );
        diagnostics.error(span, "failure_detection.local", mistake);
    }
}

/// What is written under a key that has the name of its field, if it is in the range; else the default.
macro_rules! setting {
    ($section:literal, $raw:ident.$key:ident => $read:ident($default:expr, $range:expr), $diagnostics:ident) => {
        $read(concat!($section, ".", stringify!($key)), $raw.$key.as_ref(), $default, $range, $diagnostics)
    };
}
pub(super) use setting;

pub(super) fn replication(
    raw: &RawReplication,
    local: SocketAddr,
    node: &Node,
    diagnostics: &mut Diagnostics<'_>,
) -> Replication {
    let alive_interval =
        setting!("replication", raw.alive_interval => ranged(ms(100), ms(1)..=ms(60_000)), diagnostics);
    let peer_timeout = setting!("replication", raw.peer_timeout => ranged(ms(1000), ms(10)..=ms(600_000)), diagnostics);
    if let Some(text) =
        raw.peer_timeout.as_ref().or(raw.alive_interval.as_ref()).filter(|_| peer_timeout < alive_interval * 2)
    {
        let mistake = Mistake::new(
            "peer_timeout is shorter than two alive_intervals, so an idle peer would count as away",
            "raise peer_timeout or lower alive_interval",
        );
        diagnostics.error(text.span(), "[replication]", mistake);
    }
    let names = quoted(&Representation::ALL);
    diagnostics.describe("replication.representation", Some(format!("{:?}", Representation::default().name())), names);
    let peers = peers(&raw.peer, local, node, diagnostics);
    let representation = raw.representation.as_ref();
    let representation =
        representation.and_then(|text| one_of("replication.representation", text, &Representation::ALL, diagnostics));
    Replication {
        local,
        representation: representation.unwrap_or_default(),
        compact: None,
        start: choice("replication.start", raw.start.as_ref(), &Start::ALL, diagnostics),
        hold_first_reply: setting!("replication", raw.hold_first_reply => ranged(ms(0), ms(0)..=ms(1000)), diagnostics),
        wait_for_peer: setting!("replication", raw.wait_for_peer => ranged(WAIT_FOR_PEER_DEFAULT, ms(0)..=ms(200)), diagnostics),
        is_symmetric: flag("replication.symmetric", raw.symmetric, false, diagnostics),
        datagram_bytes_max: setting!("replication", raw.datagram_bytes_max => within(DATAGRAM_BYTES_DEFAULT, DATAGRAM_BYTES), diagnostics),
        service_path_bytes_per_s: service_path_rate(raw, diagnostics),
        in_flight_messages_max: setting!("replication", raw.in_flight_messages_max => within(4096, IN_FLIGHT_MESSAGES), diagnostics),
        ack_every_messages: setting!("replication", raw.ack_every_messages => within(32, ACK_EVERY_MESSAGES), diagnostics),
        ack_delay: setting!("replication", raw.ack_delay => ranged(ms(2), ms(0)..=ms(1000)), diagnostics),
        alive_interval,
        peer_timeout,
        lazy: super::lazy::lazy(raw, diagnostics),
        backups: None,
        peers,
        security: None,
    }
}

fn peers(raw: &[Spanned<RawPeer>], local: SocketAddr, node: &Node, diagnostics: &mut Diagnostics<'_>) -> Vec<Peer> {
    let mut peers: Vec<Peer> = Vec::new();
    for written in raw {
        let written = written.get_ref();
        let id = NodeId(*written.id.get_ref());
        let subject = format!("replication peer {}", id.0);
        if let Some(mistake) = peer_id_mistake(id, node, &peers) {
            diagnostics.error(written.id.span(), &subject, mistake);
        }
        let Some(address) = parsed(&subject, &written.address, value::socket_address, diagnostics) else { continue };
        let elsewhere = written.failure_detection_address.as_ref();
        let elsewhere = elsewhere.and_then(|text| parsed(&subject, text, value::socket_address, diagnostics));
        let failure_detection_address = elsewhere.unwrap_or_else(|| SocketAddr::new(address.ip(), BFD_PORT));
        let mistake = if address == local {
            Some(Mistake::new(format!("{address} is this node's own address"), "write the peer's address"))
        } else if peers.iter().any(|other| other.address == address) {
            Some(Mistake::new(format!("another peer has the address {address}"), "write each peer's own address"))
        } else if address.is_ipv4() != local.is_ipv4() {
            Some(Mistake::new(
                format!("the peer's address is {}, local is not", family_name(address.ip())),
                "write both in one family",
            ))
        } else {
            None
        };
        if let Some(mistake) = mistake {
            diagnostics.error(written.address.span(), &subject, mistake);
        }
        peers.push(Peer { id, address, failure_detection_address });
    }
    peers
}

fn peer_id_mistake(id: NodeId, node: &Node, earlier: &[Peer]) -> Option<Mistake> {
    if id == node.id {
        return Some(Mistake::new("the peer has this node's own id", "give each node its own id"));
    }
    if id.0 >= node.nodes {
        return Some(Mistake::new(
            format!("node {} is not one of {} nodes, which are numbered from 0", id.0, node.nodes),
            format!("choose an id below {} or raise nodes", node.nodes),
        ));
    }
    let taken = earlier.iter().any(|peer| peer.id == id);
    taken.then(|| Mistake::new("another peer has the same id", "give each node its own id"))
}

fn failure_detection(
    raw: &RawFailureDetection,
    (replication_local, hold_min): (SocketAddr, Duration),
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) -> FailureDetection {
    let local = raw.local.as_ref();
    let local = local.and_then(|text| own_address("failure_detection.local", text, ports, diagnostics));
    let interval =
        setting!("failure_detection", raw.interval => ranged(INTERVAL_DEFAULT, ms(1)..=ms(10_000)), diagnostics);
    let multiplier =
        setting!("failure_detection", raw.multiplier => within(MULTIPLIER_DEFAULT, 1..=u8::MAX), diagnostics);
    let detection_time = interval * u32::from(multiplier);
    if detection_time < DETECTION_TIME_DOUBTFUL {
        let span = raw.interval.as_ref().map(Spanned::span).or(raw.multiplier.as_ref().map(Spanned::span));
        let mistake = Mistake::new(
            format!("a peer counts as down after {detection_time:?}"),
            "a busy machine pauses that long: raise interval or multiplier",
        );
        diagnostics.warning(span.unwrap_or(0..0), "[failure_detection]", mistake);
    }
    FailureDetection {
        local: local.unwrap_or_else(|| SocketAddr::new(replication_local.ip(), BFD_PORT)),
        interval,
        multiplier,
        interval_while_down: setting!("failure_detection", raw.interval_while_down => ranged(ms(100), ms(1)..=ms(10_000)), diagnostics),
        startup_hold: setting!("failure_detection", raw.startup_hold => ranged(hold_min.max(detection_time * 3), ms(0)..=ms(600_000)), diagnostics),
        preempt: raw.preempt.unwrap_or_default(),
        service_paths: flag("failure_detection.service_paths", raw.service_paths, true, diagnostics),
        edges_max: setting!("failure_detection", raw.edges_max => within(0, 0..=EDGES_MAX), diagnostics),
        plain_edges: flag("failure_detection.plain_edges", raw.plain_edges, false, diagnostics),
    }
}

/// The rate of updates over service paths: none, or one that leaves a session alive.
fn service_path_rate(raw: &RawReplication, diagnostics: &mut Diagnostics<'_>) -> u32 {
    let none = raw.service_path_bytes_per_second.as_ref().filter(|written| *written.get_ref() == 0);
    if none.is_some() {
        return 0;
    }
    setting!("replication", raw.service_path_bytes_per_second => within(SERVICE_PATH_BYTES_PER_S_DEFAULT, SERVICE_PATH_BYTES_PER_S), diagnostics)
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
