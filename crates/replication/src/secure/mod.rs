//! The secure channel between two nodes: datagrams are encrypted, and their sender is authenticated.
//!
//! A [`Channel`] is a value as a session is: it is handed datagrams and the time, and is asked for datagrams. It knows no
//! socket, no clock and no randomness but the seed that it was given.
//!
//! * The handshake is Noise (revision 34), pattern `NNpsk0`, with X25519, AES-256-GCM and SHA-256: two messages. A peer
//!   without the [pre-shared key](PreSharedKey) is refused at the first one, before anything is computed that costs much.
//! * [`Certificates`], instead of keys or beside them, are shown when the handshake has made session keys: a chain and a
//!   signature over the handshake's hash.
//! * Session keys are exchanged every so often ([`Rotation`]) without a gap: a node sends under new keys when it knows that
//!   the peer has them, and takes what comes under the former ones as long as the peer uses them.
//! * Whatever came before is refused ([`REPLAY_WINDOW_DATAGRAMS`]).
//!
//! What a stranger sends changes neither keys nor session, and costs a bounded amount of work: `docs/security.md`.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use flow::{Instant, NodeId, WorkerId};
//! use replication::secure::{Channel, ChannelConfig, Content, Credentials, PreSharedKey, Rotation, Seed};
//!
//! let credentials = Arc::new(Credentials::new(vec![PreSharedKey::new([42; 32])], None)?);
//! let today = Duration::from_secs(1_800_000_000);
//! let channel = |local: u8, peer: u8| {
//!     let (local, peer, rotation) = (NodeId(local), NodeId(peer), Rotation::default());
//!     let config = ChannelConfig { local, peer, worker: WorkerId::LEAD, rotation };
//!     Channel::new(config, Arc::clone(&credentials), Seed::new([local.0; 32]), Instant::ZERO, today)
//! };
//! let (mut left, mut right) = (channel(0, 1), channel(1, 0));
//! let (now, mut datagram, mut content) = (Instant::from_millis(1), Vec::new(), Vec::new());
//! left.handle_timeout(now);
//! while left.poll_transmit(&mut datagram) {
//!     right.handle_datagram(now, &datagram, &mut content)?;
//! }
//! while right.poll_transmit(&mut datagram) {
//!     left.handle_datagram(now, &datagram, &mut content)?;
//! }
//! assert!(left.is_ready(), "after one round trip");
//! assert!(left.seal(now, Content::Replication, &mut b"state".to_vec(), &mut datagram));
//! assert_eq!(right.handle_datagram(now, &datagram, &mut content)?, Some(Content::Replication));
//! assert_eq!(content, b"state");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attempt;
mod certificate;
mod config;
mod credentials;
mod decryption;
mod error;
mod handshake;
mod initiator;
mod keys;
mod noise;
mod resolver;
mod secret;
mod security;
mod status;
#[cfg(test)]
mod tests;
mod window;
mod wire;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use arrayvec::ArrayVec;
use flow::token_bucket::TokenBucket;
use flow::{Instant, WorkerId};

use attempt::Attempt;
use certificate::Part;
use keys::{Keys, Stage};
use noise::Noise;
use resolver::{Multiplications, SeededRandom};
use status::Counters;

pub use certificate::{
    CHAIN_CERTIFICATES_MAX, CertificateError, Certificates, CertificatesError, PROOF_BYTES_MAX, SignatureScheme, Signer,
};
pub use config::{ChannelConfig, Rotation};
pub use credentials::{Credentials, CredentialsError, PRE_SHARED_KEYS_MAX};
pub use error::{ChannelError, REFUSALS, Refusal};
pub use secret::{KeyId, NotAKey, PRE_SHARED_KEY_BYTES, PreSharedKey, Seed};
pub use security::{Security, SecurityReconfiguration, UnnamedPeer};
pub use status::{ChannelEvent, ChannelStatus, EVENTS_MAX, SessionKeys};
pub use window::REPLAY_WINDOW_DATAGRAMS;
pub use wire::{CHANNEL_VERSION, OVERHEAD_BYTES, is_channel};

/// Session keys that a responder has offered and under which nothing was received yet; the oldest are discarded.
const PENDING_KEYS_MAX: usize = 4;
/// How long they are kept.
const PENDING_KEYS_VALID: Duration = Duration::from_secs(5);
/// Former session keys that are still accepted; the oldest are discarded.
const PREVIOUS_KEYS_MAX: usize = 2;
/// How long they are kept after they were last used by the peer.
const PREVIOUS_KEYS_VALID: Duration = Duration::from_secs(10);
/// A peer that still sends under former keys after this time does not have the new ones: the nodes agree anew.
const SWITCH_WITHIN: Duration = Duration::from_secs(1);
/// Datagrams of handshakes that wait to be sent; the oldest are discarded.
const OUTBOX_DATAGRAMS_MAX: usize = 8;
/// What a sealed datagram holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Content {
    /// Nothing: it shows that the sender has the keys.
    Nothing = 0,
    /// What the replication port carries in plain text: replication or a heartbeat.
    Replication = 1,
    /// A packet of failure detection.
    Detection = 2,
}

/// The content number of a proof of identity, which the channel keeps to itself.
const PROOF: u8 = 3;

impl Content {
    const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Nothing),
            1 => Some(Self::Replication),
            2 => Some(Self::Detection),
            _ => None,
        }
    }
}

/// The secure channel with one peer.
pub struct Channel {
    config: ChannelConfig,
    credentials: Arc<Credentials>,
    noise: Noise,
    random: SeededRandom,
    multiplications: Multiplications,
    /// The time since 1970 at a time of the node's clock.
    unix_time: (Instant, Duration),
    /// What this node's latest initiation said of when it was made, in nanoseconds since 1970.
    stamp: u64,
    /// The greatest that a genuine one of the peer's said.
    peer_stamp: u64,
    current: Option<Keys>,
    previous: ArrayVec<Keys, PREVIOUS_KEYS_MAX>,
    pending: ArrayVec<Keys, PENDING_KEYS_MAX>,
    attempt: Option<Attempt>,
    /// When a handshake is begun.
    wanted_at: Option<Instant>,
    in_use_since: Instant,
    received_at: Instant,
    outbox: VecDeque<Vec<u8>>,
    checks: TokenBucket,
    answers: TokenBucket,
    hints: TokenBucket,
    counters: Counters,
    events: VecDeque<ChannelEvent>,
}

impl Channel {
    /// A channel that begins with a handshake at the first call with a time. `seed` must differ from start to start and be
    /// drawn from a generator that is fit for keys. `unix_time` is the time since 1970.
    #[must_use]
    pub fn new(
        config: ChannelConfig,
        credentials: Arc<Credentials>,
        seed: Seed,
        now: Instant,
        unix_time: Duration,
    ) -> Self {
        let multiplications = Multiplications::default();
        Self {
            config,
            credentials,
            noise: Noise::new(multiplications.clone()),
            random: SeededRandom { seed, next: 0 },
            multiplications,
            unix_time: (now, unix_time),
            stamp: 0,
            peer_stamp: 0,
            current: None,
            previous: ArrayVec::new(),
            pending: ArrayVec::new(),
            attempt: None,
            wanted_at: Some(now),
            in_use_since: now,
            received_at: now,
            outbox: VecDeque::new(),
            checks: TokenBucket::default(),
            answers: TokenBucket::default(),
            hints: TokenBucket::default(),
            counters: Counters::default(),
            events: VecDeque::new(),
        }
    }

    /// Whether there are session keys to send under. Once there are, there always are.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.current.is_some()
    }

    /// Which worker uses the channel; to be set before anything is sent. Workers that were given one seed draw from it
    /// differently.
    pub fn set_worker(&mut self, worker: WorkerId) {
        self.config.worker = worker;
        self.random.seed = self.random.seed.derive(&[worker.0]);
    }

    /// The time since 1970, as the system has it at `now`: certificates are held against it.
    pub fn set_unix_time(&mut self, now: Instant, unix_time: Duration) {
        self.unix_time = (now, unix_time);
    }

    /// Other credentials from now on. Session keys stay until a handshake with the new credentials has succeeded, which is
    /// begun at once. True unless the credentials are those that were there.
    pub fn set_credentials(&mut self, now: Instant, credentials: Arc<Credentials>) -> bool {
        let is_other = credentials.fingerprint() != self.credentials.fingerprint();
        self.credentials = credentials;
        if is_other {
            self.attempt = None;
            self.pending.clear();
            self.wanted_at = Some(now);
        }
        is_other
    }

    /// When session keys are exchanged from the next exchange on.
    pub const fn set_rotation(&mut self, rotation: Rotation) {
        self.config.rotation = rotation;
    }

    /// Writes `content`, sealed, over `out`; an encrypted datagram is [`OVERHEAD_BYTES`] longer. `content` is left with a byte
    /// more. False, and nothing to be sent, before there are session keys.
    pub fn seal(&mut self, now: Instant, kind: Content, content: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Some(keys) = &mut self.current else { return false };
        content.push(kind as u8);
        let is_sealed = keys.seal(content, out);
        if keys.sent >= self.config.rotation.datagrams && self.attempt.is_none() {
            self.want(now);
        }
        self.counters.sealed += u64::from(is_sealed);
        is_sealed
    }

    /// Writes the next datagram of a handshake over `out`; false when there is none.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(datagram) = self.outbox.pop_front() else { return false };
        *out = datagram;
        true
    }

    /// Does what is due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.previous.retain(|keys| now.saturating_since(keys.received_at) < PREVIOUS_KEYS_VALID);
        self.pending.retain(|keys| now.saturating_since(keys.made_at) < PENDING_KEYS_VALID);
        if self.attempt.as_ref().is_some_and(|attempt| attempt.retry_at <= now) {
            self.retry(now);
        } else if self.attempt.is_none() && self.wanted_at.is_some_and(|at| at <= now) {
            self.begin(now);
        }
    }

    /// When [`Channel::handle_timeout`] has something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let handshake = self.attempt.as_ref().map(|attempt| attempt.retry_at).or(self.wanted_at);
        let previous = self.previous.iter().map(|keys| keys.received_at + PREVIOUS_KEYS_VALID);
        let pending = self.pending.iter().map(|keys| keys.made_at + PENDING_KEYS_VALID);
        pending.chain(handshake).chain(previous).min()
    }

    /// What happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<ChannelEvent> {
        self.events.pop_front()
    }

    /// The channel's figures.
    #[must_use]
    pub fn status(&self) -> ChannelStatus {
        let keys = self.current.as_ref().map(|keys| SessionKeys {
            key: self.credentials.is_pre_shared(keys.key).then_some(keys.key),
            peer_name: keys.peer_name.clone(),
            since: self.in_use_since,
        });
        ChannelStatus {
            keys,
            handshakes: self.counters.handshakes,
            multiplications: self.multiplications.count(),
            sealed: self.counters.sealed,
            opened: self.counters.opened,
            refused: self.counters.refused,
        }
    }

    /// A handshake is to be begun now, unless one is in progress.
    const fn want(&mut self, now: Instant) {
        self.wanted_at = Some(now);
    }

    fn push_out(&mut self, datagram: Vec<u8>) {
        if self.outbox.len() >= OUTBOX_DATAGRAMS_MAX {
            self.outbox.pop_front();
        }
        self.outbox.push_back(datagram);
    }

    fn push_event(&mut self, event: ChannelEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The time since 1970.
    fn unix_now(&self, now: Instant) -> Duration {
        let (at, unix_time) = self.unix_time;
        unix_time + now.saturating_since(at)
    }

    /// A number for session keys that none has.
    fn new_index(&mut self) -> u32 {
        loop {
            let index = self.random.number();
            let mut known = self.current.iter().chain(&self.previous).chain(&self.pending);
            if index != 0 && known.all(|keys| keys.local_index != index) {
                return index;
            }
        }
    }

    /// From now on, these keys are sent under, unless they are of a handshake that another one has crossed.
    fn take_into_use(&mut self, now: Instant, mut keys: Keys) {
        keys.stage = Stage::InUse;
        keys.received_at = now;
        if self.has_crossed(&keys) {
            self.push_previous(keys);
            return;
        }
        let interval = self.config.rotation.interval;
        // The initiator of the last handshake begins the next one; the other node does if that fails.
        let pause = if keys.part == Part::Initiator { interval } else { interval + interval / 8 };
        self.wanted_at = Some(now + pause);
        self.attempt = None;
        self.peer_stamp = self.peer_stamp.max(keys.stamp);
        self.in_use_since = now;
        self.received_at = now;
        let event = if self.current.is_some() { ChannelEvent::KeysExchanged } else { ChannelEvent::Established };
        self.counters.handshakes += 1;
        if let Some(former) = self.current.replace(keys) {
            self.push_previous(former);
        }
        self.push_event(event);
    }

    /// Both nodes began a handshake at the same time, and both handshakes came to an end: the lower node's counts on both
    /// sides. The lower node knows it by having answered before its own came to an end.
    fn has_crossed(&self, keys: &Keys) -> bool {
        let is_own = self.current.as_ref().is_some_and(|current| current.part == Part::Initiator);
        let (local, peer) = (self.config.local, self.config.peer);
        is_own && keys.part == Part::Responder && local < peer && keys.made_at <= self.in_use_since
    }

    fn push_previous(&mut self, keys: Keys) {
        if self.previous.is_full() {
            self.previous.remove(0);
        }
        self.previous.push(keys);
    }

    /// Shows the peer that this node has the keys, for it waits for that.
    fn confirm(&mut self, now: Instant) {
        let mut datagram = Vec::new();
        if self.seal(now, Content::Nothing, &mut Vec::new(), &mut datagram) {
            self.push_out(datagram);
        }
    }
}
