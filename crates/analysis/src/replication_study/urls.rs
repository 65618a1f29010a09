//! Categories of URLs: states under keys that are long (MLCBF, sections 4.1 A and 4.2 A, table III).

use std::collections::{BTreeMap, HashMap};

use filters::{
    Change, CountingBloom, CountingBloomShape, Exchange, Insertion, KeyHash, Memory, MultiLevel, MultiLevelShape,
    Secret, States, Update,
};
use flow::random::mix;

use super::outcome::{UrlMembership, UrlStructure, Urls};
use crate::comparators::stateful_bloom::{Known, StatefulBloom, StatefulBloomShape};

/// Distinct URLs that are taken into account; requests for others are counted only.
pub const URLS_MAX: usize = 4 << 20;
/// Bits of a category, and of a fingerprint, as in the paper.
const CATEGORY_BITS: u8 = 7;
const FINGERPRINT_BITS: u8 = 20;
/// The paper's counting Bloom filter: ten cells an item, four hash functions.
const CELLS_PER_URL: u64 = 10;
const HASHES: u8 = 4;
/// Load factors of Summary Cache that the paper compares: counters for each request.
const SUMMARY_CACHES: [(&str, u64); 2] = [("summary-cache-10", 10), ("summary-cache-40", 40)];
/// Bytes of a changed bit in a message of Summary Cache: its position, and whether it is set.
const FLIP_BYTES: u64 = 4;
/// Two cells a word, of which the highest state means "several".
const CELL_STATE_BITS: u8 = 12;
/// URLs in one increment: those that come together in a second or so.
const URLS_PER_UPDATE: usize = 2000;
/// The mean of the categories' Poisson distribution.
const MEAN_CATEGORY: f64 = 32.0;

/// A request's URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UrlParts<'a> {
    /// The host that was asked.
    pub host: &'a [u8],
    /// What for.
    pub path: &'a [u8],
}

/// The URL of the HTTP/1 request that a segment begins with, if it does and its `Host` is in the segment.
#[must_use]
pub fn url_of(payload: &[u8]) -> Option<UrlParts<'_>> {
    const METHODS: [&[u8]; 6] = [b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS "];
    let method = METHODS.into_iter().find(|method| payload.starts_with(method))?;
    let rest = &payload[method.len()..];
    let path_end = rest.iter().position(|byte| *byte == b' ')?;
    let (path, after) = rest.split_at(path_end);
    if !after.starts_with(b" HTTP/1.") || path.is_empty() {
        return None;
    }
    let mut lines = after.split(|byte| *byte == b'\n').skip(1);
    let host = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(5)?;
        name.eq_ignore_ascii_case(b"host:").then(|| value.trim_ascii())
    })?;
    Some(UrlParts { host, path })
}

/// Collects URLs, by their hashes.
pub(super) struct UrlBook {
    secret: Secret,
    /// Whether a hash was seen, and the order of the first times.
    seen: HashMap<u64, ()>,
    keys: Vec<u64>,
    requests: u64,
    url_bytes: u64,
    requested_bytes: u64,
    joined: Vec<u8>,
}

impl UrlBook {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            secret: Secret::new([seed, 0x0075_726c]),
            seen: HashMap::new(),
            keys: Vec::new(),
            requests: 0,
            url_bytes: 0,
            requested_bytes: 0,
            joined: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, host: &[u8], path: &[u8]) {
        self.requests += 1;
        self.joined.clear();
        self.joined.extend_from_slice(host);
        self.joined.extend_from_slice(path);
        self.requested_bytes += self.joined.len() as u64 + 1;
        let key = mixed_hash(&self.joined);
        if self.keys.len() < URLS_MAX && self.seen.insert(key, ()).is_none() {
            self.keys.push(key);
            self.url_bytes += self.joined.len() as u64;
        }
    }

    /// What structures for the URLs cost; nothing if there were none.
    pub(super) fn finish(self) -> Option<Urls> {
        let distinct = self.keys.len() as u64;
        if distinct == 0 {
            return None;
        }
        let precise_bytes = self.url_bytes + distinct;
        let usual = MultiLevelShape::for_items(self.requests, CATEGORY_BITS);
        let shape = MultiLevelShape { fingerprint_bits: FINGERPRINT_BITS, ..usual };
        let mut structures = BTreeMap::new();
        let mut note = |name, measured: Option<UrlStructure>| structures.extend(measured.map(|found| (name, found)));
        note("multi-level-fa", self.multi_level(shape, precise_bytes));
        let cells = self.requests * 100 / 80 + 128;
        note(
            "multi-level-ll",
            self.multi_level(MultiLevelShape { cells, insertion: Insertion::LeastLoad, ..shape }, precise_bytes),
        );
        note("counting-bloom", self.counting_bloom(precise_bytes));
        let membership = self.membership(&structures, precise_bytes);
        Some(Urls {
            requests: self.requests,
            distinct,
            mean_bytes: self.url_bytes as f64 / distinct as f64,
            precise_bytes,
            requested_bytes: self.requested_bytes,
            structures,
            membership,
        })
    }

    /// What it costs that other nodes know which URLs there are. The multi-level filters are those that hold categories, as in the paper.
    fn membership(
        &self,
        structures: &BTreeMap<&'static str, UrlStructure>,
        precise_bytes: u64,
    ) -> BTreeMap<&'static str, UrlMembership> {
        let of_levels = structures.iter().filter(|(name, _)| name.starts_with("multi-level"));
        let of_levels = of_levels.map(|(name, found)| {
            let UrlStructure { memory_bytes, memory_reduction, network_bytes, network_reduction, .. } = *found;
            let (neighbour_bytes, flips_bytes) = (memory_bytes, network_bytes);
            let false_positive = found.false_positive;
            let known = UrlMembership {
                memory_bytes,
                memory_reduction,
                neighbour_bytes,
                network_bytes,
                network_reduction,
                flips_bytes,
                false_positive,
            };
            (*name, known)
        });
        let of_caches =
            SUMMARY_CACHES.iter().filter_map(|(name, load)| Some((*name, self.summary_cache(*load, precise_bytes)?)));
        of_levels.chain(of_caches).collect()
    }

    /// Summary Cache (Fan et al., 2000): the node counts in a Bloom filter of four-bit counters, its neighbours have the bits.
    fn summary_cache(&self, load: u64, precise_bytes: u64) -> Option<UrlMembership> {
        let shape = CountingBloomShape { counters: self.requests * load, hashes: HASHES };
        let mut filter = CountingBloom::with_digest(shape).ok()?;
        let insert = |filter: &mut CountingBloom, key, _| filter.insert(key);
        let network_bytes = self.fill(&mut filter, insert, digest_memory)?;
        let bits = filter.digest()?.memory();
        let flips: u64 = bits.words().iter().map(|word| u64::from(word.count_ones())).sum();
        let saved = |bytes: u64| 1.0 - bytes as f64 / precise_bytes as f64;
        let memory_bytes = filter.memory().bytes() as u64;
        Some(UrlMembership {
            memory_bytes,
            memory_reduction: saved(memory_bytes),
            neighbour_bytes: bits.bytes() as u64,
            network_bytes,
            network_reduction: saved(network_bytes),
            flips_bytes: flips * FLIP_BYTES,
            false_positive: self.false_positive(|key| filter.contains(key)),
        })
    }

    /// Of as many keys of no URL, made from those there are, the share that is found.
    fn false_positive(&self, is_found: impl Fn(KeyHash) -> bool) -> f64 {
        let absent =
            self.keys.iter().map(|key| mixed_hash(&key.to_le_bytes())).filter(|key| !self.seen.contains_key(key));
        let (mut asked, mut hits) = (0_u64, 0_u64);
        for key in absent {
            asked += 1;
            hits += u64::from(is_found(self.secret.spread(key)));
        }
        hits as f64 / asked.max(1) as f64
    }

    fn multi_level(&self, shape: MultiLevelShape, precise_bytes: u64) -> Option<UrlStructure> {
        let mut filter = MultiLevel::<States>::new(shape).ok()?;
        // A URL that has no room counts as one with a wrong category below.
        let insert = |filter: &mut MultiLevel<States>, key, category| {
            let _ = filter.insert(key, category);
        };
        let network_bytes = self.fill(&mut filter, insert, MultiLevel::memory_mut)?;
        let lookup = |key| filter.lookup(key);
        Some(self.measure(filter.memory(), precise_bytes, network_bytes, lookup))
    }

    fn counting_bloom(&self, precise_bytes: u64) -> Option<UrlStructure> {
        let shape =
            StatefulBloomShape { cells: self.requests * CELLS_PER_URL, hashes: HASHES, state_bits: CELL_STATE_BITS };
        let mut filter = StatefulBloom::new(shape).ok()?;
        let network_bytes = self.fill(&mut filter, StatefulBloom::insert, StatefulBloom::memory_mut)?;
        let lookup = |key| {
            filter.lookup(key).map(|known| match known {
                Known::State(category) => category,
                Known::Several => u16::MAX,
            })
        };
        Some(self.measure(filter.memory(), precise_bytes, network_bytes, lookup))
    }

    /// Inserts all URLs and returns the bytes of the increments that replicate them.
    fn fill<F>(
        &self,
        filter: &mut F,
        insert: impl Fn(&mut F, KeyHash, u16),
        memory_mut: impl Fn(&mut F) -> &mut Memory,
    ) -> Option<u64> {
        let mark = memory_mut(filter).mark().ok()?;
        let mut changes: Vec<Change> = Vec::new();
        memory_mut(filter).take_changes(mark, usize::MAX, &mut changes);
        let (mut bytes, mut network_bytes) = (Vec::new(), 0);
        for keys in self.keys.chunks(URLS_PER_UPDATE) {
            for key in keys {
                insert(filter, self.secret.spread(*key), category(*key));
            }
            changes.clear();
            memory_mut(filter).take_changes(mark, usize::MAX, &mut changes);
            bytes.clear();
            Update::encode(&mut changes, &mut bytes);
            network_bytes += bytes.len() as u64;
        }
        Some(network_bytes)
    }

    fn measure(
        &self,
        memory: &Memory,
        precise_bytes: u64,
        network_bytes: u64,
        lookup: impl Fn(KeyHash) -> Option<u16>,
    ) -> UrlStructure {
        let wrong = self.keys.iter().filter(|key| lookup(self.secret.spread(**key)) != Some(category(**key))).count();
        let saved = |bytes: u64| 1.0 - bytes as f64 / precise_bytes as f64;
        let memory_bytes = memory.bytes() as u64;
        UrlStructure {
            memory_bytes,
            memory_reduction: saved(memory_bytes),
            network_bytes,
            network_reduction: saved(network_bytes),
            false_positive: self.false_positive(|key| lookup(key).is_some()),
            inaccurate_state: wrong as f64 / self.keys.len() as f64,
        }
    }
}

/// The bits that neighbours have.
fn digest_memory(filter: &mut CountingBloom) -> &mut Memory {
    filter.digest_mut().expect("it was made with them").memory_mut()
}

/// FNV-1a, finished by [`mix`].
fn mixed_hash(bytes: &[u8]) -> u64 {
    let folded = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    mix(folded)
}

/// The category of a URL, from 1 to 127: drawn from a Poisson distribution by the URL's hash.
fn category(key: u64) -> u16 {
    let mut uniform = (mixed_hash(&key.to_be_bytes()) >> 11) as f64 / (1_u64 << 53) as f64;
    let mut share = (-MEAN_CATEGORY).exp();
    for category in 0..127 {
        if uniform < share {
            return category.max(1);
        }
        uniform -= share;
        share *= MEAN_CATEGORY / f64::from(category + 1);
    }
    127
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_request_is_its_host_and_path() {
        let request = b"GET /a/b?c=d HTTP/1.1\r\nUser-Agent: x\r\nhost: example.org \r\n\r\n";
        assert_eq!(url_of(request), Some(UrlParts { host: b"example.org", path: b"/a/b?c=d" }));
        for other in [
            &b"HTTP/1.1 200 OK\r\nHost: x\r\n"[..],
            b"GET / SIP/2.0\r\nHost: x\r\n",
            b"GET /",
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(url_of(other), None);
        }
    }

    #[test]
    fn a_filter_saves_most_of_the_bytes_that_urls_take() {
        let mut book = UrlBook::new(7);
        // As in table III: mean length about 58 bytes, 0.6 distinct URLs a request.
        for number in 0..50_000_u32 {
            let number = if number % 5 < 3 { number } else { number / 5 * 5 };
            book.add(
                format!("http://host-{}.example.org", number % 997).as_bytes(),
                format!("/articles/2007/01/{number:08}.html").as_bytes(),
            );
        }
        let urls = book.finish().expect("there are URLs");
        assert_eq!((urls.requests, urls.distinct), (50_000, 30_000));
        let found = &urls.structures["multi-level-fa"];
        assert!(found.memory_reduction > 0.85 && found.network_reduction > 0.85, "{urls:?}");
        assert!(found.inaccurate_state < 1e-3 && found.false_positive < 1e-3, "{urls:?}");
        let bloom = &urls.structures["counting-bloom"];
        assert!(bloom.network_bytes > 2 * found.network_bytes, "four cells an item: {urls:?}");
        assert!(bloom.inaccurate_state > found.inaccurate_state, "{urls:?}");

        // Section 4.2 A: Summary Cache sends more, and has more false positives; with four times the counters as few, for more memory.
        let [levels, ten, forty] =
            ["multi-level-fa", "summary-cache-10", "summary-cache-40"].map(|name| urls.membership[name]);
        assert!(ten.flips_bytes > 2 * levels.network_bytes && ten.network_bytes > levels.network_bytes, "{urls:?}");
        assert!(ten.false_positive > 10.0 * levels.false_positive && ten.false_positive > 1e-4, "{urls:?}");
        assert!(forty.false_positive < ten.false_positive && forty.memory_bytes > 4 * levels.memory_bytes, "{urls:?}");
        // Ten counters of four bits for each request, and their bits, in whole cache lines.
        let lines = |bytes: u64| bytes.next_multiple_of(64);
        assert_eq!((ten.memory_bytes, ten.neighbour_bytes), (lines(250_000), lines(62_500)));
    }

    #[test]
    fn categories_are_drawn_about_their_mean() {
        let drawn: Vec<u16> = (0..10_000).map(category).collect();
        let mean = drawn.iter().map(|category| f64::from(*category)).sum::<f64>() / drawn.len() as f64;
        assert!((mean - MEAN_CATEGORY).abs() < 0.5, "{mean}");
        assert!(drawn.iter().all(|category| (1..=127).contains(category)));
    }
}
