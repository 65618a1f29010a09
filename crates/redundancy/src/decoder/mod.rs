//! The decoder: blocks with pointers go in, blocks come out.
//!
//! What it lacks it asks for; blocks wait for it, a bounded number and for a bounded time, and then come out of
//! [`Decoder::poll_event`] by the ticket that they were handed in with.

mod control;
mod implied;
mod order;
mod report;
mod resuming;
mod store;
mod stream;
#[cfg(test)]
mod tests;
mod waiting;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use flow::Instant;

use self::implied::Implied;
use self::report::Report;
pub use self::resuming::{Held, Opening};
use self::store::Store;
use self::stream::{Cookies, Stream};
pub use self::waiting::Ticket;
use self::waiting::Waiting;
use crate::limits::{GRANULE_BYTES, OUTBOX_MESSAGES_MAX, RANGES_MAX, STALE_BLOCKS_MAX};
use crate::packet_cache::{CacheSizeError, GranuleSet, Ranges, Ring, granules_of};
use crate::reference_check::ReferenceCheck;
use crate::wire::control::{Control, NUMBER_MAX, NumberRanges};
use crate::wire::shim::{Content, Encoded, Shim, ShimError, tag_of};

/// What is lacking is asked for again after so long ...
pub const ASK_AGAIN: Duration = Duration::from_millis(50);
/// ... and when it was asked for so often in vain, the block is abandoned.
pub const ASKS_MAX: u32 = 5;

/// What a decoder is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecoderConfig {
    /// Bytes of the cache. An encoder whose cache is larger is not served.
    pub cache_bytes: usize,
    /// The name of this life of the decoder, at random, from whoever starts it.
    pub id: u32,
}

/// What became of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handled {
    /// It is restored.
    Decoded,
    /// It lacks bytes: an [`Event`] with its ticket follows.
    Waiting,
}

/// What becomes of a block that waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It is restored.
    Decoded(Ticket),
    /// It cannot be restored: it is as if the network had lost it.
    Abandoned(Ticket),
}

/// Why a block is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// It is malformed.
    #[error(transparent)]
    Shim(#[from] ShimError),
    /// It points to what cannot be: what of itself comes later, more than a cache before it, or over the cache's end.
    #[error("a pointer leads outside of the cache: the encoder misbehaves, or its cache is larger than was agreed on")]
    Pointer,
    /// A number without sense.
    #[error("the block's number lies before the first")]
    Number,
}

/// What a decoder did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DecoderCounters {
    /// Blocks that came whole.
    pub blocks_literal: u64,
    /// Blocks restored from pointers, at once or later.
    pub blocks_encoded: u64,
    /// Blocks that lacked something when they came.
    pub blocks_waited: u64,
    /// Blocks that could not be restored.
    pub blocks_abandoned: u64,
    /// Blocks of an epoch that was not known when they came.
    pub blocks_unknown: u64,
    /// Blocks whose bytes were there, but not those that the encoder meant.
    pub check_failures: u64,
    /// Blocks of a number so old that they were not kept.
    pub blocks_stale: u64,
    /// Granules that the encoder gave on request.
    pub granules_filled: u64,
    /// Blocks that came plain and were filed.
    pub blocks_remembered: u64,
}

/// The decoding side.
#[derive(Clone, Debug)]
pub struct Decoder {
    id: u32,
    store: Store,
    implied: Implied,
    stream: Option<Stream>,
    /// The stream of a channel that is over, while the new one's is not open yet.
    parked: Option<Stream>,
    awaits_open: bool,
    cookies: Cookies,
    waiting: Waiting,
    abandoned: VecDeque<Ticket>,
    report: Report,
    /// Something came since the blocks that wait were last tried.
    is_news: bool,
    stale_in_a_row: u32,
    /// Messages that answer.
    outbox: VecDeque<Control<'static>>,
    unknown_told_at: Option<Instant>,
    counters: DecoderCounters,
}

/// What an encoder takes over from a decoder that heard its predecessor.
pub(crate) struct Heritage {
    pub(crate) epoch: u32,
    pub(crate) granules: u64,
    pub(crate) next: u64,
    pub(crate) ring: Ring,
    pub(crate) held: GranuleSet,
}

/// Why a block cannot be restored now.
enum Lack {
    Missing,
    Error(DecodeError),
}

impl Decoder {
    /// A decoder that knows no stream yet.
    ///
    /// # Errors
    /// The cache's size is out of bounds.
    pub fn new(config: DecoderConfig) -> Result<Self, CacheSizeError> {
        Ok(Self {
            id: config.id,
            store: Store::new(granules_of(config.cache_bytes)?),
            implied: Implied::default(),
            stream: None,
            parked: None,
            awaits_open: false,
            cookies: Cookies::default(),
            waiting: Waiting::default(),
            abandoned: VecDeque::new(),
            report: Report::default(),
            is_news: false,
            stale_in_a_row: 0,
            outbox: VecDeque::new(),
            unknown_told_at: None,
            counters: DecoderCounters::default(),
        })
    }

    /// A decoder whose encoder begins at the same moment, by [`crate::Encoder::open_at_once`] with this epoch and as large a
    /// cache. Its own id is taken for 0.
    ///
    /// # Errors
    /// The cache's size is out of bounds.
    pub fn open_at_once(config: DecoderConfig, epoch: u32) -> Result<Self, CacheSizeError> {
        Self::follow(DecoderConfig { id: 0, ..config }, epoch, 0)
    }

    /// A decoder that listens to a stream that others opened, from [`crate::Encoder::next_number`] on: a mirror of the cache,
    /// for whoever is to take over from the encoder. Its cache has the stream's size; what it has to say concerns nobody.
    ///
    /// # Errors
    /// The cache's size is out of bounds.
    pub fn follow(config: DecoderConfig, epoch: u32, next_number: u64) -> Result<Self, CacheSizeError> {
        let mut decoder = Self::new(config)?;
        decoder.stream = Some(Stream { epoch, former: None });
        decoder.store.next = next_number.min(NUMBER_MAX);
        decoder.begin_order(decoder.store.next);
        Ok(decoder)
    }

    /// Handles a block with a shim. If it is restored at once, it is in `out`, in place of what was there.
    ///
    /// # Errors
    /// It is malformed, or points outside of the cache: it is dropped, and nothing changes.
    pub fn handle_block(
        &mut self,
        now: Instant,
        ticket: Ticket,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Handled, DecodeError> {
        let shim = Shim::parse(block)?;
        if !self.knows(shim.tag) {
            self.counters.blocks_unknown += 1;
            self.tell_unknown(now, shim.tag);
            if let Content::Literal(block) = shim.content {
                self.counters.blocks_literal += 1;
                out.clear();
                out.extend_from_slice(block);
                return Ok(Handled::Decoded);
            }
            return Ok(self.wait(now, ticket, block));
        }
        if self.fork_of(shim.tag).is_none() {
            self.verify_order(now, &shim);
        }
        match self.restore(now, &shim, out) {
            Ok(()) => Ok(Handled::Decoded),
            Err(Lack::Missing) => {
                let handled = self.wait(now, ticket, block);
                self.ask(now);
                Ok(handled)
            }
            Err(Lack::Error(error)) => Err(error),
        }
    }

    fn wait(&mut self, now: Instant, ticket: Ticket, block: &[u8]) -> Handled {
        self.counters.blocks_waited += 1;
        self.waiting.push(ticket, block, now);
        while let Some(excess) = self.waiting.pop_excess() {
            self.abandon(excess.ticket);
        }
        Handled::Waiting
    }

    fn abandon(&mut self, ticket: Ticket) {
        self.counters.blocks_abandoned += 1;
        self.abandoned.push_back(ticket);
    }

    fn restore(&mut self, now: Instant, shim: &Shim<'_>, out: &mut Vec<u8>) -> Result<(), Lack> {
        let number = shim.number(self.store.next).filter(|number| *number < NUMBER_MAX);
        let number = number.ok_or(Lack::Error(DecodeError::Number))?;
        let fork = self.fork_of(shim.tag);
        match &shim.content {
            Content::Literal(block) => {
                out.clear();
                out.extend_from_slice(block);
                self.counters.blocks_literal += 1;
            }
            Content::Encoded(encoded) => {
                let expanded = self.expand(number, encoded, fork, out);
                if matches!(expanded, Err(Lack::Missing)) && fork.is_none() {
                    // What it points to lies before it, and is asked for.
                    self.store.next = self.store.next.max(number);
                }
                expanded?;
                self.counters.blocks_encoded += 1;
            }
        }
        // What a predecessor numbered from the fork on has the numbers of others.
        if fork.is_none() {
            self.keep(now, number, out);
        }
        Ok(())
    }

    fn expand(&mut self, number: u64, encoded: &Encoded<'_>, fork: Option<u64>, out: &mut Vec<u8>) -> Result<(), Lack> {
        let base = number * GRANULE_BYTES as u64;
        out.clear();
        out.reserve(encoded.restored_bytes);
        let mut literals = encoded.literals;
        for pointer in encoded.pointers() {
            let (skipped, rest) = literals.split_at(pointer.skip);
            literals = rest;
            out.extend_from_slice(skipped);
            if let Some(offset) = pointer.own_offset(base) {
                copy_own(offset, pointer.length, out)?;
                continue;
            }
            let (position, range) = self.locate(base, &pointer)?;
            let is_foreign = fork.is_some_and(|fork| position + pointer.length as u64 > fork * GRANULE_BYTES as u64);
            if is_foreign || !self.store.has(position, &range) {
                return Err(Lack::Missing);
            }
            out.extend_from_slice(self.store.bytes(range));
        }
        out.extend_from_slice(literals);
        if check_of(encoded, out) == encoded.check {
            return Ok(());
        }
        // Something in the cache is not what it should be. All that was pointed to is asked for.
        self.counters.check_failures += 1;
        for pointer in encoded.pointers().filter(|pointer| pointer.own_offset(base).is_none()) {
            let (position, _) = self.locate(base, &pointer)?;
            numbers(position, pointer.length).for_each(|number| self.store.forget(number));
        }
        Err(Lack::Missing)
    }

    fn locate(&self, base: u64, pointer: &crate::wire::shim::Pointer) -> Result<(u64, Range<usize>), Lack> {
        let outside = || Lack::Error(DecodeError::Pointer);
        let position = pointer.position(base).ok_or_else(outside)?;
        let is_within =
            base - position <= self.store.granules() * GRANULE_BYTES as u64 && position + pointer.length as u64 <= base;
        let range = self.store.range(position, pointer.length).filter(|_| is_within);
        range.map(|range| (position, range)).ok_or_else(outside)
    }

    fn keep(&mut self, now: Instant, number: u64, block: &[u8]) {
        if self.store.put(number, block) {
            self.stale_in_a_row = 0;
            self.is_news = true;
            self.report.add(now, numbers(number * GRANULE_BYTES as u64, block.len()));
            return;
        }
        self.counters.blocks_stale += 1;
        self.stale_in_a_row += 1;
        if self.stale_in_a_row > STALE_BLOCKS_MAX {
            // The number that it believes in must be wrong: better to begin anew than to keep nothing for ever.
            self.forget_stream();
        }
    }

    /// The numbers that a waiting block lacks.
    fn missing_of(&self, block: &[u8], missing: &mut Ranges) {
        let Ok(shim) = Shim::parse(block) else { return };
        let (Content::Encoded(encoded), Some(number)) = (shim.content, shim.number(self.store.next)) else { return };
        if !self.knows(shim.tag) || self.fork_of(shim.tag).is_some() {
            return;
        }
        for pointer in encoded.pointers() {
            let Ok((position, _)) = self.locate(number * GRANULE_BYTES as u64, &pointer) else { continue };
            for number in numbers(position, pointer.length).filter(|number| !self.store.holds(*number)) {
                missing.add(number..number + 1, RANGES_MAX);
            }
        }
    }

    /// Asks for what blocks lack, each when its time has come.
    fn ask(&mut self, now: Instant) {
        let mut missing = Ranges::default();
        let due: Vec<_> =
            self.waiting.iter().filter(|waiting| waiting.ask_at <= now).map(|of| of.block.clone()).collect();
        due.iter().for_each(|block| self.missing_of(block, &mut missing));
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.ask_at <= now) {
            waiting.ask_at = now + ASK_AGAIN;
            waiting.asked += 1;
        }
        if let Some(stream) = self.stream.as_ref().filter(|_| !missing.is_empty()) {
            let (epoch, decoder) = (stream.epoch, self.id);
            self.say(Control::Missing { epoch, decoder, ranges: missing.as_slice().to_vec() });
        }
    }

    fn say(&mut self, message: Control<'static>) {
        if self.outbox.len() < OUTBOX_MESSAGES_MAX {
            self.outbox.push_back(message);
        }
    }

    pub(super) fn handle_fill(&mut self, number: u64, bytes: &[u8]) {
        // Only what is older than the newest block: a filling does not move the cache on.
        let count = (bytes.len() / GRANULE_BYTES) as u64;
        if number + count <= self.store.next && self.store.put(number, bytes) {
            self.counters.granules_filled += count;
            self.is_news = true;
            self.report.add_unmerged(number..number + count);
        }
    }

    /// Blocks that lack what the encoder has no more are abandoned.
    pub(super) fn handle_gone(&mut self, ranges: &NumberRanges) {
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index) {
            let mut missing = Ranges::default();
            self.missing_of(&waiting.block, &mut missing);
            let is_hopeless = missing
                .as_slice()
                .iter()
                .any(|lacking| ranges.iter().any(|gone| gone.start < lacking.end && lacking.start < gone.end));
            match is_hopeless.then(|| self.waiting.remove(index)).flatten() {
                Some(removed) => self.abandon(removed.ticket),
                None => index += 1,
            }
        }
    }

    /// What became of blocks that waited: a restored one is in `out`, in place of what was there. None when there is nothing
    /// to tell.
    pub fn poll_event(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Event> {
        if let Some(ticket) = self.abandoned.pop_front() {
            return Some(Event::Abandoned(ticket));
        }
        while core::mem::take(&mut self.is_news) {
            let mut index = 0;
            while index < self.waiting.len() {
                match self.retry(now, index, out) {
                    None => index += 1,
                    // Others may do with what this one brought, or need no more news than there was.
                    Some(event) => {
                        self.is_news = true;
                        return Some(event);
                    }
                }
            }
        }
        None
    }

    fn retry(&mut self, now: Instant, index: usize, out: &mut Vec<u8>) -> Option<Event> {
        let waiting = self.waiting.get(index)?;
        let (ticket, block) = (waiting.ticket, waiting.block.clone());
        let shim = Shim::parse(&block).ok()?;
        if !self.knows(shim.tag) {
            return None;
        }
        let restored = self.restore(now, &shim, out);
        match restored {
            Err(Lack::Missing) => None,
            Ok(()) => {
                self.waiting.remove(index);
                Some(Event::Decoded(ticket))
            }
            Err(Lack::Error(_)) => {
                self.waiting.remove(index);
                self.counters.blocks_abandoned += 1;
                Some(Event::Abandoned(ticket))
            }
        }
    }

    /// When [`Decoder::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let asking = self.waiting.iter().map(|waiting| waiting.ask_at).min();
        [asking, self.report.due_at()].into_iter().flatten().min()
    }

    /// Time has passed: what is still lacking is asked for again, and what was asked for too often is abandoned.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index) {
            if waiting.asked < ASKS_MAX || waiting.ask_at > now {
                index += 1;
            } else if let Some(removed) = self.waiting.remove(index) {
                self.abandon(removed.ticket);
            }
        }
        if self.waiting.iter().any(|waiting| waiting.ask_at <= now) {
            self.ask(now);
        }
    }

    /// What it did so far.
    #[must_use]
    pub const fn counters(&self) -> DecoderCounters {
        self.counters
    }

    /// Bytes of memory: of the payload, and of all else whose size depends on the configuration.
    #[must_use]
    pub const fn memory_bytes(&self) -> [usize; 2] {
        self.store.memory_bytes()
    }

    pub(crate) fn into_heritage(self) -> Option<Heritage> {
        let epoch = self.stream.or(self.parked)?.epoch;
        let mut this = self;
        this.lose_order();
        let (granules, next) = (this.store.granules(), this.store.next);
        let (ring, held) = this.store.into_ring();
        Some(Heritage { epoch, granules, next, ring, held })
    }

    fn knows(&self, tag: u8) -> bool {
        let Some(stream) = &self.stream else { return false };
        let is_former = stream.former.is_some_and(|former| tag_of(former.epoch) == tag);
        tag_of(stream.epoch) == tag || is_former
    }

    /// Where a former stream ends that blocks with this tag are of. None for the present stream's.
    fn fork_of(&self, tag: u8) -> Option<u64> {
        let stream = self.stream.as_ref()?;
        if tag_of(stream.epoch) == tag {
            return None;
        }
        stream.former.map(|former| former.fork)
    }
}

/// The check of what pointers stand for, of the restored block: copies ask memory for more at once than the check would, and
/// leave the bytes near.
fn check_of(encoded: &Encoded<'_>, restored: &[u8]) -> u32 {
    let mut check = ReferenceCheck::default();
    let mut at = 0;
    for pointer in encoded.pointers() {
        at += pointer.skip;
        check.add(&restored[at..at + pointer.length]);
        at += pointer.length;
    }
    check.finish()
}

/// Appends what stands at `offset` of the block so far. It may run into what is appended: then that is copied on.
fn copy_own(offset: usize, length: usize, out: &mut Vec<u8>) -> Result<(), Lack> {
    if offset >= out.len() {
        return Err(Lack::Error(DecodeError::Pointer));
    }
    let mut left = length;
    while left > 0 {
        // All of it is as long as the copy is whole turns of what lies between.
        let copied = left.min(out.len() - offset);
        out.extend_from_within(offset..offset + copied);
        left -= copied;
    }
    Ok(())
}

/// The numbers of bytes from `position` on.
const fn numbers(position: u64, length: usize) -> Range<u64> {
    position / GRANULE_BYTES as u64..(position + length as u64).div_ceil(GRANULE_BYTES as u64)
}
