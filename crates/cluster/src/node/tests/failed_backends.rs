//! A backend fails where its service ends connections: both ends are reset, by the owner and by the node that survives it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use flow::wire::{TcpSegment, Transport, ip_protocol, tcp_flags};
use flow::{DropReason, Tuple};
use network_functions::load_balancer::{Affinity, BackendConfig, Mode, OnFailure, Scheduler, ServiceConfig, Services};
use network_functions::port_range::PortRange;

use super::ACK;
use super::cluster::{CLIENT, Cluster, Options, Received, SERVER, segment, syn, syn_ack};

const RST: u8 = tcp_flags::RST;
const PORT: u16 = 40_000;

/// A service at the server's address, with two backends at other ports of it. Each node has its own view of them.
fn services() -> &'static [Arc<Services>; 2] {
    let backend = |port| BackendConfig { address: SERVER.into(), port: Some(port), weight: 1 };
    let config = ServiceConfig {
        name: "web".into(),
        address: SERVER.into(),
        protocol: ip_protocol::TCP,
        ports: std::vec![PortRange::single(80)],
        scheduler: Scheduler::default(),
        affinity: Affinity::default(),
        mode: Mode::default(),
        on_failure: OnFailure::End,
        slow_start: None,
        quic: None,
        backends: std::vec![backend(8080), backend(8081)],
    };
    let services = || Arc::new(Services::new(core::slice::from_ref(&config), &Services::default()).unwrap());
    Box::leak(Box::new([services(), services()]))
}

struct Scenario {
    cluster: Cluster,
    services: &'static [Arc<Services>; 2],
    /// The backend of the client's connection, and its port.
    backend: (usize, u16),
}

impl Scenario {
    /// A client has a connection on which both sides have sent something.
    fn start() -> Self {
        let services = services();
        let options = Options { services: Some(services), is_translated: false, ..Options::default() };
        let mut cluster = Cluster::start(options);
        cluster.client_sends(PORT, syn(), b"");
        let port = cluster.server_receives().expect("the SYN passes").tuple.destination_port;
        let mut scenario = Self { cluster, services, backend: (usize::from(port - 8080), port) };
        scenario.backend_sends(syn_ack(), b"");
        scenario.cluster.client_receives().expect("the SYN/ACK passes");
        scenario.exchange(1001, 5001);
        scenario.cluster.run(Duration::from_millis(20));
        assert_eq!((scenario.cluster.connections(0), scenario.cluster.connections(1)), (1, 1));
        scenario
    }

    fn exchange(&mut self, sequence: u32, acknowledgement: u32) {
        self.cluster.client_sends(PORT, segment(ACK, sequence, acknowledgement), b"question");
        self.cluster.server_receives().expect("the question passes");
        self.backend_sends(segment(ACK, acknowledgement, sequence + 8), b"answer");
        self.cluster.client_receives().expect("the answer passes");
    }

    fn backend_sends(&mut self, segment: flow::wire::build::Tcp<'_>, payload: &[u8]) {
        let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, self.backend.1), (CLIENT, PORT));
        self.cluster.server_sends_frame(|envelope| envelope.tcp(&tuple, segment, payload));
    }

    /// The checks of a node find the backend down.
    fn fails_at(&mut self, node: u8) {
        assert!(self.services[usize::from(node)].handle_health(0, self.backend.0, false));
        self.cluster.node_mut(node).handle_input_change();
        self.cluster.run(Duration::from_millis(20));
    }

    fn take_over(&mut self) {
        self.cluster.kill(0);
        self.cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
    }

    /// What client and backend have received, as (flags, sequence number, acknowledgement).
    fn received(&mut self) -> (Vec<[u32; 3]>, Vec<[u32; 3]>) {
        let numbers = |received: Received| {
            let Transport::Tcp(TcpSegment { flags, sequence, acknowledgement, .. }) = received.headers.transport else {
                panic!("TCP only")
            };
            [flags.into(), sequence, acknowledgement]
        };
        let at_client = core::iter::from_fn(|| self.cluster.client_receives()).map(numbers).collect();
        (at_client, core::iter::from_fn(|| self.cluster.server_receives()).map(numbers).collect())
    }

    /// A segment of the client is answered by a reset that it accepts.
    fn assert_client_is_reset(&mut self, sequence: u32, acknowledgement: u32) {
        self.cluster.client_sends(PORT, segment(ACK, sequence, acknowledgement), b"more");
        self.cluster.run(Duration::from_millis(5));
        assert_eq!(self.received(), (std::vec![[RST.into(), acknowledgement, 0]], Vec::new()));
    }

    /// The same client connects anew, to the other backend.
    fn assert_reconnects(&mut self) {
        self.cluster.client_sends(PORT, syn(), b"");
        let other = self.cluster.server_receives().expect("the SYN passes").tuple.destination_port;
        assert_ne!(other, self.backend.1, "the failed backend has no new connections");
        self.backend.1 = other;
        self.backend_sends(syn_ack(), b"");
        self.cluster.client_receives().expect("the SYN/ACK passes");
        self.exchange(1001, 5001);
    }
}

#[test]
fn both_ends_of_a_failed_backends_connection_are_reset_at_once() {
    let mut scenario = Scenario::start();
    scenario.fails_at(0);
    let flags = u32::from(RST | ACK);
    assert_eq!(scenario.received(), (std::vec![[flags, 5007, 1009]], std::vec![[flags, 1009, 5007]]));
    assert_eq!((scenario.cluster.connections(0), scenario.cluster.connections(1)), (0, 0));
    assert_eq!(scenario.cluster.node(0).pipeline().reset_counters().sent, 2);
}

#[test]
fn segments_of_a_failed_backends_connection_are_answered_by_resets() {
    let mut scenario = Scenario::start();
    scenario.fails_at(0);
    scenario.received();
    scenario.assert_client_is_reset(1009, 5007);
    assert_eq!(scenario.cluster.dropped(0, DropReason::BackendFailed), 1);
    // The backend lives, and only its check failed.
    scenario.backend_sends(segment(ACK, 5007, 1009), b"late");
    scenario.cluster.run(Duration::from_millis(5));
    assert_eq!(scenario.received(), (Vec::new(), std::vec![[RST.into(), 1009, 0]]));
    // A reset is not answered, and a SYN begins a connection.
    scenario.cluster.client_sends(PORT, segment(RST | ACK, 1009, 5007), b"");
    scenario.cluster.run(Duration::from_millis(5));
    assert_eq!(scenario.received(), (Vec::new(), Vec::new()));
    scenario.assert_reconnects();
    assert_eq!(scenario.cluster.node(0).pipeline().reset_counters().answered, 2);
}

#[test]
fn the_surviving_node_resets_what_its_peer_ended() {
    let mut scenario = Scenario::start();
    scenario.fails_at(0);
    scenario.received();
    scenario.take_over();
    // This node has not found the backend down by itself.
    scenario.assert_client_is_reset(1009, 5007);
}

#[test]
fn after_a_take_over_the_segments_of_a_failed_backends_client_are_answered_by_resets() {
    let mut scenario = Scenario::start();
    scenario.take_over();
    scenario.fails_at(1);
    assert_eq!(scenario.received(), (Vec::new(), Vec::new()), "the numbers are not known");
    assert_eq!(scenario.cluster.connections(1), 0);
    scenario.assert_client_is_reset(1_000_009, 2_000_007);
    scenario.assert_reconnects();
}

#[test]
fn a_backend_that_failed_before_the_take_over_has_its_connections_reset_after_it() {
    let mut scenario = Scenario::start();
    scenario.fails_at(1);
    assert_eq!(scenario.cluster.connections(1), 1, "a standby node ends no connection");
    scenario.take_over();
    scenario.cluster.run(Duration::from_millis(20));
    assert_eq!(scenario.cluster.connections(1), 0);
    scenario.assert_client_is_reset(1009, 5007);
}

#[test]
fn segments_of_unknown_connections_are_not_answered() {
    let mut scenario = Scenario::start();
    scenario.fails_at(0);
    scenario.received();
    scenario.cluster.client_sends(PORT + 1, segment(ACK, 1, 2), b"stranger");
    scenario.cluster.run(Duration::from_millis(5));
    assert_eq!(scenario.received(), (Vec::new(), Vec::new()));
    assert_eq!(scenario.cluster.dropped(0, DropReason::NoConnection), 1);
}
