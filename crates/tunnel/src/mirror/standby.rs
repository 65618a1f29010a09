//! A node that stands by: it follows the node that is the tunnel's end, and has its caches when it becomes the end itself.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use flow::random::SplitMix64;
use flow::{Instant, NodeId};
use redundancy::limits::GRANULE_BYTES;
use redundancy::wire::control::Control;
use redundancy::{Decoder, DecoderConfig, Held, StreamPosition, Ticket};

use super::MirrorCounters;
use super::limits::{FILLING_MAX, FOLLOW_INTERVAL, FOLLOWED_FOR, LEADER_WAIT, SILENT_FOR, WANTS_MAX};
use super::sweep::Sweep;
use super::wire::{Entry, Side, Word};
use crate::caches::Inheritance;
use crate::datagram::{Datagram, Sessions};
use crate::receiver::Receiver;
use crate::record::{Reassembly, Record};

/// The node that a mirror follows.
#[derive(Clone, Copy, Debug)]
struct Leader {
    peer: NodeId,
    session: u32,
    received_at: Instant,
}

/// The mirror.
#[derive(Debug)]
pub(super) struct Standby {
    cache_bytes: usize,
    receive_wait: Duration,
    random: SplitMix64,
    /// Of this incarnation: another one for each node that it follows.
    name: u32,
    leader: Option<Leader>,
    receiver: Receiver,
    reassembly: Reassembly,
    caches: [Option<Decoder>; 2],
    sweeps: [Sweep; 2],
    /// Questions to the leader.
    wants: VecDeque<Vec<u8>>,
    follow_at: Instant,
    /// How often it has sent to all that it follows, and the last of these rounds that each peer was sent.
    round: u64,
    sent_rounds: BTreeMap<u8, u64>,
    scratch: Vec<u8>,
    /// When this node began to stand by; none before time passed for the first time.
    began_at: Option<Instant>,
    /// Since then it has lacked nothing at some moment, or has waited long enough for that.
    is_filled: bool,
}

impl Standby {
    pub(super) fn new(cache_bytes: usize, receive_wait: Duration, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        Self {
            cache_bytes,
            receive_wait,
            name: random.next() as u32,
            random,
            leader: None,
            receiver: Receiver::new(receive_wait),
            reassembly: Reassembly::default(),
            caches: [None, None],
            sweeps: Default::default(),
            wants: VecDeque::new(),
            follow_at: Instant::ZERO,
            round: 0,
            sent_rounds: BTreeMap::new(),
            scratch: Vec::new(),
            began_at: None,
            is_filled: false,
        }
    }

    /// What it holds, for the end that goes on with it. It begins anew.
    pub(super) fn take(&mut self) -> Inheritance {
        self.leave();
        let [sent, received] = core::mem::take(&mut self.caches);
        Inheritance { sent, received }
    }

    /// This node stands by from now on. What it received as the tunnel's end is a beginning.
    pub(super) fn begin(&mut self, now: Instant, received: Option<Decoder>) {
        self.leave();
        self.caches[Side::Received as usize] = received;
        self.follow_at = now;
        (self.began_at, self.is_filled) = (Some(now), false);
    }

    fn leave(&mut self) {
        self.name = self.random.next() as u32;
        self.leader = None;
        self.receiver = Receiver::new(self.receive_wait);
        self.reassembly = Reassembly::default();
        self.sweeps = Default::default();
        self.wants.clear();
    }

    /// The leader is another, or another incarnation of it: it is to begin at the beginning.
    fn change_leader(&mut self, now: Instant) {
        self.leave();
        self.follow_at = now;
    }

    pub(super) fn leader(&self) -> Option<NodeId> {
        self.leader.map(|leader| leader.peer)
    }

    fn count(&self, side: Side) -> Option<Held> {
        self.caches[side as usize].as_ref().map(|cache| self.sweeps[side as usize].count(cache))
    }

    /// Bytes held now that a take-over would keep, and bytes that there are to hold: without what the leader lacks too.
    pub(super) fn held_bytes(&self, side: Side) -> [u64; 2] {
        let Held { confirmed, unconfirmed, missing } = self.count(side).unwrap_or_default();
        [confirmed, confirmed + unconfirmed + missing].map(|granules| granules * GRANULE_BYTES as u64)
    }

    /// Whether this node is to leave the addresses with a healthy one: its mirror is still being filled.
    pub(super) const fn is_filling(&self) -> bool {
        !self.is_filled
    }

    /// Whether it need not wait for its mirror any longer. What is unsure is confirmed without this node's doing.
    fn has_filled(&self, now: Instant) -> bool {
        let waited = self.began_at.map_or(Duration::ZERO, |began_at| now.saturating_since(began_at));
        let limit = if self.leader.is_some() { FILLING_MAX } else { LEADER_WAIT };
        let mut counts = Side::ALL.into_iter().filter_map(|side| self.count(side)).peekable();
        waited >= limit || self.leader.is_some() && counts.peek().is_some() && counts.all(|count| count.missing == 0)
    }

    /// Blocks that it could not follow.
    pub(super) fn blocks_missed(&self) -> u64 {
        let of = |decoder: &Decoder| decoder.counters().blocks_abandoned + decoder.counters().blocks_unknown;
        self.caches.iter().flatten().map(of).sum()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.caches.iter().flatten().flat_map(Decoder::memory_bytes).sum()
    }

    /// A datagram of the stream from a peer.
    pub(super) fn handle_stream(
        &mut self,
        now: Instant,
        peer: NodeId,
        (sessions, datagram): (Sessions, &Datagram<'_>),
        counters: &mut MirrorCounters,
    ) {
        let Datagram::Data { number, base, first_record, body } = datagram else { return };
        if sessions.to != self.name {
            return;
        }
        match &mut self.leader {
            None => self.leader = Some(Leader { peer, session: sessions.from, received_at: now }),
            Some(leader) if (leader.peer, leader.session) == (peer, sessions.from) => leader.received_at = now,
            Some(leader) => {
                if leader.peer == peer || now.saturating_since(leader.received_at) > SILENT_FOR {
                    self.change_leader(now);
                }
                return;
            }
        }
        counters.bytes_received += body.len() as u64;
        self.receiver.handle_data(now, (*number, *base), *first_record, body);
        self.take_entries(now, counters);
    }

    fn take_entries(&mut self, now: Instant, counters: &mut MirrorCounters) {
        while self.receiver.poll(&mut self.reassembly) {
            while let Some(record) = self.reassembly.poll() {
                // Whatever is none of this release's is left out.
                let Record::FromEncoder(entry) = record else { continue };
                match Entry::parse(entry) {
                    Ok(Entry::Block { side, epoch, block }) => {
                        let Some(cache) = &mut self.caches[side as usize] else { continue };
                        if cache.epoch() == Some(epoch) {
                            counters.blocks_received += 1;
                            // One that makes no sense here is lacking, and found to be.
                            let _ = cache.handle_block(now, Ticket(0), block, &mut self.scratch);
                        }
                    }
                    Ok(Entry::Plain { side, epoch, block }) => {
                        let Some(cache) = &mut self.caches[side as usize] else { continue };
                        if cache.epoch() == Some(epoch) {
                            counters.blocks_received += 1;
                            cache.handle_plain(block);
                        }
                    }
                    Ok(Entry::Word { side, message }) => {
                        let (cache, sweep) = (&mut self.caches[side as usize], &mut self.sweeps[side as usize]);
                        handle_word(now, message, self.cache_bytes, cache, sweep, counters);
                    }
                    Err(_) => {}
                }
            }
        }
        self.question(now);
    }

    /// Asks for what blocks lack, and for what else is lacking.
    fn question(&mut self, now: Instant) {
        let Self { caches, sweeps, wants, name, scratch, .. } = self;
        for side in Side::ALL {
            let Some(cache) = &mut caches[side as usize] else { continue };
            while cache.poll_event(now, scratch).is_some() {}
            let mut want = |missing: &[u8]| {
                if wants.len() < WANTS_MAX {
                    let mut datagram = Vec::new();
                    Word::Want { name: *name, side, missing }.write(&mut datagram);
                    wants.push_back(datagram);
                }
            };
            // Its other messages concern no mirror.
            while cache.poll_transmit(now, scratch) {
                if matches!(Control::parse(scratch), Ok(Control::Missing { .. })) {
                    want(scratch);
                }
            }
            let mut message = Vec::new();
            sweeps[side as usize].step(now, cache, |missing| {
                missing.write(&mut message);
                want(&message);
            });
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant, counters: &mut MirrorCounters) {
        if self.leader.is_some_and(|leader| now.saturating_since(leader.received_at) >= FOLLOWED_FOR) {
            self.change_leader(now);
        }
        if self.follow_at <= now {
            self.began_at.get_or_insert(now);
            self.is_filled = self.is_filled || self.has_filled(now);
            self.round += 1;
            self.follow_at = now + FOLLOW_INTERVAL;
        }
        if self.leader.is_some() {
            self.receiver.handle_timeout(now);
            self.caches.iter_mut().flatten().for_each(|cache| cache.handle_timeout(now));
            self.take_entries(now, counters);
        }
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        if self.leader.is_none() {
            return self.follow_at;
        }
        let caches = self.caches.iter().zip(&self.sweeps).filter_map(|(cache, sweep)| {
            let asking = cache.as_ref()?.poll_timeout();
            Some(asking.map_or_else(|| sweep.poll_timeout(), |at| at.min(sweep.poll_timeout())))
        });
        let leaving = self.leader.map(|leader| leader.received_at + FOLLOWED_FOR);
        caches.chain(self.receiver.poll_timeout()).chain(leaving).fold(self.follow_at, Instant::min)
    }

    /// The next datagram for a peer, in place of what was in `out`. False when there is none.
    pub(super) fn poll(&mut self, now: Instant, peer: NodeId, out: &mut Vec<u8>) -> bool {
        let sent_rounds = self.sent_rounds.entry(peer.0).or_default();
        if *sent_rounds != self.round {
            *sent_rounds = self.round;
            Word::Follow { name: self.name }.write(out);
            return true;
        }
        let Some(leader) = self.leader.filter(|leader| leader.peer == peer) else { return false };
        if let Some(want) = self.wants.pop_front() {
            *out = want;
            return true;
        }
        let Some(ack) = self.receiver.poll_ack(now) else { return false };
        ack.write(Sessions { from: self.name, to: leader.session }, &mut self.scratch);
        Word::Stream(&self.scratch).write(out);
        true
    }
}

/// Where the stream stands, what was lacking, or that it is nowhere any more.
fn handle_word(
    now: Instant,
    message: &[u8],
    cache_bytes: usize,
    cache: &mut Option<Decoder>,
    sweep: &mut Sweep,
    counters: &mut MirrorCounters,
) {
    match Control::parse(message) {
        Ok(Control::Open { epoch, granules, next, parent, .. }) => {
            if cache.is_none() {
                *cache = Decoder::new(DecoderConfig { cache_bytes, id: 0 }).ok();
            }
            let position = StreamPosition { epoch, granules, next, parent };
            if cache.as_ref().and_then(Decoder::epoch) != Some(epoch) {
                // Gaps of another stream mean nothing in this one.
                *sweep = Sweep::default();
            }
            if !cache.as_mut().is_some_and(|cache| cache.join_stream(now, &position)) {
                *cache = None;
            }
        }
        Ok(Control::Fill { number, bytes, .. }) => {
            let count = (bytes.len() / GRANULE_BYTES) as u64;
            counters.granules_given_here += count;
            if let Some(cache) = cache {
                let _ = cache.handle_control(now, message);
            }
            sweep.note_settled(now, &(number..number + count), false);
        }
        Ok(Control::Gone { ranges, .. }) => {
            if let Some(cache) = cache {
                let _ = cache.handle_control(now, message);
            }
            ranges.iter().for_each(|range| sweep.note_settled(now, range, true));
        }
        _ => {}
    }
}
