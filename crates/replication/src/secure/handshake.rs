//! The peer's half of a handshake: this node answers what the peer begins, and takes the answer to what it began itself.

use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;
use flow::token_bucket::RateLimit;
use snow::{HandshakeState, StatelessTransportState};

use super::Channel;
use super::attempt::{ANSWERS_TRIED_MAX, Progress};
use super::certificate::Part;
use super::error::ChannelError;
use super::keys::{Keys, Made, Stage};
use super::resolver::HASH_BYTES;
use super::secret::KeyId;
use super::wire::{self, Mode, RESPONSE_NOISE_BYTES, STAMP_BYTES};

/// Handshakes that are looked into: it takes a few hashes to see that a stranger's is none.
const CHECKS: RateLimit = RateLimit::new(10_000, 256);
/// Handshakes that are answered.
const ANSWERS: RateLimit = RateLimit::new(20, 20);
/// Handshakes begun because the peer seems to have been restarted.
const HINTS: RateLimit = RateLimit::new(4, 2);
/// Only a peer that has been silent for so long seems to have been restarted.
const QUIET: Duration = Duration::from_millis(30);

/// The end of a handshake: what seals datagrams from now on, and the hash that both nodes have.
fn finished(handshake: HandshakeState) -> Option<(StatelessTransportState, [u8; HASH_BYTES])> {
    let hash = *handshake.get_handshake_hash().first_chunk()?;
    Some((handshake.into_stateless_transport_mode().ok()?, hash))
}

/// An initiation as it came.
pub(super) struct Initiation<'a> {
    pub(super) mode: Mode,
    pub(super) key: KeyId,
    pub(super) index: u32,
    pub(super) noise: &'a [u8],
}

impl Channel {
    /// Answers a handshake that the peer begins.
    pub(super) fn answer(&mut self, now: Instant, initiation: &Initiation<'_>) -> Result<(), ChannelError> {
        let mode = self.credentials.mode();
        if initiation.mode != mode {
            let (theirs, ours) = (initiation.mode.describe(), mode.describe());
            return Err(ChannelError::ModeDiffers { theirs, ours });
        }
        let credentials = alloc::sync::Arc::clone(&self.credentials);
        let Some(key) = credentials.key(initiation.key) else {
            return Err(ChannelError::UnknownKey { theirs: initiation.key, ours: credentials.key_names() });
        };
        if !self.checks.take(now, &CHECKS) {
            return Err(ChannelError::RateLimited);
        }
        let handshake = self.noise.handshake(&self.config, (Part::Responder, mode), key, &mut self.random);
        let mut handshake = handshake.ok_or(ChannelError::ForgedHandshake)?;
        let mut stamp = [0; STAMP_BYTES];
        handshake.read_message(initiation.noise, &mut stamp).map_err(|_| ChannelError::ForgedHandshake)?;
        let stamp = u64::from_be_bytes(stamp);
        if stamp <= self.peer_stamp {
            self.hint(now);
            return Err(ChannelError::StaleHandshake);
        }
        // Without a key, anybody could have written it: it is believed when the peer has shown its certificate.
        if credentials.has_keys() {
            self.peer_stamp = stamp;
        }
        if self.goes_first(now) {
            return Ok(());
        }
        if !self.answers.take(now, &ANSWERS) {
            return Err(ChannelError::RateLimited);
        }
        if credentials.has_keys() {
            self.yield_to_peer(now);
        }
        self.offer(now, handshake, key.id(), initiation.index, stamp).ok_or(ChannelError::ForgedHandshake)
    }

    /// Sends the second message; the keys that it makes wait for the peer to use them.
    fn offer(
        &mut self,
        now: Instant,
        mut handshake: HandshakeState,
        key: KeyId,
        peer_index: u32,
        stamp: u64,
    ) -> Option<()> {
        let local_index = self.new_index();
        let mut datagram = Vec::new();
        wire::put_response(&mut datagram, local_index, peer_index);
        let at = datagram.len();
        datagram.resize(at + RESPONSE_NOISE_BYTES, 0);
        handshake.write_message(&[], &mut datagram[at..]).ok()?;
        let (transport, hash) = finished(handshake)?;
        let made = Made { local_index, peer_index, part: Part::Responder, key, stamp, stage: Stage::Answered };
        self.push_pending(Keys::new(&made, transport, hash, now));
        self.push_out(datagram);
        Some(())
    }

    pub(super) fn push_pending(&mut self, keys: Keys) {
        if self.pending.is_full() {
            self.pending.remove(0);
        }
        self.pending.push(keys);
    }

    /// Takes the peer's answer to a handshake of this node's.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        peer_index: u32,
        initiator_index: u32,
        noise: &[u8],
    ) -> Result<(), ChannelError> {
        let Some(attempt) = &mut self.attempt else { return Err(ChannelError::UnknownSession) };
        let Progress::Initiated { index, noise: handshake, answers_tried } = &mut attempt.progress else {
            return Err(ChannelError::UnknownSession);
        };
        if *index != initiator_index {
            return Err(ChannelError::UnknownSession);
        }
        if *answers_tried >= ANSWERS_TRIED_MAX {
            return Err(ChannelError::RateLimited);
        }
        *answers_tried += 1;
        handshake.read_message(noise, &mut []).map_err(|_| ChannelError::ForgedHandshake)?;
        let Some(mut attempt) = self.attempt.take() else { return Ok(()) };
        let Progress::Initiated { noise: handshake, .. } = attempt.progress else { return Ok(()) };
        let (transport, hash) = finished(*handshake).ok_or(ChannelError::ForgedHandshake)?;
        let key = self.credentials.first_key().id();
        let has_certificates = self.credentials.certificates().is_some();
        let stage = if has_certificates { Stage::Proving } else { Stage::InUse };
        let local_index = initiator_index;
        let made = Made { local_index, peer_index, part: Part::Initiator, key, stamp: 0, stage };
        let keys = Keys::new(&made, transport, hash, now);
        if has_certificates {
            self.push_pending(keys);
            attempt.progress = Progress::Proving { index: local_index, shown: 0 };
            attempt.prove(now, local_index);
            self.attempt = Some(attempt);
            self.show_proof(local_index);
        } else {
            self.take_into_use(now, keys);
            self.confirm(now);
        }
        Ok(())
    }

    /// Something indicates that the peer was restarted. If it has been silent since, a handshake is begun; a stranger can
    /// make that happen only while the peer is away, and not often.
    pub(super) fn hint(&mut self, now: Instant) {
        let is_quiet = now.saturating_since(self.received_at) >= QUIET;
        if is_quiet && self.attempt.is_none() && self.current.is_some() && self.hints.take(now, &HINTS) {
            self.want(now);
        }
    }
}
