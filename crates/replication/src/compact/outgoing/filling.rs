//! What is sent to a peer: what changed or, if that is less, everything.

use alloc::vec::Vec;
use core::time::Duration;

use filters::{Change, Update};
use flow::Instant;

use super::Outgoing;
use crate::compact::common::Common;
use crate::compact::in_flight::{Purpose, Sent};
use crate::compact::source::Source;
use crate::compact::wire::{NUMBERED_BYTES, kind};
use crate::symbol::Encoder;

/// Bytes that a changed word takes at most: a gap of a filter of any size, and the word.
const CHANGE_BYTES_MAX: usize = 10;
/// Bytes of a run of words before the words, at most.
const RUN_BYTES_MAX: usize = 10;
/// Changes that are looked at at a time.
const BATCH_WORDS: usize = 64;
/// While an update takes long, it is decided anew so often whether the whole would be less.
const DECIDE_INTERVAL: Duration = Duration::from_secs(1);

impl Outgoing {
    /// What changed up to now is to be sent.
    pub(in crate::compact) fn begin_update(&mut self, now: Instant, common: &Common, source: &mut Source) {
        self.updated_to = source.changes;
        let changed = source.memory().changed(self.mark);
        if changed == 0 {
            return;
        }
        let is_in_progress = self.left > 0 || !self.raw.is_empty();
        self.left = changed;
        self.comparing.forget_held_back();
        if is_in_progress && self.decided_at.is_some_and(|at| now < at + DECIDE_INTERVAL) || !self.raw.is_empty() {
            return;
        }
        self.decided_at = Some(now);
        let whole_bytes = datagrams_bytes(common.words as usize * size_of::<u32>() + RUN_BYTES_MAX, common);
        if changed * CHANGE_BYTES_MAX < whole_bytes || self.changes_bytes(common, source) <= whole_bytes {
            self.counters.incremental_updates += u64::from(!is_in_progress);
            return;
        }
        self.counters.whole_updates += 1;
        self.raw.extend(0..common.words.div_ceil(common.section_words));
        // They are sent with all the others.
        self.scratch.clear();
        source.memory_mut().take_changes(self.mark, usize::MAX, &mut self.scratch);
        self.scratch = Vec::new();
        self.left = 0;
    }

    /// The bytes that the changes would take.
    fn changes_bytes(&self, common: &Common, source: &Source) -> usize {
        let (mut encoder, mut written, mut bytes) = (Encoder::new(common.coding), Vec::new(), 0);
        for (index, word) in (0..).zip(source.memory().words()) {
            let known = self.known.word(index);
            if known != *word && !self.words_in_flight.has(index) {
                encoder.append(Change { index, word: *word }, known, &mut written);
                bytes += written.len();
                written.clear();
            }
        }
        datagrams_bytes(bytes, common)
    }

    pub(super) fn poll_words(&mut self, now: Instant, common: &Common, source: &mut Source, out: &mut Vec<u8>) -> bool {
        let waits = self.has_window() && (self.left > 0 || !self.raw.is_empty());
        self.is_short = waits && self.budget.as_ref().is_some_and(|budget| now < budget.may_send_at());
        if !waits || self.is_short {
            return false;
        }
        let (changes, purpose) = match self.fill_raw(common, source, out) {
            Some(changes) => (changes, Purpose::Raw),
            None => (self.fill_changes(common, source, out), Purpose::Changes),
        };
        if changes.is_empty() {
            out.clear();
            return false;
        }
        self.counters.words += changes.len() as u64;
        self.words_in_flight.insert(&changes);
        self.recovery.on_sent(now, Sent { changes, purpose });
        true
    }

    /// A part of the sections that are sent as they are. It ends where a word is in flight, or a section is not to be sent.
    fn fill_raw(&mut self, common: &Common, source: &Source, out: &mut Vec<u8>) -> Option<Vec<Change>> {
        let section_words = common.section_words;
        let first = self.raw_next.or_else(|| self.raw.first().map(|section| section * section_words))?;
        let room = (common.datagram_bytes_max - NUMBERED_BYTES - RUN_BYTES_MAX) / size_of::<u32>();
        let mut end = first;
        while end < common.words
            && ((end - first) as usize) < room
            && !self.words_in_flight.has(end)
            && (end % section_words > 0 || self.raw.contains(&(end / section_words)))
        {
            end += 1;
        }
        let words = &source.memory().words()[first as usize..end as usize];
        if words.is_empty() {
            return None;
        }
        self.begin_numbered(kind::WORDS, out);
        Update::encode_words(first, words, out);
        // What was sent up to its end needs not be sent again.
        (first / section_words..=(end - 1) / section_words).for_each(|section| {
            self.raw.remove(&section);
        });
        let is_within = end < common.words && !end.is_multiple_of(section_words);
        if is_within {
            self.raw.insert(end / section_words);
        }
        self.raw_next = is_within.then_some(end);
        Some((first..end).zip(words).map(|(index, word)| Change { index, word: *word }).collect())
    }

    /// As many of the changes as a datagram holds.
    fn fill_changes(&mut self, common: &Common, source: &mut Source, out: &mut Vec<u8>) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.left == 0 {
            return changes;
        }
        self.begin_numbered(kind::CHANGES, out);
        let mut encoder = Encoder::new(common.coding);
        let mut taken = core::mem::take(&mut self.scratch);
        let mut is_full = false;
        while self.left > 0 && !is_full {
            taken.clear();
            source.memory_mut().take_changes(self.mark, self.left.min(BATCH_WORDS), &mut taken);
            if taken.is_empty() {
                self.left = 0;
                break;
            }
            self.left = self.left.saturating_sub(taken.len());
            for (at, change) in taken.iter().enumerate() {
                let known = self.known.word(change.index);
                // A word in flight is looked at again when it has arrived.
                if self.words_in_flight.has(change.index) || known == change.word {
                    continue;
                }
                if self.comparing.holds_back(change.index) {
                    source.memory_mut().give_back(self.mark, [change.index]);
                    continue;
                }
                let length = out.len();
                is_full = !encoder.may_follow(change.index);
                if !is_full {
                    encoder.append(*change, known, out);
                    is_full = out.len() > common.datagram_bytes_max;
                }
                if is_full {
                    out.truncate(length);
                    let rest = &taken[at..];
                    source.memory_mut().put_back(self.mark, rest);
                    self.left += rest.len();
                    break;
                }
                changes.push(*change);
            }
        }
        self.scratch = taken;
        changes
    }
}

/// Bytes on the link, with headers, of so many bytes in datagrams.
const fn datagrams_bytes(bytes: usize, common: &Common) -> usize {
    let room = common.datagram_bytes_max - NUMBERED_BYTES;
    bytes + bytes.div_ceil(room) * NUMBERED_BYTES
}
