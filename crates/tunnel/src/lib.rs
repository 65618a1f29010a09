//! Redundancy elimination between two sites: a tunnel between their gateways that carries what is new of their packets.
//!
//! ```text
//!   packets ─► encoder ─► records ─► sender ══ datagrams, over a path that loses ══► receiver ─► records ─► decoder ─► packets
//!                                      ▲                                                │
//!                                      └────────────────── acknowledgements ────────────┘
//! ```
//! A [`Tunnel`] is one end, for both directions. Of headers travels what differs from earlier ones (`header`), of payloads blocks of
//! the [`redundancy`] crate, and a library may compress what is left ([`SecondStage`]); many
//! small records share a datagram, and a long one has several, so nothing is too large for the path. The stream is kept in
//! order, and what the path loses is retransmitted within a bounded time and share: the codec then lacks nothing, and end
//! points' TCP does not take the path's loss for congestion.
//!
//! A session is one incarnation of both ends. The caches outlive it: it begins with the decoder's report of what it
//! holds, and an encoder never points to anything else, whichever node either of them moves to ([`mirror`]). While
//! there is no session, or the path is silent, or the processor is short, packets go past the tunnel the ordinary way
//! ([`Bypass`]).
//!
//! It knows no address, port or connection: who carries its datagrams makes sure between whom. It knows no node and no
//! role either: the caller sets whether it is the site's end ([`Tunnel::set_active`]). Time and seeds come in as
//! arguments, and an end that is to be encrypted is handed its keys ([`Tunnel::with_sealing`]).
//!
//! ```
//! use flow::{Instant, Segmentation};
//! use tunnel::{Outgoing, Tunnel, TunnelConfig};
//!
//! let config = TunnelConfig { cache_bytes: 1 << 20, ..TunnelConfig::default() };
//! let mut ends = [Tunnel::new(config.clone(), 1), Tunnel::new(config, 2)];
//! ends.iter_mut().for_each(|end| end.set_active(Instant::ZERO, true));
//! let bytes: Vec<u8> = (0..1400_u32).map(|at| (at * at >> 5) as u8).collect();
//! let packet = Outgoing { bytes: &bytes, header_bytes: 40, at: None, segmentation: Segmentation::default() };
//! let (mut datagram, mut sent, mut arrived) = (Vec::new(), 0, 0);
//! for millis in 1..5000 {
//!     let now = Instant::from_millis(millis);
//!     // The ends find each other first. Every packet is the same: all but the first are carried by a pointer.
//!     if sent < 10 && ends[0].admit(now, bytes.len()).is_ok() {
//!         sent += u32::from(ends[0].handle_packet(now, &packet));
//!     }
//!     for end in 0..2 {
//!         ends[end].handle_timeout(now);
//!         while ends[end].poll_transmit(now, &mut datagram) {
//!             ends[1 - end].handle_datagram(now, &datagram)?;
//!         }
//!     }
//!     while let Some(restored) = ends[1].poll_packet() {
//!         assert_eq!(restored.bytes, bytes);
//!         arrived += 1;
//!     }
//! }
//! assert_eq!((sent, arrived), (10, 10));
//! # Ok::<(), tunnel::datagram::DatagramError>(())
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bundles;
mod caches;
mod codecs;
mod config;
mod counters;
pub mod datagram;
mod header;
pub mod limits;
mod link;
mod load;
pub mod mirror;
mod packet;
mod receiver;
pub mod record;
mod sealing;
mod sender;
mod session;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::random::SplitMix64;
use flow::{Instant, NodeId, SegmentationKind};
use redundancy::Period;
use redundancy::limits::GRANULE_BYTES;

pub use self::bundles::{Library, SecondStage};
use self::caches::{Caches, EncoderSeed};
pub use self::config::TunnelConfig;
pub use self::counters::{Bypass, TunnelCounters};
use self::datagram::{Datagram, DatagramError};
use self::limits::RECORD_BYTES_MAX;
use self::link::Link;
use self::load::Load;
use self::mirror::{MirrorError, MirrorStatus, Mirroring, Word};
pub use self::packet::{Outgoing, Restored};
pub use self::receiver::ReceiverCounters;
pub use self::sealing::SealingConfig;
use self::sealing::{SEAL_BYTES, Sealing};
pub use self::sender::{SenderConfig, SenderCounters};
use self::session::{Received, Session};

/// How a tunnel stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelStatus {
    /// Why packets go past it now, if they do.
    pub bypass: Option<Bypass>,
    /// Where its datagrams are encrypted: whether there are session keys.
    pub is_sealed: Option<bool>,
    /// How long a datagram and its acknowledgement take.
    pub round_trip: Option<Duration>,
    /// Bytes of a datagram that the path takes.
    pub datagram_bytes: Option<u16>,
    /// The sampling period now.
    pub period: Period,
    /// Bytes of the caches and their indexes.
    pub memory_bytes: usize,
    /// How mirroring stands; none: caches are not mirrored.
    pub mirror: Option<Box<MirrorStatus>>,
    /// What it did so far.
    pub counters: TunnelCounters,
}

/// One end of a tunnel.
#[derive(Debug)]
pub struct Tunnel {
    config: TunnelConfig,
    random: SplitMix64,
    session: Session,
    sealing: Option<Box<Sealing>>,
    /// What was sealed of the datagram that came last.
    opened: Vec<u8>,
    link: Option<Box<Link>>,
    /// The caches while there is no link.
    caches: Option<Caches>,
    mirroring: Option<Box<Mirroring>>,
    load: Load,
    is_active: bool,
    restored: VecDeque<Restored>,
    /// Without what the present link counts.
    counters: TunnelCounters,
}

impl Tunnel {
    /// An end that rests until it is made active. The seed is random, from the caller.
    #[must_use]
    pub fn new(config: TunnelConfig, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let granules = u32::try_from(config.cache_bytes / GRANULE_BYTES).unwrap_or(u32::MAX);
        Self {
            session: Session::new(random.next(), granules, config.datagram_bytes_max, 0),
            sealing: None,
            opened: Vec::new(),
            load: Load::new(config.sampling.period),
            mirroring: Mirroring::new(&config, random.next()).map(Box::new),
            random,
            config,
            link: None,
            caches: None,
            is_active: false,
            restored: VecDeque::new(),
            counters: TunnelCounters::default(),
        }
    }

    /// The same end, whose datagrams are encrypted, and which takes no others.
    #[must_use]
    pub fn with_sealing(mut self, sealing: SealingConfig) -> Self {
        let granules = u32::try_from(self.config.cache_bytes / GRANULE_BYTES).unwrap_or(u32::MAX);
        self.config.envelope_bytes += SEAL_BYTES;
        self.session = Session::new(self.random.next(), granules, self.config.datagram_bytes_max, SEAL_BYTES);
        self.sealing = Some(Box::new(Sealing::new(sealing)));
        self
    }

    /// The time since 1970, as the system has it at `now`.
    pub fn set_unix_time(&mut self, now: Instant, unix_time: Duration) {
        if let Some(sealing) = &mut self.sealing {
            sealing.set_unix_time(now, unix_time);
        }
    }

    /// This node is the tunnel's end from now on, or is not.
    pub fn set_active(&mut self, now: Instant, is_active: bool) {
        if self.is_active != is_active {
            self.is_active = is_active;
            if let Some(sealing) = self.sealing.as_mut().filter(|_| is_active) {
                sealing.restart(now);
            }
            self.end_link();
            self.session.restart(now);
            self.exchange_caches(now);
        }
    }

    /// Whether this node is the tunnel's end.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.is_active
    }

    /// Why packets go past the tunnel now, if they do.
    #[must_use]
    pub fn bypass(&self, now: Instant) -> Option<Bypass> {
        let Some(link) = self.link.as_ref().filter(|_| self.is_active) else { return Some(Bypass::PeerAway) };
        let is_silent = now.saturating_since(self.session.received_at()) > self.config.peer_timeout;
        if is_silent || link.sender.is_unheard(now) {
            return Some(Bypass::PeerAway);
        }
        if self.session.datagram_bytes().is_none() {
            return Some(Bypass::PathTooSmall);
        }
        self.load.is_short().then_some(Bypass::Processor)
    }

    /// Whether a packet of so many bytes is taken now. One that is not goes the ordinary way.
    ///
    /// # Errors
    /// Why it is not, which is counted.
    pub fn admit(&mut self, now: Instant, packet_bytes: usize) -> Result<(), Bypass> {
        let is_too_long = packet_bytes + 64 > RECORD_BYTES_MAX;
        let bypass = self.bypass(now).or_else(|| is_too_long.then_some(Bypass::TooLong));
        bypass.map_or(Ok(()), |bypass| {
            self.counters.bypassed[bypass as usize] += 1;
            Err(bypass)
        })
    }

    /// Takes a packet that was admitted. False: it is dropped, for too much waits already, and is counted.
    #[must_use]
    pub fn handle_packet(&mut self, now: Instant, packet: &Outgoing<'_>) -> bool {
        let Some(link) = self.link.as_mut().filter(|link| link.sender.has_room()) else {
            self.counters.backlog_drops += 1;
            return false;
        };
        self.counters.packets_in += 1;
        self.counters.bytes_in += packet.bytes.len() as u64;
        link.send(now, packet, &mut self.counters);
        self.feed_mirrors(now);
        true
    }

    /// Handles a datagram from the other end.
    ///
    /// # Errors
    /// It is none. Nothing changes.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DatagramError> {
        if !self.is_active {
            return Ok(());
        }
        let Some(sealing) = &mut self.sealing else { return self.handle_plain(now, bytes) };
        let mut opened = core::mem::take(&mut self.opened);
        let result = match sealing.open(now, bytes, &mut opened) {
            Ok(true) => self.handle_plain(now, &opened),
            Ok(false) => Ok(()),
            Err(_) => {
                self.counters.refused += 1;
                Err(DatagramError::NotSealed)
            }
        };
        self.opened = opened;
        result
    }

    fn handle_plain(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DatagramError> {
        let (sessions, datagram) = Datagram::parse(bytes).inspect_err(|_| self.counters.refused += 1)?;
        self.counters.bytes_received += bytes.len() as u64 + u64::from(self.config.envelope_bytes);
        match self.session.handle(now, sessions, &datagram, bytes.len()) {
            Received::Nothing => self.counters.refused += 1,
            Received::Begun => self.begin_link(now),
            Received::Known => self.handle_known(now, &datagram),
        }
        Ok(())
    }

    fn handle_known(&mut self, now: Instant, datagram: &Datagram<'_>) {
        let Some(link) = &mut self.link else { return };
        match datagram {
            Datagram::Data { number, base, first_record, body } => {
                link.receiver.handle_data(now, (*number, *base), *first_record, body);
                link.take_records(now, &mut self.restored, &mut self.counters);
                link.talk(now);
                self.feed_mirrors(now);
            }
            Datagram::Ack { next, end, missing } => {
                link.sender.handle_ack(now, *next, *end, missing);
                link.settle(now);
            }
            Datagram::Alive { .. } => {
                link.sender.note_alive();
                if let Some(bytes) = self.session.datagram_bytes() {
                    link.sender.set_datagram_bytes_max(bytes);
                }
            }
        }
    }

    fn begin_link(&mut self, now: Instant) {
        self.end_link();
        let (granules, period) = (self.session.granules(), self.load.period());
        let (epoch, key) = (self.session.sessions().from, [self.random.next(), self.random.next()]);
        let secret = self.random.next();
        let caches = Caches::begin(&self.config, granules, period, EncoderSeed { epoch, key }, self.caches.take());
        self.link = caches.map(|caches| Box::new(Link::new(&self.config, caches, secret)));
        // Where the encoder's stream stands comes before all blocks.
        self.link.iter_mut().for_each(|link| link.talk(now));
        self.counters.sessions += 1;
        self.feed_mirrors(now);
    }

    fn end_link(&mut self) {
        if let Some(link) = self.link.take() {
            link.count(&mut self.counters);
            let mut caches = link.codecs.caches;
            caches.settle(&mut self.counters);
            self.caches = Some(caches);
        }
    }

    /// A packet that came out of the tunnel had a wrong checksum.
    pub const fn note_broken(&mut self) {
        self.counters.broken += 1;
    }

    /// The load of the core, in percent, of late.
    pub fn handle_load(&mut self, now: Instant, percent: u8) {
        if let (Some(period), Some(link)) = (self.load.handle(now, percent), &mut self.link) {
            link.set_period(period);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.is_active {
            self.mirroring.iter_mut().for_each(|mirroring| mirroring.handle_standby_timeout(now));
            return;
        }
        self.feed_mirrors(now);
        if let Some(caches) = self.link.as_mut().map(|link| &mut link.codecs.caches).or(self.caches.as_mut()) {
            caches::index_some(&mut caches.encoder);
        }
        if let Some(sealing) = &mut self.sealing {
            sealing.handle_timeout(now);
        }
        if self.session.handle_timeout(now) {
            self.end_link();
        }
        if let Some(link) = &mut self.link {
            link.handle_timeout(now, &mut self.restored, &mut self.counters);
            self.feed_mirrors(now);
        }
    }

    /// When [`Tunnel::handle_timeout`] or [`Tunnel::poll_transmit`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let caches = self.link.as_ref().map(|link| &link.codecs.caches).or(self.caches.as_ref());
        let indexing = caches.filter(|caches| caches.encoder.is_indexing()).map(|_| Instant::ZERO);
        let link = self.link.as_ref().and_then(|link| link.poll_timeout());
        let sealing = self.sealing.as_ref().and_then(|sealing| sealing.poll_timeout());
        let mirroring = self.mirroring.as_ref().and_then(|mirroring| mirroring.poll_timeout(self.is_active));
        let active = [Some(self.session.poll_timeout()), link, sealing, indexing];
        active.into_iter().filter(|_| self.is_active).chain([mirroring]).flatten().min()
    }

    /// The next datagram for the other end, in place of what was in `out`. False when there is none now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if !self.is_active {
            return false;
        }
        if self.sealing.as_mut().is_some_and(|sealing| sealing.poll_transmit(out)) {
            return true;
        }
        while self.session.poll(now, out) || self.poll_link(now, out) {
            self.counters.bytes_out += out.len() as u64 + u64::from(self.config.envelope_bytes);
            // Before there are keys whatever would be said is lost, and is said again.
            if self.sealing.as_mut().is_none_or(|sealing| sealing.seal(now, out)) {
                return true;
            }
        }
        false
    }

    fn poll_link(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Some(link) = &mut self.link else { return false };
        let datagram = match link.receiver.poll_ack(now) {
            Some(ack) => Some(ack),
            None => link.sender.poll(now),
        };
        let sessions = self.session.sessions();
        datagram.inspect(|datagram| datagram.write(sessions, out)).is_some()
    }

    /// The next packet that came out of the tunnel.
    pub fn poll_packet(&mut self) -> Option<Restored> {
        self.restored.pop_front()
    }

    /// A datagram from another node of this site.
    ///
    /// # Errors
    /// It is none of a mirror's. Nothing changes.
    pub fn handle_mirror(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), MirrorError> {
        let word = Word::parse(datagram)?;
        if let Some(mirroring) = &mut self.mirroring {
            mirroring.handle(now, from, word, self.is_active)?;
        }
        self.feed_mirrors(now);
        Ok(())
    }

    /// The next datagram for another node of this site, in place of what was in `out`. False when there is none now.
    pub fn poll_mirror(&mut self, now: Instant, to: NodeId, out: &mut Vec<u8>) -> bool {
        let is_active = self.is_active;
        self.mirroring.as_mut().is_some_and(|mirroring| mirroring.poll(now, to, out, is_active))
    }

    /// Whether this node stands by with a mirror that is still being filled: the addresses are to stay at a healthy node for so
    /// long. False at the latest a minute after it began to stand by.
    #[must_use]
    pub fn is_filling_mirror(&self) -> bool {
        !self.is_active && self.mirroring.as_ref().is_some_and(|mirroring| mirroring.is_filling())
    }

    /// Messages to this node do not reach it: nothing more is sent to it, unless it follows again.
    pub fn forget_mirror(&mut self, peer: NodeId) {
        if let Some(mirroring) = &mut self.mirroring {
            mirroring.forget(peer);
        }
    }

    /// Gives what passed to the nodes that follow.
    fn feed_mirrors(&mut self, now: Instant) {
        let Some(mirroring) = self.mirroring.as_mut().filter(|_| self.is_active) else { return };
        let (tap, caches) = match &mut self.link {
            Some(link) => (Some(&mut link.codecs.tap), Some(&link.codecs.caches)),
            None => (None, self.caches.as_ref()),
        };
        mirroring.feed(now, tap, caches);
    }

    /// This node has just become the tunnel's end, or is it no more: caches change hands.
    fn exchange_caches(&mut self, now: Instant) {
        let former = self.caches.take();
        let Some(mirroring) = &mut self.mirroring else { return };
        if self.is_active {
            let seed = EncoderSeed { epoch: self.random.next() as u32, key: [self.random.next(), self.random.next()] };
            self.caches = mirroring.take_over(&self.config, self.load.period(), seed);
        } else {
            mirroring.stand_by(now, former);
        }
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self, now: Instant) -> TunnelStatus {
        let mut counters = self.counters;
        self.link.iter().for_each(|link| link.count(&mut counters));
        let caches = self.link.as_ref().map(|link| &link.codecs.caches).or(self.caches.as_ref());
        if let Some(Caches { encoder, decoder }) = caches {
            counters.add_codecs(encoder.counters(), decoder.counters());
        }
        let mirror = self.mirroring.as_ref().map(|mirroring| Box::new(mirroring.status()));
        let mirror_bytes = mirror.as_ref().map_or(0, |mirror| mirror.memory_bytes);
        let seal_bytes = if self.sealing.is_some() { SEAL_BYTES } else { 0 };
        TunnelStatus {
            bypass: self.bypass(now),
            is_sealed: self.sealing.as_ref().map(|sealing| sealing.is_ready()),
            round_trip: self.link.as_ref().and_then(|link| link.sender.round_trip()),
            datagram_bytes: self.session.datagram_bytes().map(|bytes| bytes + seal_bytes),
            period: self.load.period(),
            memory_bytes: caches.map_or(0, Caches::memory_bytes) + mirror_bytes,
            mirror,
            counters,
        }
    }
}

const _: () = assert!(RECORD_BYTES_MAX < 1 << 24 && SegmentationKind::None as u8 == 0);
