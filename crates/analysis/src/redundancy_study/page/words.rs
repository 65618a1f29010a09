//! Figures in the words of the page.

use crate::redundancy_study::result::RedundancyResult;

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Caches are powers of two, or what an operator chose: megabytes of 2^20 bytes, as everywhere in this.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        ..0x10_0000 => format!("{} KB", bytes >> 10),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MB", bytes >> 20),
        _ => format!("{:.1} MB", bytes as f64 / f64::from(1 << 20)),
    }
}

pub(super) fn base(result: &RedundancyResult) -> f64 {
    result.saved.get(result.settings.method).and_then(|saved| saved.max_match).unwrap_or(0.0)
}
