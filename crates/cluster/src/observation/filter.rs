//! Which packets are looked at.

use alloc::vec::Vec;
use core::net::SocketAddr;

use flow::wire::{Headers, Transport, ip_protocol};
use flow::{Connection, Direction, DropReason, Frame, PortId, Tuple};
use network_functions::tuple_filter::TupleFilter;

use super::Arrival;
use crate::forwarding::is_path_frame;

/// Conditions on a packet as it came in, and on its outcome. All must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketFilter {
    /// Its ends, as it came in or, on a known connection, as it leaves. Of an ICMP error also those of the packet that it
    /// quotes, as that one's answers would have them.
    pub tuple: TupleFilter,
    /// The port that it came in on.
    pub ingress: Option<PortId>,
    /// It must be dropped.
    pub dropped: Option<Dropped>,
    /// Whether frames that nodes and edges exchange among themselves are looked at, too.
    pub own_frames: OwnFrames,
}

/// Frames that nodes and edges exchange among themselves: heartbeats, replication, edge control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnFrames {
    /// They are left out. Datagrams between these addresses and peers are among them, unless the tuple is asked for.
    LeftOut(Vec<SocketAddr>),
    /// They are packets as others.
    Included,
}

impl Default for OwnFrames {
    fn default() -> Self {
        Self::LeftOut(Vec::new())
    }
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
    /// Whether a packet is to be looked at as far as can be said when it comes in. `find` looks the connection of a tuple up.
    pub(super) fn matches_arrival<'a>(
        &self,
        frame: &Frame<'_>,
        arrival: &Arrival,
        find: impl Fn(&Tuple) -> Option<(&'a Connection, Direction)>,
    ) -> bool {
        self.ingress.is_none_or(|wanted| wanted == frame.ingress)
            && !self.leaves_out(frame, arrival)
            && match arrival {
                Arrival::Ip(headers) => self.matches_headers(headers, find),
                // It has no ends that could be compared.
                Arrival::Arp | Arrival::Refused(_) => self.tuple.is_empty(),
            }
    }

    /// Whether it is one of the nodes' own frames, and these are not wanted.
    fn leaves_out(&self, frame: &Frame<'_>, arrival: &Arrival) -> bool {
        let OwnFrames::LeftOut(addresses) = &self.own_frames else { return false };
        match arrival {
            Arrival::Ip(headers) => {
                let Tuple { protocol, source_port, destination_port, .. } = headers.tuple;
                let ends = [
                    SocketAddr::new(headers.tuple.source_ip(), source_port),
                    SocketAddr::new(headers.tuple.destination_ip(), destination_port),
                ];
                protocol == ip_protocol::UDP
                    && self.tuple.is_empty()
                    && addresses.iter().any(|address| ends.contains(address))
            }
            Arrival::Refused(_) => is_path_frame(frame.bytes()),
            Arrival::Arp => false,
        }
    }

    /// Whether packets of a connection may match when they come in, on whatever port.
    pub(super) fn matches_connection(&self, connection: &Connection) -> bool {
        [Direction::Original, Direction::Reply].into_iter().any(|direction| self.matches_way(connection, direction))
    }

    /// Whether the packets of a connection in one direction match, as they come in or as they leave.
    fn matches_way(&self, connection: &Connection, direction: Direction) -> bool {
        let ends = match direction {
            Direction::Original => [connection.original, connection.reply.inverse()],
            Direction::Reply => [connection.reply, connection.original.inverse()],
        };
        self.tuple.matches_any(&ends)
    }

    fn matches_headers<'a>(
        &self,
        headers: &Headers,
        find: impl Fn(&Tuple) -> Option<(&'a Connection, Direction)>,
    ) -> bool {
        let quoted = match &headers.transport {
            Transport::IcmpError(error) => Some(error.inner.inverse()),
            _ => None,
        };
        let is_asked_for = |tuple: &Tuple| self.tuple.matches(tuple);
        if is_asked_for(&headers.tuple) || quoted.as_ref().is_some_and(is_asked_for) {
            return true;
        }
        // Its translation may be what is asked for: both directions of a connection match the same conditions.
        let found = find(quoted.as_ref().unwrap_or(&headers.tuple));
        found.is_some_and(|(connection, direction)| self.matches_way(connection, direction))
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
