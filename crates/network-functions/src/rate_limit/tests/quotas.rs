//! Quotas by scenario.

use alloc::sync::Arc;
use core::time::Duration;
use std::vec;
use std::vec::Vec;

use flow::conntrack::ProtocolState;
use flow::{Connection, Direction, DropReason, Instant, NodeId};
use proptest::prelude::*;

use super::super::*;
use super::{KEY, PACKET_BYTES, from, rule};
use crate::function::{FlowState, Verdict};
use crate::testing::{Gateway, INSIDE};

const HOUR: Duration = Duration::from_secs(3600);
/// The beginning of an hour.
const UNIX_TIME: Duration = Duration::from_secs(1_800_000_000);
const BEYOND: Verdict = Verdict::Drop(DropReason::QuotaExceeded);
const PACKETS: u64 = 640;
/// The number of the period at [`UNIX_TIME`].
const PERIOD: u64 = UNIX_TIME.as_secs() / HOUR.as_secs();

fn quota(per: Per) -> LimitConfig {
    let quota = Quota { unit: Unit::Packets, amount: PACKETS, period: HOUR };
    LimitConfig { per, quota: Some(quota), ..LimitConfig::default() }
}

/// A node with a quota.
fn node(limit: LimitConfig) -> Gateway {
    node_with_clock(limit).0
}

/// A node with a quota, and its rules, whose clock can be set.
fn node_with_clock(limit: LimitConfig) -> (Gateway, Arc<RateLimitRules>) {
    let rules = Arc::new(RateLimitRules::new(&[rule(vec![limit])], KEY, None).unwrap());
    rules.set_unix_time(Instant::ZERO, UNIX_TIME);
    (Gateway::with(RateLimit::new(Arc::clone(&rules))), rules)
}

/// Sends packets; returns how many pass.
fn send(gateway: &mut Gateway, connection: &mut Connection, count: u64) -> u64 {
    let passes = |_: &u64| gateway.pass(connection, INSIDE, Direction::Original).0.verdict == Verdict::Forward;
    (0..count).filter(passes).count() as u64
}

/// A peer replicates a connection of the source, in whose period it has counted this amount.
fn replicate_from_peer(gateway: &mut Gateway, source: &str, period: u64, used: u64) {
    let mut replica = Connection::new(from(source), NodeId(1), ProtocolState::default(), Instant::FAR_FUTURE);
    let mut state = RateLimitState::default();
    state.assign(1, rule_id("clients"));
    state.set_used(period as u8, used);
    let (mut attributes, mut of_function) = (Vec::new(), Vec::new());
    state.encode(&mut attributes);
    flow::wire::tlv::put(&mut of_function, RateLimitState::ATTRIBUTE, &attributes);
    gateway.chain.decode_states(&mut replica, &of_function).unwrap();
    gateway.chain.note_entered(&replica);
}

/// A connection of an active node whose standby follows.
struct Cluster {
    active: Gateway,
    standby: Gateway,
    updates: usize,
    /// The connection as it was replicated last.
    replicated: Option<Connection>,
}

impl Cluster {
    fn new(limit: LimitConfig) -> Self {
        Self { active: node(limit), standby: node(limit), updates: 0, replicated: None }
    }

    fn replicate(&mut self, connection: &Connection) {
        let mut attributes = Vec::new();
        self.active.chain.encode_states(connection, &mut attributes);
        let mut replica = *connection;
        self.standby.chain.decode_states(&mut replica, &attributes).unwrap();
        self.standby.chain.note_entered(&replica);
        self.updates += 1;
        self.replicated = Some(replica);
    }

    fn begin(&mut self, source: &str) -> Connection {
        let connection = self.active.begin(INSIDE, from(source)).unwrap().connection;
        self.replicate(&connection);
        connection
    }

    /// Sends packets; returns how many pass.
    fn send(&mut self, connection: &mut Connection, count: u64) -> u64 {
        let mut passed = 0;
        for _ in 0..count {
            let (processed, _) = self.active.pass(connection, INSIDE, Direction::Original);
            assert!(matches!(processed.verdict, Verdict::Forward | BEYOND), "{processed:?}");
            passed += u64::from(processed.verdict == Verdict::Forward);
            if processed.states_changed {
                self.replicate(connection);
            }
        }
        passed
    }

    /// The active node dies; the standby has the connection as it was replicated last.
    fn fail_over(&mut self) -> Connection {
        core::mem::swap(&mut self.active, &mut self.standby);
        self.replicated.unwrap()
    }
}

#[test]
fn a_connection_has_its_amount_in_each_period() {
    let mut cluster = Cluster::new(quota(Per::Connection));
    let mut connection = cluster.begin("10.0.0.1");
    assert_eq!(cluster.send(&mut connection, 1000), PACKETS - 1, "the first packet counts");
    assert!(cluster.active.chain.needs_packets(&connection));
    let mut other = cluster.begin("10.0.0.1");
    assert_eq!(cluster.send(&mut other, 1000), PACKETS - 1, "another connection has its own");
    cluster.active.now = Instant::from_millis(3_600_000);
    assert_eq!(cluster.send(&mut connection, 1000), PACKETS);
}

#[test]
fn a_quota_of_bytes_counts_ip_packets_and_what_is_too_large_does_not_pass() {
    let bytes = Quota { unit: Unit::Bytes, amount: 10 * PACKET_BYTES + 5, period: HOUR };
    let mut cluster = Cluster::new(LimitConfig { quota: Some(bytes), ..quota(Per::Connection) });
    let mut connection = cluster.begin("10.0.0.1");
    assert_eq!(cluster.send(&mut connection, 100), 9);
}

#[test]
fn the_quota_of_a_connection_is_replicated_in_steps() {
    let mut cluster = Cluster::new(quota(Per::Connection));
    let mut connection = cluster.begin("10.0.0.1");
    let before = cluster.send(&mut connection, 330) + 1;
    let step = PACKETS / QUOTA_STEPS;
    assert!((33..=36).contains(&cluster.updates), "{} updates of 33 steps", cluster.updates);
    let mut connection = cluster.fail_over();
    let after = cluster.send(&mut connection, 1000);
    assert!(before + after >= PACKETS && before + after < PACKETS + step, "{before} and {after}");
}

#[test]
fn the_quota_of_a_source_continues_on_another_node_and_loses_less_than_a_step() {
    let step = PACKETS / QUOTA_STEPS;
    for sent in [5, 100, 333, 620] {
        let mut cluster = Cluster::new(quota(Per::Source));
        let (mut one, mut two) = (cluster.begin("10.0.0.1"), cluster.begin("10.0.0.1"));
        let before = cluster.send(&mut one, sent / 2) + cluster.send(&mut two, sent - sent / 2) + 2;
        // Connections that have ended count, too: only a new one goes on at the other node.
        core::mem::swap(&mut cluster.active, &mut cluster.standby);
        let mut three = cluster.begin("10.0.0.1");
        let after = cluster.send(&mut three, 1000) + 1;
        assert!(before + after >= PACKETS, "{before} and {after}: nothing counts twice");
        assert!(before + after <= PACKETS + step, "{before} and {after}: a failover loses less than a step");
        let mut other = cluster.begin("10.0.0.2");
        assert_eq!(cluster.send(&mut other, 1000), PACKETS - 1, "another source");
    }
}

#[test]
fn failing_over_and_back_counts_nothing_twice() {
    let step = PACKETS / QUOTA_STEPS;
    for per in [Per::Source, Per::Rule, Per::Connection] {
        let mut cluster = Cluster::new(quota(per));
        let mut connection = cluster.begin("10.0.0.1");
        let mut passed = 1;
        for _ in 0..6 {
            passed += cluster.send(&mut connection, 55);
            connection = cluster.fail_over();
        }
        passed += cluster.send(&mut connection, 1000);
        assert!(passed >= PACKETS && passed <= PACKETS + 6 * step, "{per:?}: {passed}");
    }
}

#[test]
fn a_reload_keeps_what_was_used() {
    for per in [Per::Source, Per::Connection] {
        let configs = [rule(vec![quota(per)])];
        let before = RateLimitRules::new(&configs, KEY, None).unwrap();
        before.set_unix_time(Instant::ZERO, UNIX_TIME);
        let before = Arc::new(before);
        let mut cluster = Cluster::new(quota(per));
        cluster.active = Gateway::with(RateLimit::new(Arc::clone(&before)));
        let mut connection = cluster.begin("10.0.0.1");
        assert_eq!(cluster.send(&mut connection, 500), 500);
        let first = RuleConfig {
            name: "other".into(),
            conditions: crate::rule_set::Conditions {
                sources: vec!["192.0.2.0/24".parse().unwrap()],
                ..Default::default()
            },
            limits: Vec::new(),
        };
        let after = RateLimitRules::new(&[first, configs[0].clone()], KEY, Some(&before)).unwrap();
        let builder = crate::chain::ChainBuilder::new().push(RateLimit::new(Arc::new(after)));
        cluster.active.chain = builder.build_within(cluster.active.chain.layout()).unwrap();
        assert_eq!(cluster.send(&mut connection, 500), PACKETS - 501, "{per:?}");
    }
}

#[test]
fn a_period_that_another_node_has_begun_first_is_not_mixed_with_the_last() {
    let (mut gateway, rules) = node_with_clock(quota(Per::Source));
    // Shortly before the end of a period, by this node's clock.
    rules.set_unix_time(Instant::ZERO, UNIX_TIME + HOUR - Duration::from_secs(1));
    let mut connection = gateway.begin(INSIDE, from("10.0.0.1")).unwrap().connection;
    assert_eq!(send(&mut gateway, &mut connection, 99), 99);
    replicate_from_peer(&mut gateway, "10.0.0.1", PERIOD + 1, 600);
    // A clock that is ahead does not displace it.
    replicate_from_peer(&mut gateway, "10.0.0.1", PERIOD + 20, 1);
    assert_eq!(send(&mut gateway, &mut connection, 1000), PACKETS - 100, "the last period is counted to its end");
    gateway.now = Instant::from_millis(2000);
    assert_eq!(send(&mut gateway, &mut connection, 1000), PACKETS - 600, "what the peer counted is known");
    gateway.now = Instant::from_millis(3_602_000);
    assert_eq!(send(&mut gateway, &mut connection, 1000), PACKETS, "once");
}

#[test]
fn a_peer_whose_clock_is_ahead_or_late_neither_stops_a_quota_nor_uses_it_up() {
    // Twenty hours are twenty periods; 256 of them look like none.
    for hours in [2, 20, 127, 128, 200, 255] {
        for per in [Per::Source, Per::Rule] {
            let mut gateway = node(quota(per));
            let mut connection = gateway.begin(INSIDE, from("10.0.0.1")).unwrap().connection;
            let mut passed = 1 + send(&mut gateway, &mut connection, 9);
            for _ in 0..10 {
                replicate_from_peer(&mut gateway, "10.0.0.1", PERIOD + hours, PACKETS);
                passed += send(&mut gateway, &mut connection, PACKETS);
            }
            assert_eq!(passed, PACKETS, "{per:?}, {hours} hours");
        }
    }
}

#[test]
fn an_own_clock_that_is_set_back_keeps_what_was_used_and_the_next_period_begins_anew() {
    for per in [Per::Source, Per::Rule, Per::Connection] {
        for hours in [1, 20] {
            let (mut gateway, rules) = node_with_clock(quota(per));
            let ahead = HOUR * hours;
            rules.set_unix_time(Instant::ZERO, UNIX_TIME + ahead);
            let mut connection = gateway.begin(INSIDE, from("10.0.0.1")).unwrap().connection;
            assert_eq!(send(&mut gateway, &mut connection, 500), 500);
            rules.set_unix_time(Instant::ZERO, UNIX_TIME);
            assert_eq!(send(&mut gateway, &mut connection, 1000), PACKETS - 501, "{per:?}, {hours} h: kept");
            assert_eq!(send(&mut gateway, &mut connection, 1000), 0, "{per:?}, {hours} h: used up");
            gateway.now = Instant::from_millis(3_600_000);
            assert_eq!(send(&mut gateway, &mut connection, 1000), PACKETS, "{per:?}, {hours} h: the next period");
            // Set back once more when nothing is left: what is refused begins the period, too.
            rules.set_unix_time(Instant::from_millis(3_600_000), UNIX_TIME);
            assert_eq!(send(&mut gateway, &mut connection, 1000), 0, "{per:?}, {hours} h: kept");
            gateway.now = Instant::from_millis(7_200_000);
            assert_eq!(send(&mut gateway, &mut connection, 1000), PACKETS, "{per:?}, {hours} h: the period after it");
        }
    }
}

proptest! {
    /// Whatever clocks do, a node forwards at most one amount for each of its periods and each step of its clock, and its quota never
    /// stops: a source that waits for a further period is served.
    #[test]
    fn a_quota_is_kept_and_goes_on_whatever_clocks_do(
        steps in prop::collection::vec((0_u64..4, 0_i64..60, 0_u64..PACKETS + 1, 0_u64..2 * PACKETS), 1..40),
    ) {
        let (mut gateway, rules) = node_with_clock(quota(Per::Rule));
        let mut connection = gateway.begin(INSIDE, from("10.0.0.1")).unwrap().connection;
        let (mut hour, mut passed, mut beginnings) = (0, 1, 1);
        for (kind, distance, used, sent) in steps {
            let distance = distance - 30;
            match kind {
                0 => replicate_from_peer(&mut gateway, "10.0.0.1", PERIOD.saturating_add_signed(hour + distance), used),
                1 => hour += distance,
                2 => hour += 1,
                _ => {}
            }
            beginnings += u64::from((kind == 1 && distance != 0) || kind == 2);
            let unix_time = Duration::from_secs(UNIX_TIME.as_secs().saturating_add_signed(3600 * hour));
            rules.set_unix_time(Instant::ZERO, unix_time);
            passed += send(&mut gateway, &mut connection, sent);
            prop_assert!(passed <= beginnings * PACKETS, "{passed} in {beginnings} periods");
        }
        // A packet in the last period, whether or not it passes.
        send(&mut gateway, &mut connection, 1);
        // What is known of one further period may be a peer's; it is not of every one.
        let in_a_further_period = |_| {
            hour += 1;
            let unix_time = Duration::from_secs(UNIX_TIME.as_secs().saturating_add_signed(3600 * hour));
            rules.set_unix_time(Instant::ZERO, unix_time);
            send(&mut gateway, &mut connection, 2 * PACKETS)
        };
        let passed: Vec<u64> = (0..3).map(in_a_further_period).collect();
        prop_assert_eq!(passed.iter().max(), Some(&PACKETS), "{:?}", passed);
    }
}

#[test]
fn rules_with_unsound_quotas_are_refused() {
    let rate = Some(Rate { per_s: 1, burst: 1 });
    for limits in [
        vec![quota(Per::Source), quota(Per::Rule)],
        vec![quota(Per::Class)],
        vec![LimitConfig { packets: rate, ..quota(Per::Connection) }],
        vec![LimitConfig { per: Per::Connection, ..LimitConfig::default() }],
    ] {
        let error = RateLimitRules::new(&[rule(limits)], KEY, None).unwrap_err();
        assert_eq!(error, RulesError::Quotas("clients".into()));
    }
}

#[test]
fn a_source_that_has_used_much_is_not_evicted() {
    let mut cluster = Cluster::new(LimitConfig { sources_max: 8, ..quota(Per::Source) });
    let mut heavy = cluster.begin("10.0.0.1");
    assert_eq!(cluster.send(&mut heavy, 500), 500);
    for host in 0..200 {
        cluster.begin(&std::format!("10.0.1.{host}"));
    }
    assert_eq!(cluster.send(&mut heavy, 500), PACKETS - 501);
}

#[test]
fn what_is_used_of_a_rules_quota_and_who_exceeds_it_is_known() {
    let rules = Arc::new(RateLimitRules::new(&[rule(vec![quota(Per::Rule)])], KEY, None).unwrap());
    rules.set_unix_time(Instant::ZERO, UNIX_TIME);
    let mut gateway = Gateway::with(RateLimit::new(Arc::clone(&rules)));
    let view = || rules.views().next().unwrap().limits[0];
    let mut quiet = gateway.begin(INSIDE, from("10.0.0.1")).unwrap().connection;
    for _ in 0..99 {
        gateway.pass(&mut quiet, INSIDE, Direction::Original);
    }
    assert_eq!((view().used_of_quota, view().offenders), (Some(100), [None; OFFENDERS_MAX]));
    let mut loud = gateway.begin(INSIDE, from("10.0.0.66")).unwrap().connection;
    for _ in 0..1000 {
        gateway.pass(&mut loud, INSIDE, Direction::Original);
    }
    assert_eq!(view().used_of_quota, Some(PACKETS));
    let [Some(first), None, ..] = view().offenders else { panic!("one source: {:?}", view().offenders) };
    assert_eq!((first.source, first.times), ("10.0.0.66".parse().unwrap(), 461));
}
