//! Interfaces: creating, listing, changing, deleting.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage,
};

use super::{Netlink, Prefix};
use crate::IoError;

/// The longest interface name (`IFNAMSIZ` less the final zero).
const NAME_BYTES_MAX: usize = 15;

/// An address of an interface: the address and its prefix length.
pub type InterfaceAddress = Prefix;

/// An interface as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its index in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its link-layer address; all zero where it has none (loopback).
    pub mac: [u8; 6],
    /// Its MTU, in bytes of IP packet.
    pub mtu_bytes: u32,
    /// Administratively up.
    pub up: bool,
    /// Operational: up, and with carrier.
    pub running: bool,
    /// A loopback interface.
    pub loopback: bool,
    /// It is an end of a virtual cable whose other end is in another namespace.
    pub leads_elsewhere: bool,
    /// Index of the bridge or bond that it belongs to.
    pub bridge_index: Option<u32>,
    /// Its IP addresses.
    pub addresses: Vec<InterfaceAddress>,
}

impl Interface {
    pub(super) fn new(message: &LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut interface = Self {
            index: message.header.index,
            up: flags.contains(LinkFlags::Up),
            running: flags.contains(LinkFlags::Running),
            loopback: flags.contains(LinkFlags::Loopback),
            ..Self::default()
        };
        let (mut is_cable, mut is_across) = (false, false);
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::LinkInfo(info) => is_cable = info.contains(&LinkInfo::Kind(InfoKind::Veth)),
                LinkAttribute::LinkNetNsId(_) => is_across = true,
                LinkAttribute::IfName(name) => interface.name.clone_from(name),
                LinkAttribute::Mtu(mtu_bytes) => interface.mtu_bytes = *mtu_bytes,
                LinkAttribute::Controller(index) => interface.bridge_index = Some(*index),
                LinkAttribute::Address(mac) => {
                    interface.mac = mac.as_slice().try_into().unwrap_or_default();
                }
                _ => {}
            }
        }
        interface.leads_elsewhere = is_cable && is_across;
        interface
    }
}

impl Netlink {
    /// All interfaces of the namespace with their addresses, by index.
    ///
    /// # Errors
    /// The kernel does not reply.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, IoError> {
        let links = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), "listing interfaces")?;
        let mut interfaces: Vec<Interface> = links
            .iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewLink(link) => Some(Interface::new(link)),
                _ => None,
            })
            .collect();
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        for message in self.dump(request, "listing addresses")? {
            let RouteNetlinkMessage::NewAddress(message) = message else { continue };
            let interface = interfaces.iter_mut().find(|interface| interface.index == message.header.index);
            if let (Some(interface), Some(address)) = (interface, address_of(&message)) {
                interface.addresses.push(Prefix { address, length_bits: message.header.prefix_len });
            }
        }
        interfaces.sort_by_key(|interface| interface.index);
        Ok(interfaces)
    }

    /// The interface of this name.
    ///
    /// # Errors
    /// [`IoError::NoSuchInterface`].
    pub fn interface(&mut self, name: &str) -> Result<Interface, IoError> {
        let found = self.interfaces()?.into_iter().find(|interface| interface.name == name);
        found.ok_or_else(|| IoError::NoSuchInterface { interface: name.into() })
    }

    /// Creates a virtual cable: `name` here, its other end `peer_name` in `peer_namespace`. Both ends are down and
    /// offload checksums and segmentation to each other.
    ///
    /// # Errors
    /// A name is in use or invalid, or permission is missing.
    pub fn create_veth(&mut self, name: &str, peer_name: &str, peer_namespace: impl AsFd) -> Result<(), IoError> {
        self.create_veth_between(name, peer_name, peer_namespace.as_fd())
    }

    fn create_veth_between(&mut self, name: &str, peer_name: &str, peer: BorrowedFd<'_>) -> Result<(), IoError> {
        let mut peer_message = LinkMessage::default();
        peer_message.attributes = vec![checked_name(peer_name)?, LinkAttribute::NetNsFd(peer.as_raw_fd())];
        let mut message = LinkMessage::default();
        message.attributes = vec![
            checked_name(name)?,
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer_message))),
            ]),
        ];
        self.create(message, &format!("making the veth pair {name} and {peer_name}"))
    }

    /// Creates a bridge, down and without ports.
    ///
    /// # Errors
    /// The name is in use or invalid, or permission is missing.
    pub fn create_bridge(&mut self, name: &str) -> Result<(), IoError> {
        let mut message = LinkMessage::default();
        message.attributes = vec![checked_name(name)?, LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)])];
        self.create(message, &format!("making the bridge {name}"))
    }

    fn create(&mut self, message: LinkMessage, operation: &str) -> Result<(), IoError> {
        self.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, operation)
    }

    /// Makes the interface a port of the bridge.
    ///
    /// # Errors
    /// Either does not exist, or permission is missing.
    pub fn attach_to_bridge(&mut self, name: &str, bridge: &str) -> Result<(), IoError> {
        let bridge_index = self.interface(bridge)?.index;
        self.set(name, LinkAttribute::Controller(bridge_index), &format!("attaching {name} to {bridge}"))
    }

    /// Isolates a bridge's port, or ends that: isolated ports exchange frames only with the bridge itself and with its
    /// other ports. Carrier stays.
    ///
    /// # Errors
    /// It does not exist, is no port of a bridge, or permission is missing.
    pub fn set_isolated(&mut self, name: &str, isolated: bool) -> Result<(), IoError> {
        let mut message = LinkMessage::default();
        message.header.index = self.interface(name)?.index;
        message.attributes = vec![LinkAttribute::LinkInfo(vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::Isolated(isolated)])),
        ])];
        // The kernel accepts settings of a bridge's port in this message, not in SetLink.
        self.change(RouteNetlinkMessage::NewLink(message), 0, &format!("isolating {name}"))
    }

    /// Switches the interface up or down.
    ///
    /// # Errors
    /// It does not exist, or permission is missing.
    pub fn set_up(&mut self, name: &str, up: bool) -> Result<(), IoError> {
        let mut message = LinkMessage::default();
        message.header.index = self.interface(name)?.index;
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        let operation = format!("switching {name} {}", if up { "on" } else { "off" });
        self.change(RouteNetlinkMessage::SetLink(message), 0, &operation)
    }

    /// Sets the interface's link-layer address.
    ///
    /// # Errors
    /// The interface does not exist, the address is invalid for an interface (for example a group address), or permission is
    /// missing.
    pub fn set_mac(&mut self, name: &str, mac: [u8; 6]) -> Result<(), IoError> {
        self.set(name, LinkAttribute::Address(mac.to_vec()), &format!("setting the link address of {name}"))
    }

    /// Sets the interface's MTU, in bytes of IP packet.
    ///
    /// # Errors
    /// It does not exist, does not support the MTU, or permission is missing.
    pub fn set_mtu(&mut self, name: &str, mtu_bytes: u32) -> Result<(), IoError> {
        self.set(name, LinkAttribute::Mtu(mtu_bytes), &format!("setting the MTU of {name} to {mtu_bytes}"))
    }

    /// Sets the length of the interface's transmit queue, in packets.
    ///
    /// # Errors
    /// It does not exist, or permission is missing.
    pub fn set_transmit_queue(&mut self, name: &str, packets: u32) -> Result<(), IoError> {
        let operation = format!("setting the transmit queue of {name} to {packets} packets");
        self.set(name, LinkAttribute::TxQueueLen(packets), &operation)
    }

    fn set(&mut self, name: &str, attribute: LinkAttribute, operation: &str) -> Result<(), IoError> {
        let mut message = LinkMessage::default();
        message.header.index = self.interface(name)?.index;
        message.attributes = vec![attribute];
        self.change(RouteNetlinkMessage::SetLink(message), 0, operation)
    }

    /// Deletes the interface; deleting an end of a veth pair deletes the other end.
    ///
    /// # Errors
    /// It does not exist, cannot be deleted, or permission is missing.
    pub fn delete(&mut self, name: &str) -> Result<(), IoError> {
        let mut message = LinkMessage::default();
        message.header.index = self.interface(name)?.index;
        self.change(RouteNetlinkMessage::DelLink(message), 0, &format!("deleting {name}"))
    }
}

fn checked_name(name: &str) -> Result<LinkAttribute, IoError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(['/', ' ', '\0']) {
        let message = format!("\"{name}\" cannot name an interface: 1 to {NAME_BYTES_MAX} bytes, no space, no slash");
        return Err(IoError::Misuse(message));
    }
    Ok(LinkAttribute::IfName(name.into()))
}

/// The interface's own address: on point-to-point links `Address` is the other end's.
fn address_of(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })
}
