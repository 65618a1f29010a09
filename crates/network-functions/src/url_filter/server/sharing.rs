//! Answers of the server that nodes share with their peers: a new node is filled, and what one has asked, all know.
//!
//! ```text
//!   answer ─► cache and log ─► datagram from a number of the log on ─► peer: cache and log
//!                 ▲                                                     │
//!                 └──────────── the next number that it lacks ◄─────────┘
//! ```
//!
//! **Log.** The latest answers with their targets, of at most [`LOG_BYTES_MAX`] bytes: the cache itself has no names. A peer that starts receives all of it, from
//! whomever the answers came; later a peer receives the own ones.
//!
//! **Rate.** A peer is sent [`DATAGRAMS_PER_S`] datagrams, and up to [`IN_FLIGHT_MAX`] before it has acknowledged. What was lost is sent again from there on.
//!
//! **Runs.** Each process has a number. A peer whose number has changed has an empty cache, and is filled again.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId};

use super::protocol::{NAME_BYTES_MAX, Scope};
use crate::inspect::HostName;
use crate::shared_values::{SharingError, VERSION};
use crate::url_filter::path::PATH_BYTES_MAX;

/// Bytes of a datagram, at most.
pub const DATAGRAM_BYTES_MAX: usize = 1200;
/// Bytes of answers that a node keeps for its peers.
pub const LOG_BYTES_MAX: usize = 8 << 20;
/// What an answer takes beside its target and its category.
const ENTRY_BYTES: usize = 64;
/// Datagrams that are sent to a peer, in a second.
pub const DATAGRAMS_PER_S: u64 = 400;
/// Datagrams that are sent at once after a pause.
const BURST: u64 = 16;
/// Datagrams that a peer has not acknowledged, at most.
pub const IN_FLIGHT_MAX: usize = 64;
/// When what has not been acknowledged is sent again.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// The longest target: a host with a path, whose bytes may be percent-encoded.
const TARGET_BYTES_MAX: usize = crate::inspect::HOST_NAME_BYTES_MAX + PATH_BYTES_MAX;
const ANSWERS: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;
/// What a datagram takes of a peer's credit.
const COST_NS: u64 = 1_000_000_000 / DATAGRAMS_PER_S;

/// An answer of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedAnswer {
    /// A host, or a host and a path in normal form.
    pub target: String,
    /// The category's name; empty for none.
    pub category: String,
    /// What it holds for.
    pub scope: Scope,
    /// How old it is.
    pub age: Duration,
}

/// A datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Answers of a log.
    Answers {
        /// The sender's number of its run.
        run: u64,
        /// Numbers before this one are not sent any more: they were acknowledged, are not for this peer, or have left the log.
        start: u64,
        /// The first number that the datagram stands for.
        first: u64,
        /// The number behind the last one.
        next: u64,
        /// The answers; numbers of those that the peer is not sent are left out.
        answers: Vec<SharedAnswer>,
    },
    /// The next number that the sender lacks.
    Acknowledgement {
        /// Whose log it is: the run.
        of: u64,
        /// The sender's number of its run.
        run: u64,
        /// The number.
        next: u64,
    },
}

/// Reads fields of a datagram.
struct Fields<'d> {
    datagram: &'d [u8],
    at: usize,
}

impl<'d> Fields<'d> {
    fn take(&mut self, bytes: usize) -> Result<&'d [u8], SharingError> {
        let field = self.datagram.get(self.at..).and_then(|rest| rest.get(..bytes));
        let field = field.ok_or(SharingError::Malformed(self.at))?;
        self.at += bytes;
        Ok(field)
    }

    fn number<const N: usize>(&mut self) -> Result<u64, SharingError> {
        Ok(self.take(N)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Printable text behind its length in two bytes.
    fn text(&mut self, bytes_max: usize) -> Result<String, SharingError> {
        let at = self.at;
        let bytes = self.number::<2>()? as usize;
        let text = if bytes <= bytes_max { self.take(bytes)? } else { &[0] };
        let is_text = text.iter().all(u8::is_ascii_graphic);
        is_text.then(|| text.iter().copied().map(char::from).collect()).ok_or(SharingError::Malformed(at))
    }

    fn answer(&mut self) -> Result<SharedAnswer, SharingError> {
        let at = self.at;
        let age = Duration::from_secs(self.number::<4>()?);
        let scope = match self.number::<1>()? {
            0 => Scope::Host,
            1 => Scope::Path,
            _ => return Err(SharingError::Malformed(at)),
        };
        let category = self.text(NAME_BYTES_MAX)?;
        let target = self.text(TARGET_BYTES_MAX)?;
        let host = target.split('/').next().unwrap_or_default();
        let is_normal = HostName::new(host.as_bytes()).is_some_and(|name| name.as_str() == host);
        is_normal.then_some(SharedAnswer { target, category, scope, age }).ok_or(SharingError::Malformed(at))
    }
}

impl Message {
    /// Reads a datagram.
    ///
    /// # Errors
    /// It has another version, or is malformed.
    pub fn decode(datagram: &[u8]) -> Result<Self, SharingError> {
        let mut fields = Fields { datagram, at: 0 };
        match fields.number::<1>()? as u8 {
            VERSION => {}
            other => return Err(SharingError::Version(other)),
        }
        match fields.number::<1>()? as u8 {
            ANSWERS => {
                let [run, start, first, next] =
                    [fields.number::<8>()?, fields.number::<8>()?, fields.number::<8>()?, fields.number::<8>()?];
                let mut answers = Vec::new();
                while fields.at < datagram.len() {
                    answers.push(fields.answer()?);
                }
                let is_range =
                    start <= first && next.checked_sub(first).is_some_and(|count| count >= answers.len() as u64);
                is_range.then_some(Self::Answers { run, start, first, next, answers }).ok_or(SharingError::Malformed(2))
            }
            ACKNOWLEDGEMENT if datagram.len() == 26 => Ok(Self::Acknowledgement {
                of: fields.number::<8>()?,
                run: fields.number::<8>()?,
                next: fields.number::<8>()?,
            }),
            _ => Err(SharingError::Malformed(1)),
        }
    }

    /// Appends it as a datagram.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Answers { run, start, first, next, answers } => {
                out.extend([VERSION, ANSWERS]);
                [run, start, first, next].iter().for_each(|number| out.extend(number.to_be_bytes()));
                answers.iter().for_each(|answer| answer.encode(out));
            }
            Self::Acknowledgement { of, run, next } => {
                out.extend([VERSION, ACKNOWLEDGEMENT]);
                [of, run, next].iter().for_each(|number| out.extend(number.to_be_bytes()));
            }
        }
    }
}

impl SharedAnswer {
    const fn bytes(&self) -> usize {
        4 + 1 + 2 + self.category.len() + 2 + self.target.len()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(u32::try_from(self.age.as_secs()).unwrap_or(u32::MAX).to_be_bytes());
        out.push(u8::from(self.scope == Scope::Path));
        for text in [&self.category, &self.target] {
            out.extend((text.len() as u16).to_be_bytes());
            out.extend(text.as_bytes());
        }
    }
}

/// An answer in the log.
#[derive(Debug)]
struct Entry {
    answer: SharedAnswer,
    /// When it came.
    at: Instant,
    /// The peer that has sent it, with the number of its run.
    from: Option<(NodeId, u64)>,
}

/// What is known of a peer.
#[derive(Debug)]
struct Peer {
    id: NodeId,
    /// The number of its run, as it announces it; 0 before this node sends to it.
    run: u64,
    /// What it has acknowledged.
    acknowledged: u64,
    /// The next number that it is sent.
    next: u64,
    /// Answers before this number were there before the peer: it is sent those that others have sent, too.
    filled_to: u64,
    in_flight: usize,
    retry_at: Instant,
    /// Datagrams may be sent, in parts of a second's; up to now.
    credit_ns: u64,
    credited_at: Instant,
    /// The run of its log, and the number in it that this node lacks.
    theirs: Option<(u64, u64)>,
    is_acknowledgement_due: bool,
}

/// The log of a node, and how far its peers have it.
#[derive(Debug)]
pub struct Sharing {
    run: u64,
    log: VecDeque<Entry>,
    /// The number of the first answer in the log.
    start: u64,
    bytes: usize,
    peers: Vec<Peer>,
}

impl Sharing {
    /// An empty log of the run with this number.
    #[must_use]
    pub const fn new(run: u64) -> Self {
        Self { run, log: VecDeque::new(), start: 0, bytes: 0, peers: Vec::new() }
    }

    /// The number of the next answer.
    fn end(&self) -> u64 {
        self.start + self.log.len() as u64
    }

    /// Bytes of the log.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The server has answered, or the answer is one that a peer has sent.
    pub fn note(&mut self, now: Instant, answer: SharedAnswer, from: Option<NodeId>) {
        let from = from.map(|from| (from, self.peer(from).theirs.map_or(0, |(run, _)| run)));
        self.bytes += answer.bytes() + ENTRY_BYTES;
        self.log.push_back(Entry { at: now, answer, from });
        while self.bytes > LOG_BYTES_MAX {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        if let Some(entry) = self.log.pop_front() {
            self.start += 1;
            self.bytes -= entry.answer.bytes() + ENTRY_BYTES;
        }
    }

    /// Removes answers that are older than this. Answers of peers may be older than later ones: they go with those.
    pub fn expire(&mut self, now: Instant, lifetime: Duration) {
        while self.log.front().is_some_and(|entry| entry.age(now) >= lifetime) {
            self.remove_oldest();
        }
    }

    /// The number of the run: what peers know this log by.
    #[must_use]
    pub const fn run(&self) -> u64 {
        self.run
    }

    fn peer(&mut self, id: NodeId) -> &mut Peer {
        let place = self.peers.iter().position(|peer| peer.id == id).unwrap_or_else(|| {
            self.peers.push(Peer::new(id));
            self.peers.len() - 1
        });
        &mut self.peers[place]
    }

    /// A datagram of a peer; the answers in it that are new.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn handle(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<Vec<SharedAnswer>, SharingError> {
        let (ours, end) = (self.run, self.end());
        match Message::decode(datagram)? {
            Message::Answers { run, start, first, next, answers } => {
                let peer = self.peer(from);
                let lacked =
                    peer.theirs.filter(|(known, _)| *known == run).map_or(start, |(_, lacked)| lacked.max(start));
                let is_new = first <= lacked && next > lacked;
                peer.theirs = Some((run, if is_new { next } else { lacked }));
                peer.is_acknowledgement_due = true;
                Ok(if is_new { answers } else { Vec::new() })
            }
            Message::Acknowledgement { of, run, next } => {
                let peer = self.peer(from);
                if of == ours && run == peer.run && (peer.acknowledged + 1..=end).contains(&next) {
                    peer.in_flight = peer.in_flight.saturating_sub(1);
                    peer.retry_at = now + RETRY_AFTER;
                    peer.acknowledged = next;
                }
                Ok(Vec::new())
            }
        }
    }

    /// The next datagram for a peer of this run, in `out`, which is empty. False if there is none now.
    pub fn poll(&mut self, now: Instant, (to, run_of_peer): (NodeId, u64), out: &mut Vec<u8>) -> bool {
        let (run, start, end) = (self.run, self.start, self.end());
        let peer = self.peer(to);
        if peer.run != run_of_peer {
            // It has started, and has nothing.
            let (theirs, is_acknowledgement_due) = (peer.theirs, peer.is_acknowledgement_due);
            *peer = Peer { run: run_of_peer, filled_to: end, theirs, is_acknowledgement_due, ..Peer::new(to) };
        }
        if let Some((of, next)) = peer.theirs.filter(|_| core::mem::take(&mut peer.is_acknowledgement_due)) {
            Message::Acknowledgement { of, run, next }.encode(out);
            return true;
        }
        peer.acknowledged = peer.acknowledged.max(start);
        if peer.acknowledged >= end {
            (peer.in_flight, peer.next) = (0, end);
            return false;
        }
        if peer.next > peer.acknowledged && now >= peer.retry_at {
            (peer.next, peer.in_flight) = (peer.acknowledged, 0);
        }
        peer.next = peer.next.max(peer.acknowledged);
        let first = peer.next;
        if first >= end || peer.in_flight >= IN_FLIGHT_MAX || !peer.has_credit(now) {
            return false;
        }
        let (next, answers) = self.answers_from(now, first, to);
        let peer = self.peer(to);
        peer.next = next;
        if answers.is_empty() {
            if peer.acknowledged == first {
                peer.acknowledged = next;
            }
            return false;
        }
        peer.charge();
        peer.in_flight += 1;
        peer.retry_at = now + RETRY_AFTER;
        let start = peer.acknowledged;
        Message::Answers { run, start, first, next, answers }.encode(out);
        true
    }

    /// The answers of a datagram from a number on, and the number behind them.
    fn answers_from(&self, now: Instant, first: u64, to: NodeId) -> (u64, Vec<SharedAnswer>) {
        let (filled_to, run) =
            self.peers.iter().find(|peer| peer.id == to).map_or((0, 0), |peer| (peer.filled_to, peer.run));
        let (mut next, mut bytes, mut answers) = (first, 2 + 4 * 8, Vec::new());
        for entry in self.log.range((first - self.start) as usize..) {
            let is_sent = entry.from.is_none_or(|from| next < filled_to && from != (to, run));
            if is_sent {
                bytes += entry.answer.bytes();
                if bytes > DATAGRAM_BYTES_MAX {
                    break;
                }
                answers.push(SharedAnswer { age: entry.age(now), ..entry.answer.clone() });
            }
            next += 1;
        }
        (next, answers)
    }
}

impl Entry {
    fn age(&self, now: Instant) -> Duration {
        self.answer.age + now.saturating_since(self.at)
    }
}

impl Peer {
    const fn new(id: NodeId) -> Self {
        Self {
            id,
            run: 0,
            acknowledged: 0,
            next: 0,
            filled_to: 0,
            in_flight: 0,
            retry_at: Instant::ZERO,
            credit_ns: 0,
            credited_at: Instant::ZERO,
            theirs: None,
            is_acknowledgement_due: false,
        }
    }

    /// Whether a datagram may be sent now.
    fn has_credit(&mut self, now: Instant) -> bool {
        let since = u64::try_from(now.saturating_since(self.credited_at).as_nanos()).unwrap_or(u64::MAX);
        self.credit_ns = self.credit_ns.saturating_add(since).min(BURST * COST_NS);
        self.credited_at = now;
        self.credit_ns >= COST_NS
    }

    /// A datagram is sent.
    const fn charge(&mut self) {
        self.credit_ns = self.credit_ns.saturating_sub(COST_NS);
    }
}
