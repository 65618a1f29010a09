//! What the demo's network needs beyond [`topology`](crate::testbed::topology) for Linux routers: addresses of their own, and connections
//! that pass them in three ways.

use std::net::{IpAddr, SocketAddr};

use packet_io::IoError;
use packet_io::netlink::{Netlink, Prefix};
use serde::Serialize;

use crate::testbed::topology::{BRIDGE, Both, INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS, SERVER, Topology, v4, v6};

/// The routers' own addresses inside, by router: those that VRRP is said from, and BFD.
pub const OWN_INSIDE: [Both<IpAddr>; 2] =
    [[v4(10, 1, 0, 2), v6(0xfd00, 1, 0, 2)], [v4(10, 1, 0, 3), v6(0xfd00, 1, 0, 3)]];
/// The routers' own addresses outside.
pub const OWN_OUTSIDE: [Both<IpAddr>; 2] =
    [[v4(198, 51, 100, 2), v6(0x2001, 0x0db8, 2, 2)], [v4(198, 51, 100, 3), v6(0x2001, 0x0db8, 2, 3)]];
/// Further addresses of the server, towards which the client is not translated.
pub const ROUTED_HOST: Both<IpAddr> = [v4(198, 51, 100, 20), v6(0x2001, 0x0db8, 2, 0x20)];
/// The port at [`INSIDE`] that leads to the server.
pub const PUBLISHED_PORT: u16 = 8000;
/// The server's ports.
pub const SERVER_PORTS: [u16; 2] = [7000, 7001];

/// How a connection passes the routers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// Under its own addresses.
    Routed,
    /// The client appears as the shared address outside.
    SourceNat,
    /// The client asks the shared address inside, where the server answers; to whom it appears as the shared address outside.
    DestinationNat,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Routed, Self::DestinationNat, Self::SourceNat];

    /// The name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Routed => "routed",
            Self::SourceNat => "source NAT",
            Self::DestinationNat => "destination and source NAT",
        }
    }

    /// What the client asks, IPv4 and IPv6.
    const fn asked(self) -> Both<IpAddr> {
        match self {
            Self::Routed => ROUTED_HOST,
            Self::SourceNat => SERVER,
            Self::DestinationNat => INSIDE,
        }
    }
}

/// What the client connects to, in turn: the `n`th connection takes the `n`th of them, modulo their number.
#[must_use]
pub fn targets() -> Vec<(Path, SocketAddr)> {
    let all = SERVER_PORTS.iter().enumerate().flat_map(|(number, &port)| {
        // There is one published port.
        let paths = Path::ALL.into_iter().filter(move |path| number == 0 || *path != Path::DestinationNat);
        paths.flat_map(move |path| {
            let port = if path == Path::DestinationNat { PUBLISHED_PORT } else { port };
            path.asked().map(|address| (path, SocketAddr::new(address, port)))
        })
    });
    all.collect()
}

/// Where the server listens.
#[must_use]
pub fn listening() -> Vec<SocketAddr> {
    let addresses = SERVER.into_iter().chain(ROUTED_HOST);
    addresses.flat_map(|address| SERVER_PORTS.map(|port| SocketAddr::new(address, port))).collect()
}

/// Addresses that connections of the routers themselves have: nothing for the other router to know of.
pub fn own_addresses() -> impl Iterator<Item = IpAddr> {
    OWN_INSIDE.into_iter().chain(OWN_OUTSIDE).flatten()
}

/// The definitions that the rules of `examples/keepalived/nftables.conf` are loaded with here.
#[must_use]
pub fn definitions() -> String {
    let [inside, outside, dedicated] = INTERFACES;
    let names = format!("define inside = {inside:?}\ndefine outside = {outside:?}\ndefine dedicated = {dedicated:?}\n");
    let of_both =
        |name: &str, both: Both<IpAddr>| format!("define {name}_v4 = {}\ndefine {name}_v6 = {}\n", both[0], both[1]);
    names
        + &of_both("shared", OUTSIDE)
        + &of_both("branches", ROUTED_HOST)
        + &of_both("published", INSIDE)
        + &of_both("server", SERVER)
        + &format!("define published_port = {PUBLISHED_PORT}\ndefine server_port = {}\n", SERVER_PORTS[0])
}

/// Gives the server its further addresses and the way back to the client that is not translated.
pub(super) fn build(topology: &Topology) -> Result<(), IoError> {
    topology.server.run(|| {
        let mut netlink = Netlink::open()?;
        for (address, bits) in ROUTED_HOST.into_iter().zip(PREFIX_BITS) {
            netlink.add_address(BRIDGE, Prefix::new(address, bits))?;
        }
        let inside = [v4(10, 1, 0, 0), v6(0xfd00, 1, 0, 0)];
        for ((network, bits), router) in inside.into_iter().zip(PREFIX_BITS).zip(OUTSIDE) {
            netlink.add_route(Prefix::new(network, bits), router)?;
        }
        Ok(())
    })??;
    [0, 1].into_iter().try_for_each(|number| add_own_addresses(topology, number))
}

/// Gives a router its own addresses; those of IPv6 are gone whenever an interface was down.
pub(super) fn add_own_addresses(topology: &Topology, number: usize) -> Result<(), IoError> {
    topology.nodes[number].run(|| {
        let mut netlink = Netlink::open()?;
        for (interface, own) in INTERFACES.into_iter().zip([OWN_INSIDE[number], OWN_OUTSIDE[number]]) {
            for (address, bits) in own.into_iter().zip(PREFIX_BITS) {
                netlink.add_address(interface, Prefix::new(address, bits))?;
            }
        }
        Ok(())
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_taken_in_either_family_and_no_target_twice() {
        let targets = targets();
        for path in Path::ALL {
            for is_ipv6 in [false, true] {
                assert!(
                    targets.iter().any(|(taken, address)| *taken == path && address.is_ipv6() == is_ipv6),
                    "{path:?}"
                );
            }
        }
        let mut addresses: Vec<SocketAddr> = targets.iter().map(|(_, address)| *address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), targets.len());
    }

    #[test]
    fn the_example_rules_find_all_their_definitions() {
        let text = super::super::example::RULES;
        let defined = |text: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix("define "));
            let mut names: Vec<String> =
                lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(defined(&definitions()), defined(text));
    }
}
