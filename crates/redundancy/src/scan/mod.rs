//! Which instructions bytes are read, compared and copied by.
//!
//! What is hot is written once, in plain Rust, and compiled for each kind of processor that is told apart here; only where
//! the compiler does not find the instructions by itself (the classes of bytes, see `fingerprint/vector.rs`) are they named.
//! So all ways give the same result by construction, and the properties hold them to it.

#[cfg(target_arch = "x86_64")]
mod x86;

/// Which instructions are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan(Way);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Portable,
    /// AVX2, BMI1, BMI2 and POPCNT. Only [`Scan::all`] makes this and the next, where the processor and the system have them.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same, and AVX-512 F, BW and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Something to be done by a processor's best instructions.
pub(crate) trait Work {
    /// What comes of it.
    type Output;

    /// Does it. Implementations, and what they call where time matters, are `#[inline(always)]`: what is not inlined is
    /// compiled for every processor.
    fn run(self) -> Self::Output;
}

impl Scan {
    /// What every processor has.
    pub const PORTABLE: Self = Self(Way::Portable);

    /// The fastest that this processor knows.
    #[must_use]
    pub fn detect() -> Self {
        Self::all().last().unwrap_or(Self::PORTABLE)
    }

    /// All that this processor knows, the fastest last.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let vectors = {
            let [avx2, avx512] = x86::are_there();
            [avx2.then_some(Self(Way::Avx2)), avx512.then_some(Self(Way::Avx512))]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let vectors: [Option<Self>; 0] = [];
        core::iter::once(Self::PORTABLE).chain(vectors.into_iter().flatten())
    }

    /// The name of what it uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Way::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Way::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Way::Avx512 => "AVX-512",
        }
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn way(self) -> Way {
        self.0
    }

    /// Does what is to be done by these instructions.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", allow(unsafe_code))]
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self.0 {
            Way::Portable => work.run(),
            // SAFETY: such a `Scan` is made only where the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Way::Avx2 => unsafe { x86::run_avx2(work) },
            // SAFETY: such a `Scan` is made only where the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Way::Avx512 => unsafe { x86::run_avx512(work) },
        }
    }
}
