//! Packets become records, and records packets: headers and payloads, each by a codec of its own.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use flow::{Instant, Segmentation};
use redundancy::{Decoder, DecoderConfig, Encoder, EncoderConfig, Event, Handled, Period, Sampling, Ticket};

use super::TunnelConfig;
use super::counters::TunnelCounters;
use super::datagram::Sessions;
use super::header::{self, Compressor, Decompressor, HeaderError, HeaderForm, Remembered};
use super::limits::RESTORED_PACKETS_MAX;
use super::link::{Outgoing, Restored};
use super::record::{PacketRecord, Record};

/// The front of a packet whose payload comes next.
#[derive(Clone, Debug)]
struct Front {
    header: Vec<u8>,
    segmentation: Segmentation,
    /// What follows from the payload is still to be filled in.
    is_small: bool,
}

impl Front {
    /// The packet with its payload.
    fn complete(self, payload: &[u8]) -> Restored {
        let header_bytes = self.header.len();
        let mut bytes = self.header;
        bytes.extend_from_slice(payload);
        if self.is_small {
            header::complete(&mut bytes, header_bytes);
        }
        Restored { bytes, segmentation: self.segmentation }
    }
}

#[derive(Debug)]
pub(super) struct Codecs {
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
    compressor: Compressor,
    decompressor: Decompressor,
    /// Places whose headers are not remembered, though small ones point to them; each once.
    forgotten: Vec<u16>,
    /// Packets whose payloads are not restored yet, by ticket. The decoder bounds how many there are.
    waiting: BTreeMap<u64, Front>,
    next_ticket: u64,
    block: Vec<u8>,
    small: Vec<u8>,
}

impl Codecs {
    /// All begin with the session, empty: so there is nothing to agree on. None: the caches would be too small.
    pub(super) fn new(
        config: &TunnelConfig,
        sessions: Sessions,
        granules: u32,
        period: Period,
        key: [u64; 2],
    ) -> Option<Self> {
        let cache_bytes = granules as usize * redundancy::limits::GRANULE_BYTES;
        let sampling = Sampling { period, ..config.sampling };
        let encoder = EncoderConfig { cache_bytes, sampling, epoch: sessions.from, key, ..EncoderConfig::default() };
        let decoder = DecoderConfig { cache_bytes, id: 0 };
        Some(Self {
            encoder: Encoder::open_at_once(encoder).ok()?,
            decoder: Decoder::open_at_once(decoder, sessions.to).ok()?,
            compressor: Compressor::new(key[0] ^ key[1].rotate_left(32)),
            decompressor: Decompressor::new(),
            forgotten: Vec::new(),
            waiting: BTreeMap::new(),
            next_ticket: 0,
            block: Vec::new(),
            small: Vec::new(),
        })
    }

    /// Appends the record of a packet to `out`. Returns what the other end is to remember of it: whether it does is to be told
    /// by [`Codecs::settle`].
    pub(super) fn encode(
        &mut self,
        packet: &Outgoing<'_>,
        out: &mut Vec<u8>,
        counters: &mut TunnelCounters,
    ) -> Option<Remembered> {
        let (header, payload) = packet.bytes.split_at(packet.header_bytes.min(packet.bytes.len()));
        let segmentation = packet.segmentation;
        let encoding = match packet.at {
            Some(at) => self.encoder.encode_segment(at, payload, &mut self.block),
            None => self.encoder.encode_block(payload, &mut self.block),
        };
        let is_coded = encoding.has_shim();
        let block = if is_coded { &self.block[..] } else { payload };
        self.small.clear();
        let form = self.compressor.compress(header, &segmentation, payload.len(), &mut self.small);
        let remembered = match form {
            HeaderForm::Small(remembered) => {
                counters.headers_small += 1;
                counters.header_bytes_saved += header.len().saturating_sub(self.small.len()) as u64;
                self.small.extend_from_slice(block);
                Record::Small { is_coded, bytes: &self.small }.write(out);
                return remembered;
            }
            HeaderForm::First(remembered) => Some(remembered),
            HeaderForm::Whole => None,
        };
        let place = remembered.map(|remembered| (remembered.place, remembered.version));
        Record::Packet(PacketRecord { is_coded, segmentation, remembered: place, header, payload: block }).write(out);
        remembered
    }

    /// Headers that the other end was told to remember have arrived, or were lost.
    pub(super) fn settle(&mut self, remembered: Remembered, has_arrived: bool) {
        self.compressor.settle(remembered, has_arrived);
    }

    /// Takes a record that is no bundle. The packet that it is goes to `restored`, at once or when what it points to is here.
    pub(super) fn take(
        &mut self,
        now: Instant,
        record: Record<'_>,
        restored: &mut VecDeque<Restored>,
        counters: &mut TunnelCounters,
    ) {
        let (front, is_coded, payload) = match record {
            // What the two say to each other was said by this release, or it is as good as lost.
            Record::FromEncoder(message) => {
                let _ = self.decoder.handle_control(now, message);
                return;
            }
            Record::FromDecoder(message) => {
                let _ = self.encoder.handle_control(now, message);
                return;
            }
            Record::Forgotten(place) => return self.compressor.forget(place),
            // There is none in a bundle.
            Record::Bundle(_) => return counters.broken += 1,
            Record::Packet(packet) => {
                if let Some(place) = packet.place()
                    && self.decompressor.remember(place, packet.header, &packet.segmentation).is_err()
                {
                    counters.broken += 1;
                    return;
                }
                let front =
                    Front { header: packet.header.to_vec(), segmentation: packet.segmentation, is_small: false };
                (front, packet.is_coded, packet.payload)
            }
            Record::Small { is_coded, bytes } => match self.decompressor.decompress(bytes) {
                Ok(small) => {
                    let front = Front { header: small.header, segmentation: small.segmentation, is_small: true };
                    (front, is_coded, small.payload)
                }
                Err(error) => {
                    if let HeaderError::Unknown(place) = error
                        && !self.forgotten.contains(&place)
                    {
                        self.forgotten.push(place);
                    }
                    counters.broken += 1;
                    return;
                }
            },
        };
        if !is_coded {
            return deliver(front.complete(payload), restored, counters);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        match self.decoder.handle_block(now, ticket, payload, &mut self.block) {
            Ok(Handled::Decoded) => deliver(front.complete(&self.block), restored, counters),
            Ok(Handled::Waiting) => drop(self.waiting.insert(ticket.0, front)),
            Err(_) => counters.broken += 1,
        }
    }

    /// What waited and is restored now goes to `restored`.
    pub(super) fn take_events(
        &mut self,
        now: Instant,
        restored: &mut VecDeque<Restored>,
        counters: &mut TunnelCounters,
    ) {
        while let Some(event) = self.decoder.poll_event(now, &mut self.block) {
            match event {
                Event::Decoded(Ticket(ticket)) => {
                    if let Some(front) = self.waiting.remove(&ticket) {
                        deliver(front.complete(&self.block), restored, counters);
                    }
                }
                Event::Abandoned(Ticket(ticket)) => drop(self.waiting.remove(&ticket)),
            }
        }
    }

    /// Appends the next record that these codecs have to say to those of the other end. False when there is none.
    pub(super) fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.encoder.poll_transmit(now, &mut self.block) {
            Record::FromEncoder(&self.block).write(out);
        } else if self.decoder.poll_transmit(now, &mut self.block) {
            Record::FromDecoder(&self.block).write(out);
        } else if let Some(place) = self.forgotten.pop() {
            Record::Forgotten(place).write(out);
        } else {
            return false;
        }
        true
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.encoder.handle_timeout(now);
        self.decoder.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.encoder.poll_timeout(), self.decoder.poll_timeout()].into_iter().flatten().min()
    }

    /// Bytes of the caches and indexes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.encoder.memory_bytes().iter().sum::<usize>() + self.decoder.memory_bytes().iter().sum::<usize>()
    }
}

fn deliver(packet: Restored, restored: &mut VecDeque<Restored>, counters: &mut TunnelCounters) {
    if restored.len() >= RESTORED_PACKETS_MAX {
        counters.restored_drops += 1;
        return;
    }
    counters.packets_restored += 1;
    counters.bytes_restored += packet.bytes.len() as u64;
    restored.push_back(packet);
}
