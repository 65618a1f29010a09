//! The rules of the SYN proxy with what changes while packets flow: rates, numbers of half-open connections, counters.
//!
//! One value serves all workers of a node, without a lock.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use flow::wire::tcp::WINDOW_SCALE_MAX;
use flow::{Instant, Tuple, ip_protocol};

use crate::address::{Prefix, from_tuple_bytes};
use crate::function::Taking;
use crate::port_range::PortRange;
use crate::syn_cookie::{COOKIE_LIFETIME_MS_MAX, CookieKeys};
use crate::unix_clock::UnixClock;

/// Rules at most.
pub const RULES_MAX: usize = 64;
/// The length of the window in which SYNs are counted.
const WINDOW_NS: u64 = 1_000_000_000;
/// The bits of a rule's identifier.
const ID_MASK: u32 = 0xfff;

/// When a rule answers in place of servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// Never. Connections that match the rule match no later one.
    #[default]
    Off,
    /// While it is attacked.
    Auto(Thresholds),
    /// Always.
    Always,
}

/// When a rule counts as attacked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Thresholds {
    /// SYNs in a second of all workers. `None`: they do not count.
    pub syns_per_s: Option<u32>,
    /// Connections in the table whose client has not acknowledged the server's SYN/ACK. `None`: they do not count.
    pub half_open: Option<u32>,
    /// How long it goes on after the last second with at least half of that.
    pub hold: Duration,
}

/// What is announced to clients for the servers, before these have been asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Offered {
    /// The maximum segment size for IPv4, in bytes. For IPv6 20 less.
    pub segment_size_bytes: u16,
    /// The shift of the servers' windows; `None`: windows are not scaled.
    pub window_scale: Option<u8>,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Timestamps. Without them neither window scaling nor selective acknowledgements are offered.
    pub timestamps: bool,
}

impl Default for Offered {
    /// What servers of today support over Ethernet.
    fn default() -> Self {
        Self { segment_size_bytes: 1460, window_scale: Some(7), sack: true, timestamps: true }
    }
}

/// A rule as configured.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RuleConfig {
    /// Its name in status, metrics and events.
    pub name: String,
    /// The destinations of connections, as their clients know them; empty: all.
    pub destinations: Vec<Prefix>,
    /// The destination ports, as clients know them; empty: all.
    pub ports: Vec<PortRange>,
    /// When it answers in place of servers.
    pub mode: Mode,
    /// What it announces for them.
    pub offered: Offered,
}

impl RuleConfig {
    fn matches(&self, tuple: &Tuple) -> bool {
        let destination: IpAddr = from_tuple_bytes(tuple.destination, tuple.family());
        let is_within = |prefix: &Prefix| prefix.contains(&destination);
        tuple.protocol == ip_protocol::TCP
            && (self.ports.is_empty() || self.ports.iter().any(|range| range.contains(tuple.destination_port)))
            && (self.destinations.is_empty() || self.destinations.iter().any(is_within))
    }
}

/// The identifier of a rule in connections' states, from its name: the same on all nodes.
#[must_use]
pub fn rule_id(name: &str) -> u16 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ((hash ^ hash >> 12 ^ hash >> 24) & ID_MASK) as u16
}

/// A mistake in the rules.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RulesError {
    /// There are too many.
    #[error("{0} rules of the SYN proxy are too many: it takes {RULES_MAX}")]
    TooMany(usize),
    /// Two rules cannot be distinguished.
    #[error("the names of the SYN proxy's rules {0:?} and {1:?} have the same identifier: rename one of them")]
    SameIdentifier(String, String),
}

/// What is counted of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counter {
    Answered,
    Accepted,
    Invalid,
    Expired,
    Resets,
    Opened,
    Refused,
    Unanswered,
    Mismatched,
}

const COUNTERS: usize = 9;

/// What changes of a rule while packets flow. It stays the same value across reloads.
#[derive(Debug, Default)]
struct Live {
    /// The number of the second in which `syns` are counted.
    window: AtomicU64,
    syns: AtomicU32,
    /// The SYNs of the last whole second.
    rate: AtomicU32,
    /// Until when the rule is active, in nanoseconds of [`Instant`].
    active_until_ns: AtomicU64,
    activations: AtomicU64,
    half_open: AtomicU32,
    counters: [AtomicU64; COUNTERS],
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    pub(super) id: u16,
    pub(super) config: RuleConfig,
    live: Arc<Live>,
}

/// What is known of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// When it answers in place of servers.
    pub mode: Mode,
    /// It answers in place of servers now.
    pub is_active: bool,
    /// How often it became active because it was attacked.
    pub activations: u64,
    /// SYNs in the last whole second.
    pub syns_per_s: u32,
    /// Half-open connections in the table, with replicas; counted where they are a threshold.
    pub half_open: u32,
    /// SYN/ACKs with a cookie that were sent.
    pub answered: u64,
    /// Cookies that were accepted.
    pub accepted: u64,
    /// Segments with an invalid cookie.
    pub invalid: u64,
    /// Segments with an expired cookie.
    pub expired: u64,
    /// Resets of no connection.
    pub resets: u64,
    /// Servers that answered.
    pub opened: u64,
    /// Servers that refused.
    pub refused: u64,
    /// Servers that did not answer.
    pub unanswered: u64,
    /// Servers that lack an option that the client was offered.
    pub mismatched: u64,
}

impl Rule {
    pub(super) fn count(&self, counter: Counter) {
        self.live.counters[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the rule answers a SYN. The SYN is counted, unless this is a rehearsal.
    pub(super) fn answers(&self, now: Instant, taking: Option<Taking>) -> bool {
        let syns = || taking.map_or_else(|| self.syns_with_one_more(now), |taking| self.count_syn(now, taking));
        match &self.config.mode {
            Mode::Off => false,
            Mode::Always => {
                syns();
                true
            }
            Mode::Auto(thresholds) => {
                let was_active = self.is_active(now);
                let syns = syns();
                // An attack goes on at half of what began it.
                let divisor = if was_active { 2 } else { 1 };
                let is_flooded = thresholds.syns_per_s.is_some_and(|limit| syns >= (limit / divisor).max(1));
                let half_open = self.live.half_open.load(Ordering::Relaxed);
                let is_backlogged = thresholds.half_open.is_some_and(|limit| half_open >= (limit / divisor).max(1));
                let is_attacked = is_flooded || is_backlogged;
                if let Some(taking) = taking.filter(|_| is_attacked) {
                    self.activate(now, thresholds.hold, was_active, taking);
                }
                is_attacked || was_active
            }
        }
    }

    fn activate(&self, now: Instant, hold: Duration, was_active: bool, _: Taking) {
        let until = (now + hold).as_nanos();
        self.live.active_until_ns.fetch_max(until, Ordering::Relaxed);
        if !was_active {
            self.live.activations.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a SYN in its second; returns the number within the second that ends now. A worker that counts while another begins the next
    /// second may count into either.
    fn count_syn(&self, now: Instant, _: Taking) -> u32 {
        let window = now.as_nanos() / WINDOW_NS;
        let counted = self.live.window.load(Ordering::Relaxed);
        if counted != window
            && self.live.window.compare_exchange(counted, window, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let syns = self.live.syns.swap(0, Ordering::Relaxed);
            self.live.rate.store(if counted + 1 == window { syns } else { 0 }, Ordering::Relaxed);
        }
        let syns = self.live.syns.fetch_add(1, Ordering::Relaxed) + 1;
        within_a_second(now, syns, self.live.rate.load(Ordering::Relaxed))
    }

    /// As [`Rule::count_syn`] would return, without counting.
    fn syns_with_one_more(&self, now: Instant) -> u32 {
        let (window, counted) = (now.as_nanos() / WINDOW_NS, self.live.window.load(Ordering::Relaxed));
        let syns = self.live.syns.load(Ordering::Relaxed);
        let (syns, before) = match window.wrapping_sub(counted) {
            0 => (syns, self.live.rate.load(Ordering::Relaxed)),
            1 => (0, syns),
            _ => (0, 0),
        };
        within_a_second(now, syns + 1, before)
    }

    /// Whether it answers in place of servers now.
    #[must_use]
    pub fn is_active(&self, now: Instant) -> bool {
        match self.config.mode {
            Mode::Off => false,
            Mode::Auto(_) => now.as_nanos() < self.live.active_until_ns.load(Ordering::Relaxed),
            Mode::Always => true,
        }
    }

    /// Whether cookies of it may be on their way.
    pub(super) fn is_guarding(&self, now: Instant) -> bool {
        let until = self.live.active_until_ns.load(Ordering::Relaxed);
        self.is_active(now) || (until != 0 && now.as_nanos() < until.saturating_add(COOKIE_LIFETIME_MS_MAX * 1_000_000))
    }

    /// Whether half-open connections are counted.
    pub(super) fn counts_half_open(&self) -> bool {
        matches!(&self.config.mode, Mode::Auto(thresholds) if thresholds.half_open.is_some())
    }

    pub(super) fn count_half_open(&self, is_one_more: bool) {
        let half_open = &self.live.half_open;
        if is_one_more {
            half_open.fetch_add(1, Ordering::Relaxed);
        } else {
            // Those that entered before a reload named the rule are not counted.
            let _ = half_open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        }
    }

    /// The window scale that it announces to clients.
    pub(super) fn offered_scale(&self) -> Option<u8> {
        self.config.offered.window_scale.map(|scale| scale.min(WINDOW_SCALE_MAX))
    }

    /// What is known of it.
    #[must_use]
    pub fn view(&self, now: Instant) -> RuleView {
        let counter = |counter: Counter| self.live.counters[counter as usize].load(Ordering::Relaxed);
        let window = now.as_nanos() / WINDOW_NS;
        let counted = self.live.window.load(Ordering::Relaxed);
        let syns_per_s = match window.saturating_sub(counted) {
            0 => self.live.rate.load(Ordering::Relaxed),
            1 => self.live.syns.load(Ordering::Relaxed),
            _ => 0,
        };
        RuleView {
            name: self.config.name.clone(),
            mode: self.config.mode,
            is_active: self.is_active(now),
            activations: self.live.activations.load(Ordering::Relaxed),
            syns_per_s,
            half_open: self.live.half_open.load(Ordering::Relaxed),
            answered: counter(Counter::Answered),
            accepted: counter(Counter::Accepted),
            invalid: counter(Counter::Invalid),
            expired: counter(Counter::Expired),
            resets: counter(Counter::Resets),
            opened: counter(Counter::Opened),
            refused: counter(Counter::Refused),
            unanswered: counter(Counter::Unanswered),
            mismatched: counter(Counter::Mismatched),
        }
    }
}

/// SYNs within the second that ends now. Those of the second before are taken as evenly spread over it: a flood is as many SYNs whether or
/// not it began in the midst of a second.
fn within_a_second(now: Instant, syns: u32, before: u32) -> u32 {
    let elapsed_ns = now.as_nanos() % WINDOW_NS;
    syns.saturating_add((u64::from(before) * (WINDOW_NS - elapsed_ns) / WINDOW_NS) as u32)
}

/// The rules, the keys and the time of a node.
#[derive(Debug)]
pub struct SynProxyRules {
    rules: Vec<Rule>,
    pub(super) keys: CookieKeys,
    clock: UnixClock,
}

impl SynProxyRules {
    /// Rules with these keys. Activity and counters of rules with the same names continue from `previous`. Set the time before use.
    ///
    /// # Errors
    /// [`RulesError`].
    pub fn new(configs: &[RuleConfig], keys: CookieKeys, previous: Option<&Self>) -> Result<Self, RulesError> {
        if configs.len() > RULES_MAX {
            return Err(RulesError::TooMany(configs.len()));
        }
        let mut rules: Vec<Rule> = Vec::with_capacity(configs.len());
        for config in configs {
            let id = rule_id(&config.name);
            if let Some(twin) = rules.iter().find(|rule| rule.id == id) {
                return Err(RulesError::SameIdentifier(twin.config.name.clone(), config.name.clone()));
            }
            let before =
                previous.and_then(|previous| previous.rules.iter().find(|rule| rule.config.name == config.name));
            let live = before.map(|rule| Arc::clone(&rule.live)).unwrap_or_default();
            rules.push(Rule { id, config: config.clone(), live });
        }
        Ok(Self { rules, keys, clock: UnixClock::continued(previous.map(|previous| &previous.clock)) })
    }

    /// The time since 1970 at `now`. To be repeated from time to time, as the system's clock may be set.
    pub fn set_unix_time(&self, now: Instant, unix_time: Duration) {
        self.clock.set(now, unix_time);
    }

    pub(super) fn unix_ms(&self, now: Instant) -> u64 {
        self.clock.unix_ms(now)
    }

    /// The first rule that a connection matches.
    pub(super) fn find(&self, tuple: &Tuple) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.config.matches(tuple))
    }

    pub(super) fn by_id(&self, id: u16) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.id == id)
    }

    /// The rules in their order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
