//! A Linux router: its rules, its addresses, its death.

use std::fs;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use flow::wire::arp::ArpOperation;
use flow::wire::{MacAddress, build};
use flow::{Frame, PortId};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::{IoError, PacketIo, sysctl};

use super::conntrackd::ConntrackdError;
use crate::bench::bulk::{load_rules, rules};
use crate::bench::replication::network::Route;
use crate::testbed::topology::{INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS};

/// Announcements of each address: as many as keepalived sends (`vrrp_garp_master_repeat`).
const ANNOUNCEMENTS: usize = 5;
/// How often it is looked whether a packet has been forwarded.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// What lets the kernel forward, IPv4 and IPv6.
const FORWARDING: [&str; 2] = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];

/// Keeps the daemons' datagrams out of tracking: else they would be connections to replicate.
fn untracked_link() -> String {
    let link = INTERFACES[2];
    format!(
        "table inet dedicated_link {{
            chain received {{
                type filter hook prerouting priority raw;
                iifname \"{link}\" notrack
            }}
            chain sent {{
                type filter hook output priority raw;
                oifname \"{link}\" notrack
            }}
        }}"
    )
}

/// Makes a stateful firewall with masquerading of a node, without addresses yet.
pub(crate) fn prepare(node: &Namespace) -> Result<(), ConntrackdError> {
    load_rules(node, &rules()).map_err(ConntrackdError::Unavailable)?;
    load_rules(node, &untracked_link()).map_err(ConntrackdError::Unavailable)?;
    node.run(|| {
        // What the rules have loaded. A connection whose state is lost is lost: none is picked up in the middle.
        sysctl::write("net/netfilter/nf_conntrack_tcp_loose", "0")?;
        FORWARDING.iter().try_for_each(|name| sysctl::write(name, "1"))
    })??;
    Ok(())
}

/// Gives a node the shared addresses, and the route that goes with them.
pub(crate) fn take_addresses(node: &Namespace, route: Option<Route>) -> Result<(), IoError> {
    node.run(|| {
        let mut netlink = Netlink::open()?;
        for (interface, addresses) in shared() {
            for (address, bits) in addresses.into_iter().zip(PREFIX_BITS) {
                netlink.add_address(interface, Prefix::new(address, bits))?;
            }
        }
        route.map_or(Ok(()), |route| netlink.add_route(route.to, route.via))
    })?
}

/// Announces the shared addresses. Returns the sockets that it was sent through: to close them takes the kernel tens of
/// milliseconds, which need not be waited for now.
pub(crate) fn announce(node: &Namespace) -> Result<Vec<AfPacketIo>, IoError> {
    node.run(|| {
        let mut netlink = Netlink::open()?;
        let mut sockets = Vec::new();
        for (interface, addresses) in shared() {
            let mac = MacAddress(netlink.interface(interface)?.mac);
            let mut io = AfPacketIo::open(&[PortConfig::new(interface)])?;
            let mut announcements = addresses.map(|address| announcement(mac, address));
            for _ in 0..ANNOUNCEMENTS {
                for bytes in &mut announcements {
                    let length_bytes = bytes.len();
                    if let Some(frame) = Frame::new(bytes, 0, length_bytes, PortId(0)) {
                        io.transmit(PortId(0), &frame)?;
                    }
                }
            }
            sockets.push(io);
        }
        Ok(sockets)
    })?
}

fn announcement(mac: MacAddress, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => build::gratuitous_arp(ArpOperation::Request, mac, address),
        IpAddr::V6(address) => build::unsolicited_neighbour_advertisement(mac, address, true),
    }
}

const fn shared() -> [(&'static str, [IpAddr; 2]); 2] {
    [(INTERFACES[0], INSIDE), (INTERFACES[1], OUTSIDE)]
}

/// From now on the node forwards nothing. Unlike switching interfaces off, this does not wait for the kernel.
pub(crate) fn stop_forwarding(node: &Namespace) -> Result<(), IoError> {
    node.run(|| FORWARDING.iter().try_for_each(|name| sysctl::write(name, "0")))?
}

/// From now on the node answers nothing, as a machine without power.
pub(crate) fn unplug(node: &Namespace) -> Result<(), IoError> {
    node.run(|| {
        let mut netlink = Netlink::open()?;
        shared().into_iter().try_for_each(|(interface, _)| netlink.set_up(interface, false))
    })?
}

/// IPv4 packets that the calling thread's namespace has forwarded, past its rules.
pub(crate) fn forwarded_packets() -> u64 {
    let statistics = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    count_forwarded(&statistics).unwrap_or_default()
}

/// Waits until the calling thread's namespace has forwarded more packets. Returns when it had; `None` when it has not in time.
pub(crate) fn await_forwarding(forwarded_before: u64, within: Duration) -> Option<Instant> {
    let deadline = Instant::now() + within;
    loop {
        let now = Instant::now();
        if forwarded_packets() > forwarded_before {
            return Some(now);
        }
        if now >= deadline {
            return None;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Finds the count in two lines that begin with `Ip:`, one of names and one of numbers (RFC 4293: ipIfStatsOutForwDatagrams).
fn count_forwarded(statistics: &str) -> Option<u64> {
    let mut lines = statistics.lines().filter(|line| line.starts_with("Ip:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let mut fields = names.split_ascii_whitespace().zip(numbers.split_ascii_whitespace());
    fields.find(|(name, _)| *name == "ForwDatagrams")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_packets_are_found_among_the_statistics() {
        let statistics = "Ip: Forwarding DefaultTTL ForwDatagrams\nIp: 1 64 1234\nIcmp: InMsgs\nIcmp: 7\n";
        assert_eq!(count_forwarded(statistics), Some(1234));
        assert_eq!(count_forwarded("Icmp: InMsgs\nIcmp: 7\n"), None);
        assert_eq!(forwarded_packets(), count_forwarded(&fs::read_to_string("/proc/net/snmp").unwrap()).unwrap());
    }
}
