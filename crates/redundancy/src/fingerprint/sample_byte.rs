//! SAMPLEBYTE: bytes of a table (RE, figure 4.3).

use super::Marks;

/// The set of bytes that are markers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleTable([bool; 256]);

impl SampleTable {
    /// The eight bytes that the paper's authors trained on a company's traffic.
    pub const PAPER: Self = Self::of(&[0, 32, 48, 101, 105, 115, 116, 255]);

    /// With these bytes.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Self {
        let mut table = [false; 256];
        let mut at = 0;
        while at < bytes.len() {
            table[bytes[at] as usize] = true;
            at += 1;
        }
        Self(table)
    }

    /// Whether `byte` is a marker.
    #[inline(always)]
    #[must_use]
    pub const fn has(&self, byte: u8) -> bool {
        self.0[byte as usize]
    }

    /// Adds a byte.
    pub const fn insert(&mut self, byte: u8) {
        self.0[byte as usize] = true;
    }

    /// Its bytes, ascending.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=255).filter(|byte| self.has(*byte))
    }
}

/// Marks the bytes of `candidates` that are in the table, with `skip_bytes` skipped after each, bytewise.
pub(super) fn mark(table: &SampleTable, candidates: &[u8], skip_bytes: usize, marks: &mut Marks) {
    let mut at = 0;
    while let Some(found) = candidates.get(at..).and_then(|rest| rest.iter().position(|byte| table.has(*byte))) {
        marks.offsets.push((at + found) as u32);
        at += found + skip_bytes + 1;
    }
}
