//! The groups of shared addresses that a forwarder holds, and how they are announced to the neighbours.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use flow::wire::arp::ArpOperation;
use flow::wire::build;
use flow::{Instant, PortId};

use super::announcement::Announcement;
use super::forwarder::{Forwarder, Warming};
use super::learning::Sharing;
use crate::group::GroupSet;

impl Forwarder {
    /// For which groups of shared addresses to answer; to forward, if there is any. When groups come, the neighbours are
    /// asked to confirm their link addresses; those of the gateways are resolved if they are not known.
    pub fn set_held(&mut self, now: Instant, held: GroupSet) {
        let (come, gone) = (held.without(self.held), self.held.without(held));
        self.held = held;
        self.active_since = self.active_since.or(Some(now)).filter(|_| !held.is_empty());
        self.void_plans();
        self.end_announcement(now, gone);
        if !come.is_empty() {
            let warms = self.sharing != Sharing::Follower;
            self.warming = warms.then_some(Warming { slot: 0, at: now, everybody: true });
            self.refresh.restart(now);
            self.advertising.begin(now);
        }
        if !gone.is_empty() {
            // Replies for an address that is another node's now; their askers will ask again.
            self.control.clear();
            self.forget_conflicts(gone);
        }
        if !self.is_active() {
            self.counters.abandoned_packets += self.released.len() as u64;
            self.released.clear();
        }
    }

    /// Whether it has held a group for so long without a break.
    pub(crate) fn is_active_for(&self, now: Instant, time: Duration) -> bool {
        self.active_since.is_some_and(|since| since + time <= now)
    }

    /// Whether this node forwards: it holds a group.
    #[inline]
    pub(super) const fn is_active(&self) -> bool {
        !self.held.is_empty()
    }

    /// Announces the addresses of these groups, repeatedly for some seconds; those that are being announced begin anew. Without
    /// effect for groups that are not held.
    pub fn announce(&mut self, now: Instant, groups: GroupSet) {
        let before = self.announcement.map_or(GroupSet::EMPTY, |announcement| announcement.groups);
        let groups = groups.or(before).and(self.held);
        if !groups.is_empty() && self.sharing != Sharing::Follower {
            self.announcement = Some(Announcement::begin(now, groups));
            self.refresh.restart(now);
        }
    }

    /// Announces the addresses of these groups no longer.
    pub(super) fn end_announcement(&mut self, now: Instant, ended: GroupSet) {
        if let Some(announcement) = self.announcement.filter(|announcement| !announcement.groups.and(ended).is_empty())
        {
            // It counts through the addresses, which are fewer now.
            let groups = announcement.groups.without(ended);
            self.announcement = (!groups.is_empty()).then(|| Announcement::begin(now, groups));
        }
    }

    /// How often to announce the addresses that are held, whatever happens; `None`: not at all.
    pub fn set_announce_refresh(&mut self, now: Instant, interval: Option<Duration>) {
        self.refresh.set_interval(now, interval.filter(|interval| !interval.is_zero()));
    }

    /// Announces the addresses once more, if it is time and they are not being announced anyway.
    pub(super) fn refresh_announcements(&mut self, now: Instant) {
        if !self.is_active() || self.refresh.due().is_none_or(|at| at > now) {
            return;
        }
        self.refresh.restart(now);
        let groups = self.held.without(self.conflicts.yielded(now));
        if !groups.is_empty() && self.announcement.is_none() && self.sharing != Sharing::Follower {
            self.announcement = Some(Announcement::once(now, groups));
        }
    }

    /// Announces one address, in all forms.
    pub(super) fn push_announcement(&mut self, port: PortId, address: IpAddr) {
        let mac = self.ports[usize::from(port.0)].mac;
        match address {
            IpAddr::V4(address) => {
                for operation in [ArpOperation::Request, ArpOperation::Reply] {
                    self.push_control(port, build::gratuitous_arp(operation, mac, address));
                }
            }
            IpAddr::V6(address) => {
                self.push_control(port, build::unsolicited_neighbour_advertisement(mac, address, true));
            }
        }
    }

    /// The announcement that is due: for IPv4 the request and the reply form, for some hosts learn from one alone; for
    /// IPv6 an unsolicited advertisement to all nodes.
    pub(super) fn next_announcement(&mut self, now: Instant) -> Option<(PortId, Vec<u8>)> {
        let announcement = self.announcement.as_mut()?;
        let groups = announcement.groups;
        let forms = |address: IpAddr| if address.is_ipv4() { 2 } else { 1 };
        let items = self.addresses.shared(groups).map(|local| forms(local.prefix.address)).sum();
        let Some(mut item) = announcement.next_item(now, items) else {
            if announcement.due().is_none() {
                self.announcement = None;
            }
            return None;
        };
        let local = self.addresses.shared(groups).find(|local| {
            let forms = forms(local.prefix.address);
            let is_it = item < forms;
            item = if is_it { item } else { item - forms };
            is_it
        })?;
        let mac = self.ports[usize::from(local.port.0)].mac;
        let frame = match local.prefix.address {
            IpAddr::V4(address) => {
                let operation = if item == 0 { ArpOperation::Request } else { ArpOperation::Reply };
                build::gratuitous_arp(operation, mac, address)
            }
            IpAddr::V6(address) => build::unsolicited_neighbour_advertisement(mac, address, true),
        };
        Some((local.port, frame))
    }
}
