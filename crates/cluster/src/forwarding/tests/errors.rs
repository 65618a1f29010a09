//! What the forwarder's own ICMP messages look like.

use super::*;

/// The type of service, or traffic class.
fn traffic_class(bytes: &[u8]) -> u8 {
    if headers(bytes).tuple.version == 4 { bytes[15] } else { bytes[14] << 4 | bytes[15] >> 4 }
}

#[test]
fn errors_are_internetwork_control() {
    let mut bench = Bench::settled();
    let last_hop = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ttl: 1, ..Envelope::default() };
    let v4 = last_hop.udp(&Tuple::v4(ip_protocol::UDP, (HOST, 1), (SERVER, 2)), b"");
    let v6 = last_hop.udp(&Tuple::v6(ip_protocol::UDP, (HOST6, 1), (SERVER6, 2)), b"");
    for frame in [v4, v6] {
        bench.feed(INSIDE, frame);
        let sent = bench.drain();
        let error = &sent.iter().find(|(out, _)| out.port == INSIDE).expect("an error").1;
        assert!(matches!(headers(error).transport, Transport::IcmpError(_)));
        assert_eq!(traffic_class(error), 0xc0, "RFC 1812 section 4.3.2.5");
    }
}

#[test]
fn a_connection_without_a_port_left_is_refused_as_prohibited() {
    for (mut frame, kind, code) in [(to_server(), 3, 13), (to_server6(), 1, 1)] {
        let mut bench = Bench::settled();
        let length_bytes = frame.len();
        let mut packet_headers = headers(&frame);
        let mut frame = Frame::new(&mut frame, 0, length_bytes, INSIDE).unwrap();
        let packet = Packet { frame: &mut frame, headers: &mut packet_headers };
        for reason in [DropReason::NatPortsExhausted, DropReason::NatBlockExhausted] {
            bench.forwarder.refuse_connection(bench.now, &packet, reason);
            let sent = bench.drain();
            let Transport::IcmpError(error) = headers(&sent[0].1).transport else { panic!("an error") };
            assert_eq!((error.kind, error.code, error.inner), (kind, code, packet.headers.tuple));
        }
        bench.forwarder.refuse_connection(bench.now, &packet, DropReason::FirewallDenied);
        assert_eq!(bench.drain(), [], "a denied packet is dropped in silence");
    }
}

#[test]
fn an_address_answers_pings_on_every_port_but_a_link_local_one_only_on_its_own() {
    let mut bench = Bench::settled();
    let envelope = Envelope { source: HOST_MAC, destination: INSIDE_MAC, traffic_class: 0xb8, ..Envelope::default() };
    for address in [IpAddr::from(INSIDE_SHARED), OUTSIDE_SHARED.into(), INSIDE6.into(), OUTSIDE6.into()] {
        let from: IpAddr = if address.is_ipv4() { HOST.into() } else { HOST6.into() };
        let ping = envelope.echo(&Tuple::echo(from, address, 7), build::Echo::default(), b"anybody?");
        let fed = bench.feed(INSIDE, ping);
        assert_eq!(fed.disposition, Disposition::Transmit(INSIDE), "{address}");
        assert_eq!(headers(&fed.bytes).tuple.source_ip(), address);
        assert_eq!(traffic_class(&fed.bytes), 0xb8, "that of the request");
    }
    let other = super::super::address::link_local(OUTSIDE_MAC);
    let ping = envelope.echo(&Tuple::echo(HOST6.into(), other.into(), 7), build::Echo::default(), b"anybody?");
    assert_eq!(bench.feed(INSIDE, ping).disposition, Disposition::Drop(DropReason::MartianAddress));
}
