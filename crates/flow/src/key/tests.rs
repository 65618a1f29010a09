//! Tuples, their names and their hashes.

use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::hash::Hasher;
use proptest::prelude::*;
use siphasher::sip::SipHasher13;

fn canonical_bytes(tuple: &Tuple) -> Vec<u8> {
    let skip = if tuple.version == 4 { 12 } else { 0 };
    let mut ends = [(&tuple.source[skip..], tuple.source_port), (&tuple.destination[skip..], tuple.destination_port)];
    ends.sort();
    let mut bytes = Vec::new();
    ends.iter().for_each(|end| bytes.extend_from_slice(end.0));
    ends.iter().for_each(|end| bytes.extend_from_slice(&end.1.to_be_bytes()));
    bytes.push(tuple.protocol);
    bytes.extend_from_slice(&(tuple.discriminator & !QUERY_REPLY).to_be_bytes());
    bytes
}

prop_compose! {
    // Few distinct addresses and ports, so that equal halves occur.
    fn any_tuple()(
        is_v4: bool, source in 0u8..3, destination in 0u8..3, high: [u8; 15],
        source_port in prop_oneof![0u16..3, any::<u16>()], destination_port in prop_oneof![0u16..3, any::<u16>()],
        protocol: u8, discriminator: u16,
    ) -> Tuple {
        let address = |low: u8| {
            let mut bytes = [0; 16];
            bytes[..15].copy_from_slice(&high);
            bytes[15] = low;
            if is_v4 { mapped(unmapped(&bytes)) } else { bytes }
        };
        Tuple {
            source: address(source), destination: address(destination), source_port, destination_port, protocol,
            version: if is_v4 { 4 } else { 6 }, discriminator,
        }
    }
}

proptest! {
    #[test]
    fn the_hash_is_siphash_1_3_over_the_canonical_bytes(tuple in any_tuple(), key: [u64; 2]) {
        let mut reference = SipHasher13::new_with_keys(key[0], key[1]);
        reference.write(&canonical_bytes(&tuple));
        prop_assert_eq!(HashKey(key).hash(&tuple), reference.finish());
    }

    #[test]
    fn a_tuple_and_its_inverse_hash_alike(tuple in any_tuple(), key: [u64; 2]) {
        prop_assert_eq!(HashKey(key).hash(&tuple), HashKey(key).hash(&tuple.inverse()));
        prop_assert_eq!(tuple.inverse().inverse(), tuple);
    }

    #[test]
    fn end_points_are_returned_unchanged(tuple in any_tuple()) {
        let rebuilt = Tuple::new(tuple.protocol, tuple.source_addr(), tuple.destination_addr());
        prop_assert_eq!(Tuple { discriminator: tuple.discriminator, ..rebuilt }, tuple);
    }
}

#[test]
fn swapping_the_ports_alone_identifies_another_connection() {
    let tuple = Tuple::v4(6, (Ipv4Addr::new(10, 0, 0, 1), 1), (Ipv4Addr::new(10, 0, 0, 2), 2));
    let crossed = Tuple { source_port: 2, destination_port: 1, ..tuple };
    let key = HashKey([1, 2]);
    assert_ne!(key.hash(&tuple), key.hash(&crossed));
}

#[test]
fn tuples_are_printed_in_the_operators_notation() {
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 0, 2, 1));
    let v6 = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    for (tuple, text) in [
        (Tuple::v4(6, (a, 4000), (b, 80)), "tcp 10.0.0.2:4000 > 192.0.2.1:80"),
        (Tuple::v6(17, (v6(1), 53), (v6(2), 5353)), "udp [2001:db8::1]:53 > [2001:db8::2]:5353"),
        (Tuple::echo(a.into(), b.into(), 7), "icmp 10.0.0.2 > 192.0.2.1 type 8 id 7"),
        (Tuple::v6(58, (v6(1), 0), (v6(2), 0)), "icmpv6 2001:db8::1 > 2001:db8::2"),
        (Tuple::v4(47, (a, 0), (b, 0)), "protocol 47 10.0.0.2 > 192.0.2.1"),
    ] {
        assert_eq!(tuple.to_string(), text);
    }
}

#[test]
fn the_secret_is_not_printed() {
    assert_eq!(alloc::format!("{:?}", HashKey([17, 18])), "HashKey(secret)");
}
