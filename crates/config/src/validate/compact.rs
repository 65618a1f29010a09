//! `replication.representation` where it is a filter: `[replication.filter]`, `[replication.recovery]` and the budget, and what
//! does not go with them.

use std::time::Duration;

use cluster::pipeline::{MISSES_PER_SOURCE_MAX_DEFAULT, RECOVERY_LASTS_DEFAULT};
use replication::compact::{BATCH_DEFAULT, CompactConfig, CompactConfigError, UpdateRule};
use toml::Spanned;

use super::super::compact::{Compact, RawFilter, RawRecovery, Recovery};
use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawConfig, RawReplication, Text};
use super::super::validated::{Config, Port, Replication, Representation};
use super::cluster::setting;
use super::common::{choice, flag, ranged, within};
use super::port_named;

/// How long a recovery may last.
const RECOVERY_LASTS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);
const SUBJECT: &str = "replication.representation";
const PERIOD_DEFAULT: Duration = Duration::from_secs(5);
const THRESHOLD_PER_MILLE_DEFAULT: u16 = 10;

/// The settings of filters; `None` with precise replication.
pub(super) fn compact(
    raw: &RawReplication,
    replication: &Replication,
    connections_max: u32,
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Compact> {
    check_experimental(raw, replication.representation, diagnostics);
    let Representation::Compact(filter) = replication.representation else {
        // An unknown name has its diagnostic already; it may well stand for a filter.
        let is_meant = |text: &Text| text.get_ref() == replication.representation.name();
        if raw.representation.as_ref().is_none_or(is_meant) {
            check_unused(raw, diagnostics);
        }
        return None;
    };
    let defaults = RawFilter::default();
    let section = raw.filter.as_ref().map_or(&defaults, Spanned::get_ref);
    let usual = CompactConfig::new(filter, u64::from(connections_max), [0; 2]);
    let key = |name: &str| format!("replication.filter.{name}");
    let numbers = (section.fingerprint_bits.as_ref(), section.counters_per_entry.as_ref(), section.hashes.as_ref());
    let compact = Compact {
        representation: filter,
        entries_max: within(
            &key("entries_max"),
            section.entries_max.as_ref(),
            u64::from(connections_max),
            1..=1 << 31,
            diagnostics,
        ),
        fingerprint_bits: within(
            &key("fingerprint_bits"),
            numbers.0,
            usual.fingerprint_bits,
            4..=usual.fingerprint_bits,
            diagnostics,
        ),
        counters_per_entry: within(&key("counters_per_entry"), numbers.1, usual.counters_per_item, 2..=64, diagnostics),
        hashes: within(&key("hashes"), numbers.2, usual.hashes, 1..=16, diagnostics),
        update: update(section, diagnostics),
        symbols: flag(&key("symbols"), section.symbols, usual.symbols, diagnostics),
        budget_bytes_per_second: raw.budget_bytes_per_second.as_ref().map(|budget| *budget.get_ref()),
        precise_after: precise_after(section, diagnostics),
        recovery: recovery(raw.recovery.as_ref().map(Spanned::get_ref), ports, diagnostics),
    };
    Some(compact)
}

/// A representation under which established connections may break is chosen with open eyes or not at all.
fn check_experimental(raw: &RawReplication, representation: Representation, diagnostics: &mut Diagnostics<'_>) {
    let is_experimental = matches!(representation, Representation::Compact(filter) if filter.is_experimental());
    let acknowledged = raw.experimental.as_ref();
    match (&raw.representation, acknowledged) {
        (Some(text), _) if is_experimental && acknowledged.is_none_or(|written| !*written.get_ref()) => {
            let mistake = Mistake::new(
                format!(
                    "{:?} is experimental: after a failover about one established connection in a thousand may break",
                    representation.name()
                ),
                "write experimental = true beside it if that may be, or representation = \"multi-level\", which promises that none breaks",
            );
            diagnostics.error(text.span(), SUBJECT, mistake);
        }
        (_, Some(written)) if !is_experimental && *written.get_ref() => {
            let mistake = Mistake::new("the representation is not experimental", "remove it");
            diagnostics.error(written.span(), "replication.experimental", mistake);
        }
        _ => {}
    }
}

/// Settings of filters where there is none.
fn check_unused(raw: &RawReplication, diagnostics: &mut Diagnostics<'_>) {
    let sections = [
        ("[replication.filter]", raw.filter.as_ref().map(Spanned::span)),
        ("[replication.recovery]", raw.recovery.as_ref().map(Spanned::span)),
        ("replication.budget_bytes_per_second", raw.budget_bytes_per_second.as_ref().map(Spanned::span)),
    ];
    for (subject, span) in sections {
        if let Some(span) = span {
            let mistake = Mistake::new(
                "connections are replicated as records, without a filter",
                "remove it, or write representation = \"multi-level\" (or another filter)",
            );
            diagnostics.error(span, subject, mistake);
        }
    }
}

fn update(section: &RawFilter, diagnostics: &mut Diagnostics<'_>) -> UpdateRule {
    #[derive(Clone, Copy, Default, PartialEq)]
    enum Rule {
        #[default]
        Immediate,
        Periodic,
        Threshold,
    }
    let rules = [("immediate", Rule::Immediate), ("periodic", Rule::Periodic), ("threshold", Rule::Threshold)];
    let rule = choice("replication.filter.update", section.update.as_ref(), &rules, diagnostics);
    if let Some(written) = section.threshold_per_mille.as_ref().filter(|_| rule != Rule::Threshold) {
        let mistake = Mistake::new("updates are not sent by a threshold", "remove it, or write update = \"threshold\"");
        diagnostics.error(written.span(), "replication.filter.threshold_per_mille", mistake);
    }
    let mut interval = |default, least: Duration| {
        let range = least..=Duration::from_secs(600);
        setting!("replication.filter", section.interval => ranged(default, range), diagnostics)
    };
    match rule {
        Rule::Immediate => {
            UpdateRule::Immediate { batch: interval(BATCH_DEFAULT, Duration::ZERO), establishment_at_once: true }
        }
        Rule::Periodic => UpdateRule::Periodic(interval(PERIOD_DEFAULT, Duration::from_millis(10))),
        Rule::Threshold => UpdateRule::Threshold {
            at_most_every: interval(BATCH_DEFAULT, Duration::ZERO),
            changes_per_mille: setting!("replication.filter", section.threshold_per_mille => within(THRESHOLD_PER_MILLE_DEFAULT, 1..=1000), diagnostics),
        },
    }
}

fn precise_after(section: &RawFilter, diagnostics: &mut Diagnostics<'_>) -> Option<Duration> {
    let text = section.precise_after.as_ref()?;
    let range = Duration::from_millis(10)..=Duration::from_secs(24 * 3600);
    Some(ranged("replication.filter.precise_after", Some(text), PERIOD_DEFAULT, range, diagnostics))
}

fn recovery(raw: Option<&RawRecovery>, ports: &[Port], diagnostics: &mut Diagnostics<'_>) -> Recovery {
    const SUBJECT: &str = "replication.recovery";
    let defaults = RawRecovery::default();
    let raw = raw.unwrap_or(&defaults);
    Recovery {
        lasts: setting!("replication.recovery", raw.lasts => ranged(RECOVERY_LASTS_DEFAULT, RECOVERY_LASTS), diagnostics),
        cold_start: raw.cold_start.iter().filter_map(|text| port_named(SUBJECT, text, ports, diagnostics)).collect(),
        block: flag("replication.recovery.block", raw.block, false, diagnostics),
        misses_per_source_max: setting!("replication.recovery", raw.misses_per_source_max => within(MISSES_PER_SOURCE_MAX_DEFAULT, 1..=1_000_000), diagnostics),
    }
}

/// What the filter itself has against its settings, as the workers share them.
fn check_stream(
    raw: &RawReplication,
    text: &Text,
    compact: &Compact,
    replication: &Replication,
    workers: u8,
    diagnostics: &mut Diagnostics<'_>,
) {
    let datagram_bytes_max = usize::from(replication.datagram_bytes_max);
    let Err(error) = compact.stream([0; 2], datagram_bytes_max, workers).check() else { return };
    let settings = raw.filter.as_ref().map(|section| (section.span(), section.get_ref()));
    let (subject, span, remedy) = match error {
        CompactConfigError::Budget(_) => {
            // Each worker's part has to suffice for a datagram.
            let least = datagram_bytes_max as u64 * u64::from(workers.max(1));
            let remedy = format!("write {least} or more, or remove it for no limit");
            ("replication.budget_bytes_per_second", raw.budget_bytes_per_second.as_ref().map(Spanned::span), remedy)
        }
        CompactConfigError::Shape(_) | CompactConfigError::Items(_) => {
            let written = settings.as_ref().and_then(|(_, section)| section.entries_max.as_ref()).map(Spanned::span);
            let remedy = "lower it, or the bits and counters of an entry";
            ("replication.filter.entries_max", written, remedy.to_owned())
        }
        _ => ("[replication.filter]", None, "change its settings".to_owned()),
    };
    let span = span.or(settings.map(|(span, _)| span)).unwrap_or(text.span());
    diagnostics.error(span, subject, Mistake::new(error.to_string(), remedy));
}

/// Finds what filters cannot do for the rest of the configuration: each is refused with what could be done instead.
pub(super) fn check(raw: &RawConfig, config: &Config, diagnostics: &mut Diagnostics<'_>) {
    let (Some(cluster), Some(section)) = (&config.cluster, &raw.replication) else { return };
    let replication = &cluster.replication;
    let (Some(compact), Some(text)) = (&replication.compact, &section.get_ref().representation) else { return };
    let name = compact.representation.name();
    check_stream(section.get_ref(), text, compact, replication, config.workers.count, diagnostics);
    check_nat(text, name, config, diagnostics);
    check_replication(section.get_ref(), replication, diagnostics);
    if let Some(second) = raw.group.get(1).filter(|_| !replication.is_symmetric) {
        let mistake = Mistake::new(
            format!(
                "packets of one connection may reach the nodes of several groups, and {name:?} is asked for connections only after a failure"
            ),
            "write replication.symmetric = true if both directions come to one node, or representation = \"precise-selective\"",
        );
        diagnostics.error(second.span(), SUBJECT, mistake);
    }
}

fn check_nat(text: &Text, name: &str, config: &Config, diagnostics: &mut Diagnostics<'_>) {
    use super::super::validated::Function;
    if !config.chain.contains(&Function::Nat) {
        return;
    }
    let chosen = config.source_nat.iter().position(|rule| rule.mapping.is_none());
    if let Some(index) = chosen {
        let mistake = Mistake::new(
            format!(
                "source NAT rule {index} chooses ports among those that are free, which a filter ({name:?}) does not have: another \
                 node could not go on translating"
            ),
            "write mapping = \"deterministic\" in the rule (RFC 7422), or representation = \"precise-selective\"",
        );
        diagnostics.error(text.span(), SUBJECT, mistake);
    }
}

fn check_replication(raw: &RawReplication, replication: &Replication, diagnostics: &mut Diagnostics<'_>) {
    if let Some(hold) = raw.hold_first_reply.as_ref().filter(|_| !replication.hold_first_reply.is_zero()) {
        let mistake = Mistake::new(
            "a first reply cannot wait until a peer has confirmed the connection: filters are confirmed, not their entries",
            "remove it, or write representation = \"precise-selective\"",
        );
        diagnostics.error(hold.span(), "replication.hold_first_reply", mistake);
    }
}
