//! Routes and neighbours.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType};

use super::{Netlink, Prefix, family};
use crate::IoError;

impl Netlink {
    /// Adds or replaces a route to `destination` through the router `gateway`. A default route has
    /// [`Prefix::DEFAULT_V4`] or [`Prefix::DEFAULT_V6`].
    ///
    /// # Errors
    /// No interface reaches `gateway`, the families differ, or permission is missing.
    pub fn add_route(&mut self, destination: Prefix, gateway: IpAddr) -> Result<(), IoError> {
        let message = route_message(destination, gateway)?;
        let operation = format!("adding a route to {destination} via {gateway}");
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE, &operation)
    }

    /// Deletes the route to `destination` through `gateway`.
    ///
    /// # Errors
    /// The route does not exist, or permission is missing.
    pub fn delete_route(&mut self, destination: Prefix, gateway: IpAddr) -> Result<(), IoError> {
        let message = route_message(destination, gateway)?;
        let operation = format!("deleting the route to {destination} via {gateway}");
        self.change(RouteNetlinkMessage::DelRoute(message), 0, &operation)
    }

    /// Adds a permanent neighbour entry for `address` on the interface's link, which replaces ARP or neighbour
    /// solicitation.
    ///
    /// # Errors
    /// The interface does not exist, or permission is missing.
    pub fn add_neighbour(&mut self, name: &str, address: IpAddr, mac: [u8; 6]) -> Result<(), IoError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.interface(name)?.index;
        message.header.state = NeighbourState::Permanent;
        message.attributes =
            vec![NeighbourAttribute::Destination(address.into()), NeighbourAttribute::LinkLocalAddress(mac.to_vec())];
        let operation = format!("adding the neighbour {address} on {name}");
        self.change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE, &operation)
    }
}

fn route_message(destination: Prefix, gateway: IpAddr) -> Result<RouteMessage, IoError> {
    if destination.address.is_ipv4() != gateway.is_ipv4() {
        return Err(IoError::Misuse(format!("a route to {destination} cannot go via {gateway}")));
    }
    let mut message = RouteMessage::default();
    message.header.address_family = family(gateway);
    message.header.destination_prefix_length = destination.length_bits;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Gateway(gateway.into())];
    if destination.length_bits > 0 {
        message.attributes.push(RouteAttribute::Destination(destination.address.into()));
    }
    Ok(message)
}
