//! Filters that no node can be configured with, sent as a node sends its own (MLCBF, section 4.1 B).
//!
//! An update carries the changed words or, if that is less, all words. Its datagrams have the size and headers of a compact
//! stream without symbols (`docs/protocol.md`). The link loses nothing, so the copy takes each word as it is sent.

use std::time::Duration;

use filters::{
    Change, Exchange, KeyHash, MarkId, Memory, MultiLevel, MultiLevelShape, Secret, ShapeError, States, Update,
};
use flow::{Instant, Tuple};
use replication::compact::{COMPARE_INTERVAL, CellState, CompactSenderStatus, Known, STATE_BITS};
use replication::symbol::{Coding, Encoder};
use zerocopy::IntoBytes;

use super::config::{Method, StudyConfig};
use super::pair::{Exchanged, Pair, secret};
use crate::comparators::d_left;
use crate::comparators::stateful_bloom::{self, StatefulBloom, StatefulBloomShape};

/// Bytes of a datagram at most, and of these the header.
const DATAGRAM_BYTES_MAX: usize = 1472;
const HEADER_BYTES: usize = 10;
/// Bytes that a changed word takes at most, and a run of words before its words.
const CHANGE_BYTES_MAX: usize = 10;
const RUN_BYTES_MAX: usize = 10;
/// Words that a datagram of an update of all words carries.
const WORDS_PER_DATAGRAM: usize = (DATAGRAM_BYTES_MAX - HEADER_BYTES - RUN_BYTES_MAX) / size_of::<u32>();
/// Changed words that are looked at at a time.
const WORDS_AT_A_TIME: usize = 64;
/// An acknowledgement covers so many datagrams at most, and its bytes.
const DATAGRAMS_PER_ACK: usize = 32;
const ACK_BYTES: usize = 46;
/// Sections of a filter whose digests are compared: so many at most, of so many words at least.
const SECTIONS_MAX: usize = 4096;
const SECTION_WORDS_MIN: usize = 256;
/// Digests of a datagram, their bytes, and the bytes before them.
const DIGESTS_PER_DATAGRAM: usize = 64;
const DIGEST_BYTES: usize = 4;
const DIGESTS_HEADER_BYTES: usize = 22;
/// The usual cells for each connection, and hash functions, of the counting Bloom filter.
const CELLS_PER_ITEM: u8 = 10;
const HASHES: u8 = 4;
/// Bits of its states: none of the values of eight bits would stand for "several".
const CELL_STATE_BITS: u8 = 12;
/// Levels of the d-left filter, and cells of its buckets.
const LEVELS: u8 = 4;
const CELLS_PER_BUCKET: u8 = 8;

/// One of the filters.
enum Filter {
    DLeft(MultiLevel<States>, MultiLevelShape),
    CountingBloom(StatefulBloom),
}

impl Filter {
    fn new(config: &StudyConfig, method: Method) -> Result<Self, ShapeError> {
        let items = u64::from(config.connections_max);
        if method == Method::CountingBloom {
            let cells = items * u64::from(config.counters_per_item.unwrap_or(CELLS_PER_ITEM));
            let shape = StatefulBloomShape { cells, hashes: HASHES, state_bits: CELL_STATE_BITS };
            return StatefulBloom::new(shape).map(Self::CountingBloom);
        }
        let usual = d_left::shape(items * 100 / 80 + 128, LEVELS, CELLS_PER_BUCKET, STATE_BITS);
        let fingerprint_bits = config.fingerprint_bits.unwrap_or(usual.fingerprint_bits);
        let shape = MultiLevelShape { fingerprint_bits, ..usual };
        Ok(Self::DLeft(MultiLevel::new(shape)?, shape))
    }

    fn memory(&self) -> &Memory {
        match self {
            Self::DLeft(filter, _) => filter.memory(),
            Self::CountingBloom(filter) => filter.memory(),
        }
    }

    fn memory_mut(&mut self) -> &mut Memory {
        match self {
            Self::DLeft(filter, _) => filter.memory_mut(),
            Self::CountingBloom(filter) => filter.memory_mut(),
        }
    }

    /// Stores a word that the other end has sent.
    fn put(&mut self, change: Change) {
        match self {
            Self::DLeft(filter, _) => filter.put(change.index as usize, change.word),
            Self::CountingBloom(filter) => filter.memory_mut().set(change.index as usize, change.word),
        }
    }

    /// Whether there was room.
    fn insert(&mut self, key: KeyHash, state: CellState) -> bool {
        let state = state.number().into();
        match self {
            Self::DLeft(filter, _) => filter.insert_distinct(key, state).is_ok(),
            Self::CountingBloom(filter) => {
                filter.insert(key, state);
                true
            }
        }
    }

    /// Whether the key was present.
    fn modify(&mut self, key: KeyHash, before: CellState, after: CellState) -> bool {
        match self {
            Self::DLeft(filter, _) => filter.modify_state(key, before.number().into(), after.number().into()),
            Self::CountingBloom(filter) => filter.modify(key, after.number().into()),
        }
    }

    /// Whether the key was present.
    fn remove(&mut self, key: KeyHash, state: CellState) -> bool {
        match self {
            Self::DLeft(filter, _) => filter.remove_state(key, state.number().into()),
            Self::CountingBloom(filter) => filter.remove(key),
        }
    }

    fn lookup(&self, key: KeyHash) -> Option<Known> {
        let state = match self {
            Self::DLeft(filter, _) => Some(filter.lookup(key)?),
            Self::CountingBloom(filter) => match filter.lookup(key)? {
                stateful_bloom::Known::State(state) => Some(state),
                stateful_bloom::Known::Several => None,
            },
        };
        Some(Known { state: state.map(|state| CellState::from_number(state as u8)) })
    }
}

/// A filter and its copy.
pub(super) struct ComparedPair {
    secret: Secret,
    filter: Filter,
    /// The words that changed since the last update.
    mark: MarkId,
    copy: Filter,
    batch: Duration,
    /// Establishments do not wait for other changes, as in the node's own filters.
    establishment_at_once: bool,
    /// Since when the first change waits for others.
    waiting_since: Option<Instant>,
    /// A change does not wait.
    is_urgent: bool,
    /// When the copy is compared next.
    compare_at: Instant,
    status: CompactSenderStatus,
}

impl ComparedPair {
    pub(super) fn new(config: &StudyConfig, method: Method) -> Result<Self, ShapeError> {
        Self::of(config, || Filter::new(config, method))
    }

    fn of(config: &StudyConfig, empty: impl Fn() -> Result<Filter, ShapeError>) -> Result<Self, ShapeError> {
        let mut filter = empty()?;
        let mark = filter.memory_mut().mark().expect("it is the first");
        Ok(Self {
            secret: Secret::new(secret(config)),
            filter,
            mark,
            copy: empty()?,
            batch: Duration::from_millis(config.batch_ms.into()),
            establishment_at_once: !config.as_in_the_paper,
            waiting_since: None,
            is_urgent: false,
            compare_at: Instant::ZERO,
            status: CompactSenderStatus::default(),
        })
    }

    fn key(&self, tuple: &Tuple) -> KeyHash {
        self.secret.hash(tuple.as_bytes())
    }

    fn update_at(&self) -> Option<Instant> {
        self.waiting_since.map(|since| if self.is_urgent { since } else { since + self.batch })
    }

    /// Sends all changes.
    fn update(&mut self, exchanged: &mut Exchanged) {
        (self.waiting_since, self.is_urgent) = (None, false);
        let memory = self.filter.memory();
        let whole_bytes = bytes_in_datagrams(size_of_val(memory.words()) + RUN_BYTES_MAX);
        let is_whole = memory.changed(self.mark) * CHANGE_BYTES_MAX >= whole_bytes
            && bytes_in_datagrams(self.changes_bytes()) > whole_bytes;
        let contents = if is_whole { self.send_all_words() } else { self.send_changes() };
        if contents.is_empty() {
            return;
        }
        self.status.whole_updates += u64::from(is_whole);
        self.status.incremental_updates += u64::from(!is_whole);
        contents.iter().for_each(|content| exchanged.count_sent(HEADER_BYTES + content, *content));
        (0..contents.len().div_ceil(DATAGRAMS_PER_ACK)).for_each(|_| exchanged.count_answer(ACK_BYTES));
    }

    /// Content bytes of all changes.
    fn changes_bytes(&self) -> usize {
        let (mut encoder, mut content) = (Encoder::new(Coding::Words), Vec::new());
        let words = (0..).zip(self.filter.memory().words().iter().zip(self.copy.memory().words()));
        for (index, (word, _)) in words.filter(|(_, (word, known))| word != known) {
            encoder.append(Change { index, word: *word }, 0, &mut content);
        }
        content.len()
    }

    /// Sends what changed, as a node fills its datagrams. Returns the content bytes of each.
    fn send_changes(&mut self) -> Vec<usize> {
        let (mut contents, mut taken) = (Vec::new(), Vec::new());
        while self.filter.memory().changed(self.mark) > 0 {
            let (mut encoder, mut content) = (Encoder::new(Coding::Words), Vec::new());
            let mut is_full = false;
            while !is_full {
                taken.clear();
                self.filter.memory_mut().take_changes(self.mark, WORDS_AT_A_TIME, &mut taken);
                if taken.is_empty() {
                    break;
                }
                let rest = self.fill(&taken, &mut encoder, &mut content);
                is_full = !rest.is_empty();
                self.filter.memory_mut().put_back(self.mark, rest);
            }
            contents.extend((!content.is_empty()).then_some(content.len()));
        }
        contents
    }

    /// Sends changes in the present datagram, as far as they rise and fit. Returns those that are left.
    fn fill<'a>(&mut self, changes: &'a [Change], encoder: &mut Encoder, content: &mut Vec<u8>) -> &'a [Change] {
        for (at, change) in changes.iter().enumerate() {
            if self.copy.memory().word(change.index as usize) == change.word {
                continue;
            }
            let length = content.len();
            let mut is_full = !encoder.may_follow(change.index);
            if !is_full {
                encoder.append(*change, 0, content);
                is_full = HEADER_BYTES + content.len() > DATAGRAM_BYTES_MAX;
            }
            if is_full {
                content.truncate(length);
                return &changes[at..];
            }
            self.copy.put(*change);
            self.status.words += 1;
        }
        &[]
    }

    /// Sends all words. Returns the content bytes of each datagram.
    fn send_all_words(&mut self) -> Vec<usize> {
        let mut changes = Vec::new();
        self.filter.memory_mut().take_changes(self.mark, usize::MAX, &mut changes);
        changes.into_iter().for_each(|change| self.copy.put(change));
        let words = self.filter.memory().words();
        self.status.words += words.len() as u64;
        let chunks = words.chunks(WORDS_PER_DATAGRAM).zip((0..).step_by(WORDS_PER_DATAGRAM));
        let content_bytes = |(words, first): (&[u32], u32)| {
            let mut content = Vec::new();
            Update::encode_words(first, words, &mut content);
            content.len()
        };
        chunks.map(content_bytes).collect()
    }

    /// Sends the digests of all sections.
    fn compare(&mut self, now: Instant, exchanged: &mut Exchanged) {
        self.compare_at = now + COMPARE_INTERVAL;
        let words = self.filter.memory().words().len();
        let section_words = words.div_ceil(SECTIONS_MAX).next_power_of_two().max(SECTION_WORDS_MIN);
        let mut sections = words.div_ceil(section_words);
        while sections > 0 {
            let digests = sections.min(DIGESTS_PER_DATAGRAM);
            exchanged.count_sent(DIGESTS_HEADER_BYTES + digests * DIGEST_BYTES, 0);
            sections -= digests;
        }
    }
}

impl Pair for ComparedPair {
    fn filter_bytes(&self) -> usize {
        size_of_val(self.filter.memory().words())
    }

    fn insert(&mut self, tuple: &Tuple, state: CellState) {
        let is_placed = self.filter.insert(self.key(tuple), state);
        self.status.entries += u64::from(is_placed);
        self.status.refused += u64::from(!is_placed);
    }

    fn modify(&mut self, tuple: &Tuple, before: CellState, after: CellState) {
        let key = self.key(tuple);
        if before != after && !self.filter.modify(key, before, after) {
            // There was no room for it: perhaps there is now.
            self.status.entries += u64::from(self.filter.insert(key, after));
        }
        let is_established = |state: CellState| state.is_established(tuple.protocol);
        self.is_urgent |= self.establishment_at_once && is_established(after) && !is_established(before);
    }

    fn remove(&mut self, tuple: &Tuple, state: CellState) {
        let was_present = self.filter.remove(self.key(tuple), state);
        self.status.entries -= u64::from(was_present);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let has_changes = self.filter.memory().changed(self.mark) > 0;
        self.waiting_since = has_changes.then(|| self.waiting_since.unwrap_or(now));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.update_at().into_iter().chain([self.compare_at]).min()
    }

    fn exchange(&mut self, now: Instant, exchanged: &mut Exchanged) {
        self.handle_timeout(now);
        if self.update_at().is_some_and(|at| at <= now) {
            self.update(exchanged);
        }
        if self.compare_at <= now {
            self.compare(now, exchanged);
        }
    }

    fn lookup(&self, tuple: &Tuple) -> Option<Known> {
        self.copy.lookup(self.key(tuple))
    }

    fn status(&self) -> CompactSenderStatus {
        self.status
    }

    fn loads_by_level(&self) -> Vec<f64> {
        let Filter::DLeft(filter, shape) = &self.filter else { return Vec::new() };
        let Ok(buckets) = shape.buckets() else { return Vec::new() };
        let cells = buckets.into_iter().map(|buckets| buckets * u64::from(shape.cells_per_bucket));
        let levels = filter.items_by_level().into_iter().zip(cells).filter(|(_, cells)| *cells > 0);
        levels.map(|(items, cells)| items as f64 / cells as f64).collect()
    }

    fn backup_bytes(&self) -> usize {
        self.copy.memory().bytes()
    }
}

/// Bytes of a content in datagrams, with their headers.
const fn bytes_in_datagrams(content_bytes: usize) -> usize {
    content_bytes + content_bytes.div_ceil(DATAGRAM_BYTES_MAX - HEADER_BYTES) * HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use filters::Insertion;
    use flow::conntrack::TcpState;

    use super::*;
    use crate::replication_study::pair::NodePair;

    /// What a pair sent of so many connections that begin, change and end, one a millisecond, and its words.
    fn sent(mut pair: impl Pair, connections: u16) -> (Exchanged, u64) {
        let mut exchanged = Exchanged::default();
        let [begun, established, ended] = [TcpState::SynSent, TcpState::Established, TcpState::TimeWait]
            .map(|state| CellState::from_number(state as u8));
        let tuple =
            |number: u16| Tuple::v4(6, ([10, 0, 0, 1].into(), number), ([192, 0, 2, (number % 7) as u8].into(), 443));
        for number in 0..connections + 200 {
            let now = Instant::from_millis(number.into());
            if number < connections {
                pair.insert(&tuple(number), begun);
            }
            if (50..connections + 50).contains(&number) {
                pair.modify(&tuple(number - 50), begun, established);
            }
            if (150..connections + 150).contains(&number) {
                pair.modify(&tuple(number - 150), established, ended);
                pair.remove(&tuple(number - 150), ended);
            }
            pair.exchange(now, &mut exchanged);
        }
        assert_eq!(pair.status().entries, 0, "all have ended");
        (exchanged, pair.status().words)
    }

    #[test]
    fn a_compared_filter_is_sent_as_a_nodes_own() {
        let config = StudyConfig { connections_max: 20_000, ..StudyConfig::default() };
        let of_node = NodePair::new(&config, Method::MultiLevelLl).expect("a configuration");
        let usual = MultiLevelShape::for_items(0, STATE_BITS);
        let shape = MultiLevelShape { cells: 20_000 * 100 / 80 + 128, insertion: Insertion::LeastLoad, ..usual };
        let same = ComparedPair::of(&config, || Ok(Filter::DLeft(MultiLevel::new(shape)?, shape)));
        let ((node, node_words), (same, same_words)) = (sent(of_node, 5000), sent(same.expect("a shape"), 5000));
        let is_close = |one: u64, other: u64| (one as f64 / other as f64 - 1.0).abs() < 0.05;
        assert!(is_close(node_words, same_words), "{node_words} {same_words}");
        assert!(is_close(node.content_bytes, same.content_bytes), "{node:?} {same:?}");
        assert!(is_close(node.datagrams, same.datagrams), "{node:?} {same:?}");
    }

    #[test]
    fn the_copy_knows_what_was_sent_and_several_states_of_shared_cells_are_unknown() {
        let config = StudyConfig { connections_max: 100, batch_ms: 10, ..StudyConfig::default() };
        let tuple = Tuple::v4(6, ([10, 0, 0, 1].into(), 1), ([192, 0, 2, 1].into(), 443));
        let state = CellState::from_number(TcpState::Established as u8);
        for method in [Method::DLeft, Method::CountingBloom] {
            let mut pair = ComparedPair::new(&config, method).expect("a shape");
            pair.insert(&tuple, state);
            let mut exchanged = Exchanged::default();
            pair.exchange(Instant::from_millis(1), &mut exchanged);
            assert_eq!(pair.lookup(&tuple), None, "{}: it waits for its batch", method.name());
            assert_eq!(pair.poll_timeout(), Some(Instant::from_millis(11)));
            pair.exchange(Instant::from_millis(11), &mut exchanged);
            assert_eq!(pair.lookup(&tuple), Some(Known { state: Some(state) }), "{}", method.name());
        }
    }

    #[test]
    fn all_words_are_sent_where_that_is_less() {
        let config = StudyConfig { connections_max: 1000, batch_ms: 0, ..StudyConfig::default() };
        let mut pair = ComparedPair::new(&config, Method::CountingBloom).expect("a shape");
        for number in 0..4000 {
            let tuple = Tuple::v4(6, ([10, 0, 0, 1].into(), number), ([192, 0, 2, 1].into(), 443));
            pair.insert(&tuple, CellState::from_number(3));
        }
        let mut exchanged = Exchanged::default();
        pair.exchange(Instant::from_millis(1), &mut exchanged);
        assert_eq!((pair.status().whole_updates, pair.status().incremental_updates), (1, 0));
        let filter_bytes = pair.filter_bytes() as u64;
        assert!((filter_bytes..filter_bytes + filter_bytes / 50).contains(&exchanged.content_bytes), "{exchanged:?}");
    }
}
