//! Which method to choose for such traffic, and the reasons, in sentences.

use super::config::Method;
use super::outcome::{Advice, Cost, Outcome};
use crate::report::short;

/// What a method may get wrong and still be advised: of the connections that the backup should know, those that it does not know or in
/// another state; of tuples of none, those that it takes for one.
const MISTAKES_MAX: f64 = 0.02;
const FALSE_POSITIVES_MAX: f64 = 0.001;
/// Precise messages are the simplest; another representation must save so much of the bytes,
const SAVED_MIN: f64 = 0.3;
/// and so many bytes a second, less than which no link between nodes notices.
const SAVED_BYTES_PER_SECOND_MIN: f64 = 10_000.0;
/// A threshold is worth naming that saves so much and leaves so many bytes protected.
const THRESHOLD_SAVES_MIN: f64 = 0.25;
const THRESHOLD_PROTECTS_MIN: f64 = 0.95;

/// What to choose; nothing where no connection was replicated, or precise messages were not studied.
pub(super) fn advice(outcome: &Outcome) -> Option<Advice> {
    let seconds = outcome.traffic.busy_s;
    let precise = cost(outcome, Method::PreciseSelective).filter(|cost| cost.bytes > 0 && seconds > 0.0)?;
    let rate = |bytes: u64| bytes as f64 / seconds;
    let sound = Method::ALL.into_iter().filter_map(|method| {
        let cost = cost(outcome, method)?;
        (!method.is_precise() && knows_connections(method) && is_sound(cost)).then_some((method, cost))
    });
    let cheapest = sound.min_by_key(|(_, cost)| cost.bytes).filter(|(_, cost)| {
        let saved = rate(precise.bytes) - rate(cost.bytes);
        saved >= SAVED_BYTES_PER_SECOND_MIN && cost.reduction.is_some_and(|share| share >= SAVED_MIN)
    });
    let (method, chosen) = cheapest.unwrap_or((Method::PreciseSelective, precise));
    let mut sentences = Vec::new();
    if method.is_precise() {
        sentences.push(format!(
            "Precise messages (precise-selective) take {} to each backup, and a failover loses nothing that was replicated. No filter that is as \
             good as sure of every connection's state saves enough here to be worth its mistakes.",
            per_second(rate(precise.bytes))
        ));
    } else {
        sentences.push(format!(
            "Of the methods that know connections and their states, {} is the cheapest: {} to each backup, where precise messages \
             (precise-selective) take {}; {} instead of {} of the backup's memory. In the configuration: {}.",
            method.name(),
            per_second(rate(chosen.bytes)),
            per_second(rate(precise.bytes)),
            bytes(chosen.backup_bytes),
            bytes(precise.backup_bytes),
            configuration(method)
        ));
        sentences.push(format!(
            "At a failover the backup does not know {} of the connections, has {} in another state, and lets {} of the packets pass that \
             belong to no connection; with precise messages it is wrong in none.",
            percent(chosen.false_negative),
            percent(chosen.inaccurate_state),
            percent(chosen.false_positive)
        ));
    }
    sentences.extend(without_states(outcome, chosen, seconds));
    let threshold = threshold(outcome, method);
    sentences.extend(threshold.map(|cost| {
        format!(
            "Replicating connections only once they are {} ms old (replication.lazy.threshold) saves a further {}, and {} of the bytes are still \
             of connections that survive. Those that are still deferred at the failover are lost.",
            cost.threshold_ms,
            percent(cost.reduction_by_threshold),
            percent(cost.protected_share)
        )
    }));
    Some(Advice {
        method: method.name(),
        bytes_per_second: rate(chosen.bytes),
        precise_bytes_per_second: rate(precise.bytes),
        threshold_ms: threshold.map(|cost| cost.threshold_ms),
        sentences,
    })
}

fn cost(outcome: &Outcome, method: Method) -> Option<&Cost> {
    outcome.methods.get(method.name()).map(|found| &found.cost)
}

/// Whether a backup of it knows single connections and their states: what goes on after a failover is then what went on before.
const fn knows_connections(method: Method) -> bool {
    !method.is_membership() && method.is_in_configuration()
}

fn is_sound(cost: &Cost) -> bool {
    let mistakes = cost.false_negative.unwrap_or(1.0) + cost.inaccurate_state.unwrap_or(0.0);
    cost.refused == 0
        && mistakes <= MISTAKES_MAX
        && cost.false_positive.is_some_and(|share| share <= FALSE_POSITIVES_MAX)
}

/// What is cheaper and knows no states.
fn without_states(outcome: &Outcome, chosen: &Cost, seconds: f64) -> Option<String> {
    let digest = cost(outcome, Method::FlowDigest).filter(|digest| digest.bytes < chosen.bytes)?;
    Some(format!(
        "flow-digest takes {} and knows established connections alone: a failover loses {} of them, and lets {} of \
         the packets pass that belong to no connection.",
        per_second(digest.bytes as f64 / seconds),
        percent(digest.false_negative),
        percent(digest.false_positive)
    ))
}

/// The lowest threshold that is worth it.
fn threshold(outcome: &Outcome, method: Method) -> Option<&Cost> {
    // Methods of one kind gain alike from waiting; one of each kind is studied at thresholds.
    let shown = if method.is_precise() { Method::PreciseSelective } else { Method::MultiLevelFa };
    let costs = &outcome.methods.get(shown.name())?.by_threshold;
    costs.iter().find(|cost| {
        cost.reduction_by_threshold.is_some_and(|share| share >= THRESHOLD_SAVES_MIN)
            && cost.protected_share.is_some_and(|share| share >= THRESHOLD_PROTECTS_MIN)
    })
}

/// The configuration by which a gateway uses it.
const fn configuration(method: Method) -> &'static str {
    match method {
        Method::PreciseEager => "representation = \"precise-eager\"",
        Method::PreciseSelective => "representation = \"precise-selective\"",
        Method::HostAggregate => "representation = \"host-aggregate\"",
        Method::FlowDigest => "representation = \"flow-digest\"",
        Method::MultiLevelFa => "representation = \"multi-level\" and symbols = false",
        Method::MultiLevelLl => "representation = \"multi-level-least-load\" and symbols = false",
        Method::MultiLevelFaSymbols | Method::MultiLevelFaEstablished => "representation = \"multi-level\"",
        Method::MultiLevelLlSymbols => "representation = \"multi-level-least-load\"",
        Method::DLeft | Method::CountingBloom => "nothing: it is only compared with",
    }
}

/// A rate, for people.
pub(super) fn per_second(bytes_per_second: f64) -> String {
    format!("{}B/s", spaced(bytes_per_second))
}

fn bytes(count: u64) -> String {
    format!("{}B", spaced(count as f64))
}

/// `12 k` as it is, `12` as `12 `: a unit is to follow.
fn spaced(figure: f64) -> String {
    let text = short(figure);
    if text.contains(' ') { text } else { format!("{text} ") }
}

/// A share in percent, with two significant digits.
fn percent(share: Option<f64>) -> String {
    match share.map(|share| share * 100.0) {
        None => "an unknown share".into(),
        Some(0.0) => "none".into(),
        Some(percent) if percent < 0.01 => "less than 0.01 %".into(),
        Some(percent) if percent < 1.0 => format!("{percent:.2} %"),
        Some(percent) => format!("{percent:.1} %"),
    }
}
