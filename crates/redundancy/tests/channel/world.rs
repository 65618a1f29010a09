//! An encoder and a decoder, the network between them, and their faults; all from one RNG seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flow::Instant;
use redundancy::{
    Decoder, DecoderConfig, Encoder, EncoderConfig, Encoding, Event, FlowPosition, Handled, Matcher, Method, Sampling,
    Ticket, Trust,
};

/// Numbers from an RNG seed (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(crate) const fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    pub(crate) const fn chance(&mut self, per_mille: u32) -> bool {
        self.next() % 1000 < per_mille as u64
    }
}

/// The faults of the network, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) lost: u32,
    pub(crate) repeated: u32,
    /// Delayed by up to a few milliseconds more than others.
    pub(crate) late: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) weather: Weather,
    pub(crate) cache_bytes: usize,
    pub(crate) method: Method,
    pub(crate) matcher: Matcher,
    pub(crate) trust: Trust,
    /// Only with faults that keep the order.
    pub(crate) caches_plain: bool,
}

enum Parcel {
    Block(usize, Vec<u8>),
    Plain(usize, Vec<u8>),
    PlainCached(usize, Vec<u8>),
    ToDecoder(Vec<u8>),
    ToEncoder(Vec<u8>),
}

pub(crate) struct World {
    setting: Setting,
    pub(crate) random: Random,
    pub(crate) now: Instant,
    pub(crate) encoder: Encoder,
    pub(crate) decoder: Decoder,
    /// Receives the blocks too.
    pub(crate) mirror: Decoder,
    in_flight: BTreeMap<(Instant, u64), Parcel>,
    parcels: u64,
    /// All blocks ever sent, with their positions in the single flow.
    pub(crate) blocks: Vec<(FlowPosition, Vec<u8>)>,
    pub(crate) delivered: BTreeSet<usize>,
    pub(crate) abandoned: u64,
    names: u32,
}

const LATENCY: Duration = Duration::from_millis(5);
/// The cache size of both sides.
pub(crate) const CACHE_BYTES: usize = 1 << 17;

fn encoder_config(setting: &Setting, epoch: u32) -> EncoderConfig {
    let sampling = Sampling { method: setting.method, ..Sampling::default() };
    let Setting { cache_bytes, matcher, trust, caches_plain, .. } = *setting;
    let config = EncoderConfig { cache_bytes, sampling, matcher, trust, epoch, ..EncoderConfig::default() };
    EncoderConfig { key: [7, 9], caches_plain, ..config }
}

impl World {
    pub(crate) fn new(setting: Setting) -> Self {
        let config = DecoderConfig { cache_bytes: setting.cache_bytes, id: 1 };
        Self {
            encoder: Encoder::new(encoder_config(&setting, 2)).expect("the size is right"),
            decoder: Decoder::new(config).expect("the size is right"),
            mirror: Decoder::follow(config, 2, 0).expect("the size is right"),
            setting,
            random: Random::new(setting.seed),
            now: Instant::from_millis(1),
            in_flight: BTreeMap::new(),
            parcels: 0,
            blocks: Vec::new(),
            delivered: BTreeSet::new(),
            abandoned: 0,
            names: 10,
        }
    }

    fn name(&mut self) -> u32 {
        self.names += 1 + self.random.next() as u32 % 1000;
        self.names
    }

    pub(crate) fn set_weather(&mut self, weather: Weather) {
        self.setting.weather = weather;
    }

    /// A block, half of which may have been sent before.
    pub(crate) fn fresh_block(&mut self) -> Vec<u8> {
        let length = [60, 300, 900, 1460, 1460, 1460, 5000][self.random.below(7)];
        let mut block = Vec::with_capacity(length);
        while block.len() < length {
            let run = 20 + self.random.below(800);
            if block.len() > 32 && self.random.chance(100) {
                // Data that repeats within the block, and may overlap itself.
                let start = self.random.below(block.len());
                (0..run).for_each(|at| block.push(block[start + at]));
            } else if !self.blocks.is_empty() && self.random.chance(500) {
                // Mostly recent data, and sometimes data that has left the cache.
                let far = if self.random.chance(900) { 30 } else { 400 };
                let back = 1 + self.random.below(far);
                let other = &self.blocks[self.blocks.len().saturating_sub(back)].1;
                let start = self.random.next() as usize % other.len();
                block.extend_from_slice(&other[start..other.len().min(start + run)]);
            } else {
                block.extend((0..run).map(|_| self.random.next() as u8));
            }
        }
        block.truncate(length);
        block
    }

    /// Sends a block for the first time. Returns its number.
    pub(crate) fn send(&mut self, block: Vec<u8>) -> (usize, Encoding) {
        let sequence = self.blocks.last().map_or(1_000, |(at, block)| at.sequence.wrapping_add(block.len() as u32));
        self.blocks.push((FlowPosition { flow: 77 << 32 | 5, sequence }, block));
        let number = self.blocks.len() - 1;
        (number, self.resend(number))
    }

    /// Sends a block again.
    pub(crate) fn resend(&mut self, number: usize) -> Encoding {
        let (at, block) = self.blocks[number].clone();
        let mut out = Vec::new();
        let encoding = self.encoder.encode_segment(at, &block, &mut out);
        // A block without matches grows at most by a shim.
        assert!(encoding.wire_bytes(&block, &out) <= block.len() + 4);
        if encoding.has_shim() {
            self.hand_to_mirror(number, &out);
            self.carry(|| Parcel::Block(number, out.clone()));
        } else if encoding == Encoding::PlainCached {
            if !self.random.chance(self.setting.weather.lost) {
                self.mirror.handle_plain(&block);
            }
            self.carry(|| Parcel::PlainCached(number, block.clone()));
        } else {
            self.carry(|| Parcel::Plain(number, block.clone()));
        }
        encoding
    }

    fn hand_to_mirror(&mut self, number: usize, wire: &[u8]) {
        let mut restored = Vec::new();
        if !self.random.chance(self.setting.weather.lost) {
            let handled = self.mirror.handle_block(self.now, Ticket(number as u64), wire, &mut restored);
            if handled == Ok(Handled::Decoded) {
                assert_eq!(restored, self.blocks[number].1, "the mirror");
            }
        }
    }

    fn carry(&mut self, parcel: impl Fn() -> Parcel) {
        let Weather { lost, repeated, late } = self.setting.weather;
        let copies = 1 + usize::from(self.random.chance(repeated));
        for _ in 0..copies {
            if self.random.chance(lost) {
                continue;
            }
            let extra = if self.random.chance(late) { self.random.below(8_000) } else { 0 };
            self.parcels += 1;
            let at = self.now + LATENCY + Duration::from_micros(extra as u64);
            self.in_flight.insert((at, self.parcels), parcel());
        }
    }

    /// Advances the time by so many milliseconds.
    pub(crate) fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now = self.now + Duration::from_millis(1);
            while let Some(entry) = self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let parcel = entry.remove();
                self.deliver(parcel);
            }
            self.encoder.handle_timeout(self.now);
            self.decoder.handle_timeout(self.now);
            self.mirror.handle_timeout(self.now);
            self.poll_events();
            let mut out = Vec::new();
            while self.encoder.poll_transmit(self.now, &mut out) {
                self.carry(|| Parcel::ToDecoder(out.clone()));
            }
            while self.decoder.poll_transmit(self.now, &mut out) {
                self.carry(|| Parcel::ToEncoder(out.clone()));
            }
        }
    }

    fn deliver(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Plain(number, block) => self.arrived(number, &block),
            Parcel::PlainCached(number, block) => {
                self.decoder.handle_plain(&block);
                self.arrived(number, &block);
            }
            Parcel::Block(number, wire) => {
                let mut restored = Vec::new();
                let handled = self.decoder.handle_block(self.now, Ticket(number as u64), &wire, &mut restored);
                // A block of another stream may contain invalid pointers in this one.
                if handled == Ok(Handled::Decoded) {
                    self.arrived(number, &restored);
                }
            }
            Parcel::ToDecoder(message) => {
                self.decoder.handle_control(self.now, &message).expect("the encoder is well");
            }
            Parcel::ToEncoder(message) => {
                self.encoder.handle_control(self.now, &message).expect("the decoder is well");
            }
        }
        self.poll_events();
    }

    fn poll_events(&mut self) {
        let mut restored = Vec::new();
        while let Some(event) = self.decoder.poll_event(self.now, &mut restored) {
            match event {
                Event::Decoded(Ticket(number)) => self.arrived(number as usize, &restored),
                Event::Abandoned(_) => self.abandoned += 1,
            }
        }
        while self.mirror.poll_event(self.now, &mut restored).is_some() {}
    }

    fn arrived(&mut self, number: usize, block: &[u8]) {
        assert_eq!(block, self.blocks[number].1, "block {number} of seed {}", self.setting.seed);
        self.delivered.insert(number);
    }

    /// Retransmits missing data, as TCP would, until all has arrived. Returns the number of rounds.
    pub(crate) fn settle(&mut self, rounds_max: usize) -> usize {
        for round in 0..=rounds_max {
            self.run(100);
            let missing: Vec<usize> =
                (0..self.blocks.len()).filter(|number| !self.delivered.contains(number)).collect();
            if missing.is_empty() {
                return round;
            }
            for number in missing {
                self.resend(number);
                self.run(1);
            }
        }
        panic!("blocks do not arrive in {rounds_max} rounds: {:?}", self.setting);
    }

    /// The encoder restarts empty.
    pub(crate) fn restart_encoder(&mut self) {
        let epoch = self.name();
        self.encoder = Encoder::new(encoder_config(&self.setting, epoch)).expect("the size is right");
        self.follow();
    }

    /// The decoder restarts empty.
    pub(crate) fn restart_decoder(&mut self) {
        let config = DecoderConfig { cache_bytes: self.setting.cache_bytes, id: self.name() };
        self.decoder = Decoder::new(config).expect("the size is right");
    }

    /// The encoder fails, and the node with the mirror continues.
    pub(crate) fn fail_over_encoder(&mut self) {
        let epoch = self.name();
        let mirror = self.mirror.clone();
        self.encoder = Encoder::take_over(encoder_config(&self.setting, epoch), mirror).expect("the size is right");
        self.follow();
    }

    /// Another node follows the stream from now on.
    fn follow(&mut self) {
        let config = DecoderConfig { cache_bytes: self.setting.cache_bytes, id: self.name() };
        let (epoch, next) = (self.encoder.epoch(), self.encoder.next_number());
        self.mirror = Decoder::follow(config, epoch, next).expect("the size is right");
    }
}
