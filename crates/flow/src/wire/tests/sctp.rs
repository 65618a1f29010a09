//! SCTP packets, parsed, translated, and quoted.

use super::*;
use crate::wire::ipv6::FragmentHeader;
use crate::wire::sctp::chunk;

/// DATA with four bytes, and a SACK.
const CHUNKS: &[u8] =
    &[0, 3, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 3, 0, 0, 16, 0, 0, 0, 9, 0, 1, 0, 0, 0, 0, 0, 0];
const TAG: u32 = 0x0102_0304;

fn sctp4() -> Tuple {
    Tuple { protocol: ip_protocol::SCTP, ..tcp4() }
}

fn sctp6() -> Tuple {
    Tuple { protocol: ip_protocol::SCTP, ..tcp6() }
}

fn built(tuple: &Tuple) -> Vec<u8> {
    Envelope::default().sctp(tuple, TAG, CHUNKS)
}

#[test]
fn ports_tag_and_chunks_are_read_and_damage_is_detected() {
    for (tuple, l4) in [(sctp4(), 14 + 20), (sctp6(), 14 + 40)] {
        let frame = built(&tuple);
        let found = headers(&frame);
        assert_eq!((found.tuple, usize::from(found.payload_offset)), (tuple, l4 + 12));
        let Transport::Sctp(packet) = found.transport else { panic!("{:?}", found.transport) };
        assert_eq!((packet.verification_tag, packet.chunks), (TAG, chunk::OTHER));
        for at in l4..frame.len() {
            let mut damaged = frame.clone();
            damaged[at] ^= 0x40;
            assert_eq!(read(&damaged), Err(DropReason::BadTransportChecksum), "byte {at}");
        }
        for length in 0..frame.len() {
            assert_eq!(read(&frame[..length]), Err(DropReason::Truncated), "{length} bytes");
        }
    }
}

#[test]
fn a_translated_packet_equals_one_built_with_the_tuple() {
    for (tuple, elsewhere) in [(sctp4(), ROUTER.into()), (sctp6(), IpAddr::from(v6(7)))] {
        let address = crate::key::address_bytes(elsewhere);
        for other in [
            Tuple { source: address, source_port: 5000, ..tuple },
            Tuple { destination: address, destination_port: 5000, ..tuple },
            Tuple { source: address, ..tuple },
            tuple.inverse(),
        ] {
            let mut frame = built(&tuple);
            frame.extend([0; 3]);
            let after = change(&mut frame, Checksum::Unverified, |packet| packet.rewrite(&other));
            assert_eq!(after, headers(&frame));
            assert_eq!(frame[..frame.len() - 3], built(&other)[..]);
        }
    }
}

#[test]
fn an_offloaded_checksum_is_completed_by_translation() {
    let (tuple, l4) = (sctp4(), 14 + 20);
    let other = Tuple { source_port: 5000, ..tuple };
    for translated in [other, tuple] {
        let mut frame = built(&tuple);
        frame[l4 + 8..l4 + 12].fill(0);
        let partial = Checksum::Partial { start: l4 as u16, offset: 8 };
        change(&mut frame, partial, |packet| {
            packet.rewrite(&translated);
            assert_eq!(packet.frame.checksum, Checksum::Valid);
        });
        assert_eq!(frame, built(&translated));
    }
}

#[test]
fn a_fragment_gets_other_addresses_and_keeps_its_checksum() {
    let whole = built(&sctp4());
    let fragment = Some(FragmentHeader { offset_bytes: 0, more: true, identification: 9 });
    let envelope = Envelope { fragment, ..Envelope::default() };
    let mut first = envelope.raw(&sctp4(), &whole[34..34 + 24]);
    assert_eq!(headers(&first).tuple, sctp4());
    let other = Tuple { source: crate::key::address_bytes(ROUTER.into()), ..sctp4() };
    change(&mut first, Checksum::Unverified, |packet| packet.rewrite(&other));
    assert_eq!(first, envelope.raw(&other, &whole[34..34 + 24]));
    let tiny = envelope.raw(&sctp4(), &whole[34..34 + 8]);
    assert_eq!(read(&tiny), Err(DropReason::TinyFragment));
}

#[test]
fn an_error_identifies_its_association() {
    for (tuple, router) in [(sctp4(), IpAddr::from(ROUTER)), (sctp6(), v6(0xfe).into())] {
        let mut error = error_about(&built(&tuple), tuple.version);
        let Transport::IcmpError(about) = headers(&error).transport else { panic!("an error is one") };
        assert_eq!(about.inner, tuple);
        let other = Tuple { source_port: 5000, ..tuple };
        change(&mut error, Checksum::Unverified, |packet| {
            packet.rewrite_icmp_error(&other, &crate::key::address_bytes(router), &other.source);
        });
        let Transport::IcmpError(about) = headers(&error).transport else { panic!("an error stays one") };
        assert_eq!(about.inner, other);
    }
}
