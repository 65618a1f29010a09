//! What is installed: a connection with both directions, and next hops.

use super::activity::Windows;
use crate::connection::flags::{ASSURED, REPLICA, REPLIED, SHARED};
use crate::conntrack::{UdpState, is_established};
use crate::wire::ip_protocol;
use crate::{Connection, Direction, Tuple};

/// The largest shift of a window (RFC 7323 section 2.3).
const WINDOW_SCALE_MAX: u8 = 14;

/// One direction of a connection: how its packets come in, and how they go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectionPlan {
    /// The tuple of packets as they come in: TCP or UDP.
    pub tuple: Tuple,
    /// The tuple of packets as they go out, of the same family and protocol.
    pub translated: Tuple,
    /// The index of the interface on which packets come in.
    pub ingress: u32,
    /// The next hop, by its index.
    pub next_hop: u32,
}

/// A connection to install.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The original direction, then the reply direction.
    pub directions: [DirectionPlan; 2],
    /// The windows of a TCP connection; `None` for UDP.
    pub windows: Option<Windows>,
    /// Segments outside the windows are forwarded too, and change nothing.
    pub is_liberal: bool,
    /// By direction: bridged frames are forwarded only if they are for this link address. `None`: for any but a group's. Routed frames
    /// are for their interface's own.
    pub link_addresses: [Option<[u8; 6]>; 2],
}

impl Plan {
    /// The plan of a bridged connection, whose packets go on as they are; its windows are followed, and not enforced. `original` is the tuple
    /// of packets of the original direction; `ingress` and `next_hops` are by direction.
    #[must_use]
    pub fn bridged(original: &Tuple, windows: Option<Windows>, ingress: [u32; 2], next_hops: [u32; 2]) -> Self {
        let direction = |tuple: Tuple, direction: usize| DirectionPlan {
            tuple,
            translated: tuple,
            ingress: ingress[direction],
            next_hop: next_hops[direction],
        };
        let directions = [direction(*original, 0), direction(original.inverse(), 1)];
        Self { directions, windows, is_liberal: true, link_addresses: [None; 2] }
    }

    /// The plan of an established connection, `ingress` and `next_hops` by direction. `None`: the connection's packets
    /// are not all plain yet or any more. It must be established, answered and assured (TCP) with both windows known, and neither
    /// a replica nor shared with another node.
    #[must_use]
    pub fn of(connection: &Connection, ingress: [u32; 2], next_hops: [u32; 2]) -> Option<Self> {
        let protocol = connection.original.protocol;
        let windows = match protocol {
            ip_protocol::TCP if connection.flags & ASSURED != 0 => Some(Windows::of(&connection.protocol)?),
            ip_protocol::UDP if connection.protocol.state == UdpState::Replied as u8 => None,
            _ => return None,
        };
        let plan = |direction: Direction| DirectionPlan {
            tuple: *connection.tuple(direction),
            translated: connection.translated(direction),
            ingress: ingress[direction.index()],
            next_hop: next_hops[direction.index()],
        };
        let directions = [plan(Direction::Original), plan(Direction::Reply)];
        is_settled(connection).then_some(Self { directions, windows, is_liberal: false, link_addresses: [None; 2] })
    }

    /// Checks that the plan can be carried out.
    ///
    /// # Errors
    /// What contradicts itself.
    pub fn check(&self) -> Result<(), PlanError> {
        let [original, reply] = &self.directions;
        for DirectionPlan { tuple, translated, .. } in &self.directions {
            let kind = |tuple: &Tuple| (tuple.version, tuple.protocol);
            if kind(tuple) != kind(translated) || kind(tuple) != kind(&original.tuple) {
                return Err(PlanError::KindsDiffer { tuple: *tuple, translated: *translated });
            }
            if !matches!(tuple.protocol, ip_protocol::TCP | ip_protocol::UDP) {
                return Err(PlanError::Protocol(*tuple));
            }
        }
        if (original.tuple, original.ingress) == (reply.tuple, reply.ingress) {
            return Err(PlanError::SameDirections(original.tuple));
        }
        if self.windows.is_some() != (original.tuple.protocol == ip_protocol::TCP) {
            return Err(PlanError::Windows(original.tuple));
        }
        let scales = self.windows.iter().flat_map(|windows| windows.sides).map(|side| side.window_scale);
        if scales.into_iter().any(|scale| scale > WINDOW_SCALE_MAX) {
            return Err(PlanError::WindowScale(original.tuple));
        }
        Ok(())
    }
}

/// Whether all packets of a connection are plain now: it is established and answered, and neither a replica nor shared with
/// another node.
#[must_use]
pub fn is_settled(connection: &Connection) -> bool {
    is_established(connection.original.protocol, &connection.protocol)
        && connection.flags & (REPLIED | REPLICA | SHARED) == REPLIED
}

/// Why a plan cannot be carried out. The fault of the caller that made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// Translation changes the family or the protocol, or the directions differ in them.
    #[error("{tuple} cannot go out as {translated}: families and protocols must be the same")]
    KindsDiffer {
        /// As packets come in.
        tuple: Tuple,
        /// As they go out.
        translated: Tuple,
    },
    /// Only TCP and UDP can be planned.
    #[error("{0} is neither TCP nor UDP")]
    Protocol(Tuple),
    /// Packets of both directions look alike.
    #[error("both directions come in as {0} on one interface")]
    SameDirections(Tuple),
    /// Windows are missing, or a protocol without them has some.
    #[error("{0}: TCP connections have windows, others have none")]
    Windows(Tuple),
    /// A shift that TCP does not know (RFC 7323 section 2.3).
    #[error("{0}: a window's shift is at most 14")]
    WindowScale(Tuple),
}

/// Where packets go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The index of the interface.
    pub ifindex: u32,
    /// The link address of the neighbour. All zero: bridged frames keep their own.
    pub destination: [u8; 6],
    /// The link address of the interface. Bridged frames keep their own source.
    pub source: [u8; 6],
    /// The longest packet, from the IP header on, in bytes.
    pub mtu_bytes: u32,
    /// Packets skip the interface, a virtual cable's end, and go to the ingress of its other end in another namespace
    /// (`bpf_redirect_peer`).
    pub to_peer: bool,
}

impl NextHop {
    /// A next hop through the interface `ifindex`, whose link address is `source`, to the neighbour `destination`.
    #[must_use]
    pub const fn new(ifindex: u32, source: [u8; 6], destination: [u8; 6], mtu_bytes: u32) -> Self {
        Self { ifindex, destination, source, mtu_bytes, to_peer: false }
    }

    /// A next hop of bridged frames, which keep their source, and without a `destination` their destination, too.
    #[must_use]
    pub const fn bridged(ifindex: u32, destination: Option<[u8; 6]>, mtu_bytes: u32) -> Self {
        let destination = match destination {
            Some(address) => address,
            None => [0; 6],
        };
        Self { ifindex, destination, source: [0; 6], mtu_bytes, to_peer: false }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::string::ToString;

    use crate::conntrack::{ProtocolState, TcpPeer, TcpState, peer_flags};
    use crate::{Instant, NodeId};

    use super::*;

    fn connection(protocol: u8) -> Connection {
        let (client, server) = ((Ipv4Addr::new(10, 0, 0, 2), 4000), (Ipv4Addr::new(192, 0, 2, 1), 80));
        let peer = TcpPeer { window_max: 1000, flags: peer_flags::ACKNOWLEDGED, ..TcpPeer::default() };
        let state = if protocol == ip_protocol::TCP { TcpState::Established as u8 } else { UdpState::Replied as u8 };
        let state = ProtocolState { state, peers: [peer; 2], ..ProtocolState::default() };
        let mut new = Connection::new(Tuple::v4(protocol, client, server), NodeId(0), state, Instant::ZERO);
        new.reply.destination = Tuple::v4(6, (Ipv4Addr::new(198, 51, 100, 7), 0), server).source;
        new.flags = REPLIED | ASSURED;
        new
    }

    #[test]
    fn an_established_connection_is_planned_with_its_translation() {
        let plan = Plan::of(&connection(ip_protocol::TCP), [3, 4], [1, 0]).unwrap();
        let [original, reply] = plan.directions;
        assert_eq!((original.ingress, original.next_hop, reply.ingress, reply.next_hop), (3, 1, 4, 0));
        assert_eq!(original.translated.source_ip().to_string(), "198.51.100.7");
        assert_eq!(reply.translated, original.tuple.inverse());
        plan.check().unwrap();
        Plan::of(&connection(ip_protocol::UDP), [3, 4], [1, 0]).unwrap().check().unwrap();
    }

    #[test]
    fn connections_that_are_not_settled_are_not_planned() {
        let plan = |change: &dyn Fn(&mut Connection)| {
            let mut changed = connection(ip_protocol::TCP);
            change(&mut changed);
            Plan::of(&changed, [3, 4], [1, 0])
        };
        assert!(plan(&|connection| connection.flags &= !ASSURED).is_none());
        assert!(plan(&|connection| connection.flags |= SHARED).is_none());
        assert!(plan(&|connection| connection.flags |= REPLICA).is_none());
        assert!(plan(&|connection| connection.protocol.state = TcpState::FinWait as u8).is_none());
        assert!(plan(&|connection| connection.protocol.peers[1].window_max = 0).is_none());
        // After a take-over the windows of a side that sends nothing are relearnt for ever.
        assert!(plan(&|connection| connection.protocol.peers[0].flags |= peer_flags::RELEARNING).is_some());
        assert!(plan(&|connection| connection.protocol.peers[0].flags &= !peer_flags::ACKNOWLEDGED).is_none());
    }

    #[test]
    fn a_plan_that_the_program_cannot_carry_out_is_refused() {
        let refused = |change: &dyn Fn(&mut Plan)| {
            let mut plan = Plan::of(&connection(ip_protocol::TCP), [3, 4], [1, 0]).unwrap();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        let v6 = Tuple::v6(6, (Ipv6Addr::LOCALHOST, 1), (Ipv6Addr::LOCALHOST, 2));
        assert!(refused(&|plan| plan.directions[0].translated = v6).contains("families"));
        assert!(refused(&|plan| plan.windows = None).contains("TCP connections have windows"));
        assert!(refused(&|plan| plan.windows.as_mut().unwrap().sides[0].window_scale = 15).contains("at most 14"));
        assert!(refused(&|plan| plan.directions[1] = plan.directions[0]).contains("both directions"));
    }
}
