//! Savings against period, window and cache.

use std::collections::BTreeMap;

use redundancy::{Matcher, Method};
use serde::Serialize;

use super::book::Book;
use crate::redundancy_study::options::Codec;
use crate::redundancy_study::plan::{CACHES, Job, PERIODS, WINDOWS, optimal};

/// The share of the largest cache's savings that is enough.
const ENOUGH: f64 = 0.9;

/// One period (figures 2.2 and 4.6 b).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PeriodRow {
    /// The period p in bytes.
    pub period_bytes: usize,
    /// What is saved, by method.
    pub saved: BTreeMap<&'static str, f64>,
}

pub(super) fn periods(book: &Book<'_>, base: &Codec) -> Vec<PeriodRow> {
    let row = |period_bytes| {
        let of = |method: Method| {
            let codec = Codec { period_bytes, ..base.with(method, Matcher::MaxMatch) };
            book.saved(&Job::Savings(codec)).map(|saved| (method.name(), saved))
        };
        PeriodRow { period_bytes, saved: Method::ALL.into_iter().filter_map(of).collect() }
    };
    // The settings' own is there without the series too, and would be a series of one.
    let rows: Vec<PeriodRow> = PERIODS.map(row).into_iter().filter(|row| !row.saved.is_empty()).collect();
    if rows.len() > 1 { rows } else { Vec::new() }
}

/// One window.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WindowRow {
    /// The window w in bytes.
    pub window_bytes: usize,
    /// What is saved, by method.
    pub saved: BTreeMap<&'static str, f64>,
    /// What could be saved at most.
    pub optimal: Option<f64>,
}

pub(super) fn windows(book: &Book<'_>, base: &Codec) -> Vec<WindowRow> {
    let row = |window_bytes| {
        let of = |method: Method| {
            let codec = Codec { window_bytes, ..base.with(method, Matcher::MaxMatch) };
            book.saved(&Job::Savings(codec)).map(|saved| (method.name(), saved))
        };
        let methods = [Method::Maxp, base.method()];
        let bound = optimal(&Codec { window_bytes, ..*base });
        WindowRow { window_bytes, saved: methods.into_iter().filter_map(of).collect(), optimal: book.saved(&bound) }
    };
    let rows: Vec<WindowRow> = WINDOWS.map(row).into_iter().filter(|row| !row.saved.is_empty()).collect();
    if rows.len() > 1 { rows } else { Vec::new() }
}

/// One cache (figures 2.9, 4.7 and 4.8).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CacheSize {
    /// Its bytes, for each way.
    pub cache_bytes: usize,
    /// What is saved.
    pub saved: f64,
    /// What is saved of each protocol's bytes.
    pub by_protocol: BTreeMap<String, f64>,
}

pub(super) fn cache_sizes(book: &Book<'_>, base: &Codec) -> Vec<CacheSize> {
    let tried = |size: &usize| book.has(&Job::Savings(Codec { cache_bytes: *size, ..*base }));
    let mut sizes: Vec<usize> = CACHES.into_iter().chain([base.cache_bytes]).filter(tried).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let row = |cache_bytes: &usize| {
        let savings = book.savings_with_cache(base, *cache_bytes, &sizes)?;
        let protocols = savings.protocols.iter().filter(|(_, tally)| tally.payload_bytes > 0);
        Some(CacheSize {
            cache_bytes: *cache_bytes,
            saved: savings.total().saved(),
            by_protocol: protocols.map(|(name, tally)| (name.clone(), tally.saved())).collect(),
        })
    };
    sizes.iter().filter_map(row).collect()
}

pub(super) fn enough(sizes: &[CacheSize]) -> Option<usize> {
    let most = sizes.iter().map(|size| size.saved).fold(0.0, f64::max);
    let found = sizes.iter().find(|size| most > 0.0 && size.saved >= ENOUGH * most);
    found.map(|size| size.cache_bytes)
}
