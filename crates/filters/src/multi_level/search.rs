//! The search of a key's buckets: where they are, which cells are taken, and which cells hold the key's fingerprint.
//!
//! [`super::wide`] does the same with vectors of 256 bits; this module uses instructions that every processor has.

use core::num::NonZeroU32;

use super::probe::{Level, Probe, Spot, TAKEN, vacancies};
#[cfg(target_arch = "x86_64")]
use super::wide::WideLevels;
use super::{Holding, MultiLevel};
use crate::hash::KeyHash;
use crate::memory::Memory;
use crate::scan;
use crate::shape::{LEVELS_MAX, MultiLevelShape};

/// The algorithm that searches cells for a fingerprint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Search {
    /// Any shape.
    Any,
    /// Four levels of buckets of eight cells, the fastest shape.
    FourByEight,
    /// The same, with vectors of a bucket's size.
    #[cfg(target_arch = "x86_64")]
    Wide(WideLevels),
}

impl Search {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "there are no such vectors"))]
    pub(super) fn of(shape: MultiLevelShape, levels: &[Level], memory: &Memory) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(levels) = WideLevels::of(shape, levels, memory) {
            return Self::Wide(levels);
        }
        Self::portable(shape)
    }

    /// The algorithm with instructions that every processor has.
    pub(super) fn portable(shape: MultiLevelShape) -> Self {
        if shape.levels == 4 && shape.stride() == 8 { Self::FourByEight } else { Self::Any }
    }
}

impl<H: Holding> MultiLevel<H> {
    /// The index of the first word of the key's bucket in a level.
    #[inline(always)]
    pub(super) fn place(&self, key: KeyHash, level: usize) -> usize {
        let Level { buckets, first } = self.levels[level];
        (first as usize + key.index(level as u64, buckets.into())) << self.stride_log2
    }

    /// The value of the key's cell in the bits of [`Self::mask`].
    #[inline(always)]
    pub(super) fn pattern(&self, key: KeyHash) -> u32 {
        (TAKEN | key.fingerprint(31)) & self.mask()
    }

    #[inline(always)]
    pub(super) fn mask(&self) -> u32 {
        TAKEN | self.fingerprint_mask
    }

    /// The index of the word for a bit of a probe.
    #[inline(always)]
    pub(super) fn word_at(&self, probe: &Probe, bit: u32) -> usize {
        let level = (bit >> self.stride_log2) as usize;
        let cell = bit & ((1 << self.stride_log2) - 1);
        probe.places[level % probe.places.len()] as usize + cell as usize
    }

    #[inline(always)]
    pub(super) fn probe(&self, key: KeyHash) -> Probe {
        match &self.search {
            #[cfg(target_arch = "x86_64")]
            Search::Wide(levels) => levels.probe(&self.memory, key),
            _ => self.probe_portably(key),
        }
    }

    #[inline(never)]
    fn probe_portably(&self, key: KeyHash) -> Probe {
        match (&self.search, self.shape.stride()) {
            (Search::FourByEight, _) => self.probe_4_by_8(key),
            (_, 1) => self.probe_levels::<1>(key),
            (_, 2) => self.probe_levels::<2>(key),
            (_, 4) => self.probe_levels::<4>(key),
            _ => self.probe_levels::<8>(key),
        }
    }

    #[inline(always)]
    fn probe_4_by_8(&self, key: KeyHash) -> Probe {
        let mut places = [0; LEVELS_MAX as usize];
        let buckets = core::array::from_fn(|level| {
            let place = self.place(key, level);
            places[level] = place as u64;
            self.memory.group::<8>(place / 8)
        });
        Probe {
            matches: scan::matches_4_by_8(buckets, self.mask(), self.pattern(key)).into(),
            taken: scan::top_bits_4_by_8(buckets).into(),
            places,
        }
    }

    #[inline(always)]
    fn probe_levels<const STRIDE: usize>(&self, key: KeyHash) -> Probe {
        let mut probe = Probe { matches: 0, taken: 0, places: [0; LEVELS_MAX as usize] };
        for level in 0..usize::from(self.shape.levels) {
            let place = self.place(key, level);
            let cells = self.memory.group::<STRIDE>(place / STRIDE);
            let shift = level * STRIDE;
            probe.places[level] = place as u64;
            probe.matches |= u64::from(scan::matches(cells, self.mask(), self.pattern(key))) << shift;
            probe.taken |= u64::from(scan::top_bits(cells)) << shift;
        }
        probe
    }

    /// The index of the cell with the key's fingerprint: the first of several.
    #[inline(always)]
    pub(super) fn find(&self, key: KeyHash) -> Option<usize> {
        match &self.search {
            #[cfg(target_arch = "x86_64")]
            Search::Wide(levels) => levels.find(&self.memory, key),
            _ => self.find_portably(key),
        }
    }

    /// The content of the cell with the key's fingerprint: the first of several.
    #[inline(always)]
    pub(super) fn find_cell(&self, key: KeyHash) -> Option<NonZeroU32> {
        match &self.search {
            #[cfg(target_arch = "x86_64")]
            Search::Wide(levels) => levels.find_cell(&self.memory, key),
            _ => self.find_cell_portably(key),
        }
    }

    #[inline(never)]
    fn find_portably(&self, key: KeyHash) -> Option<usize> {
        let probe = self.probe_portably(key);
        (probe.matches != 0).then(|| self.word_at(&probe, probe.matches.trailing_zeros()))
    }

    /// The key's cell, or a cell for it.
    #[inline(always)]
    pub(super) fn spot(&self, key: KeyHash) -> Spot {
        match &self.search {
            #[cfg(target_arch = "x86_64")]
            Search::Wide(levels) => levels.spot(&self.memory, key),
            _ => self.spot_portably(key),
        }
    }

    #[inline(never)]
    fn spot_portably(&self, key: KeyHash) -> Spot {
        let probe = self.probe_portably(key);
        if probe.matches != 0 {
            return Spot::Found(self.word_at(&probe, probe.matches.trailing_zeros()));
        }
        self.free_cell_of(&probe).map_or(Spot::None, Spot::Free)
    }

    /// The cell for a new item, from a probe.
    fn free_cell_of(&self, probe: &Probe) -> Option<usize> {
        let free = vacancies(self.shape.insertion, self.shape.stride(), !probe.taken & self.cells_mask);
        (free != 0).then(|| self.word_at(probe, free.trailing_zeros()))
    }

    /// The free cell for a key that is absent.
    #[inline(always)]
    pub(super) fn free_cell(&self, key: KeyHash) -> Option<usize> {
        match &self.search {
            #[cfg(target_arch = "x86_64")]
            Search::Wide(levels) => levels.free_cell(&self.memory, key),
            _ => self.free_cell_of(&self.probe_portably(key)),
        }
    }

    #[inline(never)]
    fn find_cell_portably(&self, key: KeyHash) -> Option<NonZeroU32> {
        self.find_portably(key).and_then(|index| NonZeroU32::new(self.memory.word(index)))
    }
}
