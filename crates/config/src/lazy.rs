//! `[replication.lazy]`: the age from which connections are replicated.

use replication::deferral::{Config, Dynamic};
use serde::Deserialize;
use toml::Spanned;

use super::diagnostic::Text;
use super::value::DurationText;

/// The section defers the replication of connections: a connection is deferred until its age reaches a threshold. A failover loses the
/// deferred connections, and `mainstay status` counts them. The age of an answered TCP connection is the time since its first packet. The
/// age of any other connection is the time from its first packet to its last, so a silent one stays deferred. Without the section, every
/// connection is replicated at once. All keys but `threshold` need `threshold = "dynamic"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLazy {
    /// Age from which connections are replicated: a duration, or `"dynamic"` for an age that depends on the load. The duration is above
    /// zero and at most a year.
    pub threshold: Text,
    /// Share of its time that a worker, or a processor that serves ports, may be busy. Above it, each decision defers more connections;
    /// below it, fewer.
    pub utilisation_max: Option<Spanned<f64>>,
    /// Time between two decisions.
    pub interval: Option<DurationText>,
    /// Number of levels. Level *p* of *n* defers *p*/*n* of the connections until they end.
    pub levels: Option<Spanned<u8>>,
    /// Weight of the lifetimes in the last interval against all earlier ones.
    pub responsiveness: Option<Spanned<f64>>,
    /// Shortest threshold once the load requires one.
    pub threshold_min: Option<DurationText>,
    /// Longest threshold. A connection whose age reaches it is replicated at any load; a silent UDP connection may never reach it.
    pub threshold_max: Option<DurationText>,
    /// Longest lifetime that is counted; longer ones count as this one.
    pub lifetime_max: Option<DurationText>,
    /// Whether a level defers no more than its share of connections, even where all lifetimes are about equal.
    pub bounded: Option<bool>,
}

/// The settings with their names, as a comparison lists them.
#[must_use]
pub fn entries(lazy: Option<&Config>) -> Vec<(&'static str, String)> {
    let threshold = match lazy {
        None => "none".to_owned(),
        Some(Config::Fixed(threshold)) => format!("{threshold:?}"),
        Some(Config::Dynamic(_)) => "dynamic".to_owned(),
    };
    // Where the load decides nothing, the settings of its decision have their defaults.
    let dynamic = match lazy {
        Some(Config::Dynamic(dynamic)) => *dynamic,
        Some(Config::Fixed(_)) | None => Dynamic::default(),
    };
    let share = |per_mille: u16| (f64::from(per_mille) / 1000.0).to_string();
    let Dynamic {
        utilisation_per_mille_max,
        levels,
        interval,
        responsiveness_per_mille,
        lifetime_min: _,
        lifetime_max,
        threshold_min,
        threshold_max,
        step_min: _,
        step_max: _,
        is_bounded,
    } = dynamic;
    vec![
        ("threshold", threshold),
        ("utilisation_max", share(utilisation_per_mille_max)),
        ("interval", format!("{interval:?}")),
        ("levels", levels.to_string()),
        ("responsiveness", share(responsiveness_per_mille)),
        ("threshold_min", format!("{threshold_min:?}")),
        ("threshold_max", format!("{threshold_max:?}")),
        ("lifetime_max", format!("{lifetime_max:?}")),
        ("bounded", is_bounded.to_string()),
    ]
}
