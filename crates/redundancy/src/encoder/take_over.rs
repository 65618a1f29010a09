//! An encoder on another node goes on where one that is gone left off.
//!
//! A node that is to take over hears the blocks too, as a decoder: so it has a copy of the cache. Made an encoder, it opens a
//! stream of its own, whose numbers below a fork are its predecessor's. What both the mirror and the decoder took from the
//! predecessor under one number is the same; from the fork on, only the new encoder's words count. And as after every opening,
//! blocks point to nothing that the decoder has not said it holds.

use super::decoder_view::DecoderView;
use super::{Encoder, EncoderConfig, Finder};
use crate::decoder::Decoder;
use crate::fingerprint::Marks;
use crate::limits::{BLOCK_BYTES_MAX, GRANULE_BYTES};
use crate::packet_cache::{CacheSizeError, GranuleSet, Placement};
use crate::wire::control::Parent;
use crate::wire::shim::tag_of;

impl Encoder {
    /// The encoder that goes on with what `mirror` heard. Its cache has the size that the predecessor's had, whatever
    /// `config` says; its epoch must be its own, and is one more if its blocks could be taken for the predecessor's. A mirror that heard nothing, or an encoder that keeps no payload, begins with
    /// nothing.
    ///
    /// # Errors
    /// The mirror heard nothing, and the configured size is out of bounds.
    pub fn take_over(config: EncoderConfig, mirror: Decoder) -> Result<Self, CacheSizeError> {
        let Some(heritage) = mirror.into_heritage() else { return Self::new(config) };
        let cache_bytes = heritage.granules as usize * GRANULE_BYTES;
        // Blocks of the two must be told apart.
        let is_alike = tag_of(config.epoch) == tag_of(heritage.epoch);
        let epoch = config.epoch.wrapping_add(u32::from(is_alike));
        let mut encoder = Self::new(EncoderConfig { cache_bytes, epoch, ..config })?;
        let Finder::Max { finder, ring } = &mut encoder.finder else { return Ok(encoder) };
        *ring = heritage.ring;
        let mut marks = Marks::default();
        for run in runs(&heritage.held, heritage.granules as usize) {
            let (start, end) = (run.start * GRANULE_BYTES, run.end * GRANULE_BYTES);
            for offset in (start..end).step_by(BLOCK_BYTES_MAX) {
                let stretch = &ring.bytes()[offset..end.min(offset + BLOCK_BYTES_MAX)];
                finder.enter(&encoder.fingerprinter, stretch, offset, &mut marks);
            }
        }
        encoder.view = DecoderView::new(heritage.granules, Some(heritage.held));
        encoder.placement = Placement::new(heritage.granules, heritage.next);
        encoder.parent = Some(Parent { epoch: heritage.epoch, fork: heritage.next });
        Ok(encoder)
    }
}

/// The runs of granules that are in the set.
fn runs(set: &GranuleSet, granules: usize) -> impl Iterator<Item = core::ops::Range<usize>> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        let start = (at..granules).find(|granule| set.has(*granule))?;
        let end = (start..granules).find(|granule| !set.has(*granule)).unwrap_or(granules);
        at = end;
        Some(start..end)
    })
}
