//! HTTP's objects, compressed one by one, beside the codec on the same packets (table 2.5).

use serde::Serialize;

use crate::redundancy_study::http::HttpOutcome;
use crate::redundancy_study::tally::share;

/// HTTP. Shares are of all bytes of HTTP's ports.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Http {
    /// All bytes of HTTP's ports.
    pub bytes: u64,
    /// Objects that came whole, and those of which something is missing.
    pub objects: u64,
    /// Those of which something is missing.
    pub objects_lost: u64,
    /// Bytes of objects.
    pub object_bytes: u64,
    /// Bytes of objects that servers had compressed.
    pub compressed_already_bytes: u64,
    /// Objects compressed one by one by gzip.
    pub saved_by_object_gzip: f64,
    /// By zstd.
    pub saved_by_object_zstd: f64,
    /// The codec on the same packets.
    pub saved: f64,
    /// The codec, and gzip over 10 ms after it.
    pub saved_with_gzip_10_ms: f64,
}

impl Http {
    pub(super) fn of(outcome: &HttpOutcome) -> Option<Self> {
        let bytes = outcome.codec.bytes;
        (bytes > 0).then(|| Self {
            bytes,
            objects: outcome.objects,
            objects_lost: outcome.lost,
            object_bytes: outcome.object_bytes,
            compressed_already_bytes: outcome.compressed_already[1],
            saved_by_object_gzip: share(outcome.saved_by_gzip as f64, bytes),
            saved_by_object_zstd: share(outcome.saved_by_zstd as f64, bytes),
            saved: outcome.codec.saved(),
            saved_with_gzip_10_ms: outcome.codec_gzip.saved(),
        })
    }
}
