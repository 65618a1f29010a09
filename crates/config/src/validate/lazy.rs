//! `[replication.lazy]`.

use std::time::Duration;

use replication::deferral::{Config, Dynamic, LEVELS_MAX};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::lazy::RawLazy;
use super::super::raw::{RawConfig, RawReplication};
use super::super::validated::{Replication, Representation};
use super::common::{flag, ranged, within};
use super::parsed;
use crate::value;

const SUBJECT: &str = "[replication.lazy]";
/// The word in the place of a threshold.
const DYNAMIC: &str = "dynamic";

/// The deferral of connections; `None`: there is none.
pub(super) fn lazy(raw: &RawReplication, diagnostics: &mut Diagnostics<'_>) -> Option<Config> {
    let written = raw.lazy.as_ref()?;
    let section = written.get_ref();
    let config = if section.threshold.get_ref() == DYNAMIC {
        Config::Dynamic(dynamic(section, diagnostics))
    } else {
        let threshold = parsed("replication.lazy.threshold", &section.threshold, value::duration, diagnostics)?;
        check_fixed(written, diagnostics);
        Config::Fixed(threshold)
    };
    if let Err(error) = config.check() {
        let mistake = Mistake::new(error.to_string(), "see docs/configuration.md for what goes together");
        diagnostics.error(written.span(), SUBJECT, mistake);
    }
    Some(config)
}

fn dynamic(section: &RawLazy, diagnostics: &mut Diagnostics<'_>) -> Dynamic {
    let ms = Duration::from_millis;
    let defaults = Dynamic::default();
    let mut duration =
        |key: &str, text, default, range| ranged(&format!("replication.lazy.{key}"), text, default, range, diagnostics);
    let interval = duration("interval", section.interval.as_ref(), defaults.interval, ms(100)..=ms(600_000));
    let threshold = ms(1)..=ms(60_000);
    let threshold_min =
        duration("threshold_min", section.threshold_min.as_ref(), defaults.threshold_min, threshold.clone());
    let threshold_max = duration("threshold_max", section.threshold_max.as_ref(), defaults.threshold_max, threshold);
    let lifetime_max =
        duration("lifetime_max", section.lifetime_max.as_ref(), defaults.lifetime_max, ms(1000)..=ms(120_000));
    let mut share = |key: &str, written: Option<&Spanned<f64>>, default: u16| {
        let default = f64::from(default) / 1000.0;
        let share = within(&format!("replication.lazy.{key}"), written, default, 0.0..=1.0, diagnostics);
        (share * 1000.0).round() as u16
    };
    let utilisation_max = section.utilisation_max.as_ref();
    let utilisation_per_mille_max = share("utilisation_max", utilisation_max, defaults.utilisation_per_mille_max);
    let responsiveness = section.responsiveness.as_ref();
    let responsiveness_per_mille = share("responsiveness", responsiveness, defaults.responsiveness_per_mille);
    let levels =
        within("replication.lazy.levels", section.levels.as_ref(), defaults.levels, 1..=LEVELS_MAX, diagnostics);
    Dynamic {
        utilisation_per_mille_max,
        levels,
        interval,
        responsiveness_per_mille,
        lifetime_max,
        threshold_min,
        threshold_max,
        is_bounded: flag("replication.lazy.bounded", section.bounded, defaults.is_bounded, diagnostics),
        ..defaults
    }
}

/// With a fixed threshold nothing is decided.
fn check_fixed(written: &Spanned<RawLazy>, diagnostics: &mut Diagnostics<'_>) {
    let section = written.get_ref();
    let whole = || Some(written.span());
    let decides = [
        ("utilisation_max", section.utilisation_max.as_ref().map(Spanned::span)),
        ("interval", section.interval.as_ref().map(Spanned::span)),
        ("levels", section.levels.as_ref().map(Spanned::span)),
        ("responsiveness", section.responsiveness.as_ref().map(Spanned::span)),
        ("threshold_min", section.threshold_min.as_ref().map(Spanned::span)),
        ("threshold_max", section.threshold_max.as_ref().map(Spanned::span)),
        ("lifetime_max", section.lifetime_max.as_ref().map(Spanned::span)),
        ("bounded", section.bounded.and_then(|_| whole())),
    ];
    for (key, span) in decides.into_iter().filter_map(|(key, span)| Some((key, span?))) {
        let mistake = Mistake::new(
            "it has no effect, as the threshold is fixed",
            format!("remove it, or write threshold = \"{DYNAMIC}\""),
        );
        diagnostics.error(span, &format!("replication.lazy.{key}"), mistake);
    }
}

/// Finds settings that need connections replicated at once.
pub(super) fn check(
    raw: &RawConfig,
    section: &RawReplication,
    replication: &Replication,
    diagnostics: &mut Diagnostics<'_>,
) {
    let Some(written) = section.lazy.as_ref().filter(|_| replication.lazy.is_some()) else { return };
    let contradictions = [
        (
            !replication.hold_first_reply.is_zero(),
            "hold_first_reply replicates every connection before its first reply, and lazy defers that",
            "remove either",
        ),
        (
            raw.group.len() > 1 && !replication.is_symmetric,
            "packets of one connection may reach the nodes of several groups, each of which must know it at once",
            "write replication.symmetric = true if both directions come to one node, or remove it",
        ),
        (
            replication.representation == Representation::None,
            "nothing is replicated that could be deferred",
            "remove it, or choose another replication.representation",
        ),
    ];
    for (_, problem, remedy) in contradictions.iter().filter(|(is_so, ..)| *is_so) {
        diagnostics.error(written.span(), SUBJECT, Mistake::new(*problem, *remedy));
    }
}
