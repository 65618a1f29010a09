//! Packets become records, and records packets: headers and payloads, each by a codec of its own.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use flow::{Instant, Segmentation};
use redundancy::wire::control::Control;
use redundancy::{Event, Handled, Ticket};

use super::caches::Caches;
use super::counters::TunnelCounters;
use super::header::{self, Compressor, Decompressor, HeaderError, HeaderForm, Remembered};
use super::limits::RESTORED_PACKETS_MAX;
use super::mirror::Tap;
use super::packet::{Outgoing, Restored};
use super::record::{PacketRecord, PayloadForm, Record};

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

/// A record that these codecs have for those of the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// Where the encoder's stream stands: without it the decoder files nothing.
    Open,
    /// A part of all that the decoder holds: without it the encoder does not point to that for as long as the session lasts.
    Held,
    /// One whose loss is found out and made good by others.
    Other,
}

impl Message {
    fn of(message: &[u8], reports_all: bool) -> Self {
        match Control::parse(message) {
            Ok(Control::Open { .. }) => Self::Open,
            Ok(Control::Held { .. }) if reports_all => Self::Held,
            _ => Self::Other,
        }
    }
}

#[derive(Debug)]
pub(super) struct Codecs {
    pub(super) caches: Caches,
    /// Blocks and messages for the mirrors.
    pub(super) tap: Tap,
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
    /// Headers begin with the session, and payloads go on from what the caches have.
    pub(super) fn new(caches: Caches, secret: u64) -> Self {
        Self {
            caches,
            tap: Tap::default(),
            compressor: Compressor::new(secret),
            decompressor: Decompressor::new(),
            forgotten: Vec::new(),
            waiting: BTreeMap::new(),
            next_ticket: 0,
            block: Vec::new(),
            small: Vec::new(),
        }
    }

    /// Appends the record of a packet to `out`. Returns what the other end is to remember of it: [`Codecs::settle`]
    /// takes whether it does.
    pub(super) fn encode(
        &mut self,
        packet: &Outgoing<'_>,
        out: &mut Vec<u8>,
        counters: &mut TunnelCounters,
    ) -> Option<Remembered> {
        let (header, payload) = packet.bytes.split_at(packet.header_bytes.min(packet.bytes.len()));
        let segmentation = packet.segmentation;
        let encoding = match packet.at {
            Some(at) => self.caches.encoder.encode_segment(at, payload, &mut self.block),
            None => self.caches.encoder.encode_block(payload, &mut self.block),
        };
        let form = PayloadForm::from(encoding);
        let block = if form == PayloadForm::Coded { &self.block[..] } else { payload };
        self.tap.note_sent(encoding, self.caches.encoder.epoch(), block);
        self.small.clear();
        let headers = self.compressor.compress(header, &segmentation, payload.len(), &mut self.small);
        let remembered = match headers {
            HeaderForm::Small(remembered) => {
                counters.headers_small += 1;
                counters.header_bytes_saved += header.len().saturating_sub(self.small.len()) as u64;
                self.small.extend_from_slice(block);
                Record::Small { form, bytes: &self.small }.write(out);
                return remembered;
            }
            HeaderForm::First(remembered) => Some(remembered),
            HeaderForm::Whole => None,
        };
        let place = remembered.map(|remembered| (remembered.place, remembered.version));
        Record::Packet(PacketRecord { form, segmentation, remembered: place, header, payload: block }).write(out);
        remembered
    }

    /// Handles that headers, which the other end is to remember, have arrived or were lost.
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
        let (front, form, payload) = match record {
            // A message that cannot be read is handled as a lost one.
            Record::FromEncoder(message) => {
                self.tap.note_word(message);
                let _ = self.caches.decoder.handle_control(now, message);
                return;
            }
            Record::FromDecoder(message) => {
                let _ = self.caches.encoder.handle_control(now, message);
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
                (front, packet.form, packet.payload)
            }
            Record::Small { form, bytes } => match self.decompressor.decompress(bytes) {
                Ok(small) => {
                    let front = Front { header: small.header, segmentation: small.segmentation, is_small: true };
                    (front, form, small.payload)
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
        if form == PayloadForm::Filed {
            self.tap.note_received_plain(self.caches.decoder.epoch(), payload);
            self.caches.decoder.handle_plain(payload);
        }
        if form != PayloadForm::Coded {
            return deliver(front.complete(payload), restored, counters);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        match self.caches.decoder.handle_block(now, ticket, payload, &mut self.block) {
            Ok(Handled::Decoded) => {
                self.tap.note_received(self.caches.decoder.epoch(), payload);
                deliver(front.complete(&self.block), restored, counters);
            }
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
        while let Some(event) = self.caches.decoder.poll_event(now, &mut self.block) {
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

    /// Appends the next record that these codecs have for those of the other end.
    pub(super) fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Message> {
        let reports_all = self.caches.decoder.reports_all();
        if self.caches.encoder.poll_transmit(now, &mut self.block) {
            Record::FromEncoder(&self.block).write(out);
        } else if self.caches.decoder.poll_transmit(now, &mut self.block) {
            Record::FromDecoder(&self.block).write(out);
        } else if let Some(place) = self.forgotten.pop() {
            Record::Forgotten(place).write(out);
            return Some(Message::Other);
        } else {
            return None;
        }
        Some(Message::of(&self.block, reports_all))
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.caches.encoder.handle_timeout(now);
        self.caches.decoder.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.caches.encoder.poll_timeout(), self.caches.decoder.poll_timeout()].into_iter().flatten().min()
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
