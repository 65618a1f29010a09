//! A backup's copy of one peer's filter.

use alloc::vec::Vec;
use core::time::Duration;

use flow::random::SplitMix64;
use flow::{Instant, Tuple};

use super::config::Representation;
use super::error::CompactError;
use super::held::Known;
use super::incoming::Incoming;
use super::status::CompactReceiverStatus;
use super::wire::{self, Announcement, kind};
use crate::session::draw_number;

/// What a peer may make this node keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverLimits {
    /// Words of a filter, of four bytes each. Two filters may exist: while a restarted peer sends its new filter, the former one stays.
    pub words_max: usize,
}

impl Default for ReceiverLimits {
    /// 64 MiB: fourteen million connections.
    fn default() -> Self {
        Self { words_max: 1 << 24 }
    }
}

/// Receives one peer's filter, and looks up connections in it when their packets arrive here instead.
///
/// ```text
///            the peer is new, or has restarted
/// current: ── whole ──────────────────────────────────── whole ──►  the new one
/// staging:                └── being filled ── whole ──┘
/// ```
pub struct CompactReceiver {
    limits: ReceiverLimits,
    random: SplitMix64,
    pub(super) current: Option<Incoming>,
    pub(super) staging: Option<Incoming>,
    /// The filter of the peer's former process, if it is retained.
    retained: Option<Incoming>,
    retains: bool,
    /// The number of the next stream. A peer that uses it has received it since the last stream began, so that no datagram of an
    /// earlier stream carries it.
    invitation: u32,
    /// An unknown stream and its epoch, which an invitation must answer.
    unknown: Option<(u32, u64)>,
    /// The epoch of a filter that is too large, which must be refused.
    refused: Option<u64>,
    status: CompactReceiverStatus,
}

fn lookup_in(incoming: &Incoming, original: &Tuple) -> Option<Known> {
    incoming.held.lookup(incoming.announcement.representation, &incoming.secret, original)
}

impl CompactReceiver {
    /// A receiver without a filter. `seed` must differ from start to start.
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
            (Some(incoming), _) | (_, Some(incoming)) if incoming.number == number => Some(incoming),
            _ => None,
        };
        match (known, message) {
            (Some(incoming), kind::SHAPE) => incoming.answer_at_once(now),
            (Some(incoming), _) => incoming.handle(now, message, body, status)?,
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
            // A filter that never became whole is all that was received of the peer's former process.
            let former = self.staging.take().filter(|_| self.retains && self.current.is_none());
            if self.retained.is_none() {
                self.retained = former;
            }
            self.staging.insert(Incoming::new(now, number, announcement)?).answer_at_once(now);
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
            let mut incoming_streams = [staging.as_mut(), current.as_mut()].into_iter().flatten();
            if !incoming_streams.any(|incoming| incoming.poll(now, status, out)) {
                return false;
            }
        }
        self.status.bytes_sent += out.len() as u64;
        true
    }

    /// When [`CompactReceiver::poll_transmit`] is to be called, if nothing comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        // A retained filter acknowledges nothing.
        [&self.staging, &self.current].into_iter().flatten().filter_map(Incoming::ack_at).min()
    }

    /// Does nothing: datagrams that are due come from [`CompactReceiver::poll_transmit`].
    pub const fn handle_timeout(&mut self, _now: Instant) {}

    /// The peer's entry for a connection with this original tuple. Errors have the odds of the peer's representation.
    #[must_use]
    pub fn lookup(&self, original: &Tuple) -> Option<Known> {
        self.incoming_streams().find_map(|incoming| lookup_in(incoming, original))
    }

    /// As [`CompactReceiver::lookup`], in what the peer has now: not in the filter that it had before it restarted.
    #[must_use]
    pub fn lookup_present(&self, original: &Tuple) -> Option<Known> {
        lookup_in(self.staging.as_ref().or(self.current.as_ref())?, original)
    }

    /// While true, the present filter can be looked up even after a restarted peer has sent another one: a node that has taken the peer's
    /// connections over still needs the entries of those that have sent nothing yet. Three filters may exist then. False drops the
    /// retained one.
    pub fn set_retaining(&mut self, retains: bool) {
        self.retains = retains;
        if !retains {
            self.retained = None;
        }
    }

    /// Whether lookups are seldom wrong, because the peer's entries have fingerprints.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        matches!(self.representation(), Some(Representation::MultiLevel(_)))
    }

    /// The newer one first.
    fn incoming_streams(&self) -> impl Iterator<Item = &Incoming> {
        [self.staging.as_ref(), self.current.as_ref(), self.retained.as_ref()].into_iter().flatten()
    }

    /// How the peer represents its connections, once known.
    #[must_use]
    pub fn representation(&self) -> Option<Representation> {
        self.incoming_streams().map(|incoming| incoming.announcement.representation).next()
    }

    /// Whether the filter is whole, and no newer one is being received.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.current.is_some() && self.staging.is_none()
    }

    /// Time since the last datagram about the whole filter; `None` without one.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.current.as_ref().map(|incoming| now.saturating_since(incoming.last_received_at))
    }

    /// Entries in the whole filter, as the peer last reported.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.current.as_ref().map_or(0, |incoming| incoming.entries())
    }

    /// Upper bound of the entries in all filters that are looked up. It is counted, and so as new as the filters; the peer's own figure
    /// arrives with its digests. Reads all filters.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.incoming_streams().map(|incoming| incoming.held.occupied()).sum()
    }

    /// Memory of the filters, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.incoming_streams().map(|incoming| incoming.held.memory().bytes()).sum()
    }

    /// Its figures.
    #[must_use]
    pub fn status(&self) -> CompactReceiverStatus {
        CompactReceiverStatus { entries: self.entries(), ..self.status }
    }
}
