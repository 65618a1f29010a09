//! The differences between sites (tables 2.2, 2.3 and 4.3).

use std::collections::BTreeMap;

use redundancy::{Matcher, Method};
use serde::Serialize;

use super::book::Book;
use super::by_way;
use crate::redundancy_study::compressors::Library;
use crate::redundancy_study::options::{Codec, Site};
use crate::redundancy_study::plan::{self, Job};

/// A site: a row of the seed's table 2.2.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SiteRow {
    /// Its captures' names.
    pub name: String,
    /// Addresses.
    pub hosts: u64,
    /// Bytes.
    pub bytes: u64,
    /// Gzip, each packet by itself.
    pub gzip: Option<f64>,
    /// Gzip over 10 ms.
    pub gzip_10_ms: Option<f64>,
    /// By method, Max-Match.
    pub saved: BTreeMap<&'static str, Option<f64>>,
    /// The codec with a cache four times as large.
    pub larger_cache: Option<f64>,
    /// The codec, and gzip over 10 ms after it.
    pub with_gzip_10_ms: Option<f64>,
    /// The codec to the site and from it.
    pub by_way: BTreeMap<&'static str, f64>,
    /// The bound.
    pub optimal: Option<f64>,
}

impl SiteRow {
    pub(super) fn of(site: &Site, book: &Book<'_>, base: &Codec) -> Self {
        let ledger = book.ledger();
        let savings = book.savings(&Job::Savings(*base)).unwrap_or_default();
        let gzip = book.stages(&Job::Stages(None, Library::Gzip));
        let after = book.stages(&Job::Stages(Some(*base), Library::Gzip));
        let saved = |method| book.saved(&Job::Savings(base.with(method, Matcher::MaxMatch)));
        Self {
            name: site.name.clone(),
            hosts: ledger.hosts,
            bytes: ledger.traffic.total().bytes,
            gzip: gzip.as_ref().map(|stages| stages.by_packet.saved()),
            gzip_10_ms: gzip.as_ref().map(|stages| stages.gathered.saved()),
            saved: Method::ALL.map(|method| (method.name(), saved(method))).into(),
            larger_cache: book.saved(&Job::Savings(plan::larger(base))),
            with_gzip_10_ms: after.map(|stages| stages.gathered.saved()),
            by_way: by_way(&savings),
            optimal: book.saved(&plan::optimal(base)),
        }
    }
}
