//! From attributes to the connection.

use core::net::IpAddr;

use flow::netfilter::{
    Discriminator, Entry, Extra, HelperName, LABELS_BYTES, ProtocolInfo, SequenceAdjustment, Status, SynProxy,
    TcpFlags, TcpInfo, TcpSide, TcpState, Tuple,
};

use super::*;
use crate::conntrackd::object::ObjectError;
use crate::conntrackd::object::attribute::{Attribute, read};

/// Reads a connection.
///
/// # Errors
/// What is wrong with it.
pub fn decode(bytes: &[u8]) -> Result<Entry, ObjectError> {
    let mut fields = Fields::default();
    for attribute in read(bytes) {
        fields.take(&attribute?)?;
    }
    fields.connection()
}

/// What was read, before it is put together.
#[derive(Default)]
struct Fields {
    tuple: TupleFields,
    master: TupleFields,
    translation: Translation,
    icmp: [Option<u16>; 3],
    tcp_state: Option<TcpState>,
    window_scales: [Option<u8>; 2],
    sctp_state: Option<u8>,
    sctp_tags: [Option<u32>; 2],
    dccp: [Option<u8>; 2],
    status: Option<Status>,
    timeout_s: Option<u32>,
    mark: Option<u32>,
    zone: u16,
    labels: Option<[u8; LABELS_BYTES]>,
    helper: Option<HelperName>,
    sequence_adjustment: Option<[SequenceAdjustment; 2]>,
    syn_proxy: Option<SynProxy>,
}

/// A tuple as it is spread over attributes.
#[derive(Default)]
struct TupleFields {
    addresses: Option<[IpAddr; 2]>,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
}

impl Fields {
    fn take(&mut self, attribute: &Attribute<'_>) -> Result<(), ObjectError> {
        match attribute.kind {
            ADDRESSES_V4 => self.tuple.addresses = Some(attribute.addresses_v4()?),
            ADDRESSES_V6 => self.tuple.addresses = Some(attribute.addresses_v6()?),
            PROTOCOL => self.tuple.protocol = Some(attribute.u8()?),
            PORTS => self.tuple.ports = Some(attribute.ports()?),
            STATUS => self.status = Some(Status(attribute.u32()?)),
            TIMEOUT => self.timeout_s = Some(attribute.u32()?),
            MARK => self.mark = Some(attribute.u32()?),
            ZONE => self.zone = attribute.u16()?,
            MASTER_V4 => self.master.addresses = Some(attribute.addresses_v4()?),
            MASTER_V6 => self.master.addresses = Some(attribute.addresses_v6()?),
            MASTER_PROTOCOL => self.master.protocol = Some(attribute.u8()?),
            MASTER_PORTS => self.master.ports = Some(attribute.ports()?),
            SOURCE_NAT_V4 => self.translation.source = Some(attribute.address_v4()?),
            SOURCE_NAT_V6 => self.translation.source = Some(attribute.address_v6()?),
            DESTINATION_NAT_V4 => self.translation.destination = Some(attribute.address_v4()?),
            DESTINATION_NAT_V6 => self.translation.destination = Some(attribute.address_v6()?),
            SOURCE_NAT_PORT => self.translation.source_port = Some(attribute.u16_swapped()?),
            DESTINATION_NAT_PORT => self.translation.destination_port = Some(attribute.u16_swapped()?),
            HELPER => self.helper = Some(attribute.name()?),
            LABELS => self.labels = Some(labels(attribute)?),
            SEQUENCE_ADJUSTMENT => self.sequence_adjustment = Some(sequence_adjustment(attribute)?),
            SYN_PROXY => {
                let [server_initial_sequence, initial_sequence, timestamp_offset] = attribute.words()?;
                let proxy = SynProxy { initial_sequence, server_initial_sequence, timestamp_offset };
                // Kernels that can do it report it of every connection.
                self.syn_proxy = Some(proxy).filter(|proxy| *proxy != SynProxy::default());
            }
            _ => return self.take_protocol(attribute),
        }
        Ok(())
    }

    fn take_protocol(&mut self, attribute: &Attribute<'_>) -> Result<(), ObjectError> {
        match attribute.kind {
            TCP_STATE => {
                let state = TcpState::from_u8(attribute.u8()?);
                self.tcp_state = Some(state.ok_or_else(|| attribute.wrong())?);
            }
            WINDOW_SCALE_ORIGINAL => self.window_scales[0] = Some(attribute.u8()?),
            WINDOW_SCALE_REPLY => self.window_scales[1] = Some(attribute.u8()?),
            SCTP_STATE => self.sctp_state = Some(attribute.u8()?),
            SCTP_TAG_ORIGINAL => self.sctp_tags[0] = Some(attribute.u32()?.swap_bytes()),
            SCTP_TAG_REPLY => self.sctp_tags[1] = Some(attribute.u32()?.swap_bytes()),
            DCCP_STATE => self.dccp[0] = Some(attribute.u8()?),
            DCCP_ROLE => self.dccp[1] = Some(attribute.u8()?),
            ICMP_TYPE => self.icmp[0] = Some(attribute.u8()?.into()),
            ICMP_CODE => self.icmp[1] = Some(attribute.u8()?.into()),
            ICMP_ID => self.icmp[2] = Some(attribute.u16_swapped()?),
            unknown => return Err(ObjectError::Unknown(unknown)),
        }
        Ok(())
    }

    fn connection(self) -> Result<Entry, ObjectError> {
        let [source, destination] = self.tuple.addresses.ok_or(ObjectError::Missing(ADDRESSES_V4))?;
        let protocol = self.tuple.protocol.ok_or(ObjectError::Missing(PROTOCOL))?;
        let discriminator = self.discriminator(protocol)?;
        let original = Tuple { source, destination, protocol, discriminator };
        let has_ports = original.has_ports();
        if has_ports && !matches!(discriminator, Discriminator::Ports { .. }) {
            return Err(ObjectError::Missing(PORTS));
        }
        for (address, kind) in
            [(self.translation.source, SOURCE_NAT_V4), (self.translation.destination, DESTINATION_NAT_V4)]
        {
            if address.is_some_and(|address| address.is_ipv6() != source.is_ipv6()) {
                return Err(ObjectError::Value(kind));
            }
        }
        let reply = self.translation.apply(&original);
        let protocol_info = self.protocol_info(protocol)?;
        let master = self.master()?;
        let Self { zone, status, timeout_s, mark, labels, helper, sequence_adjustment, syn_proxy, .. } = self;
        let extra = Extra { labels, helper, master, sequence_adjustment, syn_proxy, zone_direction: None };
        let extra = (extra != Extra::default()).then(|| extra.into());
        Ok(Entry { zone, status, timeout_s, protocol_info, mark, extra, ..Entry::new(original, reply) })
    }

    fn discriminator(&self, protocol: u8) -> Result<Discriminator, ObjectError> {
        if let ICMP | ICMP_V6 = protocol {
            let part = |index: usize, kind: u16| self.icmp[index].ok_or(ObjectError::Missing(kind));
            let (kind, code, id) = (part(0, ICMP_TYPE)?, part(1, ICMP_CODE)?, part(2, ICMP_ID)?);
            // Both were read from a byte.
            return Ok(Discriminator::Icmp { kind: kind as u8, code: code as u8, id });
        }
        // conntrackd understands the keys of GRE, and does not send them.
        let ports = self.tuple.ports.or((protocol == GRE).then_some((0, 0)));
        Ok(ports.map_or(Discriminator::Nothing, |(source, destination)| Discriminator::Ports { source, destination }))
    }

    fn protocol_info(&self, protocol: u8) -> Result<Option<ProtocolInfo>, ObjectError> {
        let said = [
            (self.tcp_state.is_some(), TCP, TCP_STATE),
            (self.sctp_state.is_some(), SCTP, SCTP_STATE),
            (self.dccp[0].is_some(), DCCP, DCCP_STATE),
        ];
        if let Some((_, _, kind)) = said.iter().find(|(is_said, of, _)| *is_said && *of != protocol) {
            return Err(ObjectError::Value(*kind));
        }
        let tcp = self.tcp_state.map(|state| ProtocolInfo::Tcp(TcpInfo { state, sides: self.sides() }));
        let tags = self.sctp_tags.map(Option::unwrap_or_default);
        let sctp = self.sctp_state.map(|state| ProtocolInfo::Sctp { state, verification_tags: tags });
        let dccp = self.dccp[0].map(|state| ProtocolInfo::Dccp { state, role: self.dccp[1].unwrap_or_default() });
        Ok(tcp.or(sctp).or(dccp))
    }

    /// Where only scales are sent, nothing is known of the windows themselves: segments are to be let through.
    fn sides(&self) -> Option<[TcpSide; 2]> {
        let [Some(original), Some(reply)] = self.window_scales else { return None };
        let flags = TcpFlags::WINDOW_SCALE.union(TcpFlags::BE_LIBERAL);
        Some([original, reply].map(|window_scale| TcpSide { window_scale, flags }))
    }

    fn master(&self) -> Result<Option<Tuple>, ObjectError> {
        let Some([source, destination]) = self.master.addresses else { return Ok(None) };
        let protocol = self.master.protocol.ok_or(ObjectError::Missing(MASTER_PROTOCOL))?;
        let discriminator = self
            .master
            .ports
            .map_or(Discriminator::Nothing, |(source, destination)| Discriminator::Ports { source, destination });
        Ok(Some(Tuple { source, destination, protocol, discriminator }))
    }
}

fn sequence_adjustment(attribute: &Attribute<'_>) -> Result<[SequenceAdjustment; 2], ObjectError> {
    let words: [u32; 6] = attribute.words()?;
    let side = |at: usize| SequenceAdjustment {
        correction_position: words[at],
        offset_before: words[at + 1],
        offset_after: words[at + 2],
    };
    Ok([side(0), side(3)])
}

/// Words of 32 bits, the first with the first labels; label `n` of this node is bit `n % 8` of byte `n / 8`.
fn labels(attribute: &Attribute<'_>) -> Result<[u8; LABELS_BYTES], ObjectError> {
    let mut labels = [0; LABELS_BYTES];
    let value = attribute.value;
    if value.len() > LABELS_BYTES || !value.len().is_multiple_of(4) {
        return Err(ObjectError::ValueSize(attribute.kind));
    }
    labels[..value.len()].copy_from_slice(value);
    labels.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
    Ok(labels)
}
