//! A filter, and the backup's copy of it at the other end of a link without loss.

use std::time::Duration;

use filters::Insertion;
use flow::{Instant, NodeId, Tuple};
use replication::compact::{
    CellState, CompactConfig, CompactConfigError, CompactReceiver, CompactSender, CompactSenderStatus, Known,
    ReceiverLimits, Representation, UpdateRule, filter_content_bytes,
};

use super::config::{Method, StudyConfig};
use super::precise::IP_AND_UDP_BYTES;

const BACKUP: NodeId = NodeId(1);
/// Words of the largest filter that a backup takes here: a gigabyte.
const WORDS_MAX: usize = 1 << 28;

/// What a filter and its copy have exchanged, with IP and UDP headers.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Exchanged {
    /// Bytes of updates.
    pub(super) bytes: u64,
    /// Of these, what stands behind all headers.
    pub(super) content_bytes: u64,
    /// Datagrams of updates.
    pub(super) datagrams: u64,
    /// Bytes of all other datagrams of the sender: they compare the copy with the filter.
    pub(super) checking_bytes: u64,
    /// Bytes of the backup's datagrams.
    pub(super) bytes_back: u64,
}

impl Exchanged {
    /// Counts a datagram of the filter's sender. Only an update has content.
    pub(super) const fn count_sent(&mut self, datagram_bytes: usize, content_bytes: usize) {
        let bytes = datagram_bytes as u64 + IP_AND_UDP_BYTES;
        if content_bytes == 0 {
            self.checking_bytes += bytes;
        } else {
            self.bytes += bytes;
            self.content_bytes += content_bytes as u64;
            self.datagrams += 1;
        }
    }

    /// Counts a datagram of the backup.
    pub(super) const fn count_answer(&mut self, datagram_bytes: usize) {
        self.bytes_back += datagram_bytes as u64 + IP_AND_UDP_BYTES;
    }
}

/// A filter and its copy.
pub(super) trait Pair: Send {
    /// Bytes of the whole filter as it is sent.
    fn filter_bytes(&self) -> usize;

    /// A connection begins.
    fn insert(&mut self, tuple: &Tuple, state: CellState);

    /// A connection's state changes.
    fn modify(&mut self, tuple: &Tuple, before: CellState, after: CellState);

    /// A connection ends.
    fn remove(&mut self, tuple: &Tuple, state: CellState);

    /// Time has passed for the filter: the batch of its first change begins.
    fn handle_timeout(&mut self, now: Instant);

    /// When to exchange datagrams, if nothing changes before.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Sends and receives all datagrams that are due.
    fn exchange(&mut self, now: Instant, exchanged: &mut Exchanged);

    /// What the copy knows of a connection.
    fn lookup(&self, tuple: &Tuple) -> Option<Known>;

    /// The filter's figures.
    fn status(&self) -> CompactSenderStatus;

    /// The share of cells taken in each level; empty for filters without levels.
    fn loads_by_level(&self) -> Vec<f64>;

    /// Memory of the copy, in bytes.
    fn backup_bytes(&self) -> usize;
}

/// The filter of a node: its own sender, and the receiver of its peer.
pub(super) struct NodePair {
    filter_bytes: usize,
    sender: CompactSender,
    receiver: CompactReceiver,
    datagram: Vec<u8>,
}

impl NodePair {
    pub(super) fn new(config: &StudyConfig, method: Method) -> Result<Self, CompactConfigError> {
        let compact = compact_config(config, method);
        Ok(Self {
            filter_bytes: compact.filter_bytes()?,
            sender: CompactSender::new(compact, &[BACKUP])?,
            receiver: CompactReceiver::new(ReceiverLimits { words_max: WORDS_MAX }, config.seed),
            datagram: Vec::new(),
        })
    }
}

impl Pair for NodePair {
    fn filter_bytes(&self) -> usize {
        self.filter_bytes
    }

    fn insert(&mut self, tuple: &Tuple, state: CellState) {
        self.sender.insert(tuple, state);
    }

    fn modify(&mut self, tuple: &Tuple, before: CellState, after: CellState) {
        self.sender.modify(tuple, before, after);
    }

    fn remove(&mut self, tuple: &Tuple, state: CellState) {
        self.sender.remove(tuple, state);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.sender.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.sender.poll_timeout(), self.receiver.poll_timeout()].into_iter().flatten().min()
    }

    fn exchange(&mut self, now: Instant, exchanged: &mut Exchanged) {
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
        loop {
            let mut is_quiet = true;
            while self.sender.poll_transmit(now, BACKUP, &mut self.datagram) {
                is_quiet = false;
                exchanged.count_sent(self.datagram.len(), filter_content_bytes(&self.datagram));
                self.receiver.handle_datagram(now, &self.datagram).expect("a sender of ours is understood");
            }
            while self.receiver.poll_transmit(now, &mut self.datagram) {
                is_quiet = false;
                exchanged.count_answer(self.datagram.len());
                self.sender.handle_datagram(now, BACKUP, &self.datagram).expect("a receiver of ours is understood");
            }
            if is_quiet {
                break;
            }
        }
    }

    fn lookup(&self, tuple: &Tuple) -> Option<Known> {
        self.receiver.lookup(tuple)
    }

    fn status(&self) -> CompactSenderStatus {
        self.sender.status()
    }

    fn loads_by_level(&self) -> Vec<f64> {
        self.sender.loads_by_level()
    }

    fn backup_bytes(&self) -> usize {
        self.receiver.memory_bytes()
    }
}

/// The secret of the study's filters: drawn from its seed, so that a study can be made again.
pub(super) const fn secret(config: &StudyConfig) -> [u64; 2] {
    [config.seed ^ 0x5ec0_11ab_0f5e_c2e7, config.seed.rotate_left(32) ^ 0x1357_9bdf_0246_8ace]
}

pub(super) fn compact_config(config: &StudyConfig, method: Method) -> CompactConfig {
    let representation = match method {
        Method::HostAggregate => Representation::HostAggregate,
        Method::FlowDigest => Representation::FlowDigest,
        Method::MultiLevelLl | Method::MultiLevelLlSymbols => Representation::MultiLevel(Insertion::LeastLoad),
        _ => Representation::MultiLevel(Insertion::FirstAvailable),
    };
    let mut compact = CompactConfig::new(representation, config.connections_max.into(), secret(config));
    compact.symbols = matches!(method, Method::MultiLevelFaSymbols | Method::MultiLevelLlSymbols);
    compact.update = match (method, config.digest_interval_s) {
        (Method::HostAggregate | Method::FlowDigest, Some(seconds)) => {
            UpdateRule::Periodic(Duration::from_secs_f64(seconds))
        }
        _ => UpdateRule::Immediate {
            batch: Duration::from_millis(config.batch_ms.into()),
            // In the paper every change waits.
            establishment_at_once: !config.as_in_the_paper,
        },
    };
    if let Some(counters) = config.counters_per_item {
        compact.counters_per_item = counters;
    }
    if let Some(bits) = config.fingerprint_bits {
        compact.fingerprint_bits = bits;
    }
    compact
}
