//! The client's side: one thread, one event loop, and the story of every connection.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mio::net::{TcpStream, UdpSocket};
use mio::{Events, Interest, Poll, Token, Waker};

use super::connection::{ReadEnd, Socket};
use super::outcome::{Outcome, Timeline};
use super::pace::{PACE_TICK, Pace};
use super::stream::Stream;
use super::{Kind, Preamble, REQUEST_BYTES};

/// Time between requests of a `Ticks` connection (one waits for the answer to the one before), and between datagrams.
pub const TICK_INTERVAL: Duration = Duration::from_millis(10);
/// Silent connections that are woken between two looks at all the others.
const WAKES_PER_TURN_MAX: usize = 32;
const WAKER: Token = Token(usize::MAX);
/// Moments within [`TICK_INTERVAL`] at which connections ask.
const TICK_PHASES: usize = 8;
const WRITE_BYTES_MAX: usize = 128 * 1024;

/// How much of what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the server listens: connections take the addresses in turn.
    pub servers: Vec<SocketAddr>,
    /// How many connections of each kind.
    pub connections: Vec<(Kind, usize)>,
    /// Rate of each bulk transfer, in bytes a second.
    pub bulk_bytes_per_s: u64,
    /// `Ramp` connections opened each second.
    pub ramp_per_s: u64,
}

/// Commands to the client while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Silent connections are to make another request now.
    Wake,
    /// Each connection notes the bytes that are verified by now.
    Mark,
    /// End, and report.
    Stop,
}

/// The client's progress while it runs.
#[derive(Clone, Copy, Default, Debug)]
pub struct Progress {
    /// Connections established so far.
    pub established: usize,
    /// `Ramp` connections established so far.
    pub ramped: usize,
    /// Connections that broke.
    pub broken: usize,
    /// How often all silent connections have been woken.
    pub wakes: usize,
    /// Requests of silent connections that wait for their answer.
    pub unanswered: usize,
    /// Answers that silent connections have had.
    pub answered: usize,
    /// Bytes verified.
    pub verified_bytes: u64,
    /// Since when each connection that is not broken and not silent by nature has had progress; `None` while one never had.
    pub all_progressed_since: Option<Instant>,
}

/// What the client knows in the end.
#[derive(Debug)]
pub struct TrafficReport {
    /// A story per connection (and per datagram flow).
    pub outcomes: Vec<Outcome>,
    /// Progress over time.
    pub timeline: Timeline,
}

enum Transport {
    Tcp(Socket),
    Udp(UdpSocket),
    /// Broken or never opened.
    Gone,
}

struct ClientConnection {
    transport: Transport,
    outcome: Outcome,
    sent: Stream,
    expected: Stream,
    pace: Pace,
    /// Since when progress is due.
    due_since: Instant,
    /// Bytes of the answer that are missing.
    awaited_bytes: usize,
    /// Whole answers had.
    answers: usize,
    next_request_at: Option<Instant>,
    /// A moment at which it may ask; the others are whole intervals later. Connections have different ones, so that they
    /// do not all ask at once.
    may_ask_at: Instant,
    report_bytes: Vec<u8>,
    reported: u64,
}

/// The client.
pub struct Client {
    poll: Poll,
    plan: Plan,
    connections: Vec<ClientConnection>,
    ramp_left: usize,
    ramp: Pace,
    wakes: usize,
    /// The connection that is looked at next while the silent ones are being woken.
    wake_next: Option<usize>,
    timeline: Timeline,
    buffer: Vec<u8>,
    progress: Arc<Mutex<Progress>>,
}

impl Client {
    /// A client that has opened nothing yet, and the waker that makes it look at its commands.
    ///
    /// # Errors
    /// The event queue cannot be made.
    pub fn new(plan: Plan, progress: Arc<Mutex<Progress>>) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let ramp_left = plan.connections.iter().filter(|(kind, _)| *kind == Kind::Ramp).map(|(_, count)| *count).sum();
        let now = Instant::now();
        let client = Self {
            poll,
            // A connection counts as a "byte" of the ramp's pace, scaled so that fractions are not lost.
            ramp: Pace::of_pieces(plan.ramp_per_s * RAMP_UNIT, RAMP_UNIT, now),
            ramp_left,
            wakes: 0,
            wake_next: None,
            plan,
            connections: Vec::new(),
            timeline: Timeline::new(now),
            buffer: vec![0; 256 * 1024],
            progress,
        };
        Ok((client, waker))
    }

    /// Opens the plan's connections and keeps them going until the command to stop.
    ///
    /// # Errors
    /// Waiting for events fails.
    pub fn run(mut self, commands: &Receiver<Command>) -> io::Result<TrafficReport> {
        self.open_planned();
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, Some(PACE_TICK)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let ready: Vec<usize> =
                events.iter().map(|event| event.token().0).filter(|token| *token != WAKER.0).collect();
            for index in ready {
                self.handle_ready(index);
            }
            self.handle_time();
            self.wake_silent();
            self.publish_progress();
            match commands.try_recv() {
                Ok(Command::Wake) => self.wake_next = Some(0),
                Ok(Command::Mark) => {
                    let now = Instant::now();
                    self.connections.iter_mut().for_each(|connection| connection.outcome.mark(now));
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {}
            }
        }
        let outcomes = self.connections.into_iter().map(|connection| connection.outcome).collect();
        Ok(TrafficReport { outcomes, timeline: self.timeline })
    }

    fn open_planned(&mut self) {
        for (kind, count) in self.plan.connections.clone() {
            if kind != Kind::Ramp {
                (0..count).for_each(|_| self.open(kind));
            }
        }
    }

    fn open(&mut self, kind: Kind) {
        let index = self.connections.len();
        let server = self.plan.servers[index % self.plan.servers.len()];
        let now = Instant::now();
        let mut outcome = Outcome::new(kind, server.is_ipv6());
        let transport = self.open_transport(kind, server, index).unwrap_or_else(|error| {
            outcome.broken = Some(format!("cannot open: {error}"));
            Transport::Gone
        });
        let seed = index as u64 + 1;
        let mut connection = ClientConnection {
            transport,
            outcome,
            sent: Stream::new(seed),
            expected: Stream::new(seed),
            pace: Pace::new(self.plan.bulk_bytes_per_s, now),
            due_since: now,
            awaited_bytes: 0,
            answers: 0,
            next_request_at: None,
            may_ask_at: now + TICK_INTERVAL * u32::try_from(index % TICK_PHASES).unwrap_or(0) / TICK_PHASES as u32,
            report_bytes: Vec::new(),
            reported: 0,
        };
        if kind == Kind::Udp {
            connection.next_request_at = Some(now);
        }
        self.connections.push(connection);
    }

    fn open_transport(&self, kind: Kind, server: SocketAddr, index: usize) -> io::Result<Transport> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        if kind == Kind::Udp {
            let any = if server.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
            let mut socket = UdpSocket::bind(any.parse().map_err(io::Error::other)?)?;
            socket.connect(server)?;
            self.poll.registry().register(&mut socket, Token(index), Interest::READABLE)?;
            return Ok(Transport::Udp(socket));
        }
        let mut stream = TcpStream::connect(server)?;
        self.poll.registry().register(&mut stream, Token(index), interest)?;
        Ok(Transport::Tcp(Socket::new(stream)))
    }

    fn handle_ready(&mut self, index: usize) {
        let now = Instant::now();
        let bytes_per_s = self.plan.bulk_bytes_per_s;
        let Some(connection) = self.connections.get_mut(index) else { return };
        let handled = connection
            .note_established(now, bytes_per_s, index)
            .and_then(|()| connection.receive(now, &mut self.buffer, &mut self.timeline));
        connection.note(handled);
    }

    /// Everything that happens by the clock: bulk uploads, requests that are due, the ramp.
    fn handle_time(&mut self) {
        let now = Instant::now();
        for connection in &mut self.connections {
            let handled = connection.send_due(now, &mut self.buffer);
            connection.note(handled);
        }
        let due = (self.ramp.allowance_bytes(now) as u64 / RAMP_UNIT).min(self.ramp_left as u64);
        for _ in 0..due {
            self.open(Kind::Ramp);
            self.ramp.spend(usize::try_from(RAMP_UNIT).unwrap_or(usize::MAX));
            self.ramp_left -= 1;
        }
    }

    /// Wakes some of the silent connections: all at once would be a burst that no pause could be measured beside.
    fn wake_silent(&mut self) {
        let Some(first) = self.wake_next else { return };
        let now = Instant::now();
        let mut woken = 0;
        for (index, connection) in self.connections.iter_mut().enumerate().skip(first) {
            let is_silent = matches!(connection.outcome.kind, Kind::Idle | Kind::Ramp);
            if is_silent && connection.awaited_bytes == 0 && connection.outcome.established_at.is_some() {
                if woken == WAKES_PER_TURN_MAX {
                    self.wake_next = Some(index);
                    return;
                }
                let sent = connection.request(now);
                connection.note(sent);
                woken += 1;
            }
        }
        self.wakes += 1;
        self.wake_next = None;
    }

    fn all_progressed_since(&self) -> Option<Instant> {
        let stories = self.connections.iter().map(|connection| &connection.outcome);
        let lively = stories.filter(|story| story.broken.is_none() && !matches!(story.kind, Kind::Idle | Kind::Ramp));
        lively.map(|story| story.last_progress_at).min().flatten()
    }

    fn publish_progress(&self) {
        let mut progress =
            Progress { wakes: self.wakes, all_progressed_since: self.all_progressed_since(), ..Progress::default() };
        for ClientConnection { outcome, awaited_bytes, answers, .. } in &self.connections {
            let is_established = outcome.established_at.is_some();
            let is_broken = outcome.broken.is_some();
            let is_silent = matches!(outcome.kind, Kind::Idle | Kind::Ramp);
            progress.established += usize::from(is_established);
            progress.ramped += usize::from(is_established && outcome.kind == Kind::Ramp);
            progress.broken += usize::from(is_broken);
            progress.unanswered += usize::from(is_silent && is_established && !is_broken && *awaited_bytes > 0);
            progress.answered += if is_silent { *answers } else { 0 };
            progress.verified_bytes += outcome.verified_bytes;
        }
        if let Ok(mut shared) = self.progress.lock() {
            *shared = progress;
        }
    }
}

/// The first moment after `now` that is whole intervals after `moment`.
fn next_moment(moment: Instant, now: Instant) -> Instant {
    let intervals = now.saturating_duration_since(moment).as_nanos() / TICK_INTERVAL.as_nanos() + 1;
    moment + TICK_INTERVAL * u32::try_from(intervals).unwrap_or(u32::MAX)
}

/// Units of the ramp's pace per connection.
const RAMP_UNIT: u64 = 1000;

impl ClientConnection {
    fn note(&mut self, handled: Result<(), String>) {
        if let Err(reason) = handled {
            self.outcome.broken.get_or_insert(reason);
            self.transport = Transport::Gone;
        }
    }

    /// The first event after the handshake: sends the preamble, and makes the first request.
    fn note_established(&mut self, now: Instant, bytes_per_s: u64, index: usize) -> Result<(), String> {
        let Transport::Tcp(socket) = &mut self.transport else { return Ok(()) };
        if self.outcome.established_at.is_some() {
            return socket.flush();
        }
        if !socket.is_connected()? {
            return Ok(());
        }
        self.outcome.established_at = Some(now);
        self.outcome.ends = socket.ends();
        self.outcome.last_progress_at = Some(now);
        self.due_since = now;
        let preamble = Preamble { kind: self.outcome.kind, seed: index as u64 + 1, bytes_per_s };
        socket.send(&preamble.to_bytes())?;
        match self.outcome.kind {
            Kind::Ticks | Kind::Idle | Kind::Ramp => self.request(now),
            Kind::Download | Kind::Upload | Kind::Udp => Ok(()),
        }
    }

    /// Sends a request and waits for its echo.
    fn request(&mut self, now: Instant) -> Result<(), String> {
        let mut request = [0; REQUEST_BYTES];
        self.sent.fill(&mut request);
        match &mut self.transport {
            Transport::Tcp(socket) => socket.send(&request)?,
            Transport::Udp(_) | Transport::Gone => return Ok(()),
        }
        self.sent.advance(REQUEST_BYTES);
        self.awaited_bytes = REQUEST_BYTES;
        self.due_since = now;
        self.next_request_at = None;
        Ok(())
    }

    fn receive(&mut self, now: Instant, buffer: &mut [u8], timeline: &mut Timeline) -> Result<(), String> {
        match &mut self.transport {
            Transport::Tcp(_) => self.receive_stream(now, buffer, timeline),
            Transport::Udp(_) => {
                self.receive_datagrams(now, buffer, timeline);
                Ok(())
            }
            Transport::Gone => Ok(()),
        }
    }

    fn receive_stream(&mut self, now: Instant, buffer: &mut [u8], timeline: &mut Timeline) -> Result<(), String> {
        let Transport::Tcp(socket) = &mut self.transport else { return Ok(()) };
        let Self { expected, report_bytes, reported, outcome, awaited_bytes, answers, .. } = self;
        let is_upload = outcome.kind == Kind::Upload;
        let mut verified = 0;
        let end = socket.read(buffer, |bytes| {
            if is_upload {
                report_bytes.extend_from_slice(bytes);
                return Ok(());
            }
            expected.check(bytes).map_err(|offset| format!("wrong byte at {offset}"))?;
            if *awaited_bytes > 0 {
                *awaited_bytes = awaited_bytes.saturating_sub(bytes.len());
                *answers += usize::from(*awaited_bytes == 0);
            }
            verified += bytes.len() as u64;
            Ok(())
        });
        while let Some((report, rest)) = report_bytes.split_first_chunk::<8>() {
            let total = u64::from_be_bytes(*report);
            verified += total.saturating_sub(*reported);
            *reported = total;
            *report_bytes = rest.to_vec();
        }
        if verified > 0 {
            outcome.note_progress(now, self.due_since, verified);
            timeline.note(now, outcome.kind, verified);
            if matches!(outcome.kind, Kind::Download | Kind::Upload) {
                self.due_since = now;
            }
            if outcome.kind == Kind::Ticks && *awaited_bytes == 0 {
                self.may_ask_at = next_moment(self.may_ask_at, now);
                self.next_request_at = Some(self.may_ask_at);
            }
        }
        match end {
            ReadEnd::Drained => Ok(()),
            ReadEnd::Closed(reason) => Err(reason),
        }
    }

    fn receive_datagrams(&mut self, now: Instant, buffer: &mut [u8], timeline: &mut Timeline) {
        let Transport::Udp(socket) = &self.transport else { return };
        let mut verified = 0;
        while let Ok(count) = socket.recv(buffer) {
            verified += count as u64;
        }
        if verified > 0 {
            self.outcome.established_at.get_or_insert(now);
            self.outcome.note_progress(now, self.due_since, verified);
            timeline.note(now, Kind::Udp, verified);
            self.due_since = now;
        }
    }

    fn send_due(&mut self, now: Instant, buffer: &mut [u8]) -> Result<(), String> {
        if self.next_request_at.is_some_and(|at| at <= now) {
            match &self.transport {
                Transport::Udp(socket) => {
                    // A datagram that is refused or lost shows as a gap.
                    let _ = socket.send(&[0x55; REQUEST_BYTES]);
                    self.next_request_at = Some(now + TICK_INTERVAL);
                }
                Transport::Tcp(_) => self.request(now)?,
                Transport::Gone => {}
            }
        }
        let is_uploading = self.outcome.kind == Kind::Upload && self.outcome.established_at.is_some();
        if let (true, Transport::Tcp(socket)) = (is_uploading, &mut self.transport) {
            let count = self.pace.allowance_bytes(now).min(WRITE_BYTES_MAX).min(buffer.len());
            if count > 0 {
                self.sent.fill(&mut buffer[..count]);
                let sent = socket.send_now(&buffer[..count])?;
                self.sent.advance(sent);
                self.pace.spend(sent);
            }
        }
        Ok(())
    }
}
