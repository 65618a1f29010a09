//! Which port a captured packet came in on.
//!
//! The first of these that applies:
//!
//! 1. `--port-map` names the capture's interface, by its name or its number.
//! 2. The interface is called as a port, or as a port's interface.
//! 3. The capture has as many interfaces as the node has ports, more than one, and none is called as one of them: the
//!    first is the first, and so on.
//! 4. The port towards the source address: that of the longest matching network or route.
//! 5. A port other than the one towards the destination: a guess, and counted as one.

use std::net::IpAddr;

use cluster::forwarding::{self, Forwarder};
use flow::PortId;
use flow::wire::arp::ArpView;
use flow::wire::{self, Parsed};
use packet_io::pcap::CaptureInterface;

use super::error::ReplayError;
use super::player::CapturedFrame;
use crate::cli::PortMapping;
use config::Config;

/// How it is known which port a packet came in on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Certainty {
    /// By the interface, or by the packet's source.
    Known,
    /// It is not.
    Guessed,
}

/// Chooses the ports.
pub(super) struct IngressChooser {
    /// From `--port-map`.
    mappings: Vec<(String, PortId)>,
    /// Every port's name and that of its interface.
    names: Vec<[String; 2]>,
    /// Asked for the way to an address, never for more.
    routes: Forwarder,
}

impl IngressChooser {
    pub(super) fn new(
        config: &Config,
        forwarding: &forwarding::Config,
        port_map: &[PortMapping],
    ) -> Result<Self, ReplayError> {
        let mapping = |mapping: &PortMapping| {
            let port = config.ports.iter().find(|port| port.name == mapping.port);
            let port = port.ok_or_else(|| ReplayError::UnknownPort {
                name: mapping.port.clone(),
                known: config.ports.iter().map(|port| format!("{:?}", port.name)).collect::<Vec<_>>().join(", "),
            })?;
            Ok((mapping.interface.clone(), port.id))
        };
        Ok(Self {
            mappings: port_map.iter().map(mapping).collect::<Result<_, ReplayError>>()?,
            names: config.ports.iter().map(|port| [port.name.clone(), port.interface.clone()]).collect(),
            routes: Forwarder::new(forwarding.clone())?,
        })
    }

    /// The port of a packet that was captured on the interface `number` of `interfaces`.
    pub(super) fn choose(
        &self,
        interfaces: &[CaptureInterface],
        number: usize,
        captured: &mut CapturedFrame<'_>,
    ) -> (PortId, Certainty) {
        let by_interface = self.mapped(interfaces, number).or_else(|| self.by_name_or_order(interfaces, number));
        if let Some(port) = by_interface {
            return (port, Certainty::Known);
        }
        let ends = ends(captured);
        let towards = |address: IpAddr| self.routes.route(address).map(|next_hop| next_hop.port);
        let source = ends.map(|(source, _)| source).filter(|source| is_on_one_link(*source));
        if let Some(port) = source.and_then(towards) {
            return (port, Certainty::Known);
        }
        let egress = ends.and_then(|(_, destination)| towards(destination));
        (if egress == Some(PortId(0)) { PortId(1) } else { PortId(0) }, Certainty::Guessed)
    }

    fn mapped(&self, interfaces: &[CaptureInterface], number: usize) -> Option<PortId> {
        let name = interfaces.get(number).and_then(|interface| interface.name.as_deref());
        let is_it = |key: &str| name == Some(key) || key.parse() == Ok(number);
        self.mappings.iter().find(|(key, _)| is_it(key)).map(|(_, port)| *port)
    }

    fn by_name_or_order(&self, interfaces: &[CaptureInterface], number: usize) -> Option<PortId> {
        let named = |interface: &CaptureInterface| {
            let name = interface.name.as_ref()?;
            self.names.iter().position(|names| names.contains(name))
        };
        let by_name = interfaces.get(number).and_then(named);
        let has_order = interfaces.len() > 1 && interfaces.len() == self.names.len();
        let by_order = || (has_order && interfaces.iter().all(|one| named(one).is_none())).then_some(number);
        by_name.or_else(by_order).and_then(|index| u8::try_from(index).ok()).map(PortId)
    }
}

/// A packet's source and destination, or the sender's and the target's address in an ARP message.
fn ends(captured: &mut CapturedFrame<'_>) -> Option<(IpAddr, IpAddr)> {
    captured.look(|frame| match wire::parse(frame).ok()? {
        Parsed::Ip(headers) => Some((headers.tuple.source_ip(), headers.tuple.destination_ip())),
        Parsed::Arp(offset) => {
            let arp = ArpView::new_checked(frame.bytes().get(usize::from(offset)..)?).ok()?;
            Some((arp.sender_ip().into(), arp.target_ip().into()))
        }
    })?
}

/// Whether the address is on one link only: one that every link has does not identify its port.
fn is_on_one_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_unspecified() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unspecified() && !address.is_unicast_link_local(),
    }
}
