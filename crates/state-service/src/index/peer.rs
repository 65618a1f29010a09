//! The index of another node's connections.

use alloc::boxed::Box;
use alloc::vec;

use filters::{Cuckoo, CuckooShape, Exchange, ExchangeError, KeyHash};

use super::ITEMS_MAX;
use crate::message::{IndexPart, Known, Side};

/// What a part of an update did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It was applied; further parts are missing.
    Part,
    /// It was the last part: the update's epoch is known.
    Complete,
    /// Updates before it are missing: it was not applied.
    Gap,
}

/// The parts of an update that have arrived.
struct Receiving {
    incarnation: u32,
    since: u32,
    epoch: u32,
    missing: usize,
    arrived: Box<[u64]>,
    /// The new filter, if all words are sent.
    whole: Option<Cuckoo>,
}

/// The index of one side.
#[derive(Default)]
struct PeerSide {
    filter: Option<Cuckoo>,
    known: Known,
    receiving: Option<Receiving>,
}

/// The index of another node, one filter for each side. It never takes more memory than the index of a node with the most
/// connections, twice while a whole one arrives.
#[derive(Default)]
pub struct PeerIndex {
    sides: [PeerSide; 2],
}

impl PeerIndex {
    /// Whether the peer had the connection, or a false positive.
    #[must_use]
    pub fn contains(&self, side: Side, key: KeyHash) -> bool {
        self.sides[side as usize].filter.as_ref().is_some_and(|filter| filter.contains(key))
    }

    /// What is known of both sides, for a query.
    #[must_use]
    pub fn known(&self) -> [Known; 2] {
        self.sides.each_ref().map(|side| side.known)
    }

    /// Forgets everything, once the peer is gone for good.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Applies a part of an update.
    ///
    /// # Errors
    /// The peer sends an index that is too large, or two shapes for one index.
    pub fn apply(&mut self, part: &IndexPart<'_>) -> Result<Applied, ExchangeError> {
        if part.shape.buckets > CuckooShape::for_items(ITEMS_MAX).buckets {
            return Err(ExchangeError::Malformed("an index of more connections than a node may have"));
        }
        self.sides[part.side as usize].apply(part)
    }
}

impl PeerSide {
    fn apply(&mut self, part: &IndexPart<'_>) -> Result<Applied, ExchangeError> {
        let is_whole = part.since == 0;
        let is_known = self.known.incarnation == part.incarnation;
        if !is_whole && (!is_known || part.since > self.known.epoch) {
            return Ok(Applied::Gap);
        }
        if is_known && part.epoch < self.known.epoch {
            // Late: its words may be older than those that are known.
            return Ok(Applied::Part);
        }
        let update = part.update()?;
        if !self.receiving.as_ref().is_some_and(|receiving| receiving.is_of(part)) {
            self.receiving = Some(Receiving::new(part)?);
        }
        let Some(receiving) = &mut self.receiving else { return Ok(Applied::Gap) };
        match (&mut receiving.whole, &mut self.filter) {
            (Some(whole), _) => whole.apply(&update)?,
            (None, Some(filter)) if filter.shape() == filters::Shape::Cuckoo(part.shape) => filter.apply(&update)?,
            _ => return Err(ExchangeError::Malformed("an increment of an index of another shape")),
        };
        if !receiving.complete(part.part) {
            return Ok(Applied::Part);
        }
        if let Some(whole) = receiving.whole.take() {
            self.filter = Some(whole);
        }
        self.known = Known { incarnation: part.incarnation, epoch: part.epoch };
        self.receiving = None;
        Ok(Applied::Complete)
    }
}

impl Receiving {
    fn new(part: &IndexPart<'_>) -> Result<Self, ExchangeError> {
        let parts = usize::from(part.parts);
        Ok(Self {
            incarnation: part.incarnation,
            since: part.since,
            epoch: part.epoch,
            missing: parts,
            arrived: vec![0; parts.div_ceil(64)].into_boxed_slice(),
            whole: if part.since == 0 { Some(part.empty()?) } else { None },
        })
    }

    fn is_of(&self, part: &IndexPart<'_>) -> bool {
        let has_shape = |whole: &Cuckoo| whole.shape() == filters::Shape::Cuckoo(part.shape);
        (self.incarnation, self.since, self.epoch) == (part.incarnation, part.since, part.epoch)
            && usize::from(part.part) < self.arrived.len() * 64
            && self.whole.as_ref().is_none_or(has_shape)
    }

    /// Notes a part. Returns whether it was the last missing one.
    fn complete(&mut self, part: u16) -> bool {
        let (word, bit) = (&mut self.arrived[usize::from(part) / 64], 1 << (part % 64));
        self.missing = self.missing.saturating_sub(usize::from(*word & bit == 0));
        *word |= bit;
        self.missing == 0
    }
}
