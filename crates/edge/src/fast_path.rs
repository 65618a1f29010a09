//! Flows whose packets something below the edge forwards by itself, for example a program in the kernel.
//!
//! ```text
//!   packet that reaches the edge ─► what was seen below is entered ─► as ever ─► ┬ installed: windows are raised, or it is removed
//!                                                                                └ settled, not installed: it is installed
//!   the flow's node or near host changes, a segment of it is held, it closes, its record goes ─► it is removed
//!   a node fails or loses heartbeats, its rates are controlled, the network's port is down ─► the node is stopped below
//! ```
//!
//! A flow is *settled* if the edge would do nothing with its packets but forward them, in both directions by one node. A node that is
//! stopped ends the forwarding of all its flows at once, in both directions, by one order. Its flows stay installed, and go on once the node is
//! started again; those that have moved meanwhile were removed with the first packet by which they did.
//!
//! The edge decides, and its caller carries out [`FastPathOrder`]s. A place is the number of an installed flow. It is free again once the
//! caller has reported that the flow is removed.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::fast_path::Windows;
use flow::list::NONE;
use flow::wire::{MacAddress, ip_protocol};
use flow::{NODES_MAX, NodeId, Tuple};

use crate::config::CachePolicy;
use crate::flows::{Index, Record};

/// Packets of a flow that pass the edge before it is installed: as at a node, shorter flows are over before it would pay.
const PACKETS_MIN: u8 = 10;

/// A flow that is forwarded below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettledFlow {
    /// The tuple of its packets that enter the cluster, by the network's port. Those that leave have the inverse, and come from the node.
    pub entering: Tuple,
    /// Its node.
    pub node: NodeId,
    /// The destination link address of frames that leave. Those with another must reach the edge.
    pub near_address: MacAddress,
    /// Of TCP: the windows of the near end, then of the far end. They are followed, and not enforced.
    pub windows: Option<Windows>,
}

/// Whether packets from and to a node are forwarded below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeForwarding {
    /// All of them must reach the edge.
    Stopped,
    /// Those of installed flows are forwarded.
    Started {
        /// The destination link address of frames to the node; `None`: it stays as it came.
        link_address: Option<MacAddress>,
    },
}

/// What is to be done below. Orders are to be carried out at once, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastPathOrder {
    /// Install a flow, or report [`Edge::note_refused`](crate::Edge::note_refused).
    Install {
        /// Its place, which is free.
        place: u32,
        /// The flow.
        flow: SettledFlow,
    },
    /// Remove a flow, and report [`Edge::note_removed`](crate::Edge::note_removed).
    Remove {
        /// Its place.
        place: u32,
    },
    /// Raise the windows of a flow: a segment of it passed the edge.
    Raise {
        /// Its place.
        place: u32,
        /// The windows.
        windows: Windows,
    },
    /// Start or stop a node. At first all are stopped.
    SetNode {
        /// The node.
        node: NodeId,
        /// What is forwarded.
        forwarding: NodeForwarding,
    },
}

/// What was forwarded below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FastPathCounters {
    /// Flows that are installed.
    pub installed: u32,
    /// Packets that were forwarded; a frame of many segments is one.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Flows that found no place.
    pub full: u64,
}

/// A place below.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The record of its flow, or [`NONE`] if it is gone.
    flow: Index,
    node: NodeId,
    near_address: MacAddress,
    state: PlaceState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlaceState {
    Free,
    Installed,
    /// Its removal was ordered and is not reported yet.
    Leaving,
}

/// The flows below.
#[derive(Debug)]
pub(crate) struct FastPath {
    connections_max: u32,
    /// The recovery policy does not need the segments of TCP.
    takes_tcp: bool,
    places: Vec<Place>,
    /// The place of each record, or [`NONE`]; shorter than the table while the records behind have none.
    by_flow: Vec<u32>,
    free: Vec<u32>,
    /// At most one removal and one installation for each place, one order for each node, and the windows of the last batch.
    orders: VecDeque<FastPathOrder>,
    nodes: [NodeForwarding; NODES_MAX],
    pub(crate) counters: FastPathCounters,
}

impl FastPath {
    /// For at most `connections_max` flows, beside this recovery policy.
    ///
    /// [`CachePolicy::HeavyHitters`] gives each connection that is counted a counter, so that any segment may be held.
    pub(crate) const fn new(connections_max: u32, policy: Option<CachePolicy>) -> Self {
        let takes_tcp = matches!(policy, None | Some(CachePolicy::SynOnly | CachePolicy::FromSecondLostHeartbeat));
        Self {
            connections_max,
            takes_tcp,
            places: Vec::new(),
            by_flow: Vec::new(),
            free: Vec::new(),
            orders: VecDeque::new(),
            nodes: [NodeForwarding::Stopped; NODES_MAX],
            counters: FastPathCounters { installed: 0, packets: 0, bytes: 0, full: 0 },
        }
    }

    pub(crate) fn poll(&mut self) -> Option<FastPathOrder> {
        self.orders.pop_front()
    }

    /// Starts or stops a node.
    pub(crate) fn set_node(&mut self, node: NodeId, forwarding: NodeForwarding) {
        let known = &mut self.nodes[usize::from(node.0)];
        if *known != forwarding {
            *known = forwarding;
            self.orders.push_back(FastPathOrder::SetNode { node, forwarding });
        }
    }

    /// The place of a flow, if it is installed.
    pub(crate) fn installed(&self, index: Index) -> Option<u32> {
        let number = *self.by_flow.get(index as usize)?;
        let place = self.places.get(number as usize)?;
        (place.state == PlaceState::Installed).then_some(number)
    }

    fn set_place(&mut self, index: Index, number: u32) {
        let index = index as usize;
        if index >= self.by_flow.len() {
            self.by_flow.resize(index + 1, NONE);
        }
        self.by_flow[index] = number;
    }

    /// The record of an installed flow.
    pub(crate) fn flow(&self, place: u32) -> Option<Index> {
        let place = self.places.get(place as usize)?;
        (place.state == PlaceState::Installed).then_some(place.flow)
    }

    fn is_settled(&self, record: &Record) -> bool {
        let needs_nothing = match record.entering.protocol {
            ip_protocol::TCP => self.takes_tcp && record.tcp.is_settled(),
            ip_protocol::UDP => true,
            _ => false,
        };
        needs_nothing && record.is_learned && record.segment == NONE && record.acknowledgement == NONE
    }

    /// A packet of the flow passed the edge. `near_address`: it left from the flow's node, to this link address.
    pub(crate) fn follow(&mut self, index: Index, record: &mut Record, near_address: Option<MacAddress>) {
        record.note_passed(near_address.is_some());
        if let Some(place) = self.keep(index, record, near_address) {
            if record.entering.protocol == ip_protocol::TCP {
                self.orders.push_back(FastPathOrder::Raise { place, windows: record.tcp.windows() });
            }
        } else if let Some(near_address) = near_address {
            self.install(index, record, near_address);
        }
    }

    /// Removes a flow that is not as it was installed any more. Returns its place if it is installed afterwards.
    pub(crate) fn keep(&mut self, index: Index, record: &Record, near_address: Option<MacAddress>) -> Option<u32> {
        let number = self.installed(index)?;
        let place = &self.places[number as usize];
        let is_same = place.node == record.node && near_address.is_none_or(|address| address == place.near_address);
        let is_kept = is_same && self.is_settled(record);
        if !is_kept {
            self.leave(number);
        }
        is_kept.then_some(number)
    }

    fn install(&mut self, index: Index, record: &mut Record, near_address: MacAddress) {
        let is_started = self.nodes[usize::from(record.node.0)] != NodeForwarding::Stopped;
        let has_passed = record.has_passed(PACKETS_MIN);
        let has_place = self.by_flow.get(index as usize).is_some_and(|number| *number != NONE);
        if has_place || !has_passed || !is_started || !self.is_settled(record) {
            return;
        }
        let place = Place { flow: index, node: record.node, near_address, state: PlaceState::Installed };
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.places.len() < self.connections_max as usize => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
            None => {
                record.forget_passed();
                self.counters.full += 1;
                return;
            }
        };
        self.places[number as usize] = place;
        self.set_place(index, number);
        self.counters.installed += 1;
        let windows = (record.entering.protocol == ip_protocol::TCP).then(|| record.tcp.windows());
        let flow = SettledFlow { entering: record.entering, node: record.node, near_address, windows };
        self.orders.push_back(FastPathOrder::Install { place: number, flow });
    }

    fn leave(&mut self, number: u32) {
        self.places[number as usize].state = PlaceState::Leaving;
        self.counters.installed -= 1;
        self.orders.push_back(FastPathOrder::Remove { place: number });
    }

    /// The record of a flow is being removed.
    pub(crate) fn release_record(&mut self, index: Index) {
        if let Some(number) = self.installed(index) {
            self.leave(number);
        }
        let Some(number) = self.by_flow.get_mut(index as usize) else { return };
        if let Some(place) = self.places.get_mut(core::mem::replace(number, NONE) as usize) {
            place.flow = NONE;
        }
    }

    /// A flow is not below any more, or never was: its place is free. Returns its record, if there still is one.
    pub(crate) fn free(&mut self, number: u32) -> Option<Index> {
        let place = self.places.get_mut(number as usize).filter(|place| place.state != PlaceState::Free)?;
        if place.state == PlaceState::Installed {
            self.counters.installed -= 1;
        }
        place.state = PlaceState::Free;
        self.free.push(number);
        let index = Some(place.flow).filter(|index| *index != NONE)?;
        self.set_place(index, NONE);
        Some(index)
    }
}
