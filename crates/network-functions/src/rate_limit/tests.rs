//! Rate limits by scenario.

mod quotas;

use alloc::sync::Arc;
use core::time::Duration;
use std::vec;
use std::vec::Vec;

use flow::source_counts::SourcePrefixes;
use flow::{Direction, DropReason, HashKey, Instant, Tuple};
use proptest::prelude::*;

use super::buckets::Sources;
use super::*;
use crate::chain::ChainBuilder;
use crate::classifier::{Classifier, ClassifierConfig};
use crate::function::Verdict;
use crate::rule_set::Conditions;
use crate::testing::{Begun, Gateway, INSIDE, OUTSIDE, tcp, udp, with_packet};

const KEY: HashKey = HashKey([1, 2]);
const BEYOND: Verdict = Verdict::Drop(DropReason::RateLimited);
/// The packets of the test helper: an IPv4 header and a UDP header.
const PACKET_BYTES: u64 = 28;

fn rate(per_s: u64, burst: u64) -> Option<Rate> {
    Some(Rate { per_s, burst })
}

pub(super) fn rule(limits: Vec<LimitConfig>) -> RuleConfig {
    RuleConfig { name: "clients".into(), conditions: Conditions::default(), limits }
}

fn rules(configs: &[RuleConfig]) -> Arc<RateLimitRules> {
    Arc::new(RateLimitRules::new(configs, KEY, None).unwrap())
}

fn gateway(configs: &[RuleConfig]) -> (Gateway, Arc<RateLimitRules>) {
    let rules = rules(configs);
    (Gateway::with(RateLimit::new(Arc::clone(&rules))), rules)
}

fn from(source: &str) -> Tuple {
    if source.contains(':') {
        udp(&std::format!("[{source}]:4000"), "[2001:db8:ffff::1]:53")
    } else {
        udp(&std::format!("{source}:4000"), "198.51.100.10:53")
    }
}

/// The number of packets of `count` that pass.
fn passed(gateway: &mut Gateway, begun: &mut Begun, direction: Direction, count: usize) -> usize {
    let port = if direction == Direction::Original { INSIDE } else { OUTSIDE };
    (0..count)
        .filter(|_| {
            let (processed, _) = gateway.pass(&mut begun.connection, port, direction);
            assert!(matches!(processed.verdict, Verdict::Forward | BEYOND));
            assert!(!processed.states_changed, "nothing of it is replicated");
            processed.verdict == Verdict::Forward
        })
        .count()
}

#[test]
fn each_source_has_a_bucket_of_its_own() {
    let limit = LimitConfig { per: Per::Source, packets: rate(10, 5), ..LimitConfig::default() };
    let (mut gateway, rules) = gateway(&[rule(vec![limit])]);
    // The first packet takes a token, too.
    let mut first = gateway.begin(INSIDE, from("10.0.0.1")).unwrap();
    assert_eq!(passed(&mut gateway, &mut first, Direction::Original, 10), 4);
    let mut second = gateway.begin(INSIDE, from("10.0.0.2")).unwrap();
    assert_eq!(passed(&mut gateway, &mut second, Direction::Reply, 10), 4, "replies are of the same client");
    gateway.now = Instant::from_millis(300);
    assert_eq!(passed(&mut gateway, &mut first, Direction::Original, 10), 3);
    let [view] = &rules.views().next().unwrap().limits[..] else { panic!("one limit") };
    assert_eq!((view.packets, view.bytes, view.sources), (19, 19 * PACKET_BYTES, 2));
}

#[test]
fn hosts_of_an_ipv6_link_are_one_source() {
    let limit = LimitConfig { per: Per::Source, packets: rate(10, 5), ..LimitConfig::default() };
    let (mut gateway, rules) = gateway(&[rule(vec![limit])]);
    let mut of_one = gateway.begin(INSIDE, from("2001:db8:1::1")).unwrap();
    let mut of_the_same = gateway.begin(INSIDE, from("2001:db8:1::2")).unwrap();
    let mut of_another = gateway.begin(INSIDE, from("2001:db8:2::1")).unwrap();
    let passes = [&mut of_one, &mut of_the_same, &mut of_another]
        .map(|begun| passed(&mut gateway, begun, Direction::Original, 3));
    assert_eq!(passes, [3, 0, 3], "two tokens were taken by the first packets of two hosts");
    assert_eq!(rules.views().next().unwrap().limits[0].sources, 2);
}

#[test]
fn a_rate_of_bytes_is_kept_whatever_the_gaps() {
    let limit = LimitConfig { bytes: rate(28_000, 28_000), ..LimitConfig::default() };
    let (mut gateway, _) = gateway(&[rule(vec![limit])]);
    let mut begun = gateway.begin(INSIDE, from("10.0.0.1")).unwrap();
    let mut count = 0;
    for step in 0..100 {
        gateway.now = Instant::from_millis(step * 100);
        count += passed(&mut gateway, &mut begun, Direction::Original, 500);
    }
    // 1000 packets a second for 9.9 seconds, and a burst of one second, of which the first packet took one.
    assert_eq!(count, 9_900 + 999);
}

#[test]
fn new_connections_beyond_the_rate_are_refused_and_established_ones_are_not() {
    let limit = LimitConfig { per: Per::Source, connections: rate(2, 3), ..LimitConfig::default() };
    let (mut gateway, rules) = gateway(&[rule(vec![limit])]);
    let begin = |gateway: &mut Gateway, port: u16| {
        gateway.begin(INSIDE, tcp(&std::format!("10.0.0.1:{port}"), "198.51.100.10:80")).map(|begun| begun.connection)
    };
    let mut begun: Vec<_> = (1..=5).map(|port| begin(&mut gateway, port)).collect();
    assert_eq!(begun.iter().filter(|begun| begun.is_ok()).count(), 3);
    assert!(matches!(begun[4], Err(DropReason::RateLimited)));
    let first = begun[0].as_mut().unwrap();
    assert_eq!(gateway.pass(first, INSIDE, Direction::Original).0.verdict, Verdict::Forward);
    assert!(!gateway.chain.needs_packets(first), "only new connections are limited: the fast path may have it");
    gateway.now = Instant::from_millis(500);
    assert!(begin(&mut gateway, 6).is_ok() && begin(&mut gateway, 7).is_err());
    assert_eq!(rules.views().next().unwrap().limits[0].connections, 3);
}

#[test]
fn a_connection_with_limited_packets_stays_off_the_fast_path_on_every_node() {
    let limit = LimitConfig { bytes: rate(1_000, 1_000), ..LimitConfig::default() };
    let limited = RuleConfig {
        conditions: Conditions { sources: vec!["10.0.0.0/8".parse().unwrap()], ..Conditions::default() },
        ..rule(vec![limit])
    };
    let (mut gateway, _) = gateway(&[limited]);
    let mut limited = gateway.begin(INSIDE, from("10.0.0.1")).unwrap().connection;
    let mut free = gateway.begin(INSIDE, from("192.0.2.1")).unwrap().connection;
    assert_eq!([&limited, &free].map(|connection| gateway.chain.needs_packets(connection)), [true, false]);
    // Another node has a replica, of which it knows the rule with its first packet.
    for (connection, needs_packets) in [(&mut limited, true), (&mut free, false)] {
        let mut attributes = Vec::new();
        gateway.chain.encode_states(connection, &mut attributes);
        assert!(attributes.is_empty());
        gateway.chain.decode_states(connection, &attributes).unwrap();
        assert!(gateway.chain.needs_packets(connection));
        gateway.pass(connection, INSIDE, Direction::Original);
        assert_eq!(gateway.chain.needs_packets(connection), needs_packets);
    }
}

#[test]
fn the_first_rule_decides_and_one_without_limits_exempts() {
    let conditions = |source: &str| Conditions { sources: vec![source.parse().unwrap()], ..Conditions::default() };
    let none = LimitConfig { packets: rate(1, 1), ..LimitConfig::default() };
    let exempted = RuleConfig { name: "monitor".into(), conditions: conditions("10.0.0.9/32"), limits: Vec::new() };
    let strict = RuleConfig { name: "visitors".into(), conditions: conditions("10.0.0.0/24"), limits: vec![none] };
    let (mut gateway, _) = gateway(&[exempted, strict, rule(vec![none])]);
    for (source, expected) in [("10.0.0.9", 9), ("10.0.0.1", 0), ("10.0.1.1", 0)] {
        let mut begun = gateway.begin(INSIDE, from(source)).unwrap();
        assert_eq!(passed(&mut gateway, &mut begun, Direction::Original, 9), expected, "{source}");
    }
}

#[test]
fn limits_of_a_rule_add_up_and_one_may_count_one_direction() {
    let total = LimitConfig { packets: rate(10, 8), ..LimitConfig::default() };
    let replies = LimitConfig {
        per: Per::Source,
        direction: Some(Direction::Reply),
        packets: rate(10, 2),
        ..LimitConfig::default()
    };
    let (mut gateway, rules) = gateway(&[rule(vec![replies, total])]);
    let mut begun = gateway.begin(INSIDE, from("10.0.0.1")).unwrap();
    assert_eq!(passed(&mut gateway, &mut begun, Direction::Reply, 5), 2);
    assert_eq!(passed(&mut gateway, &mut begun, Direction::Original, 9), 8 - 1 - 2);
    let limits = rules.views().next().unwrap().limits;
    assert_eq!((limits[0].packets, limits[1].packets), (3, 4));
}

#[test]
fn packets_beyond_a_limit_can_be_marked() {
    let limit = LimitConfig { packets: rate(10, 2), action: Action::Mark(8), ..LimitConfig::default() };
    let (mut gateway, rules) = gateway(&[rule(vec![limit])]);
    let mut begun = gateway.begin(INSIDE, from("10.0.0.1")).unwrap();
    let tuple = begun.connection.original;
    let dscp: Vec<u8> = (0..3)
        .map(|_| {
            with_packet(&tuple, INSIDE, Direction::Original, |packet| {
                let processed = gateway.process(&mut begun.connection, packet, Direction::Original);
                assert_eq!(processed.verdict, Verdict::Forward);
                packet.frame.bytes()[15] >> 2
            })
        })
        .collect();
    assert_eq!(dscp, [0, 8, 8]);
    assert_eq!(rules.views().next().unwrap().limits[0].packets, 2);
}

#[test]
fn classes_have_buckets_of_their_own_and_a_changed_class_another_rule() {
    let limit = LimitConfig { per: Per::Class, packets: rate(1, 3), ..LimitConfig::default() };
    let configs = [
        RuleConfig {
            name: "dns".into(),
            conditions: Conditions { classes: vec![Class::Network], ..Conditions::default() },
            limits: vec![LimitConfig { packets: rate(1, 1), ..limit }],
        },
        rule(vec![limit]),
    ];
    let function = RateLimit::new(rules(&configs));
    assert!(function.decides_by_class());
    let classifier = Classifier::new(&ClassifierConfig::default()).unwrap();
    let chain = ChainBuilder::new().push(classifier).push(function).build().unwrap();
    let mut gateway = Gateway::of(chain);
    let mut dns = gateway.begin(INSIDE, udp("10.0.0.1:4000", "198.51.100.10:53")).unwrap();
    assert_eq!(passed_of_class(&mut gateway, &mut dns, 3), 0);
    for port in [3389, 1935] {
        let mut begun = gateway.begin(INSIDE, tcp("10.0.0.1:4000", &std::format!("198.51.100.10:{port}"))).unwrap();
        assert_eq!(passed_of_class(&mut gateway, &mut begun, 9), 2, "a bucket of its class");
    }
    // Its rule is found again when a re-evaluation follows its class.
    let state = |gateway: &Gateway, begun: &Begun| gateway.chain.state_of::<RateLimitState>(&begun.connection).unwrap();
    assert_eq!(state(&gateway, &dns).rule(), rule_id("dns"));
    assert_eq!(gateway.chain.reevaluate(&mut dns.connection), ReevaluationOutcome::Allowed);
    assert_eq!(state(&gateway, &dns).generation(), 0);
    passed_of_class(&mut gateway, &mut dns, 1);
    assert_eq!(state(&gateway, &dns).rule(), rule_id("dns"));
}

fn passed_of_class(gateway: &mut Gateway, begun: &mut Begun, count: usize) -> usize {
    let pass = |gateway: &mut Gateway, begun: &mut Begun| {
        gateway.pass(&mut begun.connection, INSIDE, Direction::Original).0.verdict == Verdict::Forward
    };
    (0..count).filter(|_| pass(gateway, begun)).count()
}

#[test]
fn a_reload_keeps_buckets_and_assigns_new_rules() {
    let limit = LimitConfig { per: Per::Source, packets: rate(1, 5), ..LimitConfig::default() };
    let (mut gateway, before) = gateway(&[rule(vec![limit])]);
    let mut begun = gateway.begin(INSIDE, from("10.0.0.1")).unwrap();
    assert_eq!(passed(&mut gateway, &mut begun, Direction::Original, 9), 4);

    // Another rule comes before it, and its rate is lower.
    let other = RuleConfig {
        name: "other".into(),
        conditions: Conditions { sources: vec!["192.0.2.0/24".parse().unwrap()], ..Conditions::default() },
        limits: Vec::new(),
    };
    let slower = LimitConfig { packets: rate(2, 10), ..limit };
    let after = RateLimitRules::new(&[other, rule(vec![slower])], KEY, Some(&before)).unwrap();
    assert_ne!(after.generation(), before.generation());
    let after = Arc::new(after);
    let function = RateLimit::new(Arc::clone(&after));
    gateway.chain = ChainBuilder::new().push(function).build_within(gateway.chain.layout()).unwrap();
    assert_eq!(passed(&mut gateway, &mut begun, Direction::Original, 9), 0, "the bucket is as empty as before");
    assert_eq!(after.views().nth(1).unwrap().limits[0].packets, 5 + 9, "counters continue");
    let same = RateLimitRules::new(&[rule(vec![limit])], KEY, Some(&before)).unwrap();
    assert_eq!(same.generation(), before.generation(), "unchanged rules are not looked for again");
    // Sources of other prefixes are others.
    let prefixes = SourcePrefixes { ipv4_bits: 24, ..SourcePrefixes::default() };
    let coarse = RateLimitRules::new(&[rule(vec![LimitConfig { prefixes, ..limit }])], KEY, Some(&before)).unwrap();
    assert_eq!(coarse.views().next().unwrap().limits[0].sources, 0);
}

#[test]
fn rules_beyond_the_limits_are_refused() {
    let many = vec![rule(Vec::new()); RULES_MAX + 1];
    assert_eq!(RateLimitRules::new(&many, KEY, None).unwrap_err(), RulesError::TooMany(RULES_MAX + 1));
    let limit = LimitConfig::default();
    let error = RateLimitRules::new(&[rule(vec![limit; LIMITS_PER_RULE_MAX + 1])], KEY, None).unwrap_err();
    assert_eq!(error, RulesError::TooManyLimits("clients".into()));
    let error = RateLimitRules::new(&[rule(Vec::new()), rule(Vec::new())], KEY, None).unwrap_err();
    assert_eq!(error, RulesError::SameIdentifier("clients".into(), "clients".into()));
    let large = LimitConfig { per: Per::Source, sources_max: SOURCES_MAX, ..limit };
    let error = RateLimitRules::new(&[rule(vec![large; 5])], KEY, None).unwrap_err();
    assert_eq!(error, RulesError::TooManySources(5 * u64::from(SOURCES_MAX)));
}

#[test]
fn a_full_table_evicts_the_source_that_is_closest_to_full_buckets() {
    let sources = Sources::new(KEY, SourcePrefixes::default(), 8);
    let meter = super::buckets::Meter::new(Rate { per_s: 1, burst: 100 });
    let now = Instant::from_millis(1000);
    for host in 1..=8u8 {
        let buckets = sources.buckets(now, None, &from(&std::format!("10.0.0.{host}")));
        buckets.bytes.take(now, &meter, host.into());
    }
    assert_eq!((sources.known(), sources.evicted()), (8, 0));
    sources.buckets(now, None, &from("10.0.1.1")).bytes.take(now, &meter, 100);
    assert_eq!((sources.known(), sources.evicted()), (8, 1));
    let has_tokens = |host: &str| sources.buckets(now, None, &from(host)).bytes.has_tokens(now, &meter);
    assert!(!has_tokens("10.0.1.1"));
    sources.buckets(now, None, &from("10.0.0.8")).bytes.take(now, &meter, 92);
    assert!(!has_tokens("10.0.0.8"), "the source that had taken most kept its bucket");
    assert_eq!(SOURCE_BYTES, 48);
}

proptest! {
    /// In any time, no more passes than the rate and the burst allow, but for one packet; and a source that waits is served.
    #[test]
    fn no_more_passes_than_rate_and_burst_allow(
        per_s in 1u64..20_000_000,
        burst in 1u64..10_000_000,
        packets in prop::collection::vec((1u64..65_536, 0u64..50_000), 1..200),
    ) {
        let rate = Rate { per_s, burst };
        let meter = super::buckets::Meter::new(rate);
        let bucket = super::buckets::Bucket::default();
        let (mut now, mut passed, mut largest) = (Instant::from_millis(1), 0u64, 0u64);
        let start = now;
        for (bytes, gap_us) in packets {
            now = now + Duration::from_micros(gap_us);
            if bucket.has_tokens(now, &meter) {
                bucket.take(now, &meter, bytes);
                passed += bytes;
                largest = largest.max(bytes);
            }
            let elapsed = now.saturating_since(start).as_secs_f64();
            let allowed = elapsed * per_s as f64 + burst as f64 + largest as f64;
            // Times are rounded to nanoseconds.
            prop_assert!(passed as f64 <= allowed * 1.001 + 1.0, "{passed} of {allowed}");
        }
        let filled = now + Duration::from_secs((10_000_000 + 65_536 * 200) / per_s.min(1_000_000) + 1);
        prop_assert!(bucket.has_tokens(filled.max(now + Duration::from_secs(30_000_000)), &meter));
    }
}
