//! Probes of next hops.

use super::*;

#[test]
fn a_standby_probes_a_next_hop_without_claiming_an_address_and_notes_the_answer() {
    let mut bench = Bench::standby();
    bench.drain();
    let (v4, v6) = (IpAddr::V4(GATEWAY), IpAddr::V6(GATEWAY6));
    for address in [v4, v6] {
        assert_eq!(bench.forwarder.confirmed_at(OUTSIDE, address), None);
        bench.forwarder.probe(bench.now, OUTSIDE, address, false);
    }
    let asked = bench.drain();
    assert_eq!(asked.len(), 2);
    assert_eq!((arp(&asked[0].1).sender_ip(), arp(&asked[0].1).target_ip()), (Ipv4Addr::UNSPECIFIED, GATEWAY));
    assert!(matches!(headers(&asked[1].1).tuple.source_ip(), IpAddr::V6(ip) if ip.is_unicast_link_local()));
    assert!(asked.iter().all(|(_, bytes)| link(bytes).1.is_group()), "its link address is not known");

    bench.feed(OUTSIDE, arp_reply(GATEWAY_MAC, GATEWAY, (OUTSIDE_MAC, Ipv4Addr::UNSPECIFIED)));
    assert_eq!(bench.forwarder.confirmed_at(OUTSIDE, v4), Some(bench.now));
    assert_eq!(bench.forwarder.confirmed_at(OUTSIDE, v6), None);
}

#[test]
fn a_probe_goes_to_the_known_link_address_or_to_everybody_and_only_an_answer_confirms() {
    let mut bench = Bench::settled();
    let confirmed = bench.forwarder.confirmed_at(OUTSIDE, GATEWAY.into());
    assert!(confirmed.is_some());
    bench.now = bench.now + Duration::from_secs(1);
    for (everybody, to_group) in [(false, false), (true, true)] {
        bench.forwarder.probe(bench.now, OUTSIDE, GATEWAY.into(), everybody);
        let asked = bench.drain();
        assert_eq!((asked.len(), link(&asked[0].1).1.is_group()), (1, to_group));
    }
    // Its own request shows that it is there, but not that this node's frames reach it.
    bench.feed(OUTSIDE, build::arp_request(GATEWAY_MAC, GATEWAY, OUTSIDE_SHARED));
    assert_eq!(bench.forwarder.confirmed_at(OUTSIDE, GATEWAY.into()), confirmed);
    bench.forwarder.probe(bench.now, PortId(9), GATEWAY.into(), false);
}
