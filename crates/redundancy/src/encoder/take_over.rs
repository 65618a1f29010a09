//! An encoder on another node goes on where one that is gone left off.
//!
//! A node that is to take over hears the blocks too, as a decoder: so it has a copy of the cache. Made an encoder, it opens a
//! stream of its own, whose numbers below a fork are its predecessor's. What both the mirror and the decoder took from the
//! predecessor under one number is the same; from the fork on, only the new encoder's words count. And as after every opening,
//! blocks point to nothing that the decoder has not said it holds.

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
    /// The encoder that goes on with what `mirror` heard. Its cache has the size that the predecessor's had, whatever
    /// `config` says; its epoch must be its own, and is one more if its blocks could be taken for the predecessor's. A mirror
    /// that heard nothing, or an encoder that keeps no payload, begins with nothing.
    ///
    /// # Errors
    /// The mirror heard nothing, and the configured size is out of bounds.
    pub fn take_over(config: EncoderConfig, mirror: Decoder) -> Result<Self, CacheSizeError> {
        let mut encoder = Self::take_over_unindexed(config, mirror)?;
        encoder.index_some(usize::MAX);
        Ok(encoder)
    }

    /// As [`Encoder::take_over`], at once: nothing of what the mirror heard is found before [`Encoder::index_some`] has gone through
    /// it, in as many steps as the caller has time for.
    ///
    /// # Errors
    /// As [`Encoder::take_over`].
    pub fn take_over_unindexed(config: EncoderConfig, mirror: Decoder) -> Result<Self, CacheSizeError> {
        let Some(heritage) = mirror.into_heritage() else { return Self::new(config) };
        let cache_bytes = heritage.granules as usize * GRANULE_BYTES;
        // Blocks of the two must be told apart.
        let is_alike = tag_of(config.epoch) == tag_of(heritage.epoch);
        let epoch = config.epoch.wrapping_add(u32::from(is_alike));
        let mut encoder = Self::new(EncoderConfig { cache_bytes, epoch, ..config })?;
        let Finder::Max { ring, .. } = &mut encoder.finder else { return Ok(encoder) };
        *ring = heritage.ring;
        encoder.unindexed = in_order_of_age(&heritage.held, heritage.granules, heritage.next);
        encoder.view = DecoderView::new(heritage.granules, Some(heritage.held));
        encoder.placement = Placement::new(heritage.granules, heritage.next);
        encoder.parent = Some(Parent { epoch: heritage.epoch, fork: heritage.next });
        Ok(encoder)
    }

    /// Goes on entering what was taken over into the index, about so many bytes of it. Returns whether there is more.
    pub fn index_some(&mut self, bytes_max: usize) -> bool {
        let Finder::Max { finder, ring } = &mut self.finder else { return false };
        let (mut marks, mut done) = (Marks::default(), 0);
        while done < bytes_max
            && let Some(mut run) = self.unindexed.pop_front()
        {
            let end = run.end.min(run.start + BLOCK_BYTES_MAX);
            // What was written there since is entered twice, which does no harm: whatever is found is compared.
            finder.enter(&self.fingerprinter, &ring.bytes()[run.start..end], run.start, &mut marks);
            done += end - run.start;
            run.start = end;
            if !run.is_empty() {
                self.unindexed.push_front(run);
            }
        }
        self.is_indexing()
    }

    /// Whether [`Encoder::index_some`] has something to do.
    #[must_use]
    pub fn is_indexing(&self) -> bool {
        !self.unindexed.is_empty()
    }
}

/// The runs of bytes that are held, the oldest first: what is entered later into an index displaces what was entered before.
fn in_order_of_age(held: &GranuleSet, granules: u64, next: u64) -> VecDeque<core::ops::Range<usize>> {
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
