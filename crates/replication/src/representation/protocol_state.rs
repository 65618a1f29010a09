//! The state of a connection's automaton as attributes.

use alloc::vec::Vec;

use flow::conntrack::{ProtocolState, TcpPeer};
use flow::wire::{ip_protocol, tlv};

use super::fixed;
use crate::session::ApplyError;

/// The state's number, and for TCP each side's window scale and flags.
const STATE: u16 = 1;
/// TCP's windows: of each side `end`, `end_max`, `window_max`, `acknowledged_max`.
const TCP_WINDOWS: u16 = 2;

/// The largest state number of TCP's automaton.
const TCP_STATE_MAX: u8 = 9;
/// The largest state number of any other.
const OTHER_STATE_MAX: u8 = 15;
/// RFC 7323, section 2.3.
const WINDOW_SCALE_MAX: u8 = 14;
const TCP_STATE_BYTES: usize = 5;
const TCP_WINDOWS_BYTES: usize = 32;

/// Appends the state.
pub(super) fn encode(protocol: u8, state: &ProtocolState, out: &mut Vec<u8>) {
    let [original, reply] = &state.peers;
    if protocol != ip_protocol::TCP {
        fixed::put::<8>(out, STATE, 1, |bytes| bytes[4] = state.state);
        return;
    }
    let scales = [state.state, original.window_scale, original.flags, reply.window_scale, reply.flags];
    fixed::put::<12>(out, STATE, TCP_STATE_BYTES as u16, |bytes| bytes[4..9].copy_from_slice(&scales));
    fixed::put::<36>(out, TCP_WINDOWS, TCP_WINDOWS_BYTES as u16, |bytes| {
        put_windows(original, &mut bytes[4..20]);
        put_windows(reply, &mut bytes[20..36]);
    });
}

#[inline]
fn put_windows(peer: &TcpPeer, bytes: &mut [u8]) {
    bytes[..4].copy_from_slice(&peer.end.to_be_bytes());
    bytes[4..8].copy_from_slice(&peer.end_max.to_be_bytes());
    bytes[8..12].copy_from_slice(&peer.window_max.to_be_bytes());
    bytes[12..16].copy_from_slice(&peer.acknowledged_max.to_be_bytes());
}

/// Reads the state. What a TCP connection's sides have seen last does not travel; without windows they are learnt afresh.
pub(super) fn decode(protocol: u8, attributes: &[u8]) -> Result<ProtocolState, ApplyError> {
    let mut decoded = ProtocolState::default();
    let mut has_state = false;
    for attribute in tlv::read(attributes) {
        match attribute? {
            (STATE, value) => {
                decode_state(protocol, value, &mut decoded)?;
                has_state = true;
            }
            (TCP_WINDOWS, value) if protocol == ip_protocol::TCP => decode_windows(value, &mut decoded)?,
            _ => {}
        }
    }
    if has_state { Ok(decoded) } else { Err(ApplyError::Missing(STATE)) }
}

fn decode_state(protocol: u8, value: &[u8], decoded: &mut ProtocolState) -> Result<(), ApplyError> {
    let wrong_size = tlv::TlvError::ValueSize(STATE);
    let is_sound = if protocol == ip_protocol::TCP {
        let value: [u8; TCP_STATE_BYTES] = value.try_into().map_err(|_| wrong_size)?;
        let [state, original_scale, original_flags, reply_scale, reply_flags] = value;
        decoded.state = state;
        let sides = [(original_scale, original_flags), (reply_scale, reply_flags)];
        for (peer, (scale, flags)) in decoded.peers.iter_mut().zip(sides) {
            peer.window_scale = scale;
            peer.flags = flags;
        }
        state <= TCP_STATE_MAX && original_scale <= WINDOW_SCALE_MAX && reply_scale <= WINDOW_SCALE_MAX
    } else {
        let [state] = value.try_into().map_err(|_| wrong_size)?;
        decoded.state = state;
        state <= OTHER_STATE_MAX
    };
    if is_sound { Ok(()) } else { Err(ApplyError::Value(STATE)) }
}

fn decode_windows(value: &[u8], decoded: &mut ProtocolState) -> Result<(), ApplyError> {
    let value: &[u8; TCP_WINDOWS_BYTES] = value.try_into().map_err(|_| tlv::TlvError::ValueSize(TCP_WINDOWS))?;
    for (peer, bytes) in decoded.peers.iter_mut().zip(value.chunks_exact(TCP_WINDOWS_BYTES / 2)) {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        *peer = TcpPeer { end: word(0), end_max: word(4), window_max: word(8), acknowledged_max: word(12), ..*peer };
    }
    Ok(())
}
