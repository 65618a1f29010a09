//! The kernel's side: its events, its table, and what it is asked to do.
//!
//! Events are read many at a time, at most every `kernel.event_interval`: an event that is read by itself costs a wake-up and a
//! system call, a hundred together hardly more. The table is read in pieces, one a turn, so that events go on being read.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use conntrack_sync::{
    DumpResult, FilterCoverage, KernelAction, KernelEvent, KernelRefusal, KernelRequest, Origin, SyncNode,
};
use flow::Instant;
use flow::netfilter::{Entry, Expectation};
use packet_io::IoError;
use packet_io::ctnetlink::{
    Cause, Dump, DumpFilter, DumpProgress, Event, EventOptions, EventSocket, Request, RequestError, TableSocket,
};

use super::admission::{Admission, kernel_filter};
use super::event_rules::EventRules;
use config::sync::SyncConfig;
use config::sync::validated::{Events, Filter};

/// Events taken before peers and timers have their turn.
const EVENTS_PER_TURN_MAX: usize = 4096;
/// Batches of requests made before events have their turn.
const BATCHES_PER_TURN_MAX: usize = 16;
/// Pieces of the table read before events have their turn; a piece has at most about a hundred connections.
const PIECES_PER_TURN_MAX: usize = 2;

/// TCP's number.
const TCP: u8 = 6;

/// What is counted here; the node counts the rest.
#[derive(Clone, Copy, Default)]
pub(super) struct KernelCounters {
    pub(super) events: u64,
    pub(super) malformed: u64,
    pub(super) overruns: u64,
    pub(super) dumps: u64,
    pub(super) requests: u64,
}

/// What is being read of the kernel's table.
enum Reading {
    Connections(Dump<Entry>),
    Expectations(Dump<Expectation>),
}

/// The kernel.
pub(super) struct Kernel {
    events: EventSocket,
    /// What keeps the kernel from making events that are not needed.
    rules: Option<EventRules>,
    table: TableSocket,
    reading: Option<Reading>,
    /// What that has shown so far of what is replicated.
    share: FilterCoverage,
    has_expectations: bool,
    event_interval: Duration,
    /// Before this, events are left to wait for others.
    read_events_at: Instant,
    /// What was asked for as receive buffer, what it may become, and what the kernel made of it.
    buffer_bytes_asked: usize,
    buffer_bytes_max: usize,
    buffer_bytes: usize,
    admission: Admission,
    batch: Vec<KernelRequest>,
    counters: KernelCounters,
}

impl Kernel {
    /// Opens the way to the kernel of the calling thread's namespace.
    pub(super) fn open(config: &SyncConfig) -> Result<Self, IoError> {
        let settings = &config.kernel;
        let options = EventOptions {
            expectations: settings.expectations,
            receive_buffer_bytes: settings.receive_buffer_bytes,
            filter: kernel_filter(&config.filter),
            ..EventOptions::default()
        };
        let table = TableSocket::open()?;
        let mut events = EventSocket::open(&options)?;
        events.ignore_program(table.port());
        let buffer_bytes = events.set_receive_buffer(settings.receive_buffer_bytes)?;
        Ok(Self {
            events,
            rules: install_rules(settings.events),
            table,
            reading: None,
            share: FilterCoverage::default(),
            has_expectations: settings.expectations,
            event_interval: settings.event_interval,
            read_events_at: Instant::ZERO,
            buffer_bytes_asked: settings.receive_buffer_bytes,
            buffer_bytes_max: settings.receive_buffer_bytes_max,
            buffer_bytes,
            admission: Admission::new(&config.filter),
            batch: Vec::new(),
            counters: KernelCounters::default(),
        })
    }

    /// Another filter, interval and limit from now on.
    pub(super) fn reconfigure(&mut self, config: &SyncConfig) -> Result<(), IoError> {
        self.event_interval = config.kernel.event_interval;
        self.buffer_bytes_max = config.kernel.receive_buffer_bytes_max;
        self.set_filter(&config.filter)
    }

    fn set_filter(&mut self, filter: &Filter) -> Result<(), IoError> {
        self.admission = Admission::new(filter);
        self.events.set_filter(&kernel_filter(filter))
    }

    pub(super) const fn counters(&self) -> KernelCounters {
        self.counters
    }

    /// Which events the kernel makes of TCP connections, by the name that the configuration has for it.
    pub(super) const fn events_made(&self) -> &'static str {
        if self.rules.is_some() { "lean" } else { "all" }
    }

    /// How often the rules for that were found gone, and put back.
    pub(super) fn rules_put_back(&self) -> u64 {
        self.rules.as_ref().map_or(0, |rules| rules.put_back)
    }

    pub(super) const fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Until when events are left to wait; not in the future: they are wanted at once.
    pub(super) const fn read_events_at(&self) -> Instant {
        self.read_events_at
    }

    /// Whether there is work that nothing will wake the poller for.
    pub(super) const fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Takes the events that wait.
    pub(super) fn read_events(&mut self, now: Instant, node: &mut SyncNode) -> Result<(), IoError> {
        let (admission, rules) = (&self.admission, &mut self.rules);
        let received = self.events.receive(EVENTS_PER_TURN_MAX, &mut |cause, event| {
            let origin = match cause {
                Cause::Packets => Origin::Packets,
                Cause::Program(_) => Origin::OtherProgram,
            };
            if let (Event::Began(entry), Origin::Packets, Some(rules)) = (&event, origin, rules.as_mut())
                && entry.original.protocol == TCP
            {
                rules.note_surprise();
            }
            match &event {
                Event::Began(entry) | Event::Changed(entry) | Event::Ended(entry) if !admission.admits(entry) => {}
                Event::Began(entry) => node.handle_kernel_event(now, origin, KernelEvent::Began(entry)),
                Event::Changed(entry) => node.handle_kernel_event(now, origin, KernelEvent::Changed(entry)),
                Event::Ended(entry) => node.handle_kernel_event(now, origin, KernelEvent::Ended(entry)),
                Event::Expected(expectation) => {
                    node.handle_kernel_event(now, origin, KernelEvent::Expected(expectation));
                }
                Event::ExpectationEnded(expectation) => {
                    node.handle_kernel_event(now, origin, KernelEvent::ExpectationEnded(expectation));
                }
            }
        })?;
        self.counters.events += received.messages as u64;
        self.counters.malformed += received.malformed as u64;
        if let Some(rules) = &mut self.rules {
            rules.look_after(now);
        }
        // What waits already is not left waiting; and where nothing came, the first event is waited for.
        self.read_events_at =
            if received.is_drained && received.messages > 0 { now + self.event_interval } else { now };
        if received.overrun {
            self.counters.overruns += 1;
            self.grow()?;
            node.handle_events_lost(now);
        }
        Ok(())
    }

    /// Makes more room for events, up to the limit.
    fn grow(&mut self) -> Result<(), IoError> {
        let wanted = self.buffer_bytes_asked.saturating_mul(2).min(self.buffer_bytes_max);
        if wanted > self.buffer_bytes_asked {
            self.buffer_bytes_asked = wanted;
            self.buffer_bytes = self.events.set_receive_buffer(wanted)?;
            tracing::warn!(bytes = wanted, "the kernel found no room for an event: the receive buffer grows");
        }
        Ok(())
    }

    /// Asks the kernel what the node wants of it. True: there is more.
    pub(super) fn make_requests(&mut self, now: Instant, node: &mut SyncNode) -> Result<bool, IoError> {
        for _ in 0..BATCHES_PER_TURN_MAX {
            if !node.poll_kernel_requests(now, &mut self.batch) {
                return Ok(false);
            }
            self.counters.requests += self.batch.len() as u64;
            self.execute(now, node)?;
            node.handle_requests_done(now);
        }
        Ok(true)
    }

    fn execute(&mut self, now: Instant, node: &mut SyncNode) -> Result<(), IoError> {
        let Self { table, batch, .. } = self;
        // Places of the requests that change something, and of those that ask.
        let changing: Vec<usize> = (0..batch.len()).filter(|place| request(&batch[*place].action).is_some()).collect();
        table.execute(changing.iter().filter_map(|place| request(&batch[*place].action)), &mut |place, error| {
            if let Some(refused) = changing.get(place).and_then(|place| batch.get(*place)) {
                node.handle_kernel_answer(now, refused.token, Err(refusal(error)));
            }
        })?;
        for asked in batch.iter() {
            if let KernelAction::Get { tuple, zone } = &asked.action {
                let found = table.get(tuple, *zone)?;
                node.handle_kernel_found(now, asked.token, found.as_ref());
            }
        }
        Ok(())
    }

    /// Begins to read the table if the node wants that, and reads on.
    pub(super) fn read_table(&mut self, now: Instant, node: &mut SyncNode) {
        if self.reading.is_none() && node.poll_dump(now) {
            self.counters.dumps += 1;
            self.share = FilterCoverage::default();
            match Dump::connections(DumpFilter::default()) {
                Ok(dump) => self.reading = Some(Reading::Connections(dump)),
                Err(error) => fail(now, node, &error),
            }
        }
        for _ in 0..PIECES_PER_TURN_MAX {
            let Some(reading) = self.reading.take() else { return };
            self.reading = self.read_on(now, node, reading);
        }
    }

    /// Reads a piece. Returns what is to be read next.
    fn read_on(&mut self, now: Instant, node: &mut SyncNode, reading: Reading) -> Option<Reading> {
        match reading {
            Reading::Connections(mut dump) => {
                let Self { admission, share, .. } = self;
                let progress = dump.receive(&mut |entry| {
                    let is_admitted = admission.admits(&entry);
                    if admission.admits_protocol(&entry) {
                        share.note(&entry, is_admitted && node.replicates(&entry));
                    }
                    if is_admitted {
                        node.handle_dump_entry(now, &entry);
                    }
                });
                if matches!(progress, Ok(DumpProgress::Ended { .. })) {
                    node.note_coverage(now, self.share);
                }
                match progress {
                    Ok(DumpProgress::More) => return Some(Reading::Connections(dump)),
                    Ok(DumpProgress::Ended { was_interrupted: true }) => {
                        node.handle_dump_ended(now, DumpResult::Interrupted);
                    }
                    Ok(DumpProgress::Ended { .. }) if self.has_expectations => match Dump::expectations() {
                        Ok(dump) => return Some(Reading::Expectations(dump)),
                        Err(error) => fail(now, node, &error),
                    },
                    Ok(DumpProgress::Ended { .. }) => node.handle_dump_ended(now, DumpResult::Complete),
                    Err(error) => fail(now, node, &error),
                }
            }
            Reading::Expectations(mut dump) => {
                let progress = dump.receive(&mut |expectation| {
                    node.handle_dump_expectation(now, &expectation);
                });
                match progress {
                    Ok(DumpProgress::More) => return Some(Reading::Expectations(dump)),
                    Ok(DumpProgress::Ended { .. }) => node.handle_dump_ended(now, DumpResult::Complete),
                    Err(error) => fail(now, node, &error),
                }
            }
        }
        None
    }
}

/// Has the kernel make fewer events, where that is wanted and can be had.
fn install_rules(wanted: Events) -> Option<EventRules> {
    if wanted == Events::All {
        return None;
    }
    EventRules::install()
        .map_err(|error| {
            tracing::warn!(
                "kernel.events is \"all\", which costs more, as the rules for \"lean\" cannot be had: {error}"
            )
        })
        .ok()
}

fn fail(now: Instant, node: &mut SyncNode, error: &IoError) {
    tracing::warn!("{error}");
    node.handle_dump_ended(now, DumpResult::Failed);
}

impl AsFd for Kernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// The request as the kernel takes it; `None`: it is a question.
fn request(action: &KernelAction) -> Option<Request<'_>> {
    Some(match action {
        KernelAction::Create(entry) => Request::Create(entry),
        KernelAction::Update(entry) => Request::Update(entry),
        KernelAction::Delete(entry) => Request::Delete(entry),
        KernelAction::CreateExpectation(expectation) => Request::CreateExpectation(expectation),
        KernelAction::DeleteExpectation(expectation) => Request::DeleteExpectation(expectation),
        KernelAction::Get { .. } => return None,
    })
}

/// Why the kernel refused, in the node's words.
const fn refusal(error: RequestError) -> KernelRefusal {
    match error {
        RequestError::Exists => KernelRefusal::Exists,
        RequestError::Missing => KernelRefusal::Missing,
        RequestError::Full => KernelRefusal::Full,
        RequestError::Unsupported => KernelRefusal::Unsupported,
        RequestError::NotPermitted => KernelRefusal::NotPermitted,
        RequestError::Invalid => KernelRefusal::Invalid,
        RequestError::Other(errno) => KernelRefusal::Other(errno),
    }
}
