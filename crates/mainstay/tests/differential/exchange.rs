//! Exchanges: what two end points send each other, with losses, repetitions and now and then something that neither would
//! ever send. An exchange depends on its number and the run's seed alone, never on what became of its segments.

use flow::Direction;
use flow::wire::tcp_flags::{ACK, SYN};

use crate::damage::Damage;
use crate::end_point::EndPoint;
use crate::random::Random;
use crate::segment::Segment;

/// The most segments of an exchange.
const SEGMENTS_MAX: u32 = 40;

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Proceed,
    Send,
    Acknowledge,
    KeepAlive,
    Repeat,
    Finish,
    Reset,
    /// The side has lost its memory, or is done with the connection, and begins another with the same tuple.
    Restart,
    /// What a server that holds an older connection answers to a SYN (RFC 5961 section 4).
    Challenge,
}

const STEPS: [(u32, Step); 9] = [
    (34, Step::Proceed),
    (22, Step::Send),
    (14, Step::Acknowledge),
    (4, Step::KeepAlive),
    (9, Step::Repeat),
    (6, Step::Finish),
    (4, Step::Reset),
    (5, Step::Restart),
    (2, Step::Challenge),
];

/// The segments of exchange `number` in the order in which they go by.
pub(crate) fn segments(seed: u64, number: u32) -> Vec<Segment> {
    let mut random = Random::new(seed, number.into());
    let mut exchange = Exchange::new(&mut random);
    let count = 3 + random.below(SEGMENTS_MAX - 3);
    // Some exchanges are quiet, in some nearly everything is wrong.
    let strangeness_percent = random.pick(&[0, 5, 15, 40]);
    (0..count).map(|_| exchange.next(&mut random, strangeness_percent)).collect()
}

struct Exchange {
    ends: [EndPoint; 2],
}

impl Exchange {
    fn new(random: &mut Random) -> Self {
        let mut ends = [EndPoint::new(Direction::Original, random), EndPoint::new(Direction::Reply, random)];
        if random.chance(8) {
            // What goes by belongs to a connection whose begin was not seen here.
            for side in [0, 1] {
                let syn = ends[side].syn(random);
                ends[side].note_sent(syn);
                ends[1 - side].note_received(&Segment { flags: SYN | ACK, ..syn });
            }
        }
        Self { ends }
    }

    fn next(&mut self, random: &mut Random, strangeness_percent: u32) -> Segment {
        let side = random.below(2) as usize;
        let step = random.weighted(&STEPS);
        let segment = self.segment(random, side, step);
        if random.chance(strangeness_percent) {
            // It may come from anybody: neither side knows of it.
            return self.distort(random, segment);
        }
        let side = segment.direction.index();
        self.ends[side].note_sent(segment);
        if !random.chance(5) {
            self.ends[1 - side].note_received(&segment);
        }
        segment
    }

    fn segment(&mut self, random: &mut Random, side: usize, step: Step) -> Segment {
        let end = &self.ends[side];
        match step {
            Step::Proceed => self.proceed(random, side),
            Step::Repeat => end.repetition(random).unwrap_or_else(|| self.proceed(random, side)),
            Step::Reset if random.chance(40) => end.reset(random),
            Step::Restart => {
                let distance = random.pick(&[1, 1000, 70_000, 1 << 20, 1 << 31]);
                let base = end.next();
                let initial = if random.chance(50) { base.wrapping_add(distance) } else { base.wrapping_sub(distance) };
                self.ends[side].begin(initial);
                if random.chance(50) {
                    let initial = random.next() as u32;
                    self.ends[1 - side].begin(initial);
                }
                self.ends[side].syn(random)
            }
            _ if !end.is_open => self.proceed(random, side),
            Step::Send => end.data(random),
            Step::KeepAlive => end.keep_alive(random),
            Step::Finish => end.finish(random),
            Step::Acknowledge | Step::Challenge | Step::Reset => end.acknowledgement(random),
        }
    }

    /// What brings the connection on.
    fn proceed(&mut self, random: &mut Random, side: usize) -> Segment {
        let [client, server] = &self.ends;
        if !client.is_open && !server.knows_peer() {
            // Now and then both sides open at once.
            return if random.chance(95) { client.syn(random) } else { server.syn(random) };
        }
        let end = &self.ends[side];
        if !end.knows_peer() {
            return self.ends[1 - side].syn(random);
        }
        if !end.is_open {
            return end.syn(random);
        }
        if end.has_finished { end.acknowledgement(random) } else { end.data(random) }
    }

    /// What somebody else might send, or a stack with a defect.
    fn distort(&self, random: &mut Random, segment: Segment) -> Segment {
        let mut segment = segment;
        for _ in 0..=random.below(2) {
            match random.below(9) {
                0 => segment.sequence = Self::shift(random, segment.sequence),
                1 => segment.acknowledgement = Self::shift(random, segment.acknowledgement),
                2 => segment.flags = random.next() as u8 & 0x3f,
                3 => segment.flags = random.pick(&[0x02, 0x12, 0x10, 0x11, 0x04, 0x14, 0x18, 0x30]),
                4 => segment.window = random.pick(&[0, 1, u16::MAX]),
                5 => segment.direction = segment.direction.reverse(),
                6 => (segment.sequence, segment.acknowledgement) = (segment.acknowledgement, segment.sequence),
                7 => segment.acknowledgement = 0,
                _ => segment.damage = Some(random.pick(&Damage::ALL)),
            }
        }
        segment
    }

    fn shift(random: &mut Random, number: u32) -> u32 {
        let distance =
            random.pick(&[1, 2, 100, 1400, 8000, 65_535, 66_000, 66_001, 1 << 20, 1 << 30, 1 << 31, 0x1234_5678]);
        if random.chance(50) { number.wrapping_add(distance) } else { number.wrapping_sub(distance) }
    }
}
