//! Caches that survive their node: nodes that stand by have what the tunnel's end sent and received.
//!
//! ```text
//!   other site ══ tunnel ══► node that is the tunnel's end (Source)
//!                             │ blocks, as they are on the path between the sites
//!                             ├───────────────► node that stands by (Standby): a decoder for what was sent,
//!                             │ ◄─ what it lacks │                              a decoder for what was received
//!                             └─ that, within a rate ►
//! ```
//! An encoded stream is a small part of what it stands for, and whoever decodes it has the cache that it was encoded against. So
//! a mirror costs between the nodes what the tunnel costs between the sites. What a mirror lacks, because it joined late or
//! something was left out or lost, it knows by the numbers; it asks for it, the newest first, and is given it as it is, within
//! a share of the rate. What it lacks all the same when it becomes the tunnel's end is not pointed to, or asked for at the
//! other site.

mod limits;
mod source;
mod standby;
mod sweep;
mod tap;
mod wire;

use alloc::boxed::Box;
use alloc::vec::Vec;

use flow::{Instant, NodeId};

use self::source::Source;
use self::standby::Standby;
pub(super) use self::tap::Tap;
pub use self::wire::{MirrorError, is_mirror};
use self::wire::{Side, Word};
use super::caches::{Caches, EncoderSeed};
use super::datagram::Datagram;
use super::limits::ASK_AGAIN;
use super::{Tunnel, TunnelConfig};

/// How mirrors are fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MirrorConfig {
    /// Bits that each mirror is told a second, at most: a quarter of them for what it lacks.
    pub bits_per_second: u64,
}

impl Default for MirrorConfig {
    /// 200 Mbit/s.
    fn default() -> Self {
        Self { bits_per_second: 200_000_000 }
    }
}

/// What mirroring did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MirrorCounters {
    /// Bytes told to nodes that follow.
    pub bytes_told: u64,
    /// Blocks that passed while a node followed.
    pub blocks_passed: u64,
    /// Blocks that a node was not told, for want of room: it has been asking for them since.
    pub blocks_left_out: u64,
    /// Pieces of 64 bytes that nodes lacked and were given.
    pub granules_given: u64,
    /// Bytes heard from the node that is followed.
    pub bytes_heard: u64,
    /// Blocks heard.
    pub blocks_heard: u64,
    /// Pieces of 64 bytes that were lacking here and were given.
    pub granules_given_here: u64,
    /// Caches taken over from a mirror.
    pub caches_taken_over: u64,
}

/// How mirroring stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MirrorStatus {
    /// Nodes that follow this one.
    pub followers: usize,
    /// The node that this one follows.
    pub leader: Option<NodeId>,
    /// Bytes held of what that node sent, and bytes that there are to hold: as they are now, but for what that node did not have
    /// when it was asked last, and with what no number has confirmed yet only among the latter.
    pub sent_bytes: [u64; 2],
    /// The same of what it received.
    pub received_bytes: [u64; 2],
    /// Blocks that were heard and could not be followed.
    pub blocks_missed: u64,
    /// Bytes of the caches of the mirror.
    pub memory_bytes: usize,
    /// What was done so far.
    pub counters: MirrorCounters,
}

/// Both parts: one rests while the other works.
#[derive(Debug)]
pub(super) struct Mirroring {
    source: Source,
    standby: Standby,
    counters: MirrorCounters,
}

impl Mirroring {
    pub(super) fn new(config: &TunnelConfig, seed: u64) -> Option<Self> {
        let mirror = config.mirror?;
        let wait = config.sender.recover_within + ASK_AGAIN * 4;
        Some(Self {
            source: Source::new(config.sender, mirror.bits_per_second.max(1), flow::random::mix(seed)),
            standby: Standby::new(config.cache_bytes, wait, flow::random::mix(seed ^ 1)),
            counters: MirrorCounters::default(),
        })
    }

    fn poll_timeout(&self, is_active: bool) -> Option<Instant> {
        if is_active { self.source.poll_timeout() } else { Some(self.standby.poll_timeout()) }
    }
}

impl Tunnel {
    /// A datagram from another node of this site.
    ///
    /// # Errors
    /// It is none of a mirror's. Nothing changes.
    pub fn handle_mirror(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), MirrorError> {
        let word = Word::parse(datagram)?;
        let is_active = self.is_active;
        let Some(Mirroring { source, standby, counters }) = self.mirroring.as_deref_mut() else { return Ok(()) };
        match word {
            Word::Follow { name } if is_active => source.handle_follow(now, from, name),
            Word::Want { name, side, missing } if is_active => source.handle_want(from, name, side, missing),
            Word::Stream(datagram) => {
                let (sessions, datagram) = Datagram::parse(datagram).map_err(|_| MirrorError::Malformed)?;
                if is_active {
                    source.handle_ack(now, from, sessions, &datagram);
                } else {
                    standby.handle_stream(now, from, (sessions, &datagram), counters);
                }
            }
            Word::Follow { .. } | Word::Want { .. } => {}
        }
        self.feed_mirrors(now);
        Ok(())
    }

    /// The next datagram for another node of this site, in place of what was in `out`. False when there is none now.
    pub fn poll_mirror(&mut self, now: Instant, to: NodeId, out: &mut Vec<u8>) -> bool {
        let is_active = self.is_active;
        self.mirroring.as_deref_mut().is_some_and(|mirroring| {
            if is_active { mirroring.source.poll(now, to, out) } else { mirroring.standby.poll(now, to, out) }
        })
    }

    /// Whether this node stands by with a mirror that is still being filled: the addresses are to stay at a healthy node for so
    /// long. False at the latest a minute after it began to stand by.
    #[must_use]
    pub fn is_filling_mirror(&self) -> bool {
        !self.is_active && self.mirroring.as_ref().is_some_and(|mirroring| mirroring.standby.is_filling())
    }

    /// What is said to this node does not reach it: it is told nothing, unless it follows again.
    pub fn forget_mirror(&mut self, peer: NodeId) {
        if let Some(mirroring) = &mut self.mirroring {
            mirroring.source.forget(peer);
        }
    }

    /// Tells those who follow what passed.
    pub(super) fn feed_mirrors(&mut self, now: Instant) {
        let Some(mirroring) = self.mirroring.as_deref_mut().filter(|_| self.is_active) else { return };
        let Mirroring { source, counters, .. } = mirroring;
        let is_followed = source.followers() > 0;
        if let Some(link) = &mut self.link {
            if is_followed {
                source.tell(
                    now,
                    &link.codecs.tap,
                    Some((&link.codecs.caches.encoder, &link.codecs.caches.decoder)),
                    counters,
                );
            }
            link.codecs.tap.clear();
            link.codecs.tap.set_open(is_followed);
        }
        if is_followed {
            let caches = self.link.as_ref().map(|link| &link.codecs.caches).or(self.caches.as_ref());
            source.handle_timeout(now, caches.map(|caches| (&caches.encoder, &caches.decoder)), counters);
        }
    }

    /// Does what is due.
    pub(super) fn handle_mirror_timeout(&mut self, now: Instant) {
        if self.is_active {
            self.feed_mirrors(now);
        } else if let Some(Mirroring { standby, counters, .. }) = self.mirroring.as_deref_mut() {
            standby.handle_timeout(now, counters);
        }
    }

    pub(super) fn poll_mirror_timeout(&self) -> Option<Instant> {
        self.mirroring.as_ref().and_then(|mirroring| mirroring.poll_timeout(self.is_active))
    }

    /// This node has just become the tunnel's end, or is it no more: caches change hands.
    pub(super) fn exchange_caches(&mut self, now: Instant) {
        let former = self.caches.take();
        let Some(mirroring) = self.mirroring.as_deref_mut() else { return };
        if self.is_active {
            let inheritance = mirroring.standby.take();
            let inherited = [&inheritance.sent, &inheritance.received].into_iter().flatten().count() as u64;
            let seed = EncoderSeed { epoch: self.random.next() as u32, key: [self.random.next(), self.random.next()] };
            self.caches = Caches::inherit(&self.config, self.load.period(), seed, inheritance);
            mirroring.counters.caches_taken_over += inherited;
        } else {
            mirroring.source.clear();
            mirroring.standby.begin(
                now,
                former.map(|mut former| {
                    former.decoder.take_counters();
                    former.decoder
                }),
            );
        }
    }

    pub(super) fn mirror_status(&self) -> Option<Box<MirrorStatus>> {
        let Mirroring { source, standby, counters } = self.mirroring.as_deref()?;
        Some(Box::new(MirrorStatus {
            followers: source.followers(),
            leader: standby.leader(),
            sent_bytes: standby.held_bytes(Side::Sent),
            received_bytes: standby.held_bytes(Side::Received),
            blocks_missed: standby.blocks_missed(),
            memory_bytes: standby.memory_bytes(),
            counters: *counters,
        }))
    }
}

#[cfg(test)]
mod tests;
