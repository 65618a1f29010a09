//! The model over a range of outages, as rows and as a page.

use std::collections::BTreeMap;

use serde::Serialize;

use super::config::{ConfigError, FailoverConfig, Kind};
use super::model::{Estimate, Model, WithAndWithout};
use crate::report::{Axis, Block, ColumnKind, Dataset, Plot, PlotKind, Report, Section, Series, Tile};

/// What an outage of one duration costs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepRow {
    /// Duration of the outage in seconds.
    pub outage_s: f64,
    /// By kind of flow.
    pub kinds: BTreeMap<Kind, Estimate>,
}

/// The model at `points` outages from one duration to another, in seconds, both included.
///
/// # Errors
/// A parameter, or an outage, is out of its range.
pub fn sweep(config: &FailoverConfig, (from, to): (f64, f64), points: usize) -> Result<Vec<SweepRow>, ConfigError> {
    let step = (to - from) / points.saturating_sub(1).max(1) as f64;
    let model = Model::new(config)?;
    let at = |index: usize| {
        let outage_s = step.mul_add(index as f64, from);
        let model = model.with_outage(outage_s)?;
        Ok(SweepRow { outage_s, kinds: Kind::ALL.map(|kind| (kind, model.estimate(kind))).into() })
    };
    (0..points).map(at).collect()
}

/// A page with the figures of one outage, those of many as plots and as a table, and the parameters.
#[must_use]
pub fn report(
    config: &FailoverConfig,
    kinds: &BTreeMap<Kind, Estimate>,
    simulated: &BTreeMap<Kind, Estimate>,
    sweep: &[SweepRow],
    footer: String,
) -> Report {
    let saved = |kind: Kind| kinds.get(&kind).map(|estimate| estimate.stall_s.without - estimate.stall_s.with);
    let tile = |kind: Kind, beside: &str| Tile {
        name: format!("{} stall that local recovery removes", kind.name()),
        value: format!("{:.3} s", saved(kind).unwrap_or_default()),
        beside: beside.to_owned(),
    };
    let stall = Section {
        heading: "Stall after the path is back".into(),
        blocks: [Kind::Syn, Kind::Bulk].map(|kind| Block::Plot(stall_plot(kind, sweep))).into(),
    };
    let completion = Section {
        heading: "Completion".into(),
        blocks: Kind::ALL.map(|kind| Block::Plot(completion_plot(kind, sweep))).into(),
    };
    Report {
        subject: "Mainstay model failover".into(),
        title: format!("TCP across an outage of {} s", config.outage_s),
        summary: "Figures of the model of [HALR] chapter 5, with and without local recovery at the edge. They are computed, not \
                  measured."
            .into(),
        tiles: vec![tile(Kind::Syn, "of a new connection"), tile(Kind::Bulk, "of a transfer in progress")],
        sections: vec![
            Section { heading: "This outage".into(), blocks: vec![Block::Table(figures(kinds, simulated))] },
            stall,
            completion,
            Section {
                heading: "All figures".into(),
                blocks: vec![
                    Block::Folded("Every outage".into(), every_outage(sweep)),
                    Block::Folded("Parameters".into(), parameters(config)),
                ],
            },
        ],
        footer,
    }
}

const SECONDS: ColumnKind = ColumnKind::Number(3);

/// The figures of one outage, and the simulated medians beside them where there are any.
fn figures(kinds: &BTreeMap<Kind, Estimate>, simulated: &BTreeMap<Kind, Estimate>) -> Dataset {
    let mut table = Dataset::new(
        "figures",
        &[
            ("kind", "flow", ColumnKind::Text),
            ("source", "source", ColumnKind::Text),
            ("stall_s_without", "stall without recovery, s", SECONDS),
            ("stall_s_with", "with, s", SECONDS),
            ("completion_s_without", "completion without, s", SECONDS),
            ("completion_s_with", "with, s", SECONDS),
            ("undisturbed_s", "no outage, s", SECONDS),
        ],
    );
    for kind in Kind::ALL {
        for (source, estimates) in [("model", kinds), ("simulation", simulated)] {
            let Some(Estimate { stall_s, completion_s, undisturbed_s }) = estimates.get(&kind).copied() else {
                continue;
            };
            let figures = [stall_s.without, stall_s.with, completion_s.without, completion_s.with, undisturbed_s];
            table.push([kind.name().into(), source.into()].into_iter().chain(figures.map(Into::into)).collect());
        }
    }
    table
}

fn every_outage(sweep: &[SweepRow]) -> Dataset {
    let mut table = Dataset::new(
        "sweep",
        &[
            ("outage_s", "outage, s", SECONDS),
            ("kind", "flow", ColumnKind::Text),
            ("stall_s_without", "stall without recovery, s", SECONDS),
            ("completion_s_without", "completion without, s", SECONDS),
            ("completion_s_with", "with, s", SECONDS),
        ],
    );
    for row in sweep {
        for (kind, Estimate { stall_s, completion_s, .. }) in &row.kinds {
            let figures = [stall_s.without, completion_s.without, completion_s.with].map(Into::into);
            table.push([row.outage_s.into(), kind.name().into()].into_iter().chain(figures).collect());
        }
    }
    table
}

fn parameters(config: &FailoverConfig) -> Dataset {
    let mut table =
        Dataset::new("parameters", &[("name", "parameter", ColumnKind::Text), ("value", "value", ColumnKind::Text)]);
    let fields = serde_json::to_value(config).unwrap_or_default();
    for (name, value) in fields.as_object().into_iter().flatten() {
        table.push(vec![name.as_str().into(), value.to_string().trim_matches('"').into()]);
    }
    table
}

fn stall_plot(kind: Kind, sweep: &[SweepRow]) -> Plot {
    let title = format!("{}: unused flow time (the sawtooth of [HALR] figure 9)", kind.name());
    plot(&title, "stall", kind, sweep, |estimate| estimate.stall_s)
}

fn completion_plot(kind: Kind, sweep: &[SweepRow]) -> Plot {
    plot(kind.name(), "completion", kind, sweep, |estimate| estimate.completion_s)
}

fn plot(title: &str, axis: &str, kind: Kind, sweep: &[SweepRow], figure: fn(&Estimate) -> WithAndWithout) -> Plot {
    let points = |of: fn(WithAndWithout) -> f64| {
        let figures = sweep.iter().filter_map(|row| Some((row.outage_s, of(figure(row.kinds.get(&kind)?)))));
        figures.collect::<Vec<_>>()
    };
    let series = vec![
        Series::new("without local recovery", points(|pair| pair.without)),
        Series::new("with local recovery", points(|pair| pair.with)),
    ];
    Plot::new(PlotKind::Line, title, Axis::new("outage", "s"), Axis::new(axis, "s"), series)
}
