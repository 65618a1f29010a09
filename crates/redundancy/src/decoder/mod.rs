//! The decoder: restores blocks from pointers.
//!
//! It requests missing data. Blocks wait for that, in bounded number and time, and then come out of
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
use self::report::HeldReport;
pub use self::resuming::{Held, StreamPosition};
use self::store::Store;
use self::stream::{Cookies, Stream};
pub use self::waiting::Ticket;
use self::waiting::Waiting;
use crate::limits::{GRANULE_BYTES, OUTBOX_MESSAGES_MAX, RANGES_MAX, STALE_BLOCKS_MAX};
use crate::packet_cache::{CacheSizeError, GranuleSet, Ranges, Ring, granules_of};
use crate::reference_check::ReferenceCheck;
use crate::wire::control::{Control, NUMBER_MAX, NumberRanges};
use crate::wire::shim::{Content, Encoded, Shim, ShimError, tag_of};

/// The interval after which missing data is requested again.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The number of failed requests after which the block is abandoned.
pub const REQUESTS_PER_BLOCK_MAX: u32 = 5;

/// The configuration of a decoder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecoderConfig {
    /// Bytes of the cache. An encoder with a larger cache is refused.
    pub cache_bytes: usize,
    /// The incarnation of the decoder, chosen at random by its creator.
    pub id: u32,
}

/// The result of handling a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handled {
    /// It is restored.
    Decoded,
    /// It lacks bytes: an [`Event`] with its ticket follows.
    Waiting,
}

/// The outcome of a waiting block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It is restored.
    Decoded(Ticket),
    /// It cannot be restored and counts as lost in the network.
    Abandoned(Ticket),
}

/// Why a block is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// It is malformed.
    #[error(transparent)]
    Shim(#[from] ShimError),
    /// It points beyond its own position, further back than a cache, or over the cache's end.
    #[error("a pointer leads outside of the cache: the encoder misbehaves, or its cache is larger than negotiated")]
    Pointer,
    /// An invalid number.
    #[error("the block's number is below the first")]
    Number,
}

/// The decoder's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DecoderCounters {
    /// Blocks that arrived verbatim.
    pub blocks_literal: u64,
    /// Blocks restored from pointers, at once or later.
    pub blocks_encoded: u64,
    /// Blocks that lacked data on arrival.
    pub blocks_waited: u64,
    /// Blocks that could not be restored.
    pub blocks_abandoned: u64,
    /// Blocks of an unknown epoch.
    pub blocks_unknown: u64,
    /// Blocks whose referenced bytes differed from the encoder's.
    pub check_failures: u64,
    /// Blocks whose number was too old to be cached.
    pub blocks_stale: u64,
    /// Granules that the encoder sent on request.
    pub granules_filled: u64,
    /// Plain blocks that were cached.
    pub blocks_plain_cached: u64,
}

/// The decoding side.
#[derive(Clone, Debug)]
pub struct Decoder {
    id: u32,
    store: Store,
    implied: Implied,
    stream: Option<Stream>,
    /// The stream of the former channel, while the new one's is not open yet.
    parked: Option<Stream>,
    awaits_open: bool,
    cookies: Cookies,
    waiting: Waiting,
    abandoned: VecDeque<Ticket>,
    report: HeldReport,
    /// Whether data has arrived since the last attempt to restore waiting blocks.
    is_news: bool,
    stale_in_a_row: u32,
    /// Reply messages to be sent.
    outbox: VecDeque<Control<'static>>,
    unknown_sent_at: Option<Instant>,
    counters: DecoderCounters,
}

/// The state that an encoder takes over from a decoder that followed its predecessor.
pub(crate) struct InheritedCache {
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
    /// A decoder without a stream.
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
            report: HeldReport::default(),
            is_news: false,
            stale_in_a_row: 0,
            outbox: VecDeque::new(),
            unknown_sent_at: None,
            counters: DecoderCounters::default(),
        })
    }

    /// A decoder whose encoder begins at the same moment, by [`crate::Encoder::open_at_once`] with this epoch and an
    /// equal cache size. Its id counts as 0.
    ///
    /// # Errors
    /// The cache's size is out of bounds.
    pub fn open_at_once(config: DecoderConfig, epoch: u32) -> Result<Self, CacheSizeError> {
        Self::follow(DecoderConfig { id: 0, ..config }, epoch, 0)
    }

    /// A decoder that follows an open stream from [`crate::Encoder::next_number`] on: a mirror of the cache, for a node
    /// that may take over from the encoder. Its cache has the stream's size; its messages are not sent.
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

    /// Handles a block with a shim. If it is restored at once, `out` receives it, replacing earlier content.
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
            self.send_unknown(now, shim.tag);
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
                self.request_missing(now);
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
                    // Earlier data that it points to will be requested.
                    self.store.next = self.store.next.max(number);
                }
                expanded?;
                self.counters.blocks_encoded += 1;
            }
        }
        // From the fork on, the predecessor's numbers denote other blocks.
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
        // Some cached data is wrong. All referenced data is requested.
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
            // The decoder's number must be wrong: restarting is better than never caching again.
            self.reset_stream();
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

    /// Requests the missing data of waiting blocks, each when it is due.
    fn request_missing(&mut self, now: Instant) {
        let mut missing = Ranges::default();
        let due: Vec<_> =
            self.waiting.iter().filter(|waiting| waiting.ask_at <= now).map(|of| of.block.clone()).collect();
        due.iter().for_each(|block| self.missing_of(block, &mut missing));
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.ask_at <= now) {
            waiting.ask_at = now + RETRY_INTERVAL;
            waiting.asked += 1;
        }
        if let Some(stream) = self.stream.as_ref().filter(|_| !missing.is_empty()) {
            let (epoch, decoder) = (stream.epoch, self.id);
            self.send(Control::Missing { epoch, decoder, ranges: missing.as_slice().to_vec() });
        }
    }

    fn send(&mut self, message: Control<'static>) {
        if self.outbox.len() < OUTBOX_MESSAGES_MAX {
            self.outbox.push_back(message);
        }
    }

    pub(super) fn handle_fill(&mut self, number: u64, bytes: &[u8]) {
        // Only data older than the newest block: a Fill does not advance the cache.
        let count = (bytes.len() / GRANULE_BYTES) as u64;
        if number + count <= self.store.next && self.store.put(number, bytes) {
            self.counters.granules_filled += count;
            self.is_news = true;
            self.report.add_unmerged(number..number + count);
        }
    }

    /// Abandons blocks whose missing data the encoder no longer has.
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

    /// The outcome of a waiting block: `out` receives a restored one, replacing earlier content. None when there is no
    /// outcome.
    pub fn poll_event(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Event> {
        if let Some(ticket) = self.abandoned.pop_front() {
            return Some(Event::Abandoned(ticket));
        }
        while core::mem::take(&mut self.is_news) {
            let mut index = 0;
            while index < self.waiting.len() {
                match self.retry(now, index, out) {
                    None => index += 1,
                    // The data of this block may complete others, or they may have been complete before.
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

    /// Handles the passage of time: missing data is requested again, and abandoned after too many requests.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index) {
            if waiting.asked < REQUESTS_PER_BLOCK_MAX || waiting.ask_at > now {
                index += 1;
            } else if let Some(removed) = self.waiting.remove(index) {
                self.abandon(removed.ticket);
            }
        }
        if self.waiting.iter().any(|waiting| waiting.ask_at <= now) {
            self.request_missing(now);
        }
    }

    /// The counters since the last reset.
    #[must_use]
    pub const fn counters(&self) -> DecoderCounters {
        self.counters
    }

    /// Bytes of memory: of the payload, and of all other parts whose size depends on the configuration.
    #[must_use]
    pub const fn memory_bytes(&self) -> [usize; 2] {
        self.store.memory_bytes()
    }

    pub(crate) fn into_inherited_cache(self) -> Option<InheritedCache> {
        let epoch = self.stream.or(self.parked)?.epoch;
        let mut this = self;
        this.lose_order();
        let (granules, next) = (this.store.granules(), this.store.next);
        let (ring, held) = this.store.into_ring();
        Some(InheritedCache { epoch, granules, next, ring, held })
    }

    fn knows(&self, tag: u8) -> bool {
        let Some(stream) = &self.stream else { return false };
        let is_former = stream.former.is_some_and(|former| tag_of(former.epoch) == tag);
        tag_of(stream.epoch) == tag || is_former
    }

    /// The end of the former stream that blocks with this tag belong to. None for the present stream's.
    fn fork_of(&self, tag: u8) -> Option<u64> {
        let stream = self.stream.as_ref()?;
        if tag_of(stream.epoch) == tag {
            return None;
        }
        stream.former.map(|former| former.fork)
    }
}

/// The check of the restored block's referenced bytes. Copying first loads memory with more parallelism than the check
/// would, and leaves the bytes in the cache.
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

/// Appends the bytes at `offset` of the block so far. The source may overlap the appended bytes, which then repeat.
fn copy_own(offset: usize, length: usize, out: &mut Vec<u8>) -> Result<(), Lack> {
    if offset >= out.len() {
        return Err(Lack::Error(DecodeError::Pointer));
    }
    let mut left = length;
    while left > 0 {
        // The whole is as long as the copy is a multiple of the distance.
        let copied = left.min(out.len() - offset);
        out.extend_from_within(offset..offset + copied);
        left -= copied;
    }
    Ok(())
}

/// The numbers of the bytes from `position` on.
const fn numbers(position: u64, length: usize) -> Range<u64> {
    position / GRANULE_BYTES as u64..(position + length as u64).div_ceil(GRANULE_BYTES as u64)
}
