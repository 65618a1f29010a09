//! `[syn_proxy]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use flow::wire::tcp::WINDOW_SCALE_MAX;
use network_functions::syn_proxy::{Mode, Offered, RULES_MAX, RuleConfig, Thresholds, rule_id};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawSynProxy, RawSynProxyRule};
use super::super::validated::{Cluster, Function, SynProxy};
use super::super::value;
use super::common::{absolute_path, choice, flag, ranged, within};
use super::firewall::port_ranges;
use super::{named, parsed_list};

/// When a rule is on, by name.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum When {
    #[default]
    Off,
    Auto,
    Always,
}

const MODES: [(&str, When); 3] = [("off", When::Off), ("auto", When::Auto), ("always", When::Always)];
const SYN_RATE_DEFAULT: u32 = 1000;
const HALF_OPEN_DEFAULT: u32 = 0;
const COUNT_MAX: u32 = 10_000_000;
const HOLD: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const HOLD_DEFAULT: Duration = Duration::from_secs(30);
const SEGMENT_SIZE_BYTES: RangeInclusive<u16> = 536..=8960;
const WINDOW_SCALE_DEFAULT: u8 = 7;

pub(super) fn syn_proxy(
    raw: Option<&Spanned<RawSynProxy>>,
    (cluster, chain): (Option<&Cluster>, &[Function]),
    diagnostics: &mut Diagnostics<'_>,
) -> SynProxy {
    describe(diagnostics);
    let Some(section) = raw else { return SynProxy::default() };
    let raw = section.get_ref();
    let key = raw.key.as_ref().and_then(|text| absolute_path("syn_proxy.key", text, diagnostics));
    let has_shared_keys = cluster.is_some_and(|cluster| {
        cluster.replication.security.as_ref().is_some_and(|security| !security.pre_shared_keys.is_empty())
    });
    if raw.key.is_none() && cluster.is_some() && !has_shared_keys {
        let mistake = Mistake::new(
            "the nodes have no secret in common, so none would accept the cookies of another",
            "write key with a file that `mainstay key` makes, the same on all nodes, or use replication.security.pre_shared_keys",
        );
        diagnostics.error(section.span(), "[syn_proxy]", mistake);
    }
    if let Some(beyond) = raw.rule.get(RULES_MAX) {
        let mistake = Mistake::new(
            format!("there are more than {RULES_MAX} rules"),
            "merge rules by listing their destinations and ports",
        );
        diagnostics.error(beyond.span(), "[[syn_proxy.rule]]", mistake);
    }
    check_place(section, chain, diagnostics);
    let mut rules: Vec<RuleConfig> = Vec::new();
    for written in raw.rule.iter().take(RULES_MAX) {
        let rule = rule(written, diagnostics);
        if let Some(twin) = rules.iter().find(|other| rule_id(&other.name) == rule_id(&rule.name)) {
            let problem = if twin.name == rule.name {
                "another rule has this name".to_owned()
            } else {
                format!("the name has the same identifier in connections' states as {:?}", twin.name)
            };
            let mistake = Mistake::new(problem, "give the rule another name");
            diagnostics.error(written.get_ref().name.span(), "syn_proxy.rule.name", mistake);
        }
        rules.push(rule);
    }
    SynProxy { key, rules }
}

/// The defaults and ranges of keys, for a file without rules.
fn describe(diagnostics: &mut Diagnostics<'_>) {
    choice("syn_proxy.rule.mode", None, &MODES, diagnostics);
    within("syn_proxy.rule.syn_rate", None, SYN_RATE_DEFAULT, 0..=COUNT_MAX, diagnostics);
    within("syn_proxy.rule.half_open", None, HALF_OPEN_DEFAULT, 0..=COUNT_MAX, diagnostics);
    ranged("syn_proxy.rule.hold", None, HOLD_DEFAULT, HOLD, diagnostics);
    let size = Offered::default().segment_size_bytes;
    within("syn_proxy.rule.mss", None, size, SEGMENT_SIZE_BYTES, diagnostics);
    within("syn_proxy.rule.window_scale", None, WINDOW_SCALE_DEFAULT, 0..=WINDOW_SCALE_MAX, diagnostics);
    flag("syn_proxy.rule.sack", None, true, diagnostics);
    flag("syn_proxy.rule.timestamps", None, true, diagnostics);
}

fn rule(written: &Spanned<RawSynProxyRule>, diagnostics: &mut Diagnostics<'_>) -> RuleConfig {
    let raw = written.get_ref();
    RuleConfig {
        name: named("syn_proxy.rule.name", &raw.name, diagnostics),
        destinations: parsed_list(
            "syn_proxy.rule.destination",
            &raw.destination,
            |text| value::prefix(text),
            diagnostics,
        ),
        ports: port_ranges("syn_proxy.rule.ports", &raw.ports, diagnostics),
        mode: mode(raw, diagnostics),
        offered: offered(raw, diagnostics),
    }
}

fn mode(raw: &RawSynProxyRule, diagnostics: &mut Diagnostics<'_>) -> Mode {
    let when = choice("syn_proxy.rule.mode", raw.mode.as_ref(), &MODES, diagnostics);
    let rate = within("syn_proxy.rule.syn_rate", raw.syn_rate.as_ref(), SYN_RATE_DEFAULT, 0..=COUNT_MAX, diagnostics);
    let half_open =
        within("syn_proxy.rule.half_open", raw.half_open.as_ref(), HALF_OPEN_DEFAULT, 0..=COUNT_MAX, diagnostics);
    let hold = ranged("syn_proxy.rule.hold", raw.hold.as_ref(), HOLD_DEFAULT, HOLD, diagnostics);
    match when {
        When::Off => Mode::Off,
        When::Always => Mode::Always,
        When::Auto => {
            if rate == 0 && half_open == 0 {
                let mistake = Mistake::new("nothing switches the rule on", "write syn_rate, half_open or both");
                let span = raw.mode.as_ref().map_or_else(|| raw.name.span(), Spanned::span);
                diagnostics.error(span, "syn_proxy.rule.mode", mistake);
            }
            let some = |count: u32| (count != 0).then_some(count);
            Mode::Auto(Thresholds { syns_per_s: some(rate), half_open: some(half_open), hold })
        }
    }
}

fn offered(raw: &RawSynProxyRule, diagnostics: &mut Diagnostics<'_>) -> Offered {
    let default = Offered::default();
    let scale = raw.window_scale.as_ref();
    Offered {
        segment_size_bytes: within(
            "syn_proxy.rule.mss",
            raw.mss.as_ref(),
            default.segment_size_bytes,
            SEGMENT_SIZE_BYTES,
            diagnostics,
        ),
        window_scale: Some(within(
            "syn_proxy.rule.window_scale",
            scale,
            WINDOW_SCALE_DEFAULT,
            0..=WINDOW_SCALE_MAX,
            diagnostics,
        )),
        sack: flag("syn_proxy.rule.sack", raw.sack, true, diagnostics),
        timestamps: flag("syn_proxy.rule.timestamps", raw.timestamps, true, diagnostics),
    }
}

/// The proxy stands before all functions that translate: they see only clients that have proved their address.
fn check_place(section: &Spanned<RawSynProxy>, chain: &[Function], diagnostics: &mut Diagnostics<'_>) {
    let place = |function| chain.iter().position(|other| *other == function);
    let Some(own) = place(Function::SynProxy) else { return };
    let translators = [Function::LoadBalancer, Function::Nat, Function::Ftp];
    if translators.into_iter().filter_map(place).any(|other| other < own) {
        let mistake = Mistake::new(
            "a function that translates stands before syn_proxy in the chain",
            "write it behind \"firewall\" and before \"load_balancer\", \"nat\" and \"ftp\"",
        );
        diagnostics.error(section.span(), "chain", mistake);
    }
}
