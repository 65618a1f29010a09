//! ICMP errors that meet the gateway, about packets of either direction.

use std::net::IpAddr;

use flow::wire::{Transport, icmp, icmpv6};
use network_functions::address::tuple_bytes;

use super::*;

const INSIDE_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 254);
const INSIDE_ROUTER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0xfe);
const OUTSIDE_ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);
const OUTSIDE_ROUTER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0xfe);

fn tuple(is_ipv6: bool) -> Tuple {
    if is_ipv6 {
        Tuple::v6(ip_protocol::UDP, (CLIENT6, 4000), (SERVER6, 53))
    } else {
        Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (SERVER, 53))
    }
}

/// An error: a packet is too big for a link of 1400 bytes.
fn too_big(router: IpAddr, about: &[u8]) -> Vec<u8> {
    let header = if router.is_ipv4() {
        build::IcmpHeader { kind: icmp::kind::DESTINATION_UNREACHABLE, code: 4, parameter: 1400 }
    } else {
        build::IcmpHeader { kind: icmpv6::kind::PACKET_TOO_BIG, code: 0, parameter: 1400 }
    };
    build::icmp_error(router, header, &about[14..]).unwrap()
}

/// The source, destination and quoted tuple of an error. Its reader checks its sum, and here that of what it quotes as well.
fn read(frame: &[u8]) -> (IpAddr, IpAddr, Tuple) {
    let error = headers(frame);
    let Transport::IcmpError(about) = error.transport else { panic!("an error stays one") };
    let mut quoted = frame[..14].to_vec();
    quoted.extend_from_slice(&frame[usize::from(about.inner_l3_offset)..]);
    assert_eq!(headers(&quoted).tuple, about.inner);
    (error.tuple.source_ip(), error.tuple.destination_ip(), about.inner)
}

#[test]
fn an_outside_routers_error_about_a_question_reaches_the_client_about_its_own_packet() {
    for (is_ipv6, router) in [(false, IpAddr::from(OUTSIDE_ROUTER)), (true, OUTSIDE_ROUTER6.into())] {
        let mut bench = Bench::new(true, 16, Limits::default());
        let out = tuple(is_ipv6);
        let seen = bench.feed_one(INSIDE, build::udp(&out, b"question")).unwrap();
        let error = bench.feed_one(OUTSIDE, too_big(router, &seen)).expect("the error passes");
        assert_eq!(read(&error), (router, out.source_ip(), out));
    }
}

#[test]
fn an_inside_routers_error_about_an_answer_reaches_the_server_from_the_address_that_it_knows() {
    for (is_ipv6, router) in [(false, IpAddr::from(INSIDE_ROUTER)), (true, INSIDE_ROUTER6.into())] {
        let mut bench = Bench::new(true, 16, Limits::default());
        let seen = bench.feed_one(INSIDE, build::udp(&tuple(is_ipv6), b"question")).unwrap();
        let back = headers(&seen).tuple.inverse();
        let answer = bench.feed_one(OUTSIDE, build::udp(&back, b"answer")).unwrap();
        let error = bench.feed_one(INSIDE, too_big(router, &answer)).expect("the error passes");
        assert_eq!(
            read(&error),
            (back.destination_ip(), back.source_ip(), back),
            "the router's own address stays inside"
        );
    }
}

/// The error, sent to another address than the one that it is meant for.
fn to_another(mut error: Vec<u8>, address: IpAddr) -> Vec<u8> {
    let mut read = headers(&error);
    let Transport::IcmpError(about) = read.transport else { panic!("an error stays one") };
    let length_bytes = error.len();
    let mut frame = Frame::new(&mut error, 0, length_bytes, OUTSIDE).unwrap();
    let source = read.tuple.source;
    Packet { frame: &mut frame, headers: &mut read }.rewrite_icmp_error(&about.inner, &source, &tuple_bytes(address));
    error
}

#[test]
fn an_error_to_another_address_than_the_quoted_source_goes_to_nobody() {
    let other = |is_ipv6: bool| -> Vec<IpAddr> {
        if is_ipv6 {
            std::vec![CLIENT6.into(), INSIDE_ROUTER6.into(), "ff02::1".parse().unwrap()]
        } else {
            std::vec![
                CLIENT.into(),
                INSIDE_ROUTER.into(),
                "224.0.0.1".parse().unwrap(),
                "255.255.255.255".parse().unwrap()
            ]
        }
    };
    for (is_ipv6, router) in [(false, IpAddr::from(OUTSIDE_ROUTER)), (true, OUTSIDE_ROUTER6.into())] {
        let mut bench = Bench::new(true, 16, Limits::default());
        let seen = bench.feed_one(INSIDE, build::udp(&tuple(is_ipv6), b"question")).unwrap();
        for (count, address) in other(is_ipv6).into_iter().enumerate() {
            let error = to_another(too_big(router, &seen), address);
            assert_eq!(bench.feed_one(OUTSIDE, error), None, "to {address}");
            assert_eq!(bench.dropped(DropReason::MisdirectedIcmpError), count as u64 + 1);
        }
        assert!(
            bench.feed_one(OUTSIDE, too_big(router, &seen)).is_some(),
            "the one that is meant for the source passes"
        );
    }
}

#[test]
fn without_translation_routers_keep_their_own_addresses() {
    let mut bench = Bench::new(false, 16, Limits::default());
    let out = tuple(false);
    let question = bench.feed_one(INSIDE, build::udp(&out, b"question")).unwrap();
    let error = bench.feed_one(OUTSIDE, too_big(OUTSIDE_ROUTER.into(), &question)).unwrap();
    assert_eq!(read(&error), (OUTSIDE_ROUTER.into(), CLIENT.into(), out));
    let answer = bench.feed_one(OUTSIDE, build::udp(&out.inverse(), b"answer")).unwrap();
    let error = bench.feed_one(INSIDE, too_big(INSIDE_ROUTER.into(), &answer)).unwrap();
    assert_eq!(read(&error), (INSIDE_ROUTER.into(), SERVER.into(), out.inverse()));
}
