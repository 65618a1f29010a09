//! The result as a page for people: what would I save, where, with which cache.

mod in_short;
mod plots;
mod tables;
mod words;

use self::plots as plot;
pub use self::tables::tables;
use self::words::{base, percent, size};
use super::result::{EndHosts, HostMemory, RedundancyResult};
use crate::report::{Block, Report, Section, Tile, short};

/// The page.
#[must_use]
pub fn report(result: &RedundancyResult, footer: String) -> Report {
    let sections = [
        in_short::section(result),
        savings(result),
        cache(result),
        protocols(result),
        origins(result),
        matches(result),
        hits(result),
        over_time(result),
        end_hosts(result),
        parameters(result),
        skipped(result),
    ];
    Report {
        subject: "Mainstay study redundancy".to_owned(),
        title: title(result),
        summary: summary(result),
        tiles: tiles(result),
        sections: sections.into_iter().filter(|section| !section.blocks.is_empty()).collect(),
        footer,
    }
}

/// A length of time in the usual unit.
#[must_use]
pub fn lasting(seconds: f64) -> String {
    let units = [(365.25 * 86_400.0, "years"), (86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")];
    let (length, unit) = units.into_iter().find(|(length, _)| seconds >= 2.0 * length).unwrap_or((1.0, "seconds"));
    format!("{} {unit}", short(seconds / length))
}

fn title(result: &RedundancyResult) -> String {
    format!("Redundancy elimination would save {} of this traffic", percent(base(result)))
}

fn summary(result: &RedundancyResult) -> String {
    let (traffic, settings) = (&result.traffic, &result.settings);
    let captures =
        if result.sites.len() == 1 { "one site".to_owned() } else { format!("{} sites", result.sites.len()) };
    format!(
        "Studied were {} bytes in {} packets of {captures}, {} to it and {} from it, over {}{}. Unless said otherwise it is {} \
         with Max-Match, w = {}, p = {} and a cache of {} for each way. What is saved is a share of all bytes on the wire from \
         the IP header on; headers, shims and pointers are paid.",
        short(traffic.bytes as f64),
        short(traffic.packets as f64),
        short(traffic.bytes_by_way["inbound"] as f64),
        short(traffic.bytes_by_way["outbound"] as f64),
        lasting(traffic.seconds),
        if result.sites.len() > 1 { " (the longest)" } else { "" },
        settings.method.to_uppercase(),
        settings.window_bytes,
        settings.period_bytes,
        size(settings.cache_bytes),
    )
}

fn tile(name: &str, value: String, beside: String) -> Tile {
    Tile { name: name.to_owned(), value, beside }
}

fn tiles(result: &RedundancyResult) -> Vec<Tile> {
    let mut tiles = vec![tile(
        "saved",
        percent(base(result)),
        result.optimal.map_or(String::new(), |optimal| {
            format!("{} could be at most, of what repeats between packets", percent(optimal))
        }),
    )];
    for (way, name) in [("inbound", "to the site"), ("outbound", "from the site")] {
        if result.traffic.bytes_by_way[way] > 0 {
            tiles.push(tile(&format!("saved {name}"), percent(result.saved_by_way[way]), String::new()));
        }
    }
    if let Some(cache) = result.cache_enough_bytes {
        tiles.push(tile("cache that is enough", size(cache), "saves nine tenths of what the largest does".to_owned()));
    }
    let after = result.combined.iter().find(|row| row.method.is_some() && row.library == "gzip");
    if let Some(after) = after {
        tiles.push(tile("with gzip after it", percent(after.gathered_10_ms), "packets of 10 ms together".to_owned()));
    }
    tiles
}

fn section(heading: &str, blocks: Vec<Block>) -> Section {
    Section { heading: heading.to_owned(), blocks }
}

fn text(text: String) -> Block {
    Block::Text(text)
}

fn note(text: &str) -> Block {
    Block::Note(text.to_owned())
}

fn savings(result: &RedundancyResult) -> Section {
    let traffic = &result.traffic;
    let mut blocks = vec![Block::Plot(plot::methods(result)), Block::Table(tables::methods(result))];
    if traffic.saved_of_retransmissions > 0.0 {
        blocks.push(text(format!(
            "Of this, {} is retransmissions: bytes that the same flow had sent before. Between two gateways they are only saved once \
             the first copy is known to have arrived.",
            percent(traffic.saved_of_retransmissions)
        )));
    }
    if result.within_packets.matches > 0 {
        blocks.push(text(format!(
            "{} of all bytes repeat within their own packet and are saved by pointers into it. What could be at most counts only what \
             repeats between packets; with what repeats within them it is {}.",
            percent(result.within_packets.saved),
            result.optimal_with_own.map_or("not known".to_owned(), percent),
        )));
    }
    if let Some(trained) = &result.trained {
        blocks.push(text(format!(
            "SAMPLEBYTE with a table trained on the first 2 MB of each way would save {}.",
            percent(trained.saved)
        )));
    }
    if !result.combined.is_empty() {
        blocks.push(Block::Heading("With compression".to_owned()));
        blocks.push(Block::Table(tables::combined(result)));
        blocks.push(note(
            "A library removes what repeats within a packet, or within the packets of 10 ms; redundancy elimination what repeats \
             between packets. What does not become smaller goes as it is.",
        ));
    }
    if result.sites.len() > 1 {
        blocks.push(Block::Heading("By site".to_owned()));
        blocks.push(Block::Table(tables::sites_in_short(result)));
        let empty = result.sites.iter().filter(|site| site.bytes == 0).count();
        if empty > 0 {
            blocks
                .push(note(&format!("{empty} more had nothing in them that could be studied: see what was skipped.")));
        }
        blocks.push(Block::Folded("All figures of each site".to_owned(), tables::sites(result)));
    }
    section("What would be saved", blocks)
}

fn cache(result: &RedundancyResult) -> Section {
    let Some((first, last)) = result.cache_sizes.first().zip(result.cache_sizes.last()) else {
        return section("With which cache", Vec::new());
    };
    let mut blocks = Vec::new();
    if let Some(enough) = result.cache_enough_bytes {
        blocks.push(text(format!(
            "From {} to {} savings go from {} to {}; {} are enough for nine tenths of that.",
            size(first.cache_bytes),
            size(last.cache_bytes),
            percent(first.saved),
            percent(last.saved),
            size(enough),
        )));
    }
    blocks.push(Block::Plot(plot::caches(result)));
    blocks.push(note("Sizes beyond twice the captures' are not tried: such a cache holds all of them."));
    blocks.push(Block::Plot(plot::distances(result)));
    blocks.push(Block::Plot(plot::ages(result)));
    section("With which cache", blocks)
}

fn protocols(result: &RedundancyResult) -> Section {
    let mut blocks = vec![Block::Table(tables::protocols(result))];
    if let Some(http) = &result.http {
        blocks.push(Block::Heading("HTTP: objects compressed one by one, or packets".to_owned()));
        blocks.push(Block::Table(tables::http(http)));
        blocks.push(text(format!(
            "{} objects came whole, {} bytes, {} of which servers had compressed already; {} objects are not whole in the captures. \
             Compressing objects is taken at its best: a server would have to have each whole before it sends its first byte.",
            short(http.objects as f64),
            short(http.object_bytes as f64),
            short(http.compressed_already_bytes as f64),
            short(http.objects_lost as f64),
        )));
    }
    section("In which protocols", blocks)
}

fn origins(result: &RedundancyResult) -> Section {
    if result.match_lengths.matches == 0 {
        return section("Where it comes from", Vec::new());
    }
    let origins = &result.origins;
    let end_to_end = origins.shares["intra_flow"] + origins.shares["inter_flow"];
    let blocks = vec![
        text(format!(
            "{} of what matches save was found between the same two hosts: so much could be saved end to end, without a gateway. {} \
             had the same source port too. Retransmissions are {}.",
            percent(end_to_end),
            percent(origins.same_source_port),
            percent(origins.retransmitted),
        )),
        Block::Plot(plot::origins(result)),
        note(
            "Found in: what the packet and the one whose copy was found, the latest, have in common. First sent by: the one that \
             had sent the bytes when they were found the first time.",
        ),
    ];
    section("Where it comes from", blocks)
}

fn matches(result: &RedundancyResult) -> Section {
    let lengths = &result.match_lengths;
    if lengths.matches == 0 {
        return section("How long matches are", Vec::new());
    }
    let blocks = vec![
        text(format!(
            "{} of {} matches are of at most 150 bytes, and save {} of what is saved; {} are of whole payloads, and save {}.",
            percent(lengths.to_150_bytes.matches),
            short(lengths.matches as f64),
            percent(lengths.to_150_bytes.saved),
            percent(lengths.whole_payload.matches),
            percent(lengths.whole_payload.saved),
        )),
        Block::Plot(plot::lengths(result)),
    ];
    section("How long matches are", blocks)
}

fn hits(result: &RedundancyResult) -> Section {
    let hits = &result.hits;
    if hits.chunks == 0 {
        return section("How often chunks are found", Vec::new());
    }
    let law = match result.zipf_alpha {
        Some(alpha) => format!("The bulk of them follows a power of {alpha:.2} of the rank (Zipf's law has -1)."),
        None => "There are too few that were found more than once to fit a law.".to_owned(),
    };
    let blocks = vec![
        text(format!(
            "{} chunks were found at least once more. {law} The fifth of them that saves most saves {} of what is saved.",
            short(hits.chunks as f64),
            percent(hits.saved_by_top_fifth),
        )),
        Block::Plot(plot::ranks(result)),
        Block::Plot(plot::contributions(result)),
        Block::Plot(plot::lifetimes(result)),
    ];
    section("How often chunks are found", blocks)
}

fn over_time(result: &RedundancyResult) -> Section {
    let Some(over_time) = &result.over_time else { return section("Over time", Vec::new()) };
    let mut blocks = Vec::new();
    if result.sites.len() > 1 {
        blocks.push(text(format!("Of the site with most bytes, {}.", over_time.site)));
    }
    for (way, of) in &over_time.ways {
        blocks.push(Block::Plot(plot::volume(way, of)));
        if !of.usage_saved.is_empty() {
            blocks.push(Block::Plot(plot::usage(way, of)));
        }
        if of.energy.len() > 1 {
            blocks.push(Block::Plot(plot::energy(way, of)));
        }
    }
    section("Over time", blocks)
}

fn end_hosts(result: &RedundancyResult) -> Section {
    let EndHosts { pairs, packets_left_out, clients, servers } = &result.end_hosts;
    if *pairs == 0 {
        return section("Without gateways", Vec::new());
    }
    let needs = |hosts: &HostMemory| {
        let sizes = [hosts.median_bytes, hosts.percentile_99_bytes, hosts.most_bytes].map(|bytes| size(bytes as usize));
        let [median, percentile_99, most] = sizes;
        format!("half of them {median} at most, 99 in 100 {percentile_99}, none more than {most}")
    };
    let mut blocks = vec![
        text(format!(
            "Had clients and servers caches of their own, one for each of {} pairs: {} clients would need memory for them, {}; {} \
             servers, {}, and an eighth more for Max-Match's index. With Chunk-Match a server needs three eighths of it, and no cache.",
            short(*pairs as f64),
            short(clients.hosts as f64),
            needs(clients),
            short(servers.hosts as f64),
            needs(servers),
        )),
        Block::Plot(plot::end_hosts(result)),
        note(
            "As in the paper: 10 MB for a pair that uses HTTP, 4 MB for SMB, 1 MB for other protocols; filled by what the server sends, let \
             go after ten hours of silence.",
        ),
    ];
    if *packets_left_out > 0 {
        blocks.push(note("There were more pairs than are followed: these needs are those of the first."));
    }
    section("Without gateways", blocks)
}

fn parameters(result: &RedundancyResult) -> Section {
    let mut blocks = Vec::new();
    if !result.periods.is_empty() {
        blocks.push(Block::Plot(plot::periods(result)));
    }
    if !result.windows.is_empty() {
        blocks.push(Block::Plot(plot::windows(result)));
    }
    section("With other parameters", blocks)
}

fn skipped(result: &RedundancyResult) -> Section {
    let mut blocks = vec![Block::Table(tables::skipped(result))];
    let encrypted = if result.settings.skips_encrypted { "left out of the caches" } else { "studied as all else" };
    blocks.push(text(format!(
        "Encrypted packets were {encrypted}. Those by entropy are of other ports, and spread as evenly as chance would: encrypted, or \
         compressed well."
    )));
    blocks.extend(result.skipped.damaged.iter().map(|damaged| text(format!("Damaged: {damaged}."))));
    if !result.left_out.is_empty() {
        blocks.push(text(format!(
            "Left out, because it does not fit the memory that was allowed: {}.",
            result.left_out.join("; ")
        )));
    }
    section("What was skipped", blocks)
}
