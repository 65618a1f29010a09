//! The client's side of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use super::target::ClientError;
use super::target::{Channel, Stopper, Target};
use api::metrics::Sample;
use api::{
    Event, Flow, FlowFilterText, Line, Query, ReloadReport, Request, Status, SyncOrder, SyncReadiness, UrlLookup,
    VERSION,
};

/// How long the client waits for a line of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest line of an answer that the client reads.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// A connection to a gateway.
pub struct Client {
    target: Target,
    reader: BufReader<Channel>,
    is_stopped: Arc<AtomicBool>,
}

/// Ends a [`Client::stream`] from another thread, as after its time.
pub struct StreamStopper {
    socket: Stopper,
    is_stopped: Arc<AtomicBool>,
}

impl StreamStopper {
    /// Ends the stream. Lines that have arrived are still handed on; the client cannot be used any more.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        // A socket that is closed already has ended the stream, too.
        let _ = self.socket.stop();
    }
}

impl Client {
    /// Connects to the gateway that listens at `path`.
    ///
    /// # Errors
    /// [`ClientError`], whose text is meant for the operator.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        Self::open(Target::Socket(path.to_owned()))
    }

    /// Connects to a gateway, here or elsewhere.
    ///
    /// # Errors
    /// [`ClientError`], whose text is meant for the operator.
    pub fn open(target: Target) -> Result<Self, ClientError> {
        let channel = Channel::open(&target)?;
        let set = channel.set_read_timeout(ANSWER_TIMEOUT);
        set.map_err(|source| ClientError::Broken { target: target.clone(), source })?;
        Ok(Self { target, reader: BufReader::new(channel), is_stopped: Arc::default() })
    }

    /// How the node is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status(&mut self) -> Result<Status, ClientError> {
        let mut status = None;
        self.ask(Query::Status, |line| match line {
            Line::Status(found) => {
                status = Some(*found);
                true
            }
            _ => false,
        })?;
        status.ok_or_else(|| ClientError::NotUnderstood("it has no status".to_owned()))
    }

    /// At most `limit` connections that meet the conditions, one at a time, and whether there were more.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn flows(
        &mut self,
        filter: FlowFilterText,
        limit: u64,
        mut take: impl FnMut(Flow),
    ) -> Result<bool, ClientError> {
        self.ask(Query::Flows { filter, limit }, |line| match line {
            Line::Flow(flow) => {
                take(flow);
                true
            }
            _ => false,
        })
    }

    /// All counters and gauges.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn counters(&mut self) -> Result<Vec<Sample>, ClientError> {
        let mut samples = Vec::new();
        self.ask(Query::Counters, |line| match line {
            Line::Sample(sample) => {
                samples.push(sample);
                true
            }
            _ => false,
        })?;
        Ok(samples)
    }

    /// What happened lately, oldest first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn events(&mut self) -> Result<Vec<Event>, ClientError> {
        let mut events = Vec::new();
        self.ask(Query::Events, |line| match line {
            Line::Event(event) => {
                events.push(event);
                true
            }
            _ => false,
        })?;
        Ok(events)
    }

    /// What the URL filter decides about a host, with a path or without.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn url(&mut self, target: &str) -> Result<UrlLookup, ClientError> {
        let mut found = UrlLookup::default();
        self.ask(Query::Url { target: target.to_owned() }, |line| match line {
            Line::Url(answer) => {
                found = *answer;
                true
            }
            _ => false,
        })?;
        Ok(found)
    }

    /// Has the configuration file read again and put in force, or only asks what would change.
    ///
    /// # Errors
    /// [`ClientError`]. A file that cannot be used is no error but a report.
    pub fn reload(&mut self, check_only: bool) -> Result<ReloadReport, ClientError> {
        let mut report = None;
        self.ask(Query::Reload { check_only }, |line| match line {
            Line::Reload(found) => {
                report = Some(found);
                true
            }
            _ => false,
        })?;
        report.ok_or_else(|| ClientError::NotUnderstood("it does not report the outcome".to_owned()))
    }

    /// Has the node hand its addresses over and take no part any more. That is begun when this returns.
    ///
    /// # Errors
    /// [`ClientError`]; refused when connections would be lost.
    pub fn drain(&mut self, force: bool) -> Result<(), ClientError> {
        self.ask(Query::Drain { force }, |_| false).map(drop)
    }

    /// Has the node take part again.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn undrain(&mut self) -> Result<(), ClientError> {
        self.ask(Query::Undrain, |_| false).map(drop)
    }

    /// Has an edge send a node no new connections, or send them again.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn drain_node(&mut self, node: u8, drained: bool) -> Result<(), ClientError> {
        self.ask(Query::DrainNode { node, drained }, |_| false).map(drop)
    }

    /// Has a node that replicates the kernel's connections change its role, or only asks how ready it is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn sync(&mut self, order: SyncOrder) -> Result<SyncReadiness, ClientError> {
        let mut readiness = None;
        self.ask(Query::Sync { order }, |line| match line {
            Line::Readiness(found) => {
                readiness = Some(found);
                true
            }
            _ => false,
        })?;
        readiness.ok_or_else(|| ClientError::NotUnderstood("it does not report how ready it is".to_owned()))
    }

    /// What ends this client's stream from another thread.
    ///
    /// # Errors
    /// [`ClientError`]: the system is out of descriptors.
    pub fn stopper(&self) -> Result<StreamStopper, ClientError> {
        let broken = |source| ClientError::Broken { target: self.target.clone(), source };
        let socket = self.reader.get_ref().stopper().map_err(broken)?;
        Ok(StreamStopper { socket, is_stopped: Arc::clone(&self.is_stopped) })
    }

    /// Asks for something that goes on for at most `seconds`, and hands every line to `take` as it comes. A stream that a
    /// [`StreamStopper`] ended is complete.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stream(&mut self, query: Query, seconds: f64, mut take: impl FnMut(Line)) -> Result<(), ClientError> {
        let wait = ANSWER_TIMEOUT + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 2);
        let broken = |source| ClientError::Broken { target: self.target.clone(), source };
        self.reader.get_ref().set_read_timeout(wait).map_err(broken)?;
        let result = self.ask(query, |line| {
            take(line);
            true
        });
        if self.is_stopped.load(Ordering::SeqCst) {
            // The stream ended where it was stopped, perhaps within a line.
            return Ok(());
        }
        let broken = |source| ClientError::Broken { target: self.target.clone(), source };
        self.reader.get_ref().set_read_timeout(ANSWER_TIMEOUT).map_err(broken)?;
        result.map(drop)
    }

    /// Asks, and hands every line to `take`, which returns whether it expected it. Returns whether the answer was cut off.
    fn ask(&mut self, query: Query, mut take: impl FnMut(Line) -> bool) -> Result<bool, ClientError> {
        let mut request = serde_json::to_vec(&Request { version: VERSION, query })
            .map_err(|error| ClientError::NotUnderstood(error.to_string()))?;
        request.push(b'\n');
        // A gateway that refuses its client at once may have closed already; its reason is still there to be read.
        let sent = self.reader.get_mut().write_all(&request);
        loop {
            let line = self.read_line(sent.as_ref().err())?;
            match line {
                Line::End { truncated, .. } => return Ok(truncated),
                Line::Error { error, message, .. } => return Err(ClientError::Refused { kind: error, message }),
                other => {
                    if !take(other) {
                        return Err(ClientError::NotUnderstood("it answers another question".to_owned()));
                    }
                }
            }
        }
    }

    fn read_line(&mut self, sent: Option<&io::Error>) -> Result<Line, ClientError> {
        let broken = |source| ClientError::Broken { target: self.target.clone(), source };
        let mut line = Vec::new();
        self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(broken)?;
        if line.is_empty() {
            let kind = sent.map_or(io::ErrorKind::UnexpectedEof, io::Error::kind);
            return Err(broken(io::Error::new(kind, "it closed the connection before its answer was complete")));
        }
        serde_json::from_slice(&line).map_err(|error| ClientError::NotUnderstood(error.to_string()))
    }
}
