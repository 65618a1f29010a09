//! Connections as operators see them: which are wanted, how a part of the table is walked, how one is described.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use cluster::pipeline;
use flow::connection::flags;
use flow::conntrack::{ProtocolState, TcpState, UdpState};
use flow::fast_path::Hook;
use flow::table::{Slot, Table};
use flow::{Connection, ConnectionRole, Direction, Instant, IpFamily, NodeId, Tuple};

use api::{BothWays, Ends, Flow, FlowFilterText, GatewayReason, PacketPath};
use network_functions::class::Class;
use network_functions::tuple_filter::TupleFilter;

use config::value::{Prefix, has_ports, parse_prefix, protocol_name, protocol_number};

/// Connections looked at for a page: at a cache miss or two each, well below 100 µs.
pub const FLOWS_EXAMINED_PER_PAGE_MAX: usize = 256;

/// What is needed to describe connections, beside themselves.
#[derive(Clone, Debug)]
pub struct FlowDescriber {
    /// This node.
    pub node: NodeId,
    /// Names of the ports, by their ids.
    pub port_names: Vec<String>,
    /// Addresses and UDP ports at which this node exchanges datagrams with its peers.
    pub own_addresses: Vec<SocketAddr>,
    /// The name of a protocol's state.
    pub state_name: fn(u8, &ProtocolState) -> &'static str,
}

impl FlowDescriber {
    /// What this node is to a connection.
    #[must_use]
    pub fn role(&self, connection: &Connection) -> ConnectionRole {
        if connection.owner == self.node { ConnectionRole::Owner } else { ConnectionRole::Replica }
    }

    /// The name of its state.
    #[must_use]
    pub fn state(&self, connection: &Connection) -> &'static str {
        (self.state_name)(connection.original.protocol, &connection.protocol)
    }

    /// Describes a connection as it was at `now`.
    #[must_use]
    pub fn describe(&self, listed: &Listed, now: Instant) -> Flow {
        let Listed { connection, entered_at, class, path } = listed;
        let translated = connection.translated(Direction::Original);
        let both_ways = |[original, reply]: [u64; 2]| BothWays { original, reply };
        let egress = usize::from(connection.egress[Direction::Original.index()]);
        Flow {
            protocol: protocol_name(connection.original.protocol),
            state: self.state(connection).to_owned(),
            role: role_name(self.role(connection)).to_owned(),
            owner: connection.owner.0,
            original: ends(&connection.original),
            translated: (translated != connection.original).then(|| ends(&translated)),
            uncounted: false,
            packets: both_ways(connection.packets),
            bytes: both_ways(connection.bytes),
            replied: connection.flags & flags::REPLIED != 0,
            assured: connection.flags & flags::ASSURED != 0,
            expires_s: Instant::from_nanos(connection.expires_at_nanos).saturating_since(now).as_secs_f64(),
            age_s: now.saturating_since(*entered_at).as_secs_f64(),
            egress: egress.checked_sub(1).and_then(|port| self.port_names.get(port)).cloned(),
            version: connection.version,
            related_to: None,
            path: path.map(packet_path),
            class: class.map(|class| class.label().to_owned()),
            hook: None,
            gateway_reason: path.and_then(gateway_reason),
        }
    }

    /// Describes a connection of a page.
    #[must_use]
    pub fn describe_in(&self, page: &FlowsPage, listed: &Listed) -> Flow {
        let master = page.related.iter().find(|(original, _)| *original == listed.connection.original);
        let hook = page.hook.filter(|_| listed.path == Some(pipeline::PacketPath::Kernel));
        Flow {
            related_to: master.map(|(_, master)| Box::new(ends(master))),
            hook: hook.map(|hook| hook.name().to_owned()),
            ..self.describe(listed, page.now)
        }
    }
}

/// The name of what a node is to a connection.
#[must_use]
pub fn role_name(role: ConnectionRole) -> &'static str {
    match role {
        ConnectionRole::Owner => "master",
        ConnectionRole::Replica => "backup",
    }
}

const fn packet_path(path: pipeline::PacketPath) -> PacketPath {
    match path {
        pipeline::PacketPath::Kernel => PacketPath::Kernel,
        pipeline::PacketPath::Gateway(_) => PacketPath::Gateway,
    }
}

const fn gateway_reason(path: pipeline::PacketPath) -> Option<GatewayReason> {
    use pipeline::GatewayReason as Reason;
    let pipeline::PacketPath::Gateway(reason) = path else { return None };
    Some(match reason {
        Reason::NotOwner => GatewayReason::NotOwner,
        Reason::Inactive => GatewayReason::Inactive,
        Reason::Traced => GatewayReason::Traced,
        Reason::Protocol => GatewayReason::Protocol,
        Reason::FewPackets => GatewayReason::FewPackets,
        Reason::State => GatewayReason::State,
        Reason::Shared => GatewayReason::Shared,
        Reason::OneWay => GatewayReason::OneWay,
        Reason::Function => GatewayReason::Function,
        Reason::Tunnel => GatewayReason::Tunnel,
        Reason::ForwardedElsewhere => GatewayReason::ForwardedElsewhere,
        Reason::NotAcknowledged => GatewayReason::NotAcknowledged,
        Reason::Port => GatewayReason::Port,
        Reason::NextHop => GatewayReason::NextHop,
        Reason::Windows => GatewayReason::Windows,
        Reason::Full => GatewayReason::Full,
        Reason::Refused => GatewayReason::Refused,
        Reason::NextPacket => GatewayReason::NextPacket,
    })
}

fn ip(address: [u8; 16], family: IpFamily) -> IpAddr {
    let address = Ipv6Addr::from(address);
    match family {
        IpFamily::V4 => address.to_canonical(),
        IpFamily::V6 => IpAddr::V6(address),
    }
}

/// Source and destination as they are written.
#[must_use]
pub fn ends(tuple: &Tuple) -> Ends {
    let end = |address, port| {
        let address = ip(address, tuple.family());
        if has_ports(tuple.protocol) { SocketAddr::new(address, port).to_string() } else { address.to_string() }
    };
    Ends { source: end(tuple.source, tuple.source_port), destination: end(tuple.destination, tuple.destination_port) }
}

/// Conditions on connections, ready to be tried on many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowFilter {
    tuple: TupleFilter,
    state: Option<String>,
    role: Option<ConnectionRole>,
}

/// Reads the conditions on the ends of connections or packets.
///
/// # Errors
/// A sentence that names the condition that cannot be read, and its syntax.
pub(super) fn tuple_filter(text: &FlowFilterText) -> Result<TupleFilter, String> {
    let prefix = |key: &str, text: &Option<String>| -> Result<Option<Prefix>, String> {
        let read = |text: &String| parse_prefix(text).map(|prefix| prefix.trunc());
        text.as_ref().map(read).transpose().map_err(|error| format!("{key}: {error}"))
    };
    let protocol = text.protocol.as_ref().map(|name| {
        protocol_number(name)
            .ok_or_else(|| format!("protocol: {name:?} is not known: write tcp, udp, icmp or a number"))
    });
    Ok(TupleFilter {
        protocol: protocol.transpose()?,
        source: prefix("source", &text.source)?,
        destination: prefix("destination", &text.destination)?,
        port: text.port,
    })
}

/// The states that connections can be in, as they are described.
fn state_names() -> impl Iterator<Item = &'static str> {
    let tcp = TcpState::ALL.into_iter().filter(|state| *state != TcpState::None).map(TcpState::name);
    tcp.chain([UdpState::Unreplied, UdpState::Replied].map(UdpState::name))
}

impl FlowFilter {
    /// Reads conditions.
    ///
    /// # Errors
    /// A sentence that names the condition that cannot be read, and its syntax.
    pub fn parse(text: &FlowFilterText) -> Result<Self, String> {
        let role = text.role.as_ref().map(|name| match name.to_ascii_lowercase().as_str() {
            "master" => Ok(ConnectionRole::Owner),
            "backup" => Ok(ConnectionRole::Replica),
            _ => Err(format!("role: {name:?} is not known: write master or backup")),
        });
        let state =
            text.state.as_ref().map(|name| match state_names().find(|known| name.eq_ignore_ascii_case(known)) {
                Some(known) => Ok(known.to_owned()),
                None => {
                    let known: Vec<_> = state_names().collect();
                    Err(format!("state: {name:?} is not known: write one of {}", known.join(", ")))
                }
            });
        Ok(Self { tuple: tuple_filter(text)?, state: state.transpose()?, role: role.transpose()? })
    }

    /// Whether a connection meets all conditions that is known by these tuples, in this state, and to which this node is that.
    #[must_use]
    pub fn matches_described(&self, tuples: &[Tuple], state: &str, role: ConnectionRole) -> bool {
        self.tuple.matches_any(tuples)
            && self.role.is_none_or(|wanted| wanted == role)
            && self.state.as_ref().is_none_or(|wanted| state.eq_ignore_ascii_case(wanted))
    }

    /// Whether a connection meets all conditions.
    #[must_use]
    pub fn matches(&self, connection: &Connection, describer: &FlowDescriber) -> bool {
        let tuples = [connection.original, connection.translated(Direction::Original)];
        self.tuple.matches_any(&tuples)
            && self.role.is_none_or(|role| role == describer.role(connection))
            && self.state.as_ref().is_none_or(|state| describer.state(connection).eq_ignore_ascii_case(state))
    }
}

/// A request for a part of the connections.
#[derive(Clone, Debug)]
pub struct FlowsQuery {
    /// Which are wanted.
    pub filter: FlowFilter,
    /// Where the last page ended; 0 for the first.
    pub cursor: u32,
    /// How states and roles are named.
    pub describer: Arc<FlowDescriber>,
}

/// A connection as it lay in the table.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// The connection.
    pub connection: Connection,
    /// When this node entered it: when it began, or when a peer replicated it.
    pub entered_at: Instant,
    /// Its traffic class, where the chain has a classifier.
    pub class: Option<Class>,
    /// The path of its packets, where the node has a fast path.
    pub path: Option<pipeline::PacketPath>,
}

/// A part of the connections, as they lay in the table.
#[derive(Clone, Debug)]
pub struct FlowsPage {
    /// When they were copied.
    pub now: Instant,
    /// Those that the filter let through.
    pub connections: Vec<Listed>,
    /// Of related connections, the original tuple, and that of the connection that announced it.
    pub related: Vec<(Tuple, Tuple)>,
    /// Where the fast path sees their packets; `None`: there is none.
    pub hook: Option<Hook>,
    /// Those that are described already, as they lie in another table than the gateway's.
    pub described: Vec<Flow>,
    /// Where the next page begins; `None` after the last.
    pub next_cursor: Option<u32>,
}

impl FlowsPage {
    /// A page without a connection, the last one so far.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { now, connections: Vec::new(), related: Vec::new(), hook: None, described: Vec::new(), next_cursor: None }
    }
}

impl FlowsQuery {
    /// Copies the wanted connections among the next [`FLOWS_EXAMINED_PER_PAGE_MAX`] of the table. A connection that
    /// stays in the table during all requests is found exactly once.
    #[must_use]
    pub fn page(&self, table: &Table, now: Instant) -> FlowsPage {
        self.page_of(now, |from| {
            let slot = table.next_occupied(from)?;
            let entered_at = Instant::from_nanos(table.cold(slot)?.created_at_nanos);
            table.get(slot).map(|connection| (slot, connection, entered_at))
        })
    }

    /// [`FlowsQuery::page`] over anything that finds the first connection at or after a slot, and when it was entered.
    #[must_use]
    pub fn page_of<'a>(
        &self,
        now: Instant,
        first_from: impl Fn(Slot) -> Option<(Slot, &'a Connection, Instant)>,
    ) -> FlowsPage {
        let mut page = FlowsPage::new(now);
        let mut from = Slot(self.cursor);
        for _ in 0..FLOWS_EXAMINED_PER_PAGE_MAX {
            let Some((slot, connection, entered_at)) = first_from(from) else { return page };
            if self.filter.matches(connection, &self.describer) {
                page.connections.push(Listed { connection: *connection, entered_at, class: None, path: None });
            }
            let Some(next) = slot.0.checked_add(1) else { return page };
            from = Slot(next);
        }
        page.next_cursor = Some(from.0);
        page
    }
}
