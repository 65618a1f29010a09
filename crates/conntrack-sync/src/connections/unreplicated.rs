//! Counts the connections of this node that are not replicated although no rule excludes them.
//!
//! Each change of a connection, of its owner or of the filter decides anew; the sums are kept beside.

use alloc::vec::Vec;
use core::net::IpAddr;

use replication::Handle;
use replication::conntrackd::object;

use super::Connections;
use super::deferral::is_over;
use crate::mirror::{Record, flag};
use crate::unreplicated::UnreplicatedReason;

/// TCP's number, and UDP's.
const SIMPLE_PROTOCOLS: [u8; 2] = [6, 17];

const fn flag_of(reason: UnreplicatedReason) -> u32 {
    match reason {
        UnreplicatedReason::Unreplied => flag::UNREPLIED,
        UnreplicatedReason::ZoneDirection => flag::ZONE_DIRECTION,
        UnreplicatedReason::Inexpressible => flag::INEXPRESSIBLE,
        UnreplicatedReason::Deferred => flag::DEFERRED,
    }
}

impl Connections {
    /// Decides anew whether a connection counts among those that are not replicated.
    pub(crate) fn count_unreplicated(&mut self, handle: Handle) {
        let Some(record) = self.mirror.get(handle) else { return };
        let reason = if self.is_own(record) { self.unreplicated_reason(handle, record) } else { None };
        self.set_unreplicated(handle, reason);
    }

    /// The same for all connections, after a change of the filter.
    pub(crate) fn count_all_unreplicated(&mut self) {
        let mut from = Handle(0);
        while let Some(handle) = self.mirror.next_occupied(from) {
            self.count_unreplicated(handle);
            from = Handle(handle.0 + 1);
        }
    }

    /// Counts a connection for this reason from now on, or for none.
    pub(crate) fn set_unreplicated(&mut self, handle: Handle, reason: Option<UnreplicatedReason>) {
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let (before, after) = (record.flags & flag::UNREPLICATED, reason.map_or(0, flag_of));
        if before == after {
            return;
        }
        record.set(flag::UNREPLICATED, false);
        record.set(after, true);
        for (reason, count) in UnreplicatedReason::ALL.into_iter().zip(&mut self.unreplicated.0) {
            *count -= u32::from(before & flag_of(reason) != 0);
            *count += u32::from(after & flag_of(reason) != 0);
        }
    }

    fn unreplicated_reason(&self, handle: Handle, record: &Record) -> Option<UnreplicatedReason> {
        let is_deferred = !record.is_any(flag::REPLICATED) && self.is_deferred(handle);
        if is_deferred && self.filter.is_worth_replicating(record) && !is_over(record) {
            return Some(UnreplicatedReason::Deferred);
        }
        if !record.is_any(flag::REPLICATED) {
            // Which node gets the packets of an unseen one is unknown, and what goes to a group has no replies.
            let counts = !record.is_any(flag::UNSEEN) && !is_for_group(record.original().destination);
            return (counts && self.filter.awaits_reply(record)).then_some(UnreplicatedReason::Unreplied);
        }
        if !self.has_conntrackd || (record.rare.is_none() && SIMPLE_PROTOCOLS.contains(&record.protocol())) {
            return None;
        }
        let entry = record.entry();
        if entry.zone_direction().is_some() {
            return Some(UnreplicatedReason::ZoneDirection);
        }
        let is_inexpressible = object::encode(&entry, false, &mut Vec::new()).is_err();
        is_inexpressible.then_some(UnreplicatedReason::Inexpressible)
    }
}

/// Multicast or broadcast.
const fn is_for_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
    }
}
