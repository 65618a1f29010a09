//! Packets that are held to be resent: a bounded cache with one slot per packet.
//!
//! Slots are in the order in which their packets were held. If the cache is full, the packet that was held first is the victim.
//! It is unacknowledged for the longest time, so its sender has probably given up or waits for a long timeout.
//!
//! What is read with each segment and acknowledgement is half a cache line per slot, apart from the packets' bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::list::{Linked, Links, List, NONE};
use crate::serial::{is_after, is_before};
use crate::table::prefetch::{CACHE_LINE_BYTES, prefetch};
use crate::wire::checksum::{self, Sum};
use crate::wire::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES};
use crate::wire::{Headers, MacAddress, TcpSegment, tcp_flags};
use crate::{Instant, NodeId, Tuple};

/// Bytes of a held segment's frame: a full segment in Ethernet with a tag. Longer ones are cut.
pub const SEGMENT_FRAME_BYTES_MAX: usize = 1518;
/// Bytes of a held acknowledgement's frame: its headers without payload, with 20 bytes of IPv4 options at most.
pub const ACKNOWLEDGEMENT_FRAME_BYTES_MAX: usize = 124;

const IPV4_LENGTH_OFFSET: usize = 2;
const IPV4_CHECKSUM_OFFSET: usize = 10;
const IPV6_LENGTH_OFFSET: usize = 4;
const IPV6_HEADER_BYTES: usize = 40;
const TCP_SEQUENCE_OFFSET: usize = 4;
const TCP_ACKNOWLEDGEMENT_OFFSET: usize = 8;
const TCP_FLAGS_OFFSET: usize = 13;

/// What is known of a held packet, apart from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// When it was held.
    pub held_at: Instant,
    links: Links,
    /// The connection that it belongs to.
    pub connection: u32,
    sequence: u32,
    /// Bytes that are held, from its link header on.
    length_bytes: u16,
    payload_bytes: u16,
    l3_offset: u8,
    l4_offset: u8,
    flags: u8,
    /// The node that it was resent to last, or [`NOT_RESENT`].
    pub resent_to: NodeId,
}

const _: () = assert!(size_of::<Held>() == 32, "two are in a cache line");

/// No node.
pub const NOT_RESENT: NodeId = NodeId(u8::MAX);

/// How a held packet is changed when it is resent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resending {
    /// Another sequence number.
    pub sequence: Option<u32>,
    /// Another link address to send it to.
    pub destination: Option<MacAddress>,
}

impl Held {
    const EMPTY: Self = Self {
        held_at: Instant::ZERO,
        links: Links::NEW,
        connection: 0,
        sequence: 0,
        length_bytes: 0,
        payload_bytes: 0,
        l3_offset: 0,
        l4_offset: 0,
        flags: 0,
        resent_to: NOT_RESENT,
    };

    /// Holds a packet's headers and at most `payload_bytes_max` bytes of its payload; fewer where they do not fit.
    /// `None`, without changes, if it cannot be held: its headers do not fit, or it would be changed and has urgent data or a
    /// signature.
    fn fill(&mut self, bytes: &mut [u8], packet: Holding<'_>) -> Option<()> {
        let Holding { frame, headers, segment, payload_bytes_max, is_signed } = packet;
        let payload = usize::from(headers.payload_offset);
        let room_bytes = bytes.len().checked_sub(payload)?;
        let payload_bytes = headers.l3_end().checked_sub(payload)?;
        let kept_bytes = payload_bytes.min(payload_bytes_max).min(room_bytes);
        let is_truncated = kept_bytes < payload_bytes;
        let is_acknowledgement = payload_bytes_max == 0;
        let is_changeable = !is_signed && !segment.has(tcp_flags::URG) && (kept_bytes > 0 || is_acknowledgement);
        if (is_truncated || is_acknowledgement) && !is_changeable {
            return None;
        }
        let length_bytes = payload + kept_bytes;
        let (l3_offset, l4_offset) = (u8::try_from(headers.l3_offset).ok()?, u8::try_from(headers.l4_offset).ok()?);
        bytes[..length_bytes].copy_from_slice(frame.get(..length_bytes)?);
        (self.l3_offset, self.l4_offset) = (l3_offset, l4_offset);
        (self.length_bytes, self.payload_bytes) = (length_bytes as u16, kept_bytes as u16);
        let ends = tcp_flags::FIN | tcp_flags::PSH;
        self.flags = if is_truncated { segment.flags & !ends } else { segment.flags };
        self.sequence = segment.sequence;
        Some(())
    }

    /// Bytes of the packet from its IP header on, as it is held.
    #[must_use]
    pub const fn packet_bytes(&self) -> usize {
        self.length_bytes as usize - self.l3_offset as usize
    }

    /// Where its IP header begins, in bytes from the start of the frame.
    #[must_use]
    pub const fn l3_offset(&self) -> usize {
        self.l3_offset as usize
    }

    /// Its first sequence number.
    pub const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// The number behind it, as it is held.
    pub fn end(&self) -> u32 {
        let (flags, sequence, payload_bytes) = (self.flags, self.sequence, self.payload_bytes.into());
        TcpSegment { flags, sequence, payload_bytes, ..TcpSegment::default() }.end()
    }

    /// Whether it is a SYN.
    pub const fn is_syn(&self) -> bool {
        self.flags & tcp_flags::SYN != 0
    }

    /// Whether it is a SYN that begins a connection: without ACK.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN
    }

    /// Writes the packet to be sent: lengths, flags and checksums follow what is held. `tuple` is the packet's own.
    fn write(&self, bytes: &[u8], tuple: &Tuple, resending: Resending, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&bytes[..usize::from(self.length_bytes)]);
        if let Some(MacAddress(address)) = resending.destination {
            out[..address.len()].copy_from_slice(&address);
        }
        let (ip, tcp) = out[usize::from(self.l3_offset)..].split_at_mut((self.l4_offset - self.l3_offset).into());
        let packet_bytes = ip.len() + tcp.len();
        if tuple.version == 4 {
            ip[IPV4_LENGTH_OFFSET..][..2].copy_from_slice(&(packet_bytes as u16).to_be_bytes());
            ip[IPV4_CHECKSUM_OFFSET..][..2].fill(0);
            let checksum = Sum::of(ip).checksum();
            ip[IPV4_CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum.to_be_bytes());
        } else {
            let length_bytes = (packet_bytes - IPV6_HEADER_BYTES) as u16;
            ip[IPV6_LENGTH_OFFSET..][..2].copy_from_slice(&length_bytes.to_be_bytes());
        }
        if let Some(sequence) = resending.sequence {
            tcp[TCP_SEQUENCE_OFFSET..][..4].copy_from_slice(&sequence.to_be_bytes());
        }
        // The bits of explicit congestion notification stay as they came.
        let known = tcp_flags::FIN | tcp_flags::SYN | tcp_flags::RST | tcp_flags::PSH | tcp_flags::ACK | tcp_flags::URG;
        tcp[TCP_FLAGS_OFFSET] = tcp[TCP_FLAGS_OFFSET] & !known | self.flags & known;
        tcp[TCP_CHECKSUM_OFFSET..][..2].fill(0);
        let checksum = Sum::of(tcp).plus(checksum::pseudo_header(tuple, tcp.len() as u32)).checksum();
        tcp[TCP_CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Slots that are allocated at once.
const CHUNK_SLOTS: usize = 64;

/// Some slots.
#[derive(Debug)]
struct Chunk<const N: usize> {
    held: Box<[Held]>,
    bytes: Box<[[u8; N]]>,
}

/// The array of slots, in chunks that never move.
#[derive(Debug, Default)]
struct Slots<const N: usize>(Vec<Chunk<N>>);

impl<const N: usize> Slots<N> {
    fn get(&self, slot: u32) -> &Held {
        &self.0[slot as usize / CHUNK_SLOTS].held[slot as usize % CHUNK_SLOTS]
    }

    fn get_mut(&mut self, slot: u32) -> &mut Held {
        &mut self.0[slot as usize / CHUNK_SLOTS].held[slot as usize % CHUNK_SLOTS]
    }

    fn bytes(&self, slot: u32) -> &[u8; N] {
        &self.0[slot as usize / CHUNK_SLOTS].bytes[slot as usize % CHUNK_SLOTS]
    }

    fn prefetch(&self, slot: u32) {
        if let Some(chunk) = self.0.get(slot as usize / CHUNK_SLOTS) {
            prefetch(&chunk.held, slot as usize % CHUNK_SLOTS, 0);
        }
    }

    fn prefetch_bytes(&self, slot: u32) {
        if let Some(chunk) = self.0.get(slot as usize / CHUNK_SLOTS) {
            prefetch(&chunk.bytes, slot as usize % CHUNK_SLOTS, 0);
            prefetch(&chunk.bytes, slot as usize % CHUNK_SLOTS, CACHE_LINE_BYTES);
        }
    }
}

impl<const N: usize> Linked for Slots<N> {
    fn links(&mut self, index: u32) -> &mut Links {
        &mut self.get_mut(index).links
    }
}

/// A packet to be held.
#[derive(Clone, Copy)]
pub struct Holding<'a> {
    /// Its frame, from the link header on.
    pub frame: &'a [u8],
    /// Its headers.
    pub headers: &'a Headers,
    /// Its segment.
    pub segment: &'a TcpSegment,
    /// Bytes of payload to hold at most.
    pub payload_bytes_max: usize,
    /// It has a signature, so that it cannot be changed.
    pub is_signed: bool,
}

/// The cache.
#[derive(Debug)]
pub struct HeldPackets<const N: usize> {
    slots: Slots<N>,
    free: Vec<u32>,
    order: List,
    slots_max: u32,
    used: u32,
}

impl<const N: usize> HeldPackets<N> {
    /// Bytes of memory of a slot, with its share of the pointers to its chunk.
    pub const SLOT_BYTES: usize = size_of::<Held>() + N + size_of::<Chunk<N>>().div_ceil(CHUNK_SLOTS);
    /// The frame's headers fit without IP options and extension headers.
    const HEADERS_FIT: () = assert!(N >= 14 + 8 + IPV6_HEADER_BYTES + TCP_HEADER_BYTES);

    /// A cache of at most `memory_bytes_max` bytes, which are reserved as they are needed.
    pub fn new(memory_bytes_max: usize) -> Self {
        let () = Self::HEADERS_FIT;
        let slots_max = u32::try_from(memory_bytes_max / Self::SLOT_BYTES).unwrap_or(u32::MAX - 1);
        Self { slots: Slots(Vec::new()), free: Vec::new(), order: List::EMPTY, slots_max, used: 0 }
    }

    /// Slots in use.
    pub const fn count(&self) -> u32 {
        self.used
    }

    /// Slots at most.
    pub const fn slots_max(&self) -> u32 {
        self.slots_max
    }

    /// What is known of the packet in a slot that is in use.
    #[must_use]
    pub fn get(&self, slot: u32) -> &Held {
        self.slots.get(slot)
    }

    /// As [`HeldPackets::get`], to be changed.
    pub fn get_mut(&mut self, slot: u32) -> &mut Held {
        self.slots.get_mut(slot)
    }

    /// The number that a held packet acknowledges.
    pub fn acknowledgement(&self, slot: u32) -> u32 {
        let at = usize::from(self.get(slot).l4_offset) + TCP_ACKNOWLEDGEMENT_OFFSET;
        self.slots.bytes(slot)[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// Writes a held packet to be sent: see [`Resending`]. `tuple` is the packet's own.
    pub fn write(&self, slot: u32, tuple: &Tuple, resending: Resending, out: &mut Vec<u8>) {
        self.get(slot).write(self.slots.bytes(slot), tuple, resending, out);
    }

    /// The first of two steps before a packet of the slot's connection: fetches what is known of the held packet.
    pub fn prefetch(&self, slot: u32) {
        self.slots.prefetch(slot);
    }

    /// The second step: fetches the neighbours in the order of slots, which change when the slot is freed, and the beginning of the
    /// bytes, which the next packet overwrites.
    pub fn prefetch_neighbours(&self, slot: u32) {
        self.slots.prefetch_bytes(slot);
        if let Some(chunk) = self.slots.0.get(slot as usize / CHUNK_SLOTS) {
            let Links { next, previous } = chunk.held[slot as usize % CHUNK_SLOTS].links;
            [next, previous].into_iter().for_each(|slot| self.slots.prefetch(slot));
        }
    }

    /// The slot whose packet was held first, or `list::NONE`.
    pub const fn first(&self) -> u32 {
        self.order.first
    }

    /// The slot behind `slot` in that order, or `list::NONE`.
    pub fn next(&self, slot: u32) -> u32 {
        self.slots.get(slot).links.next
    }

    /// The slot that the next packet would evict. `None`: there is room.
    pub fn victim(&self) -> Option<u32> {
        (self.used >= self.slots_max && self.order.first != NONE).then_some(self.order.first)
    }

    /// Holds a packet in a new slot. `None`: it cannot be held, or there is no room; see [`HeldPackets::victim`].
    pub fn insert(&mut self, now: Instant, connection: u32, packet: Holding<'_>) -> Option<u32> {
        if self.used >= self.slots_max {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        self.slots.get_mut(slot).connection = connection;
        self.used += 1;
        self.order.push(&mut self.slots, slot);
        let is_held = self.replace(now, slot, packet);
        if !is_held {
            self.remove(slot);
        }
        is_held.then_some(slot)
    }

    /// Allocates a chunk of slots and returns the first.
    fn grow(&mut self) -> u32 {
        let first = (self.slots.0.len() * CHUNK_SLOTS) as u32;
        self.slots.0.push(Chunk {
            held: alloc::vec![Held::EMPTY; CHUNK_SLOTS].into_boxed_slice(),
            bytes: alloc::vec![[0; N]; CHUNK_SLOTS].into_boxed_slice(),
        });
        self.free.extend((first + 1..first + CHUNK_SLOTS as u32).rev());
        first
    }

    /// Holds another packet of the same connection in a slot. Returns false, without changes, if it cannot be held.
    pub fn replace(&mut self, now: Instant, slot: u32, packet: Holding<'_>) -> bool {
        let Some(chunk) = self.slots.0.get_mut(slot as usize / CHUNK_SLOTS) else { return false };
        let held = &mut chunk.held[slot as usize % CHUNK_SLOTS];
        let is_held = held.fill(&mut chunk.bytes[slot as usize % CHUNK_SLOTS], packet).is_some();
        if is_held {
            (held.held_at, held.resent_to) = (now, NOT_RESENT);
            self.order.remove(&mut self.slots, slot);
            self.order.push(&mut self.slots, slot);
        }
        is_held
    }

    /// Frees a slot.
    pub fn remove(&mut self, slot: u32) {
        self.order.remove(&mut self.slots, slot);
        self.free.push(slot);
        self.used -= 1;
    }
}

/// Whether a held segment is to be replaced by one that begins at `sequence`, which is not acknowledged: it begins lower, or is a
/// retransmission of the same bytes.
pub const fn is_replaced(held: (u32, u32), unacknowledged: u32, sequence: u32) -> bool {
    let covers = !is_after(held.0, unacknowledged) && is_after(held.1, unacknowledged);
    // Of a held segment that is acknowledged in part, a retransmission from the lowest missing byte is worth more.
    let begins_lower = is_before(sequence, held.0) || covers && sequence == unacknowledged;
    begins_lower || sequence == held.0
}
