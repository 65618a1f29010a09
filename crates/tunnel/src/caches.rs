//! The two caches of an end and what works on them. They outlive sessions: each session begins with the encoder's word where its
//! stream stands, and the decoder's what it holds, so that whatever both still have is pointed to.

use redundancy::limits::GRANULE_BYTES;
use redundancy::{Decoder, DecoderConfig, Encoder, EncoderConfig, Period, Sampling};

use super::config::TunnelConfig;
use super::counters::TunnelCounters;

/// What is taken over from another node is entered into the index in steps of so many bytes, so that packets do not wait.
const INDEX_STEP_BYTES: usize = 1 << 20;

/// An encoder, and a decoder for the other direction.
#[derive(Debug)]
pub(super) struct Caches {
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
}

/// What a node is given of caches that another node of its site had.
#[derive(Debug, Default)]
pub(super) struct Inheritance {
    /// What was sent.
    pub(super) sent: Option<Decoder>,
    /// What was received.
    pub(super) received: Option<Decoder>,
}

/// Names and secrets of an encoder.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncoderSeed {
    pub(super) epoch: u32,
    pub(super) key: [u64; 2],
}

fn encoder_config(config: &TunnelConfig, period: Period, seed: EncoderSeed) -> EncoderConfig {
    let sampling = Sampling { period, ..config.sampling };
    let EncoderSeed { epoch, key } = seed;
    // Records come in order, and each names the form of its payload.
    let caches_plain = true;
    EncoderConfig { cache_bytes: config.cache_bytes, sampling, epoch, key, caches_plain, ..EncoderConfig::default() }
}

impl Caches {
    /// Goes on with what another node had. `None`: with less than an encoder's cache there is nothing to go on with.
    pub(super) fn inherit(
        config: &TunnelConfig,
        period: Period,
        seed: EncoderSeed,
        inheritance: Inheritance,
    ) -> Option<Self> {
        let Inheritance { sent, received } = inheritance;
        if sent.is_none() && received.is_none() {
            return None;
        }
        let encoder_config = encoder_config(config, period, seed);
        let encoder = match sent {
            Some(sent) => Encoder::take_over_unindexed(encoder_config, sent),
            None => Encoder::new(encoder_config),
        };
        let decoder = match received {
            Some(mut decoder) => {
                // What it did as a mirror is counted there.
                decoder.take_counters();
                decoder
            }
            None => Decoder::new(DecoderConfig { cache_bytes: config.cache_bytes, id: 0 }).ok()?,
        };
        Some(Self { encoder: encoder.ok()?, decoder })
    }

    /// A session begins, with caches of so many granules at both ends: goes on with the former caches where they fit. None: the
    /// caches would be too small.
    pub(super) fn begin(
        config: &TunnelConfig,
        granules: u32,
        period: Period,
        seed: EncoderSeed,
        former: Option<Self>,
    ) -> Option<Self> {
        let cache_bytes = granules as usize * GRANULE_BYTES;
        let (encoder, decoder) = former.map_or((None, None), |former| (Some(former.encoder), Some(former.decoder)));
        let encoder = encoder.filter(|encoder| encoder.cache_bytes() == cache_bytes);
        let mut encoder = match encoder {
            Some(encoder) => encoder,
            None => Encoder::new(EncoderConfig { cache_bytes, ..encoder_config(config, period, seed) }).ok()?,
        };
        let mut decoder = match decoder {
            Some(decoder) => decoder,
            None => Decoder::new(DecoderConfig { cache_bytes: config.cache_bytes, id: 0 }).ok()?,
        };
        encoder.set_period(period);
        encoder.resume();
        decoder.resume();
        Some(Self { encoder, decoder })
    }

    /// Bytes of the caches and indexes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.encoder.memory_bytes().iter().sum::<usize>() + self.decoder.memory_bytes().iter().sum::<usize>()
    }

    /// Adds what they did so far, and forgets it.
    pub(super) fn settle(&mut self, counters: &mut TunnelCounters) {
        counters.add_codecs(self.encoder.take_counters(), self.decoder.take_counters());
    }
}

/// Goes on entering into the index what was taken over.
pub(super) fn index_some(encoder: &mut Encoder) {
    encoder.index_some(INDEX_STEP_BYTES);
}
