//! `[replication.lazy]`: how long the replication of connections is deferred.

use replication::deferral::{Config, Dynamic};
use serde::Deserialize;
use toml::Spanned;

use super::diagnostic::Text;

/// `[replication.lazy]` as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLazy {
    /// A duration, or `"dynamic"`.
    pub threshold: Text,
    /// Share of its time that a worker may be busy before it puts more off.
    pub utilisation_max: Option<Spanned<f64>>,
    /// Time between two decisions.
    pub interval: Option<Text>,
    /// Levels of degradation.
    pub levels: Option<Spanned<u8>>,
    /// Weight of the latest interval against all that was before.
    pub responsiveness: Option<Spanned<f64>>,
    /// The least deferral threshold while replication is degraded.
    pub threshold_min: Option<Text>,
    /// The most.
    pub threshold_max: Option<Text>,
    /// Lifetimes count as this at most.
    pub lifetime_max: Option<Text>,
    /// Whether a level spares no more than its share.
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
