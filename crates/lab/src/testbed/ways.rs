//! Ways through two nodes that are both at work.
//!
//! The server has an address for each way. By it the client chooses its router, which is one node or the other, and the
//! nodes choose the address that the server answers to, which leads back by way of one node or the other:
//!
//! ```text
//!   server address   client's router   answers go to   both directions pass
//!        .10             left              left          node a
//!        .11             right             right         node b
//!        .12             left              right         one each
//!        .13             right             left          one each
//! ```

use std::net::{IpAddr, SocketAddr};

use packet_io::IoError;
use packet_io::netlink::{Netlink, Prefix};

use super::topology::{BRIDGE, Both, INSIDE, PREFIX_BITS, SERVER, Topology, v4, v6};

/// The second group's shared addresses inside.
pub const SECOND_INSIDE: Both<IpAddr> = [v4(10, 1, 0, 2), v6(0xfd00, 1, 0, 2)];
/// The second group's shared addresses outside.
pub const SECOND_OUTSIDE: Both<IpAddr> = [v4(198, 51, 100, 2), v6(0x2001, 0x0db8, 2, 2)];

/// A way of connections.
#[derive(Clone, Copy, Debug)]
pub struct RouterPair {
    /// The server's addresses that are reached by it.
    pub server: Both<IpAddr>,
    /// The group of the client's router, 0 or 1.
    pub out: usize,
    /// The group of the address that answers go to.
    pub back: usize,
}

/// All ways; the first two lead through one node each, the others through both.
pub const WAYS: [RouterPair; 4] = [
    RouterPair { server: SERVER, out: 0, back: 0 },
    RouterPair { server: [v4(198, 51, 100, 11), v6(0x2001, 0x0db8, 2, 0x11)], out: 1, back: 1 },
    RouterPair { server: [v4(198, 51, 100, 12), v6(0x2001, 0x0db8, 2, 0x12)], out: 0, back: 1 },
    RouterPair { server: [v4(198, 51, 100, 13), v6(0x2001, 0x0db8, 2, 0x13)], out: 1, back: 0 },
];

/// The ways through one node each, or all of them.
#[must_use]
pub fn chosen(with_asymmetric: bool) -> &'static [RouterPair] {
    if with_asymmetric { &WAYS } else { &WAYS[..2] }
}

/// Where a server with these ports listens to be reached by these ways: neighbours in the list go different ways.
#[must_use]
pub fn server_addresses(ways: &[RouterPair], ports: impl IntoIterator<Item = u16>) -> Vec<SocketAddr> {
    let of_port = |port| {
        let of_family = move |family: usize| ways.iter().map(move |way| SocketAddr::new(way.server[family], port));
        (0..2).flat_map(of_family)
    };
    ports.into_iter().flat_map(of_port).collect()
}

/// Gives the server its further addresses and the client its routes to them.
///
/// # Errors
/// The process may not.
pub fn build(topology: &Topology) -> Result<(), IoError> {
    topology.server.run(|| -> Result<(), IoError> {
        let mut netlink = Netlink::open()?;
        for way in &WAYS[1..] {
            for (address, bits) in way.server.into_iter().zip(PREFIX_BITS) {
                netlink.add_address(BRIDGE, Prefix::new(address, bits))?;
            }
        }
        Ok(())
    })??;
    topology.client.run(|| -> Result<(), IoError> {
        let mut netlink = Netlink::open()?;
        for way in WAYS {
            let routers = [INSIDE, SECOND_INSIDE][way.out];
            for (server, router) in way.server.into_iter().zip(routers) {
                let host_bits = if server.is_ipv4() { 32 } else { 128 };
                netlink.add_route(Prefix::new(server, host_bits), router)?;
            }
        }
        Ok(())
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_the_list_go_different_ways() {
        let addresses = server_addresses(chosen(true), [7000]);
        assert_eq!(addresses.len(), 8);
        assert!(addresses[..4].iter().zip(WAYS).all(|(address, way)| address.ip() == way.server[0]));
        assert!(addresses[4..].iter().zip(WAYS).all(|(address, way)| address.ip() == way.server[1]));
        assert_eq!(server_addresses(chosen(false), [7000, 7001]).len(), 8);
    }
}
