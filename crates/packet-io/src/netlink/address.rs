//! Addresses of interfaces.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};

use super::{Netlink, Prefix, family};
use crate::IoError;

impl Netlink {
    /// Adds an address to the interface, usable at once: IPv6 skips duplicate address detection. An existing address is
    /// no error.
    ///
    /// # Errors
    /// The interface does not exist, the address is invalid, or permission is missing.
    pub fn add_address(&mut self, name: &str, address: Prefix) -> Result<(), IoError> {
        let mut message = self.address_message(name, address)?;
        if address.address.is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let operation = format!("giving {name} the address {address}");
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE, &operation)
    }

    /// Removes an address from the interface.
    ///
    /// # Errors
    /// The interface does not exist or lacks it, or permission is missing.
    pub fn delete_address(&mut self, name: &str, address: Prefix) -> Result<(), IoError> {
        let message = self.address_message(name, address)?;
        self.change(RouteNetlinkMessage::DelAddress(message), 0, &format!("taking {address} from {name}"))
    }

    fn address_message(&mut self, name: &str, prefix: Prefix) -> Result<AddressMessage, IoError> {
        let mut message = AddressMessage::default();
        message.header.family = family(prefix.address);
        message.header.prefix_len = prefix.length_bits;
        message.header.index = self.interface(name)?.index;
        message.attributes = vec![AddressAttribute::Local(prefix.address), AddressAttribute::Address(prefix.address)];
        if let (IpAddr::V4(address), 1..=30) = (prefix.address, prefix.length_bits) {
            let host_bits = u32::MAX >> prefix.length_bits;
            message.attributes.push(AddressAttribute::Broadcast((u32::from(address) | host_bits).into()));
        }
        Ok(message)
    }
}
