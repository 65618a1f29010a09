//! What a compact stream is made of, and its limits.

use core::time::Duration;

use filters::memory::MARKS_MAX;
use filters::shape::Content;
use filters::{BloomShape, CountingBloomShape, Insertion, MultiLevelShape, Shape, ShapeError};

use super::cell::STATE_BITS;

/// The smallest [`CompactConfig::datagram_bytes_max`]: a shape, and a section's digests, fit.
pub const DATAGRAM_BYTES_MIN: usize = 512;
/// The largest.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Inherited filters that a node re-advertises at the same time: a connection may be idle through as many failovers, and one
/// more.
pub const INHERITED_FILTERS_MAX: usize = 3;
/// An acknowledgement is due so long after the first datagram that it covers. So late may a datagram come that another one has
/// overtaken, and still be used.
pub const ACK_DELAY: Duration = Duration::from_millis(2);
/// Bits that a cell of the filters with fingerprints has for the fingerprint.
const FINGERPRINT_BITS_MAX: u8 = 31 - STATE_BITS;

/// How connections become entries of a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Representation {
    /// Pairs of hosts that talk, whatever their ports, in a filter with fingerprints (MLCBF, section 2.2.1 C). It can hold no
    /// translated connection: those are replicated as records.
    HostAggregate,
    /// Established connections in a counting Bloom filter, of which the backup has the bits (section 2.1).
    FlowDigest,
    /// Connections and their states in a multi-level filter (chapter 3).
    MultiLevel(Insertion),
}

impl Representation {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::HostAggregate,
        Self::FlowDigest,
        Self::MultiLevel(Insertion::FirstAvailable),
        Self::MultiLevel(Insertion::LeastLoad),
    ];

    /// Its name in configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostAggregate => "host-aggregate",
            Self::FlowDigest => "flow-digest",
            Self::MultiLevel(Insertion::FirstAvailable) => "multi-level",
            Self::MultiLevel(Insertion::LeastLoad) => "multi-level-least-load",
        }
    }

    /// Whether a lookup yields a state. If not, it holds connections only while they are
    /// [established](super::CellState::is_established).
    #[must_use]
    pub const fn has_states(self) -> bool {
        !matches!(self, Self::HostAggregate | Self::FlowDigest)
    }

    /// Whether established connections may break at a take-over: about one in a hundred tuples of no connection seems to be in
    /// a full Bloom filter, and one that is restored for such a tuple may take the translated port of one that is established. The
    /// others promise that none breaks.
    #[must_use]
    pub const fn is_experimental(self) -> bool {
        matches!(self, Self::FlowDigest)
    }

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::HostAggregate => 1,
            Self::FlowDigest => 2,
            Self::MultiLevel(Insertion::FirstAvailable) => 3,
            Self::MultiLevel(Insertion::LeastLoad) => 4,
        }
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|representation| representation.number() == number)
    }
}

/// How long the first change waits for others, unless a gateway's configuration has another value.
pub const BATCH_DEFAULT: Duration = Duration::from_millis(10);

/// When changes are sent (MLCBF, section 2.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateRule {
    /// As soon as something changed, with what else changes within `batch`.
    Immediate {
        /// How long the first change waits for others.
        batch: Duration,
        /// An establishment does not wait: the peers receive it before the packet that shows it to an end. A connection whose
        /// end believes it to be established is lost with the node otherwise, if the node fails within `batch`.
        establishment_at_once: bool,
    },
    /// Once each period.
    Periodic(Duration),
    /// When enough changes have accumulated. Fewer wait for more, or for [`super::CompactSender::flush`].
    Threshold {
        /// Insertions, changes of state and removals, in thousandths of the entries.
        changes_per_mille: u16,
        /// But no sooner after the last time.
        at_most_every: Duration,
    },
}

/// What a gateway does unless its configuration has another rule.
impl Default for UpdateRule {
    fn default() -> Self {
        Self::Immediate { batch: BATCH_DEFAULT, establishment_at_once: true }
    }
}

/// A compact stream's make and limits. The stream carries all that peers must know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactConfig {
    /// How connections become entries.
    pub representation: Representation,
    /// Entries that there is room for: connections, or pairs of hosts. Of filters with fingerprints what is more may be refused,
    /// which is counted; Bloom filters take it, with more false positives than they were made for, which is counted too.
    pub items_max: u64,
    /// Bits of a fingerprint (F), 4 to 23; fewer make messages shorter and false positives more.
    pub fingerprint_bits: u8,
    /// Counters or cells of the Bloom filters for each of `items_max` (the seed's load factor).
    pub counters_per_item: u8,
    /// Hash functions of the Bloom filters (k).
    pub hashes: u8,
    /// When changes are sent.
    pub update: UpdateRule,
    /// Leaves out of incremental messages what the peer has already ([`crate::symbol`]).
    pub symbols: bool,
    /// The secret that keys are hashed under; every peer receives it. It must be random and another one at each start, as it
    /// also identifies this stream among those before it.
    pub secret: [u64; 2],
    /// Bytes of a datagram: the link's MTU less the IP and UDP headers.
    pub datagram_bytes_max: usize,
    /// What may be sent to all peers together. Entries that wait are sent in their current state.
    pub budget_bytes_per_second: Option<u64>,
}

/// Why there is no such stream. Each is the configuration's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompactConfigError {
    /// There is no such filter.
    #[error("there is no such filter: {0}")]
    Shape(#[from] ShapeError),
    /// More peers than a filter can be sent to.
    #[error("a filter is sent to at most {MARKS_MAX} peers, not {0}")]
    TooManyPeers(usize),
    /// Datagrams too small or too large.
    #[error("datagrams of at most {0} bytes: allowed are {DATAGRAM_BYTES_MIN} to {DATAGRAM_BYTES_MAX}")]
    DatagramBytes(usize),
    /// A budget under which nothing could be sent.
    #[error("a budget of {0} bytes a second is less than a datagram: give more, or none for no limit")]
    Budget(u64),
    /// A period without length.
    #[error("a filter cannot be sent every 0 s: give a period, or the rule for immediate updates")]
    Period,
    /// No entries, or more than can be numbered.
    #[error("a filter for {0} items: allowed are 1 to 2^32")]
    Items(u64),
}

impl CompactConfig {
    /// How long the first change waits for others, usually.
    pub const BATCH_USUAL: Duration = Duration::from_millis(10);

    /// The usual one for a representation and so many entries: sent at once, in batches of 10 ms, with symbols, without a
    /// budget. Bloom filters have ten counters an item and four hash functions (1.2 % false positives), the others all the bits
    /// of fingerprint that a cell has room for.
    #[must_use]
    pub const fn new(representation: Representation, items_max: u64, secret: [u64; 2]) -> Self {
        Self {
            representation,
            items_max,
            fingerprint_bits: FINGERPRINT_BITS_MAX,
            counters_per_item: 10,
            hashes: 4,
            update: UpdateRule::Immediate { batch: Self::BATCH_USUAL, establishment_at_once: true },
            symbols: true,
            secret,
            datagram_bytes_max: 1472,
            budget_bytes_per_second: None,
        }
    }

    /// Whether there can be such a stream.
    ///
    /// # Errors
    /// There cannot, for the reason that is returned.
    pub fn check(&self) -> Result<(), CompactConfigError> {
        if !(1..=1 << 32).contains(&self.items_max) {
            return Err(CompactConfigError::Items(self.items_max));
        }
        if !(DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX).contains(&self.datagram_bytes_max) {
            return Err(CompactConfigError::DatagramBytes(self.datagram_bytes_max));
        }
        if let Some(budget) = self.budget_bytes_per_second
            && budget < self.datagram_bytes_max as u64
        {
            return Err(CompactConfigError::Budget(budget));
        }
        if self.update == UpdateRule::Periodic(Duration::ZERO) {
            return Err(CompactConfigError::Period);
        }
        self.shape().words()?;
        Ok(())
    }

    /// Bytes of the filter as it is sent, and as a backup holds it.
    ///
    /// # Errors
    /// There is no such filter.
    pub fn filter_bytes(&self) -> Result<usize, CompactConfigError> {
        Ok(self.shape().words()? * size_of::<u32>())
    }

    /// The shape of what is sent.
    pub(super) fn shape(&self) -> Shape {
        match self.representation {
            Representation::FlowDigest => {
                let CountingBloomShape { counters, hashes } = self.counting_shape();
                Shape::Bloom(BloomShape { bits: counters, hashes })
            }
            Representation::HostAggregate => self.with_fingerprints(Insertion::FirstAvailable),
            Representation::MultiLevel(insertion) => self.with_fingerprints(insertion),
        }
    }

    fn with_fingerprints(&self, insertion: Insertion) -> Shape {
        let Self { fingerprint_bits, .. } = *self;
        let usual = MultiLevelShape::for_items(self.items_max, STATE_BITS);
        let cells = match insertion {
            Insertion::FirstAvailable => usual.cells,
            // A little more of them stay unused than where the first that is free is taken.
            Insertion::LeastLoad => self.items_max * 100 / 80 + 128,
        };
        Shape::MultiLevel(MultiLevelShape { cells, fingerprint_bits, insertion, ..usual }, Content::States)
    }

    /// The shape of the counters behind a Flow Digest.
    pub(super) const fn counting_shape(&self) -> CountingBloomShape {
        let counters = self.items_max.saturating_mul(self.counters_per_item as u64);
        CountingBloomShape { counters, hashes: self.hashes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(representation: Representation) -> CompactConfig {
        CompactConfig::new(representation, 100_000, [1, 2])
    }

    #[test]
    fn the_usual_configuration_is_sound_and_as_small_as_promised() {
        let bytes_per_item = Representation::ALL.map(|representation| {
            let config = config(representation);
            assert_eq!(config.check(), Ok(()));
            assert_eq!(Representation::from_number(representation.number()), Some(representation));
            config.filter_bytes().expect("it was checked") as f64 / config.items_max as f64
        });
        for (bytes, expected) in bytes_per_item.into_iter().zip([4.7, 1.25, 4.7, 5.0]) {
            assert!((bytes - expected).abs() < 0.05, "{bytes_per_item:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let usual = config(Representation::MultiLevel(Insertion::LeastLoad));
        let refused = |config: CompactConfig| config.check().expect_err("it cannot be");
        assert_eq!(refused(CompactConfig { items_max: 0, ..usual }), CompactConfigError::Items(0));
        assert_eq!(refused(CompactConfig { datagram_bytes_max: 9, ..usual }), CompactConfigError::DatagramBytes(9));
        let budget = CompactConfig { budget_bytes_per_second: Some(5), ..usual };
        assert_eq!(refused(budget), CompactConfigError::Budget(5));
        let never = CompactConfig { update: UpdateRule::Periodic(Duration::ZERO), ..usual };
        assert_eq!(refused(never), CompactConfigError::Period);
        let wide = refused(CompactConfig { fingerprint_bits: 24, ..usual });
        assert!(matches!(wide, CompactConfigError::Shape(_)), "{wide}");
        let many = refused(CompactConfig { items_max: 1 << 31, ..usual });
        assert!(matches!(many, CompactConfigError::Shape(_)), "{many}");
    }
}
