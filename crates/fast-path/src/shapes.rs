//! Keys and values of the maps, as the program reads them (`bpf/fast_path.c`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use flow::Tuple;
use flow::fast_path::{DirectionPlan, NextHop, Plan, Side, Windows};
use flow::wire::checksum::Sum;
use flow::wire::ip_protocol;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A tuple of one direction, as packets come in; a key of `flows`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct FlowKey {
    source: [u8; 16],
    destination: [u8; 16],
    /// Network order.
    source_port: [u8; 2],
    destination_port: [u8; 2],
    ifindex: u32,
    version: u8,
    protocol: u8,
    unused: [u8; 6],
}

/// The translation of one direction; a value of `flows`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct FlowValue {
    seal: u64,
    pub(crate) connection: u32,
    next_hop: u32,
    generation: u32,
    flags: u16,
    pub(crate) direction: u8,
    window_scale: u8,
    /// As packets go out, if they are routed; else the link address that they must be for, if [`FLOW_LINK`] is set.
    source: [u8; 16],
    destination: [u8; 16],
    source_port: [u8; 2],
    destination_port: [u8; 2],
    /// As it is added to a checksum in memory.
    address_delta: u16,
    port_delta: u16,
}

/// A value of `next_hops`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct NextHopEntry {
    seal: u64,
    ifindex: u32,
    mtu_bytes: u32,
    destination: [u8; 6],
    source: [u8; 6],
    flags: u32,
}

/// The most bytes of a [`RecordEntry`].
pub(crate) const RECORD_BYTES_MAX: usize = 254;

/// A value of `records`: how the loader describes a connection to one that takes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RecordEntry {
    /// 0: there is none.
    length_bytes: u16,
    bytes: [u8; RECORD_BYTES_MAX],
}

/// An interface with the program for XDP; a value of `ports`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PortEntry {
    address: [u8; 6],
    unused: [u8; 2],
}

/// The most interfaces with the program for XDP.
pub(crate) const PORTS_MAX: u32 = 256;

/// The value of `control`, in mapped memory.
#[repr(C)]
pub(crate) struct ControlCell {
    pub(crate) heartbeat_ns: AtomicU64,
    pub(crate) heartbeat_age_max_ns: AtomicU64,
    pub(crate) allow_without_heartbeat_until_ns: AtomicU64,
    pub(crate) generation: AtomicU32,
    pub(crate) switches: AtomicU32,
}

/// The numbers of one side, in mapped memory.
#[repr(C)]
struct SideCell {
    end: AtomicU32,
    end_max: AtomicU32,
    window_max: AtomicU32,
    acknowledged_max: AtomicU32,
}

/// A value of `connections`, in mapped memory: one cache line.
#[repr(C)]
pub(crate) struct ConnectionCell {
    sides: [SideCell; 2],
    pub(crate) last_packet_ns: AtomicU64,
    pub(crate) bytes: [AtomicU64; 2],
    pub(crate) packets: [AtomicU32; 2],
}

// The program asserts the same sizes.
const _: () = assert!(size_of::<FlowKey>() == 48);
const _: () = assert!(size_of::<FlowValue>() == 64);
const _: () = assert!(size_of::<NextHopEntry>() == 32);
const _: () = assert!(size_of::<RecordEntry>() == 256);
const _: () = assert!(size_of::<PortEntry>() == 8);
const _: () = assert!(size_of::<ControlCell>() == 32);
const _: () = assert!(size_of::<ConnectionCell>() == 64);

const FLOW_LIBERAL: u16 = 1;
const FLOW_SACK: u16 = 2;
const FLOW_LINK: u16 = 4;
const NEXT_HOP_VALID: u32 = 1;
const NEXT_HOP_PEER: u32 = 2;
/// Of [`ControlCell::switches`]: the program forwards.
pub(crate) const SWITCH_ENABLED: u32 = 1;
/// Of [`ControlCell::switches`]: packets are bridged, not routed.
pub(crate) const SWITCH_BRIDGED: u32 = 2;

/// The multiplier of word `index` of a seal: odd, and unlike those of other words.
const fn factor(index: u64) -> u64 {
    let product = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index + 1);
    (product ^ product >> 29) | 1
}

/// A hash of words, by which the program recognises a value that was replaced while it was read.
fn seal(words: &[u64], first: u64) -> u64 {
    words.iter().zip(first..).fold(0, |sum, (word, index)| sum.wrapping_add(word.wrapping_mul(factor(index))))
}

/// The change of a checksum's sum between two runs of bytes, as a word in memory; 0 if there is none.
fn delta(before: &[u8], after: &[u8]) -> u16 {
    if before == after { 0 } else { Sum::of(after).minus(Sum::of(before)).fold().to_be() }
}

// SAFETY: each is made of integers and arrays of bytes without padding (the sizes are asserted above, and `IntoBytes` is
// derived): any bytes are a value, and a value is bytes.
unsafe impl aya::Pod for FlowKey {}
// SAFETY: as above.
unsafe impl aya::Pod for FlowValue {}
// SAFETY: as above.
unsafe impl aya::Pod for NextHopEntry {}
// SAFETY: as above.
unsafe impl aya::Pod for RecordEntry {}
// SAFETY: as above.
unsafe impl aya::Pod for PortEntry {}

impl PortEntry {
    /// With this link address.
    pub(crate) const fn new(address: [u8; 6]) -> Self {
        Self { address, unused: [0; 2] }
    }
}

impl RecordEntry {
    /// `None`: the record is too long.
    pub(crate) fn new(record: &[u8]) -> Option<Self> {
        let mut bytes = [0; RECORD_BYTES_MAX];
        bytes.get_mut(..record.len())?.copy_from_slice(record);
        Some(Self { length_bytes: record.len() as u16, bytes })
    }

    /// The record; empty if there is none.
    pub(crate) fn record(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length_bytes)).unwrap_or_default()
    }
}

impl FlowKey {
    /// The key of packets with this tuple that come in on the interface `ifindex`.
    pub(crate) const fn new(tuple: &Tuple, ifindex: u32) -> Self {
        Self {
            source: tuple.source,
            destination: tuple.destination,
            source_port: tuple.source_port.to_be_bytes(),
            destination_port: tuple.destination_port.to_be_bytes(),
            ifindex,
            version: tuple.version,
            protocol: tuple.protocol,
            unused: [0; 6],
        }
    }

    pub(crate) const fn is_tcp(&self) -> bool {
        self.protocol == ip_protocol::TCP
    }
}

impl FlowValue {
    /// The translation of packets of direction `direction` (0 or 1) of `plan`.
    pub(crate) fn new(plan: &Plan, direction: usize, connection: u32, generation: u32) -> (FlowKey, Self) {
        let DirectionPlan { tuple, translated, ingress, next_hop } = &plan.directions[direction];
        let key = FlowKey::new(tuple, *ingress);
        let out = FlowKey::new(translated, 0);
        let sides = plan.windows.unwrap_or_default().sides;
        let liberal = if plan.is_liberal { FLOW_LIBERAL } else { 0 };
        let sack = if sides[1 - direction].permits_sack { FLOW_SACK } else { 0 };
        let (mut source, mut link) = (out.source, 0);
        if let Some(address) = plan.link_addresses[direction] {
            link = FLOW_LINK;
            source[..address.len()].copy_from_slice(&address);
        }
        let mut value = Self {
            seal: 0,
            connection,
            next_hop: *next_hop,
            generation,
            flags: liberal | sack | link,
            direction: direction as u8,
            window_scale: sides[direction].window_scale,
            source,
            destination: out.destination,
            source_port: out.source_port,
            destination_port: out.destination_port,
            address_delta: delta(&key.as_bytes()[..32], &out.as_bytes()[..32]),
            port_delta: delta(&key.as_bytes()[32..36], &out.as_bytes()[32..36]),
        };
        let words: [u64; 8] = zerocopy::transmute!(value);
        let key_words: [u64; 6] = zerocopy::transmute!(key);
        value.seal = seal(&words[1..], 0).wrapping_add(seal(&key_words, 7));
        (key, value)
    }

    /// The shift of the windows that its direction's sender advertises.
    pub(crate) const fn window_scale(&self) -> u8 {
        self.window_scale
    }

    /// Whether its direction's receiver permits selective acknowledgements.
    pub(crate) const fn receiver_permits_sack(&self) -> bool {
        self.flags & FLOW_SACK != 0
    }
}

impl NextHopEntry {
    pub(crate) fn new(hop: &NextHop) -> Self {
        let mut entry = Self {
            seal: 0,
            ifindex: hop.ifindex,
            mtu_bytes: hop.mtu_bytes,
            destination: hop.destination,
            source: hop.source,
            flags: NEXT_HOP_VALID | if hop.to_peer { NEXT_HOP_PEER } else { 0 },
        };
        let words: [u64; 4] = zerocopy::transmute!(entry);
        entry.seal = seal(&words[1..], 13);
        entry
    }
}

/// Raises `place` to `value`, in serial number arithmetic, as the program does.
fn raise(place: &AtomicU32, value: u32) {
    let raised = |known| flow::serial::is_after(value, known).then_some(value);
    // The number being there already is not a failure.
    let _ = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised);
}

impl ConnectionCell {
    /// Begins a new connection: its windows, and no packets.
    pub(crate) fn reset(&self, windows: Option<&Windows>, now_ns: u64) {
        let unknown = Windows::default();
        for (cell, side) in self.sides.iter().zip(&windows.unwrap_or(&unknown).sides) {
            cell.end.store(side.end, Ordering::Relaxed);
            cell.end_max.store(side.end_max, Ordering::Relaxed);
            cell.window_max.store(side.window_max, Ordering::Relaxed);
            cell.acknowledged_max.store(side.acknowledged_max, Ordering::Relaxed);
        }
        self.last_packet_ns.store(now_ns, Ordering::Relaxed);
        self.bytes.iter().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
        self.packets.iter().for_each(|packets| packets.store(0, Ordering::Relaxed));
    }

    /// Raises the windows to those of `windows`.
    pub(crate) fn raise(&self, windows: &Windows) {
        for (cell, side) in self.sides.iter().zip(&windows.sides) {
            raise(&cell.end, side.end);
            raise(&cell.end_max, side.end_max);
            raise(&cell.window_max, side.window_max);
            raise(&cell.acknowledged_max, side.acknowledged_max);
        }
    }

    /// The windows; what does not change is as in `installed`.
    pub(crate) fn windows(&self, installed: &Windows) -> Windows {
        let side = |index: usize| {
            let cell = &self.sides[index];
            Side {
                end: cell.end.load(Ordering::Relaxed),
                end_max: cell.end_max.load(Ordering::Relaxed),
                window_max: cell.window_max.load(Ordering::Relaxed),
                acknowledged_max: cell.acknowledged_max.load(Ordering::Relaxed),
                ..installed.sides[index]
            }
        };
        Windows { sides: [side(0), side(1)] }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn plan() -> Plan {
        let (client, server) = ((Ipv4Addr::new(10, 0, 0, 2), 4000), (Ipv4Addr::new(192, 0, 2, 1), 80));
        let public = (Ipv4Addr::new(198, 51, 100, 7), 61_000);
        Plan {
            directions: [
                DirectionPlan {
                    tuple: Tuple::v4(6, client, server),
                    translated: Tuple::v4(6, public, server),
                    ingress: 3,
                    next_hop: 1,
                },
                DirectionPlan {
                    tuple: Tuple::v4(6, server, public),
                    translated: Tuple::v4(6, server, client),
                    ingress: 4,
                    next_hop: 0,
                },
            ],
            windows: Some(Windows::default()),
            is_liberal: false,
            link_addresses: [None; 2],
        }
    }

    #[test]
    fn a_key_is_the_tuple_in_network_order_and_the_interface() {
        let bytes = FlowKey::new(&plan().directions[0].tuple, 0x0102_0304);
        let mut expected = vec![0; 10];
        expected.extend([0xff, 0xff, 10, 0, 0, 2]);
        expected.extend([0; 10]);
        expected.extend([0xff, 0xff, 192, 0, 2, 1]);
        expected.extend([0x0f, 0xa0, 0, 80]);
        expected.extend(0x0102_0304_u32.to_ne_bytes());
        expected.extend([4, 6, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes.as_bytes(), expected);
    }

    #[test]
    fn a_seal_covers_every_word_of_the_value_and_of_the_key() {
        let (key, value) = FlowValue::new(&plan(), 0, 7, 1);
        let sum = |key: [u64; 6], value: [u64; 8]| seal(&value[1..], 0).wrapping_add(seal(&key, 7));
        let (key_words, words): ([u64; 6], [u64; 8]) = (zerocopy::transmute!(key), zerocopy::transmute!(value));
        assert_eq!(sum(key_words, words), value.seal);
        for index in 0..6 {
            let mut changed = key_words;
            changed[index] ^= 1 << index;
            assert_ne!(sum(changed, words), value.seal);
        }
        for index in 1..8 {
            let mut changed = words;
            changed[index] ^= 1 << index;
            assert_ne!(sum(key_words, changed), value.seal);
        }
        let mut swapped = key_words;
        swapped.swap(1, 3);
        assert_ne!(sum(swapped, words), value.seal, "a tuple and its inverse differ");
    }

    #[test]
    fn deltas_turn_the_checksum_of_one_tuple_into_that_of_the_other() {
        let (key, value) = FlowValue::new(&plan(), 1, 7, 1);
        let out = FlowKey::new(&plan().directions[1].translated, 0);
        let sum = |bytes: &[u8]| Sum::of(bytes);
        let with = |bytes: &[u8], delta: u16| sum(bytes).plus_u16(u16::from_be(delta)).fold();
        assert_eq!(with(&key.as_bytes()[..32], value.address_delta), sum(&out.as_bytes()[..32]).fold());
        assert_eq!(with(&key.as_bytes()[32..36], value.port_delta), sum(&out.as_bytes()[32..36]).fold());
        let mut plain = plan();
        plain.directions[0].translated = plain.directions[0].tuple;
        let (_, value) = FlowValue::new(&plain, 0, 7, 1);
        assert_eq!((value.address_delta, value.port_delta), (0, 0));
    }

    #[test]
    fn windows_only_rise() {
        // SAFETY: all-zero bytes are a valid value of integers alone.
        let cell: ConnectionCell = unsafe { std::mem::zeroed() };
        let fixed = Side { window_max: 1000, window_scale: 3, ..Side::default() };
        let side = |end: u32| Side { end, end_max: end, acknowledged_max: end, ..fixed };
        let windows = |one: u32, other: u32| Windows { sides: [side(one), side(other)] };
        cell.reset(Some(&windows(u32::MAX - 5, 70)), 9);
        cell.raise(&windows(u32::MAX - 8, 60));
        assert_eq!(cell.windows(&windows(0, 0)), windows(u32::MAX - 5, 70));
        cell.raise(&windows(4, 71));
        assert_eq!(cell.windows(&windows(0, 0)), windows(4, 71));
        assert_eq!(cell.last_packet_ns.load(Ordering::Relaxed), 9);
    }
}
