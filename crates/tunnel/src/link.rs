//! All that belongs to one session: the stream's two ends, and the codecs.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;
use redundancy::{Period, second_stage};

use super::bundles::Bundles;
use super::caches::Caches;
use super::codecs::{Codecs, Message};
use super::config::TunnelConfig;
use super::counters::TunnelCounters;
use super::header::Remembered;
use super::limits::{ACK_REPEAT_INTERVAL, CONFIRM_AFTER, REPEAT_AFTER};
use super::packet::{Outgoing, Restored};
use super::receiver::Receiver;
use super::record::{Reassembly, Record};
use super::sender::{Sender, SenderConfig};

#[derive(Debug)]
pub(super) struct Link {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    reassembly: Reassembly,
    bundles: Bundles,
    pub(super) codecs: Codecs,
    record: Vec<u8>,
    /// When the last blocks are to be confirmed: they went without a number.
    confirm_at: Option<Instant>,
    /// When an Open is to be repeated that was lost, and when a Held.
    reopen_at: Option<Instant>,
    repeat_report_at: Option<Instant>,
}

/// What the sender calls an Open and a Held. Headers have other tokens ([`token`]).
const OPEN_TOKEN: u64 = 1 << 63;
const HELD_TOKEN: u64 = OPEN_TOKEN | 1;

impl Link {
    /// What a session begins with, caches that begin it too, and a secret.
    pub(super) fn new(config: &TunnelConfig, caches: Caches, secret: u64) -> Self {
        // What was gathered to be compressed does not wait for company once more.
        let gather = if config.second_stage.stage.is_some() { Duration::ZERO } else { config.sender.gather };
        Self {
            sender: Sender::new(SenderConfig { gather, ..config.sender }, config.envelope_bytes),
            receiver: Receiver::new(config.sender.recover_within + ACK_REPEAT_INTERVAL * 4),
            reassembly: Reassembly::default(),
            bundles: Bundles::new(config.second_stage),
            codecs: Codecs::new(caches, secret),
            record: Vec::new(),
            confirm_at: None,
            reopen_at: None,
            repeat_report_at: None,
        }
    }

    pub(super) const fn set_period(&mut self, period: Period) {
        self.codecs.caches.encoder.set_period(period);
    }

    pub(super) fn send(&mut self, now: Instant, packet: &Outgoing<'_>, counters: &mut TunnelCounters) {
        self.record.clear();
        let remembered = self.codecs.encode(packet, &mut self.record, counters);
        self.sender.note_saved(packet.bytes.len().saturating_sub(self.record.len()));
        self.bundles.push(now, &self.record, remembered.map(token), &mut self.sender);
        let due = self.codecs.caches.encoder.is_unconfirmed().then_some(now + CONFIRM_AFTER);
        self.confirm_at = due.map(|due| self.confirm_at.map_or(due, |at| at.min(due)));
    }

    /// What the other end must have may have been acknowledged, or lost.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some((token, has_arrived)) = self.sender.poll_mark() {
            match token {
                OPEN_TOKEN | HELD_TOKEN if has_arrived => {}
                OPEN_TOKEN => drop(self.reopen_at.get_or_insert(now + REPEAT_AFTER)),
                HELD_TOKEN => drop(self.repeat_report_at.get_or_insert(now + REPEAT_AFTER)),
                _ => self.codecs.settle(remembered(token), has_arrived),
            }
        }
    }

    /// Repeats what was lost, and confirms the last blocks, if it is time.
    fn repeat(&mut self, now: Instant) {
        let Caches { encoder, decoder } = &mut self.codecs.caches;
        if self.confirm_at.take_if(|at| *at <= now).is_some() {
            encoder.confirm();
        }
        if self.reopen_at.take_if(|at| *at <= now).is_some() {
            encoder.reopen();
        }
        if self.repeat_report_at.take_if(|at| *at <= now).is_some() {
            decoder.restart_report();
        }
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
                let Record::Bundle(bundle) = record else {
                    self.codecs.take(now, record, restored, counters);
                    continue;
                };
                let Some(records) = self.bundles.open(bundle) else {
                    counters.broken += 1;
                    continue;
                };
                for mut bytes in second_stage::read(&records) {
                    while let Some(record) = Record::take(&mut bytes) {
                        self.codecs.take(now, record, restored, counters);
                    }
                }
            }
        }
        self.codecs.take_events(now, restored, counters);
    }

    /// Puts the codecs' messages into the stream.
    pub(super) fn talk(&mut self, now: Instant) {
        self.record.clear();
        while let Some(message) = self.codecs.poll(now, &mut self.record) {
            let token = match message {
                Message::Open => Some(OPEN_TOKEN),
                Message::Held => Some(HELD_TOKEN),
                Message::Other => None,
            };
            self.bundles.push(now, &self.record, token, &mut self.sender);
            self.record.clear();
        }
    }

    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        restored: &mut VecDeque<Restored>,
        counters: &mut TunnelCounters,
    ) {
        self.sender.handle_timeout(now);
        self.settle(now);
        self.receiver.handle_timeout(now);
        self.codecs.handle_timeout(now);
        self.take_records(now, restored, counters);
        self.repeat(now);
        self.talk(now);
        self.bundles.handle_timeout(now, &mut self.sender);
        // With no time to gather, what was said is to leave in this turn.
        self.sender.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [
            self.sender.poll_timeout(),
            self.receiver.poll_timeout(),
            self.bundles.poll_timeout(),
            self.codecs.poll_timeout(),
            self.confirm_at,
            self.reopen_at,
            self.repeat_report_at,
        ];
        timeouts.into_iter().flatten().min()
    }

    pub(super) fn count(&self, counters: &mut TunnelCounters) {
        let parts = (self.sender.counters(), self.receiver.counters());
        counters.add_parts(parts.0, parts.1);
        let bundles = self.bundles.counters();
        counters.bundled_bytes_in += bundles.bytes_in;
        counters.bundled_bytes_out += bundles.bytes_out;
    }
}

/// What the sender calls headers that are to be remembered.
fn token(remembered: Remembered) -> u64 {
    u64::from(remembered.place) << 8 | u64::from(remembered.version)
}

/// The reverse.
const fn remembered(token: u64) -> Remembered {
    Remembered { place: (token >> 8) as u16, version: token as u8 }
}
