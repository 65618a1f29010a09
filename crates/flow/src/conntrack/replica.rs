//! A connection's automaton as attributes, for replication messages.

use alloc::vec::Vec;

use super::sctp::SctpState;
use super::tcp::{self, TcpState, WINDOW_BYTES_MAX, WINDOW_SCALE_MAX};
use super::udp::UdpState;
use super::{ProtocolState, TcpPeer, peer_flags};
use crate::wire::ip_protocol;
use crate::wire::tlv::{self, TlvError};

pub mod attribute {
    //! The attribute types of an automaton; never reused.
    /// The state's number: u8.
    pub const STATE: u16 = 1;
    /// TCP: window scale and flags, of the original and then of the reply side: 4 × u8.
    pub const TCP_OPTIONS: u16 = 2;
    /// TCP, optional: `end`, `end_max`, `window_max`, `acknowledged_max` of the original and then of the reply side:
    /// 8 × u32.
    pub const TCP_WINDOWS: u16 = 3;
    /// SCTP: the state's number and three zeros, 4 × u8; the verification tags of the original and of the reply side,
    /// then the tags offered to them: 4 × u32. [`STATE`] is 0 beside it, for nodes without SCTP states. Without it the
    /// association's state and tags are unknown.
    pub const SCTP: u16 = 4;
    /// TCP, optional: the last RST, which passed without being verified: its direction and three zeros, 4 × u8; its
    /// sequence number: u32.
    pub const TCP_RESET: u16 = 5;
}

/// Flags that matter to another node. [`peer_flags::RELEARNING`] does not: a node that takes over relearns the windows
/// anyway.
const FLAGS: u8 = peer_flags::WINDOW_SCALE
    | peer_flags::SACK_PERMITTED
    | peer_flags::FIN_SENT
    | peer_flags::LIBERAL
    | peer_flags::UNACKNOWLEDGED
    | peer_flags::ACKNOWLEDGED
    | peer_flags::DIRECT;

const NUMBERS_PER_PEER: usize = 4;
/// Bytes of [`attribute::TCP_WINDOWS`], header included.
const TCP_WINDOWS_BYTES: usize = tlv::TLV_HEADER_BYTES + 2 * NUMBERS_PER_PEER * size_of::<u32>();
/// Bytes of [`attribute::SCTP`].
const SCTP_BYTES: usize = 20;

/// Appends the replicated part of a connection's automaton.
pub fn encode_protocol_state(protocol: u8, state: &ProtocolState, out: &mut Vec<u8>) {
    if protocol == ip_protocol::SCTP {
        tlv::put(out, attribute::STATE, &[0]);
        return encode_sctp(state, out);
    }
    tlv::put_fixed::<8>(out, attribute::STATE, 1, |bytes| bytes[4] = state.state);
    if protocol != ip_protocol::TCP {
        return;
    }
    let [original, reply] = &state.peers;
    let options = [original.window_scale, original.flags & FLAGS, reply.window_scale, reply.flags & FLAGS];
    tlv::put_fixed::<8>(out, attribute::TCP_OPTIONS, 4, |bytes| bytes[4..].copy_from_slice(&options));
    if tcp::has_unverified_reset(state) {
        let [a, b, c, d] = state.last_sequence.to_be_bytes();
        tlv::put(out, attribute::TCP_RESET, &[state.last_direction, 0, 0, 0, a, b, c, d]);
    }
    if state.peers.iter().all(|peer| peer.window_max == 0) {
        return;
    }
    const WINDOWS_BYTES: u16 = (TCP_WINDOWS_BYTES - tlv::TLV_HEADER_BYTES) as u16;
    tlv::put_fixed::<TCP_WINDOWS_BYTES>(out, attribute::TCP_WINDOWS, WINDOWS_BYTES, |bytes| {
        let (_, peers) = bytes.split_at_mut(tlv::TLV_HEADER_BYTES);
        for (places, peer) in peers.as_chunks_mut::<{ NUMBERS_PER_PEER * 4 }>().0.iter_mut().zip(&state.peers) {
            let numbers = [peer.end, peer.end_max, peer.window_max, peer.acknowledged_max];
            for (place, number) in places.as_chunks_mut().0.iter_mut().zip(numbers) {
                *place = number.to_be_bytes();
            }
        }
    });
}

fn encode_sctp(state: &ProtocolState, out: &mut Vec<u8>) {
    let [original, reply] = &state.peers;
    let mut value = [0; SCTP_BYTES];
    value[0] = state.state;
    let tags = [original.end, reply.end, original.end_max, reply.end_max];
    for (place, tag) in value[4..].as_chunks_mut().0.iter_mut().zip(tags) {
        *place = tag.to_be_bytes();
    }
    tlv::put(out, attribute::SCTP, &value);
}

fn read_sctp(state: &mut ProtocolState, value: &[u8]) -> Result<(), TlvError> {
    let value: [u8; SCTP_BYTES] = value.try_into().map_err(|_| TlvError::ValueSize(attribute::SCTP))?;
    SctpState::from_u8(value[0]).ok_or(TlvError::Value(attribute::SCTP))?;
    state.state = value[0];
    let tag = |number: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| value[4 + 4 * number + byte]));
    let [original, reply] = &mut state.peers;
    (original.end, reply.end, original.end_max, reply.end_max) = (tag(0), tag(1), tag(2), tag(3));
    Ok(())
}

/// Decodes the output of [`encode_protocol_state`], possibly of another program version. Unknown attributes are
/// skipped; missing ones keep their default, except TCP's state, which is mandatory. Excessive window scales and
/// windows are reduced to the maximum (RFC 7323 section 2.3).
///
/// # Errors
/// An attribute is malformed, or the protocol has no state with this number.
pub fn decode_protocol_state(protocol: u8, attributes: &[u8]) -> Result<ProtocolState, TlvError> {
    let mut state = ProtocolState::default();
    for attribute in tlv::read(attributes) {
        let (kind, value) = attribute?;
        let wrong_size = TlvError::ValueSize(kind);
        match (kind, protocol) {
            (attribute::STATE, _) => {
                let [number] = value.try_into().map_err(|_| wrong_size)?;
                state.state = checked_state(protocol, number).ok_or(TlvError::Value(kind))?;
            }
            (attribute::TCP_OPTIONS, ip_protocol::TCP) => {
                let options: [u8; 4] = value.try_into().map_err(|_| wrong_size)?;
                for (peer, [scale, flags]) in state.peers.iter_mut().zip(options.as_chunks().0) {
                    peer.window_scale = (*scale).min(WINDOW_SCALE_MAX);
                    peer.flags = flags & FLAGS;
                }
            }
            (attribute::TCP_RESET, ip_protocol::TCP) => {
                let [direction, _, _, _, sequence @ ..] = <[u8; 8]>::try_from(value).map_err(|_| wrong_size)?;
                tcp::set_unverified_reset(&mut state, direction, u32::from_be_bytes(sequence));
            }
            (attribute::SCTP, ip_protocol::SCTP) => read_sctp(&mut state, value)?,
            (attribute::TCP_WINDOWS, ip_protocol::TCP) => read_windows(&mut state.peers, value).ok_or(wrong_size)?,
            _ => {}
        }
    }
    if protocol == ip_protocol::TCP && state.state == TcpState::None as u8 {
        return Err(TlvError::Value(attribute::STATE));
    }
    Ok(state)
}

fn checked_state(protocol: u8, number: u8) -> Option<u8> {
    match protocol {
        ip_protocol::TCP => TcpState::from_u8(number).filter(|state| *state != TcpState::None).map(|state| state as u8),
        ip_protocol::UDP => UdpState::from_u8(number).map(|state| state as u8),
        _ => (number == 0).then_some(0),
    }
}

fn read_windows(peers: &mut [TcpPeer; 2], value: &[u8]) -> Option<()> {
    let (numbers, rest) = value.as_chunks::<4>();
    let numbers: [[u8; 4]; 2 * NUMBERS_PER_PEER] = numbers.try_into().ok().filter(|_| rest.is_empty())?;
    let numbers = numbers.map(u32::from_be_bytes);
    for (peer, numbers) in peers.iter_mut().zip(numbers.as_chunks::<NUMBERS_PER_PEER>().0) {
        let [end, end_max, window_max, acknowledged_max] = *numbers;
        *peer = TcpPeer { end, end_max, window_max: window_max.min(WINDOW_BYTES_MAX), acknowledged_max, ..*peer };
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn established() -> ProtocolState {
        let peer = |scale: u8, flags: u8| TcpPeer {
            end: 1000,
            end_max: 70_000,
            window_max: 65_536,
            acknowledged_max: u32::MAX,
            window_scale: scale,
            flags,
            relearnt_at: 0,
        };
        ProtocolState {
            state: TcpState::Established as u8,
            peers: [peer(7, peer_flags::WINDOW_SCALE), peer(14, peer_flags::ACKNOWLEDGED | peer_flags::FIN_SENT)],
            ..ProtocolState::default()
        }
    }

    #[test]
    fn an_encoded_tcp_connection_decodes_to_the_same_state() {
        let mut bytes = vec![];
        encode_protocol_state(ip_protocol::TCP, &established(), &mut bytes);
        assert_eq!(decode_protocol_state(ip_protocol::TCP, &bytes), Ok(established()));
        assert_eq!(bytes.len(), 8 + 8 + 36);
    }

    #[test]
    fn a_reset_that_passed_unverified_is_encoded_with_its_number() {
        let mut state = established();
        crate::conntrack::Tracker::default().take_over(ip_protocol::TCP, &mut state);
        tcp::set_unverified_reset(&mut state, 1, 0x0102_0304);
        let mut bytes = vec![];
        encode_protocol_state(ip_protocol::TCP, &state, &mut bytes);
        assert_eq!(bytes[16..], [0, 5, 0, 12, 1, 0, 0, 0, 1, 2, 3, 4]);
        let read = decode_protocol_state(ip_protocol::TCP, &bytes).unwrap();
        assert!(tcp::has_unverified_reset(&read));
        assert_eq!((read.last_direction, read.last_sequence), (1, 0x0102_0304));
    }

    #[test]
    fn unknown_windows_are_not_encoded() {
        let mut state = established();
        crate::conntrack::Tracker::default().take_over(ip_protocol::TCP, &mut state);
        let mut bytes = vec![];
        encode_protocol_state(ip_protocol::TCP, &state, &mut bytes);
        assert_eq!(bytes.len(), 8 + 8);
        let read = decode_protocol_state(ip_protocol::TCP, &bytes).unwrap();
        assert_eq!(read.peers.map(|peer| (peer.window_scale, peer.window_max)), [(7, 0), (14, 0)]);
    }

    fn association() -> ProtocolState {
        let mut state = ProtocolState { state: SctpState::Established as u8, ..ProtocolState::default() };
        (state.peers[0].end, state.peers[1].end, state.peers[1].end_max) = (0x0102_0304, 0x0506_0708, 9);
        state
    }

    #[test]
    fn an_encoded_association_decodes_to_the_same_state() {
        let mut bytes = vec![];
        encode_protocol_state(ip_protocol::SCTP, &association(), &mut bytes);
        assert_eq!(decode_protocol_state(ip_protocol::SCTP, &bytes), Ok(association()));
        assert_eq!(bytes.len(), 8 + 24);
    }

    #[test]
    fn an_association_is_compatible_with_nodes_that_lack_sctp_states() {
        let mut bytes = vec![];
        encode_protocol_state(ip_protocol::SCTP, &association(), &mut bytes);
        // A node without support for SCTP skips unknown attributes and expects state 0.
        assert_eq!(decode_protocol_state(47, &bytes), Ok(ProtocolState::default()));
        let mut bytes = vec![];
        encode_protocol_state(47, &ProtocolState::default(), &mut bytes);
        assert_eq!(decode_protocol_state(ip_protocol::SCTP, &bytes), Ok(ProtocolState::default()));
    }

    #[test]
    fn an_association_in_an_unknown_state_is_refused() {
        let mut bytes = vec![];
        tlv::put(&mut bytes, attribute::SCTP, &[9; SCTP_BYTES]);
        assert_eq!(decode_protocol_state(ip_protocol::SCTP, &bytes), Err(TlvError::Value(attribute::SCTP)));
        let mut bytes = vec![];
        tlv::put(&mut bytes, attribute::SCTP, &[1; SCTP_BYTES + 1]);
        assert_eq!(decode_protocol_state(ip_protocol::SCTP, &bytes), Err(TlvError::ValueSize(attribute::SCTP)));
    }

    #[test]
    fn attributes_of_a_later_version_are_skipped() {
        let mut bytes = vec![];
        tlv::put(&mut bytes, 999, b"later");
        encode_protocol_state(ip_protocol::UDP, &ProtocolState { state: 1, ..ProtocolState::default() }, &mut bytes);
        assert_eq!(decode_protocol_state(ip_protocol::UDP, &bytes).unwrap().state, UdpState::Replied as u8);
    }

    #[test]
    fn an_unknown_state_of_the_protocol_is_refused() {
        for (protocol, number) in [(ip_protocol::TCP, 0), (ip_protocol::TCP, 10), (ip_protocol::UDP, 2), (47, 1)] {
            let mut bytes = vec![];
            tlv::put(&mut bytes, attribute::STATE, &[number]);
            let read = decode_protocol_state(protocol, &bytes);
            assert_eq!(read, Err(TlvError::Value(attribute::STATE)), "protocol {protocol}, state {number}");
        }
    }

    #[test]
    fn a_value_of_wrong_size_is_refused() {
        for (kind, bytes_wrong) in [
            (attribute::STATE, 2),
            (attribute::TCP_OPTIONS, 3),
            (attribute::TCP_WINDOWS, 31),
            (attribute::TCP_RESET, 7),
        ] {
            let mut bytes = vec![];
            tlv::put(&mut bytes, kind, &vec![1; bytes_wrong]);
            assert_eq!(decode_protocol_state(ip_protocol::TCP, &bytes), Err(TlvError::ValueSize(kind)));
        }
    }

    #[test]
    fn an_excessive_window_or_scale_is_reduced_to_the_maximum() {
        let mut bytes = vec![];
        tlv::put(&mut bytes, attribute::STATE, &[TcpState::Established as u8]);
        tlv::put(&mut bytes, attribute::TCP_OPTIONS, &[255, 0xff, 15, 0]);
        tlv::put(&mut bytes, attribute::TCP_WINDOWS, &[0xff; 32]);
        let read = decode_protocol_state(ip_protocol::TCP, &bytes).unwrap();
        assert_eq!(read.peers.map(|peer| peer.window_scale), [14, 14]);
        assert_eq!(read.peers.map(|peer| peer.window_max), [WINDOW_BYTES_MAX; 2]);
        assert_eq!(read.peers[0].flags, FLAGS, "only flags that mean something to another node are taken");
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(protocol in prop::sample::select(vec![1u8, 6, 17, 47, 58, 132]),
                                         bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(state) = decode_protocol_state(protocol, &bytes) {
                let mut encoded = vec![];
                encode_protocol_state(protocol, &state, &mut encoded);
                let encoded = decode_protocol_state(protocol, &encoded).unwrap();
                let replicated = |state: &ProtocolState| (state.state, state.peers.map(|peer| (peer.window_scale, peer.flags)));
                prop_assert_eq!(replicated(&encoded), replicated(&state));
            }
        }
    }
}
