//! SAMPLEBYTE with a table that is trained on the traffic itself (seed, section 4.3): on its beginning, as a gateway would be that is
//! put there, and used on all of it.

use redundancy::{SampleTable, Sampling};
use serde::{Deserialize, Serialize};

use super::analysis::Analysis;
use super::limits::TRAINING_BYTES;
use super::link::{Link, sampling};
use super::options::Codec;
use super::packet::{Packet, SiteDirection};
use super::tally::Savings;
use super::training::Training;

/// What was found.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct TrainedOutcome {
    pub savings: Savings,
    /// The tables, by way; empty where nothing was sent.
    pub tables: [Vec<u8>; 2],
}

impl TrainedOutcome {
    /// Those of two sites together. Each has tables of its own: shown are those of the first.
    pub(super) fn merge(&mut self, other: &Self) {
        self.savings.merge(&other.savings);
        for (own, other) in self.tables.iter_mut().zip(&other.tables) {
            if own.is_empty() {
                own.clone_from(other);
            }
        }
    }
}

/// Packets with their payloads.
type Waiting = Vec<(Packet, Vec<u8>)>;

/// Packets wait until there are enough of their way to train on, and are encoded then.
pub(super) struct TrainedAnalysis {
    link: Link,
    sampling: Option<Sampling>,
    cache_bytes: usize,
    skips_encrypted: bool,
    waiting: [Option<Waiting>; 2],
    waiting_bytes: [usize; 2],
    outcome: TrainedOutcome,
}

impl TrainedAnalysis {
    pub(super) fn new(codec: &Codec, skips_encrypted: bool) -> Self {
        Self {
            link: Link::new(*codec, skips_encrypted),
            sampling: sampling(codec),
            cache_bytes: codec.cache_bytes,
            skips_encrypted,
            waiting: [const { Some(Vec::new()) }; 2],
            waiting_bytes: [0; 2],
            outcome: TrainedOutcome::default(),
        }
    }

    fn encode(&mut self, packet: &Packet, payload: &[u8]) {
        let (_, saved) = self.link.encode(packet, payload);
        self.outcome.savings.add(packet, payload.len(), saved);
    }

    fn train(&mut self, way: SiteDirection) {
        let Some(waiting) = self.waiting[way as usize].take() else { return };
        let has_payload = waiting.iter().any(|(_, payload)| !payload.is_empty());
        if let Some(sampling) = self.sampling.clone().filter(|_| has_payload) {
            let mut training = Training::new(self.cache_bytes, sampling);
            for (packet, payload) in &waiting {
                if !packet.is_left_out(self.skips_encrypted) {
                    training.add(payload);
                }
            }
            let table: SampleTable = training.finish();
            self.outcome.tables[way as usize] = table.bytes().collect();
            self.link.set_table(way, table);
        }
        waiting.iter().for_each(|(packet, payload)| self.encode(packet, payload));
    }
}

impl Analysis for TrainedAnalysis {
    type Outcome = TrainedOutcome;

    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        let way = packet.way as usize;
        match &mut self.waiting[way] {
            None => self.encode(packet, payload),
            Some(waiting) => {
                waiting.push((packet.clone(), payload.to_vec()));
                // A packet without payload is not for nothing either.
                self.waiting_bytes[way] += payload.len().max(size_of::<Packet>());
                if self.waiting_bytes[way] >= TRAINING_BYTES {
                    self.train(packet.way);
                }
            }
        }
    }

    fn finish(mut self) -> TrainedOutcome {
        SiteDirection::ALL.into_iter().for_each(|way| self.train(way));
        self.outcome
    }
}
