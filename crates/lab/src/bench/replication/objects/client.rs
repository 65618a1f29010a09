//! The side that fetches: one thread, one event loop, a slot for each flow that may be in progress.
//!
//! ```text
//!            opened             writable: asks             the end, behind the whole object
//!   (slot) ─────────► beginning ───────────────► fetching ─────────────────────────────────► (slot)
//! ```

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use super::flow::{Flow, KILOBYTE, Phase, Plan, Request, Shared};
use crate::testbed::traffic::pace::Pace;
use crate::testbed::traffic::stream::Stream;

/// How often the client looks whether flows are to begin, or it is to do something else.
const TICK: Duration = Duration::from_millis(2);
const EVENTS_MAX: usize = 1024;
/// Flows that have ended and are remembered; the oldest go first.
const REMEMBERED_MAX: usize = 100_000;
/// Times written down of a flow.
const PROGRESS_MAX: usize = 64;
/// Units of the pace for a flow, so that fractions are not lost.
const FLOW_UNITS: u64 = 1000;
/// The waker's token, which no slot has.
const WAKER: Token = Token(usize::MAX);

struct Fetching {
    stream: TcpStream,
    flow: Flow,
    request: Request,
    object: Stream,
}

/// The client.
pub(super) struct Client {
    poll: Poll,
    plan: Plan,
    slots: Vec<Option<Fetching>>,
    /// Slots without a flow, the longest without first.
    idle: VecDeque<usize>,
    pace: Pace,
    begun: u32,
    ended: VecDeque<Flow>,
    shared: Arc<Shared>,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) fn new(plan: Plan, shared: Arc<Shared>) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let client = Self {
            poll,
            slots: (0..plan.at_once).map(|_| None).collect(),
            idle: (0..plan.at_once).collect(),
            pace: Pace::new(plan.flows_per_s_max * FLOW_UNITS, Instant::now()),
            plan,
            begun: 0,
            ended: VecDeque::new(),
            shared,
            buffer: vec![0; 64 << 10],
        };
        Ok((client, waker))
    }

    /// Fetches until it is stopped; returns the flows' outcomes.
    ///
    /// # Errors
    /// Waiting for events fails.
    pub(super) fn run(mut self) -> io::Result<Vec<Flow>> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            let phase = self.shared.phase();
            if phase == Phase::Stopped {
                break;
            }
            self.begin_flows(phase);
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                if event.token() != WAKER {
                    self.go_on(event.token().0);
                }
            }
            self.shared.in_progress.store(self.slots.len() - self.idle.len(), Ordering::Relaxed);
        }
        let in_progress = self.slots.into_iter().flatten().map(|fetching| fetching.flow);
        Ok(self.ended.into_iter().chain(in_progress).collect())
    }

    fn begin_flows(&mut self, phase: Phase) {
        let begins = match phase {
            Phase::Steady => self.pace.allowance_bytes(Instant::now()) as u64 / FLOW_UNITS,
            Phase::Hurried => u64::MAX,
            Phase::Waiting | Phase::Stopped => 0,
        };
        let begins = usize::try_from(begins).unwrap_or(usize::MAX).min(self.idle.len());
        for _ in 0..begins {
            let Some(slot) = self.idle.pop_front() else { return };
            self.begin(slot);
            self.pace.spend(FLOW_UNITS as usize);
        }
    }

    fn begin(&mut self, slot: usize) {
        self.begun = self.begun.wrapping_add(1);
        let object_kilobytes = self.plan.object_kilobytes[slot % self.plan.object_kilobytes.len()];
        let object_bytes = u32::try_from(u64::from(object_kilobytes) * KILOBYTE).unwrap_or(u32::MAX);
        let server = self.plan.servers[self.begun as usize % self.plan.servers.len()];
        let mut flow = Flow {
            object_kilobytes,
            server,
            opened_at: Instant::now(),
            established_at: None,
            ended_at: None,
            failure: None,
            progress: Vec::new(),
        };
        let opened = TcpStream::connect(server).and_then(|mut stream| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(slot), interest)?;
            Ok(stream)
        });
        match opened {
            Ok(stream) => {
                let request = Request { object_bytes, seed: self.begun };
                self.slots[slot] = Some(Fetching { stream, flow, request, object: Stream::new(self.begun.into()) });
            }
            Err(error) => {
                flow.failure = Some(format!("cannot connect: {error}"));
                self.remember(flow);
                self.idle.push_back(slot);
            }
        }
    }

    fn go_on(&mut self, slot: usize) {
        let Some(fetching) = self.slots[slot].as_mut() else { return };
        let is_written_down = self.shared.phase() == Phase::Waiting;
        let Some(failure) = fetching.go_on(&mut self.buffer, is_written_down) else { return };
        if let Some(Fetching { mut flow, .. }) = self.slots[slot].take() {
            flow.failure = failure;
            self.remember(flow);
        }
        self.idle.push_back(slot);
    }

    fn remember(&mut self, mut flow: Flow) {
        flow.ended_at = Some(Instant::now());
        let counter = if flow.failure.is_none() { &self.shared.finished } else { &self.shared.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        if self.ended.len() == REMEMBERED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(flow);
    }
}

impl Fetching {
    /// Asks when the connection stands, and reads what is there. When the flow is over, returns why it failed, if it did.
    fn go_on(&mut self, buffer: &mut [u8], is_written_down: bool) -> Option<Option<String>> {
        if self.flow.established_at.is_none() {
            match self.ask() {
                Ok(true) => self.note_progress(is_written_down),
                Ok(false) => return None,
                Err(error) => return Some(Some(error.to_string())),
            }
        }
        loop {
            match self.stream.read(buffer) {
                Ok(0) => {
                    self.note_progress(is_written_down);
                    let is_whole = self.object.offset_bytes() == u64::from(self.request.object_bytes);
                    return Some((!is_whole).then(|| "closed before the end".to_owned()));
                }
                Ok(count) => {
                    self.note_progress(is_written_down);
                    if let Err(offset) = self.object.check(&buffer[..count]) {
                        return Some(Some(format!("wrong byte at {offset}")));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Some(Some(error.to_string())),
            }
        }
    }

    /// Asks for the object; false while the connection does not stand.
    fn ask(&mut self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
        self.flow.established_at = Some(Instant::now());
        // A new connection's buffer takes eight bytes.
        self.stream.write_all(&self.request.to_bytes())?;
        Ok(true)
    }

    fn note_progress(&mut self, is_written_down: bool) {
        if is_written_down && self.flow.progress.len() < PROGRESS_MAX {
            self.flow.progress.push(Instant::now());
        }
    }
}
