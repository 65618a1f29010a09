//! The search of filters of four levels and eight cells a bucket with vectors of 256 bits, where the processor supports
//! them: a bucket is one vector. The portable equivalent is in [`super::search`].
//!
//! A lookup is bound by its instructions rather than by cache misses: misses of several lookups overlap within the
//! processor's window of a few hundred instructions. The code tests the memory's size once instead of once a bucket,
//! and branches only on whether anything was found.
//!
//! The matching bucket is selected among registers: reading it back from an array just written would stall on store
//! forwarding.
//!
//! No closure is handed to a function of the standard library here: such a function is compiled without the vector
//! instructions, so that the closure may not be inlined into it.

use core::arch::x86_64::{
    __cpuid, __cpuid_count, __m256i, _mm256_and_si256, _mm256_cmpeq_epi32, _mm256_load_si256, _mm256_movemask_epi8,
    _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_setr_epi32,
    _mm256_setzero_si256, _xgetbv,
};
use core::hint::select_unpredictable;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU8, Ordering};

use super::probe::{BATCH_KEYS, Level, Probe, Spot, TAKEN, vacancies};
use crate::hash::KeyHash;
use crate::memory::{Memory, WORDS_PER_LINE};
use crate::prefetch::prefetch;
use crate::shape::{Insertion, LEVELS_MAX, MultiLevelShape};

/// The number of levels that the vector code handles.
const LEVELS: usize = 4;
const CELLS: usize = 8;

/// The levels of a filter that is searched with such vectors. A value exists only if the processor supports them.
#[derive(Clone, Copy, Debug)]
pub(super) struct WideLevels {
    /// Buckets of each level.
    buckets: [u64; LEVELS],
    /// The first word of each level.
    first_words: [u64; LEVELS],
    /// The bits of a cell that are compared with the key's.
    mask: u32,
    fingerprint_bits: u32,
    /// The bits of 32 that represent cells, where buckets have fewer than eight.
    cells_mask: u32,
    insertion: Insertion,
    /// The cache lines of the filter's memory.
    lines: usize,
}

impl WideLevels {
    /// The levels of a filter in this memory; none if its shape differs, or the processor lacks the instructions.
    pub(super) fn of(shape: MultiLevelShape, levels: &[Level], memory: &Memory) -> Option<Self> {
        if usize::from(shape.levels) != LEVELS || shape.stride() != CELLS || !is_available() {
            return None;
        }
        let levels: [Level; LEVELS] = levels.get(..LEVELS)?.try_into().ok()?;
        let made = Self {
            buckets: levels.map(|level| level.buckets.into()),
            first_words: levels.map(|level| u64::from(level.first) * CELLS as u64),
            mask: TAKEN | ((1 << shape.fingerprint_bits) - 1),
            fingerprint_bits: shape.fingerprint_bits.into(),
            cells_mask: shape.cells_mask() as u32,
            insertion: shape.insertion,
            lines: memory.lines().len(),
        };
        // Indices are below the end of their level; this alone makes reading a bucket sound.
        let words = (made.lines * WORDS_PER_LINE) as u64;
        let is_within = |(first, buckets): (&u64, &u64)| first + buckets * CELLS as u64 <= words;
        made.first_words.iter().zip(&made.buckets).all(is_within).then_some(made)
    }

    /// The memory's words, as many as at construction.
    #[inline(always)]
    fn words(&self, memory: &Memory) -> *const u32 {
        let lines = memory.lines();
        assert!(lines.len() == self.lines, "a filter's memory never changes size");
        lines.as_ptr().cast()
    }

    /// The index of the cell with the key's fingerprint, the first of several.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn find(&self, memory: &Memory, key: KeyHash) -> Option<usize> {
        // SAFETY: a value of this type exists only if the processor has the instructions; `words` is the memory that
        // contains its indices.
        unsafe { self.find_avx2(self.words(memory), key) }
    }

    /// The cell with the key's fingerprint, the first of several; a taken cell is not zero.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn find_cell(&self, memory: &Memory, key: KeyHash) -> Option<NonZeroU32> {
        // SAFETY: as in `find`.
        unsafe { self.find_cell_avx2(self.words(memory), key) }
    }

    /// The key's cell, or a cell for it.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn spot(&self, memory: &Memory, key: KeyHash) -> Spot {
        // SAFETY: as in `find`.
        unsafe { self.spot_avx2(self.words(memory), key) }
    }

    /// The free cell for a key that is absent.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn free_cell(&self, memory: &Memory, key: KeyHash) -> Option<usize> {
        // SAFETY: as in `find`.
        unsafe { self.free_cell_avx2(self.words(memory), key) }
    }

    /// A snapshot of the key's buckets.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn probe(&self, memory: &Memory, key: KeyHash) -> Probe {
        // SAFETY: as in `find`.
        unsafe { self.probe_avx2(self.words(memory), key) }
    }

    /// Looks up many keys; `contents` receives the content of each cell.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn lookup_batch(&self, memory: &Memory, keys: &[KeyHash], contents: &mut [Option<u16>]) {
        let words = self.words(memory);
        for (keys, contents) in keys.chunks(BATCH_KEYS).zip(contents.chunks_mut(BATCH_KEYS)) {
            // SAFETY: as in `find`.
            unsafe { self.lookup_batch_avx2(memory, words, keys, contents) }
        }
    }

    /// The index of the first word of each of the key's buckets, below the end of its level because [`KeyHash::index`]
    /// is below its range.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn places(&self, key: KeyHash) -> [u64; LEVELS] {
        let mut places = [0; LEVELS];
        for (level, place) in places.iter_mut().enumerate() {
            let bucket = key.index(level as u64, self.buckets[level]) as u64;
            *place = self.first_words[level] + bucket * CELLS as u64;
        }
        places
    }

    /// The value of the key's cell in the bits of the mask.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn pattern(&self, key: KeyHash) -> __m256i {
        _mm256_and_si256(_mm256_set1_epi32((TAKEN | key.fingerprint(31)) as i32), self.mask())
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn mask(&self) -> __m256i {
        _mm256_set1_epi32(self.mask as i32)
    }

    /// A bit for each cell of four buckets that matches the pattern.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn matches(&self, buckets: [__m256i; LEVELS], pattern: __m256i) -> u32 {
        let mask = self.mask();
        let mut matching = buckets;
        for cells in &mut matching {
            *cells = _mm256_cmpeq_epi32(_mm256_and_si256(*cells, mask), pattern);
        }
        top_bits(matching)
    }

    /// # Safety
    /// `words` is the memory that this value was constructed for.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[allow(unsafe_code)]
    unsafe fn find_avx2(&self, words: *const u32, key: KeyHash) -> Option<usize> {
        let places = self.places(key);
        // SAFETY: these are valid indices of buckets in these words.
        let found = self.matches(unsafe { buckets(words, places) }, self.pattern(key));
        if found == 0 { None } else { Some(first_cell(places, found)) }
    }

    /// # Safety
    /// `words` is the memory that this value was constructed for.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[allow(unsafe_code)]
    unsafe fn find_cell_avx2(&self, words: *const u32, key: KeyHash) -> Option<NonZeroU32> {
        let places = self.places(key);
        // SAFETY: these are valid indices of buckets in these words.
        let found = self.matches(unsafe { buckets(words, places) }, self.pattern(key));
        if found == 0 {
            return None;
        }
        // SAFETY: a cell of one of these buckets.
        NonZeroU32::new(unsafe { *words.add(first_cell(places, found)) })
    }

    /// # Safety
    /// `words` is the memory that this value was constructed for.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[allow(unsafe_code)]
    unsafe fn spot_avx2(&self, words: *const u32, key: KeyHash) -> Spot {
        let places = self.places(key);
        // SAFETY: these are valid indices of buckets in these words.
        let buckets = unsafe { buckets(words, places) };
        let found = self.matches(buckets, self.pattern(key));
        if found != 0 {
            return Spot::Found(first_cell(places, found));
        }
        match self.vacancy(places, buckets) {
            Some(index) => Spot::Free(index),
            None => Spot::None,
        }
    }

    /// The cell for a new item in these buckets.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn vacancy(&self, places: [u64; LEVELS], buckets: [__m256i; LEVELS]) -> Option<usize> {
        let free = vacancies(self.insertion, CELLS, (!top_bits(buckets) & self.cells_mask).into());
        if free == 0 { None } else { Some(first_cell(places, free as u32)) }
    }

    /// # Safety
    /// `words` is the memory that this value was constructed for.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[allow(unsafe_code)]
    unsafe fn free_cell_avx2(&self, words: *const u32, key: KeyHash) -> Option<usize> {
        let places = self.places(key);
        // SAFETY: these are valid indices of buckets in these words.
        self.vacancy(places, unsafe { buckets(words, places) })
    }

    /// # Safety
    /// `words` is the memory that this value was constructed for.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[allow(unsafe_code)]
    unsafe fn probe_avx2(&self, words: *const u32, key: KeyHash) -> Probe {
        let of_key = self.places(key);
        let mut places = [0; LEVELS_MAX as usize];
        places[..LEVELS].copy_from_slice(&of_key);
        // SAFETY: these are valid indices of buckets in these words.
        let buckets = unsafe { buckets(words, of_key) };
        let matches = self.matches(buckets, self.pattern(key)).into();
        Probe { matches, taken: top_bits(buckets).into(), places }
    }

    /// # Safety
    /// `words` is the memory that this value was constructed for; there are [`BATCH_KEYS`] keys at most.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[allow(unsafe_code)]
    unsafe fn lookup_batch_avx2(
        &self,
        memory: &Memory,
        words: *const u32,
        keys: &[KeyHash],
        contents: &mut [Option<u16>],
    ) {
        let mut places = [[0; LEVELS]; BATCH_KEYS];
        for (key, of_key) in keys.iter().zip(&mut places) {
            *of_key = self.places(*key);
            for word in of_key {
                prefetch(memory.lines(), *word as usize / WORDS_PER_LINE, 0);
            }
        }
        for ((key, content), places) in keys.iter().zip(contents).zip(&places) {
            // SAFETY: these are valid indices of buckets in these words.
            let found = self.matches(unsafe { buckets(words, *places) }, self.pattern(*key));
            *content = if found == 0 {
                None
            } else {
                // SAFETY: a cell of one of these buckets.
                let cell = unsafe { *words.add(first_cell(*places, found)) };
                Some(((cell & !TAKEN) >> self.fingerprint_bits) as u16)
            };
        }
    }
}

/// The cells of four buckets.
///
/// # Safety
/// At each of `places`, `words` has eight words, aligned to 32 bytes.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[allow(unsafe_code)]
unsafe fn buckets(words: *const u32, places: [u64; LEVELS]) -> [__m256i; LEVELS] {
    let mut buckets = [_mm256_setzero_si256(); LEVELS];
    for (cells, place) in buckets.iter_mut().zip(places) {
        // SAFETY: the caller's.
        *cells = unsafe { _mm256_load_si256(words.add(place as usize).cast()) };
    }
    buckets
}

/// The top bit of each of 32 cells: the lowest bit is the first cell.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn top_bits([a, b, c, d]: [__m256i; LEVELS]) -> u32 {
    // Saturated narrowing keeps a number's sign. It works on halves of vectors separately.
    let narrowed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    let in_a_row = _mm256_permutevar8x32_epi32(narrowed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_movemask_epi8(in_a_row) as u32
}

/// The index of the first matching cell in the buckets at these indices.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn first_cell(places: [u64; LEVELS], found: u32) -> usize {
    let [a, b, c, d] = places;
    let one_of_two = select_unpredictable(found & 0xff != 0, a, b);
    let other_of_two = select_unpredictable(found & 0xff_ffff != 0, c, d);
    let place = select_unpredictable(found & 0xffff != 0, one_of_two, other_of_two);
    place as usize + (found.trailing_zeros() & 0b111) as usize
}

/// Whether the processor has AVX2, BMI1, BMI2 and POPCNT, and the operating system saves its registers. The result is
/// cached, as CPUID is slow in a virtual machine.
pub(super) fn is_available() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let is_available = ask();
            KNOWN.store(if is_available { YES } else { NO }, Ordering::Relaxed);
            is_available
        }
        known => known == YES,
    }
}

#[allow(unsafe_code, unused_unsafe)]
fn ask() -> bool {
    const POPCNT_OSXSAVE_AND_AVX: u32 = 1 << 23 | 1 << 27 | 1 << 28;
    const BMI1_AVX2_AND_BMI2: u32 = 1 << 3 | 1 << 5 | 1 << 8;
    /// The 128-bit and the 256-bit registers.
    const REGISTERS: u64 = 0b110;
    // SAFETY: every x86_64 has CPUID, and XGETBV where CPUID shows that the operating system uses XSAVE.
    unsafe {
        if __cpuid(0).eax < 7 || __cpuid(1).ecx & POPCNT_OSXSAVE_AND_AVX != POPCNT_OSXSAVE_AND_AVX {
            return false;
        }
        #[target_feature(enable = "xsave")]
        fn kept_registers() -> u64 {
            // SAFETY: the caller checked that the instruction exists.
            unsafe { _xgetbv(0) }
        }
        kept_registers() & REGISTERS == REGISTERS && __cpuid_count(7, 0).ebx & BMI1_AVX2_AND_BMI2 == BMI1_AVX2_AND_BMI2
    }
}
