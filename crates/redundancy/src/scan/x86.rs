//! Detection of x86-64 instruction set extensions.

use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

use super::Work;

/// Bits of CPUID leaf 7, EBX: BMI1, AVX2, BMI2.
const AVX2_AND_BITS: u32 = 1 << 3 | 1 << 5 | 1 << 8;
/// The same leaf: AVX-512 F, BW, VL.
const AVX512: u32 = 1 << 16 | 1 << 30 | 1 << 31;
/// Registers that the system saves: XMM, YMM ...
const YMM: u64 = 0b110;
/// ... and the mask registers and both parts of ZMM.
const ZMM: u64 = 0b1110_0000;

/// Whether AVX2 with BMI, and additionally AVX-512, are usable: the processor supports them and the system saves their
/// registers (Intel SDM volume 1, sections 14.3 and 15.2).
#[allow(unsafe_code, unused_unsafe)]
pub(super) fn are_there() -> [bool; 2] {
    /// POPCNT, OSXSAVE, AVX in leaf 1, ECX.
    const NEEDED: u32 = 1 << 23 | 1 << 27 | 1 << 28;
    // SAFETY: every x86_64 processor has the instruction. Newer compilers know.
    let [most, features, more_features] = unsafe { [__cpuid(0).eax, __cpuid(1).ecx, __cpuid_count(7, 0).ebx] };
    if most < 7 || features & NEEDED != NEEDED {
        return [false; 2];
    }
    // SAFETY: OSXSAVE means that the system has enabled the instruction.
    let kept = unsafe { enabled_registers() };
    let has = |features: u32, registers: u64| more_features & features == features && kept & registers == registers;
    [has(AVX2_AND_BITS, YMM), has(AVX2_AND_BITS | AVX512, YMM | ZMM)]
}

/// # Safety
/// The processor must have OSXSAVE set.
#[target_feature(enable = "xsave")]
#[allow(unsafe_code)]
unsafe fn enabled_registers() -> u64 {
    // SAFETY: register 0 exists wherever the instruction does, which the caller guarantees.
    unsafe { _xgetbv(0) }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn run_avx2<W: Work>(work: W) -> W::Output {
    work.run()
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,popcnt")]
pub(super) fn run_avx512<W: Work>(work: W) -> W::Output {
    work.run()
}
