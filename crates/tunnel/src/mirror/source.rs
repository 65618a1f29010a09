//! The node that is the tunnel's end: it sends followers what passes its caches, and gives them what they lack.
//!
//! Each follower has a stream of its own, with the order and the loss recovery of the one between the sites. It leaves
//! at a rate that was set, and holds no more than a tenth of a second of it: what finds no room is left out, and the
//! follower knows by the numbers what it lacks.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use flow::random::SplitMix64;
use flow::{Instant, NodeId};
use redundancy::wire::control::Control;
use redundancy::{Decoder, Encoder};

use super::limits::{
    FOLLOWED_FOR, FOLLOWERS_MAX, GIVE_RETRY, GIVEN_BURST_BYTES, GIVEN_SHARE, POSITIONS_INTERVAL, WANTED_RANGES_MAX,
};
use super::wire::{Entry, Side, Word};
use super::{MirrorCounters, Tap};
use crate::datagram::{Datagram, Sessions};
use crate::record::Record;
use crate::sender::{Sender, SenderConfig};

/// Bytes around a datagram that count for the rate: IPv4 and UDP headers.
const ENVELOPE_BYTES: u16 = 28;

/// What has the caches.
pub(super) type Views<'a> = Option<(&'a Encoder, &'a Decoder)>;

#[derive(Debug)]
struct Follower {
    peer: NodeId,
    sessions: Sessions,
    received_at: Instant,
    sender: Sender,
    /// The epochs that it was sent last.
    sent_epochs: [Option<u32>; 2],
    send_positions_at: Instant,
    wanted: VecDeque<(Side, Range<u64>)>,
    /// Bytes that may be given now; what passes takes from them too.
    allowance_bytes: i64,
    allowance_at: Instant,
}

impl Follower {
    /// Puts an entry into the stream. False: there is no room.
    fn push(&mut self, now: Instant, entry: &[u8], record: &mut Vec<u8>, counters: &mut MirrorCounters) -> bool {
        if !self.sender.has_room() {
            return false;
        }
        record.clear();
        Record::FromEncoder(entry).write(record);
        self.sender.push(now, record);
        self.allowance_bytes = self.allowance_bytes.saturating_sub(record.len() as i64).max(-GIVEN_BURST_BYTES);
        counters.bytes_sent += record.len() as u64;
        true
    }
}

/// All followers.
#[derive(Debug)]
pub(super) struct Source {
    sender_config: SenderConfig,
    given_bytes_per_second: u64,
    random: SplitMix64,
    followers: Vec<Follower>,
    record: Vec<u8>,
    entry: Vec<u8>,
    message: Vec<u8>,
}

fn position(side: Side, views: Views<'_>) -> Option<redundancy::StreamPosition> {
    let (encoder, decoder) = views?;
    match side {
        Side::Sent => Some(encoder.stream_position()),
        Side::Received => decoder.stream_position(),
    }
}

impl Source {
    pub(super) fn new(sender: SenderConfig, bits_per_second: u64, seed: u64) -> Self {
        Self {
            sender_config: SenderConfig { bits_per_second: Some(bits_per_second), ..sender },
            given_bytes_per_second: bits_per_second / 8 / GIVEN_SHARE,
            random: SplitMix64::new(seed),
            followers: Vec::new(),
            record: Vec::new(),
            entry: Vec::new(),
            message: Vec::new(),
        }
    }

    pub(super) fn followers(&self) -> usize {
        self.followers.len()
    }

    pub(super) fn clear(&mut self) {
        self.followers.clear();
    }

    /// The peer follows, in an incarnation of this name.
    pub(super) fn handle_follow(&mut self, now: Instant, peer: NodeId, name: u32) {
        if let Some(known) = self.followers.iter_mut().find(|it| it.peer == peer && it.sessions.to == name) {
            known.received_at = now;
            return;
        }
        self.forget(peer);
        if self.followers.len() >= FOLLOWERS_MAX {
            return;
        }
        self.followers.push(Follower {
            peer,
            sessions: Sessions { from: (self.random.next() >> 32) as u32 | 1, to: name },
            received_at: now,
            sender: Sender::new(self.sender_config, ENVELOPE_BYTES),
            sent_epochs: [None; 2],
            send_positions_at: now,
            wanted: VecDeque::new(),
            allowance_bytes: GIVEN_BURST_BYTES,
            allowance_at: now,
        });
    }

    /// Nothing more is sent to the peer, unless it follows again.
    pub(super) fn forget(&mut self, peer: NodeId) {
        self.followers.retain(|follower| follower.peer != peer);
    }

    pub(super) fn handle_ack(&mut self, now: Instant, peer: NodeId, sessions: Sessions, ack: &Datagram<'_>) {
        let is_of =
            |it: &&mut Follower| it.peer == peer && (it.sessions.from, it.sessions.to) == (sessions.to, sessions.from);
        if let (Some(follower), Datagram::Ack { next, end, missing }) = (self.followers.iter_mut().find(is_of), ack) {
            follower.sender.handle_ack(now, *next, *end, missing);
        }
    }

    /// A follower lacks something.
    pub(super) fn handle_want(&mut self, peer: NodeId, name: u32, side: Side, missing: &[u8]) {
        let follower = self.followers.iter_mut().find(|it| it.peer == peer && it.sessions.to == name);
        let (Some(follower), Ok(Control::Missing { epoch, ranges, .. })) = (follower, Control::parse(missing)) else {
            return;
        };
        // What is asked of another stream means nothing any more.
        if follower.sent_epochs[side as usize] != Some(epoch) {
            return;
        }
        for range in ranges {
            if follower.wanted.len() < WANTED_RANGES_MAX {
                follower.wanted.push_back((side, range));
            }
        }
    }

    /// Sends what passed.
    pub(super) fn send(&mut self, now: Instant, tap: &Tap, views: Views<'_>, counters: &mut MirrorCounters) {
        for entry in tap.entries() {
            counters.blocks_passed += 1;
            for follower in &mut self.followers {
                send_positions(now, follower, views, [&mut self.message, &mut self.entry, &mut self.record], counters);
                if !follower.push(now, entry, &mut self.record, counters) {
                    counters.blocks_left_out += 1;
                }
            }
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant, views: Views<'_>, counters: &mut MirrorCounters) {
        self.followers.retain(|follower| now.saturating_since(follower.received_at) < FOLLOWED_FOR);
        for follower in &mut self.followers {
            if follower.send_positions_at <= now {
                follower.send_positions_at = now + POSITIONS_INTERVAL;
                follower.sent_epochs = [None; 2];
            }
            send_positions(now, follower, views, [&mut self.message, &mut self.entry, &mut self.record], counters);
            let passed = now.saturating_since(follower.allowance_at);
            let earned = u128::from(self.given_bytes_per_second) * passed.as_micros() / 1_000_000;
            if earned > 0 {
                follower.allowance_at = now;
                let earned = i64::try_from(earned).unwrap_or(GIVEN_BURST_BYTES);
                follower.allowance_bytes = follower.allowance_bytes.saturating_add(earned).min(GIVEN_BURST_BYTES);
            }
            give(now, follower, views, [&mut self.message, &mut self.entry, &mut self.record], counters);
            follower.sender.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let of = |follower: &Follower| {
            let giving = (!follower.wanted.is_empty()).then(|| {
                let is_allowed = follower.allowance_bytes > 0 && follower.sender.has_room();
                if is_allowed { Instant::ZERO } else { follower.allowance_at + GIVE_RETRY }
            });
            let own = [giving, follower.sender.poll_timeout(), Some(follower.received_at + FOLLOWED_FOR)];
            own.into_iter().flatten().fold(follower.send_positions_at, Instant::min)
        };
        self.followers.iter().map(of).min()
    }

    /// The next datagram for a peer, in place of what was in `out`. False when there is none.
    pub(super) fn poll(&mut self, now: Instant, peer: NodeId, out: &mut Vec<u8>) -> bool {
        let Some(follower) = self.followers.iter_mut().find(|follower| follower.peer == peer) else { return false };
        let sessions = follower.sessions;
        let Some(datagram) = follower.sender.poll(now) else { return false };
        datagram.write(sessions, &mut self.message);
        Word::Stream(&self.message).write(out);
        true
    }
}

/// Sends the positions of the streams, if the follower lacks them or they are due.
fn send_positions(
    now: Instant,
    follower: &mut Follower,
    views: Views<'_>,
    [message, entry, record]: [&mut Vec<u8>; 3],
    counters: &mut MirrorCounters,
) {
    for side in Side::ALL {
        let Some(position) = position(side, views) else { continue };
        if follower.sent_epochs[side as usize] == Some(position.epoch) {
            continue;
        }
        position.write(message);
        entry.clear();
        Entry::Word { side, message }.write(entry);
        if follower.push(now, entry, record, counters) {
            follower.sent_epochs[side as usize] = Some(position.epoch);
        }
    }
}

/// Gives what a follower wants, as far as it may.
fn give(
    now: Instant,
    follower: &mut Follower,
    views: Views<'_>,
    [message, entry, record]: [&mut Vec<u8>; 3],
    counters: &mut MirrorCounters,
) {
    let Some((encoder, decoder)) = views else { return follower.wanted.clear() };
    while follower.allowance_bytes > 0 && follower.sender.has_room() {
        let Some((side, mut range)) = follower.wanted.pop_front() else { return };
        let count = match side {
            Side::Sent => encoder.write_reply(&range, message),
            Side::Received => decoder.write_reply(&range, message),
        };
        if count == 0 {
            continue;
        }
        entry.clear();
        Entry::Word { side, message }.write(entry);
        if follower.push(now, entry, record, counters) {
            counters.granules_given += count;
        }
        range.start += count;
        if !range.is_empty() {
            follower.wanted.push_front((side, range));
        }
    }
}
