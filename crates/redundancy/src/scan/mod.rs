//! The instructions with which bytes are read, compared and copied.
//!
//! Hot code is written once, in portable Rust, and compiled for each kind of processor. Only where the compiler does
//! not find the instructions (the classification of bytes, see `fingerprint/vector.rs`), they are named. All variants
//! give the same result, and property tests verify it.

#[cfg(target_arch = "x86_64")]
mod x86;

/// The instructions to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan(InstructionSet);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InstructionSet {
    Portable,
    /// AVX2, BMI1, BMI2 and POPCNT. Only [`Scan::all`] makes this and the next, where the processor and the system have them.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same, and AVX-512 F, BW and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Work for a processor's best instructions.
pub(crate) trait Work {
    /// The result.
    type Output;

    /// Executes it. Implementations and their hot callees must be `#[inline(always)]`: other functions are compiled
    /// portably.
    fn run(self) -> Self::Output;
}

impl Scan {
    /// The instructions of every processor.
    pub const PORTABLE: Self = Self(InstructionSet::Portable);

    /// The fastest instructions of this processor.
    #[must_use]
    pub fn detect() -> Self {
        Self::all().last().unwrap_or(Self::PORTABLE)
    }

    /// All instruction sets of this processor, the fastest last.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let vectors = {
            let [avx2, avx512] = x86::are_there();
            [avx2.then_some(Self(InstructionSet::Avx2)), avx512.then_some(Self(InstructionSet::Avx512))]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let vectors: [Option<Self>; 0] = [];
        core::iter::once(Self::PORTABLE).chain(vectors.into_iter().flatten())
    }

    /// The name of the instruction set.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            InstructionSet::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => "AVX-512",
        }
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn way(self) -> InstructionSet {
        self.0
    }

    /// Executes the work with these instructions.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", allow(unsafe_code))]
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self.0 {
            InstructionSet::Portable => work.run(),
            // SAFETY: such a `Scan` exists only where the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { x86::run_avx2(work) },
            // SAFETY: such a `Scan` exists only where the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { x86::run_avx512(work) },
        }
    }
}
