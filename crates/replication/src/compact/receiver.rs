//! A backup's copy of one peer's filter.

use alloc::vec::Vec;
use core::time::Duration;

use flow::random::SplitMix64;
use flow::{Instant, Tuple};

use super::config::Representation;
use super::error::CompactError;
use super::hearing::Hearing;
use super::held::Known;
use super::status::CompactReceiverStatus;
use super::wire::{self, Announcement, kind};
use crate::session::draw_number;

/// What a peer may make this node keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverLimits {
    /// Words of a filter, of four bytes each. There may be two of them: while a peer that was started anew tells its filter, the
    /// former one stays.
    pub words_max: usize,
}

impl Default for ReceiverLimits {
    /// 64 MiB: three million connections as counting Bloom filter with states, fourteen in the others.
    fn default() -> Self {
        Self { words_max: 1 << 24 }
    }
}

/// Hears one peer's filter, and looks up connections in it when their packets come here instead.
///
/// ```text
///            the peer is new, or was started anew
/// current: ── whole ──────────────────────────────────── whole ──►  the new one
/// staging:                └── being filled ── whole ──┘
/// ```
pub struct CompactReceiver {
    limits: ReceiverLimits,
    random: SplitMix64,
    pub(super) current: Option<Hearing>,
    pub(super) staging: Option<Hearing>,
    /// What a peer that was started anew told before, if it is retained.
    retained: Option<Hearing>,
    retains: bool,
    /// What the next stream will be called. Who is told of it has heard from this node since the last one began: no
    /// datagram of an earlier stream names it.
    invitation: u32,
    /// A stream that is not known, and the epoch that it said, are to be answered with an invitation.
    unknown: Option<(u32, u64)>,
    /// An epoch whose filter is too large is to be refused.
    refused: Option<u64>,
    status: CompactReceiverStatus,
}

impl CompactReceiver {
    /// Without any filter. `seed` must differ from start to start.
    #[must_use]
    pub fn new(limits: ReceiverLimits, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let invitation = draw_number(&mut random);
        Self {
            limits,
            random,
            current: None,
            staging: None,
            retained: None,
            retains: false,
            invitation,
            unknown: None,
            refused: None,
            status: CompactReceiverStatus::default(),
        }
    }

    /// A datagram of the peer.
    ///
    /// # Errors
    /// It cannot be used; nothing of it was.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) -> Result<(), CompactError> {
        self.status.datagrams += 1;
        self.status.bytes += datagram.len() as u64;
        let result = self.handle(now, datagram);
        self.status.bad_datagrams += u64::from(result.is_err());
        result
    }

    fn handle(&mut self, now: Instant, datagram: &[u8]) -> Result<(), CompactError> {
        let (message, number, body) = wire::parse(datagram)?;
        if !matches!(message, kind::SHAPE..=kind::DIGESTS) {
            return Err(CompactError::Kind(message));
        }
        let Self { current, staging, status, .. } = self;
        let known = match (staging, current) {
            (Some(hearing), _) | (_, Some(hearing)) if hearing.number == number => Some(hearing),
            _ => None,
        };
        match (known, message) {
            (Some(hearing), kind::SHAPE) => hearing.answer_at_once(now),
            (Some(hearing), _) => hearing.handle(now, message, body, status)?,
            (None, kind::SHAPE) => return self.announced(now, number, Announcement::parse(body)?),
            (None, _) => self.unknown = Some((number, 0)),
        }
        if self.staging.as_ref().is_some_and(|staging| staging.is_whole) {
            let former = core::mem::replace(&mut self.current, self.staging.take());
            if self.retains && self.retained.is_none() {
                self.retained = former;
            }
            self.status.filters += 1;
        }
        Ok(())
    }

    fn announced(&mut self, now: Instant, number: u32, announcement: Announcement) -> Result<(), CompactError> {
        let words = announcement.shape.words().map_err(|error| CompactError::Exchange(error.into()))?;
        let words_max = self.limits.words_max;
        if words > words_max {
            self.refused = Some(announcement.epoch());
            return Err(CompactError::TooLarge { words, words_max });
        }
        if number == self.invitation {
            // One that never became whole is all that there is of what the peer told before.
            let former = self.staging.take().filter(|_| self.retains && self.current.is_none());
            if self.retained.is_none() {
                self.retained = former;
            }
            self.staging = Some(Hearing::new(now, number, announcement)?);
            self.invitation = draw_number(&mut self.random);
        } else {
            self.unknown = Some((number, announcement.epoch()));
        }
        Ok(())
    }

    /// Writes a datagram for the peer to `out`, replacing what is there; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Self { current, staging, status, .. } = self;
        if let Some((number, epoch)) = self.unknown.take() {
            wire::begin(out, kind::ASK, number);
            out.extend_from_slice(&self.invitation.to_be_bytes());
            out.extend_from_slice(&epoch.to_be_bytes());
        } else if let Some(epoch) = self.refused.take() {
            wire::begin(out, kind::REFUSE, 0);
            out.extend_from_slice(&epoch.to_be_bytes());
            out.extend_from_slice(&(self.limits.words_max as u64).to_be_bytes());
        } else {
            let mut hearings = [staging.as_mut(), current.as_mut()].into_iter().flatten();
            if !hearings.any(|hearing| hearing.poll(now, status, out)) {
                return false;
            }
        }
        self.status.bytes_sent += out.len() as u64;
        true
    }

    /// When [`CompactReceiver::poll_transmit`] is to be called, if nothing comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        // Nothing of what is retained is acknowledged any more.
        [&self.staging, &self.current].into_iter().flatten().filter_map(Hearing::ack_at).min()
    }

    /// Time has passed. There is nothing that it changes; datagrams that are due come from [`CompactReceiver::poll_transmit`].
    pub const fn handle_timeout(&mut self, _now: Instant) {}

    /// What is known of a connection with this original tuple; nothing if it is not the peer's. It may be wrong in the ways of the
    /// peer's representation.
    #[must_use]
    pub fn lookup(&self, original: &Tuple) -> Option<Known> {
        self.hearings().find_map(|hearing| {
            let representation = hearing.announcement.representation;
            hearing.held.lookup(representation, &hearing.secret, original)
        })
    }

    /// While true, the filter that is whole now can be looked up even when the peer was started anew and has told another one: a
    /// node that has taken the peer's connections over goes on asking for those that have sent nothing yet. There may then be
    /// three filters. False forgets what was kept so.
    pub fn set_retaining(&mut self, retains: bool) {
        self.retains = retains;
        if !retains {
            self.retained = None;
        }
    }

    /// Whether an answer is seldom wrong, as the peer's entries have fingerprints of their connections.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        matches!(self.representation(), Some(Representation::MultiLevel(_) | Representation::DLeft))
    }

    /// The newer one first.
    fn hearings(&self) -> impl Iterator<Item = &Hearing> {
        [self.staging.as_ref(), self.current.as_ref(), self.retained.as_ref()].into_iter().flatten()
    }

    /// How the peer represents its connections, once it has said so.
    #[must_use]
    pub fn representation(&self) -> Option<Representation> {
        self.hearings().map(|hearing| hearing.announcement.representation).next()
    }

    /// Whether there is a whole filter, and none that the peer began to tell since it was started anew.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.current.is_some() && self.staging.is_none()
    }

    /// How long nothing was heard of the peer about the filter that is whole; nothing without one.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.current.as_ref().map(|hearing| now.saturating_since(hearing.heard_at))
    }

    /// What is in the whole filter, as the peer said last.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.current.as_ref().map_or(0, |hearing| hearing.entries())
    }

    /// How many entries there can be in all that is looked up. Counted, so that it is as new as the filter; what the peer says of
    /// its entries comes with its digests. Takes as long as reading the filter.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.hearings().map(|hearing| hearing.held.occupied()).sum()
    }

    /// What the filters take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.hearings().map(|hearing| hearing.held.memory().bytes()).sum()
    }

    /// Its figures.
    #[must_use]
    pub fn status(&self) -> CompactReceiverStatus {
        CompactReceiverStatus { entries: self.entries(), ..self.status }
    }
}
