//! What `mainstay bench redundancy` prints.

use std::collections::BTreeMap;

use serde::Serialize;

use super::baselines::Baselines;
use super::savings::{Savings, Shares};
use super::speed::{BLOCK_BYTES, BySubject};
use crate::args::BenchRedundancyArgs;
use crate::bench::rounds::{Rounds, median_table, rounded};

/// All that is measured.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) mark: BySubject,
    pub(super) encode: BySubject,
    pub(super) decode: BySubject,
    pub(super) saved: BTreeMap<(&'static str, usize), f64>,
    pub(super) baselines: Baselines,
    pub(super) savings: Savings,
}

/// By method, then by bytes of a block.
type ByMethod = BTreeMap<&'static str, BTreeMap<String, f64>>;

/// Medians over the rounds, on one core.
#[derive(Debug, Serialize)]
pub(super) struct Speeds {
    pub(super) mark: ByMethod,
    pub(super) encode: ByMethod,
    pub(super) decode: ByMethod,
    pub(super) memcpy: f64,
    /// Copied block by block, and once more into a ring of the cache's size.
    pub(super) memcpy_kept: BTreeMap<String, f64>,
    pub(super) zstd_long: f64,
    pub(super) lz4: f64,
    pub(super) fastcdc: f64,
}

/// One figure over another, of the same rounds, and what is hoped for.
#[derive(Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) of: f64,
    pub(super) over: f64,
    /// The median of the rounds' ratios.
    pub(super) ratio: f64,
    pub(super) goal: f64,
    pub(super) is_reached: bool,
}

/// The shares of what was saved.
#[derive(Debug, Serialize)]
pub(super) struct Saved {
    /// While speed was measured, by method and block.
    pub(super) while_measured: ByMethod,
    pub(super) zstd_long: f64,
    pub(super) lz4: f64,
    #[serde(flatten)]
    pub(super) savings: Savings,
}

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) megabytes: u32,
    pub(super) cache_megabytes: u32,
    pub(super) rounds: u32,
    /// How SAMPLEBYTE reads bytes on this processor.
    pub(super) scan: &'static str,
    pub(super) gb_per_s: Speeds,
    pub(super) ratios: BTreeMap<&'static str, Ratio>,
    pub(super) saved: Saved,
    #[serde(skip)]
    spans: Vec<(String, f64, [f64; 2])>,
}

fn by_method<T>(figures: &BTreeMap<(&'static str, usize), T>, figure: impl Fn(&T) -> f64) -> ByMethod {
    let mut by_method = ByMethod::new();
    for ((method, block), value) in figures {
        by_method.entry(method).or_default().insert(block.to_string(), figure(value));
    }
    by_method
}

fn ratio(of: &Rounds, over: &Rounds, goal: f64) -> Ratio {
    let ratio = of.median_ratio(over);
    Ratio {
        of: rounded(of.median(), 3),
        over: rounded(over.median(), 3),
        ratio: rounded(ratio, 3),
        goal,
        is_reached: ratio >= goal,
    }
}

fn share(of: f64, over: f64) -> Ratio {
    let ratio = if over > 0.0 { of / over } else { 0.0 };
    Ratio { of, over, ratio: rounded(ratio, 3), goal: 0.8, is_reached: ratio >= 0.8 }
}

fn ratios(figures: &Figures) -> BTreeMap<&'static str, Ratio> {
    let Figures { encode, decode, baselines, savings, .. } = figures;
    let [packet, block] = BLOCK_BYTES;
    let sample_byte = |of: &BySubject, bytes| of.get(&("samplebyte", bytes)).cloned().unwrap_or_default();
    let modp = encode.get(&("modp", packet)).cloned().unwrap_or_default();
    let mut ratios = BTreeMap::from([
        ("encode_1460_over_zstd_long", ratio(&sample_byte(encode, packet), &baselines.zstd_long, 2.5)),
        ("encode_1460_over_fastcdc", ratio(&sample_byte(encode, packet), &baselines.fastcdc, 0.8)),
        ("decode_1460_over_memcpy", ratio(&sample_byte(decode, packet), &baselines.memcpy, 0.7)),
        ("encode_16384_over_zstd_long", ratio(&sample_byte(encode, block), &baselines.zstd_long, 4.0)),
        ("encode_1460_samplebyte_over_modp", ratio(&sample_byte(encode, packet), &modp, 4.0)),
    ]);
    let of = |shares: &Shares, method| shares.max_match.get(method).copied().unwrap_or_default();
    let Savings { half_redundant, pages } = savings;
    ratios.insert("saved_half_redundant_maxp_over_optimal", share(of(half_redundant, "maxp"), half_redundant.optimal));
    ratios.insert(
        "saved_half_redundant_samplebyte_over_optimal",
        share(of(half_redundant, "samplebyte"), half_redundant.optimal),
    );
    ratios.insert("saved_pages_maxp_over_optimal", share(of(pages, "maxp"), pages.optimal));
    ratios.insert("saved_pages_samplebyte_over_optimal", share(of(pages, "samplebyte"), pages.optimal));
    ratios
}

impl Report {
    pub(super) fn new(args: &BenchRedundancyArgs, figures: Figures) -> Self {
        let ratios = ratios(&figures);
        let Figures { mark, encode, decode, saved, baselines, savings } = figures;
        let median = |rounds: &Rounds| rounded(rounds.median(), 3);
        let mut spans = Vec::new();
        let kept = &baselines.memcpy_kept;
        for (what, of) in
            [("marking", &mark), ("encoding", &encode), ("decoding", &decode), ("copying and keeping", kept)]
        {
            for ((method, block), rounds) in of {
                spans.push((format!("{what}, {method}, {block} bytes"), rounds.median(), rounds.span()));
            }
        }
        let baselines_by_name = [
            ("memcpy", &baselines.memcpy),
            ("zstd -1 --long", &baselines.zstd_long),
            ("LZ4", &baselines.lz4),
            ("FastCDC, chunking alone", &baselines.fastcdc),
        ];
        spans.extend(baselines_by_name.map(|(name, rounds)| (name.to_owned(), rounds.median(), rounds.span())));
        Self {
            megabytes: args.megabytes,
            cache_megabytes: args.cache_megabytes,
            rounds: args.rounds,
            scan: redundancy::Scan::detect().name(),
            gb_per_s: Speeds {
                mark: by_method(&mark, median),
                encode: by_method(&encode, median),
                decode: by_method(&decode, median),
                memcpy: median(&baselines.memcpy),
                memcpy_kept: by_method(&baselines.memcpy_kept, median).remove("memcpy").unwrap_or_default(),
                zstd_long: median(&baselines.zstd_long),
                lz4: median(&baselines.lz4),
                fastcdc: median(&baselines.fastcdc),
            },
            ratios,
            saved: Saved {
                while_measured: by_method(&saved, |saved| rounded(*saved, 4)),
                zstd_long: rounded(baselines.zstd_long_saved, 4),
                lz4: rounded(baselines.lz4_saved, 4),
                savings,
            },
            spans,
        }
    }

    pub(super) fn describe(&self) -> String {
        let rows = self.spans.iter().map(|(name, median, span)| (name.as_str(), *median, *span));
        let mut text = median_table("ONE CORE (GB/s)", 2, rows);
        text.push_str("\nRatios, of the same rounds:\n");
        for (name, Ratio { of, over, ratio, goal, is_reached }) in &self.ratios {
            let verdict = if *is_reached { "reached" } else { "NOT reached" };
            text.push_str(&format!("  {name}: {of} / {over} = {ratio} (goal: at least {goal}, {verdict})\n"));
        }
        let Saved { while_measured, zstd_long, lz4, savings } = &self.saved;
        text.push_str(&format!(
            "\nSaved while speed was measured: zstd --long {zstd_long}, LZ4 {lz4}, {while_measured:?}\n"
        ));
        for (name, shares) in [("half redundant", &savings.half_redundant), ("pages", &savings.pages)] {
            let Shares { optimal, max_match, chunk_match, second_stage } = shares;
            text.push_str(&format!(
                "Saved of {name}, in packets: at most {optimal}; Max-Match {max_match:?}; Chunk-Match {chunk_match}; \
                 with a second stage {second_stage:?}\n"
            ));
        }
        text
    }
}
