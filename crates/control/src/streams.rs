//! Answers that go on while the gateway works: traces, captures, and flows that are followed.
//!
//! The workers pass on what they see over a channel, each in the order of time; here it is put in one order. An answer
//! ends when its count or its time is reached, when the client goes, or when it sends anything more.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster::observation::{ConnectionChange, Sight, Subject, WatchId};
use flow::Instant;
use packet_io::clock;

use super::answer::{Failed, IDLE_TIMEOUT, write_line};
use super::flows::{FlowDescriber, Listed};
use super::inquiry::ControlSender;
use super::trace;
use super::watching::{SIGHTS_WAITING_MAX, WatchOrder, Witnessed};
use api::{FlowEvent, FrameLine, Line};

/// The longest time that an answer may go on, in seconds.
pub const STREAM_SECONDS_MAX: f64 = 86_400.0;
/// What several workers see is held so long, so that it can be sent in the order of time.
const ORDERING_DELAY: Duration = Duration::from_millis(20);
/// A client that has gone is noticed within this time.
const TICK: Duration = Duration::from_millis(100);
/// How long the client's end is looked at: it has sent something long before, or it has not.
const GLANCE: Duration = Duration::from_millis(1);

/// What is to be streamed, and for how long.
pub(super) struct Stream {
    pub(super) subject: Subject,
    pub(super) count: u64,
    pub(super) seconds: f64,
}

/// What was seen by a worker, with its number.
struct Seen {
    worker: u8,
    witnessed: Witnessed,
}

impl Seen {
    fn at(&self) -> Instant {
        self.witnessed.sight.at()
    }
}

/// Watches on all workers, until it is dropped.
struct Watching {
    seen: Vec<Receiver<Witnessed>>,
    /// As long as it lives, workers look.
    _alive: Arc<()>,
}

impl Watching {
    fn begin(sender: &ControlSender, subject: &Subject, count: u64) -> Result<Self, Failed> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let id = WatchId(NUMBER.fetch_add(1, Ordering::Relaxed));
        let alive = Arc::new(());
        let mut seen = Vec::new();
        for worker in 0..sender.workers() {
            let (sink, receiver) = sync_channel(SIGHTS_WAITING_MAX);
            let order =
                WatchOrder { id, subject: subject.clone(), sights_max: count, sink, alive: Arc::downgrade(&alive) };
            sender.watch(worker, order)?.map_err(Failed::refused)?;
            seen.push(receiver);
        }
        Ok(Self { seen, _alive: alive })
    }

    /// Takes what there is; waits for it, at most so long, where there is one worker and nothing there.
    fn take(&self, wait: Duration, taken: &mut Vec<Seen>) -> bool {
        let mut is_open = false;
        for (worker, receiver) in (0..).zip(&self.seen) {
            let first = match &self.seen[..] {
                [_] => receiver.recv_timeout(wait),
                _ => receiver.try_recv().map_err(RecvTimeoutError::from_try),
            };
            is_open |= !matches!(first, Err(RecvTimeoutError::Disconnected));
            let more = receiver.try_iter().take(SIGHTS_WAITING_MAX);
            taken.extend(first.into_iter().chain(more).map(|witnessed| Seen { worker, witnessed }));
        }
        if self.seen.len() > 1 && taken.is_empty() {
            std::thread::sleep(wait.min(ORDERING_DELAY));
        }
        is_open
    }
}

trait FromTry {
    fn from_try(error: std::sync::mpsc::TryRecvError) -> Self;
}

impl FromTry for RecvTimeoutError {
    fn from_try(error: std::sync::mpsc::TryRecvError) -> Self {
        match error {
            std::sync::mpsc::TryRecvError::Empty => Self::Timeout,
            std::sync::mpsc::TryRecvError::Disconnected => Self::Disconnected,
        }
    }
}

/// Streams what is seen, line by line. Returns how many lines, and whether the count ended it.
pub(super) fn answer(
    stream: &Stream,
    sender: &ControlSender,
    describer: &FlowDescriber,
    reader: &mut BufReader<&UnixStream>,
    writer: &mut impl Write,
) -> Result<(u64, bool), Failed> {
    let until = clock::now() + Duration::from_secs_f64(stream.seconds.clamp(0.0, STREAM_SECONDS_MAX));
    let watching = Watching::begin(sender, &stream.subject, stream.count)?;
    let delay = if sender.workers() > 1 { ORDERING_DELAY } else { Duration::ZERO };
    let teller = Teller { describer, unix_offset_ns: unix_offset_ns() };
    let (mut waiting, mut missed) = (Vec::new(), vec![0; sender.workers()]);
    let (mut sent, mut lines, mut glanced_at) = (0, 0, clock::now());
    writer.flush()?;
    loop {
        let now = clock::now();
        let is_open = watching.take(until.saturating_since(now).min(TICK), &mut waiting);
        let is_over = now >= until || !is_open;
        waiting.sort_by_key(Seen::at);
        let is_ripe = |seen: &Seen| is_over || seen.at() + delay <= clock::now();
        let ripe = waiting.iter().take_while(|seen| is_ripe(seen)).count();
        for seen in waiting.drain(..ripe) {
            let known = &mut missed[usize::from(seen.worker)];
            if seen.witnessed.missed > *known {
                write_line(writer, &Line::Missed { worker: seen.worker, count: seen.witnessed.missed - *known })?;
                *known = seen.witnessed.missed;
                lines += 1;
            }
            write_line(writer, &teller.line(&seen))?;
            (sent, lines) = (sent + 1, lines + 1);
            if sent == stream.count {
                return Ok((lines, true));
            }
        }
        if is_over {
            return Ok((lines, false));
        }
        writer.flush()?;
        if clock::now().saturating_since(glanced_at) >= TICK {
            glanced_at = clock::now();
            if is_done(reader)? {
                return Ok((lines, false));
            }
        }
    }
}

/// Whether the client has gone, or has sent another request.
fn is_done(reader: &mut BufReader<&UnixStream>) -> io::Result<bool> {
    reader.get_ref().set_read_timeout(Some(GLANCE))?;
    let glance = reader.fill_buf().map(|_| ());
    reader.get_ref().set_read_timeout(Some(IDLE_TIMEOUT))?;
    match glance {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the monotonic clock lacks of the time since 1970.
fn unix_offset_ns() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(clock::now().as_nanos())
}

struct Teller<'a> {
    describer: &'a FlowDescriber,
    unix_offset_ns: u64,
}

impl Teller<'_> {
    fn line(&self, Seen { worker, witnessed }: &Seen) -> Line {
        match &witnessed.sight {
            Sight::Packet(trace) => {
                Line::Trace(Box::new(trace::describe(trace, self.describer, *worker, self.unix_offset_ns)))
            }
            Sight::Frame(frame) => Line::Frame(FrameLine {
                unix_ns: frame.at.as_nanos() + self.unix_offset_ns,
                port: self.describer.port(frame.port),
                length_bytes: frame.length_bytes,
                dropped: frame.dropped.map(|reason| reason.label().to_owned()),
                bytes: hexadecimal(&frame.bytes),
            }),
            Sight::Connection(event) => Line::FlowEvent(Box::new(FlowEvent {
                unix_ns: event.at.as_nanos() + self.unix_offset_ns,
                change: match event.change {
                    ConnectionChange::Began => "began",
                    ConnectionChange::Changed => "changed",
                    ConnectionChange::TakenOver => "taken_over",
                    ConnectionChange::Ended => "ended",
                }
                .to_owned(),
                flow: {
                    let listed =
                        Listed { connection: event.connection, entered_at: event.entered_at, class: None, path: None };
                    self.describer.describe(&listed, event.at)
                },
            })),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    digits.map(char::from).collect()
}

/// Reads what [`FrameLine::bytes`] holds; `None` for anything else.
#[must_use]
pub fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| if let [high, low] = pair { Some(digit(*high)? << 4 | digit(*low)?) } else { None }).collect()
}
