//! What is to be studied, and how.

use std::time::Duration;

use replication::compact::BATCH_DEFAULT;
use replication::representation::Start;
use serde::Serialize;

/// A way to replicate connections to a backup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Precise messages for every change that another node could need.
    PreciseEager,
    /// Precise messages for the changes of state that matter.
    PreciseSelective,
    /// Which hosts have established connections, in a filter.
    HostAggregate,
    /// Which connections are established, in a Bloom filter.
    FlowDigest,
    /// Fingerprints and states, in the first level that has room.
    MultiLevelFa,
    /// Fingerprints and states, in the bucket with the least load.
    MultiLevelLl,
    /// As `MultiLevelFa`, with symbols in place of what was sent before.
    MultiLevelFaSymbols,
    /// As `MultiLevelLl`, with symbols.
    MultiLevelLlSymbols,
    /// As `MultiLevelFa`, of established connections alone: two changes in a connection's lifetime, as a flow digest's.
    MultiLevelFaEstablished,
    /// Fingerprints and states, in subtables of one size.
    DLeft,
    /// States in the cells of a counting Bloom filter.
    CountingBloom,
}

impl Method {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 11] = [
        Self::PreciseEager,
        Self::PreciseSelective,
        Self::HostAggregate,
        Self::FlowDigest,
        Self::MultiLevelFa,
        Self::MultiLevelLl,
        Self::MultiLevelFaSymbols,
        Self::MultiLevelLlSymbols,
        Self::MultiLevelFaEstablished,
        Self::DLeft,
        Self::CountingBloom,
    ];

    /// Its name on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreciseEager => "precise-eager",
            Self::PreciseSelective => "precise-selective",
            Self::HostAggregate => "host-aggregate",
            Self::FlowDigest => "flow-digest",
            Self::MultiLevelFa => "multi-level-fa",
            Self::MultiLevelLl => "multi-level-ll",
            Self::MultiLevelFaSymbols => "multi-level-fa-symbols",
            Self::MultiLevelLlSymbols => "multi-level-ll-symbols",
            Self::MultiLevelFaEstablished => "multi-level-fa-established",
            Self::DLeft => "d-left",
            Self::CountingBloom => "counting-bloom",
        }
    }

    /// The method of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Whether it replicates connections by value, into the backup's own table.
    #[must_use]
    pub const fn is_precise(self) -> bool {
        matches!(self, Self::PreciseEager | Self::PreciseSelective)
    }

    /// Whether it replicates connections only while they are established.
    #[must_use]
    pub const fn is_membership(self) -> bool {
        matches!(self, Self::HostAggregate | Self::FlowDigest | Self::MultiLevelFaEstablished)
    }

    /// Whether a gateway can be configured so; the others are here to be compared with.
    #[must_use]
    pub const fn is_in_configuration(self) -> bool {
        !matches!(self, Self::MultiLevelFaEstablished | Self::DLeft | Self::CountingBloom)
    }

    /// Whether the study shows it over all lazy thresholds unless asked otherwise: one of each kind, for each takes memory.
    #[must_use]
    pub const fn is_shown_over_thresholds(self) -> bool {
        matches!(
            self,
            Self::PreciseEager
                | Self::PreciseSelective
                | Self::HostAggregate
                | Self::FlowDigest
                | Self::MultiLevelFa
                | Self::MultiLevelFaEstablished
        )
    }
}

/// The most lazy thresholds of a study.
pub const THRESHOLDS_MAX: usize = 16;
/// The most connections a study can follow at a time.
pub const CONNECTIONS_MAX: u32 = 16 << 20;
/// The most tuples that are asked for at a simulated failover, of each kind.
pub const PROBES_MAX: usize = 1_000_000;

/// Seconds between two updates of a flow digest in MLCBF (section 2.1.4).
pub const DIGEST_INTERVAL_OF_PAPER_S: f64 = 5.0;

/// What is to be studied, and how.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StudyConfig {
    /// What is compared.
    pub methods: Vec<Method>,
    /// Ages from which connections are replicated, in milliseconds: ascending, the first zero, at most
    /// [`THRESHOLDS_MAX`].
    pub thresholds_ms: Vec<u32>,
    /// Study every method at every threshold, not only one of each kind.
    pub has_all_thresholds: bool,
    /// Connections that each filter has room for, and that are followed at a time.
    pub connections_max: u32,
    /// How long a filter's changes wait for more to share their datagram (`replication.filter.interval` of a gateway).
    pub batch_ms: u32,
    /// Seconds between two updates of the flow digest and of the host aggregate. `None`: changes are sent at once, as a gateway sends them
    /// unless it is configured otherwise.
    pub digest_interval_s: Option<f64>,
    /// Connections are replicated from their first packet on, and establishments wait as other changes do: as MLCBF had it.
    pub as_in_the_paper: bool,
    /// Cells (or bits) per connection of the filters that have them; the rooms' own choice without this.
    pub counters_per_item: Option<u8>,
    /// Bits of a fingerprint; the rooms' own choice without this.
    pub fingerprint_bits: Option<u8>,
    /// Seconds of capture between two simulated failovers; there is one at the end in any case.
    pub failover_every_s: f64,
    /// Connections, and tuples of none, that the backup is asked for at a simulated failover.
    pub probes: usize,
    /// Threads that filters are divided among.
    pub workers: usize,
    /// Of what is drawn at random.
    pub seed: u64,
}

impl Default for StudyConfig {
    fn default() -> Self {
        Self {
            methods: Method::ALL.to_vec(),
            thresholds_ms: vec![0, 50, 100, 200, 320, 500, 650, 1000, 2000, 5000, 10_000, 20_000],
            has_all_thresholds: false,
            connections_max: 200_000,
            batch_ms: BATCH_DEFAULT.as_millis() as u32,
            digest_interval_s: None,
            as_in_the_paper: false,
            counters_per_item: None,
            fingerprint_bits: None,
            failover_every_s: 10.0,
            probes: 10_000,
            workers: 2,
            seed: 1,
        }
    }
}

/// A study cannot be made so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nothing to compare.
    #[error("name at least one method to study")]
    NoMethods,
    /// The thresholds are not in order.
    #[error("lazy thresholds must be at most {THRESHOLDS_MAX}, ascend, and begin with 0")]
    Thresholds,
    /// Some limit is zero or too large.
    #[error("{0} must be from {1} to {2}")]
    Range(&'static str, u64, u64),
    /// A filter of this kind cannot be made.
    #[error("{method} cannot be studied so: {cause}")]
    Filter {
        /// Which.
        method: &'static str,
        /// Why.
        cause: String,
    },
}

impl StudyConfig {
    /// Checks the limits.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.methods.is_empty() {
            return Err(ConfigError::NoMethods);
        }
        let thresholds = &self.thresholds_ms;
        let is_ascending = thresholds.windows(2).all(|pair| pair[0] < pair[1]);
        if thresholds.first() != Some(&0) || thresholds.len() > THRESHOLDS_MAX || !is_ascending {
            return Err(ConfigError::Thresholds);
        }
        let range = |name, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) { Ok(()) } else { Err(ConfigError::Range(name, least, most)) }
        };
        range("the number of connections", self.connections_max.into(), 16, CONNECTIONS_MAX.into())?;
        range("the number of probes", self.probes as u64, 1, PROBES_MAX as u64)?;
        range("the number of workers", self.workers as u64, 1, 64)?;
        // As whole milliseconds; what is no number becomes zero and is refused.
        range(
            "the digest's interval in milliseconds",
            (self.digest_interval_s.unwrap_or(DIGEST_INTERVAL_OF_PAPER_S) * 1e3) as u64,
            10,
            3_600_000,
        )?;
        range("the time between failovers in milliseconds", (self.failover_every_s * 1e3) as u64, 10, 86_400_000)?;
        range("the batch's milliseconds", self.batch_ms.into(), 0, 10_000)
    }

    /// From which packet on connections are replicated.
    pub(super) fn start(&self) -> Start {
        if self.as_in_the_paper { Start::FirstPacket } else { Start::default() }
    }

    /// The ages from which connections are replicated.
    pub(super) fn thresholds(&self) -> Vec<Duration> {
        self.thresholds_ms.iter().map(|millis| Duration::from_millis((*millis).into())).collect()
    }

    /// The thresholds at which a method is studied: how many, from the first on.
    pub(super) fn thresholds_of(&self, method: Method) -> usize {
        if self.has_all_thresholds || method.is_shown_over_thresholds() { self.thresholds_ms.len() } else { 1 }
    }
}
