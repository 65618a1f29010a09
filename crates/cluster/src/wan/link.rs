//! All that belongs to one session: the stream's two ends, and the codec's.

use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::{Instant, Segmentation};
use redundancy::{Event, FlowPosition, Handled, Period, Ticket};

use super::TunnelConfig;
use super::caches::Caches;
use super::counters::TunnelCounters;
use super::limits::{ASK_AGAIN, RESTORED_PACKETS_MAX};
use super::mirror::Tap;
use super::receiver::Receiver;
use super::record::{PacketRecord, Reassembly, Record};
use super::sender::Sender;

/// A packet for the tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The packet from its IP header on, its checksums complete.
    pub bytes: &'a [u8],
    /// Bytes of its headers, IP and transport: the rest is what is encoded.
    pub header_bytes: usize,
    /// Where a TCP segment stands in its flow.
    pub at: Option<FlowPosition>,
    /// How it is cut into the packets that it stands for.
    pub segmentation: Segmentation,
}

/// A packet out of the tunnel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// The packet from its IP header on, its checksums complete but not verified.
    pub bytes: Vec<u8>,
    /// How it is cut into the packets that it stands for.
    pub segmentation: Segmentation,
}

/// A packet whose payload is not restored yet: its header, and how it is cut.
type Waiting = (Vec<u8>, Segmentation);

#[derive(Debug)]
pub(super) struct Link {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    reassembly: Reassembly,
    pub(super) caches: Caches,
    pub(super) tap: Tap,
    /// By ticket. The decoder bounds how many there are.
    waiting: BTreeMap<u64, Waiting>,
    next_ticket: u64,
    record: Vec<u8>,
    scratch: Vec<u8>,
}

impl Link {
    /// The link of a session that begins now, with caches that begin it too.
    pub(super) fn new(config: &TunnelConfig, caches: Caches) -> Self {
        Self {
            sender: Sender::new(config.sender),
            receiver: Receiver::new(config.sender.recover_within + ASK_AGAIN * 4),
            reassembly: Reassembly::default(),
            caches,
            tap: Tap::default(),
            waiting: BTreeMap::new(),
            next_ticket: 0,
            record: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// What outlives the session.
    pub(super) fn into_caches(self) -> Caches {
        self.caches
    }

    pub(super) const fn set_period(&mut self, period: Period) {
        self.caches.encoder.set_period(period);
    }

    pub(super) fn send(&mut self, now: Instant, packet: &Outgoing<'_>) {
        let (header, payload) = packet.bytes.split_at(packet.header_bytes.min(packet.bytes.len()));
        let encoding = match packet.at {
            Some(at) => self.caches.encoder.encode_segment(at, payload, &mut self.scratch),
            None => self.caches.encoder.encode_block(payload, &mut self.scratch),
        };
        let is_coded = encoding.has_shim();
        if is_coded {
            self.tap.note_sent(self.caches.encoder.epoch(), &self.scratch);
        }
        let payload = if is_coded { &self.scratch[..] } else { payload };
        let record = PacketRecord { is_coded, segmentation: packet.segmentation, header, payload };
        self.record.clear();
        Record::Packet(record).write(&mut self.record);
        self.sender.push(now, &self.record);
    }

    /// Takes what the receiver has in order. What is restored goes to `restored`.
    pub(super) fn take_records(
        &mut self,
        now: Instant,
        restored: &mut VecDeque<Restored>,
        counters: &mut TunnelCounters,
    ) {
        while self.receiver.poll(&mut self.reassembly) {
            while let Some(record) = self.reassembly.poll() {
                let mut bytes = Vec::new();
                let done = match record {
                    // What the two say to each other was said by this release, or it is as good as lost.
                    Record::FromEncoder(message) => {
                        self.tap.note_word(message);
                        let _ = self.caches.decoder.handle_control(now, message);
                        None
                    }
                    Record::FromDecoder(message) => {
                        let _ = self.caches.encoder.handle_control(now, message);
                        None
                    }
                    Record::Packet(packet) if !packet.is_coded => {
                        bytes.extend_from_slice(packet.header);
                        bytes.extend_from_slice(packet.payload);
                        Some(packet.segmentation)
                    }
                    Record::Packet(packet) => {
                        let ticket = Ticket(self.next_ticket);
                        self.next_ticket += 1;
                        match self.caches.decoder.handle_block(now, ticket, packet.payload, &mut self.scratch) {
                            Ok(Handled::Decoded) => {
                                self.tap.note_received(self.caches.decoder.epoch(), packet.payload);
                                bytes.extend_from_slice(packet.header);
                                bytes.extend_from_slice(&self.scratch);
                                Some(packet.segmentation)
                            }
                            Ok(Handled::Waiting) => {
                                self.waiting.insert(ticket.0, (packet.header.to_vec(), packet.segmentation));
                                None
                            }
                            Err(_) => {
                                counters.broken += 1;
                                None
                            }
                        }
                    }
                };
                if let Some(segmentation) = done {
                    deliver(Restored { bytes, segmentation }, restored, counters);
                }
            }
        }
        self.take_events(now, restored, counters);
    }

    fn take_events(&mut self, now: Instant, restored: &mut VecDeque<Restored>, counters: &mut TunnelCounters) {
        while let Some(event) = self.caches.decoder.poll_event(now, &mut self.scratch) {
            match event {
                Event::Decoded(Ticket(ticket)) => {
                    if let Some((mut bytes, segmentation)) = self.waiting.remove(&ticket) {
                        bytes.extend_from_slice(&self.scratch);
                        deliver(Restored { bytes, segmentation }, restored, counters);
                    }
                }
                Event::Abandoned(Ticket(ticket)) => {
                    self.waiting.remove(&ticket);
                }
            }
        }
    }

    /// Puts what the codecs have to say into the stream.
    pub(super) fn talk(&mut self, now: Instant) {
        while self.caches.encoder.poll_transmit(now, &mut self.scratch) {
            self.record.clear();
            Record::FromEncoder(&self.scratch).write(&mut self.record);
            self.sender.push(now, &self.record);
        }
        while self.caches.decoder.poll_transmit(now, &mut self.scratch) {
            self.record.clear();
            Record::FromDecoder(&self.scratch).write(&mut self.record);
            self.sender.push(now, &self.record);
        }
    }

    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        restored: &mut VecDeque<Restored>,
        counters: &mut TunnelCounters,
    ) {
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
        self.caches.encoder.handle_timeout(now);
        self.caches.decoder.handle_timeout(now);
        self.take_records(now, restored, counters);
        self.talk(now);
        // With no time to gather, what was said is to leave in this turn.
        self.sender.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [
            self.sender.poll_timeout(),
            self.receiver.poll_timeout(),
            self.caches.encoder.poll_timeout(),
            self.caches.decoder.poll_timeout(),
        ];
        timeouts.into_iter().flatten().min()
    }

    pub(super) fn count(&self, counters: &mut TunnelCounters) {
        let parts = (self.sender.counters(), self.receiver.counters());
        counters.add_parts(parts.0, parts.1);
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
