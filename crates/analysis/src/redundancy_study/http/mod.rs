//! HTTP's objects compressed one by one, beside redundancy elimination on the same packets (seed, table 2.5).

mod object;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;

use flow::wire::tcp_flags;
use redundancy::second_stage::GATHER_DEFAULT;
use serde::{Deserialize, Serialize};

use self::object::Found;
use self::stream::Stream;
use super::analysis::Analysis;
use super::compressors::{Library, Squeezer};
use super::limits::{HTTP_PIECE_BYTES_MAX, HTTP_STREAMS_MAX};
use super::link::Link;
use super::packet::Packet;
use super::protocol::HTTP;
use super::second_stage::SecondStage;
use super::tally::Tally;

/// What was found.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct HttpOutcome {
    /// All packets of HTTP's ports, and what a codec that sees only them saves.
    pub codec: Tally,
    /// What gzip over 10 ms saves after it, both together.
    pub codec_gzip: Tally,
    /// Objects that came whole.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Objects that are compressed already by their header, and their bytes.
    pub compressed_already: [u64; 2],
    /// Bytes that gzip saves, objects compressed one by one.
    pub saved_by_gzip: u64,
    /// Bytes that zstd saves.
    pub saved_by_zstd: u64,
    /// Objects of which something is missing in the capture, or whose stream was displaced by another.
    pub lost: u64,
}

impl HttpOutcome {
    /// Those of two sites together.
    pub(super) fn merge(&mut self, other: &Self) {
        self.codec.merge(&other.codec);
        self.codec_gzip.merge(&other.codec_gzip);
        self.objects += other.objects;
        self.object_bytes += other.object_bytes;
        for (own, other) in self.compressed_already.iter_mut().zip(other.compressed_already) {
            *own += other;
        }
        self.saved_by_gzip += other.saved_by_gzip;
        self.saved_by_zstd += other.saved_by_zstd;
        self.lost += other.lost;
    }
}

type StreamKey = (IpAddr, u16, IpAddr, u16);

#[derive(Debug)]
struct Kept {
    stream: Stream,
    /// The packet that it last had, by number.
    used: u64,
}

pub(super) struct HttpAnalysis {
    link: Link,
    stage: SecondStage,
    squeezers: [Squeezer; 2],
    streams: HashMap<StreamKey, Kept>,
    packets: u64,
    outcome: HttpOutcome,
    scratch: Vec<u8>,
}

impl HttpAnalysis {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            stage: SecondStage::new(Library::Gzip, GATHER_DEFAULT),
            squeezers: [Library::Gzip, Library::Zstd].map(Squeezer::new),
            streams: HashMap::new(),
            packets: 0,
            outcome: HttpOutcome::default(),
            scratch: Vec::new(),
        }
    }

    /// What servers send.
    fn follow(&mut self, packet: &Packet, payload: &[u8]) {
        let Some((sequence, flags)) = packet.tcp else { return };
        let key = (packet.source, packet.source_port, packet.destination, packet.destination_port);
        let is_new = !self.streams.contains_key(&key);
        if is_new && payload.is_empty() {
            return;
        }
        if is_new && self.streams.len() >= HTTP_STREAMS_MAX {
            self.displace();
        }
        let fresh = || Kept { stream: Stream::new(sequence), used: 0 };
        let kept = self.streams.entry(key).or_insert_with(fresh);
        kept.used = self.packets;
        let is_last = flags & (tcp_flags::FIN | tcp_flags::RST) != 0;
        let (outcome, squeezers, scratch) = (&mut self.outcome, &mut self.squeezers, &mut self.scratch);
        let mut take = |found: Found<'_>| outcome.take(found, squeezers, scratch);
        kept.stream.handle(sequence, payload, &mut take);
        if is_last {
            kept.stream.close(&mut take);
            self.streams.remove(&key);
        }
    }

    /// Packets have numbers of their own, so there is one stream that was quiet the longest.
    fn displace(&mut self) {
        let quiet = self.streams.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key);
        if let Some(kept) = quiet.and_then(|key| self.streams.remove(&key)) {
            self.outcome.lost += u64::from(kept.stream.is_within_object());
        }
    }
}

impl HttpOutcome {
    fn take(&mut self, found: Found<'_>, squeezers: &mut [Squeezer; 2], scratch: &mut Vec<u8>) {
        match found {
            Found::Lost => self.lost += 1,
            Found::End { bytes, is_compressed } => {
                self.objects += 1;
                if is_compressed {
                    self.compressed_already[0] += 1;
                    self.compressed_already[1] += bytes;
                }
            }
            Found::Piece(piece) => {
                self.object_bytes += piece.len() as u64;
                for (squeezer, saved) in squeezers.iter_mut().zip([&mut self.saved_by_gzip, &mut self.saved_by_zstd]) {
                    *saved += (piece.len() - squeezer.squeezed_bytes(piece, scratch)) as u64;
                }
            }
        }
    }
}

impl Analysis for HttpAnalysis {
    type Outcome = HttpOutcome;

    fn handle(&mut self, packet: &Packet, payload: &[u8]) {
        if packet.protocol != HTTP {
            return;
        }
        self.packets += 1;
        let (sent, saved) = self.link.encode(packet, payload);
        let further = self.stage.handle(packet.at, packet.way, sent);
        self.outcome.codec.add(packet, payload.len(), saved);
        self.outcome.codec_gzip.add(packet, payload.len(), saved + further);
        if HTTP.has_port(packet.source_port) {
            self.follow(packet, payload);
        }
    }

    fn finish(mut self) -> HttpOutcome {
        self.outcome.codec_gzip.saved_bytes += self.stage.finish();
        // An object that continues when the capture ends has no end.
        self.outcome.lost += self.streams.values().filter(|kept| kept.stream.is_within_object()).count() as u64;
        self.outcome
    }
}

const _: () = assert!(HTTP_PIECE_BYTES_MAX > 1 << 15, "gzip's window fits a piece");
