//! One end of an exchange: as much of a TCP stack as it takes to send what stacks send.

use flow::Direction;
use flow::wire::tcp_flags::{ACK, FIN, PSH, RST, SYN, URG};

use crate::random::Random;
use crate::segment::Segment;

/// Segments that an end point may still repeat.
const REPEATABLE_MAX: usize = 6;
/// The largest payload: what an ordinary link takes.
const PAYLOAD_BYTES_MAX: u32 = 1400;

/// What an end point chooses for its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    scale: Option<u8>,
    sack: bool,
    timestamps: bool,
    window: u16,
}

impl Habits {
    pub(crate) fn choose(random: &mut Random) -> Self {
        Self {
            scale: random.chance(60).then(|| random.below(15) as u8),
            sack: random.chance(60),
            timestamps: random.chance(30),
            window: random.pick(&[100, 1000, 8000, 30_000, u16::MAX]),
        }
    }
}

/// One end.
#[derive(Clone, Debug)]
pub(crate) struct EndPoint {
    direction: Direction,
    habits: Habits,
    initial: u32,
    /// The next sequence number to send.
    next: u32,
    /// The next sequence number that it waits for; nothing while the other side's SYN has not come.
    expected: Option<u32>,
    pub(crate) is_open: bool,
    pub(crate) has_finished: bool,
    sent: Vec<Segment>,
}

impl EndPoint {
    pub(crate) fn new(direction: Direction, random: &mut Random) -> Self {
        let mut end_point = Self {
            direction,
            habits: Habits::choose(random),
            initial: 0,
            next: 0,
            expected: None,
            is_open: false,
            has_finished: false,
            sent: Vec::new(),
        };
        let initial = random.next() as u32;
        // Often close to the end of the sequence numbers, so that exchanges go round it.
        end_point.begin(if random.chance(30) { u32::MAX - initial % 3000 } else { initial });
        end_point
    }

    /// Forgets the connection; the next one begins with this sequence number.
    pub(crate) fn begin(&mut self, initial: u32) {
        self.initial = initial;
        self.next = initial;
        self.expected = None;
        self.is_open = false;
        self.has_finished = false;
        self.sent.clear();
    }

    /// The next sequence number that it would send.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// Whether it has received a segment of the other side.
    pub(crate) const fn knows_peer(&self) -> bool {
        self.expected.is_some()
    }

    /// A segment of the present state, without payload or options.
    pub(crate) fn segment(&self, flags: u8) -> Segment {
        Segment {
            direction: self.direction,
            flags,
            sequence: self.next,
            acknowledgement: if flags & ACK != 0 { self.expected.unwrap_or(0) } else { 0 },
            window: self.habits.window,
            window_scale: None,
            sack_permitted: false,
            sack: None,
            timestamps: self.habits.timestamps.then_some((1, 1)),
            payload_bytes: 0,
            damage: None,
        }
    }

    /// Takes note of a segment that it sends.
    pub(crate) fn note_sent(&mut self, segment: Segment) {
        if segment.end().wrapping_sub(self.next).cast_signed() > 0 {
            self.next = segment.end();
        }
        if segment.has(FIN) {
            self.has_finished = true;
        }
        if segment.end() != segment.sequence {
            self.sent.truncate(REPEATABLE_MAX - 1);
            self.sent.insert(0, segment);
        }
    }

    /// Takes note of a segment that arrives.
    pub(crate) fn note_received(&mut self, segment: &Segment) {
        if segment.has(RST) {
            self.is_open = false;
            return;
        }
        match self.expected {
            None if segment.has(SYN) => self.expected = Some(segment.end()),
            Some(expected)
                if segment.sequence == expected || segment.end().wrapping_sub(expected).cast_signed() > 0 =>
            {
                self.expected = Some(segment.end());
            }
            _ => {}
        }
        if segment.has(ACK) && self.expected.is_some() && self.next != self.initial {
            self.is_open = true;
        }
    }

    pub(crate) fn syn(&self, random: &mut Random) -> Segment {
        let mut syn = self.segment(if self.knows_peer() { SYN | ACK } else { SYN });
        syn.sequence = self.initial;
        syn.window_scale = self.habits.scale;
        syn.sack_permitted = self.habits.sack;
        if random.chance(5) {
            // Fast open (RFC 7413): data in the SYN.
            syn.payload_bytes = random.below(500) as u16;
        }
        if random.chance(10) {
            // Explicit congestion notification is offered (RFC 3168 section 6.1.1).
            syn.flags |= 0xc0;
        }
        syn
    }

    pub(crate) fn data(&self, random: &mut Random) -> Segment {
        let flags = random.weighted(&[(70, ACK), (25, ACK | PSH), (3, ACK | PSH | URG), (2, ACK | 0x40)]);
        let mut data = self.segment(flags);
        data.payload_bytes = (1 + random.below(PAYLOAD_BYTES_MAX)) as u16;
        data
    }

    pub(crate) fn finish(&self, random: &mut Random) -> Segment {
        let mut fin = self.segment(random.pick(&[FIN | ACK, FIN | ACK | PSH]));
        fin.payload_bytes = if random.chance(20) { random.below(500) as u16 } else { 0 };
        fin
    }

    pub(crate) fn acknowledgement(&self, random: &mut Random) -> Segment {
        let mut segment = self.segment(ACK);
        match random.below(10) {
            0 => segment.window = 0,
            1 => segment.window = random.next() as u16,
            2 if self.habits.sack => {
                // Something behind a hole arrived.
                let left = segment.acknowledgement.wrapping_add(random.below(1000));
                segment.sack = Some((left, left.wrapping_add(random.below(500))));
                segment.timestamps = None;
            }
            _ => {}
        }
        segment
    }

    /// RFC 1122 section 4.2.3.6: nothing, or one byte, before what was sent last.
    pub(crate) fn keep_alive(&self, random: &mut Random) -> Segment {
        let mut segment = self.segment(ACK);
        segment.sequence = self.next.wrapping_sub(1);
        segment.payload_bytes = u16::from(random.chance(50));
        segment
    }

    pub(crate) fn reset(&self, random: &mut Random) -> Segment {
        let mut segment = self.segment(random.pick(&[RST, RST | ACK]));
        if !self.knows_peer() || random.chance(10) {
            segment.sequence = 0;
        }
        segment
    }

    /// Something that it has sent before.
    pub(crate) fn repetition(&self, random: &mut Random) -> Option<Segment> {
        if self.sent.is_empty() { None } else { Some(random.pick(&self.sent)) }
    }
}
