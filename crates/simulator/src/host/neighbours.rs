//! A host's neighbour table: ARP and neighbour discovery as in ordinary stacks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use flow::Instant;
use flow::wire::{MacAddress, build};

/// The retransmission interval of solicitations.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// The age at which a known address is confirmed again; it is used meanwhile.
const REACHABLE: Duration = Duration::from_secs(2);
/// The maximum number of frames that wait for one address; the oldest are dropped.
const WAITING_MAX: usize = 32;

#[derive(Debug, Default)]
struct Neighbour {
    mac: Option<MacAddress>,
    confirmed_at: Instant,
    asked_at: Option<Instant>,
    waiting: Vec<Vec<u8>>,
}

/// The neighbours of a host.
#[derive(Debug)]
pub(super) struct Neighbours {
    mac: MacAddress,
    entries: BTreeMap<IpAddr, Neighbour>,
}

impl Neighbours {
    pub(super) const fn new(mac: MacAddress) -> Self {
        Self { mac, entries: BTreeMap::new() }
    }

    /// Sends a frame to a neighbour after filling in its link addresses, or queues it until the neighbour answers.
    pub(super) fn send(&mut self, now: Instant, from: IpAddr, to: IpAddr, mut frame: Vec<u8>, out: &mut Vec<Vec<u8>>) {
        let own = self.mac;
        let entry = self.entries.entry(to).or_default();
        let is_fresh = entry.mac.is_some() && now < entry.confirmed_at + REACHABLE;
        if !is_fresh && entry.asked_at.is_none_or(|at| at + RETRY_INTERVAL <= now) {
            entry.asked_at = Some(now);
            out.push(question(own, from, to));
        }
        if let Some(mac) = entry.mac {
            flow::wire::ethernet::set_addresses(&mut frame, mac, own);
            out.push(frame);
        } else {
            if entry.waiting.len() >= WAITING_MAX {
                entry.waiting.remove(0);
            }
            entry.waiting.push(frame);
        }
    }

    /// Learns a link address: the last announcement counts, solicited or not.
    pub(super) fn learn(&mut self, now: Instant, address: IpAddr, mac: MacAddress, out: &mut Vec<Vec<u8>>) {
        let entry = self.entries.entry(address).or_default();
        entry.mac = Some(mac);
        entry.confirmed_at = now;
        for mut frame in entry.waiting.drain(..) {
            flow::wire::ethernet::set_addresses(&mut frame, mac, self.mac);
            out.push(frame);
        }
    }

    /// Repeats unanswered solicitations.
    pub(super) fn handle_timeout(&mut self, now: Instant, sources: [IpAddr; 2], out: &mut Vec<Vec<u8>>) {
        for (address, entry) in &mut self.entries {
            let is_due = !entry.waiting.is_empty() && entry.asked_at.is_none_or(|at| at + RETRY_INTERVAL <= now);
            if is_due {
                entry.asked_at = Some(now);
                let from = sources[usize::from(address.is_ipv6())];
                out.push(question(self.mac, from, *address));
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.entries.values().filter(|entry| !entry.waiting.is_empty());
        waiting.filter_map(|entry| Some(entry.asked_at? + RETRY_INTERVAL)).min()
    }
}

fn question(mac: MacAddress, from: IpAddr, to: IpAddr) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => build::arp_request(mac, from, to),
        (IpAddr::V6(from), IpAddr::V6(to)) => build::neighbour_solicitation(mac, from, to),
        _ => unreachable!("a host sends to a neighbour from an address of the neighbour's family"),
    }
}
