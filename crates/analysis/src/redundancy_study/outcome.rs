//! A job at work, and what comes of it.

use flow::Instant;
use redundancy::Window;
use redundancy::optimal::Optimal;
use redundancy::second_stage::{BUNDLE_BYTES_MAX, Bundler, GATHER_DEFAULT};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

use super::compressors::{Library, Squeezer};
use super::end_hosts::{EndHosts, EndHostsOutcome};
use super::http::{HttpAnalysis, HttpOutcome};
use super::ledger::{Ledger, LedgerOutcome};
use super::link::Link;
use super::microscope::{Microscope, MicroscopeOutcome};
use super::options::{Codec, Options};
use super::packet::{Packet, Way};
use super::plan::Job;
use super::tally::{Savings, Tally};
use super::trained::{TrainedAnalysis, TrainedOutcome};

/// What sees every packet of a site, in order.
pub(super) trait Analysis: Send {
    fn handle(&mut self, packet: &Packet, payload: &[u8]);

    fn finish(self: Box<Self>) -> Outcome;
}

/// What came of a job: whole numbers, so that it is the same after it was written and read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// What there is.
    Ledger(LedgerOutcome),
    /// What is saved.
    Savings(Savings),
    /// What two stages save.
    Stages(StagesOutcome),
    /// Where it comes from.
    Microscope(Box<MicroscopeOutcome>),
    /// HTTP.
    Http(HttpOutcome),
    /// What could be saved.
    Bound(BoundOutcome),
    /// What is saved with a table of one's own.
    Trained(TrainedOutcome),
    /// What end hosts would need.
    EndHosts(EndHostsOutcome),
}

impl Job {
    /// Begins it.
    pub(super) fn begin(&self, options: &Options) -> Box<dyn Analysis> {
        let link = |codec: &Codec| Link::new(*codec, options.skips_encrypted);
        match self {
            Self::Ledger => Box::new(Ledger::default()),
            Self::Savings(codec) => Box::new(CodecAnalysis { link: link(codec), savings: Savings::default() }),
            Self::Optimal { window_bytes, cache_bytes } => Box::new(OptimalAnalysis {
                window: Window::new(*window_bytes).unwrap_or(Window::DEFAULT),
                cache_bytes: *cache_bytes,
                skips_encrypted: options.skips_encrypted,
                bounds: [None, None],
                outcome: BoundOutcome::default(),
            }),
            Self::Stages(codec, library) => Box::new(StagesAnalysis::new(codec.as_ref().map(link), *library)),
            Self::Microscope(codec) => Box::new(Microscope::new(link(codec), codec)),
            Self::Http(codec) => Box::new(HttpAnalysis::new(link(codec))),
            Self::Trained(codec) => Box::new(TrainedAnalysis::new(codec, options.skips_encrypted)),
            Self::EndHosts => Box::new(EndHosts::default()),
        }
    }
}

struct CodecAnalysis {
    link: Link,
    savings: Savings,
}

impl Analysis for CodecAnalysis {
    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        let (_, saved) = self.link.encode(packet, payload);
        self.savings.add(packet, payload.len(), saved);
    }

    fn finish(self: Box<Self>) -> Outcome {
        Outcome::Savings(self.savings)
    }
}

/// What could be saved at most.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct BoundOutcome {
    /// Of what repeats between packets: the seed's bound.
    pub between: Savings,
    /// With what repeats within a packet.
    pub with_own: Tally,
}

struct OptimalAnalysis {
    window: Window,
    cache_bytes: usize,
    skips_encrypted: bool,
    bounds: [Option<Box<Optimal>>; 2],
    outcome: BoundOutcome,
}

impl Analysis for OptimalAnalysis {
    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        let new = || Box::new(Optimal::new(self.cache_bytes, self.window));
        let bound = self.bounds[packet.way as usize].get_or_insert_with(new);
        // Shims that gain nothing are no part of a bound: an encoder may do without.
        let [between, with_own] = if packet.is_left_out(self.skips_encrypted) {
            [0; 2]
        } else {
            let between = bound.handle_block(payload);
            [between, bound.last_with_own()].map(|saved| saved.max(0) as i64)
        };
        self.outcome.between.add(packet, payload.len(), between);
        self.outcome.with_own.add(packet, payload.len(), with_own);
    }

    fn finish(self: Box<Self>) -> Outcome {
        Outcome::Bound(self.outcome)
    }
}

/// What a codec and a library after it save.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct StagesOutcome {
    /// Each packet compressed by itself.
    pub by_packet: Tally,
    /// Packets of 10 ms compressed together.
    pub gathered: Tally,
}

impl StagesOutcome {
    /// Those of two sites together.
    pub(super) fn merge(&mut self, other: &Self) {
        self.by_packet.merge(&other.by_packet);
        self.gathered.merge(&other.gathered);
    }
}

struct StagesAnalysis {
    link: Option<Link>,
    stages: [SecondStage; 2],
    tallies: [Tally; 2],
}

impl StagesAnalysis {
    fn new(link: Option<Link>, library: Library) -> Self {
        let stages = [Duration::ZERO, GATHER_DEFAULT].map(|gather| SecondStage::new(library, gather));
        Self { link, stages, tallies: [Tally::default(); 2] }
    }
}

impl Analysis for StagesAnalysis {
    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        let sent = self.link.as_mut().map_or(payload, |link| link.encode(packet, payload).0);
        let gained = payload.len() as i64 - sent.len() as i64;
        for (stage, tally) in self.stages.iter_mut().zip(&mut self.tallies) {
            tally.add(packet, payload.len(), gained + stage.handle(packet.at, packet.way, sent));
        }
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        for (stage, tally) in self.stages.iter_mut().zip(&mut self.tallies) {
            tally.saved_bytes += stage.finish();
        }
        let [by_packet, gathered] = self.tallies;
        Outcome::Stages(StagesOutcome { by_packet, gathered })
    }
}

/// A library behind bundlers, one for each way.
pub(super) struct SecondStage {
    squeezer: Squeezer,
    bundlers: [Bundler; 2],
    /// Bytes gathered and not sent, by way.
    gathered_bytes: [usize; 2],
    out: Vec<u8>,
}

impl SecondStage {
    pub(super) fn new(library: Library, gather: Duration) -> Self {
        let bundlers = Way::ALL.map(|_| Bundler::new(gather, BUNDLE_BYTES_MAX));
        Self { squeezer: Squeezer::new(library), bundlers, gathered_bytes: [0; 2], out: Vec::new() }
    }

    /// Takes a packet. Returns what was saved of those that left.
    pub(super) fn handle(&mut self, now: Instant, way: Way, packet: &[u8]) -> i64 {
        if packet.is_empty() {
            return 0;
        }
        let is_due = self.bundlers[way as usize].poll_timeout().is_some_and(|due| due <= now);
        let is_full = !self.bundlers[way as usize].has_room(packet.len());
        let mut saved = if is_due || is_full { self.flush(way) } else { 0 };
        // What is too long for a bundle goes without.
        if self.bundlers[way as usize].handle_packet(now, packet).is_ok() {
            self.gathered_bytes[way as usize] += packet.len();
        }
        if self.bundlers[way as usize].poll_timeout().is_some_and(|due| due <= now) {
            saved += self.flush(way);
        }
        saved
    }

    /// What did not become smaller goes as it is, without a bundle.
    fn flush(&mut self, way: Way) -> i64 {
        let before = std::mem::take(&mut self.gathered_bytes[way as usize]);
        let is_sent = self.bundlers[way as usize].flush(&mut self.squeezer, &mut self.out);
        if is_sent { before.saturating_sub(self.out.len()) as i64 } else { 0 }
    }

    pub(super) fn finish(&mut self) -> i64 {
        Way::ALL.into_iter().map(|way| self.flush(way)).sum()
    }
}

/// Counts by magnitude: four bins for each doubling.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct Magnitudes(BTreeMap<u32, [u64; 2]>);

impl Magnitudes {
    /// Counts a value, and what weighs with it.
    pub(super) fn add(&mut self, value: u64, count: u64, weight: u64) {
        let [counted, weighed] = self.0.entry(bin_of(value)).or_default();
        *counted += count;
        *weighed += weight;
    }

    /// Those of two sites together.
    pub(super) fn merge(&mut self, other: &Self) {
        for (bin, other) in &other.0 {
            let own = self.0.entry(*bin).or_default();
            own[0] += other[0];
            own[1] += other[1];
        }
    }

    /// The least value that lies beyond each bin, the bin's count and weight; ascending.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, [u64; 2])> + '_ {
        self.0.iter().map(|(bin, counts)| (bin_end(*bin), *counts))
    }
}

/// 0 to 3 are bins by themselves.
const fn bin_of(value: u64) -> u32 {
    if value < 4 {
        return value as u32;
    }
    let exponent = 63 - value.leading_zeros();
    exponent * 4 + ((value >> (exponent - 2)) & 3) as u32 - 4
}

const fn bin_end(bin: u32) -> u64 {
    if bin < 4 {
        return bin as u64 + 1;
    }
    let (exponent, part) = ((bin + 4) / 4, (bin + 4) % 4);
    (5 + part as u64).saturating_mul(1 << (exponent - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_before_the_end_of_its_bin_and_not_before_that_of_the_one_below() {
        for value in (0..5000).chain([1 << 20, (1 << 40) - 1, 7 << 50]) {
            let bin = bin_of(value);
            assert!(value < bin_end(bin), "{value}");
            assert!(bin == 0 || value >= bin_end(bin - 1), "{value}");
        }
    }

    #[test]
    fn packets_of_ten_milliseconds_are_compressed_together_and_none_is_left_behind() {
        let text = b"which is the same again and again".repeat(10);
        let mut stage = SecondStage::new(Library::Gzip, GATHER_DEFAULT);
        let mut alone = SecondStage::new(Library::Gzip, Duration::ZERO);
        let mut saved = [0; 2];
        for ms in 0..30 {
            saved[0] += stage.handle(Instant::from_millis(ms), Way::Inbound, &text);
            saved[1] += alone.handle(Instant::from_millis(ms), Way::Inbound, &text);
        }
        assert_eq!(alone.finish(), 0, "nothing waits where nothing is gathered");
        saved[0] += stage.finish();
        let all = 30 * text.len() as i64;
        assert!(saved[0] > saved[1] && saved[1] > all / 2 && saved[0] < all, "{saved:?} of {all}");
    }
}
