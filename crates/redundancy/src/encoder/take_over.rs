//! An encoder on another node continues after its predecessor failed.
//!
//! A standby node receives the blocks too, as a decoder, and so has a replica of the cache. When it becomes an encoder,
//! it opens a new stream, whose numbers below a fork are its predecessor's. Below the fork, mirror and decoder have the
//! same data for each number; from the fork on, only the new encoder's data is valid.
//!
//! As after every Open, blocks point only to data that the decoder has reported as held.

use alloc::collections::VecDeque;

use super::decoder_view::DecoderView;
use super::{Encoder, EncoderConfig, Finder};
use crate::decoder::Decoder;
use crate::fingerprint::Marks;
use crate::limits::{BLOCK_BYTES_MAX, GRANULE_BYTES};
use crate::packet_cache::{CacheSizeError, GranuleSet, Placement};
use crate::wire::control::Parent;
use crate::wire::shim::tag_of;

impl Encoder {
    /// An encoder that continues with the cache of `mirror`. Its cache has the predecessor's size, whatever `config`
    /// contains; its epoch must be new, and is incremented if its blocks could be confused with the predecessor's. It
    /// starts empty if the mirror followed no stream, or if the encoder keeps no payload.
    ///
    /// # Errors
    /// The mirror followed no stream, and the configured size is out of bounds.
    pub fn take_over(config: EncoderConfig, mirror: Decoder) -> Result<Self, CacheSizeError> {
        let mut encoder = Self::take_over_unindexed(config, mirror)?;
        encoder.index_some(usize::MAX);
        Ok(encoder)
    }

    /// As [`Encoder::take_over`], without delay: mirrored data is found only after [`Encoder::index_some`] has indexed
    /// it, in steps that the caller schedules.
    ///
    /// # Errors
    /// As [`Encoder::take_over`].
    pub fn take_over_unindexed(config: EncoderConfig, mirror: Decoder) -> Result<Self, CacheSizeError> {
        let Some(inherited) = mirror.into_inherited_cache() else { return Self::new(config) };
        let cache_bytes = inherited.granules as usize * GRANULE_BYTES;
        // The tags of the two epochs must differ.
        let is_alike = tag_of(config.epoch) == tag_of(inherited.epoch);
        let epoch = config.epoch.wrapping_add(u32::from(is_alike));
        let mut encoder = Self::new(EncoderConfig { cache_bytes, epoch, ..config })?;
        let Finder::Max { ring, .. } = &mut encoder.finder else { return Ok(encoder) };
        *ring = inherited.ring;
        encoder.unindexed = oldest_first(&inherited.held, inherited.granules, inherited.next);
        encoder.view = DecoderView::new(inherited.granules, Some(inherited.held));
        encoder.placement = Placement::new(inherited.granules, inherited.next);
        encoder.parent = Some(Parent { epoch: inherited.epoch, fork: inherited.next });
        Ok(encoder)
    }

    /// Continues to index the data that was taken over, about so many bytes of it. Returns whether more is left.
    pub fn index_some(&mut self, bytes_max: usize) -> bool {
        let Finder::Max { finder, ring } = &mut self.finder else { return false };
        let (mut marks, mut done) = (Marks::default(), 0);
        while done < bytes_max
            && let Some(mut run) = self.unindexed.pop_front()
        {
            let end = run.end.min(run.start + BLOCK_BYTES_MAX);
            // Data written there since is entered twice, without harm: every match is compared.
            finder.enter(&self.fingerprinter, &ring.bytes()[run.start..end], run.start, &mut marks);
            done += end - run.start;
            run.start = end;
            if !run.is_empty() {
                self.unindexed.push_front(run);
            }
        }
        self.is_indexing()
    }

    /// Whether [`Encoder::index_some`] has work left.
    #[must_use]
    pub fn is_indexing(&self) -> bool {
        !self.unindexed.is_empty()
    }
}

/// The runs of held bytes, oldest first: later entries evict earlier ones from an index.
fn oldest_first(held: &GranuleSet, granules: u64, next: u64) -> VecDeque<core::ops::Range<usize>> {
    let newest_end = (next % granules) as usize;
    let parts = runs(held, newest_end..granules as usize).chain(runs(held, 0..newest_end));
    parts.map(|run| run.start * GRANULE_BYTES..run.end * GRANULE_BYTES).collect()
}

/// The runs of granules in the range that are in the set.
fn runs(set: &GranuleSet, of: core::ops::Range<usize>) -> impl Iterator<Item = core::ops::Range<usize>> + '_ {
    let mut at = of.start;
    core::iter::from_fn(move || {
        let start = (at..of.end).find(|granule| set.has(*granule))?;
        let end = (start..of.end).find(|granule| !set.has(*granule)).unwrap_or(of.end);
        at = end;
        Some(start..end)
    })
}
