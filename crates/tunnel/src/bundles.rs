//! The second stage: records that leave together are compressed together, by a library that this room does not know.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use flow::Instant;
use redundancy::second_stage::{self, BUNDLE_BYTES_MAX, Bundler, Compressor};

use super::record::Record;
use super::sender::Sender;

/// Makes the library whose number a bundle has; `None` if there is none.
pub type Library = fn(u8) -> Option<Box<dyn Compressor + Send>>;

/// How records are compressed together.
#[derive(Clone, Copy, Debug)]
pub struct SecondStage {
    /// The number of the library that is used for what is sent; `None`: nothing is compressed. Whatever the other end uses is
    /// expanded.
    pub stage: Option<u8>,
    /// How long records wait for others to be compressed with.
    pub gather: Duration,
    /// Where libraries come from.
    pub library: Library,
}

impl Default for SecondStage {
    /// No library, so nothing is compressed, and nothing compressed is understood.
    fn default() -> Self {
        Self { stage: None, gather: second_stage::GATHER_DEFAULT, library: |_| None }
    }
}

/// Bytes of records and of the bundles that they became.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct BundleCounters {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// Both ends of the second stage.
pub(super) struct Bundles {
    config: SecondStage,
    sending: Option<(Bundler, Box<dyn Compressor + Send>)>,
    expanding: Option<Box<dyn Compressor + Send>>,
    /// Of the records that are gathered: who wants to know of their arrival.
    tokens: Vec<u64>,
    bundle: Vec<u8>,
    record: Vec<u8>,
    counters: BundleCounters,
}

impl fmt::Debug for Bundles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundles").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Bundles {
    pub(super) fn new(config: SecondStage) -> Self {
        let sending = config.stage.and_then(config.library);
        Self {
            config,
            sending: sending.map(|library| (Bundler::new(config.gather, BUNDLE_BYTES_MAX), library)),
            expanding: None,
            tokens: Vec::new(),
            bundle: Vec::new(),
            record: Vec::new(),
            counters: BundleCounters::default(),
        }
    }

    /// Hands a record on to the sender, at once or in a bundle.
    pub(super) fn push(&mut self, now: Instant, record: &[u8], token: Option<u64>, sender: &mut Sender) {
        if let Some((bundler, _)) = &self.sending
            && !bundler.has_room(record.len())
        {
            self.flush(now, sender);
        }
        // What no bundle takes leaves by itself, behind all that was before it.
        let is_taken = self.sending.as_mut().is_some_and(|(bundler, _)| bundler.handle_packet(now, record).is_ok());
        if is_taken {
            self.tokens.extend(token);
        } else {
            self.flush(now, sender);
            sender.push_marked(now, record, token);
        }
    }

    fn flush(&mut self, now: Instant, sender: &mut Sender) {
        let Some((bundler, library)) = &mut self.sending else { return };
        if bundler.flush(library, &mut self.bundle) {
            self.record.clear();
            Record::Bundle(&self.bundle).write(&mut self.record);
            let [high, low] = [self.bundle[2], self.bundle[3]];
            self.counters.bytes_in += u64::from(u16::from_be_bytes([high, low]));
            self.counters.bytes_out += self.record.len() as u64;
            sender.push_marked(now, &self.record, self.tokens.drain(..));
        }
    }

    /// Opens a bundle: its records follow one another in what is returned, as [`second_stage::read`] has them. `None`: it is not
    /// understood.
    pub(super) fn open(&mut self, bundle: &[u8]) -> Option<Vec<u8>> {
        let stage = *bundle.get(1)?;
        let is_other = self.expanding.as_ref().is_none_or(|library| library.stage() != stage);
        if is_other && stage != 0 {
            self.expanding = (self.config.library)(stage);
        }
        let mut records = Vec::new();
        let opened = match &mut self.expanding {
            Some(library) => second_stage::open(bundle, library, &mut records),
            None => second_stage::open(bundle, &mut NoLibrary, &mut records),
        };
        opened.is_ok().then_some(records)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, sender: &mut Sender) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.flush(now, sender);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.sending.as_ref().and_then(|(bundler, _)| bundler.poll_timeout())
    }

    pub(super) const fn counters(&self) -> BundleCounters {
        self.counters
    }
}

/// What expands nothing.
struct NoLibrary;

impl Compressor for NoLibrary {
    fn stage(&self) -> u8 {
        0
    }

    fn compress(&mut self, _: &[u8], _: &mut Vec<u8>) -> bool {
        false
    }

    fn expand(&mut self, _: &[u8], _: usize, _: &mut Vec<u8>) -> bool {
        false
    }
}
