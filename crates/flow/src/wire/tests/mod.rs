//! Received frames, read and rewritten. Here: shared helpers.

mod damage;
mod errors;
mod neighbours;
mod reading;
mod rewriting;
mod sctp;

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::build::{self, Echo, Envelope, IcmpHeader, Tcp};
use super::{Headers, Packet, Parsed, Transport, icmp, icmpv6, ip_protocol, parse};
use crate::{Checksum, DropReason, Frame, PortId, QUERY_REPLY, Tuple};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);

fn v6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

fn tcp4() -> Tuple {
    Tuple::v4(ip_protocol::TCP, (CLIENT, 4000), (SERVER, 80))
}

fn udp4() -> Tuple {
    Tuple { protocol: ip_protocol::UDP, ..tcp4() }
}

fn tcp6() -> Tuple {
    Tuple::v6(ip_protocol::TCP, (v6(2), 4000), (v6(1), 80))
}

fn udp6() -> Tuple {
    Tuple { protocol: ip_protocol::UDP, ..tcp6() }
}

fn read_with(bytes: &[u8], checksum: Checksum) -> Result<Parsed, DropReason> {
    let mut buffer = bytes.to_vec();
    let mut frame = Frame::new(&mut buffer, 0, bytes.len(), PortId(0)).expect("the frame is its buffer");
    frame.checksum = checksum;
    parse(&frame)
}

fn read(bytes: &[u8]) -> Result<Parsed, DropReason> {
    read_with(bytes, Checksum::Unverified)
}

#[track_caller]
fn headers(bytes: &[u8]) -> Headers {
    match read(bytes) {
        Ok(Parsed::Ip(headers)) => headers,
        other => panic!("{other:?} of {bytes:02x?}"),
    }
}

/// Applies `change` to the packet in `bytes` and returns the resulting headers.
#[track_caller]
fn change(bytes: &mut [u8], checksum: Checksum, change: impl FnOnce(&mut Packet<'_, '_>)) -> Headers {
    let Ok(Parsed::Ip(mut headers)) = read_with(bytes, checksum) else { panic!("not whole: {bytes:02x?}") };
    let length = bytes.len();
    let mut frame = Frame::new(bytes, 0, length, PortId(0)).expect("the frame is its buffer");
    frame.checksum = checksum;
    change(&mut Packet { frame: &mut frame, headers: &mut headers });
    headers
}

/// A packet of a kind that has a tuple: what to build, not yet the bytes.
#[derive(Clone, Debug)]
struct Sample {
    tuple: Tuple,
    is_reply: bool,
    flags: u8,
    has_options: bool,
    vlans: Vec<u16>,
    payload: Vec<u8>,
}

impl Sample {
    fn envelope(&self) -> Envelope<'_> {
        Envelope { vlans: &self.vlans, ..Envelope::default() }
    }

    fn build(&self) -> Vec<u8> {
        let tcp = Tcp { flags: self.flags, sequence: 7, acknowledgement: 9, ..Tcp::default() };
        let with_options = Tcp {
            maximum_segment_bytes: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some((1, 2)),
            ..tcp
        };
        match self.tuple.protocol {
            ip_protocol::TCP if self.has_options => self.envelope().tcp(&self.tuple, with_options, &self.payload),
            ip_protocol::TCP => self.envelope().tcp(&self.tuple, tcp, &self.payload),
            ip_protocol::UDP => self.envelope().udp(&self.tuple, &self.payload),
            ip_protocol::ICMP | ip_protocol::ICMPV6 => {
                self.envelope().echo(&self.tuple, Echo { is_reply: self.is_reply, sequence: 3 }, &self.payload)
            }
            _ => self.envelope().raw(&self.tuple, &self.payload),
        }
    }
}

fn any_address(is_v4: bool) -> BoxedStrategy<IpAddr> {
    if is_v4 {
        any::<[u8; 3]>().prop_map(|[b, c, d]| IpAddr::from([10, b, c, d])).boxed()
    } else {
        any::<[u8; 8]>()
            .prop_map(|low| {
                let mut address = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                address[8..].copy_from_slice(&low);
                IpAddr::from(address)
            })
            .boxed()
    }
}

/// Tuples of one protocol and family, so that one can be rewritten to the other.
fn two_tuples() -> impl Strategy<Value = (Tuple, Tuple)> {
    (any::<bool>(), prop_oneof![Just(6u8), Just(17), Just(1), Just(47)])
        .prop_flat_map(|(is_v4, protocol)| (any_tuple(is_v4, protocol), any_tuple(is_v4, protocol)))
}

fn any_tuple(is_v4: bool, protocol: u8) -> impl Strategy<Value = Tuple> {
    (any_address(is_v4), any_address(is_v4), any::<u16>(), any::<u16>()).prop_map(
        move |(from, to, a, b)| match protocol {
            ip_protocol::ICMP => Tuple::echo(from, to, a),
            ip_protocol::TCP | ip_protocol::UDP => Tuple::new(protocol, (from, a).into(), (to, b).into()),
            other => Tuple::new(other, (from, 0).into(), (to, 0).into()),
        },
    )
}

prop_compose! {
    fn sample_and_other_tuple()(
        (tuple, other) in two_tuples(), is_reply: bool, flags: u8, has_options: bool,
        vlans in prop::collection::vec(0u16..4096, 0..=2), payload in prop::collection::vec(any::<u8>(), 0..90),
    ) -> (Sample, Tuple) {
        let as_sent = |tuple: Tuple| match tuple.discriminator {
            0 => tuple,
            request if is_reply => Tuple { discriminator: request | QUERY_REPLY, ..tuple },
            _ => tuple,
        };
        (Sample { tuple: as_sent(tuple), is_reply, flags, has_options, vlans, payload }, as_sent(other))
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    sample_and_other_tuple().prop_map(|(sample, _)| sample)
}

/// An error of either family about the packet in `frame` (untagged), sent by an intermediate router.
fn error_about(frame: &[u8], version: u8) -> Vec<u8> {
    let (source, error) = if version == 4 {
        (IpAddr::V4(ROUTER), IcmpHeader { kind: icmp::kind::DESTINATION_UNREACHABLE, code: 4, parameter: 1400 })
    } else {
        (IpAddr::V6(v6(0xfe)), IcmpHeader { kind: icmpv6::kind::PACKET_TOO_BIG, code: 0, parameter: 1400 })
    };
    build::icmp_error(source, error, &frame[14..]).expect("the frame holds a packet of this family")
}

fn one_of_each() -> Vec<Vec<u8>> {
    let echo4 = Tuple::echo(CLIENT.into(), SERVER.into(), 77);
    let echo6 = Tuple::echo(v6(2).into(), v6(1).into(), 77);
    let syn = Tcp {
        flags: super::tcp_flags::SYN,
        maximum_segment_bytes: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        ..Tcp::default()
    };
    let mut frames = vec![
        build::tcp(&tcp4(), syn, b""),
        build::tcp(&tcp6(), Tcp::default(), b"hello"),
        build::udp(&udp4(), b"hello"),
        build::udp(&udp6(), b"hello"),
        build::echo(&echo4, Echo::default(), b"hello"),
        build::echo(&echo6, Echo::default(), b"hello"),
        Envelope { vlans: &[5, 6], ..Envelope::default() }.udp(&udp4(), b"tagged"),
        build::arp_request(Envelope::default().source, CLIENT, SERVER),
        build::neighbour_solicitation(Envelope::default().source, v6(2), v6(1)),
        build::unsolicited_neighbour_advertisement(Envelope::default().source, v6(1), true),
    ];
    frames.push(error_about(&frames[0], 4));
    frames.push(error_about(&frames[1], 6));
    frames
}
