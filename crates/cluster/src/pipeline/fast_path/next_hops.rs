//! The next hops that the fast path knows, by index.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use flow::fast_path::NextHop;
use flow::{Instant, PortId};

use super::program::FastPathProgram;
use crate::forwarding::Forwarder;

/// Next hops that are known below at a time. When there are more, all are entered anew.
pub const FAST_PATH_NEXT_HOPS_MAX: u32 = 4096;

/// What a next hop is set in.
pub(super) struct Below<'a> {
    pub(super) program: &'a mut dyn FastPathProgram,
    /// By port.
    pub(super) interfaces: &'a [Option<u32>],
}

/// A next hop that is known below.
struct KnownHop {
    port: PortId,
    neighbour: IpAddr,
    /// As it was set last.
    set: Option<NextHop>,
    /// Packets went there since the last sweep.
    is_used: bool,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct NextHops {
    hops: Vec<KnownHop>,
    by_name: BTreeMap<(PortId, IpAddr), u32>,
    /// The forwarder's neighbours as they were when the hops were compared with them.
    neighbours_revision: u64,
}

impl NextHops {
    pub(super) fn index(&self, port: PortId, neighbour: IpAddr) -> Option<u32> {
        self.by_name.get(&(port, neighbour)).copied()
    }

    pub(super) const fn is_full(&self) -> bool {
        self.hops.len() >= FAST_PATH_NEXT_HOPS_MAX as usize
    }

    /// Forgets all. The indices are given anew.
    pub(super) fn clear(&mut self) {
        self.hops.clear();
        self.by_name.clear();
    }

    /// The neighbours are compared at the next [`NextHops::refresh`], whether they have changed or not.
    pub(super) const fn forget_revision(&mut self) {
        self.neighbours_revision = 0;
    }

    /// Adds a next hop, and returns its index. There must be room.
    pub(super) fn add(&mut self, port: PortId, neighbour: IpAddr, forwarder: &Forwarder, below: Below<'_>) -> u32 {
        let index = self.hops.len() as u32;
        self.hops.push(KnownHop { port, neighbour, set: None, is_used: true });
        self.by_name.insert((port, neighbour), index);
        self.set(index, forwarder, below);
        index
    }

    /// Whether packets to it are sent below.
    pub(super) fn is_set(&self, index: u32) -> bool {
        self.hops.get(index as usize).is_some_and(|hop| hop.set.is_some())
    }

    /// So many packets went there since the last sweep.
    pub(super) fn note_packets(&mut self, index: u32, packets: u32) {
        if let Some(hop) = self.hops.get_mut(index as usize) {
            hop.is_used |= packets > 0;
        }
    }

    /// Confirms the link addresses of those used, as if the packets had come through the node.
    pub(super) fn confirm_used(&mut self, now: Instant, forwarder: &mut Forwarder) {
        for hop in self.hops.iter_mut().filter(|hop| hop.is_used) {
            hop.is_used = false;
            let _ = forwarder.use_neighbour(now, hop.port, hop.neighbour);
        }
    }

    /// Sets those whose neighbour has another link address than when they were set, or none any more.
    pub(super) fn refresh(&mut self, forwarder: &Forwarder, below: Below<'_>) {
        if self.neighbours_revision == forwarder.neighbours_revision() {
            return;
        }
        self.neighbours_revision = forwarder.neighbours_revision();
        let Below { program, interfaces } = below;
        for index in 0..self.hops.len() as u32 {
            self.set(index, forwarder, Below { program: &mut *program, interfaces });
        }
    }

    fn set(&mut self, index: u32, forwarder: &Forwarder, below: Below<'_>) {
        let hop = &mut self.hops[index as usize];
        let interface = below.interfaces.get(usize::from(hop.port.0)).copied().flatten();
        let link = forwarder.link_to(hop.port, hop.neighbour);
        let new = interface
            .zip(link)
            .map(|(ifindex, link)| NextHop::new(ifindex, link.source.0, link.destination.0, link.mtu_bytes));
        if hop.set != new {
            hop.set = new;
            below.program.set_next_hop(index, new.as_ref());
        }
    }
}
