//! Handshakes that this node begins: when, how often, and when it yields to the peer's.

use alloc::boxed::Box;
use core::time::Duration;

use flow::Instant;

use super::Channel;
use super::attempt::{Attempt, Progress, RETRY_MIN};

/// Handshakes that follow each other at one pace: a node that starts has hardly longer than it listens before it takes the
/// addresses, and on a link that loses every fourth datagram only every other handshake comes to its end.
const QUICK_TRIES: u32 = 10;
/// The same of the node with the higher number, so that two that began at once do not meet again and again.
const RETRY_MIN_HIGHER: Duration = Duration::from_millis(30);
/// The most that the time until a handshake is tried again doubles to.
const RETRY_MAX: Duration = Duration::from_millis(500);
/// Handshakes that cross each other within this time are one: that of the node with the lower number. Where the way is
/// longer, both may come to an end, and that node's counts.
const CROSSING: Duration = Duration::from_millis(10);
/// How long a node that answers waits before it goes on with a handshake of its own.
const WAY_GIVEN: Duration = Duration::from_millis(100);
/// A proof of identity that is not answered is repeated so often before a new handshake is begun.
const PROOFS_MAX: u32 = 5;

impl Channel {
    /// Begins a handshake.
    pub(super) fn begin(&mut self, now: Instant) {
        self.wanted_at = None;
        let is_lower = self.config.local < self.config.peer;
        self.greet(now, if is_lower { RETRY_MIN } else { RETRY_MIN_HIGHER }, 1);
    }

    /// Begins anew what brought nothing, or repeats the proof.
    pub(super) fn retry(&mut self, now: Instant) {
        let Some(attempt) = &mut self.attempt else { return };
        let interval = (attempt.interval * 2).min(RETRY_MAX);
        if let Progress::Proving { index, shown } = &mut attempt.progress
            && *shown < PROOFS_MAX
        {
            *shown += 1;
            let index = *index;
            (attempt.interval, attempt.retry_at) = (interval, now + interval);
            self.show_proof(index);
        } else {
            let tries = attempt.tries + 1;
            let interval = if tries <= QUICK_TRIES { attempt.interval } else { interval };
            self.greet(now, interval, tries);
        }
    }

    /// Sends an initiation. Each is made anew: the peer answers none twice.
    fn greet(&mut self, now: Instant, interval: Duration, tries: u32) {
        let (index, stamp) = (self.new_index(), self.next_stamp(now));
        let begun = self.noise.initiate(&self.config, &self.credentials, &mut self.random, index, stamp);
        let Some((noise, datagram)) = begun else {
            self.wanted_at = Some(now + RETRY_MAX);
            return;
        };
        let progress = Progress::Initiated { index, noise: Box::new(noise), answers_tried: 0 };
        self.attempt = Some(Attempt { progress, sent_at: now, retry_at: now + interval, interval, tries });
        self.push_out(datagram);
    }

    /// The time since 1970 in nanoseconds, but never one that was said before.
    fn next_stamp(&mut self, now: Instant) -> u64 {
        let unix_time = u64::try_from(self.unix_now(now).as_nanos()).unwrap_or(u64::MAX - 1);
        self.stamp = unix_time.max(self.stamp.saturating_add(1));
        self.stamp
    }

    /// The peer's handshake crosses one of this node's, which comes first: its first try only. A peer that refuses this node's,
    /// because its clock is behind, may begin its own at the same times for ever.
    pub(super) fn goes_first(&self, now: Instant) -> bool {
        let is_fresh = |attempt: &Attempt| attempt.tries == 1 && now.saturating_since(attempt.sent_at) < CROSSING;
        self.config.local < self.config.peer && self.attempt.as_ref().is_some_and(is_fresh)
    }

    /// The peer's handshake is being answered: this node's own waits, so that not both come to an end.
    pub(super) fn yield_to_peer(&mut self, now: Instant) {
        let later = now + WAY_GIVEN;
        if let Some(attempt) = &mut self.attempt {
            attempt.retry_at = attempt.retry_at.max(later);
        }
        self.wanted_at = self.wanted_at.map(|at| at.max(later));
    }
}
