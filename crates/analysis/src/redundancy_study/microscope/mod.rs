//! Where redundancy comes from (seed, section 2.4), and when (section 2.3).

mod chunks;
mod owners;
mod timeline;
mod wavelet;

use std::collections::BTreeMap;

use redundancy::wire::shim::POINTER_BYTES;
use serde::{Deserialize, Serialize};

use self::chunks::{Chunks, milliseconds};
pub(super) use self::chunks::{ChunksOutcome, ZipfFit};
pub(super) use self::owners::Origin;
use self::owners::{Owner, Owners};
pub(super) use self::timeline::{Timeline, UsageSaved};
use self::wavelet::Wavelet;
pub(super) use self::wavelet::{BIN_NANOS, Scale};
use super::analysis::Analysis;
use super::link::Link;
use super::magnitudes::Magnitudes;
use super::options::Codec;
use super::packet::{Packet, SiteDirection};
use super::tally::Savings;

/// Matches are counted by length in steps of so many bytes.
pub(super) const LENGTH_STEP_BYTES: usize = 50;
/// Distances are counted in so many parts of the cache.
pub(super) const DISTANCE_PARTS: usize = 100;

/// What was found. Bytes are those that matches save: their lengths less their pointers.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct MicroscopeOutcome {
    /// What was saved in all.
    pub savings: Savings,
    /// Matches.
    pub matches: u64,
    /// Bytes by who sent the copy that was found, the latest.
    pub origins: BTreeMap<Origin, u64>,
    /// Bytes by who was the first to send them, as far as the cache reached when they were first found again. Of those chunks
    /// that were counted.
    pub first_senders: BTreeMap<Origin, u64>,
    /// Bytes of retransmissions among what came from the same flow.
    pub repeated: u64,
    /// Bytes from the same two hosts whose source port was the same too: the same server program.
    pub same_source_port: u64,
    /// Matches and bytes by length, the step's number first.
    pub lengths: BTreeMap<usize, [u64; 2]>,
    /// Matches within a packet, and bytes: they need no cache, and are none of the others.
    pub within_packets: [u64; 2],
    /// Matches of whole payloads, and bytes.
    pub whole: [u64; 2],
    /// Bytes by how far back in the cache the copy lay, in hundredths of the cache.
    pub distances: BTreeMap<usize, u64>,
    /// Matches and bytes by the milliseconds since the copy was sent.
    pub ages: Magnitudes,
    /// Chunks and how often each was found.
    pub chunks: ChunksOutcome,
    /// Bytes over time, without and with redundancy elimination, by way.
    pub timelines: [Timeline; 2],
    /// Energy by scale, without and with redundancy elimination, by way.
    pub scales: [[Vec<Scale>; 2]; 2],
}

impl MicroscopeOutcome {
    /// Those of two sites together. What has its time stays each site's own: times of different links are no sum.
    pub(super) fn merge(&mut self, other: &Self) {
        self.savings.merge(&other.savings);
        self.matches += other.matches;
        for (own, other) in [(&mut self.origins, &other.origins), (&mut self.first_senders, &other.first_senders)] {
            other.iter().for_each(|(origin, bytes)| *own.entry(*origin).or_default() += bytes);
        }
        self.repeated += other.repeated;
        self.same_source_port += other.same_source_port;
        for (step, [matches, bytes]) in &other.lengths {
            let own = self.lengths.entry(*step).or_default();
            *own = [own[0] + matches, own[1] + bytes];
        }
        let within = other.within_packets;
        self.within_packets = [self.within_packets[0] + within[0], self.within_packets[1] + within[1]];
        self.whole = [self.whole[0] + other.whole[0], self.whole[1] + other.whole[1]];
        other.distances.iter().for_each(|(part, bytes)| *self.distances.entry(*part).or_default() += bytes);
        self.ages.merge(&other.ages);
        self.chunks.merge(&other.chunks);
    }
}

pub(super) struct Microscope {
    link: Link,
    cache_bytes: u64,
    outcome: MicroscopeOutcome,
    owners: [Owners; 2],
    chunks: Chunks,
    wavelets: [[Wavelet; 2]; 2],
}

impl Microscope {
    pub(super) fn new(link: Link, codec: &Codec) -> Self {
        let cache_bytes = codec.cache_bytes as u64;
        Self {
            link,
            cache_bytes,
            outcome: MicroscopeOutcome::default(),
            owners: SiteDirection::ALL.map(|_| Owners::new(cache_bytes)),
            chunks: Chunks::default(),
            wavelets: Default::default(),
        }
    }

    fn look_at_matches(&mut self, packet: &Packet, payload: &[u8]) {
        let Some(encoder) = self.link.encoder(packet.way) else { return };
        let Some(number) = encoder.last_number() else { return };
        let here = Owner::of(number, packet);
        let owners = &mut self.owners[packet.way as usize];
        for (range, position) in encoder.last_pointers() {
            let saved = (range.len() as u64).saturating_sub(POINTER_BYTES as u64);
            let outcome = &mut self.outcome;
            if position >= here.position() {
                let [matches, bytes] = &mut outcome.within_packets;
                (*matches, *bytes) = (*matches + 1, *bytes + saved);
                continue;
            }
            let Some(owner) = owners.owner_of(position) else { continue };
            let bytes = &payload[range.clone()];
            outcome.matches += 1;
            let origin = here.origin_from(owner);
            *outcome.origins.entry(origin).or_default() += saved;
            if origin == Origin::IntraFlow && packet.is_repeated {
                outcome.repeated += saved;
            }
            if origin <= Origin::InterFlow && owner.source_port == packet.source_port {
                outcome.same_source_port += saved;
            }
            let step = outcome.lengths.entry((range.len() - 1) / LENGTH_STEP_BYTES).or_default();
            *step = [step[0] + 1, step[1] + saved];
            if range.len() == payload.len() {
                outcome.whole = [outcome.whole[0] + 1, outcome.whole[1] + saved];
            }
            let distance = here.position() - position;
            let part = (distance * DISTANCE_PARTS as u64 / self.cache_bytes) as usize;
            *outcome.distances.entry(part.min(DISTANCE_PARTS - 1)).or_default() += saved;
            outcome.ages.add(milliseconds(owner.at, packet.at), 1, saved);
            if let Some(first) = self.chunks.hit(bytes, packet, saved, owner) {
                *outcome.first_senders.entry(here.origin_from(&first)).or_default() += saved;
            }
        }
        owners.push(here);
    }
}

impl Analysis for Microscope {
    type Outcome = MicroscopeOutcome;

    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        let (_, saved) = self.link.encode(packet, payload);
        self.outcome.savings.add(packet, payload.len(), saved);
        if !payload.is_empty() {
            self.look_at_matches(packet, payload);
        }
        let before = u64::from(packet.ip_bytes);
        let volumes = [before, before.saturating_add_signed(-saved)];
        self.outcome.timelines[packet.way as usize].add(packet.at, volumes);
        for (wavelet, bytes) in self.wavelets[packet.way as usize].iter_mut().zip(volumes) {
            wavelet.add(packet.at, bytes);
        }
    }

    fn finish(self) -> MicroscopeOutcome {
        let mut outcome = self.outcome;
        outcome.chunks = self.chunks.finish();
        outcome.scales = self.wavelets.map(|way| way.map(Wavelet::finish));
        outcome
    }
}
