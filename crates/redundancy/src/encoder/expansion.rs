//! The bound on growth: shims of blocks without matches use an allowance from earlier blocks.

use crate::limits::{EXPANSION_CREDIT_BYTES_MAX, EXPANSION_PER_MILLE};

/// The allowance, in thousandths of a byte.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpansionCredit(usize);

const CREDIT_MAX: usize = EXPANSION_CREDIT_BYTES_MAX * 1000;

impl ExpansionCredit {
    /// Accounts for a block. Returns whether it may grow by `shim_bytes`, and reserves them if so.
    pub(super) const fn spend(&mut self, block_bytes: usize, shim_bytes: usize) -> bool {
        let credit = self.0 + block_bytes * EXPANSION_PER_MILLE;
        let may = credit >= shim_bytes * 1000;
        let left = if may { credit - shim_bytes * 1000 } else { credit };
        self.0 = if left < CREDIT_MAX { left } else { CREDIT_MAX };
        may
    }

    /// Credits a block that shrank.
    pub(super) const fn earn(&mut self, block_bytes: usize, saved_bytes: usize) {
        let credit = self.0 + block_bytes * EXPANSION_PER_MILLE + saved_bytes * 1000;
        self.0 = if credit < CREDIT_MAX { credit } else { CREDIT_MAX };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_for_every_run_of_blocks() {
        for block_bytes in [64, 500, 1333, 1460, 9000] {
            let mut credit = ExpansionCredit::default();
            let mut spent = 0;
            for block in 1..=1000 {
                spent += if credit.spend(block_bytes, 4) { 4 } else { 0 };
                assert!(spent * 1000 <= block * block_bytes * EXPANSION_PER_MILLE);
            }
            assert!(spent * 1000 > 990 * block_bytes * EXPANSION_PER_MILLE || spent == 4000, "and is used");
        }
    }
}
