//! Redundancy elimination: what is encoded is decoded, and what nobody encoded or said does no harm.

use std::time::Duration;

use flow::Instant;
use redundancy::limits::{BLOCK_BYTES_MAX, CACHE_BYTES_MIN, WAITING_BLOCKS_MAX};
use redundancy::{
    Decoder, DecoderConfig, Encoder, EncoderConfig, Encoding, Event, Handled, Matcher, Method, Period, Sampling, Ticket,
};

const EPOCH: u32 = 1;

/// The first byte chooses the encoding. Then come steps: an action, the length of its bytes, and the bytes.
pub fn run(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let Some(mut pair) = Pair::new(*first) else { return };
    while let Some(([step, length], after)) = rest.split_first_chunk::<2>() {
        let (bytes, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        pair.step(*step, bytes);
    }
    pair.finish();
}

struct Pair {
    encoder: Encoder,
    decoder: Decoder,
    now: Instant,
    /// Once something foreign was said to the decoder, what it has is its own affair.
    is_clean: bool,
    waiting: usize,
    out: Vec<u8>,
}

impl Pair {
    fn new(first: u8) -> Option<Self> {
        let method = Method::ALL[usize::from(first & 3)];
        let matcher = if first & 4 == 0 { Matcher::MaxMatch } else { Matcher::ChunkMatch };
        let period = Period::new(4 << (first >> 5)).ok()?;
        let sampling = Sampling { method, period, ..Sampling::default() };
        let cache_bytes = CACHE_BYTES_MIN;
        let caches_plain = first & 8 != 0;
        let config = EncoderConfig { cache_bytes, sampling, matcher, caches_plain, ..EncoderConfig::default() };
        let config = EncoderConfig { epoch: EPOCH, ..config };
        Some(Self {
            encoder: Encoder::open_at_once(config).ok()?,
            decoder: Decoder::open_at_once(DecoderConfig { cache_bytes, id: 0 }, EPOCH).ok()?,
            now: Instant::from_millis(1),
            is_clean: true,
            waiting: 0,
            out: Vec::new(),
        })
    }

    fn step(&mut self, step: u8, bytes: &[u8]) {
        match step & 7 {
            // Identity, of the bytes as often as it takes to be long and redundant.
            0..=2 => self.pass(&bytes.repeat(1 + usize::from(step >> 3))),
            3 if step & 8 == 0 => self.hand_in(bytes),
            3 => {
                self.decoder.handle_plain(bytes);
                self.is_clean = false;
            }
            4 => {
                // A refusal is an answer as good as another.
                let _ = self.decoder.handle_control(self.now, bytes);
                self.is_clean = false;
            }
            5 => {
                let _ = self.encoder.handle_control(self.now, bytes);
            }
            6 => self.pass_time(),
            _ => self.encoder.set_period(Period::new(4 << (step >> 5)).unwrap_or(Period::DEFAULT)),
        }
        self.drain();
    }

    fn pass(&mut self, block: &[u8]) {
        let mut wire = Vec::new();
        let encoding = self.encoder.encode_block(block, &mut wire);
        assert!(encoding.wire_bytes(block, &wire) <= block.len() + 4);
        if encoding == Encoding::PlainCached {
            self.decoder.handle_plain(block);
        }
        if !encoding.has_shim() {
            return;
        }
        let handled = self.decoder.handle_block(self.now, Ticket(0), &wire, &mut self.out);
        if self.is_clean {
            assert_eq!(handled, Ok(Handled::Decoded));
            assert_eq!(self.out, block);
        }
        self.waiting += usize::from(handled == Ok(Handled::Waiting));
    }

    fn hand_in(&mut self, bytes: &[u8]) {
        self.is_clean = false;
        match self.decoder.handle_block(self.now, Ticket(1), bytes, &mut self.out) {
            Ok(Handled::Decoded) => assert!(self.out.len() <= BLOCK_BYTES_MAX),
            Ok(Handled::Waiting) => self.waiting += 1,
            Err(_) => {}
        }
    }

    fn pass_time(&mut self) {
        self.now = self.now + Duration::from_millis(100);
        self.encoder.handle_timeout(self.now);
        self.decoder.handle_timeout(self.now);
    }

    fn drain(&mut self) {
        while let Some(event) = self.decoder.poll_event(self.now, &mut self.out) {
            assert!(self.waiting > 0, "{event:?} of a block that did not wait");
            self.waiting -= 1;
            assert!(!matches!(event, Event::Decoded(_)) || self.out.len() <= BLOCK_BYTES_MAX);
        }
        assert!(self.waiting <= WAITING_BLOCKS_MAX);
        const MESSAGES_MAX: usize = 20_000;
        let spoken = |sent: usize| assert!(sent < MESSAGES_MAX, "it sends for ever");
        let mut message = Vec::new();
        let mut sent = 0;
        while self.encoder.poll_transmit(self.now, &mut message) {
            sent += 1;
            spoken(sent);
        }
        while self.decoder.poll_transmit(self.now, &mut message) {
            sent += 1;
            spoken(sent);
        }
    }

    /// What waits does not wait for ever.
    fn finish(&mut self) {
        for _ in 0..10 {
            self.pass_time();
            self.drain();
        }
        assert_eq!(self.waiting, 0);
    }
}
