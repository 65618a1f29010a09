//! FTP through two nodes: what its client and its server see, with the firewall closed to everything that comes from outside.

use std::net::Ipv4Addr;
use std::string::{String, ToString};
use std::vec::Vec;

use flow::connection::flags;
use flow::wire::{build, ip_protocol, tcp_flags};
use flow::{Direction, DropReason, NodeId, PortId, Tuple};
use network_functions::chain::ChainBuilder;

use super::cluster::{
    CLIENT, Cluster, INSIDE, OUTSIDE, Options, Received, SERVER, SHARED_OUTSIDE, firewall, ftp, nat, rules, segment,
};
use super::operations::{reload, with_rules};
use crate::node::{Reconfiguration, Reevaluation};

const ACK: u8 = tcp_flags::ACK;
const SYN: u8 = tcp_flags::SYN;
const CONTROL: u16 = 40_000;

/// What the client's and the server's hosts send through, to whichever node is active.
pub(super) trait Hosts {
    fn host_sends(&mut self, port: PortId, tuple: &Tuple, segment: build::Tcp<'_>, payload: &[u8]);
    fn host_receives(&mut self, port: PortId) -> Option<Received>;
}

impl Hosts for Cluster {
    fn host_sends(&mut self, port: PortId, tuple: &Tuple, segment: build::Tcp<'_>, payload: &[u8]) {
        let envelope = |envelope: build::Envelope<'_>| envelope.tcp(tuple, segment, payload);
        if port == INSIDE { self.client_sends_frame(envelope) } else { self.server_sends_frame(envelope) }
    }

    fn host_receives(&mut self, port: PortId) -> Option<Received> {
        if port == INSIDE { self.client_receives() } else { self.server_receives() }
    }
}

/// One end of a TCP connection, as a host keeps it.
pub(super) struct End {
    port: PortId,
    /// Of the segments that it sends.
    pub(super) tuple: Tuple,
    pub(super) next: u32,
    /// What it acknowledges.
    pub(super) received: u32,
}

impl End {
    pub(super) fn sends(&mut self, cluster: &mut impl Hosts, text: &str) {
        cluster.host_sends(self.port, &self.tuple, segment(ACK, self.next, self.received), text.as_bytes());
        self.next = self.next.wrapping_add(text.len() as u32);
    }

    /// The next segment in order, as text; what it acknowledges is what this end has sent.
    pub(super) fn receives(&mut self, cluster: &mut impl Hosts) -> Option<String> {
        let segment = cluster.host_receives(self.port)?;
        let flow::wire::Transport::Tcp(tcp) = segment.headers.transport else { panic!("TCP only") };
        assert_eq!(segment.tuple, self.tuple.inverse());
        assert_eq!(tcp.sequence, self.received, "its bytes come in order");
        assert_eq!(tcp.acknowledgement, self.next, "what it sent is acknowledged");
        self.received = self.received.wrapping_add(tcp.payload_bytes);
        let payload = &segment.bytes[usize::from(segment.headers.payload_offset)..];
        Some(String::from_utf8_lossy(payload).into_owned())
    }
}

const fn other(port: PortId) -> PortId {
    PortId(1 - port.0)
}

/// A host connects; both ends, or `None` when the SYN does not arrive.
pub(super) fn connect(cluster: &mut impl Hosts, port: PortId, tuple: Tuple) -> Option<[End; 2]> {
    cluster.host_sends(port, &tuple, segment(SYN, 1000, 0), b"");
    let syn = cluster.host_receives(other(port))?;
    cluster.host_sends(other(port), &syn.tuple.inverse(), segment(SYN | ACK, 5000, 1001), b"");
    let answer = cluster.host_receives(port).expect("the SYN/ACK passes");
    assert_eq!(answer.tuple, tuple.inverse());
    cluster.host_sends(port, &tuple, segment(ACK, 1001, 5001), b"");
    cluster.host_receives(other(port)).expect("the ACK passes");
    let caller = End { port, tuple, next: 1001, received: 5001 };
    Some([caller, End { port: other(port), tuple: syn.tuple.inverse(), next: 5001, received: 1001 }])
}

/// Bytes pass both ways.
pub(super) fn exchange(cluster: &mut impl Hosts, [caller, called]: &mut [End; 2]) {
    for _ in 0..2 {
        caller.sends(cluster, "question");
        assert_eq!(called.receives(cluster).as_deref(), Some("question"));
        called.sends(cluster, "a longer answer");
        assert_eq!(caller.receives(cluster).as_deref(), Some("a longer answer"));
    }
}

pub(super) fn numbers(address: Ipv4Addr, port: u16) -> String {
    let ([a, b, c, d], [high, low]) = (address.octets(), port.to_be_bytes());
    std::format!("{a},{b},{c},{d},{high},{low}")
}

/// Address and port in a `PORT` command or a reply to `PASV`.
pub(super) fn announced(line: &str) -> (Ipv4Addr, u16) {
    let digits = |c: char| !c.is_ascii_digit();
    let numbers: Vec<u8> = line.trim_start_matches("227").split(digits).filter_map(|part| part.parse().ok()).collect();
    let [a, b, c, d, high, low] = numbers[..] else { panic!("six numbers in {line}") };
    (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
}

fn control_from_inside() -> Tuple {
    Tuple::v4(ip_protocol::TCP, (CLIENT, CONTROL), (SERVER, 21))
}

/// The client inside announces port 5000; returns where the server is to connect to.
fn active_mode(cluster: &mut impl Hosts, control: &mut [End; 2]) -> (Ipv4Addr, u16) {
    active_mode_at(cluster, control, 5000)
}

/// As [`active_mode`], at another port.
pub(super) fn active_mode_at(cluster: &mut impl Hosts, [client, server]: &mut [End; 2], port: u16) -> (Ipv4Addr, u16) {
    client.sends(cluster, &std::format!("PORT {}\r\n", numbers(CLIENT, port)));
    let received = server.receives(cluster).expect("the command passes");
    server.sends(cluster, "200 fine\r\n");
    assert_eq!(client.receives(cluster).as_deref(), Some("200 fine\r\n"));
    announced(&received)
}

pub(super) fn data_from_server((address, port): (Ipv4Addr, u16)) -> Tuple {
    Tuple::v4(ip_protocol::TCP, (SERVER, 20), (address, port))
}

#[test]
fn active_mode_works_for_a_client_behind_source_nat() {
    let mut cluster = Cluster::start(Options::default());
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).expect("the firewall lets it out");
    let target = active_mode(&mut cluster, &mut control);
    assert_eq!(target.0, SHARED_OUTSIDE);
    let mut data = connect(&mut cluster, OUTSIDE, data_from_server(target)).expect("it was announced");
    assert_eq!(data[1].tuple.source_addr().to_string(), "10.1.0.10:5000");
    exchange(&mut cluster, &mut data);
    exchange(&mut cluster, &mut control);

    let pipeline = cluster.node(0).pipeline();
    assert_eq!((pipeline.counters().related, pipeline.expectations().len()), (1, 0));
    let (slot, _) = pipeline.lookup(&data_from_server(target)).unwrap();
    let connection = pipeline.connection(slot).unwrap();
    assert!(connection.flags & flags::RELATED != 0);
    assert_eq!(pipeline.related_to(connection), Some(&control_from_inside()));
}

#[test]
fn what_was_not_announced_or_has_come_already_does_not_pass() {
    let mut cluster = Cluster::start(Options::default());
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).unwrap();
    let (address, port) = active_mode(&mut cluster, &mut control);
    assert!(connect(&mut cluster, OUTSIDE, data_from_server((address, port + 1))).is_none());
    connect(&mut cluster, OUTSIDE, data_from_server((address, port))).expect("it was announced");
    let another = Tuple { source_port: 1020, ..data_from_server((address, port)) };
    assert!(connect(&mut cluster, OUTSIDE, another).is_none(), "once only");
    assert_eq!(cluster.dropped(0, DropReason::FirewallDenied), 2);
}

#[test]
fn passive_mode_needs_no_help_from_inside_and_follows_the_control_connection() {
    let mut cluster = Cluster::start(Options::default());
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).unwrap();
    let [client, server] = &mut control;
    client.sends(&mut cluster, "PASV\r\n");
    server.receives(&mut cluster).unwrap();
    let line = std::format!("227 Entering Passive Mode ({}).\r\n", numbers(SERVER, 50_000));
    server.sends(&mut cluster, &line);
    assert_eq!(client.receives(&mut cluster), Some(line), "the server is known by its own address");
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, 40_001), (SERVER, 50_000));
    let mut data = connect(&mut cluster, INSIDE, tuple).unwrap();
    assert_eq!(data[1].tuple.destination_ip(), SHARED_OUTSIDE, "as the control connection is translated");
    exchange(&mut cluster, &mut data);
    assert_eq!(cluster.node(0).pipeline().counters().related, 1);
}

/// A server inside, forwarded to from the shared address, and its client outside.
fn forwarded() -> (Cluster, [End; 2]) {
    let mut cluster = Cluster::start(Options { is_forwarded: true, ..Options::default() });
    let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, CONTROL), (SHARED_OUTSIDE, 21));
    let control = connect(&mut cluster, OUTSIDE, tuple).expect("the firewall lets it in");
    assert_eq!(control[1].tuple.source_addr().to_string(), "10.1.0.10:2121");
    (cluster, control)
}

#[test]
fn passive_mode_works_for_a_server_that_is_forwarded_to() {
    let (mut cluster, mut control) = forwarded();
    let [client, server] = &mut control;
    client.sends(&mut cluster, "PASV\r\n");
    server.receives(&mut cluster).unwrap();
    server.sends(&mut cluster, &std::format!("227 Entering Passive Mode ({})\r\n", numbers(CLIENT, 50_000)));
    let target = announced(&client.receives(&mut cluster).unwrap());
    assert_eq!(target, (SHARED_OUTSIDE, 50_000));
    let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, 40_001), target);
    let mut data = connect(&mut cluster, OUTSIDE, tuple).expect("it was announced");
    assert_eq!(data[1].tuple.source_addr().to_string(), "10.1.0.10:50000");
    exchange(&mut cluster, &mut data);
    exchange(&mut cluster, &mut control);
}

#[test]
fn active_mode_of_a_server_that_is_forwarded_to_comes_from_the_address_that_the_client_knows() {
    let (mut cluster, mut control) = forwarded();
    let [client, server] = &mut control;
    client.sends(&mut cluster, "EPRT |1|198.51.100.10|5000|\r\n");
    assert_eq!(server.receives(&mut cluster).as_deref(), Some("EPRT |1|198.51.100.10|5000|\r\n"));
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, 20), (SERVER, 5000));
    let mut data = connect(&mut cluster, INSIDE, tuple).unwrap();
    assert_eq!(data[1].tuple.destination_addr().to_string(), "198.51.100.1:20");
    exchange(&mut cluster, &mut data);
}

#[test]
fn without_translation_announced_connections_pass_the_firewall() {
    let mut cluster = Cluster::start(Options { is_translated: false, ..Options::default() });
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).unwrap();
    let target = active_mode(&mut cluster, &mut control);
    assert_eq!(target, (CLIENT, 5000));
    let mut data = connect(&mut cluster, OUTSIDE, data_from_server(target)).expect("it was announced");
    exchange(&mut cluster, &mut data);
}

#[test]
fn a_connection_announced_just_before_the_node_dies_passes_the_other() {
    let mut cluster = Cluster::start(Options::default());
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).unwrap();
    let target = active_mode(&mut cluster, &mut control);
    assert_eq!(cluster.node(1).pipeline().expectations().len(), 1, "the standby expects it, too");

    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    let mut data = connect(&mut cluster, OUTSIDE, data_from_server(target)).expect("it was announced");
    assert_eq!(data[1].tuple.source_addr().to_string(), "10.1.0.10:5000");
    exchange(&mut cluster, &mut data);
    // The control connection goes on with shifted numbers, and announces again.
    exchange(&mut cluster, &mut control);
    let [client, server] = &mut control;
    client.sends(&mut cluster, "\r\n");
    server.receives(&mut cluster).unwrap();
    let next = active_mode(&mut cluster, &mut control);
    let mut data = connect(&mut cluster, OUTSIDE, Tuple { source_port: 1020, ..data_from_server(next) }).unwrap();
    exchange(&mut cluster, &mut data);
}

#[test]
fn a_command_that_was_lost_with_its_node_is_translated_alike_by_the_other() {
    let mut cluster = Cluster::start(Options::default());
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).unwrap();
    let [client, server] = &mut control;
    let command = std::format!("PORT {}\r\n", numbers(CLIENT, 5000));
    client.sends(&mut cluster, &command);
    let lost = cluster.host_receives(OUTSIDE).expect("the command is in flight").bytes;
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    client.next -= command.len() as u32;
    client.sends(&mut cluster, &command);
    let received = server.receives(&mut cluster).expect("the command passes again");
    assert!(lost.ends_with(received.as_bytes()), "{received}");
    server.sends(&mut cluster, "200 fine\r\n");
    assert_eq!(client.receives(&mut cluster).as_deref(), Some("200 fine\r\n"));
    let mut data = connect(&mut cluster, OUTSIDE, data_from_server(announced(&received))).expect("it was announced");
    exchange(&mut cluster, &mut data);
}

#[test]
fn the_backup_forgets_what_has_come_and_knows_what_it_belongs_to() {
    let mut cluster = Cluster::start(Options::default());
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).unwrap();
    let target = active_mode(&mut cluster, &mut control);
    connect(&mut cluster, OUTSIDE, data_from_server(target)).expect("it was announced");
    let pipeline = cluster.node(1).pipeline();
    assert!(pipeline.expectations().is_empty());
    let (slot, direction) = pipeline.lookup(&data_from_server(target)).expect("a copy");
    let connection = pipeline.connection(slot).unwrap();
    assert_eq!((direction, connection.owner), (Direction::Original, NodeId(0)));
    assert_eq!(pipeline.related_to(connection), Some(&control_from_inside()));
}

#[test]
fn a_node_that_comes_back_learns_what_is_expected() {
    let mut cluster = Cluster::start(Options::default());
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).unwrap();
    let target = active_mode(&mut cluster, &mut control);
    cluster.kill(1);
    cluster.restart(1);
    cluster.run_until("node 1 to know it", |cluster| cluster.node(1).pipeline().expectations().len() == 1);
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    connect(&mut cluster, OUTSIDE, data_from_server(target)).expect("it was announced");
}

#[test]
fn a_reload_keeps_what_is_expected_and_ends_no_connection_that_was_announced() {
    let mut cluster = Cluster::start(Options::default());
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).unwrap();
    let target = active_mode(&mut cluster, &mut control);
    let renewed = |cluster: &Cluster| {
        let layout = cluster.node(0).pipeline().chain().layout();
        let functions = ChainBuilder::new().push(firewall(rules(None))).push(nat(0, true)).push(ftp(0, 2));
        let chain = functions.build_within(layout).unwrap();
        Reconfiguration { chain, reevaluation: Reevaluation::Reevaluate, ..with_rules(cluster, 0, rules(None)) }
    };
    let new = renewed(&cluster);
    reload(&mut cluster, 0, new);
    let mut data = connect(&mut cluster, OUTSIDE, data_from_server(target)).expect("it was announced");
    exchange(&mut cluster, &mut data);
    let new = renewed(&cluster);
    reload(&mut cluster, 0, new);
    cluster.run_until("all connections to be re-evaluated", |cluster| !cluster.node(0).pipeline().is_reevaluating());
    exchange(&mut cluster, &mut data);
    exchange(&mut cluster, &mut control);
    assert_eq!(cluster.node(0).pipeline().counters().disallowed, 0);
}

#[test]
fn nothing_is_expected_of_a_control_connection_that_has_ended() {
    let mut cluster = Cluster::start(Options::default());
    let mut control = connect(&mut cluster, INSIDE, control_from_inside()).unwrap();
    let target = active_mode(&mut cluster, &mut control);
    let server = &control[1];
    let reset = segment(tcp_flags::RST | ACK, server.next, server.received);
    cluster.host_sends(OUTSIDE, &server.tuple, reset, b"");
    cluster.host_receives(INSIDE).expect("the reset passes");
    cluster.run_until("the connection to end", |cluster| cluster.connections(0) + cluster.connections(1) == 0);
    for id in [0, 1] {
        assert!(cluster.node(id).pipeline().expectations().is_empty(), "node {id}");
    }
    assert!(connect(&mut cluster, OUTSIDE, data_from_server(target)).is_none());
}
