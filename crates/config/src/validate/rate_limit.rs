//! `[rate_limit]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use flow::source_counts::SourcePrefixes;
use network_functions::classifier::DSCP_MAX;
use network_functions::rate_limit::{
    Action, LIMITS_PER_RULE_MAX, LimitConfig, Per, QUOTA_MAX, Quota, RULES_MAX, Rate, RuleConfig, SOURCES_DEFAULT,
    SOURCES_MAX, SOURCES_MIN, SOURCES_TOTAL_MAX, Unit, rule_id,
};
use network_functions::rule_set::{ConditionError, Conditions};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawRateLimit, RawRateLimitLimit, RawRateLimitRule, Text};
use super::super::validated::Function;
use super::super::value::{self, SizeText};
use super::common::{choice, quoted, ranged, sized, within};
use super::firewall::port_ranges;
use super::{named, parsed_list};

const PERS: [(&str, Per); 4] =
    [("rule", Per::Rule), ("source", Per::Source), ("class", Per::Class), ("connection", Per::Connection)];
/// Sizes have 64 bits, and states count 47 of them.
const QUOTA_BYTES: RangeInclusive<usize> = 1..=QUOTA_MAX as usize;
const PERIOD: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(366 * 24 * 3600);
const PERIOD_DEFAULT: Duration = Duration::from_secs(24 * 3600);
const PACKETS: RangeInclusive<u64> = 1..=1_000_000_000;
const BYTES: RangeInclusive<usize> = 1..=16 << 30;
const CONNECTIONS: RangeInclusive<u64> = 1..=10_000_000;

/// The direction whose packets count, by name.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Counted {
    #[default]
    Both,
    Original,
    Reply,
}

const DIRECTIONS: [(&str, Counted); 3] =
    [("both", Counted::Both), ("original", Counted::Original), ("reply", Counted::Reply)];

/// What is done beyond a limit, by name.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Beyond {
    #[default]
    Drop,
    Mark,
}

const ACTIONS: [(&str, Beyond); 2] = [("drop", Beyond::Drop), ("mark", Beyond::Mark)];

pub(super) fn rules(
    raw: Option<&Spanned<RawRateLimit>>,
    chain: &[Function],
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<RuleConfig> {
    describe(diagnostics);
    let Some(section) = raw else { return Vec::new() };
    let raw = section.get_ref();
    if let Some(beyond) = raw.rule.get(RULES_MAX) {
        let mistake = Mistake::new(format!("there are more than {RULES_MAX} rules"), "merge rules by listing prefixes");
        diagnostics.error(beyond.span(), "[[rate_limit.rule]]", mistake);
    }
    let mut rules: Vec<RuleConfig> = Vec::new();
    for written in raw.rule.iter().take(RULES_MAX) {
        let rule = rule(written.get_ref(), chain, diagnostics);
        if let Some(twin) = rules.iter().find(|other| rule_id(&other.name) == rule_id(&rule.name)) {
            let problem = if twin.name == rule.name {
                "another rule has this name".to_owned()
            } else {
                format!("the name has the same identifier in connections' states as {:?}", twin.name)
            };
            let mistake = Mistake::new(problem, "give the rule another name");
            diagnostics.error(written.get_ref().name.span(), "rate_limit.rule.name", mistake);
        }
        rules.push(rule);
    }
    check_memory(section, &rules, diagnostics);
    rules
}

/// The defaults and ranges of keys, for a file without rules.
fn describe(diagnostics: &mut Diagnostics<'_>) {
    diagnostics.describe("rate_limit.rule.class", None, quoted(&super::classifier::classes()));
    let none = RawRateLimitLimit {
        per: None,
        direction: None,
        packets_per_s: None,
        burst_packets: None,
        bytes_per_s: None,
        burst_bytes: None,
        connections_per_s: None,
        burst_connections: None,
        quota_bytes: None,
        quota_packets: None,
        period: None,
        action: None,
        dscp: None,
        ipv4_prefix: None,
        ipv6_prefix: None,
        sources_max: None,
    };
    values(&none, diagnostics);
}

fn rule(raw: &RawRateLimitRule, chain: &[Function], diagnostics: &mut Diagnostics<'_>) -> RuleConfig {
    let name = named("rate_limit.rule.name", &raw.name, diagnostics);
    if let Some(beyond) = raw.limit.get(LIMITS_PER_RULE_MAX) {
        let mistake = Mistake::new(
            format!("the rule has more than {LIMITS_PER_RULE_MAX} limits"),
            "divide it into rules for different connections",
        );
        diagnostics.error(beyond.span(), "[[rate_limit.rule.limit]]", mistake);
    }
    let limits = raw.limit.iter().take(LIMITS_PER_RULE_MAX).map(|limit| self::limit(limit, chain, diagnostics));
    let limits: Vec<LimitConfig> = limits.collect();
    let mut quotas = raw.limit.iter().zip(&limits).filter(|(_, limit)| limit.quota.is_some());
    if let (Some(_), Some((second, _))) = (quotas.next(), quotas.next()) {
        let mistake = Mistake::new("the rule has several quotas", "write one quota for each rule");
        diagnostics.error(second.span(), "[[rate_limit.rule.limit]]", mistake);
    }
    RuleConfig { name, conditions: conditions(raw, chain, diagnostics), limits }
}

fn conditions(raw: &RawRateLimitRule, chain: &[Function], diagnostics: &mut Diagnostics<'_>) -> Conditions {
    let protocol = raw.protocol.as_ref().and_then(|text| {
        let protocol = value::protocol(text.get_ref());
        protocol.map_err(|mistake| diagnostics.error(text.span(), "rate_limit.rule.protocol", mistake)).ok()
    });
    let conditions = Conditions {
        sources: parsed_list("rate_limit.rule.source", &raw.source, |text| value::network(text), diagnostics),
        destinations: parsed_list(
            "rate_limit.rule.destination",
            &raw.destination,
            |text| value::network(text),
            diagnostics,
        ),
        protocols: protocol.into_iter().collect(),
        source_ports: port_ranges("rate_limit.rule.source_ports", &raw.source_ports, diagnostics),
        destination_ports: port_ranges("rate_limit.rule.destination_ports", &raw.destination_ports, diagnostics),
        classes: super::classifier::list("rate_limit.rule.class", &raw.class, diagnostics),
        ..Conditions::default()
    };
    let is_protocol_known = raw.protocol.is_none() || protocol.is_some();
    if let Err(error) = conditions.validate()
        && is_protocol_known
    {
        let remedy = match error {
            ConditionError::TooManyValues(_) => "write prefixes and ranges, or several rules",
            ConditionError::PortsWithoutProtocol | ConditionError::IcmpWithoutProtocol => {
                "add protocol = \"tcp\", \"udp\" or \"sctp\""
            }
            ConditionError::NoCommonFamily => "use one address family for source, destination and protocol",
        };
        diagnostics.error(raw.name.span(), "[[rate_limit.rule]]", Mistake::new(error.to_string(), remedy));
    }
    if let Some(class) = raw.class.first() {
        check_classifier(class, "rate_limit.rule.class", chain, diagnostics);
    }
    conditions
}

/// Classes are known behind a classifier.
fn check_classifier(text: &Text, subject: &str, chain: &[Function], diagnostics: &mut Diagnostics<'_>) {
    let place = |function| chain.iter().position(|other| *other == function);
    let classifier = place(Function::Classifier);
    if classifier.is_none() || place(Function::RateLimit).is_some_and(|own| classifier > Some(own)) {
        let mistake = Mistake::new(
            "classes are used, but no classifier comes before rate_limit",
            "add [classifier], and list \"classifier\" before \"rate_limit\" in chain",
        );
        diagnostics.error(text.span(), subject, mistake);
    }
}

fn limit(written: &Spanned<RawRateLimitLimit>, chain: &[Function], diagnostics: &mut Diagnostics<'_>) -> LimitConfig {
    let raw = written.get_ref();
    let limit = values(raw, diagnostics);
    let mut mistake = |is_wrong: bool, problem: &str, remedy: &str| {
        if is_wrong {
            diagnostics.error(written.span(), "[[rate_limit.rule.limit]]", Mistake::new(problem, remedy));
        }
    };
    let rates = [raw.packets_per_s.is_some(), raw.bytes_per_s.is_some(), raw.connections_per_s.is_some()];
    let has_quota = raw.quota_bytes.is_some() || raw.quota_packets.is_some();
    mistake(
        rates == [false; 3] && !has_quota,
        "the limit limits nothing",
        "add packets_per_s, bytes_per_s, connections_per_s or quota_bytes, or remove the section",
    );
    mistake(
        raw.quota_bytes.is_some() && raw.quota_packets.is_some(),
        "a quota counts either bytes or packets",
        "remove quota_bytes or quota_packets",
    );
    mistake(!has_quota && raw.period.is_some(), "period is given without a quota", "add quota_bytes, or remove period");
    mistake(
        has_quota && limit.per == Per::Class,
        "a class cannot have a quota",
        "write per = \"rule\" in a rule with this class, or remove the quota",
    );
    mistake(
        limit.per == Per::Connection && (!has_quota || rates != [false; 3]),
        "a connection can have a quota, and no rates",
        "add quota_bytes, and write rates in a limit of their own with per = \"source\"",
    );
    let bursts = [raw.burst_packets.is_some(), raw.burst_bytes.is_some(), raw.burst_connections.is_some()];
    let keys = ["packets", "bytes", "connections"];
    for (key, (has_rate, has_burst)) in keys.into_iter().zip(rates.into_iter().zip(bursts)) {
        mistake(
            has_burst && !has_rate,
            &format!("burst_{key} is given without a rate"),
            &format!("add {key}_per_s, or remove burst_{key}"),
        );
    }
    let marks = matches!(limit.action, Action::Mark(_));
    mistake(
        marks && raw.dscp.is_none(),
        "packets beyond the limit are to be marked, but not how",
        "add dscp with a code point",
    );
    mistake(!marks && raw.dscp.is_some(), "dscp is given, but nothing is marked", "add action = \"mark\"");
    mistake(
        marks && rates[2],
        "new connections cannot be marked, only refused",
        "write connections_per_s in a limit of its own with action = \"drop\"",
    );
    let is_of_sources = raw.ipv4_prefix.is_some() || raw.ipv6_prefix.is_some() || raw.sources_max.is_some();
    mistake(
        is_of_sources && limit.per != Per::Source,
        "ipv4_prefix, ipv6_prefix and sources_max describe sources, and the limit is of none",
        "add per = \"source\", or remove them",
    );
    if let Some(per) = raw.per.as_ref().filter(|_| limit.per == Per::Class) {
        check_classifier(per, "rate_limit.rule.limit.per", chain, diagnostics);
    }
    limit
}

/// The values of the keys, without what connects them.
fn values(raw: &RawRateLimitLimit, diagnostics: &mut Diagnostics<'_>) -> LimitConfig {
    let prefixes = SourcePrefixes::default();
    let dscp = within("rate_limit.rule.limit.dscp", raw.dscp.as_ref(), None, 0..=DSCP_MAX, diagnostics);
    LimitConfig {
        per: choice("rate_limit.rule.limit.per", raw.per.as_ref(), &PERS, diagnostics),
        direction: match choice("rate_limit.rule.limit.direction", raw.direction.as_ref(), &DIRECTIONS, diagnostics) {
            Counted::Both => None,
            Counted::Original => Some(flow::Direction::Original),
            Counted::Reply => Some(flow::Direction::Reply),
        },
        packets: rate("packets", (&raw.packets_per_s, &raw.burst_packets), PACKETS, diagnostics),
        bytes: rate_of_bytes((&raw.bytes_per_s, &raw.burst_bytes), diagnostics),
        connections: rate("connections", (&raw.connections_per_s, &raw.burst_connections), CONNECTIONS, diagnostics),
        quota: quota(raw, diagnostics),
        action: match choice("rate_limit.rule.limit.action", raw.action.as_ref(), &ACTIONS, diagnostics) {
            Beyond::Drop => Action::Drop,
            Beyond::Mark => Action::Mark(dscp.unwrap_or_default()),
        },
        prefixes: SourcePrefixes {
            ipv4_bits: within(
                "rate_limit.rule.limit.ipv4_prefix",
                raw.ipv4_prefix.as_ref(),
                prefixes.ipv4_bits,
                0..=32,
                diagnostics,
            ),
            ipv6_bits: within(
                "rate_limit.rule.limit.ipv6_prefix",
                raw.ipv6_prefix.as_ref(),
                prefixes.ipv6_bits,
                0..=128,
                diagnostics,
            ),
        },
        sources_max: within(
            "rate_limit.rule.limit.sources_max",
            raw.sources_max.as_ref(),
            SOURCES_DEFAULT,
            SOURCES_MIN..=SOURCES_MAX,
            diagnostics,
        ),
    }
}

/// A rate; without a burst, that of one second.
fn rate(
    what: &str,
    (per_s, burst): (&Option<Spanned<u64>>, &Option<Spanned<u64>>),
    range: RangeInclusive<u64>,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Rate> {
    let number = |key: String, written: &Option<Spanned<u64>>, diagnostics: &mut Diagnostics<'_>| {
        within(&format!("rate_limit.rule.limit.{key}"), written.as_ref(), None, range.clone(), diagnostics)
    };
    let (per_s, burst) =
        (number(format!("{what}_per_s"), per_s, diagnostics), number(format!("burst_{what}"), burst, diagnostics));
    per_s.map(|per_s| Rate { per_s, burst: burst.unwrap_or(per_s) })
}

fn rate_of_bytes(
    (per_s, burst): (&Option<Spanned<SizeText>>, &Option<Spanned<SizeText>>),
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Rate> {
    let bytes = |key: &str, written: &Option<Spanned<SizeText>>, diagnostics: &mut Diagnostics<'_>| {
        let subject = format!("rate_limit.rule.limit.{key}");
        let bytes = sized(&subject, written.as_ref(), 0, &BYTES, diagnostics);
        let range = [BYTES.start(), BYTES.end()].map(|bytes| value::written_size(*bytes)).join(" to ");
        diagnostics.describe(&subject, None, range);
        bytes.map(|bytes| bytes as u64)
    };
    let (per_s, burst) = (bytes("bytes_per_s", per_s, diagnostics), bytes("burst_bytes", burst, diagnostics));
    per_s.map(|per_s| Rate { per_s, burst: burst.unwrap_or(per_s) })
}

fn quota(raw: &RawRateLimitLimit, diagnostics: &mut Diagnostics<'_>) -> Option<Quota> {
    let (key_bytes, key_packets) = ("rate_limit.rule.limit.quota_bytes", "rate_limit.rule.limit.quota_packets");
    let bytes = sized(key_bytes, raw.quota_bytes.as_ref(), 0, &QUOTA_BYTES, diagnostics);
    let range = [QUOTA_BYTES.start(), QUOTA_BYTES.end()].map(|bytes| value::written_size(*bytes)).join(" to ");
    diagnostics.describe(key_bytes, None, range);
    let packets = within(key_packets, raw.quota_packets.as_ref(), None, 1..=QUOTA_MAX, diagnostics);
    let period = ranged("rate_limit.rule.limit.period", raw.period.as_ref(), PERIOD_DEFAULT, PERIOD, diagnostics);
    let of_bytes = bytes.map(|bytes| (Unit::Bytes, bytes as u64));
    let (unit, amount) = of_bytes.or(packets.map(|packets| (Unit::Packets, packets)))?;
    Some(Quota { unit, amount, period })
}

fn check_memory(section: &Spanned<RawRateLimit>, rules: &[RuleConfig], diagnostics: &mut Diagnostics<'_>) {
    let limits = rules.iter().flat_map(|rule| &rule.limits).filter(|limit| limit.per == Per::Source);
    let sources: u64 = limits.map(|limit| u64::from(limit.sources_max)).sum();
    if sources > SOURCES_TOTAL_MAX {
        let mistake = Mistake::new(
            format!("the limits have {sources} sources together, {SOURCES_TOTAL_MAX} are allowed"),
            "lower sources_max of limits with per = \"source\"",
        );
        diagnostics.error(section.span(), "rate_limit.rule.limit.sources_max", mistake);
    }
}
