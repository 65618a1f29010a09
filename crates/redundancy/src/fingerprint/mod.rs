//! Selects the markers of a block, and computes fingerprints of the bytes that begin there (RE, sections 2.2 and
//! 4.3).
//!
//! | method | a place is a marker if | costs |
//! |---|---|---|
//! | [`Method::Modp`] | the Rabin fingerprint of its window is 0 modulo p | a table lookup or two for each byte, whatever p |
//! | [`Method::Maxp`] | its byte is the greatest of p around it | a few vector operations for each byte |
//! | [`Method::Fixed`] | it is a multiple of p | nothing, and finds nothing once a byte is inserted |
//! | [`Method::SampleByte`] | its byte is in a table; then p/2 bytes are passed over | a lookup for each byte that is not passed over |

mod marks;
mod maxp;
mod rabin;
mod sample_byte;
#[cfg(target_arch = "x86_64")]
mod vector;
mod window_hash;

use alloc::boxed::Box;

#[cfg(target_arch = "x86_64")]
use self::vector::{Halves, Marking};
#[cfg(target_arch = "x86_64")]
use crate::scan::InstructionSet;
use crate::scan::Scan;

pub use self::marks::Marks;
pub use self::rabin::Rabin;
pub use self::sample_byte::SampleTable;
pub(crate) use self::window_hash::WindowHash;

/// The method of choosing markers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Rabin fingerprints of all windows, those that are 0 modulo p.
    Modp,
    /// Local maxima.
    Maxp,
    /// Every p-th byte.
    Fixed,
    /// Bytes of a table, with p/2 bytes skipped after each.
    SampleByte,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Modp, Self::Maxp, Self::Fixed, Self::SampleByte];

    /// Its name in the literature, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Modp => "modp",
            Self::Maxp => "maxp",
            Self::Fixed => "fixed",
            Self::SampleByte => "samplebyte",
        }
    }
}

/// Why a window or a period is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SamplingError {
    /// The window is out of bounds.
    #[error("a window has 12 to 128 bytes, not {0}: 32 is a good default")]
    Window(usize),
    /// The period is out of bounds or no power of two.
    #[error("a sampling period is a power of two from 4 to 1024, not {0}: 32 is a good default")]
    Period(usize),
}

/// The window w: the shortest run of bytes to match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window(u8);

impl Window {
    /// The paper's choice, 32 bytes.
    pub const DEFAULT: Self = Self(32);

    /// A window of `bytes` bytes.
    ///
    /// # Errors
    /// It is not from 12 to 128.
    pub const fn new(bytes: usize) -> Result<Self, SamplingError> {
        if bytes >= 12 && bytes <= 128 { Ok(Self(bytes as u8)) } else { Err(SamplingError::Window(bytes)) }
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }
}

/// The sampling period p: the average distance of markers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period(u16);

impl Period {
    /// The shortest.
    pub const MIN: Self = Self(4);
    /// The paper's choice, 32 bytes.
    pub const DEFAULT: Self = Self(32);
    /// The longest.
    pub const MAX: Self = Self(1024);

    /// A period of `bytes` bytes.
    ///
    /// # Errors
    /// It is no power of two from 4 to 1024.
    pub const fn new(bytes: usize) -> Result<Self, SamplingError> {
        let is_within = bytes >= Self::MIN.bytes() && bytes <= Self::MAX.bytes();
        if is_within && bytes.is_power_of_two() { Ok(Self(bytes as u16)) } else { Err(SamplingError::Period(bytes)) }
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// The next longer one: less work, and less found.
    #[must_use]
    pub const fn longer(self) -> Self {
        if self.0 < Self::MAX.0 { Self(self.0 * 2) } else { self }
    }

    /// The next shorter one: more work, and more found.
    #[must_use]
    pub const fn shorter(self) -> Self {
        if self.0 > Self::MIN.0 { Self(self.0 / 2) } else { self }
    }
}

/// The sampling of blocks.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// The method.
    pub method: Method,
    /// The window w.
    pub window: Window,
    /// The period p.
    pub period: Period,
    /// The marker bytes of SAMPLEBYTE.
    pub table: SampleTable,
}

impl Default for Sampling {
    fn default() -> Self {
        let (window, period) = (Window::DEFAULT, Period::DEFAULT);
        Self { method: Method::SampleByte, window, period, table: SampleTable::PAPER }
    }
}

/// Finds the markers of blocks.
#[derive(Clone, Debug)]
pub struct Fingerprinter {
    sampling: Sampling,
    /// The sampling table in the form of vector lookups.
    #[cfg(target_arch = "x86_64")]
    halves: Halves,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    scan: Scan,
    hash: WindowHash,
    /// Boxed: its tables are large, and only MODP needs them.
    rabin: Option<Box<Rabin>>,
}

impl Fingerprinter {
    /// With fingerprints that are unpredictable without `key`, except for MODP, which uses Rabin's.
    #[must_use]
    pub fn new(sampling: Sampling, key: u64) -> Self {
        let rabin = (sampling.method == Method::Modp).then(|| Box::new(Rabin::new(sampling.window.bytes())));
        Self {
            hash: WindowHash::new(key),
            #[cfg(target_arch = "x86_64")]
            halves: Halves::of(&sampling.table),
            scan: Scan::detect(),
            rabin,
            sampling,
        }
    }

    /// The same, with the given instructions instead of the processor's fastest. The marks are the same.
    #[must_use]
    pub const fn with_scan(mut self, scan: Scan) -> Self {
        self.scan = scan;
        self
    }

    /// The current sampling.
    #[must_use]
    pub const fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Changes the period from the next block on.
    pub const fn set_period(&mut self, period: Period) {
        self.sampling.period = period;
    }

    /// Changes the table from the next block on.
    pub const fn set_table(&mut self, table: SampleTable) {
        self.sampling.table = table;
        #[cfg(target_arch = "x86_64")]
        {
            self.halves = Halves::of(&self.sampling.table);
        }
    }

    /// Finds the markers of `block`. A block of at least a window has at least one; a shorter one has none.
    pub fn mark(&self, block: &[u8], marks: &mut Marks) {
        marks.found = 0;
        marks.fingerprints.clear();
        let Some(last) = block.len().checked_sub(self.sampling.window.bytes()) else { return };
        #[cfg(target_arch = "x86_64")]
        if self.sampling.method == Method::SampleByte && self.mark_by_vectors(block, marks) {
            return;
        }
        self.mark_one_by_one(block, last, marks);
    }

    /// Returns false if it cannot.
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    fn mark_by_vectors(&self, block: &[u8], marks: &mut Marks) -> bool {
        let (window_bytes, skip_bytes) = (self.sampling.window.bytes(), self.sampling.period.bytes() / 2);
        let marking = Marking { halves: &self.halves, skip_bytes, window_bytes, hash: &self.hash };
        match self.scan.way() {
            InstructionSet::Portable => return false,
            // SAFETY: this value exists only where the processor has the instructions.
            InstructionSet::Avx2 => unsafe { vector::mark_avx2(&marking, block, marks) },
            // SAFETY: this value exists only where the processor has the instructions.
            InstructionSet::Avx512 => unsafe { vector::mark_avx512(&marking, block, marks) },
        }
        true
    }

    fn mark_one_by_one(&self, block: &[u8], last: usize, marks: &mut Marks) {
        let Sampling { method, window, period, table } = &self.sampling;
        let (window_bytes, period_bytes) = (window.bytes(), period.bytes());
        marks.offsets.clear();
        match (method, &self.rabin) {
            (Method::Modp, Some(rabin)) => {
                rabin.mark(block, period_bytes, marks);
                marks.found = marks.offsets.len();
                return;
            }
            (Method::Modp, None) | (Method::Fixed, _) => {
                marks.offsets.extend((0..=last as u32).step_by(period_bytes));
            }
            (Method::Maxp, _) => maxp::mark(&block[..=last], period_bytes, marks),
            (Method::SampleByte, _) => sample_byte::mark(table, &block[..=last], period_bytes / 2, marks),
        }
        marks.found = marks.offsets.len();
        self.hash.finish(block, window_bytes, marks);
    }
}

#[cfg(test)]
mod tests;
