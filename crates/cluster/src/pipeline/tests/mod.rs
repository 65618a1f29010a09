//! The pipeline between two links, with nothing but vectors around it.

mod errors;
mod fragments;
mod plans;
mod queries;
mod recovery;
mod rehearsals;
mod replicas;
mod sources;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use std::vec::Vec;

use flow::conntrack::TrackerConfig;
use flow::wire::build::{self, Envelope};
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{Packet, Parsed, ip_protocol, parse, tcp_flags};
use flow::{Disposition, DropReason, Frame, OwnedFrame, PacketBatch, PortId, Tuple};
use network_functions::chain::ChainBuilder;
use network_functions::nat::{Nat, NatConfig, SourceAction, SourceRule};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;

use super::*;
use crate::forwarding::Admission;

const INSIDE: PortId = PortId(0);
const OUTSIDE: PortId = PortId(1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 10);
const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0x10);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x10);
const SHARED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const SHARED6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);

/// Everything passes from one link to the other; another node, which is gone, has replicated some connections.
#[derive(Default)]
struct TwoLinks {
    entries: Vec<(Tuple, FilterMatch)>,
    /// Tuples that were looked for.
    looked_for: core::cell::Cell<u64>,
    /// What the pipeline sent of its own making.
    posted: Vec<Vec<u8>>,
}

impl Edge for TwoLinks {
    fn handle_arp(&mut self, _: Instant, _: &mut Frame<'_>, _: u16) -> Disposition {
        Disposition::Consumed
    }

    fn admit(&mut self, _: Instant, _: &Packet<'_, '_>) -> Admission {
        Admission::Transit
    }

    fn handle_local(&mut self, _: Instant, _: &mut Packet<'_, '_>) -> Disposition {
        Disposition::Drop(DropReason::LocalUnhandled)
    }

    fn recovery_lookup(&self, original: &Tuple) -> Option<FilterMatch> {
        self.looked_for.set(self.looked_for.get() + 1);
        self.entries.iter().find_map(|(tuple, filter_match)| (tuple == original).then_some(*filter_match))
    }

    fn forward(&mut self, _: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        Disposition::Transmit(PortId(1 - packet.frame.ingress.0))
    }

    fn post(&mut self, _: Instant, packet: &mut Packet<'_, '_>) {
        self.posted.push(packet.frame.bytes().to_vec());
    }
}

struct Bench {
    now: Instant,
    pipeline: Pipeline,
    links: TwoLinks,
}

impl Bench {
    /// Hosts inside are seen outside under the shared addresses, or all under their own.
    fn new(translates: bool, connections_max: u32, limits: Limits) -> Self {
        let mut chain = ChainBuilder::new();
        if translates {
            chain = chain.push(nat());
        }
        let tracker = Tracker::new(TrackerConfig::default());
        let pipeline = Pipeline::new(NodeId(0), connections_max, HashKey([1, 2]), tracker, chain.build().unwrap());
        Self::of(pipeline.with_limits(limits))
    }

    fn of(pipeline: Pipeline) -> Self {
        Self { now: Instant::from_millis(1000), pipeline, links: TwoLinks::default() }
    }

    /// Frames come in by a port, in batches; what is sent of them and of what they set free, in the order of sending.
    fn feed(&mut self, port: PortId, frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut frames: Vec<OwnedFrame> = frames
            .into_iter()
            .map(|mut bytes| {
                let length_bytes = bytes.len();
                OwnedFrame::copy_of(&Frame::new(&mut bytes, 0, length_bytes, port).unwrap())
            })
            .collect();
        let mut sent = Vec::new();
        while !frames.is_empty() {
            for part in frames.chunks_mut(BATCH_FRAMES_MAX) {
                let mut batch: PacketBatch<'_> = part.iter_mut().map(OwnedFrame::frame).collect();
                self.pipeline.handle_packets(self.now, &mut batch, &mut self.links);
                let passed = batch.iter().filter(|frame| matches!(frame.disposition, Disposition::Transmit(_)));
                sent.extend(passed.map(|frame| frame.bytes().to_vec()));
            }
            self.pipeline.take_changes().clear();
            frames = self.pipeline.take_released_fragments().unwrap_or_default();
        }
        sent
    }

    fn feed_one(&mut self, port: PortId, frame: Vec<u8>) -> Option<Vec<u8>> {
        self.feed(port, std::vec![frame]).pop()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.pipeline.counters().drops[reason as usize]
    }

    /// A client opens a TCP connection to the server, and both have said something.
    fn connect(&mut self, client: Ipv4Addr, port: u16) {
        let tuple = Tuple::v4(ip_protocol::TCP, (client, port), (SERVER, 80));
        let segment =
            |flags, sequence, acknowledgement| build::Tcp { flags, sequence, acknowledgement, ..build::Tcp::default() };
        let (syn, ack) = (tcp_flags::SYN, tcp_flags::ACK);
        self.feed_one(INSIDE, build::tcp(&tuple, segment(syn, 1000, 0), b"")).expect("the SYN passes");
        let answer = build::tcp(&tuple.inverse(), segment(syn | ack, 5000, 1001), b"");
        self.feed_one(OUTSIDE, answer).expect("the SYN/ACK passes");
        self.feed_one(INSIDE, build::tcp(&tuple, segment(ack, 1001, 5001), b"")).expect("the ACK passes");
        self.feed_one(INSIDE, build::tcp(&tuple, segment(ack, 1001, 5001), b"hello")).expect("data passes");
    }
}

#[test]
fn a_connection_knows_the_ports_that_its_packets_leave_by() {
    let mut bench = Bench::new(true, 16, Limits::default());
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (SERVER, 53));
    let seen = headers(&bench.feed_one(INSIDE, build::udp(&out, b"question")).unwrap()).tuple;
    let egress = |bench: &Bench, tuple| {
        let (slot, _) = bench.pipeline.lookup(tuple).unwrap();
        bench.pipeline.connection(slot).unwrap().egress
    };
    let by = |port: PortId| port.0 + 1;
    assert_eq!(egress(&bench, &out), [by(OUTSIDE), 0]);
    bench.feed_one(OUTSIDE, build::udp(&seen.inverse(), b"answer")).unwrap();
    assert_eq!(egress(&bench, &out), [by(OUTSIDE), by(INSIDE)]);
}

/// A batch is looked up before its first packet is handled, which may end the connection of the others.
#[test]
fn packets_behind_the_one_that_ends_their_connection_are_of_no_connection() {
    for translates in [false, true] {
        let mut bench = Bench::new(translates, 16, Limits::default());
        let out = Tuple::v4(ip_protocol::TCP, (CLIENT, 4000), (SERVER, 80));
        let syn = build::Tcp { flags: tcp_flags::SYN, sequence: 1000, ..build::Tcp::default() };
        let seen = headers(&bench.feed_one(INSIDE, build::tcp(&out, syn, b"")).unwrap()).tuple;
        let flags = tcp_flags::RST | tcp_flags::ACK;
        let refusal = build::Tcp { flags, acknowledgement: 1001, ..build::Tcp::default() };
        let refusals = std::vec![build::tcp(&seen.inverse(), refusal, b""); 8];
        assert_eq!(bench.feed(OUTSIDE, refusals).len(), 1, "translates: {translates}");
        assert_eq!(bench.dropped(DropReason::NoConnection), 7, "translates: {translates}");
        assert!(bench.pipeline.lookup(&out).is_none());
    }
}

fn nat() -> Nat {
    let inside = || Conditions { ingress: std::vec![INSIDE], ..Conditions::default() };
    let to = |address: std::net::IpAddr| SourceRule {
        conditions: Conditions {
            family: Some(if address.is_ipv4() { flow::IpFamily::V4 } else { flow::IpFamily::V6 }),
            ..inside()
        },
        action: SourceAction::Translate(std::vec![address]),
    };
    Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: std::vec![to(SHARED.into()), to(SHARED6.into())],
        ports: PortRange::new(1024, 65_535).unwrap(),
        node: NodeId(0),
        nodes: 1.try_into().unwrap(),
        key: HashKey([7, 8]),
    })
    .unwrap()
}

/// The fragments of a packet that was built whole, each of at most `piece_bytes` of what is cut.
fn fragments_of(whole: &[u8], identification: u32, piece_bytes: usize) -> Vec<Vec<u8>> {
    let headers = headers(whole);
    let transport = &whole[usize::from(headers.l4_offset)..headers.l3_end()];
    let pieces = transport.chunks(piece_bytes & !7);
    let count = pieces.len();
    let of_piece = |(index, piece): (usize, &[u8])| {
        let offset_bytes = (index * (piece_bytes & !7)) as u32;
        let fragment = Some(FragmentHeader { offset_bytes, more: index + 1 < count, identification });
        Envelope { fragment, ..Envelope::default() }.raw(&headers.tuple, piece)
    };
    pieces.enumerate().map(of_piece).collect()
}

/// The headers of a frame, whose checksums are right.
fn headers(bytes: &[u8]) -> flow::wire::Headers {
    let mut copy = bytes.to_vec();
    let length_bytes = copy.len();
    let frame = Frame::new(&mut copy, 0, length_bytes, INSIDE).unwrap();
    match parse(&frame) {
        Ok(Parsed::Ip(headers)) => headers,
        other => panic!("not a sound IP packet: {other:?}"),
    }
}
