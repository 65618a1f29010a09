//! The result as tables, on the page and as Parquet.

use redundancy::Method;

use crate::redundancy_study::microscope::Origin;
use crate::redundancy_study::result::{Http, RedundancyResult};
use crate::report::{ColumnKind, Dataset, Value};

const TEXT: ColumnKind = ColumnKind::Text;
const COUNT: ColumnKind = ColumnKind::Integer;
const SHARE: ColumnKind = ColumnKind::Share(1);

/// All tables that go into files beside the page.
#[must_use]
pub fn tables(result: &RedundancyResult) -> Vec<Dataset> {
    let mut tables = vec![
        methods(result),
        combined(result),
        sites(result),
        protocols(result),
        origins(result),
        lengths(result),
        distributions(result),
        caches(result),
        periods(result),
        windows(result),
        ranks(result),
        volume(result),
        usage(result),
        energy(result),
        end_hosts(result),
        skipped(result),
    ];
    tables.extend(result.http.as_ref().map(http));
    tables
}

pub(super) fn methods(result: &RedundancyResult) -> Dataset {
    let mut table = Dataset::new(
        "redundancy_methods",
        &[
            ("method", "method", TEXT),
            ("max_match", "Max-Match", SHARE),
            ("chunk_match", "Chunk-Match", SHARE),
            ("of_optimal", "Max-Match of the bound", SHARE),
        ],
    );
    for (method, saved) in &result.saved {
        let row = [saved.max_match, saved.chunk_match, saved.of_optimal].map(Value::from);
        table.push([vec![method.to_uppercase().into()], row.into()].concat());
    }
    table.push(vec!["at most".into(), result.optimal.into(), Value::Missing, Value::Missing]);
    table
}

pub(super) fn combined(result: &RedundancyResult) -> Dataset {
    let mut table = Dataset::new(
        "redundancy_combined",
        &[
            ("method", "before it", TEXT),
            ("library", "library", TEXT),
            ("by_packet", "packet by packet", SHARE),
            ("gathered_10_ms", "over 10 ms", SHARE),
        ],
    );
    for row in &result.combined {
        let method = row.method.map_or("nothing".to_owned(), str::to_uppercase);
        table.push(vec![method.into(), row.library.into(), row.by_packet.into(), row.gathered_10_ms.into()]);
    }
    table
}

pub(super) fn sites(result: &RedundancyResult) -> Dataset {
    let mut table = Dataset::new(
        "redundancy_sites",
        &[
            ("site", "site", TEXT),
            ("hosts", "addresses", COUNT),
            ("bytes", "bytes", COUNT),
            ("gzip", "gzip", SHARE),
            ("gzip_10_ms", "gzip, 10 ms", SHARE),
            ("modp", "MODP", SHARE),
            ("maxp", "MAXP", SHARE),
            ("fixed", "FIXED", SHARE),
            ("samplebyte", "SAMPLEBYTE", SHARE),
            ("larger_cache", "cache × 4", SHARE),
            ("with_gzip_10_ms", "with gzip, 10 ms", SHARE),
            ("inbound", "to the site", SHARE),
            ("outbound", "from the site", SHARE),
            ("optimal", "at most", SHARE),
        ],
    );
    for site in &result.sites {
        let mut row: Vec<Value> = vec![site.name.clone().into(), site.hosts.into(), site.bytes.into()];
        row.extend([site.gzip, site.gzip_10_ms].map(Value::from));
        row.extend(Method::ALL.map(|method| Value::from(site.saved[method.name()])));
        row.extend([site.larger_cache, site.with_gzip_10_ms].map(Value::from));
        row.extend(["inbound", "outbound"].map(|way| Value::from(site.by_way[way])));
        row.push(site.optimal.into());
        table.push(row);
    }
    table
}

/// The differences between sites, the largest first, for the page.
pub(super) fn sites_in_short(result: &RedundancyResult) -> Dataset {
    let mut table = Dataset::new(
        "redundancy_sites_in_short",
        &[
            ("site", "site", TEXT),
            ("bytes", "bytes", COUNT),
            ("saved", "saved", SHARE),
            ("optimal", "at most", SHARE),
            ("gzip_10_ms", "gzip alone", SHARE),
            ("with_gzip_10_ms", "with gzip", SHARE),
        ],
    );
    let mut sites: Vec<_> = result.sites.iter().filter(|site| site.bytes > 0).collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.bytes));
    for site in sites {
        let saved = site.saved[result.settings.method];
        let mut row: Vec<Value> = vec![site.name.clone().into(), site.bytes.into()];
        row.extend([saved, site.optimal, site.gzip_10_ms, site.with_gzip_10_ms].map(Value::from));
        table.push(row);
    }
    table
}

fn end_hosts(result: &RedundancyResult) -> Dataset {
    let number = ColumnKind::Number(6);
    let columns = [("hosts", "hosts", TEXT), ("megabytes", "up to megabytes", number), ("share", "of hosts", SHARE)];
    let mut table = Dataset::new("redundancy_end_hosts", &columns);
    let hosts = &result.end_hosts;
    for (name, memory) in [("clients", &hosts.clients), ("servers", &hosts.servers)] {
        memory.megabytes.iter().for_each(|step| table.push(vec![name.into(), step.to.into(), step.share.into()]));
    }
    table
}

pub(super) fn protocols(result: &RedundancyResult) -> Dataset {
    let mut table = Dataset::new(
        "redundancy_protocols",
        &[
            ("protocol", "protocol", TEXT),
            ("bytes", "bytes", COUNT),
            ("share", "of all bytes", SHARE),
            ("saved", "saved of them", SHARE),
            ("share_of_saved", "of all that is saved", SHARE),
        ],
    );
    for row in &result.by_protocol {
        let figures = [row.share, row.saved, row.share_of_saved].map(Value::from);
        table.push([vec![row.protocol.clone().into(), row.bytes.into()], figures.into()].concat());
    }
    table
}

pub(super) fn http(http: &Http) -> Dataset {
    let mut table = Dataset::new("redundancy_http", &[("way", "HTTP's bytes", TEXT), ("saved", "saved", SHARE)]);
    for (way, saved) in [
        ("objects by gzip, one by one", http.saved_by_object_gzip),
        ("objects by zstd, one by one", http.saved_by_object_zstd),
        ("redundancy elimination", http.saved),
        ("redundancy elimination, then gzip over 10 ms", http.saved_with_gzip_10_ms),
    ] {
        table.push(vec![way.into(), saved.into()]);
    }
    table
}

fn origins(result: &RedundancyResult) -> Dataset {
    let mut table = Dataset::new(
        "redundancy_origins",
        &[("origin", "origin", TEXT), ("found_in", "found in", SHARE), ("first_sent", "first sent by", SHARE)],
    );
    for origin in Origin::ALL.map(Origin::name) {
        let origins = &result.origins;
        table.push(vec![origin.into(), origins.shares[origin].into(), origins.first_sent[origin].into()]);
    }
    table
}

fn lengths(result: &RedundancyResult) -> Dataset {
    let columns =
        [("to_bytes", "up to bytes", COUNT), ("matches", "of matches", SHARE), ("saved", "of what is saved", SHARE)];
    let mut table = Dataset::new("redundancy_match_lengths", &columns);
    let lengths = &result.match_lengths;
    for (matches, saved) in lengths.of_matches.iter().zip(&lengths.of_saved) {
        table.push(vec![(matches.to as u64).into(), matches.share.into(), saved.share.into()]);
    }
    table
}

fn distributions(result: &RedundancyResult) -> Dataset {
    let number = ColumnKind::Number(6);
    let mut table = Dataset::new(
        "redundancy_distributions",
        &[("of", "distribution", TEXT), ("to", "up to", number), ("share", "share", SHARE)],
    );
    for (name, steps) in [
        ("distance_share_of_cache", &result.distances),
        ("age_seconds", &result.ages),
        ("chunk_lifetime_seconds", &result.chunk_lifetimes),
        ("contribution_share_of_chunks", &result.hits.contributions),
    ] {
        steps.iter().for_each(|step| table.push(vec![name.into(), step.to.into(), step.share.into()]));
    }
    table
}

fn caches(result: &RedundancyResult) -> Dataset {
    let columns = [("cache_bytes", "cache in bytes", COUNT), ("protocol", "protocol", TEXT), ("saved", "saved", SHARE)];
    let mut table = Dataset::new("redundancy_cache_sizes", &columns);
    for row in &result.cache_sizes {
        let bytes = row.cache_bytes as u64;
        table.push(vec![bytes.into(), "all".into(), row.saved.into()]);
        for (protocol, saved) in &row.by_protocol {
            table.push(vec![bytes.into(), protocol.clone().into(), (*saved).into()]);
        }
    }
    table
}

fn periods(result: &RedundancyResult) -> Dataset {
    let columns = [("period_bytes", "period in bytes", COUNT), ("method", "method", TEXT), ("saved", "saved", SHARE)];
    let mut table = Dataset::new("redundancy_periods", &columns);
    for row in &result.periods {
        for (method, saved) in &row.saved {
            table.push(vec![(row.period_bytes as u64).into(), (*method).into(), (*saved).into()]);
        }
    }
    table
}

fn windows(result: &RedundancyResult) -> Dataset {
    let columns = [("window_bytes", "window in bytes", COUNT), ("method", "method", TEXT), ("saved", "saved", SHARE)];
    let mut table = Dataset::new("redundancy_windows", &columns);
    for row in &result.windows {
        let saved = row.saved.iter().map(|(method, saved)| (*method, *saved));
        for (method, saved) in saved.chain(row.optimal.map(|optimal| ("at most", optimal))) {
            table.push(vec![(row.window_bytes as u64).into(), method.into(), saved.into()]);
        }
    }
    table
}

fn ranks(result: &RedundancyResult) -> Dataset {
    let mut table = Dataset::new("redundancy_hits", &[("rank", "rank", COUNT), ("hits", "hits", COUNT)]);
    result.hits.by_rank.iter().for_each(|row| table.push(row.map(Value::from).into()));
    table
}

fn volume(result: &RedundancyResult) -> Dataset {
    let number = ColumnKind::Number(6);
    let columns = [
        ("way", "way", TEXT),
        ("seconds", "seconds", COUNT),
        ("mbit_per_s", "Mbit/s", number),
        ("mbit_per_s_sent", "Mbit/s sent", number),
    ];
    let mut table = Dataset::new("redundancy_volume", &columns);
    for (way, of) in result.over_time.iter().flat_map(|over_time| &over_time.ways) {
        for at in &of.volume {
            table.push(vec![(*way).into(), at.seconds.into(), at.mbit_per_s.into(), at.mbit_per_s_sent.into()]);
        }
    }
    table
}

fn usage(result: &RedundancyResult) -> Dataset {
    let mut table = Dataset::new(
        "redundancy_usage_saved",
        &[
            ("way", "way", TEXT),
            ("bucket_seconds", "usage over seconds", COUNT),
            ("mean", "mean", SHARE),
            ("median", "median", SHARE),
            ("percentile_95", "95th percentile", SHARE),
            ("peak", "peak", SHARE),
        ],
    );
    for (way, of) in result.over_time.iter().flat_map(|over_time| &over_time.ways) {
        for saved in &of.usage_saved {
            let figures = [saved.mean, saved.median, saved.percentile_95, saved.peak].map(Value::from);
            table.push([vec![(*way).into(), saved.bucket_seconds.into()], figures.into()].concat());
        }
    }
    table
}

fn energy(result: &RedundancyResult) -> Dataset {
    let number = ColumnKind::Number(6);
    let columns = [
        ("way", "way", TEXT),
        ("seconds", "scale in seconds", number),
        ("log2_energy", "as it is", number),
        ("log2_energy_sent", "with redundancy elimination", number),
        ("log2_energy_uniform", "if all shrank alike", number),
    ];
    let mut table = Dataset::new("redundancy_energy", &columns);
    for (way, of) in result.over_time.iter().flat_map(|over_time| &over_time.ways) {
        for at in &of.energy {
            let figures: [Value; 2] = [at.log2_energy_sent, at.log2_energy_uniform].map(Value::from);
            table.push([vec![(*way).into(), at.seconds.into(), at.log2_energy.into()], figures.into()].concat());
        }
    }
    table
}

pub(super) fn skipped(result: &RedundancyResult) -> Dataset {
    let mut table = Dataset::new(
        "redundancy_skipped",
        &[
            ("what", "what", TEXT),
            ("packets", "packets", COUNT),
            ("share", "of studied bytes", SHARE),
            ("saved", "saved of them", SHARE),
        ],
    );
    for (reason, frames) in &result.skipped.frames {
        table.push(vec![reason_in_words(reason).into(), (*frames).into(), Value::Missing, Value::Missing]);
    }
    for (name, part) in [
        ("encrypted, by port", &result.skipped.encrypted_by_port),
        ("encrypted or compressed, by entropy", &result.skipped.encrypted_by_entropy),
    ] {
        table.push(vec![name.into(), part.packets.into(), part.share.into(), part.saved.into()]);
    }
    table
}

fn reason_in_words(reason: &str) -> String {
    use crate::redundancy_study::source::TRUNCATED;
    use crate::trace::Skip;
    match Skip::ALL.into_iter().find(|skip| skip.label() == reason) {
        Some(skip) => format!("not studied: {}", skip.describe()),
        None if reason == TRUNCATED => "not studied: payload cut off by the capture".to_owned(),
        None => format!("not studied: {reason}"),
    }
}
