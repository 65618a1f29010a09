//! Connections, as attributes.

use flow::netfilter::{Entry, HelperName, LABELS_BYTES, SequenceAdjustment, Status, SynProxy, ZoneDirection};

use super::attributes::{Writer, for_each_attribute, u16_of, u32_of};
use super::numbers::{connection, helper, sequence_adjust, syn_proxy};
use super::{nat, protocol_info, tuple};

/// The purpose of an encoded connection: the kernel does not accept every attribute that it reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// To be created in the kernel's table.
    Create,
    /// To change an existing connection.
    Update,
    /// As [`Purpose::Update`], with a status adjusted to the kernel's.
    RetryUpdate,
    /// To be read, as the kernel reports it.
    Describe,
}

/// Bits that only the kernel sets: in a request they have no effect, or are refused.
const KERNEL_STATUS: Status = Status::SOURCE_NAT
    .union(Status::DESTINATION_NAT)
    .union(Status::SEQUENCE_ADJUST)
    .union(Status::SOURCE_NAT_DONE)
    .union(Status::DESTINATION_NAT_DONE)
    .union(Status::DYING)
    .union(Status::TEMPLATE)
    .union(Status::UNTRACKED)
    .union(Status::OFFLOAD)
    .union(Status::HARDWARE_OFFLOAD);

/// The SYN proxy attributes of a connection without SYN proxy.
const NO_SYN_PROXY: SynProxy = SynProxy { initial_sequence: 0, server_initial_sequence: 0, timestamp_offset: 0 };

/// A connection from the attributes of a message; `None` where they are invalid.
pub(super) fn decode(attributes: &[u8]) -> Option<Entry> {
    let (mut original, mut reply, mut zone) = (None, None, None);
    let mut entry = Entry::new(super::NO_TUPLE, super::NO_TUPLE);
    let mut adjustments = [None; 2];
    for_each_attribute(attributes, |kind, value| {
        match kind {
            connection::TUPLE_ORIGINAL => original = Some(tuple::decode(value)?),
            connection::TUPLE_REPLY => reply = Some(tuple::decode(value)?),
            connection::STATUS => entry.status = Some(Status(u32_of(value)?)),
            connection::PROTOCOL_INFO => entry.protocol_info = protocol_info::decode(value)?,
            connection::HELPER => {
                if let Some(name) = decode_helper(value)? {
                    entry.extra_mut().helper = Some(name);
                }
            }
            connection::TIMEOUT => entry.timeout_s = Some(u32_of(value)?),
            connection::MARK => entry.mark = Some(u32_of(value)?),
            connection::ID => entry.id = Some(u32_of(value)?),
            connection::TUPLE_MASTER => entry.extra_mut().master = Some(tuple::decode(value)?.0),
            connection::SEQUENCE_ADJUST_ORIGINAL => adjustments[0] = Some(decode_adjustment(value)?),
            connection::SEQUENCE_ADJUST_REPLY => adjustments[1] = Some(decode_adjustment(value)?),
            connection::ZONE => zone = Some(u16_of(value)?),
            connection::LABELS => entry.extra_mut().labels = Some(decode_labels(value)?),
            connection::SYN_PROXY => match decode_syn_proxy(value)? {
                // The kernel reports it for every connection that was created by request.
                NO_SYN_PROXY => {}
                proxy => entry.extra_mut().syn_proxy = Some(proxy),
            },
            _ => {}
        }
        Some(())
    })?;
    let ((original, original_zone), (reply, reply_zone)) = (original?, reply?);
    if original.is_v6() != reply.is_v6() {
        return None;
    }
    (entry.original, entry.reply) = (original, reply);
    // A zone of one direction is only in its tuple.
    let directed = original_zone.map(|zone| (zone, ZoneDirection::Original));
    let directed = directed.or(reply_zone.map(|zone| (zone, ZoneDirection::Reply)));
    match (zone, directed) {
        (Some(zone), _) => entry.zone = zone,
        (None, Some((zone, direction))) => {
            entry.zone = zone;
            entry.extra_mut().zone_direction = Some(direction);
        }
        (None, None) => {}
    }
    if let [Some(original), Some(reply)] = adjustments {
        entry.extra_mut().sequence_adjustment = Some([original, reply]);
    }
    Some(entry)
}

/// `Some(None)` where it is no valid name.
#[allow(clippy::option_option, reason = "not understood and malformed are two things")]
fn decode_helper(value: &[u8]) -> Option<Option<HelperName>> {
    let mut name = None;
    for_each_attribute(value, |kind, value| {
        if kind == helper::NAME {
            name = decode_name(value);
        }
        Some(())
    })?;
    Some(name)
}

/// A name without the zero at its end.
pub(super) fn decode_name(value: &[u8]) -> Option<HelperName> {
    HelperName::new(value.split(|byte| *byte == 0).next().unwrap_or_default())
}

fn decode_labels(value: &[u8]) -> Option<[u8; LABELS_BYTES]> {
    let mut labels = [0; LABELS_BYTES];
    labels.get_mut(..value.len())?.copy_from_slice(value);
    Some(labels)
}

fn decode_adjustment(value: &[u8]) -> Option<SequenceAdjustment> {
    let mut adjustment = SequenceAdjustment::default();
    for_each_attribute(value, |kind, value| {
        match kind {
            sequence_adjust::CORRECTION_POSITION => adjustment.correction_position = u32_of(value)?,
            sequence_adjust::OFFSET_BEFORE => adjustment.offset_before = u32_of(value)?,
            sequence_adjust::OFFSET_AFTER => adjustment.offset_after = u32_of(value)?,
            _ => {}
        }
        Some(())
    })?;
    Some(adjustment)
}

fn decode_syn_proxy(value: &[u8]) -> Option<SynProxy> {
    let mut proxy = SynProxy::default();
    for_each_attribute(value, |kind, value| {
        match kind {
            syn_proxy::INITIAL_SEQUENCE => proxy.initial_sequence = u32_of(value)?,
            syn_proxy::SERVER_INITIAL_SEQUENCE => proxy.server_initial_sequence = u32_of(value)?,
            syn_proxy::TIMESTAMP_OFFSET => proxy.timestamp_offset = u32_of(value)?,
            _ => {}
        }
        Some(())
    })?;
    Some(proxy)
}

/// Appends the attributes of a connection.
pub(super) fn encode(writer: &mut Writer<'_>, entry: &Entry, purpose: Purpose) {
    encode_name(writer, entry, purpose);
    if let Some(status) = entry.status {
        writer.put_u32(connection::STATUS, status_for(entry, status, purpose).0);
    }
    let is_fixed = entry.status.is_some_and(|status| status.contains(Status::FIXED_TIMEOUT));
    let is_update = matches!(purpose, Purpose::Update | Purpose::RetryUpdate);
    // With a fixed timeout the kernel refuses the whole update.
    if let Some(timeout_s) = entry.timeout_s.filter(|_| !(is_fixed && is_update)) {
        writer.put_u32(connection::TIMEOUT, timeout_s);
    }
    if let Some(info) = &entry.protocol_info {
        protocol_info::encode(writer, connection::PROTOCOL_INFO, info);
    }
    if let Some(mark) = entry.mark {
        writer.put_u32(connection::MARK, mark);
    }
    encode_extra(writer, entry, purpose);
}

/// Appends the attributes that identify a connection.
fn encode_name(writer: &mut Writer<'_>, entry: &Entry, purpose: Purpose) {
    let is_whole = matches!(purpose, Purpose::Create | Purpose::Describe);
    let direction = entry.zone_direction().filter(|_| is_whole);
    let zone_of = |of: ZoneDirection| (direction == Some(of)).then_some(entry.zone);
    let reply_zone = zone_of(ZoneDirection::Reply);
    tuple::encode_in_zone(writer, connection::TUPLE_ORIGINAL, &entry.original, zone_of(ZoneDirection::Original));
    match purpose {
        // The kernel translates the reply tuple itself: given the translated one, it would find no difference and
        // create an untranslated connection.
        Purpose::Create if nat::is_translated(entry) => {
            tuple::encode_in_zone(writer, connection::TUPLE_REPLY, &entry.original.inverse(), reply_zone);
            nat::encode(writer, entry);
        }
        Purpose::Create | Purpose::Describe => {
            tuple::encode_in_zone(writer, connection::TUPLE_REPLY, &entry.reply, reply_zone);
        }
        Purpose::Update | Purpose::RetryUpdate => {}
    }
    let zone = if is_whole { entry.zone } else { entry.zone_of_original() };
    if zone != 0 && direction.is_none() {
        writer.put_u16(connection::ZONE, zone);
    }
    if let (Some(id), Purpose::Describe) = (entry.id, purpose) {
        writer.put_u32(connection::ID, id);
    }
}

fn status_for(entry: &Entry, status: Status, purpose: Purpose) -> Status {
    match purpose {
        Purpose::Describe => return status,
        Purpose::RetryUpdate => return status.without(KERNEL_STATUS).union(Status::CONFIRMED),
        Purpose::Create | Purpose::Update => {}
    }
    let has_master = entry.extra.as_deref().is_some_and(|extra| extra.master.is_some());
    let status = status.without(KERNEL_STATUS).union(Status::CONFIRMED);
    // The kernel marks a connection as expected only if it is created with its master.
    let is_expected = purpose == Purpose::Update && has_master;
    if is_expected { status.union(Status::EXPECTED) } else { status.without(Status::EXPECTED) }
}

fn encode_extra(writer: &mut Writer<'_>, entry: &Entry, purpose: Purpose) {
    let Some(extra) = entry.extra.as_deref() else { return };
    if let Some(labels) = &extra.labels {
        writer.put(connection::LABELS, labels);
    }
    if let Some([original, reply]) = &extra.sequence_adjustment {
        encode_adjustment(writer, connection::SEQUENCE_ADJUST_ORIGINAL, original);
        encode_adjustment(writer, connection::SEQUENCE_ADJUST_REPLY, reply);
    }
    if let Some(proxy) = &extra.syn_proxy {
        writer.nest(connection::SYN_PROXY, |writer| {
            writer.put_u32(syn_proxy::INITIAL_SEQUENCE, proxy.initial_sequence);
            writer.put_u32(syn_proxy::SERVER_INITIAL_SEQUENCE, proxy.server_initial_sequence);
            writer.put_u32(syn_proxy::TIMESTAMP_OFFSET, proxy.timestamp_offset);
        });
    }
    if matches!(purpose, Purpose::Update | Purpose::RetryUpdate) {
        return;
    }
    if let Some(name) = &extra.helper {
        writer.nest(connection::HELPER, |writer| writer.put_name(helper::NAME, name.as_str()));
    }
    if let Some(master) = &extra.master {
        tuple::encode(writer, connection::TUPLE_MASTER, master);
    }
}

fn encode_adjustment(writer: &mut Writer<'_>, kind: u16, adjustment: &SequenceAdjustment) {
    writer.nest(kind, |writer| {
        writer.put_u32(sequence_adjust::CORRECTION_POSITION, adjustment.correction_position);
        writer.put_u32(sequence_adjust::OFFSET_BEFORE, adjustment.offset_before);
        writer.put_u32(sequence_adjust::OFFSET_AFTER, adjustment.offset_after);
    });
}
