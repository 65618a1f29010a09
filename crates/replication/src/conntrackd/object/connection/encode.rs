//! From a connection to its attributes.

use alloc::vec::Vec;

use flow::netfilter::{Discriminator, Entry, Extra, ProtocolInfo, SequenceAdjustment, TcpInfo};

use super::*;
use crate::conntrackd::object::EncodeError;
use crate::conntrackd::object::attribute::{put, put_addresses, put_name, put_ports, put_words};

/// Appends a connection. What is not known of it is left out. With `replicates_window_scales`, TCP's scales are included.
///
/// # Errors
/// conntrackd has no words for it; nothing is appended.
pub fn encode(entry: &Entry, replicates_window_scales: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let at = out.len();
    let result = put_connection(entry, replicates_window_scales, out);
    if result.is_err() {
        out.truncate(at);
    }
    result
}

fn put_connection(entry: &Entry, replicates_window_scales: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let original = &entry.original;
    let translation = Translation::of(entry)?;
    if !put_addresses(out, [ADDRESSES_V4, ADDRESSES_V6], [original.source, original.destination]) {
        return Err(EncodeError::Families);
    }
    put(out, PROTOCOL, &[original.protocol]);
    match original.discriminator {
        Discriminator::Ports { source, destination } => put_ports(out, PORTS, (source, destination)),
        Discriminator::Icmp { kind, code, id } => {
            put(out, ICMP_TYPE, &[kind]);
            put(out, ICMP_CODE, &[code]);
            put(out, ICMP_ID, &id.to_le_bytes());
        }
        Discriminator::Nothing => {}
    }
    let numbers = [(STATUS, entry.status.map(|status| status.0)), (TIMEOUT, entry.timeout_s), (MARK, entry.mark)];
    for (kind, number) in numbers {
        number.into_iter().for_each(|number| put_words(out, kind, [number]));
    }
    put_protocol_info(entry, replicates_window_scales, out)?;
    translation.put(out);
    entry.extra.as_deref().map_or(Ok(()), |extra| put_extra(extra, out))?;
    if entry.zone_direction().is_some() {
        return Err(EncodeError::ZoneDirection);
    }
    if entry.zone != 0 {
        put(out, ZONE, &entry.zone.to_be_bytes());
    }
    Ok(())
}

fn put_protocol_info(entry: &Entry, replicates_window_scales: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match (entry.protocol_info, entry.original.protocol) {
        (Some(ProtocolInfo::Tcp(TcpInfo { state, sides })), TCP) => {
            put(out, TCP_STATE, &[state as u8]);
            if let Some([original, reply]) = sides.filter(|_| replicates_window_scales) {
                put(out, WINDOW_SCALE_ORIGINAL, &[original.window_scale]);
                put(out, WINDOW_SCALE_REPLY, &[reply.window_scale]);
            }
        }
        (Some(ProtocolInfo::Sctp { state, verification_tags: [original, reply] }), SCTP) => {
            put(out, SCTP_STATE, &[state]);
            put(out, SCTP_TAG_ORIGINAL, &original.to_le_bytes());
            put(out, SCTP_TAG_REPLY, &reply.to_le_bytes());
        }
        (Some(ProtocolInfo::Dccp { state, role }), DCCP) => {
            put(out, DCCP_STATE, &[state]);
            put(out, DCCP_ROLE, &[role]);
        }
        (None, _) => {}
        (Some(_), _) => return Err(EncodeError::ProtocolInfo),
    }
    Ok(())
}

fn put_extra(extra: &Extra, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if let Some(master) = &extra.master {
        if !put_addresses(out, [MASTER_V4, MASTER_V6], [master.source, master.destination]) {
            return Err(EncodeError::Families);
        }
        put(out, MASTER_PROTOCOL, &[master.protocol]);
        if let Discriminator::Ports { source, destination } = master.discriminator {
            put_ports(out, MASTER_PORTS, (source, destination));
        }
    }
    if let Some([original, reply]) = extra.sequence_adjustment {
        let words = |side: SequenceAdjustment| [side.correction_position, side.offset_before, side.offset_after];
        put_words::<6>(out, SEQUENCE_ADJUSTMENT, flatten([words(original), words(reply)]));
    }
    extra.helper.into_iter().for_each(|name| put_name(out, HELPER, name));
    if let Some(labels) = extra.labels {
        let mut bytes = labels;
        bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
        put(out, LABELS, &bytes);
    }
    if let Some(proxy) = extra.syn_proxy {
        let words = [proxy.server_initial_sequence, proxy.initial_sequence, proxy.timestamp_offset];
        put_words(out, SYN_PROXY, words);
    }
    Ok(())
}

const fn flatten([[a, b, c], [d, e, f]]: [[u32; 3]; 2]) -> [u32; 6] {
    [a, b, c, d, e, f]
}
