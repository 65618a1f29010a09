//! What comes of a job, and the jobs that are a few lines.

use std::time::Duration;

use redundancy::Window;
use redundancy::second_stage::GATHER_DEFAULT;
use serde::{Deserialize, Serialize};

use super::analysis::Analysis;
use super::compressors::Library;
use super::end_hosts::{EndHosts, EndHostsOutcome};
use super::http::{HttpAnalysis, HttpOutcome};
use super::ledger::{Ledger, LedgerOutcome};
use super::link::Link;
use super::microscope::{Microscope, MicroscopeOutcome};
use super::optimal::Optimal;
use super::options::{Codec, Options};
use super::packet::Packet;
use super::plan::Job;
use super::second_stage::SecondStage;
use super::tally::{Savings, Tally};
use super::trained::{TrainedAnalysis, TrainedOutcome};

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

/// An analysis at work, whatever comes of it.
pub(super) trait AnyAnalysis: Send {
    fn handle(&mut self, packet: &Packet, payload: &[u8]);

    fn finish(self: Box<Self>) -> Outcome;
}

/// An analysis, and how its outcome becomes one of all.
struct Erased<A: Analysis> {
    analysis: A,
    outcome: fn(A::Outcome) -> Outcome,
}

impl<A: Analysis> AnyAnalysis for Erased<A> {
    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        self.analysis.handle(packet, payload);
    }

    fn finish(self: Box<Self>) -> Outcome {
        (self.outcome)(self.analysis.finish())
    }
}

fn erase<A: Analysis + 'static>(analysis: A, outcome: fn(A::Outcome) -> Outcome) -> Box<dyn AnyAnalysis> {
    Box::new(Erased { analysis, outcome })
}

impl Job {
    /// Begins it.
    pub(super) fn begin(&self, options: &Options) -> Box<dyn AnyAnalysis> {
        let link = |codec: &Codec| Link::new(*codec, options.skips_encrypted);
        match self {
            Self::Ledger => erase(Ledger::default(), Outcome::Ledger),
            Self::Savings(codec) => {
                erase(CodecAnalysis { link: link(codec), savings: Savings::default() }, Outcome::Savings)
            }
            Self::Optimal { window_bytes, cache_bytes } => {
                let window = Window::new(*window_bytes).unwrap_or(Window::DEFAULT);
                erase(OptimalAnalysis::new(window, *cache_bytes, options.skips_encrypted), Outcome::Bound)
            }
            Self::Stages(codec, library) => {
                erase(StagesAnalysis::new(codec.as_ref().map(link), *library), Outcome::Stages)
            }
            Self::Microscope(codec) => {
                erase(Microscope::new(link(codec), codec), |found| Outcome::Microscope(Box::new(found)))
            }
            Self::Http(codec) => erase(HttpAnalysis::new(link(codec)), Outcome::Http),
            Self::Trained(codec) => erase(TrainedAnalysis::new(codec, options.skips_encrypted), Outcome::Trained),
            Self::EndHosts => erase(EndHosts::default(), Outcome::EndHosts),
        }
    }
}

struct CodecAnalysis {
    link: Link,
    savings: Savings,
}

impl Analysis for CodecAnalysis {
    type Outcome = Savings;

    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        let (_, saved) = self.link.encode(packet, payload);
        self.savings.add(packet, payload.len(), saved);
    }

    fn finish(self) -> Savings {
        self.savings
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

impl OptimalAnalysis {
    fn new(window: Window, cache_bytes: usize, skips_encrypted: bool) -> Self {
        Self { window, cache_bytes, skips_encrypted, bounds: [None, None], outcome: BoundOutcome::default() }
    }
}

impl Analysis for OptimalAnalysis {
    type Outcome = BoundOutcome;

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

    fn finish(self) -> BoundOutcome {
        self.outcome
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
    type Outcome = StagesOutcome;

    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        let sent = self.link.as_mut().map_or(payload, |link| link.encode(packet, payload).0);
        let gained = payload.len() as i64 - sent.len() as i64;
        for (stage, tally) in self.stages.iter_mut().zip(&mut self.tallies) {
            tally.add(packet, payload.len(), gained + stage.handle(packet.at, packet.way, sent));
        }
    }

    fn finish(mut self) -> StagesOutcome {
        for (stage, tally) in self.stages.iter_mut().zip(&mut self.tallies) {
            tally.saved_bytes += stage.finish();
        }
        let [by_packet, gathered] = self.tallies;
        StagesOutcome { by_packet, gathered }
    }
}
