//! What an operator asks first: what would I save, where, with which cache, and what would something else do.

use super::{base, percent, size};
use crate::redundancy_study::result::RedundancyResult;
use crate::report::{Block, Section, short};

/// Protocols named.
const PROTOCOLS_NAMED: usize = 3;
/// One that has less than this of all that is saved is not worth a name.
const PROTOCOL_SAVED_MIN: f64 = 0.02;
/// So much more a library must save to be the better advice.
const LIBRARY_LEAD: f64 = 0.02;
/// A percentile of fewer figures of usage is not reported.
const BUCKETS_MIN: usize = 60;
/// Frames that were not studied are worth a warning from this share on.
const SKIPPED_SHARE_MIN: f64 = 0.01;

/// A sentence each.
pub(super) fn section(result: &RedundancyResult) -> Section {
    let sentences = [what(result), protocols(result), cache(result), origins(result), library(result), skipped(result)];
    let blocks = sentences.into_iter().flatten().map(Block::Text).collect();
    Section { heading: "In short".to_owned(), blocks }
}

fn what(result: &RedundancyResult) -> Option<String> {
    let (saved, bytes) = (base(result), result.traffic.bytes as f64);
    if saved <= 0.0 {
        return Some("Next to nothing comes a second time: redundancy elimination would be of no use here.".to_owned());
    }
    // With several sites it would be of one of them, and a few seconds show nothing.
    let of_one = result.over_time.as_ref().filter(|_| result.sites.len() == 1);
    let busiest = of_one.and_then(|over_time| {
        let usage =
            |way: &str| over_time.ways.get(way)?.usage_saved.iter().find(|usage| usage.buckets >= BUCKETS_MIN).copied();
        ["inbound", "outbound"].into_iter().max_by_key(|way| result.traffic.bytes_by_way[way]).and_then(usage)
    });
    let peak = busiest.map_or(String::new(), |usage| {
        format!(
            " Where usage is paid by its 95th percentile it is {}, at the peak {}.",
            percent(usage.percentile_95),
            percent(usage.peak)
        )
    });
    Some(format!(
        "What: of {} bytes, {} would not be sent ({}).{peak}",
        short(bytes),
        short(saved * bytes),
        percent(saved)
    ))
}

fn protocols(result: &RedundancyResult) -> Option<String> {
    let mut rows: Vec<_> =
        result.by_protocol.iter().filter(|row| row.share_of_saved >= PROTOCOL_SAVED_MIN && row.saved > 0.0).collect();
    rows.sort_by(|a, b| b.share_of_saved.total_cmp(&a.share_of_saved));
    let named = rows.iter().take(PROTOCOLS_NAMED).map(|row| {
        format!(
            "{} ({} of all that is saved; {} of its own bytes)",
            row.protocol,
            percent(row.share_of_saved),
            percent(row.saved)
        )
    });
    let named = named.collect::<Vec<_>>().join(", ");
    (!named.is_empty()).then(|| format!("Where: {named}."))
}

fn cache(result: &RedundancyResult) -> Option<String> {
    let enough = result.cache_enough_bytes?;
    Some(format!(
        "With which cache: {} for each way at either end save nine tenths of what the largest that was tried does.",
        size(enough)
    ))
}

fn origins(result: &RedundancyResult) -> Option<String> {
    let shares = &result.origins.shares;
    let same_hosts = shares.get("intra_flow")? + shares.get("inter_flow")?;
    (result.match_lengths.matches > 0).then(|| {
        format!(
            "Who: {} of what is found in the cache comes from the same two hosts, and needs no gateway; the rest needs one that sees them \
             all.",
            percent(same_hosts)
        )
    })
}

fn library(result: &RedundancyResult) -> Option<String> {
    let find = |is_after: bool| {
        result
            .combined
            .iter()
            .filter(|row| row.method.is_some() == is_after)
            .map(|row| row.gathered_10_ms)
            .reduce(f64::max)
    };
    let (alone, after) = (find(false)?, find(true)?);
    let advice = if alone > base(result) + LIBRARY_LEAD {
        ": most of what repeats here repeats nearby, and a library finds that too"
    } else {
        ""
    };
    Some(format!(
        "Compression by packets of 10 ms instead of it would save {}, after it both together {}{advice}.",
        percent(alone),
        percent(after)
    ))
}

fn skipped(result: &RedundancyResult) -> Option<String> {
    let skipped: u64 = result.skipped.frames.values().sum();
    let share = skipped as f64 / (skipped + result.traffic.packets).max(1) as f64;
    (share >= SKIPPED_SHARE_MIN).then(|| {
        format!(
            "Beware: {} of all frames could not be studied, and nothing is known of them. See what was skipped, at the end.",
            percent(share)
        )
    })
}
