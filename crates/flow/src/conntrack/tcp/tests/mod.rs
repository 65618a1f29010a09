//! Scenarios are scripts, one segment a line:
//!
//! ```text
//! > SYN win=8000 wscale=7 sackok : pass SYN_SENT timeout=120
//! < SYN/ACK                      : pass SYN_RECV replied
//! x> ACK len=100                              (a segment through another node, invisible here)
//! take over                                   (this node continues from a replica)
//! one side                                    (only the client's segments pass here)
//! share                                       (from here on another live node sees segments too)
//! < RST seq=9                    : invalid_reset ESTABLISHED
//! ```
//!
//! `>` is from the client, `<` from the server. The segment stands before the colon, the expected result behind it:
//! `pass` or the drop reason, then the state, then further properties. `seq`, `ack` and `sack` count from the initial
//! sequence numbers; by default they are those of a stack that received everything.

mod automaton;
mod exchange;
mod handshake;
mod one_sided;
mod resets;
mod shared;
mod take_over;
mod windows;

use std::format;
use std::string::{String, ToString};

use super::*;
use crate::conntrack::{Timeouts, Tracker};
use crate::serial::later;
use crate::wire::{Headers, Transport, ip_protocol, tcp_flags};
use crate::{Instant, Tuple};

/// Close to the end of the sequence numbers, so that every scenario goes round it.
const INITIAL_SEQUENCES: [u32; 2] = [u32::MAX - 300, u32::MAX - 700];

const HANDSHAKE: &str = "
    > SYN wscale=7 sackok     : pass SYN_SENT
    < SYN/ACK wscale=7 sackok : pass SYN_RECV
    > ACK                     : pass ESTABLISHED
";

pub(super) fn headers(segment: TcpSegment) -> Headers {
    Headers {
        tuple: Tuple {
            source: [1; 16],
            destination: [2; 16],
            source_port: 1000,
            destination_port: 80,
            protocol: ip_protocol::TCP,
            version: 6,
            discriminator: 0,
        },
        transport: Transport::Tcp(segment),
        l3_offset: 14,
        l4_offset: 54,
        payload_offset: 74,
        l3_bytes: 60 + segment.payload_bytes,
        ttl: 64,
        is_fragment: false,
    }
}

/// Plays scripts one after another on one connection, with Linux's options.
pub(super) fn play(scripts: &[&str]) -> Stage {
    play_with(TrackerConfig::default(), scripts)
}

pub(super) fn play_with(config: TrackerConfig, scripts: &[&str]) -> Stage {
    let mut stage =
        Stage { tracker: Tracker::new(config), connection: None, flags: 0, next: INITIAL_SEQUENCES, last: None };
    for line in scripts.iter().flat_map(|script| script.lines()) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            stage.line(line);
        }
    }
    stage
}

pub(super) struct Stage {
    tracker: Tracker,
    pub(super) connection: Option<ProtocolState>,
    pub(super) flags: u8,
    /// The next sequence number of each side.
    next: [u32; 2],
    pub(super) last: Option<Advance>,
}

impl Stage {
    fn line(&mut self, line: &str) {
        if line == "take over" {
            let state = self.connection.as_mut().expect("there is a connection to take over");
            return self.tracker.take_over(ip_protocol::TCP, state);
        }
        if line == "one side" {
            let state = self.connection.as_mut().expect("it has begun");
            return self.tracker.see_one_side(Instant::ZERO, ip_protocol::TCP, state);
        }
        if line == "share" {
            self.flags |= crate::connection::flags::SHARED;
            return;
        }
        let (is_seen, line_seen) = line.strip_prefix('x').map_or((true, line), |rest| (false, rest));
        let (what, expected) = line_seen.split_once(':').unwrap_or((line_seen, ""));
        let mut words = what.split_whitespace();
        let direction = match words.next() {
            Some(">") => Direction::Original,
            Some("<") => Direction::Reply,
            other => panic!("{line}: begins with {other:?}"),
        };
        let segment = self.segment(direction, words, line);
        let passes = if is_seen {
            let advance = self.see(direction, segment);
            self.last = Some(advance);
            self.expect(&advance, expected, line);
            advance.verdict.is_ok()
        } else {
            true
        };
        let next = &mut self.next[direction.index()];
        if passes && !segment.has(tcp_flags::RST) {
            let begins = segment.has(tcp_flags::SYN);
            *next = if begins { segment.end() } else { later(*next, segment.end()) };
        }
    }

    fn segment<'a>(&self, direction: Direction, words: impl Iterator<Item = &'a str>, line: &str) -> TcpSegment {
        let (own, other) = (direction.index(), direction.reverse().index());
        let mut segment = TcpSegment { sequence: self.next[own], window: 8000, ..TcpSegment::default() };
        let mut acknowledgement = self.next[other];
        let mut sack = None;
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<u32>().unwrap_or_else(|error| panic!("{line}: {word}: {error}"));
            match name {
                "seq" => segment.sequence = INITIAL_SEQUENCES[own].wrapping_add(number()),
                "raw_seq" => segment.sequence = number(),
                "ack" => acknowledgement = INITIAL_SEQUENCES[other].wrapping_add(number()),
                "raw_ack" => acknowledgement = number(),
                "sack" => sack = Some(INITIAL_SEQUENCES[other].wrapping_add(number())),
                "len" => segment.payload_bytes = number(),
                "win" => segment.window = number() as u16,
                "wscale" => segment.window_scale = Some(number() as u8),
                "sackok" => segment.sack_permitted = true,
                flags => segment.flags = flags_of(flags),
            }
        }
        if segment.has(tcp_flags::ACK) {
            segment.acknowledgement = acknowledgement;
            segment.sack_end = sack.unwrap_or(acknowledgement);
        }
        segment
    }

    fn see(&mut self, direction: Direction, segment: TcpSegment) -> Advance {
        let headers = headers(segment);
        let Some(state) = &mut self.connection else {
            return match self.tracker.begin(&headers) {
                Ok((state, timeout)) => {
                    self.connection = Some(state);
                    Advance::pass(Change::State, Some(timeout))
                }
                Err(reason) => Advance::refuse(reason),
            };
        };
        let advance = self.tracker.advance(Instant::ZERO, state, &mut self.flags, direction, &headers);
        match advance.next {
            Next::Keep => advance,
            Next::Close => {
                self.connection = None;
                advance
            }
            Next::Reopen => {
                (self.connection, self.flags) = (None, 0);
                let begun = self.see(Direction::Original, segment);
                Advance { next: Next::Reopen, ..begun }
            }
        }
    }

    fn expect(&self, advance: &Advance, expected: &str, line: &str) {
        for word in expected.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let timeout = advance.timeout.map_or("kept".to_string(), |timeout| format!("{}", timeout.as_secs()));
            let is = match name {
                "pass" => advance.verdict == Ok(()),
                "replied" => self.flags & REPLIED != 0,
                "assured" => self.flags & ASSURED != 0,
                "unassured" => self.flags & ASSURED == 0,
                "change" => format!("{:?}", advance.change).to_lowercase() == value,
                "timeout" => timeout == value,
                "closes" => advance.next == Next::Close,
                "reopens" => advance.next == Next::Reopen,
                "none" => self.connection.is_none(),
                label if label.chars().all(|c| c.is_lowercase() || c == '_') => {
                    advance.verdict.is_err_and(|reason| reason.label() == label)
                }
                _ => self.state_name() == name,
            };
            assert!(is, "{line}\n  not {word}: {advance:?}, {}, {:#?}", self.state_name(), self.connection);
        }
    }

    fn state_name(&self) -> String {
        self.connection.map_or("none", |state| crate::conntrack::state_name(ip_protocol::TCP, &state)).to_string()
    }
}

fn flags_of(names: &str) -> u8 {
    names
        .split('/')
        .map(|name| match name {
            "FIN" => tcp_flags::FIN,
            "SYN" => tcp_flags::SYN,
            "RST" => tcp_flags::RST,
            "PSH" => tcp_flags::PSH,
            "ACK" => tcp_flags::ACK,
            "URG" => tcp_flags::URG,
            "ECE" => 0x40,
            "CWR" => 0x80,
            "0" => 0,
            other => panic!("no flag is called {other:?}"),
        })
        .fold(0, |flags, flag| flags | flag)
}
