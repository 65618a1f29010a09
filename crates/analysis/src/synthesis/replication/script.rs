//! What one connection sends, and when: the next frame is all that is known of it at a time.
//!
//! ```text
//!  TCP       SYN ─► SYN/ACK ─► ACK ─► (request ─► response … ─► ACK) × n ─┬─► FIN ─► FIN ─► ACK     closed
//!            │ began        │ + a round trip                              ├─► RST                   reset
//!            │                                                            ├─► FIN                   half closed
//!            │                                                            └─► nothing               abandoned
//!            └──────────────────────── lifetime ─────────────────────────────────────────┘
//! ```

use std::time::Duration;

use flow::Instant;
use flow::timer_wheel::Timer;
use flow::wire::tcp_flags::{ACK, FIN, PSH, RST, SYN};
use rand::Rng;
use rand::rngs::SmallRng;

use super::super::endpoints::{Ends, Sequences, Side, datagram};
use super::{Behaviour, Component, Ending, Exchanges, PAYLOAD_BYTES};

/// Where in its part of the connection's time an exchange's request is sent, at the latest.
const REQUEST_PART: f64 = 0.4;
/// How much of that time its response takes.
const RESPONSE_PART: f64 = 0.4;
/// How much of it passes until the response is acknowledged.
const ACK_PART: f64 = 0.1;

/// What a connection sends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Syn,
    RetransmittedSyn,
    SynAck,
    HandshakeAck,
    Refusal,
    Request,
    Response,
    ResponseAck,
    Fin,
    FinBack,
    LastAck,
    Reset,
    Datagram,
}

/// What a connection needs to write its frame.
pub(super) struct Sender<'a> {
    pub(super) random: &'a mut SmallRng,
    pub(super) payload: &'a [u8],
    pub(super) frame: &'a mut Vec<u8>,
}

impl Sender<'_> {
    fn payload(&mut self, bytes: u16) -> &[u8] {
        let from = self.random.random_range(0..PAYLOAD_BYTES);
        let bytes = usize::from(bytes);
        &self.payload[from..from + bytes]
    }
}

/// An open connection.
#[derive(Clone, Copy)]
pub(super) struct Script {
    pub(super) timer: Timer,
    /// When it sends next.
    pub(super) at: Instant,
    began_at: Instant,
    /// When it sends the last.
    ends_at: Instant,
    ends: Ends,
    sequences: Sequences,
    pub(super) component: u16,
    /// Which packet of a response is next; of what is not answered, how many follow.
    packet: u16,
    exchange: u32,
    exchanges: u32,
    step: Step,
    /// Of the handshake, and of the close; UDP has neither.
    round_trip_nanos: u64,
}

impl Script {
    pub(super) fn new(
        number: u16,
        component: &Component,
        at: Instant,
        ends: Ends,
        round_trip: Duration,
        random: &mut SmallRng,
    ) -> Self {
        let (lifetime, step, exchanges, packet) = match &component.behaviour {
            Behaviour::Tcp { lifetime, exchanges, .. } => {
                let lifetime = lifetime.sample_duration(random);
                (lifetime, Step::Syn, exchanges.count(lifetime), 0)
            }
            Behaviour::Udp { lifetime, exchanges } => {
                let lifetime = lifetime.sample_duration(random);
                (lifetime, Step::Request, exchanges.count(lifetime), 0)
            }
            Behaviour::TcpRefused => (round_trip, Step::Syn, 0, 0),
            Behaviour::TcpUnanswered { tries } => {
                let more = random.random_range(0..*tries);
                (Duration::from_secs((1_u64 << more) - 1), Step::Syn, 0, more.into())
            }
            Behaviour::UdpUnanswered { datagrams } => {
                let more = random.random_range(0..*datagrams);
                (Duration::from_secs(more.into()), Step::Datagram, 0, more.into())
            }
        };
        let is_tcp = !component.behaviour.is_udp();
        let round_trip_nanos =
            if is_tcp { (round_trip.as_nanos() as u64).min(lifetime.as_nanos() as u64 / 4) } else { 0 };
        // Who refuses a SYN has no sequence number of its own (RFC 9293 section 3.5.2).
        let server_sequence = if component.behaviour == Behaviour::TcpRefused { 0 } else { random.random() };
        Self {
            timer: Timer::NEW,
            at,
            began_at: at,
            ends_at: at + lifetime,
            ends,
            sequences: Sequences::new(random.random(), server_sequence),
            component: number,
            packet,
            exchange: 0,
            exchanges,
            step,
            round_trip_nanos,
        }
    }

    /// From the first frame to the last.
    pub(super) fn lifetime_nanos(&self) -> u64 {
        self.ends_at.as_nanos() - self.began_at.as_nanos()
    }

    /// Writes the next frame. Returns when the one after it is due; `None`: it was the last.
    pub(super) fn send(&mut self, behaviour: &Behaviour, sender: &mut Sender<'_>) -> Option<Instant> {
        match behaviour {
            Behaviour::Tcp { ending, exchanges, .. } => self.send_tcp(*ending, exchanges, sender),
            Behaviour::Udp { exchanges, .. } => self.send_udp(exchanges, sender),
            Behaviour::TcpUnanswered { .. } => {
                *sender.frame = match self.step {
                    Step::RetransmittedSyn => self.sequences.retransmitted_syn(&self.ends),
                    _ => self.segment(Side::Client, SYN),
                };
                self.wait_for_nobody(Step::RetransmittedSyn, |since_nanos| since_nanos * 2 + 1_000_000_000)
            }
            Behaviour::UdpUnanswered { .. } => {
                *sender.frame = datagram(&self.ends, Side::Client, sender.payload(64));
                self.wait_for_nobody(Step::Datagram, |since_nanos| since_nanos + 1_000_000_000)
            }
            Behaviour::TcpRefused if self.step == Step::Syn => {
                *sender.frame = self.segment(Side::Client, SYN);
                self.step = Step::Refusal;
                Some(self.ends_at)
            }
            Behaviour::TcpRefused => {
                *sender.frame = self.sequences.segment(&self.ends, Side::Server, RST | ACK, &[]);
                None
            }
        }
    }

    /// Sends again later, as long as something is left to be sent. `next` makes of the nanoseconds since the first time those
    /// of the next.
    fn wait_for_nobody(&mut self, step: Step, next: impl Fn(u64) -> u64) -> Option<Instant> {
        self.packet = self.packet.checked_sub(1)?;
        self.step = step;
        let since_nanos = self.at.as_nanos() - self.began_at.as_nanos();
        Some(self.began_at + Duration::from_nanos(next(since_nanos)))
    }

    fn segment(&mut self, from: Side, flags: u8) -> Vec<u8> {
        self.sequences.segment(&self.ends, from, flags, &[])
    }

    fn send_tcp(&mut self, ending: Ending, exchanges: &Exchanges, sender: &mut Sender<'_>) -> Option<Instant> {
        let half_a_round_trip = Duration::from_nanos(self.round_trip_nanos / 2);
        let (step, at) = match self.step {
            Step::Syn => {
                *sender.frame = self.segment(Side::Client, SYN);
                (Step::SynAck, self.at + half_a_round_trip)
            }
            Step::SynAck => {
                *sender.frame = self.segment(Side::Server, SYN | ACK);
                (Step::HandshakeAck, self.at + half_a_round_trip)
            }
            Step::HandshakeAck => {
                *sender.frame = self.segment(Side::Client, ACK);
                (Step::Request, self.request_at(ending, sender.random))
            }
            Step::Request => {
                let payload = sender.payload(exchanges.request_bytes);
                *sender.frame = self.sequences.segment(&self.ends, Side::Client, ACK | PSH, payload);
                (Step::Response, self.response_at(ending, exchanges))
            }
            Step::Response => {
                let payload = sender.payload(exchanges.response_bytes);
                *sender.frame = self.sequences.segment(&self.ends, Side::Server, ACK | PSH, payload);
                self.packet += 1;
                if self.packet < exchanges.response_packets {
                    (Step::Response, self.response_at(ending, exchanges))
                } else {
                    (Step::ResponseAck, self.response_ack_at(ending))
                }
            }
            Step::ResponseAck => {
                *sender.frame = self.segment(Side::Client, ACK);
                (self.packet, self.exchange) = (0, self.exchange + 1);
                match ending {
                    _ if self.exchange < self.exchanges => (Step::Request, self.request_at(ending, sender.random)),
                    Ending::Closed | Ending::HalfClosed => (Step::Fin, self.data_ends(ending)),
                    Ending::Reset => (Step::Reset, self.ends_at),
                    Ending::Abandoned => return None,
                }
            }
            Step::Fin => {
                *sender.frame = self.segment(Side::Client, FIN | ACK);
                if ending == Ending::HalfClosed {
                    return None;
                }
                (Step::FinBack, self.at + half_a_round_trip)
            }
            Step::FinBack => {
                *sender.frame = self.segment(Side::Server, FIN | ACK);
                (Step::LastAck, self.ends_at)
            }
            Step::Reset => {
                *sender.frame = self.segment(Side::Client, RST | ACK);
                return None;
            }
            _ => {
                *sender.frame = self.segment(Side::Client, ACK);
                return None;
            }
        };
        self.step = step;
        Some(at)
    }

    fn send_udp(&mut self, exchanges: &Exchanges, sender: &mut Sender<'_>) -> Option<Instant> {
        let ending = Ending::Abandoned;
        if self.step == Step::Request {
            *sender.frame = datagram(&self.ends, Side::Client, sender.payload(exchanges.request_bytes));
            self.step = Step::Response;
            return Some(self.udp_response_at(exchanges));
        }
        *sender.frame = datagram(&self.ends, Side::Server, sender.payload(exchanges.response_bytes));
        self.packet += 1;
        if self.packet < exchanges.response_packets {
            return Some(self.udp_response_at(exchanges));
        }
        (self.packet, self.exchange) = (0, self.exchange + 1);
        self.step = Step::Request;
        (self.exchange < self.exchanges).then(|| self.request_at(ending, sender.random))
    }

    /// The last datagram is the last response's last.
    fn udp_response_at(&self, exchanges: &Exchanges) -> Instant {
        let is_last = self.exchange + 1 == self.exchanges && self.packet + 1 == exchanges.response_packets;
        if is_last { self.ends_at } else { self.response_at(Ending::Abandoned, exchanges) }
    }

    fn data_begins(&self) -> Instant {
        self.began_at + Duration::from_nanos(self.round_trip_nanos)
    }

    fn data_ends(&self, ending: Ending) -> Instant {
        let closing_nanos = if ending == Ending::Closed { self.round_trip_nanos } else { 0 };
        Instant::from_nanos(self.ends_at.as_nanos() - closing_nanos)
    }

    /// The time that each exchange has.
    fn part_nanos(&self, ending: Ending) -> f64 {
        let nanos = self.data_ends(ending).saturating_since(self.data_begins()).as_nanos() as f64;
        nanos / f64::from(self.exchanges.max(1))
    }

    fn request_at(&self, ending: Ending, random: &mut SmallRng) -> Instant {
        let part = self.part_nanos(ending);
        let into = f64::from(self.exchange) * part + random.random::<f64>() * REQUEST_PART * part;
        (self.data_begins() + Duration::from_nanos(into as u64)).max(self.at)
    }

    fn response_at(&self, ending: Ending, exchanges: &Exchanges) -> Instant {
        let wait = self.part_nanos(ending) * RESPONSE_PART / f64::from(exchanges.response_packets);
        self.at + Duration::from_nanos(wait as u64)
    }

    fn response_ack_at(&self, ending: Ending) -> Instant {
        if ending == Ending::Abandoned && self.exchange + 1 == self.exchanges {
            return self.ends_at;
        }
        self.at + Duration::from_nanos((self.part_nanos(ending) * ACK_PART) as u64)
    }
}
