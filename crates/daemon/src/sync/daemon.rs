//! The thread that replicates.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use conntrack_sync::SyncNode;
use flow::Instant;
use packet_io::poller::{Poller, Token, Waker};
use packet_io::signal::{Signal, Signals};
use packet_io::{IoError, clock};

use super::kernel::Kernel;
use super::links::Links;
use super::redundancy::{Counters, Redundancy};
use super::reporting::Reporting;
use crate::credentials::unix_time;
use crate::gateway::service::Service;
use crate::logging;
use api::EventKind;
use config::sync::SyncConfig;
use control::ControlReceiver;

const EVENTS: Token = Token(0);
const CONTROL: Token = Token(1);
const SIGNALS: Token = Token(2);
const LINKS: Token = Token(3);

/// The longest wait: the service manager's watchdog must be fed, and operators' figures grow old.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// How often it is looked at what links lose.
const LOOK_AT_LINKS_INTERVAL: Duration = Duration::from_millis(50);
/// How often the time of day is looked at, which certificates are held against.
const TIME_OF_DAY_INTERVAL: Duration = Duration::from_secs(1);

/// What the daemon is given, beside the configuration.
pub(super) struct Setting {
    pub(super) node: SyncNode,
    pub(super) signals: Signals,
    /// Has the configuration read again.
    pub(super) request_reload: SyncSender<()>,
    pub(super) waker: Arc<Waker>,
    pub(super) receiver: ControlReceiver,
}

/// The node, its sockets, and what it reports to operators.
pub(super) struct Daemon {
    node: SyncNode,
    kernel: Kernel,
    links: Links,
    /// Waits for everything,
    poller: Poller,
    /// and for operators and signals only, while events and datagrams are left to gather.
    poller_while_gathering: Poller,
    signals: Signals,
    request_reload: SyncSender<()>,
    waker: Arc<Waker>,
    receiver: ControlReceiver,
    reporting: Reporting,
    service: Service,
    buffer: Vec<u8>,
    /// How often datagrams are sent over links that lose some,
    redundancy: Redundancy,
    /// and when that is looked at again.
    look_at_links_at: Instant,
    /// The kernel has not been asked all that the node wants of it.
    has_requests: bool,
    time_of_day_at: Instant,
    is_ending: bool,
}

impl Daemon {
    /// Opens the ways to the kernel and to the peers.
    pub(super) fn open(config: &SyncConfig, setting: Setting) -> Result<Self, IoError> {
        let Setting { node, signals, request_reload, waker, receiver } = setting;
        let kernel = Kernel::open(config)?;
        let links = Links::open(config, LINKS)?;
        let (poller, poller_while_gathering) = (Poller::new()?, Poller::new()?);
        poller.add(&kernel, EVENTS)?;
        links.register(&poller)?;
        for poller in [&poller, &poller_while_gathering] {
            poller.add(&*waker, CONTROL)?;
            poller.add(&signals, SIGNALS)?;
        }
        Ok(Self {
            reporting: Reporting::new(config, clock::now()),
            node,
            kernel,
            links,
            poller,
            poller_while_gathering,
            signals,
            request_reload,
            waker,
            receiver,
            service: Service::from_environment(),
            buffer: Vec::with_capacity(65_536),
            redundancy: Redundancy::default(),
            look_at_links_at: Instant::ZERO,
            has_requests: false,
            time_of_day_at: Instant::ZERO,
            is_ending: false,
        })
    }

    /// Replicates until a signal ends it.
    pub(super) fn run(&mut self) -> Result<(), IoError> {
        let mut ready = Vec::new();
        self.reporting.begin(clock::now());
        while !self.is_ending {
            self.wait(&mut ready)?;
            if ready.contains(&SIGNALS) {
                self.take_signals();
            }
            self.receive(&ready)?;
            let now = clock::now();
            if ready.contains(&EVENTS) {
                self.kernel.read_events(now, &mut self.node)?;
            }
            if self.node.poll_timeout().is_some_and(|due| due <= now) {
                self.node.handle_timeout(now);
            }
            self.kernel.read_table(now, &mut self.node);
            self.has_requests = self.kernel.make_requests(now, &mut self.node)?;
            self.send(now)?;
            self.look_at_links(now);
            self.report(now);
            if ready.contains(&CONTROL) {
                self.answer_control();
            }
        }
        self.end()
    }

    /// Waits until there is something to do. What the peers send is acknowledgements for the most part while the kernel makes
    /// events: it is taken together with the next events, so that it does not wake the thread by itself.
    fn wait(&self, ready: &mut Vec<Token>) -> Result<(), IoError> {
        let now = clock::now();
        if self.kernel.read_events_at() > now {
            self.poller_while_gathering.wait(ready, Some(self.wait_until_due(now)))?;
            if !ready.is_empty() || self.kernel.read_events_at() > clock::now() {
                return Ok(());
            }
        }
        self.poller.wait(ready, Some(self.wait_until_due(clock::now())))
    }

    fn wait_until_due(&self, now: Instant) -> Duration {
        if self.has_requests || self.kernel.is_reading() {
            return Duration::ZERO;
        }
        let events = Some(self.kernel.read_events_at()).filter(|at| *at > now);
        let due = self.node.poll_timeout().into_iter().chain(events).min();
        due.map_or(WAIT_MAX, |due| due.saturating_since(now).min(WAIT_MAX))
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.signals.receive() {
            match signal {
                Signal::Terminate | Signal::Interrupt => self.is_ending = true,
                Signal::Reload => {
                    self.service.reloading(clock::now());
                    // One that waits already reads the file as it is now.
                    let _ = self.request_reload.try_send(());
                }
            }
        }
    }

    fn receive(&mut self, ready: &[Token]) -> Result<(), IoError> {
        let Self { node, links, reporting, .. } = self;
        let mut strangers = Vec::new();
        links.receive(
            ready,
            |peer, datagram| {
                let result = node.handle_datagram(clock::now(), peer, datagram);
                reporting.note_peer_error(peer, result);
            },
            |from| strangers.push(from),
        )?;
        strangers.into_iter().for_each(|from| reporting.note_stranger(from));
        Ok(())
    }

    fn send(&mut self, now: Instant) -> Result<(), IoError> {
        while let Some(to) = self.node.poll_transmit(now, &mut self.buffer) {
            for _ in 0..self.redundancy.copies(to) {
                self.links.send(to, &self.buffer)?;
            }
        }
        Ok(())
    }

    fn look_at_links(&mut self, now: Instant) {
        if self.look_at_links_at > now {
            return;
        }
        self.look_at_links_at = now + LOOK_AT_LINKS_INTERVAL;
        for peer in self.node.status(now).peers {
            if let Some(session) = &peer.session {
                self.redundancy.look(now, peer.id, Counters::from(session));
            }
        }
    }

    fn report(&mut self, now: Instant) {
        if self.time_of_day_at <= now {
            self.time_of_day_at = now + TIME_OF_DAY_INTERVAL;
            self.node.set_unix_time(now, unix_time());
        }
        while let Some((at, event)) = self.node.poll_event() {
            self.reporting.note_event(at, event);
        }
        self.reporting.look_at_host(now, &mut self.node);
        logging::report_suppressed(now, false);
        let Self { service, reporting, node, .. } = self;
        service.turn(now, || true, || reporting.line(now, node));
    }

    fn answer_control(&mut self) {
        self.waker.clear();
        let Self { node, kernel, reporting, receiver, waker, .. } = self;
        if receiver.answer_one(&mut reporting.answers(node, kernel)) {
            // Another may wait: the kernel and the peers have their turn first.
            waker.wake();
        }
    }

    /// Closes the sessions, so that no peer takes the silence for a failure.
    fn end(&mut self) -> Result<(), IoError> {
        self.service.stopping("closing the sessions with the other nodes");
        let now = clock::now();
        self.reporting.note(now, EventKind::Stopping, "");
        self.node.close();
        self.send(now)
    }
}
