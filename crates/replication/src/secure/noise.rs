//! The two messages of the handshake, as Noise makes them.
//!
//! ```text
//!   NNpsk0:  → psk, e      with the time at which it was made
//!            ← e, ee
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;

use snow::params::NoiseParams;
use snow::{Builder, HandshakeState};

use super::certificate::Part;
use super::config::ChannelConfig;
use super::credentials::Credentials;
use super::resolver::{Multiplications, Primitives, SeededRandom};
use super::secret::{PreSharedKey, Seed};
use super::wire::{self, CHANNEL_VERSION, INITIATION_NOISE_BYTES, Mode};

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// What Noise is made from.
pub(super) struct Noise {
    params: NoiseParams,
    multiplications: Multiplications,
}

/// Both nodes must agree on all of this, or no message of the handshake can be read.
fn prologue(config: &ChannelConfig, part: Part, mode: Mode) -> Vec<u8> {
    let (initiator, responder) = match part {
        Part::Initiator => (config.local, config.peer),
        Part::Responder => (config.peer, config.local),
    };
    let tail = [CHANNEL_VERSION, mode.0, initiator.0, responder.0, config.worker.0];
    [b"mainstay channel".as_slice(), &tail].concat()
}

impl Noise {
    pub(super) fn new(multiplications: Multiplications) -> Self {
        let params = PATTERN.parse().expect("the pattern's name is one that Noise knows");
        Self { params, multiplications }
    }

    pub(super) fn handshake(
        &self,
        config: &ChannelConfig,
        (part, mode): (Part, Mode),
        key: &PreSharedKey,
        random: &mut SeededRandom,
    ) -> Option<HandshakeState> {
        let mut seed = [0; 32];
        random.fill(&mut seed);
        let primitives = Primitives { seed: Seed::new(seed), multiplications: self.multiplications.clone() };
        let prologue = prologue(config, part, mode);
        let builder = Builder::with_resolver(self.params.clone(), Box::new(primitives));
        let builder = builder.prologue(&prologue).ok()?.psk(0, key.bytes()).ok()?;
        match part {
            Part::Initiator => builder.build_initiator().ok(),
            Part::Responder => builder.build_responder().ok(),
        }
    }

    /// An initiation, and the handshake that waits for its answer. `None` would be a defect of this file.
    pub(super) fn initiate(
        &self,
        config: &ChannelConfig,
        credentials: &Credentials,
        random: &mut SeededRandom,
        index: u32,
        stamp: u64,
    ) -> Option<(HandshakeState, Vec<u8>)> {
        let (mode, key) = (credentials.mode(), credentials.first_key());
        let mut handshake = self.handshake(config, (Part::Initiator, mode), key, random)?;
        let mut datagram = Vec::new();
        wire::put_initiation(&mut datagram, mode, key.id(), index);
        let at = datagram.len();
        datagram.resize(at + INITIATION_NOISE_BYTES, 0);
        handshake.write_message(&stamp.to_be_bytes(), &mut datagram[at..]).ok()?;
        Some((handshake, datagram))
    }
}
