//! FTP through nodes of several workers: control and data connections are often steered to different ones.

use std::vec::Vec;

use flow::wire::{build, ip_protocol, tcp_flags};
use flow::{DropReason, PortId, Steering, Tuple};

use super::cluster::{CLIENT, INSIDE, OUTSIDE, Options, Received, SERVER, SHARED_OUTSIDE, chain, segment};
use super::ftp::{End, Hosts, active_mode_at, announced, connect, data_from_server, exchange, numbers};
use super::site::Site;

/// Ports that control connections come from: enough for every worker to have some, with data connections on every other.
const CONTROLS: core::ops::Range<u16> = 40_000..40_016;

impl Hosts for Site {
    fn host_sends(&mut self, port: PortId, tuple: &Tuple, segment: build::Tcp<'_>, payload: &[u8]) {
        let envelope = |envelope: build::Envelope<'_>| envelope.tcp(tuple, segment, payload);
        if port == INSIDE { self.client_sends_frame(envelope) } else { self.server_sends_frame(envelope) }
    }

    fn host_receives(&mut self, port: PortId) -> Option<Received> {
        if port == INSIDE { self.client_receives() } else { self.server_receives() }
    }
}

fn site(workers: u8, is_forwarded: bool) -> Site {
    Site::start_with([workers; 2], Options { is_forwarded, ..Options::default() }, chain).ready()
}

/// A control connection, and its tuple as it comes in.
fn control_from_inside(site: &mut Site, port: u16) -> (Tuple, [End; 2]) {
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 21));
    (tuple, connect(site, INSIDE, tuple).expect("the firewall lets it out"))
}

/// The client outside asks the server inside, which listens on `port`; returns where the client is to connect to.
fn passive_mode(site: &mut Site, [client, server]: &mut [End; 2], port: u16) -> Tuple {
    client.sends(site, "PASV\r\n");
    assert_eq!(server.receives(site).as_deref(), Some("PASV\r\n"));
    server.sends(site, &std::format!("227 Entering Passive Mode ({})\r\n", numbers(CLIENT, port)));
    let target = announced(&client.receives(site).expect("the answer passes"));
    assert_eq!(target, (SHARED_OUTSIDE, port));
    Tuple::v4(ip_protocol::TCP, (SERVER, port - 10_000), target)
}

/// The control connection goes on, with numbers that may be shifted.
fn go_on(site: &mut Site, [client, server]: &mut [End; 2]) {
    client.sends(site, "NOOP\r\n");
    assert_eq!(server.receives(site).as_deref(), Some("NOOP\r\n"));
    server.sends(site, "200 fine\r\n");
    assert_eq!(client.receives(site).as_deref(), Some("200 fine\r\n"));
}

fn expected(site: &Site, id: u8) -> Vec<usize> {
    site.nodes[usize::from(id)].iter().map(|node| node.pipeline().expectations().len()).collect()
}

fn related(site: &Site, id: u8) -> u64 {
    site.nodes[usize::from(id)].iter().map(|node| node.pipeline().counters().related).sum()
}

/// Which of the pairs of connections lie with one worker, and which with two: there must be both, or nothing is shown.
fn assert_both_cases(workers: u8, pairs: &[(Tuple, Tuple)]) {
    let steering = Steering::new(workers).unwrap();
    let is_apart = |(a, b): &&(Tuple, Tuple)| steering.worker_of_tuple(a) != steering.worker_of_tuple(b);
    let apart = pairs.iter().filter(is_apart).count();
    assert!(apart > 0 && apart < pairs.len(), "{apart} of {}", pairs.len());
}

#[test]
fn active_mode_works_whichever_worker_the_data_connection_comes_to() {
    for workers in [2, 3] {
        let mut site = site(workers, false);
        let mut pairs = Vec::new();
        for port in CONTROLS {
            let (tuple, mut control) = control_from_inside(&mut site, port);
            let data_tuple = data_from_server(active_mode_at(&mut site, &mut control, port - 30_000));
            assert_eq!(expected(&site, 0), std::vec![1; workers.into()], "every worker expects it");
            let mut data = connect(&mut site, OUTSIDE, data_tuple).expect("it was announced");
            exchange(&mut site, &mut data);
            go_on(&mut site, &mut control);
            for id in [0, 1] {
                assert_eq!(expected(&site, id), std::vec![0; workers.into()], "it has come");
            }
            let another = Tuple { source_port: 1020, ..data_tuple };
            assert!(connect(&mut site, OUTSIDE, another).is_none(), "once only");
            pairs.push((tuple, data_tuple));
        }
        assert_both_cases(workers, &pairs);
        assert_eq!(related(&site, 0), CONTROLS.len() as u64);
        let shares = site.connections(0);
        assert_eq!(site.connections(1), shares);
        assert_eq!(shares.iter().sum::<u32>(), 2 * CONTROLS.len() as u32);
    }
}

#[test]
fn what_was_announced_before_a_take_over_comes_to_any_worker_of_the_other_node() {
    for workers in [2, 3] {
        let mut site = site(workers, false);
        let mut controls: Vec<_> = CONTROLS.map(|port| control_from_inside(&mut site, port)).collect();
        let announce = |(port, (_, control)): (u16, &mut (Tuple, [End; 2]))| active_mode_at(&mut site, control, port);
        let targets: Vec<_> = (5000..).zip(&mut controls).map(announce).collect();
        assert_eq!(expected(&site, 1), std::vec![CONTROLS.len(); workers.into()]);

        site.kill(0);
        site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
        let mut pairs = Vec::new();
        for ((tuple, control), target) in controls.iter_mut().zip(targets) {
            let data_tuple = data_from_server(target);
            let mut data = connect(&mut site, OUTSIDE, data_tuple).expect("it was announced");
            exchange(&mut site, &mut data);
            go_on(&mut site, control);
            pairs.push((*tuple, data_tuple));
        }
        assert_both_cases(workers, &pairs);
        assert_eq!(expected(&site, 1), std::vec![0; workers.into()]);
    }
}

#[test]
fn passive_mode_of_a_server_that_is_forwarded_to_works_before_and_after_a_take_over() {
    let mut site = site(2, true);
    let mut pairs = Vec::new();
    let mut controls: Vec<_> = CONTROLS
        .map(|port| {
            let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, port), (SHARED_OUTSIDE, 21));
            (tuple, connect(&mut site, OUTSIDE, tuple).expect("the firewall lets it in"))
        })
        .collect();
    for (first_port, is_taken_over) in [(50_000, false), (51_000, true)] {
        let announced: Vec<_> = (first_port..)
            .zip(&mut controls)
            .map(|(port, (_, control))| passive_mode(&mut site, control, port))
            .collect();
        if is_taken_over {
            site.kill(0);
            site.run_until("node 1 to take over", |site| site.lead(1).holds_addresses());
        }
        for ((tuple, control), data_tuple) in controls.iter_mut().zip(announced) {
            let mut data = connect(&mut site, OUTSIDE, data_tuple).expect("it was announced");
            assert_eq!(data[1].tuple.source_port, data_tuple.destination_port, "the server's own port");
            exchange(&mut site, &mut data);
            go_on(&mut site, control);
            pairs.push((*tuple, data_tuple));
        }
    }
    assert_both_cases(2, &pairs);
    assert_eq!(site.dropped(1, DropReason::FirewallDenied), 0);
}

#[test]
fn passive_mode_from_inside_is_translated_to_a_port_whose_replies_come_back() {
    let mut site = site(3, false);
    let mut pairs = Vec::new();
    for port in CONTROLS {
        let (tuple, mut control) = control_from_inside(&mut site, port);
        let [client, server] = &mut control;
        client.sends(&mut site, "EPSV\r\n");
        server.receives(&mut site).expect("the question passes");
        server.sends(&mut site, &std::format!("229 Extended Passive Mode (|||{}|)\r\n", port + 10_000));
        client.receives(&mut site).expect("the answer passes");
        let data_tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port + 1000), (SERVER, port + 10_000));
        let handed_over = site.handed_over(0);
        let mut data = connect(&mut site, INSIDE, data_tuple).expect("it was announced");
        exchange(&mut site, &mut data);
        assert_eq!(site.handed_over(0), handed_over, "no packet of it came to the wrong worker");
        pairs.push((tuple, data_tuple));
    }
    assert_both_cases(3, &pairs);
    assert_eq!(related(&site, 0), CONTROLS.len() as u64);
}

#[test]
fn workers_without_each_others_messages_announce_different_ports() {
    let mut site = site(3, false);
    let mut controls: Vec<_> = CONTROLS.map(|port| control_from_inside(&mut site, port)).collect();
    site.are_messages_held = true;
    let announce = |(_, control): &mut (Tuple, [End; 2])| active_mode_at(&mut site, control, 5000);
    let mut targets: Vec<_> = controls.iter_mut().map(announce).collect();
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets.len(), CONTROLS.len());
    assert!(expected(&site, 0).iter().all(|own| (1..CONTROLS.len()).contains(own)));
}

#[test]
fn no_worker_expects_anything_of_a_control_connection_that_has_ended() {
    let mut site = site(3, false);
    let (_, mut control) = control_from_inside(&mut site, CONTROLS.start);
    let target = active_mode_at(&mut site, &mut control, 5000);
    let [client, server] = &control;
    let reset = segment(tcp_flags::RST | tcp_flags::ACK, server.next, server.received);
    site.host_sends(OUTSIDE, &server.tuple, reset, b"");
    assert_eq!(site.host_receives(INSIDE).expect("the reset passes").tuple, client.tuple.inverse());
    site.run_until("the connection to end", |site| site.connections(0).iter().sum::<u32>() == 0);
    for id in [0, 1] {
        assert_eq!(expected(&site, id), [0; 3], "node {id}");
    }
    assert!(connect(&mut site, OUTSIDE, data_from_server(target)).is_none());
}
