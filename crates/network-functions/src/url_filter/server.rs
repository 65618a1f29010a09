//! Categories from a server, with a local cache (\[MLCBF\] section 4.4.2). Time and bytes are arguments; the process has the sockets.
//!
//! ```text
//!   first request of a host ─► cache ─┬─► known: decided
//!                                     └─► question ─► request ─► server ─► response ─► cache
//!                                            └─► meanwhile: on_unknown, at most for the timeout, then on_failure
//! ```
//!
//! **Limits.** [`QUESTIONS_MAX`] questions wait or are in flight. One request with up to [`protocol::TARGETS_MAX`] of them is in flight at a time.
//! A host that finds no room is treated as `on_failure` states.
//!
//! **A server that fails.** All questions are given up, and no more are asked until a pause is over. The pause doubles with each failure in a row, up to
//! [`PAUSE_MAX`]. The next question after the pause tries the server again.
//!
//! **Old answers** are asked for again when they are used, and used meanwhile. An answer that differs from the one in the cache shows a false
//! positive of the filter, or that the server has changed its mind ([`Counters::contradicted`]).
//!
//! **Peers.** Answers are shared with the other nodes ([`sharing`]).

pub mod cache;
pub mod protocol;
pub mod sharing;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

pub use filters::ShapeError;
use flow::{Instant, NodeId};

use self::cache::{Cached, CategoryCache};
use self::protocol::{ResponseError, Scope, TARGETS_MAX};
use self::sharing::{SharedAnswer, Sharing};
use super::path::NormalPath;
use crate::inspect::HostName;
use crate::shared_values::{SharedValues, SharingError};

/// Questions that wait or are in flight, at most.
pub const QUESTIONS_MAX: usize = 4096;
/// The pause after the first failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause after failures.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What is done about a connection whose host is being asked about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnUnknown {
    /// Its request waits.
    #[default]
    Wait,
    /// It continues.
    Pass,
    /// It is refused.
    Block,
}

impl OnUnknown {
    /// All choices, with their names.
    pub const ALL: [(&'static str, Self); 3] = [("wait", Self::Wait), ("pass", Self::Pass), ("block", Self::Block)];
}

/// What is done about a connection for whose host no answer can be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnFailure {
    /// It continues.
    #[default]
    Pass,
    /// It is refused.
    Block,
}

impl OnFailure {
    /// Both choices, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("pass", Self::Pass), ("block", Self::Block)];
}

/// A server as configured.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ServerConfig {
    /// Names of categories that it answers. Others count as none.
    pub categories: Vec<String>,
    /// What is done until it has answered.
    pub on_unknown: OnUnknown,
    /// What is done if it does not answer.
    pub on_failure: OnFailure,
    /// How long a connection waits, and a request takes.
    pub timeout: Duration,
    /// Answers that are cached.
    pub cache_entries: usize,
    /// How long they are used.
    pub cache_lifetime: Duration,
}

/// What is known of a host, or what is to be done about its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// It is known.
    Known {
        /// The category: 0 for none, else the number of a name of [`ServerConfig::categories`], from 1.
        category: u8,
        /// Other paths of the host may have other categories.
        has_paths: bool,
    },
    /// It has been asked about; the request waits until then.
    Wait(Instant),
    /// It continues, although nothing is known.
    Pass,
    /// It is refused, although nothing is known.
    Block,
}

/// Where the URL filter finds categories. All workers share it, and what it knows is shared with other nodes.
pub trait Categories: SharedValues + fmt::Debug + Send + Sync {
    /// What is known of a host, or of a path of it. It is asked about otherwise.
    fn look_up(&self, now: Instant, host: &HostName, path: Option<&NormalPath>) -> Lookup;
}

/// What a client has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Look-ups that the cache could answer.
    pub hits: u64,
    /// Look-ups that it could not.
    pub misses: u64,
    /// Questions that were sent.
    pub asked: u64,
    /// Of those, questions about old answers.
    pub refreshed: u64,
    /// Answers that differ from those in the cache: false positives of the filter, and changes.
    pub contradicted: u64,
    /// Answers with a category that is not configured.
    pub unknown_categories: u64,
    /// Look-ups that were decided without an answer: by `on_failure`.
    pub unanswered: u64,
    /// Look-ups that found no room for a question. They are `unanswered`, too.
    pub no_room: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Answers whose lifetime is over.
    pub expired: u64,
    /// Answers that were removed to make room.
    pub evicted: u64,
    /// Answers that peers have sent.
    pub received: u64,
}

/// What is known of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// What it has counted.
    pub counters: Counters,
    /// Answers in the cache.
    pub entries: usize,
    /// Answers that fit.
    pub entries_max: usize,
    /// Memory of the cache, and of what is kept for peers, in bytes.
    pub memory_bytes: usize,
    /// Questions that wait or are in flight.
    pub questions: usize,
    /// Whether the last request failed.
    pub is_down: bool,
}

/// A question that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Question {
    asked_at: Instant,
    /// The answer that is in the cache, if it is asked about again.
    refreshes: Option<Cached>,
}

/// The client of a server: cache, questions, and what to do about failures.
#[derive(Debug)]
pub struct CategoryClient {
    config: ServerConfig,
    cache: CategoryCache,
    sharing: Sharing,
    /// By target.
    questions: BTreeMap<String, Question>,
    /// Targets that are to be sent, oldest first.
    queue: VecDeque<String>,
    /// Targets of the request in flight.
    in_flight: Vec<String>,
    /// The pause after the last failure; zero if the last request succeeded.
    pause: Duration,
    /// When the pause is over.
    retry_at: Instant,
    counters: Counters,
}

impl CategoryClient {
    /// A client with an empty cache, whose hash has this key. Peers know it by the number `run`, which no other client had.
    ///
    /// # Errors
    /// The cache's size is invalid.
    pub fn new(config: ServerConfig, key: [u64; 2], run: u64) -> Result<Self, ShapeError> {
        Ok(Self {
            cache: CategoryCache::new(config.cache_entries, config.cache_lifetime, key)?,
            sharing: Sharing::new(run),
            config,
            questions: BTreeMap::new(),
            queue: VecDeque::new(),
            in_flight: Vec::new(),
            pause: Duration::ZERO,
            retry_at: Instant::ZERO,
            counters: Counters::default(),
        })
    }

    /// As [`Categories::look_up`].
    pub fn look_up(&mut self, now: Instant, host: &HostName, path: Option<&NormalPath>) -> Lookup {
        self.cache.expire(now);
        // The root is the host itself.
        let path = path.filter(|path| !path.is_root());
        let mut target = protocol::target(host, None);
        let mut found = self.cache.look_up(self.cache.key(&target));
        let has_paths = found.is_some_and(|(cached, _)| cached.by_path);
        if path.is_some() && (has_paths || found.is_none()) {
            target = protocol::target(host, path);
            found = if has_paths { self.cache.look_up(self.cache.key(&target)) } else { None };
        }
        let Some((cached, is_old, category)) = found.and_then(|(cached, old)| Some((cached, old, cached.category?)))
        else {
            self.counters.misses += 1;
            return self.ask(now, target);
        };
        self.counters.hits += 1;
        if is_old && now >= self.retry_at && self.questions.len() < QUESTIONS_MAX {
            self.enqueue(now, target, Some(cached));
        }
        Lookup::Known { category, has_paths }
    }

    /// What is done about a target that is not in the cache.
    fn ask(&mut self, now: Instant, target: String) -> Lookup {
        let asked_at = match self.questions.get(&target) {
            Some(question) => question.asked_at,
            None if now < self.retry_at => return self.without_answer(),
            None if self.questions.len() >= QUESTIONS_MAX => {
                self.counters.no_room += 1;
                return self.without_answer();
            }
            None => {
                self.enqueue(now, target, None);
                now
            }
        };
        let until = asked_at + self.config.timeout;
        match self.config.on_unknown {
            OnUnknown::Pass => Lookup::Pass,
            OnUnknown::Block => Lookup::Block,
            OnUnknown::Wait if now < until => Lookup::Wait(until),
            OnUnknown::Wait => self.without_answer(),
        }
    }

    fn without_answer(&mut self) -> Lookup {
        self.counters.unanswered += 1;
        match self.config.on_failure {
            OnFailure::Pass => Lookup::Pass,
            OnFailure::Block => Lookup::Block,
        }
    }

    fn enqueue(&mut self, now: Instant, target: String, refreshes: Option<Cached>) {
        if !self.questions.contains_key(&target) {
            self.questions.insert(target.clone(), Question { asked_at: now, refreshes });
            self.queue.push_back(target);
        }
    }

    /// The targets of the next request. Empty if there is nothing to ask, or a request is in flight. A call of [`CategoryClient::handle_response`] or
    /// [`CategoryClient::handle_failure`] is to follow.
    pub fn poll_targets(&mut self) -> &[String] {
        if !self.in_flight.is_empty() {
            return &[];
        }
        let count = self.queue.len().min(TARGETS_MAX);
        self.in_flight = self.queue.drain(..count).collect();
        self.counters.asked += count as u64;
        let is_refreshed = |target: &&String| self.questions.get(*target).is_some_and(|it| it.refreshes.is_some());
        self.counters.refreshed += self.in_flight.iter().filter(is_refreshed).count() as u64;
        &self.in_flight
    }

    /// Whether [`CategoryClient::poll_targets`] has targets.
    #[must_use]
    pub fn has_targets(&self) -> bool {
        self.in_flight.is_empty() && !self.queue.is_empty()
    }

    /// The body of the response to the request in flight has come. True if the server was down before.
    ///
    /// # Errors
    /// It cannot be used; [`CategoryClient::handle_failure`] is to be called.
    pub fn handle_response(&mut self, now: Instant, body: &[u8]) -> Result<bool, ResponseError> {
        let answers = protocol::answers(body, self.in_flight.len())?;
        for (target, answer) in core::mem::take(&mut self.in_flight).iter().zip(answers) {
            let known = self.config.categories.iter().position(|name| name == answer.category);
            self.counters.unknown_categories += u64::from(known.is_none() && !answer.category.is_empty());
            let category = known.map_or(0, |index| index as u8 + 1);
            let question = self.questions.remove(target);
            let before = question.and_then(|question| question.refreshes).and_then(|before| before.category);
            self.counters.contradicted += u64::from(before.is_some_and(|before| before != category));
            self.enter(now, target, Cached { category: Some(category), by_path: false }, answer.scope, Duration::ZERO);
            let (category, scope) = (answer.category.into(), answer.scope);
            let shared = SharedAnswer { target: target.clone(), category, scope, age: Duration::ZERO };
            self.sharing.note(now, shared, None);
        }
        let was_down = !self.pause.is_zero();
        (self.pause, self.retry_at) = (Duration::ZERO, Instant::ZERO);
        Ok(was_down)
    }

    fn enter(&mut self, now: Instant, target: &str, known: Cached, scope: Scope, age: Duration) {
        let host = target.split('/').next().unwrap_or(target);
        let of_host = self.cache.key(host);
        if scope == Scope::Host {
            self.cache.insert_aged(now, of_host, known, age);
        } else if host.len() == target.len() {
            self.cache.insert_aged(now, of_host, Cached { by_path: true, ..known }, age);
        } else {
            let of_whole = self.cache.look_up(of_host).and_then(|(cached, _)| cached.category);
            self.cache.insert_aged(now, of_host, Cached { category: of_whole, by_path: true }, age);
            self.cache.insert_aged(now, self.cache.key(target), known, age);
        }
    }

    /// The number by which peers know what it shares.
    #[must_use]
    pub const fn sharing_run(&self) -> u64 {
        self.sharing.run()
    }

    /// As [`SharedValues::handle`]. Answers that are known, or whose lifetime is over, change nothing.
    ///
    /// # Errors
    /// The datagram cannot be used.
    pub fn handle_shared(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), SharingError> {
        self.cache.expire(now);
        for answer in self.sharing.handle(now, from, datagram)? {
            let known = self.config.categories.iter().position(|name| *name == answer.category);
            let is_fresh = self.cache.look_up(self.cache.key(&answer.target)).is_some_and(|(_, is_old)| !is_old);
            if is_fresh || answer.age >= self.config.cache_lifetime || (known.is_none() && !answer.category.is_empty())
            {
                continue;
            }
            let category = Some(known.map_or(0, |index| index as u8 + 1));
            self.enter(now, &answer.target, Cached { category, by_path: false }, answer.scope, answer.age);
            self.counters.received += 1;
            self.sharing.note(now, answer, Some(from));
        }
        Ok(())
    }

    /// As [`SharedValues::poll`].
    pub fn poll_shared(&mut self, now: Instant, to: (NodeId, u64), out: &mut Vec<u8>) -> bool {
        self.sharing.poll(now, to, out)
    }

    /// The request in flight failed. All questions are given up. True if the server was not down before.
    pub fn handle_failure(&mut self, now: Instant) -> bool {
        self.questions.clear();
        self.queue.clear();
        self.in_flight.clear();
        self.counters.failures += 1;
        let was_up = self.pause.is_zero();
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.retry_at = now + self.pause;
        was_up
    }

    /// Removes answers whose lifetime is over. To be called now and then, so that they do not stay while nothing is looked up.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cache.expire(now);
        self.sharing.expire(now, self.config.cache_lifetime);
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// What is known of it.
    #[must_use]
    pub fn view(&self) -> View {
        let (expired, evicted) = (self.cache.expired, self.cache.evicted);
        View {
            counters: Counters { expired, evicted, ..self.counters },
            entries: self.cache.len(),
            entries_max: self.config.cache_entries,
            memory_bytes: self.cache.memory_bytes() + self.sharing.bytes(),
            questions: self.questions.len(),
            is_down: !self.pause.is_zero(),
        }
    }
}
