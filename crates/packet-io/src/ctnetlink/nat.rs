//! Translation, encoded for the kernel as ranges of one address and one port.

use std::net::IpAddr;

use flow::netfilter::{Discriminator, Entry, Tuple};

use super::attributes::Writer;
use super::numbers::{connection, nat};

/// Whether the reply tuple differs from the original's inverse.
pub(super) fn is_translated(entry: &Entry) -> bool {
    entry.reply != entry.original.inverse()
}

/// Appends the translation from the original's inverse to the reply tuple.
pub(super) fn encode(writer: &mut Writer<'_>, entry: &Entry) {
    let (plain, reply) = (entry.original.inverse(), &entry.reply);
    // Replies go to the source as it is after translation, and come from the destination as it is.
    let source = (reply.destination, destination_port(reply));
    if source != (plain.destination, destination_port(&plain)) {
        encode_range(writer, connection::NAT_SOURCE, source.0, source.1);
    }
    let destination = (reply.source, source_port(reply));
    if destination != (plain.source, source_port(&plain)) {
        encode_range(writer, connection::NAT_DESTINATION, destination.0, destination.1);
    }
}

fn source_port(reply: &Tuple) -> Option<u16> {
    match reply.discriminator {
        Discriminator::Ports { source, .. } => Some(source),
        _ => None,
    }
}

/// A query's identifier belongs to the requester: it is translated with the source.
fn destination_port(reply: &Tuple) -> Option<u16> {
    match reply.discriminator {
        Discriminator::Ports { destination, .. } => Some(destination),
        Discriminator::Icmp { id, .. } => Some(id),
        Discriminator::Nothing => None,
    }
}

fn encode_range(writer: &mut Writer<'_>, kind: u16, address: IpAddr, port: Option<u16>) {
    writer.nest(kind, |writer| {
        super::tuple::encode_address(writer, [nat::V4_MINIMUM, nat::V6_MINIMUM], address);
        super::tuple::encode_address(writer, [nat::V4_MAXIMUM, nat::V6_MAXIMUM], address);
        if let Some(port) = port {
            // Stated even if unchanged: the kernel could otherwise choose another.
            writer.nest(nat::PROTOCOL, |writer| {
                writer.put_u16(nat::PORT_MINIMUM, port);
                writer.put_u16(nat::PORT_MAXIMUM, port);
            });
        }
    });
}
