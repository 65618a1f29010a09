//! What `mainstay bench filters` prints.

use std::collections::BTreeMap;

use serde::Serialize;

use super::large::Large;
use super::paper::{Comparison, MaximumLoads};
use super::speed::{Figures, Speed};
use crate::args::BenchFiltersArgs;
use crate::bench::rounds::{Rounds, rounded};
use console::{Align, Table, count};

/// One structure: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Structure {
    pub(super) hit_ns: f64,
    pub(super) miss_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) insert_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) modify_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remove_ns: Option<f64>,
    /// Least and greatest of the rounds.
    pub(super) hit_span_ns: [f64; 2],
    pub(super) miss_span_ns: [f64; 2],
    pub(super) bytes_per_item: f64,
    /// The share of keys found that are not in it.
    pub(super) false_positive: f64,
    /// Its formula's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) false_positive_expected: Option<f64>,
    /// Words of 32 bits that an insertion changes, which is what has to be replicated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) words_per_insert: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_load: Option<f64>,
    /// Its lookups over those of the static filter in the same rounds: hit, miss.
    pub(super) ratio_to_binary_fuse8: [f64; 2],
}

/// The large filter.
#[derive(Debug, Serialize)]
pub(super) struct LargeReport {
    pub(super) items: u64,
    pub(super) batched_hit_ns: f64,
    pub(super) batched_miss_ns: f64,
    pub(super) one_by_one_hit_ns: f64,
}

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) items: u64,
    pub(super) rounds: u32,
    pub(super) trials: u64,
    /// By name: `fa_4_8`, `binary_fuse8`, …
    #[serde(flatten)]
    pub(super) structures: BTreeMap<&'static str, Structure>,
    pub(super) large: LargeReport,
    /// Figure 13, by method, levels and cells a bucket: `fa_4_8`, …
    pub(super) max_load: MaximumLoads,
    /// The paper's numbers.
    pub(super) paper: Vec<Comparison>,
}

fn median(rounds: &Rounds) -> f64 {
    rounded(rounds.median(), 2)
}

fn structure(figures: &Figures, fuse: &Figures, max_load: Option<f64>) -> Structure {
    let measured = |rounds: &Rounds| (!rounds.is_empty()).then(|| median(rounds));
    let ratios = [figures.hit.median_ratio(&fuse.hit), figures.miss.median_ratio(&fuse.miss)];
    Structure {
        hit_ns: median(&figures.hit),
        miss_ns: median(&figures.miss),
        insert_ns: measured(&figures.insert),
        modify_ns: measured(&figures.modify),
        remove_ns: measured(&figures.remove),
        hit_span_ns: figures.hit.span().map(|nanos| rounded(nanos, 2)),
        miss_span_ns: figures.miss.span().map(|nanos| rounded(nanos, 2)),
        bytes_per_item: rounded(figures.bytes_per_item, 3),
        false_positive: figures.false_positive,
        false_positive_expected: None,
        words_per_insert: figures.words_per_insert.map(|words| rounded(words, 2)),
        max_load,
        ratio_to_binary_fuse8: ratios.map(|ratio| rounded(ratio, 2)),
    }
}

impl Report {
    pub(super) fn new(
        args: &BenchFiltersArgs,
        speed: Speed,
        large: &Large,
        max_load: MaximumLoads,
        paper: Vec<Comparison>,
        false_positive_expected: f64,
    ) -> Self {
        let mut structures = BTreeMap::new();
        for figures in speed.subjects.iter().chain([&speed.fuse]) {
            let load = max_load.get(figures.name).copied();
            structures.insert(figures.name, structure(figures, &speed.fuse, load));
        }
        if let Some(first_available) = structures.get_mut("fa_4_8") {
            first_available.false_positive_expected = Some(false_positive_expected);
        }
        let large = LargeReport {
            items: args.large,
            batched_hit_ns: median(&large.batched_hit),
            batched_miss_ns: median(&large.batched_miss),
            one_by_one_hit_ns: median(&large.one_by_one_hit),
        };
        Self { items: args.items, rounds: args.rounds, trials: args.trials, structures, large, max_load, paper }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        format!(
            "One core, {} items, {} rounds, nanoseconds an operation\n\n{}\n\
             fa_4_8 looks up in {} and {} times what binary_fuse8 takes (hit, miss), which can hold no states and never change.\n\
             WORDS are those of 32 bits that an insertion changes: what has to be replicated.\n\n\
             FA(4,8) with {} items: {} ns a key that is there and {} ns one that is not in batches of 32, {} ns one by one.\n\n\
             Maximum loads in percent (figure 13, {} trials of 10 000 cells)\n\n{}\n\
             The paper's numbers\n\n{}",
            count(self.items),
            self.rounds,
            self.structure_table(),
            self.ratio("fa_4_8", 0),
            self.ratio("fa_4_8", 1),
            count(self.large.items),
            self.large.batched_hit_ns,
            self.large.batched_miss_ns,
            self.large.one_by_one_hit_ns,
            self.trials,
            self.load_table(),
            self.paper_table(),
        )
    }

    fn ratio(&self, name: &str, of: usize) -> f64 {
        self.structures.get(name).map_or(0.0, |structure| structure.ratio_to_binary_fuse8[of])
    }

    fn structure_table(&self) -> String {
        let headings = ["HIT", "MISS", "INSERT", "CHANGE", "REMOVE", "BYTES", "FALSE POSITIVES", "WORDS"];
        let columns: Vec<_> =
            [("", Align::Left)].into_iter().chain(headings.map(|heading| (heading, Align::Right))).collect();
        let mut table = Table::new(&columns);
        let figure_text = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.2}"));
        for (name, structure) in &self.structures {
            let nanos = [Some(structure.hit_ns), Some(structure.miss_ns), structure.insert_ns, structure.modify_ns];
            let cells = nanos.into_iter().chain([structure.remove_ns, Some(structure.bytes_per_item)]).map(figure_text);
            let rest = [format!("{:.2e}", structure.false_positive), figure_text(structure.words_per_insert)];
            table.row([(*name).to_owned()].into_iter().chain(cells).chain(rest));
        }
        table.render()
    }

    fn load_table(&self) -> String {
        let headings: Vec<String> = (2..=8).map(|cells| format!("H = {cells}")).collect();
        let columns: Vec<_> = [("", Align::Left)]
            .into_iter()
            .chain(headings.iter().map(|heading| (heading.as_str(), Align::Right)))
            .collect();
        let mut table = Table::new(&columns);
        for (method, name) in [("fa", "FA"), ("ll", "LL"), ("d_left", "DLCBF")] {
            for levels in 2..=8 {
                let load =
                    |cells| self.max_load.get(&format!("{method}_{levels}_{cells}")).copied().unwrap_or_default();
                let loads = (2..=8).map(|cells| format!("{:.2}", 100.0 * load(cells)));
                table.row([format!("{name}, D = {levels}")].into_iter().chain(loads));
            }
        }
        table.render()
    }

    fn paper_table(&self) -> String {
        let mut table = Table::of("WHAT|>PAPER|>HERE|WHY THEY DIFFER");
        let row = |figures: &[f64]| figures.iter().map(f64::to_string).collect::<Vec<_>>().join(" / ");
        for comparison in &self.paper {
            let Comparison { what, seed, here, reason } = comparison;
            table.row([what.clone(), row(seed), row(here), (*reason).to_owned()]);
        }
        table.render()
    }
}
