//! The cost of replicating a traffic's connections to a backup by each method, and what the backup would then know
//! (MLCBF: section 2.2 with figures 6 to 12; sections 3.2, 3.5, 4.1 and 4.2 with figures 17 to 25 and table III).
//!
//! ```text
//!  Trace ─► Connections ─► Book: exact table, thresholds ─┬─► precise messages, by their real encodings
//!                                                         └─► threads ─► Pair: CompactSender ─► CompactReceiver ◄─ probes
//! ```
//! The filters are those of the gateway, sent over a link without loss or delay; a failover is simulated by asking the
//! backup's half for connections in progress and for tuples of none. Captures are read once, in bounded memory.

mod advice;
mod book;
mod compared;
mod config;
mod hosts;
mod lane;
mod ops;
mod outcome;
mod pages;
mod pair;
mod precise;
mod result;
mod seed;
mod tables;
#[cfg(test)]
mod tests;
mod urls;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use flow::Instant;

use crate::trace::connections::{Connections, ConnectionsConfig};
use crate::trace::{Packet, Trace};
use book::Book;
use ops::Entry;
use urls::UrlBook;
use workers::Workers;

pub use config::{
    CONNECTIONS_MAX, ConfigError, DIGEST_INTERVAL_OF_PAPER_S, Method, PROBES_MAX, StudyConfig, THRESHOLDS_MAX,
};
pub use hosts::{HOST_PAIRS_MAX, LIFETIMES_MS, Parallel};
pub use outcome::{
    Advice, Cost, LevelLoads, MethodOutcome, NotStudied, Outcome, SeedRow, Traffic, UrlMembership, UrlStructure, Urls,
};
pub use pages::report;
pub use tables::datasets;
pub use urls::{URLS_MAX, url_of};

/// So much of a silence at most is time in which the traffic went on.
const SILENCE_COUNTED: Duration = Duration::from_secs(60);
/// Changes that are handed to the threads at a time.
const BATCH_CHANGES: usize = 4096;

/// A study in progress: packets go in, at the end comes what was found.
pub struct Study {
    config: StudyConfig,
    connections: Connections,
    book: Book,
    workers: Workers,
    urls: UrlBook,
    began: Option<Instant>,
    /// The last packet's time, and how long the traffic was without its silences.
    last: Instant,
    busy: Duration,
    next_failover: Instant,
    failovers: u64,
}

impl Study {
    /// Begins a study of connections that are followed as `following` chooses.
    ///
    /// # Errors
    /// There cannot be such a study.
    pub fn new(config: StudyConfig, following: ConnectionsConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let following = ConnectionsConfig { connections_max: config.connections_max, ..following };
        Ok(Self {
            connections: Connections::new(&following),
            book: Book::new(&config),
            workers: Workers::start(&config)?,
            urls: UrlBook::new(config.seed),
            began: None,
            last: Instant::ZERO,
            busy: Duration::ZERO,
            next_failover: Instant::FAR_FUTURE,
            failovers: 0,
            config,
        })
    }

    /// A packet of the traffic.
    pub fn handle_packet(&mut self, packet: &Packet<'_>) {
        let began = *self.began.get_or_insert(packet.at);
        self.busy += packet.at.saturating_since(self.last.max(began)).min(SILENCE_COUNTED);
        self.last = packet.at;
        if self.next_failover == Instant::FAR_FUTURE {
            self.next_failover = began + self.between_failovers();
        }
        if packet.at >= self.next_failover {
            self.fail_over(self.next_failover);
            // Over a gap without packets one failover suffices.
            self.next_failover = packet.at + self.between_failovers();
        }
        let book = &mut self.book;
        let outcome = self.connections.handle_packet(packet, &mut |event| book.handle_event(event));
        let connection = match outcome {
            crate::trace::connections::Outcome::Followed { slot, .. } => self.connections.get(slot),
            crate::trace::connections::Outcome::Untracked(_) => None,
        };
        book.handle_packet(packet.at, &outcome, connection, packet.payload_bytes.into());
        if let Some(url) = url_of(packet.payload) {
            self.urls.add(url.host, url.path);
        }
        if self.book.entries.len() >= BATCH_CHANGES {
            self.hand_out();
        }
    }

    /// A URL of a log.
    pub fn handle_url(&mut self, url: &[u8]) {
        self.urls.add(url, &[]);
    }

    fn between_failovers(&self) -> Duration {
        Duration::from_secs_f64(self.config.failover_every_s)
    }

    fn hand_out(&mut self) {
        let room = Vec::with_capacity(BATCH_CHANGES + BATCH_CHANGES / 4);
        self.workers.hand_out(std::mem::replace(&mut self.book.entries, room));
    }

    fn fail_over(&mut self, at: Instant) {
        self.book.turn_to(at);
        let probes = self.book.probes(at, self.config.probes);
        self.book.entries.push(Entry::Failover(Arc::new(probes)));
        self.failovers += 1;
        self.hand_out();
    }

    /// The traffic is over: the primary fails a last time. `trace` has the counts of what was skipped, if there was
    /// one.
    #[must_use]
    pub fn finish(mut self, trace: Option<&Trace>) -> Outcome {
        if self.began.is_some() {
            let now = self.book.now();
            self.fail_over(now);
        }
        let (book, connections) = (&mut self.book, &mut self.connections);
        let untracked = *connections.untracked();
        connections.finish(&mut |event| book.handle_event(event));
        book.hosts.finish(book.now());
        let duration = self.began.map_or(Duration::ZERO, |began| book.now().saturating_since(began));
        let lanes = self.workers.finish();
        let found = result::Found {
            config: &self.config,
            book: &self.book,
            lanes,
            began: self.began,
            duration,
            busy: self.busy,
            failovers: self.failovers,
        };
        let mut outcome = found.outcome();
        outcome.not_studied = result::not_studied(trace, &untracked);
        outcome.urls = self.urls.finish();
        outcome.advice = advice::advice(&outcome);
        outcome.beside_the_paper = seed::compare(&self.config, &outcome);
        outcome
    }
}
