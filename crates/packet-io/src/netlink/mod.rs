//! Links, addresses, routes and neighbours of the calling thread's namespace (rtnetlink(7)).
//!
//! Each call is one request to the kernel, acknowledged before the call returns.

mod address;
mod link;
mod monitor;
mod route;

use std::net::IpAddr;

pub use flow::Prefix;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::IoError;

pub use link::{Interface, InterfaceAddress};
pub use monitor::{LinkChange, LinkMonitor, LinkState};

/// The largest reply that is read at once, in bytes; the kernel sends dumps in datagrams of at most 32 KiB.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// A socket to the kernel's routing configuration. It stays in the namespace it was opened in.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// The system is out of descriptors or lacks netlink.
    pub fn open() -> Result<Self, IoError> {
        let explain = |error| IoError::from_io(error, "opening a netlink socket");
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(explain)?;
        socket.bind_auto().map_err(explain)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(explain)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Requests a change and waits for its acknowledgement.
    fn change(&mut self, message: RouteNetlinkMessage, flags: u16, operation: &str) -> Result<(), IoError> {
        self.send(message, NLM_F_ACK | flags, operation)?;
        self.receive(operation, |_| {})
    }

    /// Requests all objects of a kind.
    fn dump(&mut self, message: RouteNetlinkMessage, operation: &str) -> Result<Vec<RouteNetlinkMessage>, IoError> {
        self.send(message, NLM_F_DUMP, operation)?;
        let mut answers = Vec::new();
        self.receive(operation, |answer| answers.push(answer))?;
        Ok(answers)
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16, operation: &str) -> Result<(), IoError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop).map_err(|error| IoError::from_io(error, operation))
    }

    /// Reads replies to the last request up to its acknowledgement, its error or the end of its dump.
    fn receive(&mut self, operation: &str, mut answer: impl FnMut(RouteNetlinkMessage)) -> Result<(), IoError> {
        loop {
            let mut bytes = Vec::with_capacity(ANSWER_BYTES_MAX);
            self.socket.recv(&mut bytes, 0).map_err(|error| IoError::from_io(error, operation))?;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(|error| {
                    IoError::UnexpectedAnswer { operation: operation.into(), detail: error.to_string() }
                })?;
                let length_bytes = (message.header.length as usize).next_multiple_of(4).clamp(1, rest.len());
                rest = &rest[length_bytes..];
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(explain(error.to_io(), operation)),
                    NetlinkPayload::InnerMessage(message) => answer(message),
                    _ => {}
                }
            }
        }
    }
}

fn explain(error: std::io::Error, operation: &str) -> IoError {
    match error.raw_os_error() {
        Some(libc::EPERM) => IoError::NotPermitted { operation: operation.into(), capability: "CAP_NET_ADMIN" },
        _ => IoError::from_io(error, operation),
    }
}

#[cfg(test)]
mod tests;
