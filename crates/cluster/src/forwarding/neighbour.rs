//! The neighbour cache: link addresses of those on the ports' links, and packets that wait for one.
//!
//! ```text
//!           packet to send             answer                     not confirmed for REACHABLE_TIME
//!   ┌──────┐              ┌────────────┐          ┌───────────┐              ┌───────┐
//!   │ Idle ├─────────────►│ Incomplete ├─────────►│ Reachable ├─────────────►│ Stale │
//!   └──▲─▲─┘              └─────┬──────┘          └─────▲─────┘              └──▲─┬──┘
//!      │ │      no answer       │      seen, not        │ answer                │ │ packet to send
//!      │ └──────────────────────┘      asked: to Stale ─│───────────────────────┘ │
//!      │                no answer                   ┌───┴───┐                     │
//!      └────────────────────────────────────────────┤ Probe │◄────────────────────┘
//!                                                   └───────┘
//! ```
//! These are the states of RFC 4861 section 7.3.2 without Delay: a stale entry is probed when it is first used, and
//! serves meanwhile. Requests follow each other after 100, 200, 400 … ms rather than each second: after a take-over
//! packets wait for the answer.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use flow::random::mix;
use flow::wire::{Headers, MacAddress};
use flow::{Checksum, Instant, PortId, Segmentation};

use super::as_received::AsReceived;

const SETS: usize = 512;
const WAYS: usize = 8;
/// Neighbours that are remembered. When the places that an address may have are all taken, the least useful neighbour
/// there is forgotten: unresolved before stale before reachable, the longest unused first; gateways never.
pub const NEIGHBOURS_MAX: usize = SETS * WAYS;
/// Neighbours that are being asked at a time. When there are more, packets to further unknown ones are dropped.
pub const SOLICITATIONS_MAX: usize = 256;
/// Packets that wait for one neighbour: the first packets of as many connections may come before a gateway has answered. When
/// there are more, the newest is dropped.
pub const QUEUED_PACKETS_PER_NEIGHBOUR_MAX: usize = 256;
/// Bytes of packets that wait for one neighbour (Linux's default of `unres_qlen_bytes`). When there are more, the newest packet
/// is dropped.
pub const QUEUED_PER_NEIGHBOUR_MAX_BYTES: usize = 212_992;
/// Packets that wait in all. When there are more, the newest is dropped.
pub const QUEUED_PACKETS_MAX: usize = 1024;
/// Bytes of packets that wait in all. When there are more, the newest packet is dropped.
pub const QUEUED_MAX_BYTES: usize = 1 << 20;
const _: () = assert!(QUEUED_PACKETS_PER_NEIGHBOUR_MAX <= QUEUED_PACKETS_MAX && NEIGHBOURS_MAX <= u16::MAX as usize);
const _: () = assert!(QUEUED_PER_NEIGHBOUR_MAX_BYTES <= QUEUED_MAX_BYTES);

/// How long a confirmed link address is believed (RFC 4861 section 10: REACHABLE_TIME).
pub(super) const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// How long to wait for the answer to the first request; doubled each time.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// Requests before giving up: after 0, 100, 300, 700 and 1500 ms; given up after 3.1 s.
const REQUESTS_MAX: u8 = 5;

/// How much is known of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourState {
    /// Nothing, and it is not being asked.
    Idle,
    /// Nothing; it is being asked.
    Incomplete,
    /// Its link address, which was confirmed lately.
    Reachable,
    /// Its link address, which was not confirmed lately.
    Stale,
    /// Its link address, which it is being asked to confirm.
    Probe,
}

/// A packet that waits for its next hop's link address.
#[derive(Clone, Debug)]
pub(super) struct QueuedPacket {
    pub(super) ingress: PortId,
    pub(super) bytes: Vec<u8>,
    pub(super) headers: Headers,
    pub(super) checksum: Checksum,
    pub(super) segmentation: Segmentation,
    /// The tuple that it came in with, by which its sender knows it.
    pub(super) as_received: Option<AsReceived>,
}

/// The name of an entry; valid until the entry is evicted, for a pinned one always.
pub(super) type Slot = u16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) port: PortId,
    pub(super) address: IpAddr,
    pub(super) mac: MacAddress,
    pub(super) state: NeighbourState,
    /// When it last answered a request.
    pub(super) confirmed_at: Option<Instant>,
    /// Reachable: until when. Incomplete and Probe: when to ask again.
    deadline: Instant,
    requests: u8,
    used_at: Instant,
    is_pinned: bool,
    queued: Queued,
}

/// How much waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Queued {
    packets: usize,
    bytes: usize,
}

impl Queued {
    const fn plus(self, packet_bytes: usize) -> Self {
        Self { packets: self.packets + 1, bytes: self.bytes + packet_bytes }
    }

    const fn is_within(self, packets_max: usize, max_bytes: usize) -> bool {
        self.packets <= packets_max && self.bytes <= max_bytes
    }
}

/// What is to be done about a neighbour whose time has come.
#[derive(Debug)]
pub(super) enum Due {
    /// Ask it: everybody on the link, or the link address that it had.
    Solicit(Entry),
    /// It does not answer; these packets cannot be sent.
    Unreachable(Vec<QueuedPacket>),
}

/// How a link address was learnt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Learnt {
    /// It answered a request.
    Confirmed,
    /// The neighbour asked this node for something.
    Asked,
    /// It was overheard: enough to correct what is known, but not to enter a new neighbour.
    Overheard,
}

#[derive(Clone, Debug)]
pub(super) struct Neighbours {
    entries: Vec<Option<Entry>>,
    seed: u64,
    /// Entries in the states Incomplete and Probe.
    soliciting: Vec<Slot>,
    queue: VecDeque<(Slot, QueuedPacket)>,
    /// How much is in the queue.
    queued: Queued,
    evicted_packets: u64,
    /// Changes whenever a link address becomes known, changes, or is known no more. The first is 1.
    pub(super) revision: u64,
    /// Entries that were evicted: their slots' names may be those of other neighbours now.
    pub(super) evictions: u32,
}

impl Neighbours {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            entries: alloc::vec![None; NEIGHBOURS_MAX],
            seed: mix(seed),
            soliciting: Vec::new(),
            queue: VecDeque::new(),
            queued: Queued::default(),
            evicted_packets: 0,
            revision: 1,
            evictions: 0,
        }
    }

    /// The neighbour's entry, made if there is none. `None`: all its places are taken by gateways.
    pub(super) fn find_or_insert(&mut self, now: Instant, port: PortId, address: IpAddr) -> Option<Slot> {
        if let Some(slot) = self.find(port, address) {
            return Some(slot);
        }
        let set = self.set_of(port, address);
        let slot = (set..set + WAYS)
            .filter(|slot| self.usefulness(*slot).is_some())
            .min_by_key(|slot| self.usefulness(*slot))?;
        let slot = Slot::try_from(slot).expect("there are fewer entries");
        self.forget(slot);
        self.entries[usize::from(slot)] = Some(Entry {
            port,
            address,
            mac: MacAddress::default(),
            state: NeighbourState::Idle,
            confirmed_at: None,
            deadline: Instant::ZERO,
            requests: 0,
            used_at: now,
            is_pinned: false,
            queued: Queued::default(),
        });
        Some(slot)
    }

    pub(super) fn find(&self, port: PortId, address: IpAddr) -> Option<Slot> {
        let set = self.set_of(port, address);
        let is_it = |entry: &Option<Entry>| entry.is_some_and(|entry| entry.address == address && entry.port == port);
        let way = self.entries[set..set + WAYS].iter().position(is_it)?;
        Slot::try_from(set + way).ok()
    }

    pub(super) fn entry(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(usize::from(slot))?.as_ref()
    }

    /// Keeps the entry whatever comes: it is a gateway's.
    pub(super) fn pin(&mut self, slot: Slot) {
        if let Some(entry) = &mut self.entries[usize::from(slot)] {
            entry.is_pinned = true;
        }
    }

    /// No entry is kept whatever comes any more: the gateways are others now.
    pub(super) fn unpin_all(&mut self) {
        self.entries.iter_mut().flatten().for_each(|entry| entry.is_pinned = false);
    }

    /// The link address to send to now. `None`: it is not known; see [`Neighbours::enqueue`].
    #[inline]
    pub(super) fn link_address(&mut self, now: Instant, slot: Slot) -> Option<MacAddress> {
        let entry = self.entries[usize::from(slot)].as_mut()?;
        entry.used_at = now;
        match entry.state {
            NeighbourState::Idle | NeighbourState::Incomplete => None,
            NeighbourState::Probe => Some(entry.mac),
            NeighbourState::Reachable if now < entry.deadline => Some(entry.mac),
            NeighbourState::Reachable | NeighbourState::Stale => {
                let mac = entry.mac;
                self.solicit(now, slot);
                Some(mac)
            }
        }
    }

    /// The port and the link address to send to now, if nothing else is to be done about the neighbour.
    #[inline(always)]
    pub(super) fn settled_link(&mut self, now: Instant, slot: Slot) -> Option<(PortId, MacAddress)> {
        let entry = self.entries.get_mut(usize::from(slot))?.as_mut()?;
        let is_settled = match entry.state {
            NeighbourState::Probe => true,
            NeighbourState::Reachable => now < entry.deadline,
            NeighbourState::Idle | NeighbourState::Incomplete | NeighbourState::Stale => false,
        };
        if !is_settled {
            return None;
        }
        entry.used_at = now;
        Some((entry.port, entry.mac))
    }

    /// Begins to ask for the neighbour's link address, or to have it confirmed. False when too many are being asked.
    pub(super) fn solicit(&mut self, now: Instant, slot: Slot) -> bool {
        let is_full = self.soliciting.len() >= SOLICITATIONS_MAX;
        let Some(entry) = self.entries[usize::from(slot)].as_mut() else { return false };
        let next = match entry.state {
            NeighbourState::Incomplete | NeighbourState::Probe => return true,
            NeighbourState::Idle => NeighbourState::Incomplete,
            NeighbourState::Reachable | NeighbourState::Stale => NeighbourState::Probe,
        };
        if is_full {
            return false;
        }
        (entry.state, entry.requests, entry.deadline) = (next, 0, now);
        self.soliciting.push(slot);
        true
    }

    /// Whether to have the link address confirmed unasked: of gateways always, of others if it was known.
    pub(super) fn is_worth_asking(&self, slot: Slot, everybody: bool) -> bool {
        self.entry(slot).is_some_and(|entry| entry.is_pinned || (everybody && entry.state != NeighbourState::Idle))
    }

    /// Keeps a packet of `packet_bytes` until the neighbour's link address is known. False, and the packet not kept, when there
    /// is no room.
    pub(super) fn enqueue(&mut self, slot: Slot, packet_bytes: usize, packet: impl FnOnce() -> QueuedPacket) -> bool {
        let Some(entry) = self.entries[usize::from(slot)].as_mut() else { return false };
        let (of_neighbour, in_all) = (entry.queued.plus(packet_bytes), self.queued.plus(packet_bytes));
        let has_room = of_neighbour.is_within(QUEUED_PACKETS_PER_NEIGHBOUR_MAX, QUEUED_PER_NEIGHBOUR_MAX_BYTES)
            && in_all.is_within(QUEUED_PACKETS_MAX, QUEUED_MAX_BYTES);
        if has_room {
            (entry.queued, self.queued) = (of_neighbour, in_all);
            self.queue.push_back((slot, packet()));
        }
        has_room
    }

    /// The packet that was kept last.
    pub(super) fn newest_queued(&mut self) -> Option<&mut QueuedPacket> {
        self.queue.back_mut().map(|(_, packet)| packet)
    }

    /// A neighbour's link address came to be known. Answers with the packets that waited for it.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        (port, address): (PortId, IpAddr),
        mac: MacAddress,
        how: Learnt,
    ) -> Vec<QueuedPacket> {
        let slot = match how {
            Learnt::Asked => self.find_or_insert(now, port, address),
            Learnt::Confirmed | Learnt::Overheard => self.find(port, address),
        };
        let Some(slot) = slot else { return Vec::new() };
        let Some(entry) = self.entries[usize::from(slot)].as_mut() else { return Vec::new() };
        let is_news = entry.mac != mac || matches!(entry.state, NeighbourState::Idle | NeighbourState::Incomplete);
        entry.mac = mac;
        self.revision += u64::from(is_news);
        if how == Learnt::Confirmed {
            (entry.state, entry.deadline) = (NeighbourState::Reachable, now + REACHABLE_TIME);
            entry.confirmed_at = Some(now);
        } else if is_news {
            entry.state = NeighbourState::Stale;
        }
        if !matches!(entry.state, NeighbourState::Incomplete | NeighbourState::Probe) {
            self.soliciting.retain(|soliciting| *soliciting != slot);
        }
        self.take_queue(slot)
    }

    /// The neighbour whose time has come, if there is one.
    pub(super) fn poll_due(&mut self, now: Instant) -> Option<Due> {
        let index = self.soliciting.iter().position(|slot| self.deadline(*slot) <= now)?;
        let slot = self.soliciting[index];
        let entry = self.entries[usize::from(slot)].as_mut()?;
        if entry.requests < REQUESTS_MAX {
            entry.deadline = now + FIRST_RETRY * (1 << entry.requests);
            entry.requests += 1;
            return Some(Due::Solicit(*entry));
        }
        entry.state = NeighbourState::Idle;
        self.revision += 1;
        self.soliciting.swap_remove(index);
        Some(Due::Unreachable(self.take_queue(slot)))
    }

    /// When [`Neighbours::poll_due`] next has something.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.soliciting.iter().map(|slot| self.deadline(*slot)).min()
    }

    /// Packets that were dropped because their neighbour's entry was needed for another.
    pub(super) const fn evicted_packets(&self) -> u64 {
        self.evicted_packets
    }

    pub(super) fn queued_packets(&self) -> usize {
        self.queue.len()
    }

    fn deadline(&self, slot: Slot) -> Instant {
        self.entry(slot).map_or(Instant::ZERO, |entry| entry.deadline)
    }

    fn take_queue(&mut self, slot: Slot) -> Vec<QueuedPacket> {
        let waiting = self.entries[usize::from(slot)].as_mut().map(|entry| core::mem::take(&mut entry.queued));
        let Some(taken) = waiting.filter(|queued| queued.packets > 0) else { return Vec::new() };
        self.queued.packets -= taken.packets;
        self.queued.bytes -= taken.bytes;
        let mut packets = Vec::with_capacity(taken.packets);
        for (waits_for, packet) in core::mem::take(&mut self.queue) {
            if waits_for == slot {
                packets.push(packet);
            } else {
                self.queue.push_back((waits_for, packet));
            }
        }
        packets
    }

    fn forget(&mut self, slot: Slot) {
        self.soliciting.retain(|soliciting| *soliciting != slot);
        self.evicted_packets += self.take_queue(slot).len() as u64;
        self.evictions += u32::from(self.entries[usize::from(slot)].take().is_some());
        self.revision += 1;
    }

    /// Orders the entries of a set by how little would be missed. `None`: it must stay.
    fn usefulness(&self, slot: usize) -> Option<(u8, Instant)> {
        let Some(entry) = &self.entries[slot] else { return Some((0, Instant::ZERO)) };
        let class = match entry.state {
            NeighbourState::Idle => 1,
            NeighbourState::Incomplete => 2,
            NeighbourState::Stale => 3,
            NeighbourState::Probe => 4,
            NeighbourState::Reachable => 5,
        };
        (!entry.is_pinned).then_some((class, entry.used_at))
    }

    #[inline]
    fn set_of(&self, port: PortId, address: IpAddr) -> usize {
        let bits = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let low = mix(self.seed ^ bits as u64 ^ u64::from(port.0) << 56);
        mix(low ^ (bits >> 64) as u64) as usize % SETS * WAYS
    }
}
