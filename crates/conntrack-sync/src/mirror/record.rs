//! A compact record of a connection of the kernel.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flow::netfilter::{
    Discriminator, Entry, Expectation, Extra, ProtocolInfo, Status, TcpFlags, TcpInfo, TcpSide, TcpState, Tuple,
    ZoneDirection,
};
use flow::{HashKey, NodeId};

/// The flags of a record.
pub(crate) mod flag {
    /// The slot holds a connection.
    pub(crate) const OCCUPIED: u32 = 1 << 0;
    /// The timeout is stated.
    pub(crate) const HAS_TIMEOUT: u32 = 1 << 1;
    /// The status is stated.
    pub(crate) const HAS_STATUS: u32 = 1 << 2;
    /// The mark is stated.
    pub(crate) const HAS_MARK: u32 = 1 << 3;
    /// The protocol's state is stated,
    pub(crate) const HAS_STATE: u32 = 1 << 4;
    /// with the properties of TCP's sides.
    pub(crate) const HAS_SIDES: u32 = 1 << 5;
    /// The kernel has it, as far as known.
    pub(crate) const IN_KERNEL: u32 = 1 << 6;
    /// The kernel created it, not a request of this program.
    pub(crate) const FOUND: u32 = 1 << 7;
    /// Its owner (or this node, for it) has seen no packet of it.
    pub(crate) const UNSEEN: u32 = 1 << 8;
    /// It is replicated to the peers.
    pub(crate) const REPLICATED: u32 = 1 << 9;
    /// A request to the kernel is due.
    pub(crate) const DIRTY: u32 = 1 << 10;
    /// Its owner has ended it: it is deleted from the kernel, and then here.
    pub(crate) const GONE: u32 = 1 << 11;
    /// The kernel's entry cannot be changed to this state: it must be deleted first.
    pub(crate) const REPLACE: u32 = 1 << 12;
    /// The kernel must be queried for it.
    pub(crate) const VERIFY: u32 = 1 << 13;
    /// Waits in the queue of requests.
    pub(crate) const QUEUED: u32 = 1 << 14;
    /// Waits for a retry.
    pub(crate) const RETRYING: u32 = 1 << 15;
    /// The mark of the resynchronisation in which its owner last sent it.
    pub(crate) const ROUND: u32 = 1 << 16;
    /// Its owner reported its end: it is deleted unless the kernel shows packets.
    pub(crate) const ENDING: u32 = 1 << 17;
    /// The kernel refused it, and lacks it.
    pub(crate) const REFUSED: u32 = 1 << 18;
    /// Only the kernel's timeout is to be renewed.
    pub(crate) const REFRESH: u32 = 1 << 19;
    /// Not replicated: it has no reply yet.
    pub(crate) const UNREPLIED: u32 = 1 << 20;
    /// Not replicated to a conntrackd: its zone is of one direction.
    pub(crate) const ZONE_DIRECTION: u32 = 1 << 21;
    /// Not replicated to a conntrackd for another reason.
    pub(crate) const INEXPRESSIBLE: u32 = 1 << 22;
    /// It is not replicated because it is deferred.
    pub(crate) const DEFERRED: u32 = 1 << 23;
    /// All flags for connections that are not replicated.
    pub(crate) const UNREPLICATED: u32 = UNREPLIED | ZONE_DIRECTION | INEXPRESSIBLE | DEFERRED;
    /// All flags for stated properties.
    pub(crate) const STATED: u32 = HAS_TIMEOUT | HAS_STATUS | HAS_MARK | HAS_STATE | HAS_SIDES;
}

const IS_V6: u8 = 1;
const ICMP: u8 = 2;
const NOTHING: u8 = 4;

/// The key of a connection: the original tuple and the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    addresses: [u8; 32],
    discriminator: [u16; 2],
    zone: u16,
    protocol: u8,
    shape: u8,
}

impl Key {
    #[inline]
    pub(crate) fn new(tuple: &Tuple, zone: u16) -> Self {
        let mut addresses = [0; 32];
        let shape = put_addresses(tuple, &mut addresses);
        let (discriminator, kind) = pack(tuple.discriminator);
        Self { addresses, discriminator, zone, protocol: tuple.protocol, shape: shape | kind }
    }

    /// SipHash-1-3 under a secret key; connections that differ only in the zone have different hashes.
    #[inline]
    pub(crate) fn hash(&self, key: &HashKey) -> u32 {
        let mut tuple = flow::Tuple::NONE;
        if self.shape & IS_V6 == 0 {
            tuple.version = 4;
            tuple.source[12..].copy_from_slice(&self.addresses[..4]);
            tuple.destination[12..].copy_from_slice(&self.addresses[4..8]);
        } else {
            tuple.version = 6;
            tuple.source.copy_from_slice(&self.addresses[..16]);
            tuple.destination.copy_from_slice(&self.addresses[16..]);
        }
        [tuple.source_port, tuple.destination_port] = self.discriminator;
        tuple.protocol = self.protocol;
        let hash = key.hash(&tuple);
        (hash ^ hash >> 32) as u32 ^ u32::from(self.zone).wrapping_mul(0x9e37_79b1)
    }
}

/// Rare properties.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rare {
    pub(crate) extra: Option<Box<Extra>>,
    /// The reply's addresses, where IPv6 is translated.
    reply: Option<[IpAddr; 2]>,
    verification_tags: [u32; 2],
    /// Connections expected on its behalf.
    pub(crate) expectations: Vec<Expectation>,
    /// The expectations of a peer that were injected into the kernel.
    pub(crate) injected: Vec<Expectation>,
}

impl Rare {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A connection. IPv4 addresses are stored together (original source and destination, reply source and destination); of
/// IPv6 only the original's two are stored here.
#[derive(Debug)]
pub(crate) struct Record {
    addresses: [u8; 32],
    original: [u16; 2],
    reply: [u16; 2],
    /// The kernel's identifier; 0: unknown.
    pub(crate) id: u32,
    status: u32,
    mark: u32,
    pub(crate) version: u32,
    timeout_s: u32,
    /// When the kernel ends it, as far as known, in seconds of this table's clock.
    pub(crate) expires_s: u32,
    pub(crate) flags: u32,
    /// The slot's generation: the number of connections that it has held.
    pub(crate) generation: u32,
    zone: u16,
    protocol: u8,
    shape: u8,
    state: u8,
    scales: [u8; 2],
    sides: [u8; 2],
    owner: u8,
    /// The number of the dump that last contained it.
    pub(crate) dump: u8,
    /// Consecutive refusals of the kernel.
    pub(crate) refusals: u8,
    pub(crate) rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Record>() <= 96, "half a million connections must fit into 64 MiB with their index");

impl Record {
    /// An empty slot; the next connection in it has this generation.
    pub(super) const fn vacant(generation: u32) -> Self {
        Self {
            addresses: [0; 32],
            original: [0; 2],
            reply: [0; 2],
            id: 0,
            status: 0,
            mark: 0,
            version: 0,
            timeout_s: 0,
            expires_s: 0,
            flags: 0,
            generation,
            zone: 0,
            protocol: 0,
            shape: 0,
            state: 0,
            scales: [0; 2],
            sides: [0; 2],
            owner: 0,
            dump: 0,
            refusals: 0,
            rare: None,
        }
    }

    pub(super) fn begin(&mut self, entry: &Entry, owner: NodeId) {
        let key = Key::new(&entry.original, entry.zone);
        *self = Self {
            addresses: key.addresses,
            original: key.discriminator,
            zone: key.zone,
            protocol: key.protocol,
            shape: key.shape,
            owner: owner.0,
            flags: flag::OCCUPIED,
            ..Self::vacant(self.generation)
        };
        self.set_reply(&entry.reply);
        self.merge(entry);
    }

    /// Clears the content: another connection has the tuple now.
    pub(crate) fn clear_content(&mut self) {
        self.flags &= !flag::STATED;
        (self.status, self.mark, self.timeout_s, self.state) = (0, 0, 0, 0);
        (self.scales, self.sides) = ([0; 2], [0; 2]);
        self.rare = None;
    }

    #[inline]
    pub(super) fn is(&self, key: &Key) -> bool {
        let bytes = if key.shape & IS_V6 == 0 { 8 } else { 32 };
        self.is_any(flag::OCCUPIED)
            && (self.original, self.zone, self.protocol, self.shape)
                == (key.discriminator, key.zone, key.protocol, key.shape)
            && self.addresses[..bytes] == key.addresses[..bytes]
    }

    pub(super) fn key(&self) -> Key {
        let mut addresses = self.addresses;
        if self.shape & IS_V6 == 0 {
            addresses[8..].fill(0);
        }
        let (discriminator, zone) = (self.original, self.zone);
        Key { addresses, discriminator, zone, protocol: self.protocol, shape: self.shape }
    }

    /// Whether any of these flags is set.
    #[inline]
    pub(crate) const fn is_any(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    pub(crate) const fn set(&mut self, flags: u32, is_set: bool) {
        if is_set { self.flags |= flags } else { self.flags &= !flags }
    }

    pub(crate) const fn owner(&self) -> NodeId {
        NodeId(self.owner)
    }

    pub(crate) const fn set_owner(&mut self, owner: NodeId) {
        self.owner = owner.0;
    }

    /// Sets a new owner, with a newer version; see decision 4.
    pub(crate) const fn take_over(&mut self, owner: NodeId) {
        self.owner = owner.0;
        self.version = beyond(self.version);
    }

    pub(crate) const fn zone(&self) -> u16 {
        self.zone
    }

    /// The zone of the original tuple.
    pub(crate) fn zone_of_original(&self) -> u16 {
        let extra = self.rare.as_deref().and_then(|rare| rare.extra.as_deref());
        let direction = extra.and_then(|extra| extra.zone_direction);
        if direction == Some(ZoneDirection::Reply) { 0 } else { self.zone }
    }

    pub(crate) const fn protocol(&self) -> u8 {
        self.protocol
    }

    pub(crate) const fn mark(&self) -> u32 {
        self.mark
    }

    pub(crate) const fn status(&self) -> Status {
        Status(self.status)
    }

    /// The state of TCP's automaton, if stated.
    pub(crate) fn tcp_state(&self) -> Option<TcpState> {
        let is_stated = self.protocol == TCP && self.is_any(flag::HAS_STATE);
        is_stated.then(|| TcpState::from_u8(self.state)).flatten()
    }

    pub(crate) fn timeout_s(&self) -> Option<u32> {
        self.is_any(flag::HAS_TIMEOUT).then_some(self.timeout_s)
    }

    pub(crate) const fn is_v6(&self) -> bool {
        self.shape & IS_V6 != 0
    }

    pub(crate) fn original(&self) -> Tuple {
        let [source, destination] = if self.is_v6() {
            [v6(&self.addresses[..16]), v6(&self.addresses[16..])]
        } else {
            [v4(&self.addresses[..4]), v4(&self.addresses[4..8])]
        };
        Tuple { source, destination, protocol: self.protocol, discriminator: unpack(self.original, self.shape) }
    }

    pub(crate) fn reply(&self) -> Tuple {
        let [source, destination] = if self.is_v6() {
            let translated = self.rare.as_ref().and_then(|rare| rare.reply);
            translated.unwrap_or([v6(&self.addresses[16..]), v6(&self.addresses[..16])])
        } else {
            [v4(&self.addresses[8..12]), v4(&self.addresses[12..16])]
        };
        Tuple { source, destination, protocol: self.protocol, discriminator: unpack(self.reply, self.shape) }
    }

    /// Sets the reply tuple; returns whether it changed.
    pub(crate) fn set_reply(&mut self, reply: &Tuple) -> bool {
        let (discriminator, _) = pack(reply.discriminator);
        let mut is_other = self.reply != discriminator;
        self.reply = discriminator;
        if self.is_v6() {
            let addresses = [reply.source, reply.destination];
            let inverse = [v6(&self.addresses[16..]), v6(&self.addresses[..16])];
            let translated = (addresses != inverse).then_some(addresses);
            if self.rare.as_ref().and_then(|rare| rare.reply) != translated {
                is_other = true;
                self.rare_mut().reply = translated;
                self.drop_empty_rare();
            }
        } else {
            let mut addresses = [0; 32];
            put_addresses(reply, &mut addresses);
            is_other |= self.addresses[8..16] != addresses[..8];
            self.addresses[8..16].copy_from_slice(&addresses[..8]);
        }
        is_other
    }

    pub(crate) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_with(Box::default)
    }

    pub(crate) fn drop_empty_rare(&mut self) {
        if self.rare.as_ref().is_some_and(|rare| rare.is_empty()) {
            self.rare = None;
        }
    }

    pub(crate) fn expectations(&self) -> &[Expectation] {
        self.rare.as_ref().map_or(&[], |rare| &rare.expectations)
    }

    /// Merges the stated properties of the connection, except tuples. Returns whether a replicated property changed:
    /// the timeout alone does not count.
    #[inline]
    pub(crate) fn merge(&mut self, entry: &Entry) -> bool {
        let mut is_changed = false;
        if let Some(timeout_s) = entry.timeout_s {
            self.timeout_s = timeout_s;
            self.flags |= flag::HAS_TIMEOUT;
        }
        if let Some(status) = entry.status {
            is_changed |= !self.is_any(flag::HAS_STATUS) || (self.status ^ status.0) & STATUS_REPLICATED != 0;
            self.status = status.0;
            self.flags |= flag::HAS_STATUS;
        }
        if let Some(mark) = entry.mark {
            // A connection without a mark has mark 0, stated or not.
            is_changed |= self.mark != mark;
            self.mark = mark;
            self.flags |= flag::HAS_MARK;
        }
        if let Some(info) = &entry.protocol_info {
            is_changed |= self.merge_protocol(info);
        }
        if let Some(extra) = entry.extra.as_deref() {
            is_changed |= self.merge_extra(extra);
        }
        is_changed
    }

    fn merge_protocol(&mut self, info: &ProtocolInfo) -> bool {
        let before =
            (self.flags & flag::STATED, self.state, self.scales, self.sides.map(|side| side & SIDE_FLAGS_REPLICATED));
        self.flags |= flag::HAS_STATE;
        let mut is_changed = false;
        match info {
            ProtocolInfo::Tcp(info) => {
                self.state = info.state as u8;
                if let Some(sides) = info.sides {
                    self.flags |= flag::HAS_SIDES;
                    self.scales = sides.map(|side| side.window_scale);
                    self.sides = sides.map(|side| side.flags.0);
                }
            }
            ProtocolInfo::Sctp { state, verification_tags } => {
                self.state = *state;
                if self.rare.as_ref().map_or([0; 2], |rare| rare.verification_tags) != *verification_tags {
                    self.rare_mut().verification_tags = *verification_tags;
                    is_changed = true;
                }
            }
            ProtocolInfo::Dccp { state, role } => {
                self.state = *state;
                self.scales[0] = *role;
            }
        }
        let sides = self.sides.map(|side| side & SIDE_FLAGS_REPLICATED);
        is_changed || before != (self.flags & flag::STATED, self.state, self.scales, sides)
    }

    fn merge_extra(&mut self, newer: &Extra) -> bool {
        let mut merged = Entry::new(self.original(), self.reply());
        merged.extra = self.rare.as_mut().and_then(|rare| rare.extra.take());
        let before = merged.extra.clone();
        let mut stated = Entry::new(merged.original, merged.reply);
        stated.extra = Some(Box::new(newer.clone()));
        merged.update(&stated);
        let is_changed = merged.extra != before;
        if merged.extra.as_deref().is_some_and(|extra| *extra != Extra::default()) {
            self.rare_mut().extra = merged.extra;
        }
        is_changed
    }

    /// The whole entry.
    pub(crate) fn entry(&self) -> Entry {
        let mut entry = Entry::new(self.original(), self.reply());
        entry.zone = self.zone;
        entry.id = (self.id != 0).then_some(self.id);
        entry.status = self.is_any(flag::HAS_STATUS).then_some(Status(self.status));
        entry.timeout_s = self.timeout_s();
        entry.mark = self.is_any(flag::HAS_MARK).then_some(self.mark);
        entry.protocol_info = self.protocol_info();
        entry.extra = self.rare.as_ref().and_then(|rare| rare.extra.clone());
        entry
    }

    fn protocol_info(&self) -> Option<ProtocolInfo> {
        if !self.is_any(flag::HAS_STATE) {
            return None;
        }
        let side = |which: usize| TcpSide { window_scale: self.scales[which], flags: TcpFlags(self.sides[which]) };
        Some(match self.protocol {
            SCTP => ProtocolInfo::Sctp {
                state: self.state,
                verification_tags: self.rare.as_ref().map_or([0; 2], |rare| rare.verification_tags),
            },
            DCCP => ProtocolInfo::Dccp { state: self.state, role: self.scales[0] },
            _ => ProtocolInfo::Tcp(TcpInfo {
                state: TcpState::from_u8(self.state)?,
                sides: self.is_any(flag::HAS_SIDES).then(|| [side(0), side(1)]),
            }),
        })
    }
}

const TCP: u8 = 6;
const DCCP: u8 = 33;
const SCTP: u8 = 132;

/// The status bits that matter to another node. Offloading and closing are local to each kernel.
pub(crate) const STATUS_REPLICATED: u32 = Status::EXPECTED
    .union(Status::SEEN_REPLY)
    .union(Status::ASSURED)
    .union(Status::SOURCE_NAT)
    .union(Status::DESTINATION_NAT)
    .union(Status::SEQUENCE_ADJUST)
    .union(Status::SOURCE_NAT_DONE)
    .union(Status::DESTINATION_NAT_DONE)
    .union(Status::FIXED_TIMEOUT)
    .union(Status::HELPER)
    .0;
/// The flags of a TCP side that matter to another node: options negotiated in the handshake. The others belong to the
/// windows, which are not replicated.
const SIDE_FLAGS_REPLICATED: u8 = TcpFlags::WINDOW_SCALE.union(TcpFlags::SACK).0;

/// The lowest version of an owner after that of `version`.
pub(crate) const fn beyond(version: u32) -> u32 {
    (version | 0xffff).wrapping_add(1)
}

fn put_addresses(tuple: &Tuple, addresses: &mut [u8; 32]) -> u8 {
    match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            addresses[..4].copy_from_slice(&source.octets());
            addresses[4..8].copy_from_slice(&destination.octets());
            0
        }
        (source, destination) => {
            addresses[..16].copy_from_slice(&flow::key::address_bytes(source));
            addresses[16..].copy_from_slice(&flow::key::address_bytes(destination));
            IS_V6
        }
    }
}

const fn pack(discriminator: Discriminator) -> ([u16; 2], u8) {
    match discriminator {
        Discriminator::Ports { source, destination } => ([source, destination], 0),
        Discriminator::Icmp { kind, code, id } => ([id, (kind as u16) << 8 | code as u16], ICMP),
        Discriminator::Nothing => ([0; 2], NOTHING),
    }
}

fn unpack([first, second]: [u16; 2], shape: u8) -> Discriminator {
    let [kind, code] = second.to_be_bytes();
    match shape & !IS_V6 {
        ICMP => Discriminator::Icmp { kind, code, id: first },
        NOTHING => Discriminator::Nothing,
        _ => Discriminator::Ports { source: first, destination: second },
    }
}

fn v4(bytes: &[u8]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))
}

fn v6(bytes: &[u8]) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    IpAddr::V6(Ipv6Addr::from(octets))
}
