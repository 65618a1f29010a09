//! Router advertisements for hosts that configure themselves (RFC 4861 section 6.2, RFC 4191).
//!
//! The router that hosts see is a shared link-local address: each group that has one on a port is a router there, on whichever node holds
//! it. Its link address is that of the node's port, as for all shared addresses, so that an advertisement after a take-over renews it in
//! hosts' neighbour caches, and their default router stays.
//!
//! ```text
//!   the group is held, or held anew ─► at once, and three times more within 16 s each ─► between the two intervals
//!   solicitation ─► answered to the host alone; from a host without an address: to all, after at most half a second
//!   nobody will hold the group, or a reload ends it ─► router lifetime 0
//!   a reload removes the last address of a network ─► its preferred lifetime is 0, for two hours at most
//! ```

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use flow::wire::ethernet::EthernetView;
use flow::wire::icmpv6::NEIGHBOUR_HOP_LIMIT;
use flow::wire::router::{RouterAdvertisement, solicitation_from};
use flow::wire::{MacAddress, Packet, build};
use flow::{Disposition, DropReason, Instant, PortId};

use super::address::{LocalAddress, is_link_local};
use super::advertising::advertised_prefixes;
use super::config::RouterAdvertisements;
use super::forwarder::Forwarder;
use super::learning::Sharing;
use super::neighbour::Learnt;
use crate::group::GroupSet;

impl Forwarder {
    /// Sends the advertisements that are due.
    pub(super) fn advertise_routers(&mut self, now: Instant) {
        if !self.is_active() || self.sharing == Sharing::Follower {
            return;
        }
        let groups = self.held.without(self.conflicts.yielded(now));
        while let Some(port) = self.advertising.poll(now, &self.ports) {
            for router in self.routers(groups, Some(port)) {
                let frame = self.router_advertisement(now, router, None, false);
                self.push_advertisement(port, frame);
            }
        }
    }

    /// When advertisements are due.
    pub(super) fn advertising_due(&self) -> Option<Instant> {
        let advertises = self.is_active() && self.sharing != Sharing::Follower;
        self.advertising.due().filter(|_| advertises)
    }

    /// Advertises to hosts that the routers of these groups are none any more: no node will hold them.
    pub fn withdraw_routers(&mut self, now: Instant, groups: GroupSet) {
        if self.sharing == Sharing::Follower {
            return;
        }
        let routers = self.routers(groups, None);
        self.withdraw(now, &routers);
    }

    /// The routers that are held and advertised now, for [`Forwarder::withdraw_ended`].
    pub(super) fn advertised_routers(&self) -> Vec<Router> {
        if self.sharing == Sharing::Follower { Vec::new() } else { self.routers(self.held, None) }
    }

    /// Advertises to hosts the end of the routers that a reload has ended.
    pub(super) fn withdraw_ended(&mut self, now: Instant, before: &[Router]) {
        let after = self.advertised_routers();
        let ended: Vec<_> = before.iter().filter(|router| !after.contains(router)).copied().collect();
        self.withdraw(now, &ended);
    }

    fn withdraw(&mut self, now: Instant, routers: &[Router]) {
        for router in routers {
            let frame = self.router_advertisement(now, *router, None, true);
            self.push_advertisement(router.port, frame);
        }
    }

    /// The shared link-local addresses of these groups on ports that advertise routers, or on one of them.
    fn routers(&self, groups: GroupSet, on: Option<PortId>) -> Vec<Router> {
        let advertises = |local: &&LocalAddress| {
            on.is_none_or(|port| port == local.port)
                && self.ports[usize::from(local.port.0)].router_advertisements.is_some()
        };
        let router = |local: &LocalAddress| match local.prefix.address {
            IpAddr::V6(address) if is_link_local(local.prefix.address) => Some(Router { port: local.port, address }),
            _ => None,
        };
        self.addresses.shared(groups).filter(advertises).filter_map(router).collect()
    }

    /// The frame by which a router advertises itself, to one host or to all.
    fn router_advertisement(
        &self,
        now: Instant,
        router: Router,
        to: Option<(MacAddress, Ipv6Addr)>,
        is_over: bool,
    ) -> Vec<u8> {
        let port = &self.ports[usize::from(router.port.0)];
        let over = RouterAdvertisements::default();
        let settings = port.router_advertisements.as_ref().unwrap_or(&over);
        let mut prefixes = if is_over { vec![] } else { advertised_prefixes(port) };
        prefixes.extend(self.advertising.deprecated(now, router.port));
        let advertisement = RouterAdvertisement {
            router_lifetime: if is_over { Duration::ZERO } else { settings.lifetime },
            preference: settings.preference,
            is_managed: settings.is_managed,
            has_other: settings.has_other,
            link_address: port.mac,
            mtu_bytes: settings.mtu_bytes,
            prefixes: &prefixes,
            name_servers: if is_over { &[] } else { &settings.name_servers },
            name_servers_lifetime: settings.name_servers_lifetime,
        };
        build::router_advertisement((port.mac, router.address), to, &advertisement)
    }

    fn push_advertisement(&mut self, port: PortId, frame: Vec<u8>) {
        self.counters.router_advertisements += 1;
        self.push_control(port, frame);
    }

    /// A host asks for routers (RFC 4861 section 6.2.6).
    pub(super) fn handle_router_solicitation(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Disposition {
        let headers = &*packet.headers;
        if headers.ttl != NEIGHBOUR_HOP_LIMIT {
            return Disposition::Drop(DropReason::Malformed);
        }
        let frame = packet.frame.bytes();
        let end = frame.len().min(headers.l3_end());
        let given = match solicitation_from(frame.get(usize::from(headers.l4_offset)..end).unwrap_or_default()) {
            Ok(given) => given.filter(|mac| !mac.is_group()),
            Err(reason) => return Disposition::Drop(reason),
        };
        let (ingress, source) = (packet.frame.ingress, headers.tuple.source_ip());
        let IpAddr::V6(host) = source else { return Disposition::Drop(DropReason::Malformed) };
        if host.is_unspecified() {
            self.advertising.note_solicited(now, ingress);
            return Disposition::Consumed;
        }
        if let Some(mac) = given {
            self.learn(now, (ingress, source), mac, Learnt::Asked);
        }
        let mac = given.or_else(|| EthernetView::new_checked(frame).ok().map(|link| link.source()));
        let groups = self.held.without(self.conflicts.yielded(now));
        for (router, mac) in self.routers(groups, Some(ingress)).into_iter().zip(mac.into_iter().cycle()) {
            let frame = self.router_advertisement(now, router, Some((mac, host)), false);
            self.push_advertisement(ingress, frame);
        }
        Disposition::Consumed
    }
}

/// A shared link-local address on a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Router {
    port: PortId,
    address: Ipv6Addr,
}
