//! Multicast groups: one socket that receives a group on an interface, and sends to it there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use super::{UdpOptions, UdpSocket};
use crate::IoError;
use crate::interface::Inquiry;
use crate::system::set_option;

impl UdpSocket {
    /// Opens a socket that receives from the group `group` (address and port) on `interface`, and sends to it there,
    /// without receiving its own datagrams. `options.interface` need not be set. Other sockets of the host may join the
    /// group as well. Without [`UdpOptions::ttl`], its datagrams stay on the link.
    ///
    /// # Errors
    /// The address is no group's, the interface does not exist or does not support multicast, or permission is missing.
    pub fn bind_multicast(group: SocketAddr, interface: &str, options: &UdpOptions) -> Result<Self, IoError> {
        if !group.ip().is_multicast() {
            let range = if group.is_ipv4() { "224.0.0.0/4" } else { "ff00::/8" };
            return Err(IoError::Misuse(format!("{} is no multicast group: write one of {range}", group.ip())));
        }
        let index = Inquiry::open().and_then(|inquiry| inquiry.index(interface)).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENODEV) => IoError::NoSuchInterface { interface: interface.into() },
                _ => IoError::from_io(error, format!("asking for the number of {interface}")),
            }
        })?;
        // Bound to the group, the socket receives no datagrams to the host itself; it sends from the interface's
        // address.
        let address = match group {
            SocketAddr::V6(mut address) => {
                address.set_scope_id(index);
                address.into()
            }
            SocketAddr::V4(_) => group,
        };
        let options = UdpOptions { reuse_address: true, ..options.clone() };
        let socket = Self::bind(address, &options)?;
        socket
            .join(group, index)
            .map_err(|error| IoError::from_io(error, format!("joining {} on {interface}", group.ip())))?;
        Ok(socket)
    }

    fn join(&self, group: SocketAddr, index: u32) -> io::Result<()> {
        let socket = self.socket.as_fd();
        match group {
            SocketAddr::V4(group) => {
                let request = libc::ip_mreqn {
                    imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes(group.ip().octets()) },
                    imr_address: libc::in_addr { s_addr: libc::INADDR_ANY },
                    imr_ifindex: index.cast_signed(),
                };
                set_option(socket, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request)?;
                set_option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)?;
                set_option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, &0_i32)?;
                // Only datagrams to groups that this very socket has joined.
                set_option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &0_i32)
            }
            SocketAddr::V6(group) => {
                let request = libc::ipv6_mreq {
                    ipv6mr_multiaddr: libc::in6_addr { s6_addr: group.ip().octets() },
                    ipv6mr_interface: index,
                };
                set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)?;
                set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &index)?;
                set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, &0_i32)
            }
        }
    }
}
