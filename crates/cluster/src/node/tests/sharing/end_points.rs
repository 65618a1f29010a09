//! A client and a server that send each other some bytes over TCP and close, repeating what is not acknowledged.

use std::time::Duration;
use std::vec::Vec;

use flow::Instant;
use flow::wire::{TcpSegment, tcp_flags};

const SYN: u8 = tcp_flags::SYN;
const ACK: u8 = tcp_flags::ACK;
const FIN: u8 = tcp_flags::FIN;
/// What Linux waits at least before it repeats anything but a SYN.
const RETRANSMISSION_TIMEOUT: Duration = Duration::from_millis(200);
const SEGMENT_BYTES: u32 = 500;

/// What an end point sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub(super) flags: u8,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) payload_bytes: u32,
}

pub(super) struct EndPoint {
    is_client: bool,
    /// Sequence numbers: of its SYN, of what was not acknowledged yet, of what it sends next, and behind its FIN.
    initial: u32,
    unacknowledged: u32,
    next: u32,
    end: u32,
    /// What it expects next, once the other side's SYN has come.
    expected: Option<u32>,
    has_received_fin: bool,
    acknowledgement_pending: bool,
    repeat_at: Option<Instant>,
    /// It waits with its FIN for the other side's.
    closes_second: bool,
    pub(super) retransmissions: u32,
}

impl EndPoint {
    pub(super) const fn new(is_client: bool, initial: u32, bytes: u32, closes_second: bool) -> Self {
        Self {
            is_client,
            initial,
            unacknowledged: initial,
            next: initial,
            end: initial.wrapping_add(bytes + 2),
            expected: None,
            has_received_fin: false,
            acknowledgement_pending: false,
            repeat_at: None,
            closes_second,
            retransmissions: 0,
        }
    }

    const fn since(&self, sequence: u32) -> u32 {
        sequence.wrapping_sub(self.initial)
    }

    /// Everything was sent, received and acknowledged.
    pub(super) const fn is_done(&self) -> bool {
        self.unacknowledged == self.end && self.has_received_fin
    }

    /// What it has to send now.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<Sent> {
        if self.repeat_at.is_some_and(|at| at <= now) {
            self.retransmissions += 1;
            self.next = self.unacknowledged;
        }
        let mut sent = Vec::new();
        while let Some(segment) = self.next_segment() {
            sent.push(segment);
        }
        if !sent.is_empty() {
            self.repeat_at = Some(now + RETRANSMISSION_TIMEOUT);
            self.acknowledgement_pending = false;
        }
        if core::mem::take(&mut self.acknowledgement_pending) {
            sent.push(self.segment(ACK, 0));
        }
        if self.unacknowledged == self.next {
            self.repeat_at = None;
        }
        sent
    }

    fn next_segment(&mut self) -> Option<Sent> {
        if self.next == self.initial {
            if !self.is_client && self.expected.is_none() {
                return None;
            }
            let segment = self.segment(if self.is_client { SYN } else { SYN | ACK }, 0);
            self.next = self.next.wrapping_add(1);
            return Some(segment);
        }
        // Data only when the handshake is over for this side.
        if self.unacknowledged == self.initial || self.expected.is_none() || self.next == self.end {
            return None;
        }
        let left = self.end.wrapping_sub(self.next).wrapping_sub(1);
        if left == 0 {
            if self.closes_second && !self.has_received_fin {
                return None;
            }
            let segment = self.segment(FIN | ACK, 0);
            self.next = self.next.wrapping_add(1);
            return Some(segment);
        }
        let segment = self.segment(ACK, left.min(SEGMENT_BYTES));
        self.next = self.next.wrapping_add(segment.payload_bytes);
        Some(segment)
    }

    const fn segment(&self, flags: u8, payload_bytes: u32) -> Sent {
        let acknowledgement = match self.expected {
            Some(expected) => expected,
            None => 0,
        };
        Sent { flags, sequence: self.next, acknowledgement, payload_bytes }
    }

    pub(super) fn receive(&mut self, segment: &TcpSegment) {
        assert!(!segment.has(tcp_flags::RST), "nobody resets anything");
        if segment.has(SYN) {
            self.expected.get_or_insert(segment.sequence.wrapping_add(1));
            self.acknowledgement_pending |= segment.has(ACK);
        }
        if segment.has(ACK) && self.since(segment.acknowledgement) > self.since(self.unacknowledged) {
            assert!(self.since(segment.acknowledgement) <= self.since(self.next).max(self.since(self.end)));
            self.unacknowledged = segment.acknowledgement;
            if self.since(self.next) < self.since(self.unacknowledged) {
                self.next = self.unacknowledged;
            }
        }
        if segment.payload_bytes == 0 && !segment.has(FIN) {
            return;
        }
        self.acknowledgement_pending = true;
        if self.expected == Some(segment.sequence) {
            self.expected = Some(segment.end());
            self.has_received_fin |= segment.has(FIN);
        }
    }
}
