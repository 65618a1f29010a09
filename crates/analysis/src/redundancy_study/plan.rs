//! Which jobs a study consists of.

use redundancy::limits::CACHE_BYTES_MAX;
use redundancy::{Matcher, Method};
use serde::{Deserialize, Serialize};

use super::compressors::Library;
use super::limits::{PAIRS_MAX, TRAINING_BYTES};
use super::optimal::OPTIMAL_CACHE_BYTES_MAX;
use super::options::{Codec, Options};

/// The periods of figures 2.2 and 4.6.
pub const PERIODS: [usize; 8] = [4, 8, 16, 32, 64, 128, 256, 512];
/// Windows (section 2.2: typical values range from 12 to 64 bytes).
pub const WINDOWS: [usize; 6] = [12, 16, 24, 32, 48, 64];
/// Caches in bytes (figures 2.9, 4.7 and 4.8), up to the most that an encoder takes.
pub const CACHES: [usize; 10] =
    [1 << 19, 1 << 20, 1 << 21, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20];
/// A cache this much larger is the seed's "@4xCACHE" (table 2.2).
pub const LARGER_CACHE: usize = 4;

/// One thing that is found out by going over a capture once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// What there is: packets, protocols, hosts, what was skipped.
    Ledger,
    /// What a codec saves.
    Savings(Codec),
    /// What could be saved at most with this window and cache.
    Optimal {
        /// The window w in bytes.
        window_bytes: usize,
        /// The cache in bytes.
        cache_bytes: usize,
    },
    /// What a codec, or none, and a library after it save together, packet by packet and over 10 ms.
    Stages(Option<Codec>, Library),
    /// Origins, lengths, distances, hits and times of a codec's matches.
    Microscope(Codec),
    /// HTTP's objects compressed one by one, beside a codec with and without gzip on the same packets.
    Http(Codec),
    /// What a codec saves whose table is trained on the traffic's beginning.
    Trained(Codec),
    /// The memory that end hosts would need, had they caches of their own.
    EndHosts,
}

impl Job {
    /// Bytes of memory, about.
    #[must_use]
    pub const fn memory_bytes(&self) -> u64 {
        const BASE: u64 = 1 << 20;
        BASE + match self {
            Self::Ledger => 0,
            Self::Savings(codec) | Self::Stages(Some(codec), _) => codec.memory_bytes(),
            Self::Stages(None, _) => 0,
            // Eight bytes of counters for each of the cache, and the cache.
            Self::Optimal { cache_bytes, .. } => 2 * 9 * *cache_bytes as u64,
            // An owner of 72 bytes for each granule at most, and the chunks.
            Self::Microscope(codec) => codec.memory_bytes() + 2 * (codec.cache_bytes as u64 / 64 * 72) + (48 << 20),
            Self::Http(codec) => codec.memory_bytes() + (64 << 20),
            // What it is trained on, with what the system's allocator needs for it, and an encoder to try tables with.
            Self::Trained(codec) => 2 * codec.memory_bytes() + 6 * TRAINING_BYTES as u64,
            Self::EndHosts => PAIRS_MAX as u64 * 256,
        }
    }

    /// What it finds out, in words.
    #[must_use]
    pub fn described(&self) -> String {
        let of = |codec: &Codec| {
            let Codec { window_bytes, period_bytes, cache_bytes, .. } = codec;
            let matcher = if codec.matcher() == Matcher::MaxMatch { "Max-Match" } else { "Chunk-Match" };
            let name = codec.method().name();
            format!("{name} with {matcher}, w = {window_bytes}, p = {period_bytes}, {cache_bytes} bytes of cache")
        };
        match self {
            Self::Ledger => "what there is".to_owned(),
            Self::Savings(codec) => format!("what {} saves", of(codec)),
            Self::Optimal { window_bytes, cache_bytes } => {
                format!("what could be saved at most with w = {window_bytes} and {cache_bytes} bytes of cache")
            }
            Self::Stages(None, library) => format!("what {} saves alone", library.name()),
            Self::Stages(Some(codec), library) => format!("what {} saves after {}", library.name(), of(codec)),
            Self::Microscope(codec) => format!("where what {} saves comes from", of(codec)),
            Self::Http(codec) => format!("HTTP's objects beside {}", of(codec)),
            Self::Trained(codec) => format!("what {} saves with a table of its own", of(codec)),
            Self::EndHosts => "what end hosts would need".to_owned(),
        }
    }

    /// Work beside others', so that threads get alike much.
    #[must_use]
    pub const fn work(&self) -> u64 {
        match self {
            Self::Ledger => 1,
            Self::Savings(codec) => match codec.method() {
                Method::Modp => 8,
                Method::Maxp => 5,
                Method::Fixed | Method::SampleByte => 3,
            },
            Self::Optimal { .. } => 60,
            Self::Stages(_, Library::Gzip) => 100,
            Self::Stages(..) => 30,
            Self::Microscope(_) => 10,
            Self::Http(_) => 60,
            Self::Trained(_) => 40,
            Self::EndHosts => 1,
        }
    }
}

/// The jobs for a site whose captures have so many bytes, each once, those that matter most first.
#[must_use]
pub fn jobs(options: &Options, input_bytes: Option<u64>) -> Vec<Job> {
    let base = Codec::of(options);
    let mut jobs = vec![Job::Ledger, Job::Savings(base), Job::Microscope(base), Job::EndHosts];
    for matcher in [Matcher::MaxMatch, Matcher::ChunkMatch] {
        jobs.extend(Method::ALL.map(|method| Job::Savings(base.with(method, matcher))));
    }
    jobs.push(optimal(&base));
    jobs.push(Job::Http(base));
    jobs.push(trained(&base));
    jobs.extend(caches(input_bytes).map(|cache_bytes| Job::Savings(Codec { cache_bytes, ..base })));
    jobs.push(Job::Savings(larger(&base)));
    for library in Library::ALL {
        jobs.extend([Job::Stages(None, library), Job::Stages(Some(base), library)]);
    }
    if !options.is_quick {
        for period_bytes in PERIODS {
            let of = |method| Job::Savings(Codec { period_bytes, ..base.with(method, Matcher::MaxMatch) });
            jobs.extend(Method::ALL.map(of));
        }
        for window_bytes in WINDOWS {
            jobs.push(Job::Savings(Codec { window_bytes, ..base }));
            jobs.push(Job::Savings(Codec { window_bytes, ..base.with(Method::Maxp, Matcher::MaxMatch) }));
            jobs.push(optimal(&Codec { window_bytes, ..base }));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    jobs.retain(|job| seen.insert(*job));
    jobs
}

/// The bound for the same window and cache.
#[must_use]
pub const fn optimal(codec: &Codec) -> Job {
    let cache_bytes =
        if codec.cache_bytes < OPTIMAL_CACHE_BYTES_MAX { codec.cache_bytes } else { OPTIMAL_CACHE_BYTES_MAX };
    Job::Optimal { window_bytes: codec.window_bytes, cache_bytes }
}

/// SAMPLEBYTE with a table of its own, whatever else is compared.
#[must_use]
pub fn trained(codec: &Codec) -> Job {
    Job::Trained(codec.with(Method::SampleByte, Matcher::MaxMatch))
}

/// The same with a cache four times as large, or the largest that there is.
#[must_use]
pub fn larger(codec: &Codec) -> Codec {
    let cache_bytes = codec.cache_bytes.saturating_mul(LARGER_CACHE).min(CACHE_BYTES_MAX);
    Codec { cache_bytes, ..*codec }
}

/// The sizes worth comparing: of those that hold the whole capture, the smallest.
fn caches(input_bytes: Option<u64>) -> impl Iterator<Item = usize> {
    let whole = input_bytes.unwrap_or(u64::MAX);
    // A granule of 64 bytes is rarely filled to its end.
    let holds = move |cache: usize| cache as u64 / 2 >= whole;
    CACHES.into_iter().enumerate().filter(move |(at, _)| *at == 0 || !holds(CACHES[at - 1])).map(|(_, cache)| cache)
}
