//! Connections in messages, also of other versions.

use super::*;
use flow::conntrack::{ProtocolState, TcpPeer};
use flow::wire::ip_protocol::{ICMP, TCP, UDP};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use crate::session::DELETION_BYTES_MAX;

const NOW: Instant = Instant::from_millis(1_000_000);

/// A function whose state is the first four bytes, sent when it is not zero.
struct FirstFour;

impl FunctionStates for FirstFour {
    fn encode(&self, connection: &Connection, out: &mut Vec<u8>) {
        if connection.functions[..4] != [0; 4] {
            tlv::put(out, 100, &connection.functions[..4]);
        }
    }

    fn decode(&self, connection: &mut Connection, attributes: &[u8]) -> Result<(), TlvError> {
        for attribute in tlv::read(attributes) {
            if let (100, value) = attribute? {
                let value: [u8; 4] = value.try_into().map_err(|_| TlvError::ValueSize(100))?;
                connection.functions[..4].copy_from_slice(&value);
            }
        }
        Ok(())
    }
}

fn tuple(family: IpFamily) -> impl Strategy<Value = Tuple> {
    let protocol = prop_oneof![Just(TCP), Just(UDP), Just(ICMP), any::<u8>()];
    (any::<([u8; 16], [u8; 16], u16, u16, u16)>(), protocol).prop_map(move |(random, protocol)| {
        let (mut source, mut destination, source_port, destination_port, discriminator) = random;
        let version = if family == IpFamily::V4 { 4 } else { 6 };
        if family == IpFamily::V4 {
            source[..12].copy_from_slice(&V4_MAPPED);
            destination[..12].copy_from_slice(&V4_MAPPED);
        }
        Tuple { source, destination, source_port, destination_port, protocol, version, discriminator }
    })
}

fn peer() -> impl Strategy<Value = TcpPeer> {
    // What travels of a side: any window that scaling can express (RFC 7323 section 2.3), and the flags that do not concern a
    // take-over in progress.
    (any::<[u32; 3]>(), 1..=0xffff_u32 << 14, 0..=14u8, 0..0x40u8).prop_map(
        |([end, end_max, acknowledged_max], window_max, window_scale, flags)| TcpPeer {
            end,
            end_max,
            window_max,
            acknowledged_max,
            window_scale,
            flags,
            relearnt_at: 0,
        },
    )
}

fn connection() -> impl Strategy<Value = Connection> {
    let family = prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6)];
    let tuples = family.prop_flat_map(|family| (tuple(family), proptest::option::of(tuple(family))));
    let record = (any::<u32>(), any::<u8>(), 0..=3u8, any::<u32>(), any::<[u8; 4]>());
    (tuples, record, 0..10u8, peer(), peer()).prop_map(|((original, reply), record, state, here, there)| {
        let (version, owner, flags, expires_in_ms, function) = record;
        let mut protocol = ProtocolState::default();
        match original.protocol {
            TCP => (protocol.state, protocol.peers) = (1 + state % 9, [here, there]),
            UDP => protocol.state = state % 2,
            _ => {}
        }
        let expires_at = NOW + Duration::from_millis(expires_in_ms.into());
        let mut connection = Connection::new(original, NodeId(owner), protocol, expires_at);
        connection.version = version;
        connection.flags = flags;
        connection.functions[..4].copy_from_slice(&function);
        if let Some(reply) = reply {
            let Tuple { protocol, discriminator, .. } = original.inverse();
            connection.reply = Tuple { protocol, discriminator, ..reply };
        }
        connection
    })
}

fn attributes_of(connection: &Connection) -> Vec<u8> {
    let mut out = Vec::new();
    encode(NOW, connection, &FirstFour, &mut out);
    out
}

#[test]
fn relations_travel_behind_a_state_and_do_not_hide_it() {
    let tuples = [Tuple::new(TCP, "10.0.0.1:1".parse().unwrap(), "192.0.2.1:21".parse().unwrap()), {
        Tuple::new(TCP, "[2001:db8::1]:1".parse().unwrap(), "[2001:db8::2]:21".parse().unwrap())
    }];
    for master in tuples {
        let protocol = ProtocolState { state: 3, ..ProtocolState::default() };
        let connection = Connection::new(master.inverse(), NodeId(1), protocol, NOW);
        let mut bytes = Vec::new();
        encode(NOW, &connection, &FirstFour, &mut bytes);
        assert_eq!(relations(&bytes), Ok(Relations::default()));
        encode_expected(&mut bytes, |_| {});
        assert_eq!(relations(&bytes), Ok(Relations::default()), "nothing is not sent");
        encode_expected(&mut bytes, |out| tlv::put(out, 1, &[7; 5]));
        encode_master(&master, &mut bytes);
        let replicated = relations(&bytes).unwrap();
        assert_eq!(replicated.master, Some(master));
        assert_eq!(tlv::read(replicated.expected).next(), Some(Ok((1, &[7; 5][..]))));
        assert_eq!(decode(NOW, &bytes, &FirstFour).unwrap().original, connection.original);
    }
}

proptest! {
    #[test]
    fn a_connection_comes_back_as_it_was_sent(connection in connection()) {
        let decoded = decode(NOW, &attributes_of(&connection), &FirstFour).unwrap();
        prop_assert_eq!(decoded.as_bytes(), connection.as_bytes());
    }

    #[test]
    fn unknown_attributes_are_skipped(connection in connection(), kind in 9u16.., value: Vec<u8>) {
        let mut attributes = Vec::new();
        tlv::put(&mut attributes, kind, &value[..value.len().min(99)]);
        attributes.extend(attributes_of(&connection));
        let decoded = decode(NOW, &attributes, &FirstFour).unwrap();
        prop_assert_eq!(decoded.as_bytes(), connection.as_bytes());
    }

    #[test]
    fn the_name_of_an_ended_connection_comes_back_and_fits(connection in connection(), cause in 0usize..3) {
        let cause = [EndCause::Other, EndCause::TimedOut, EndCause::Failed][cause];
        let mut out = Vec::new();
        encode_ended(&Ended { cause, ..Ended::from(&connection) }, &mut out);
        prop_assert!(out.len() <= DELETION_BYTES_MAX);
        let Connection { original, version, owner, .. } = connection;
        prop_assert_eq!(decode_ended(&out), Ok(Ended { original, version, owner, cause }));
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = decode(NOW, &bytes, &FirstFour);
        let _ = decode_ended(&bytes);
    }

    #[test]
    fn states_with_a_byte_changed_are_read_or_refused(
        connection in connection(),
        at: prop::sample::Index,
        value: u8,
    ) {
        let mut attributes = attributes_of(&connection);
        let at = at.index(attributes.len());
        attributes[at] = value;
        if let Ok(decoded) = decode(NOW, &attributes, &FirstFour) {
            prop_assert!(decoded.protocol.state <= 15);
            prop_assert!(decoded.protocol.peers.iter().all(|peer| peer.window_scale <= 14));
        }
    }
}

fn nated_tcp() -> Connection {
    let address = |last: u8| {
        let mut address = [0; 16];
        address[..12].copy_from_slice(&V4_MAPPED);
        address[12..].copy_from_slice(&[10, 0, 0, last]);
        address
    };
    let original = Tuple {
        source: address(1),
        destination: address(2),
        source_port: 40_000,
        destination_port: 443,
        protocol: TCP,
        version: 4,
        discriminator: 0,
    };
    let side = TcpPeer { window_max: 65_535, ..TcpPeer::default() };
    let protocol = ProtocolState { state: 3, peers: [side; 2], ..ProtocolState::default() };
    let mut connection = Connection::new(original, NodeId(0), protocol, NOW);
    connection.reply.destination = address(9);
    connection.functions[..4].copy_from_slice(&[1, 2, 3, 4]);
    connection
}

#[test]
fn a_nated_tcp_connection_over_ipv4_takes_little() {
    let bytes = attributes_of(&nated_tcp()).len();
    assert!((100..=124).contains(&bytes), "{bytes}");
}

#[test]
fn what_is_needed_and_not_there_is_named() {
    let attributes = attributes_of(&nated_tcp());
    for (left_out, expected) in [(ORIGINAL_V4, ORIGINAL_V4), (RECORD, RECORD), (PROTOCOL_STATE, PROTOCOL_STATE)] {
        let mut rest = Vec::new();
        for (kind, value) in tlv::read(&attributes).map(Result::unwrap).filter(|(kind, _)| *kind != left_out) {
            tlv::put(&mut rest, kind, value);
        }
        assert_eq!(decode(NOW, &rest, &FirstFour).unwrap_err(), ApplyError::Missing(expected));
    }
}

#[test]
fn values_of_a_wrong_size_or_family_are_refused() {
    let attributes = attributes_of(&nated_tcp());
    for kind in [ORIGINAL_V4, ORIGINAL_V6, REPLY_V4, RECORD] {
        let mut wrong = attributes.clone();
        tlv::put(&mut wrong, kind, &[0; 7]);
        assert_eq!(decode(NOW, &wrong, &FirstFour).unwrap_err(), TlvError::ValueSize(kind).into());
    }
    let mut wrong = attributes;
    tlv::put(&mut wrong, REPLY_V6, &[0; 36]);
    assert_eq!(decode(NOW, &wrong, &FirstFour).unwrap_err(), ApplyError::Value(REPLY_V6));
}
