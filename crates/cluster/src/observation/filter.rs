//! Which packets are looked at.

use flow::wire::{Headers, Transport};
use flow::{Connection, DropReason, PortId};
use network_functions::tuple_filter::TupleFilter;

use super::Arrival;

/// Conditions on a packet as it came in, and on its outcome. All must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketFilter {
    /// Its ends. Of an ICMP error also those of the packet that it quotes, as that one's answers would have them.
    pub tuple: TupleFilter,
    /// The port that it came in on.
    pub ingress: Option<PortId>,
    /// It must be dropped.
    pub dropped: Option<Dropped>,
}

/// How a packet must be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// For whatever reason.
    Anyhow,
    /// For this reason.
    For(DropReason),
}

impl PacketFilter {
    /// Whether a packet is to be looked at as far as can be said when it comes in.
    pub(super) fn matches_arrival(&self, ingress: PortId, arrival: &Arrival) -> bool {
        self.ingress.is_none_or(|wanted| wanted == ingress)
            && match arrival {
                Arrival::Ip(headers) => self.matches_headers(headers),
                // It has no ends that could be compared.
                Arrival::Arp | Arrival::Refused(_) => self.tuple.is_empty(),
            }
    }

    /// Whether packets of a connection may match when they come in, on whatever port.
    pub(super) fn matches_connection(&self, connection: &Connection) -> bool {
        self.tuple.matches(&connection.original) || self.tuple.matches(&connection.reply)
    }

    fn matches_headers(&self, headers: &Headers) -> bool {
        let quoted = match &headers.transport {
            Transport::IcmpError(error) => self.tuple.matches(&error.inner.inverse()),
            _ => false,
        };
        quoted || self.tuple.matches(&headers.tuple)
    }

    /// Whether its outcome is what is looked for. `dropped` is the reason, if it was dropped.
    pub(super) fn matches_outcome(&self, dropped: Option<DropReason>) -> bool {
        match self.dropped {
            None => true,
            Some(Dropped::Anyhow) => dropped.is_some(),
            Some(Dropped::For(reason)) => dropped == Some(reason),
        }
    }
}
