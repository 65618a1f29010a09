//! ARP for IPv4 over Ethernet (RFC 826).

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::ethernet::{MacAddress, ether_type};
use crate::DropReason;

/// Bytes of an ARP packet for IPv4 over Ethernet.
pub const ARP_BYTES: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;

/// The operation of an ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArpOperation {
    /// Requests the link address of the target address.
    Request = 1,
    /// Replies with the sender's link address.
    Reply = 2,
}

/// A checked view of an ARP packet.
#[derive(Clone, Copy, Debug)]
pub struct ArpView<'a> {
    packet: &'a [u8; ARP_BYTES],
    operation: ArpOperation,
}

impl<'a> ArpView<'a> {
    /// Views a packet; bytes behind it are padding.
    ///
    /// # Errors
    /// [`DropReason::Truncated`]; [`DropReason::UnsupportedLinkProtocol`] for other networks than IPv4 over Ethernet and
    /// other operations than request and reply; [`DropReason::Malformed`] for wrong address lengths or a group's
    /// address as sender.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let packet: &[u8; ARP_BYTES] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        let hardware = u16::from_be_bytes([packet[0], packet[1]]);
        let protocol = u16::from_be_bytes([packet[2], packet[3]]);
        if hardware != HARDWARE_ETHERNET || protocol != ether_type::IPV4 {
            return Err(DropReason::UnsupportedLinkProtocol);
        }
        let operation = match u16::from_be_bytes([packet[6], packet[7]]) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(DropReason::UnsupportedLinkProtocol),
        };
        let view = Self { packet, operation };
        if packet[4] != 6 || packet[5] != 4 || view.sender_mac().is_group() {
            return Err(DropReason::Malformed);
        }
        Ok(view)
    }

    /// Request or reply.
    #[must_use]
    pub const fn operation(&self) -> ArpOperation {
        self.operation
    }

    /// The sender's link address.
    #[must_use]
    pub const fn sender_mac(&self) -> MacAddress {
        let p = self.packet;
        MacAddress([p[8], p[9], p[10], p[11], p[12], p[13]])
    }

    /// The sender's address; zero in a probe (RFC 5227 section 1.1).
    #[must_use]
    pub const fn sender_ip(&self) -> Ipv4Addr {
        let p = self.packet;
        Ipv4Addr::new(p[14], p[15], p[16], p[17])
    }

    /// The target's link address; meaningless in a request.
    #[must_use]
    pub const fn target_mac(&self) -> MacAddress {
        let p = self.packet;
        MacAddress([p[18], p[19], p[20], p[21], p[22], p[23]])
    }

    /// The requested address, or the address of the requester in a reply.
    #[must_use]
    pub const fn target_ip(&self) -> Ipv4Addr {
        let p = self.packet;
        Ipv4Addr::new(p[24], p[25], p[26], p[27])
    }

    /// The packet announces the sender's own address (RFC 5227 section 3), as request or as reply.
    #[must_use]
    pub fn is_gratuitous(&self) -> bool {
        self.sender_ip() == self.target_ip()
    }

    /// All fields.
    #[must_use]
    pub const fn message(&self) -> ArpMessage {
        ArpMessage {
            operation: self.operation,
            sender_mac: self.sender_mac(),
            sender_ip: self.sender_ip(),
            target_mac: self.target_mac(),
            target_ip: self.target_ip(),
        }
    }
}

/// The content of an ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArpMessage {
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's link address.
    pub sender_mac: MacAddress,
    /// The sender's address.
    pub sender_ip: Ipv4Addr,
    /// The target's link address.
    pub target_mac: MacAddress,
    /// The target's address.
    pub target_ip: Ipv4Addr,
}

impl ArpMessage {
    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&HARDWARE_ETHERNET.to_be_bytes());
        out.extend_from_slice(&ether_type::IPV4.to_be_bytes());
        out.extend_from_slice(&[6, 4]);
        out.extend_from_slice(&(self.operation as u16).to_be_bytes());
        out.extend_from_slice(&self.sender_mac.0);
        out.extend_from_slice(&self.sender_ip.octets());
        out.extend_from_slice(&self.target_mac.0);
        out.extend_from_slice(&self.target_ip.octets());
    }
}
