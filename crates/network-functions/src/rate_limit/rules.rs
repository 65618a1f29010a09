//! The rules with what changes while packets flow: buckets and counters. One value serves all workers of a node, without a lock.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use flow::source_counts::SourcePrefixes;
use flow::wire::Transport;
use flow::{Direction, HashKey, Instant, PortId, Tuple};

use super::buckets::{Bucket, Buckets, Meter, Rate, Sources};
use super::offenders::{OFFENDERS_MAX, Offender, Offenders};
use super::quota::{Amount, Quota};
use super::state::RateLimitState;
use crate::class::Class;
use crate::function::Taking;
use crate::rule_set::{Conditions, RuleKey, RuleSet, RuleSetError};
use crate::unix_clock::UnixClock;

/// Rules at most.
pub const RULES_MAX: usize = 256;
/// Limits of a rule at most.
pub const LIMITS_PER_RULE_MAX: usize = 8;
/// Sources that a limit knows at most: bounds and default of [`LimitConfig::sources_max`].
pub const SOURCES_MIN: u32 = 64;
/// See [`SOURCES_MIN`].
pub const SOURCES_MAX: u32 = 1 << 20;
/// See [`SOURCES_MIN`].
pub const SOURCES_DEFAULT: u32 = 1 << 14;
/// Sources of all limits together at most: 192 MiB.
pub const SOURCES_TOTAL_MAX: u64 = 1 << 22;

/// What shares a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Per {
    /// All connections of the rule.
    #[default]
    Rule,
    /// The rule's connections from one source.
    Source,
    /// The rule's connections of one traffic class. Not for quotas.
    Class,
    /// One connection. Only for quotas.
    Connection,
}

/// What is done with packets beyond a limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Action {
    /// They are dropped.
    #[default]
    Drop,
    /// They are forwarded with this DSCP, 0 to 63.
    Mark(u8),
}

/// A limit as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitConfig {
    /// What shares a bucket.
    pub per: Per,
    /// The direction whose packets and bytes count; `None`: both.
    pub direction: Option<Direction>,
    /// Packets.
    pub packets: Option<Rate>,
    /// Bytes, from the IP header on.
    pub bytes: Option<Rate>,
    /// New connections. Those beyond are refused, whatever `action`.
    pub connections: Option<Rate>,
    /// An amount in a period. At most one limit of a rule has it.
    pub quota: Option<Quota>,
    /// What is done with packets beyond the limit.
    pub action: Action,
    /// What a source is, with [`Per::Source`].
    pub prefixes: SourcePrefixes,
    /// Sources in the table, with [`Per::Source`].
    pub sources_max: u32,
}

impl Default for LimitConfig {
    /// No limit at all.
    fn default() -> Self {
        Self {
            per: Per::Rule,
            direction: None,
            packets: None,
            bytes: None,
            connections: None,
            quota: None,
            action: Action::Drop,
            prefixes: SourcePrefixes::default(),
            sources_max: SOURCES_DEFAULT,
        }
    }
}

/// A rule as configured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleConfig {
    /// Its name in status and metrics.
    pub name: String,
    /// Conditions on the connection, as its client knows it. Ports of the node and ICMP types are not supported.
    pub conditions: Conditions,
    /// Limits in their order; none: the rule exempts connections from later rules.
    pub limits: Vec<LimitConfig>,
}

/// A mistake in the rules.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RulesError {
    /// There are too many.
    #[error("there are {0} rules, {RULES_MAX} are allowed: merge rules by listing prefixes and port ranges")]
    TooMany(usize),
    /// A rule has too many limits.
    #[error("rule {0:?} has more than {LIMITS_PER_RULE_MAX} limits: divide it")]
    TooManyLimits(String),
    /// A rule has several quotas, or a quota of a class, or a rate of a connection.
    #[error(
        "rule {0:?} may have one quota, of a connection, a source or the rule; a connection has no rates: divide the rule"
    )]
    Quotas(String),
    /// Two rules cannot be distinguished in connections' states.
    #[error("the names of the rules {0:?} and {1:?} have the same identifier: rename one of them")]
    SameIdentifier(String, String),
    /// The tables of sources are too large together.
    #[error("the limits have {0} sources together, {SOURCES_TOTAL_MAX} are allowed: lower sources_max")]
    TooManySources(u64),
    /// The conditions cannot be used.
    #[error(transparent)]
    Conditions(#[from] RuleSetError),
}

/// Of which connection, and when, tokens are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) now: Instant,
    unix_ms: u64,
    original: &'a Tuple,
    class: Class,
}

/// The buckets of a limit.
#[derive(Debug)]
enum Scope {
    /// It lies in connections' states.
    Connections,
    Rule(Box<Buckets>),
    Classes(Box<[Buckets; Class::COUNT]>),
    Sources(Sources),
}

/// What changes of a limit while packets flow. It stays the same value across reloads.
#[derive(Debug)]
struct Live {
    scope: Scope,
    /// What was beyond the limit.
    packets: AtomicU64,
    bytes: AtomicU64,
    connections: AtomicU64,
    offenders: Offenders,
}

impl Live {
    fn new(config: &LimitConfig, key: HashKey) -> Self {
        let scope = match config.per {
            Per::Connection => Scope::Connections,
            Per::Rule => Scope::Rule(Box::default()),
            Per::Class => Scope::Classes(Box::default()),
            Per::Source => Scope::Sources(Sources::new(key, config.prefixes, config.sources_max)),
        };
        let [packets, bytes, connections] = core::array::from_fn(|_| AtomicU64::new(0));
        Self { scope, packets, bytes, connections, offenders: Offenders::default() }
    }
}

/// A limit.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) config: LimitConfig,
    packets: Option<Meter>,
    bytes: Option<Meter>,
    connections: Option<Meter>,
    live: Arc<Live>,
}

impl Limit {
    fn new(config: LimitConfig, live: Arc<Live>) -> Self {
        let [packets, bytes, connections] =
            [config.packets, config.bytes, config.connections].map(|rate| rate.map(Meter::new));
        Self { config, packets, bytes, connections, live }
    }

    const fn needs_packets(&self) -> bool {
        self.packets.is_some() || self.bytes.is_some() || self.config.quota.is_some()
    }

    /// Whether packets of this direction count.
    pub(super) fn covers(&self, direction: Direction) -> bool {
        self.needs_packets() && self.config.direction.is_none_or(|only| only == direction)
    }

    fn buckets(&self, at: &Moment<'_>) -> Option<&Buckets> {
        let period = self.config.quota.map(|quota| quota.period(at.unix_ms));
        match &self.live.scope {
            Scope::Connections => None,
            Scope::Rule(buckets) => Some(buckets),
            Scope::Classes(classes) => Some(&classes[at.class.index()]),
            Scope::Sources(sources) => Some(sources.buckets(at.now, period, at.original)),
        }
    }

    /// Takes a token for a new connection. False if there is none. The connection's state gets what is used of a quota. In a rehearsal the
    /// token stays, and an unknown source remains unknown.
    pub(super) fn admits(&self, at: &Moment<'_>, state: &mut RateLimitState, taking: Option<Taking>) -> bool {
        if taking.is_none() {
            return self.would_admit(at);
        }
        let Some(buckets) = self.buckets(at) else { return true };
        if let Some(quota) = &self.config.quota {
            let period = quota.period(at.unix_ms);
            state.set_used(period as u8, buckets.usage.used_in(period));
        }
        let Some(meter) = &self.connections else { return true };
        let (bucket, now) = (&buckets.connections, at.now);
        let may = bucket.has_tokens(now, meter);
        if may {
            bucket.take(now, meter, 1);
        } else {
            self.live.connections.fetch_add(1, Ordering::Relaxed);
            self.live.offenders.note(at.original.source_ip());
        }
        may
    }

    fn would_admit(&self, at: &Moment<'_>) -> bool {
        let buckets = match &self.live.scope {
            Scope::Sources(sources) => sources.find(at.original),
            Scope::Connections | Scope::Rule(_) | Scope::Classes(_) => self.buckets(at),
        };
        let (Some(buckets), Some(meter)) = (buckets, &self.connections) else { return true };
        buckets.connections.has_tokens(at.now, meter)
    }

    /// Takes tokens, and of the quota, for a packet. False if there are none, or too little.
    pub(super) fn take(&self, at: &Moment<'_>, state: &mut RateLimitState, amount: Amount) -> bool {
        let may = self.take_tokens(at, state, amount);
        if !may {
            self.live.packets.fetch_add(amount.packets, Ordering::Relaxed);
            self.live.bytes.fetch_add(amount.bytes, Ordering::Relaxed);
            self.live.offenders.note(at.original.source_ip());
        }
        may
    }

    fn take_tokens(&self, at: &Moment<'_>, state: &mut RateLimitState, amount: Amount) -> bool {
        let Some(buckets) = self.buckets(at) else {
            return self.config.quota.is_none_or(|quota| quota.take_of_connection(state, at.unix_ms, amount));
        };
        let metered = [(&buckets.packets, &self.packets, amount.packets), (&buckets.bytes, &self.bytes, amount.bytes)];
        let has_tokens = |bucket: &Bucket, meter: &Option<Meter>| {
            meter.as_ref().is_none_or(|meter| bucket.has_tokens(at.now, meter))
        };
        if !metered.iter().all(|(bucket, meter, _)| has_tokens(bucket, meter)) {
            return false;
        }
        if let Some(quota) = &self.config.quota
            && !quota.take_of_shared(&buckets.usage, state, at.unix_ms, amount)
        {
            return false;
        }
        for (bucket, meter, amount) in metered {
            meter.iter().for_each(|meter| bucket.take(at.now, meter, amount));
        }
        true
    }

    /// Takes over what another node has counted of a quota that connections share.
    fn merge(&self, at: &Moment<'_>, state: &RateLimitState) {
        if let (Some(quota), Some(buckets)) = (&self.config.quota, self.buckets(at)) {
            quota.merge(&buckets.usage, state, at.unix_ms);
        }
    }

    /// What the rule's connections together have used of the quota in the present period.
    fn used_of_quota(&self, unix_ms: u64) -> Option<u64> {
        let Scope::Rule(buckets) = &self.live.scope else { return None };
        self.config.quota.map(|quota| buckets.usage.used_in(quota.period(unix_ms)))
    }

    fn view(&self, unix_ms: u64) -> LimitView {
        let (sources, sources_evicted) = match &self.live.scope {
            Scope::Sources(sources) => (sources.known(), sources.evicted()),
            Scope::Connections | Scope::Rule(_) | Scope::Classes(_) => (0, 0),
        };
        LimitView {
            config: self.config,
            packets: self.live.packets.load(Ordering::Relaxed),
            bytes: self.live.bytes.load(Ordering::Relaxed),
            connections: self.live.connections.load(Ordering::Relaxed),
            sources,
            sources_evicted,
            used_of_quota: self.used_of_quota(unix_ms),
            offenders: self.live.offenders.view(),
        }
    }
}

/// What is known of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitView {
    /// It as configured.
    pub config: LimitConfig,
    /// Packets beyond it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// New connections beyond it.
    pub connections: u64,
    /// Sources in the table, those with full buckets included.
    pub sources: u64,
    /// Sources that were evicted while their buckets were not full.
    pub sources_evicted: u64,
    /// What a rule's connections together have used of their quota in the present period; `None`: they have none.
    pub used_of_quota: Option<u64>,
    /// The sources that were beyond the limit most often.
    pub offenders: [Option<Offender>; OFFENDERS_MAX],
}

/// What is known of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// Its limits in their order.
    pub limits: Vec<LimitView>,
}

/// A rule.
#[derive(Debug)]
pub(super) struct Rule {
    name: String,
    pub(super) id: u16,
    pub(super) limits: Vec<Limit>,
}

impl Rule {
    pub(super) fn needs_packets(&self) -> bool {
        self.limits.iter().any(Limit::needs_packets)
    }

    /// The rule's quota.
    pub(super) fn quota(&self) -> Option<&Quota> {
        self.limits.iter().find_map(|limit| limit.config.quota.as_ref())
    }

    /// The buckets of the limit that takes the place of one of this rule: the first of the same kind that no other one has taken.
    fn continued(&self, config: &LimitConfig, taken: &[Limit]) -> Option<Arc<Live>> {
        let is_same = |limit: &&Limit| {
            let table = |config: &LimitConfig| {
                (config.per, config.prefixes, config.sources_max, config.quota.map(|q| (q.unit, q.period)))
            };
            table(&limit.config) == table(config) && !taken.iter().any(|other| Arc::ptr_eq(&other.live, &limit.live))
        };
        self.limits.iter().find(is_same).map(|limit| Arc::clone(&limit.live))
    }
}

/// The rules of a node.
#[derive(Debug)]
pub struct RateLimitRules {
    configs: Vec<RuleConfig>,
    rules: Vec<Rule>,
    /// The identifiers of the rules in order, and their indices.
    by_id: Vec<(u16, u16)>,
    set: RuleSet,
    clock: UnixClock,
    /// Distinguishes these rules from earlier ones, 1 to 255.
    generation: u8,
}

impl RateLimitRules {
    /// Rules, whose tables of sources are hashed by `key`. Buckets and counters of rules with the same names continue from `previous`, limit
    /// by limit, as far as what shares a bucket stays the same.
    ///
    /// # Errors
    /// [`RulesError`].
    pub fn new(configs: &[RuleConfig], key: HashKey, previous: Option<&Self>) -> Result<Self, RulesError> {
        check(configs)?;
        let by_id = identifiers(configs)?;
        let rule = |config: &RuleConfig| {
            let before = previous.and_then(|previous| previous.rules.iter().find(|rule| rule.name == config.name));
            let mut limits: Vec<Limit> = Vec::with_capacity(config.limits.len());
            for limit in &config.limits {
                let live = before.and_then(|before| before.continued(limit, &limits));
                limits.push(Limit::new(*limit, live.unwrap_or_else(|| Arc::new(Live::new(limit, key)))));
            }
            Rule { name: config.name.clone(), id: rule_id(&config.name), limits }
        };
        let generation = match previous {
            None => 1,
            Some(previous) if previous.configs == configs => previous.generation,
            Some(previous) => previous.generation.checked_add(1).unwrap_or(1),
        };
        Ok(Self {
            rules: configs.iter().map(rule).collect(),
            set: RuleSet::compile(configs.iter().map(|config| &config.conditions))?,
            configs: configs.to_vec(),
            by_id,
            clock: UnixClock::continued(previous.map(|previous| &previous.clock)),
            generation,
        })
    }

    pub(super) const fn generation(&self) -> u8 {
        self.generation
    }

    /// The time since 1970 at `now`. To be repeated from time to time, as the system's clock may be set.
    pub fn set_unix_time(&self, now: Instant, unix_time: Duration) {
        self.clock.set(now, unix_time);
    }

    pub(super) fn moment<'a>(&self, now: Instant, original: &'a Tuple, class: Class) -> Moment<'a> {
        Moment { now, unix_ms: self.clock.unix_ms(now), original, class }
    }

    /// The identifier of the first rule that a connection matches; 0 if none does.
    pub(super) fn find(&self, original: &Tuple, class: Class) -> u16 {
        let key = RuleKey::new(*original, &Transport::Other, PortId(0)).of_class(class);
        self.set.classify(&key).and_then(|index| self.rules.get(index.get())).map_or(0, |rule| rule.id)
    }

    pub(super) fn by_id(&self, id: u16) -> Option<&Rule> {
        if id == 0 {
            return None;
        }
        let place = self.by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.rules.get(usize::from(self.by_id[place].1))
    }

    /// Takes over what another node has counted, with a connection's state of that node. Quotas have no classes.
    pub(super) fn merge(&self, state: &RateLimitState, original: &Tuple) {
        if state.used() == 0 {
            return;
        }
        // Periods are distinguished by the time, for which the time of the last setting is exact enough.
        let at = Moment { now: Instant::ZERO, unix_ms: self.clock.last_unix_ms(), original, class: Class::Unknown };
        self.by_id(state.rule()).iter().for_each(|rule| rule.limits.iter().for_each(|limit| limit.merge(&at, state)));
    }

    /// Whether a rule limits packets or bytes.
    pub(super) fn need_packets(&self) -> bool {
        self.rules.iter().any(Rule::needs_packets)
    }

    /// Whether a rule has a condition on the class.
    pub(super) const fn have_classes(&self) -> bool {
        self.set.has_classes()
    }

    /// What is known of the rules, in their order.
    pub fn views(&self) -> impl Iterator<Item = RuleView> + '_ {
        let unix_ms = self.clock.last_unix_ms();
        self.rules.iter().map(move |rule| {
            let limits = rule.limits.iter().map(|limit| limit.view(unix_ms)).collect();
            RuleView { name: rule.name.clone(), limits }
        })
    }
}

/// The identifier of a rule in connections' states, from its name: the same on all nodes. Never 0.
#[must_use]
pub fn rule_id(name: &str) -> u16 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ((hash ^ hash >> 16) as u16).max(1)
}

/// The identifiers of all rules in order, with their indices.
fn identifiers(configs: &[RuleConfig]) -> Result<Vec<(u16, u16)>, RulesError> {
    let mut by_id: Vec<(u16, u16)> =
        configs.iter().zip(0..).map(|(rule, index)| (rule_id(&rule.name), index)).collect();
    by_id.sort_unstable();
    if let Some(twins) = by_id.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let name = |(_, index): (u16, u16)| configs[usize::from(index)].name.clone();
        return Err(RulesError::SameIdentifier(name(twins[0]), name(twins[1])));
    }
    Ok(by_id)
}

fn check(configs: &[RuleConfig]) -> Result<(), RulesError> {
    if configs.len() > RULES_MAX {
        return Err(RulesError::TooMany(configs.len()));
    }
    if let Some(rule) = configs.iter().find(|rule| rule.limits.len() > LIMITS_PER_RULE_MAX) {
        return Err(RulesError::TooManyLimits(rule.name.clone()));
    }
    if let Some(rule) = configs.iter().find(|rule| !has_sound_quota(&rule.limits)) {
        return Err(RulesError::Quotas(rule.name.clone()));
    }
    let limits = configs.iter().flat_map(|rule| &rule.limits);
    let sources = limits.filter(|limit| limit.per == Per::Source).map(|limit| u64::from(limit.sources_max)).sum();
    if sources > SOURCES_TOTAL_MAX { Err(RulesError::TooManySources(sources)) } else { Ok(()) }
}

/// At most one limit has a quota, which is not of a class; and a connection has no rates.
fn has_sound_quota(limits: &[LimitConfig]) -> bool {
    let has_rates = |limit: &LimitConfig| limit.packets.or(limit.bytes).or(limit.connections).is_some();
    limits.iter().filter(|limit| limit.quota.is_some()).count() <= 1
        && limits.iter().all(|limit| match limit.per {
            Per::Class => limit.quota.is_none(),
            Per::Connection => limit.quota.is_some() && !has_rates(limit),
            Per::Rule | Per::Source => true,
        })
}
