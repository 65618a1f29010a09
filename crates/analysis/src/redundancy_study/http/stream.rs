//! One direction of a TCP connection, put in order: simply, and within bounds.

use std::collections::BTreeMap;

use super::object::{Found, Objects};
use crate::redundancy_study::limits::{HTTP_WAITING_BYTES_MAX, HTTP_WAITING_SEGMENTS_MAX};

/// Segments come in, bytes in order go on to where objects are found.
#[derive(Debug)]
pub(super) struct Stream {
    /// The sequence number of the byte that is next, counted from 0 on so that it does not wrap.
    next: u64,
    /// What stands for 0.
    base: u32,
    /// Segments behind a gap.
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_bytes: usize,
    objects: Objects,
}

impl Stream {
    pub(super) fn new(sequence: u32) -> Self {
        Self { next: 0, base: sequence, waiting: BTreeMap::new(), waiting_bytes: 0, objects: Objects::default() }
    }

    pub(super) const fn is_within_object(&self) -> bool {
        self.objects.is_within()
    }

    pub(super) fn handle(&mut self, sequence: u32, payload: &[u8], take: &mut impl FnMut(Found<'_>)) {
        let ahead = sequence.wrapping_sub(self.base.wrapping_add(self.next as u32)) as i32;
        let Some(at) = self.next.checked_add_signed(ahead.into()) else { return };
        if payload.is_empty() {
            return;
        }
        if at > self.next {
            self.waiting_bytes += payload.len();
            if let Some(former) = self.waiting.insert(at, payload.to_vec()) {
                self.waiting_bytes -= former.len();
            }
            let is_too_much =
                self.waiting.len() > HTTP_WAITING_SEGMENTS_MAX || self.waiting_bytes > HTTP_WAITING_BYTES_MAX;
            if is_too_much {
                self.give_gap_up(take);
            }
            return;
        }
        self.advance(at, payload, take);
        self.drain(take);
    }

    fn advance(&mut self, at: u64, payload: &[u8], take: &mut impl FnMut(Found<'_>)) {
        let known = usize::try_from(self.next - at).unwrap_or(usize::MAX);
        if let Some(new) = payload.get(known..).filter(|new| !new.is_empty()) {
            self.next += new.len() as u64;
            self.objects.handle(new, take);
        }
    }

    fn drain(&mut self, take: &mut impl FnMut(Found<'_>)) {
        while let Some(entry) = self.waiting.first_entry().filter(|entry| *entry.key() <= self.next) {
            let (at, payload) = entry.remove_entry();
            self.waiting_bytes -= payload.len();
            self.advance(at, &payload, take);
        }
    }

    /// What is missing will not come: it is not in the capture.
    fn give_gap_up(&mut self, take: &mut impl FnMut(Found<'_>)) {
        self.objects.lose(take);
        if let Some((at, _)) = self.waiting.first_key_value() {
            self.next = *at;
        }
        self.drain(take);
    }

    pub(super) fn close(&mut self, take: &mut impl FnMut(Found<'_>)) {
        while !self.waiting.is_empty() {
            self.give_gap_up(take);
        }
        self.objects.close(take);
    }
}
