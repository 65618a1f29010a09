//! The keys that filters are measured with.

use flow::random::SplitMix64;

/// The secret of all hashes: any will do, as there is no attack.
pub(in crate::bench) const SECRET: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];

/// The key with this number. No two numbers have the same.
pub(in crate::bench) const fn key(number: u64) -> u64 {
    SplitMix64::new(number).next()
}
