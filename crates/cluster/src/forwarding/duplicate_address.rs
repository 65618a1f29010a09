//! Duplicate address detection for the shared addresses, before a starting node takes them.
//!
//! The forwarder sends the probes and reports what came for the addresses. The node decides when to probe, and what follows. A
//! probe claims nothing: for IPv4 it is an ARP request from 0.0.0.0 (RFC 5227 section 2.1.1), for IPv6 a neighbour solicitation
//! from the unspecified address (RFC 4862 section 5.4.2).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flow::PortId;
use flow::wire::{MacAddress, build};

use super::address_report::{AddressReport, AddressReportKind};
use super::forwarder::Forwarder;
use crate::group::GroupSet;

/// Addresses that are probed at a time; those beyond are not.
pub const PROBED_ADDRESSES_MAX: usize = 256;
/// Reports that wait to be polled; those beyond are dropped: the next probe is answered as well.
const ADDRESS_REPORTS_WAITING_MAX: usize = 64;

impl Forwarder {
    /// Sends a probe for each shared address of these groups that is not held, and listens for answers from now on.
    pub fn probe_addresses(&mut self, groups: GroupSet) {
        self.is_probing = true;
        let groups = groups.without(self.held);
        let probed = self.addresses.shared(groups).take(PROBED_ADDRESSES_MAX);
        let probed: Vec<(PortId, IpAddr)> = probed.map(|local| (local.port, local.prefix.address)).collect();
        for (port, address) in probed {
            let mac = self.ports[usize::from(port.0)].mac;
            let frame = match address {
                IpAddr::V4(target) => build::arp_request(mac, Ipv4Addr::UNSPECIFIED, target),
                IpAddr::V6(target) => build::neighbour_solicitation(mac, Ipv6Addr::UNSPECIFIED, target),
            };
            self.counters.probes += 1;
            self.push_control(port, frame);
        }
    }

    /// Listens for answers to probes no longer.
    pub fn stop_probing(&mut self) {
        self.is_probing = false;
        self.address_reports.clear();
    }

    /// What was found of the shared addresses while they were probed, oldest first.
    pub fn poll_address_report(&mut self) -> Option<AddressReport> {
        self.address_reports.pop_front()
    }

    /// Another host claims a local address that is not held.
    pub(super) fn note_in_use(&mut self, port: PortId, address: IpAddr, mac: MacAddress) {
        self.note_address_report(port, address, mac, AddressReportKind::InUse);
    }

    /// Another host probes for an address. Two nodes that start together probe for the same addresses: if each gave way to the
    /// other, no node would serve. So link addresses decide, and the lowest of the shared addresses alone counts: it is on one
    /// link, whose two ends see the same order.
    pub(super) fn note_probe(&mut self, port: PortId, address: IpAddr, mac: MacAddress) {
        let Some(own) = self.ports.get(usize::from(port.0)).map(|port| port.mac) else { return };
        let lowest = self.addresses.shared(GroupSet::ALL).next();
        if lowest.is_some_and(|local| local.port == port && local.prefix.address == address) {
            let kind = if mac.0 < own.0 { AddressReportKind::ProbedFirst } else { AddressReportKind::ProbedSecond };
            self.note_address_report(port, address, mac, kind);
        }
    }

    fn note_address_report(&mut self, port: PortId, address: IpAddr, mac: MacAddress, kind: AddressReportKind) {
        let is_own = self.ports.get(usize::from(port.0)).is_none_or(|on| on.mac == mac);
        let local = self.addresses.find(address, port).filter(|local| local.port == port && !local.is_held(self.held));
        let Some(group) = local.and_then(|local| local.group) else { return };
        if self.is_probing && !is_own && self.address_reports.len() < ADDRESS_REPORTS_WAITING_MAX {
            self.address_reports.push_back(AddressReport { port, address, group, mac, kind });
        }
    }
}
