//! Caches that survive their node: nodes that stand by have what the tunnel's end sent and received.
//!
//! ```text
//!   other site ══ tunnel ══► node that is the tunnel's end (Source)
//!                             │ blocks, as they are on the path between the sites
//!                             ├───────────────► node that stands by (Standby): a decoder for what was sent,
//!                             │ ◄─ what it lacks │                              a decoder for what was received
//!                             └─ that, within a rate ►
//! ```
//! An encoded stream is a small part of what it stands for, and a node that decodes it has the cache that it was encoded against. So
//! a mirror costs between the nodes about what the tunnel costs between the sites without its second stage. What a mirror lacks,
//! because it joined late or something was left out or lost, it knows by the numbers; it asks for it, the newest first, and is
//! given it as it is, within a share of the rate. What it lacks all the same when it becomes the tunnel's end is not pointed to,
//! or asked for at the other site.

mod counters;
mod limits;
mod source;
mod standby;
mod sweep;
mod tap;
mod wire;

use alloc::vec::Vec;

use flow::{Instant, NodeId};
use redundancy::Period;

pub use self::counters::MirrorCounters;
use self::source::Source;
use self::standby::Standby;
pub(super) use self::tap::Tap;
use self::wire::Side;
pub(super) use self::wire::Word;
pub use self::wire::{MirrorError, is_mirror};
use super::caches::{Caches, EncoderSeed};
pub use super::config::MirrorConfig;
use super::config::TunnelConfig;
use super::datagram::Datagram;
use super::limits::ACK_REPEAT_INTERVAL;

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
    /// Blocks that were received and could not be followed.
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
        let wait = config.sender.recover_within + ACK_REPEAT_INTERVAL * 4;
        Some(Self {
            source: Source::new(config.sender, mirror.bits_per_second.max(1), flow::random::mix(seed)),
            standby: Standby::new(config.cache_bytes, wait, flow::random::mix(seed ^ 1)),
            counters: MirrorCounters::default(),
        })
    }

    pub(super) fn poll_timeout(&self, is_active: bool) -> Option<Instant> {
        if is_active { self.source.poll_timeout() } else { Some(self.standby.poll_timeout()) }
    }

    /// A datagram from another node of this site.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        from: NodeId,
        word: Word<'_>,
        is_active: bool,
    ) -> Result<(), MirrorError> {
        let Self { source, standby, counters } = self;
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
        Ok(())
    }

    /// The next datagram for another node of this site.
    pub(super) fn poll(&mut self, now: Instant, to: NodeId, out: &mut Vec<u8>, is_active: bool) -> bool {
        if is_active { self.source.poll(now, to, out) } else { self.standby.poll(now, to, out) }
    }

    /// Whether this node's mirror is still being filled.
    pub(super) fn is_filling(&self) -> bool {
        self.standby.is_filling()
    }

    pub(super) fn forget(&mut self, peer: NodeId) {
        self.source.forget(peer);
    }

    /// Gives the mirrors what passed the tap since the last call, and what they lack of the caches. Only at the tunnel's end.
    pub(super) fn feed(&mut self, now: Instant, tap: Option<&mut Tap>, caches: Option<&Caches>) {
        let Self { source, counters, .. } = self;
        let is_followed = source.followers() > 0;
        let caches = caches.map(|caches| (&caches.encoder, &caches.decoder));
        if let Some(tap) = tap {
            if is_followed {
                source.send(now, tap, caches, counters);
            }
            tap.clear();
            tap.set_open(is_followed);
        }
        if is_followed {
            source.handle_timeout(now, caches, counters);
        }
    }

    /// Does what is due at a node that stands by.
    pub(super) fn handle_standby_timeout(&mut self, now: Instant) {
        self.standby.handle_timeout(now, &mut self.counters);
    }

    /// This node has just become the tunnel's end: the caches that it goes on with, if it has any of the other node's.
    pub(super) fn take_over(&mut self, config: &TunnelConfig, period: Period, seed: EncoderSeed) -> Option<Caches> {
        let inheritance = self.standby.take();
        let inherited = [&inheritance.sent, &inheritance.received].into_iter().flatten().count() as u64;
        self.counters.caches_taken_over += inherited;
        Caches::inherit(config, period, seed, inheritance)
    }

    /// This node is the tunnel's end no more, and mirrors from now on.
    pub(super) fn stand_by(&mut self, now: Instant, former: Option<Caches>) {
        self.source.clear();
        let received = former.map(|mut former| {
            former.decoder.take_counters();
            former.decoder
        });
        self.standby.begin(now, received);
    }

    pub(super) fn status(&self) -> MirrorStatus {
        let Self { source, standby, counters } = self;
        MirrorStatus {
            followers: source.followers(),
            leader: standby.leader(),
            sent_bytes: standby.held_bytes(Side::Sent),
            received_bytes: standby.held_bytes(Side::Received),
            blocks_missed: standby.blocks_missed(),
            memory_bytes: standby.memory_bytes(),
            counters: *counters,
        }
    }
}

#[cfg(test)]
mod tests;
