//! The states of protocols' automata, as attributes.

use flow::netfilter::{ProtocolInfo, TcpFlags, TcpInfo, TcpSide, TcpState};

use super::attributes::{Writer, for_each_attribute, u8_of, u32_of};
use super::numbers::protocol_info as numbers;

/// Mask of all flags of a TCP side: given flags are set, the others cleared.
const ALL_FLAGS: u8 = 0xff;

/// `Some(None)` for an unknown protocol or state.
#[allow(clippy::option_option, reason = "not understood and malformed are two things")]
pub(super) fn decode(value: &[u8]) -> Option<Option<ProtocolInfo>> {
    let mut info = None;
    for_each_attribute(value, |kind, value| {
        match kind {
            numbers::TCP => info = decode_tcp(value)?,
            numbers::SCTP => info = decode_sctp(value)?,
            numbers::DCCP => info = decode_dccp(value)?,
            _ => {}
        }
        Some(())
    })?;
    Some(info)
}

#[allow(clippy::option_option, reason = "as for `decode`")]
fn decode_tcp(value: &[u8]) -> Option<Option<ProtocolInfo>> {
    let (mut state, mut scales, mut flags) = (None, [None; 2], [None; 2]);
    for_each_attribute(value, |kind, value| {
        match kind {
            numbers::TCP_STATE => state = Some(u8_of(value)?),
            numbers::TCP_WINDOW_SCALE_ORIGINAL => scales[0] = Some(u8_of(value)?),
            numbers::TCP_WINDOW_SCALE_REPLY => scales[1] = Some(u8_of(value)?),
            // The flags, and which of them count.
            numbers::TCP_FLAGS_ORIGINAL => flags[0] = Some(u8_of(value)?),
            numbers::TCP_FLAGS_REPLY => flags[1] = Some(u8_of(value)?),
            _ => {}
        }
        Some(())
    })?;
    let side = |number: usize| Some(TcpSide { window_scale: scales[number]?, flags: TcpFlags(flags[number]?) });
    let sides = side(0).zip(side(1)).map(|(original, reply)| [original, reply]);
    Some(state.and_then(TcpState::from_u8).map(|state| ProtocolInfo::Tcp(TcpInfo { state, sides })))
}

#[allow(clippy::option_option, reason = "as for `decode`")]
fn decode_sctp(value: &[u8]) -> Option<Option<ProtocolInfo>> {
    let (mut state, mut tags) = (None, [None; 2]);
    for_each_attribute(value, |kind, value| {
        match kind {
            numbers::SCTP_STATE => state = Some(u8_of(value)?),
            numbers::SCTP_TAG_ORIGINAL => tags[0] = Some(u32_of(value)?),
            numbers::SCTP_TAG_REPLY => tags[1] = Some(u32_of(value)?),
            _ => {}
        }
        Some(())
    })?;
    let [original, reply] = tags;
    // At the end of a connection only the state is present.
    let all = state.zip(original.zip(reply));
    Some(all.map(|(state, (original, reply))| ProtocolInfo::Sctp { state, verification_tags: [original, reply] }))
}

#[allow(clippy::option_option, reason = "as for `decode`")]
fn decode_dccp(value: &[u8]) -> Option<Option<ProtocolInfo>> {
    let (mut state, mut role) = (None, None);
    for_each_attribute(value, |kind, value| {
        match kind {
            numbers::DCCP_STATE => state = Some(u8_of(value)?),
            numbers::DCCP_ROLE => role = Some(u8_of(value)?),
            _ => {}
        }
        Some(())
    })?;
    Some(state.zip(role).map(|(state, role)| ProtocolInfo::Dccp { state, role }))
}

/// Appends the automaton's state.
pub(super) fn encode(writer: &mut Writer<'_>, kind: u16, info: &ProtocolInfo) {
    writer.nest(kind, |writer| match info {
        ProtocolInfo::Tcp(info) => writer.nest(numbers::TCP, |writer| encode_tcp(writer, info)),
        ProtocolInfo::Sctp { state, verification_tags: [original, reply] } => {
            writer.nest(numbers::SCTP, |writer| {
                writer.put(numbers::SCTP_STATE, &[*state]);
                writer.put_u32(numbers::SCTP_TAG_ORIGINAL, *original);
                writer.put_u32(numbers::SCTP_TAG_REPLY, *reply);
            });
        }
        ProtocolInfo::Dccp { state, role } => writer.nest(numbers::DCCP, |writer| {
            writer.put(numbers::DCCP_STATE, &[*state]);
            writer.put(numbers::DCCP_ROLE, &[*role]);
        }),
    });
}

fn encode_tcp(writer: &mut Writer<'_>, info: &TcpInfo) {
    writer.put(numbers::TCP_STATE, &[info.state as u8]);
    if let Some([original, reply]) = info.sides {
        writer.put(numbers::TCP_WINDOW_SCALE_ORIGINAL, &[original.window_scale]);
        writer.put(numbers::TCP_WINDOW_SCALE_REPLY, &[reply.window_scale]);
        writer.put(numbers::TCP_FLAGS_ORIGINAL, &[original.flags.0, ALL_FLAGS]);
        writer.put(numbers::TCP_FLAGS_REPLY, &[reply.flags.0, ALL_FLAGS]);
    }
}
