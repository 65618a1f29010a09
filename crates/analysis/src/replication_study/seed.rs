//! The paper's figures beside ours (MLCBF: sections 2.1.4, 2.2.3, 4.1, 4.2).

use super::config::{Method, StudyConfig};
use super::outcome::{Cost, Outcome, SeedRow, UrlMembership, UrlStructure};

/// Connections a second, and what a flow digest saves there: one million connections in 4 Mbit, sent every five seconds
/// and every 30 (section 2.1.4; for the latter it has 91 to 99 %).
const FLOW_DIGEST: [(f64, [f64; 2]); 4] =
    [(5_000.0, [0.46, 0.91]), (10_000.0, [0.73, 0.955]), (20_000.0, [0.86, 0.98]), (90_000.0, [0.97, 0.99])];
const FLOW_DIGEST_INTERVALS_S: [f64; 2] = [5.0, 30.0];
/// How near a rate must be to one of these.
const RATE_TOLERANCE: f64 = 0.1;
/// Messages of a connection that the paper's simulation sends by value, and their bytes.
const MESSAGES_PER_CONNECTION: u64 = 3;
const MESSAGE_BYTES: u64 = 13;

const PERIODS: &str = "a digest that is sent every few seconds never has connections that come and go in between, so that waiting saves little more; the paper sends every change";
const OTHER_TRAFFIC: &str =
    "other traffic: the paper's traces are of 2001 to 2004 and not to be had; lifetimes and one-way shares decide this";
const BARE: &str = "the paper has 5 bytes for each change and sends each by itself; here a changed word and its position take 5 to 8, and changes of     one connection within a batch become one";
const CELLS: &str =
    "as there 4 words for each change, but those that change several times within a batch are sent once";
const DATAGRAMS: &str = "headers of datagrams on one side alone; where few changes share a datagram they decide (a longer --batch-ms shows it)";

/// Every figure of the paper that this outcome has a counterpart of.
pub(super) fn compare(config: &StudyConfig, outcome: &Outcome) -> Vec<SeedRow> {
    let mut rows = Vec::new();
    flow_digest(config, outcome, &mut rows);
    state_replication(outcome, &mut rows);
    thresholds(outcome, &mut rows);
    overheads(outcome, &mut rows);
    one_way(outcome, &mut rows);
    urls(outcome, &mut rows);
    rows.retain(|row| row.here.is_some());
    rows
}

fn row(rows: &mut Vec<SeedRow>, what: impl Into<String>, seed: f64, here: Option<f64>, reason: &'static str) {
    rows.push(SeedRow { what: what.into(), seed, here, reason });
}

fn at(outcome: &Outcome, method: Method, threshold_ms: u32) -> Option<&Cost> {
    outcome.methods.get(method.name())?.by_threshold.iter().find(|cost| cost.threshold_ms == threshold_ms)
}

fn flow_digest(config: &StudyConfig, outcome: &Outcome, rows: &mut Vec<SeedRow>) {
    let is_alike = |of: f64, value: f64| (value / of - 1.0).abs() <= RATE_TOLERANCE;
    let Some(interval_s) = config.digest_interval_s else { return };
    let interval = FLOW_DIGEST_INTERVALS_S.into_iter().position(|of| is_alike(of, interval_s));
    let rate = outcome.traffic.connections_per_second;
    let near = FLOW_DIGEST.into_iter().find(|(of, _)| is_alike(*of, rate));
    let (Some((of, seed)), Some(interval), Some(cost)) = (near, interval, at(outcome, Method::FlowDigest, 0)) else {
        return;
    };
    if config.connections_max < 900_000 {
        return;
    }
    let (seed, every_s) = (seed[interval], FLOW_DIGEST_INTERVALS_S[interval]);
    // The rate is steady, so messages of as many connections are sent in any time.
    let precise = outcome.traffic.connections * MESSAGES_PER_CONNECTION * MESSAGE_BYTES;
    let saved = |bytes: f64| (precise > 0).then(|| 1.0 - bytes / precise as f64);
    let whole = outcome.traffic.busy_s / interval_s * cost.filter_bytes as f64;
    row(
        rows,
        format!(
            "a digest sent whole every {every_s:.0} s saves, at {of:.0} connections a second, of messages of 13 bytes, neither with headers"
        ),
        seed,
        saved(whole),
        "by definition the same, if the digest has 4 bits a connection; the rate is that of the traffic as it came",
    );
    let reason =
        "with the headers of real datagrams; and where that is less, changes are sent and not the whole digest";
    row(rows, "the same as it is sent here", seed, saved(cost.bytes as f64), reason);
    let reason = "the messages that it replaces are real ones here, of about 100 bytes, not 13";
    row(rows, "the same, of precise-selective messages as they are", seed, cost.reduction, reason);
}

fn state_replication(outcome: &Outcome, rows: &mut Vec<SeedRow>) {
    let bare = |method: Method| at(outcome, method, 0).and_then(|cost| cost.reduction_without_headers);
    let saves = |method: Method| at(outcome, method, 0).and_then(|cost| cost.reduction_from_13_bytes);
    for (what, method, seed, reason) in [
        ("FA(4,8) saves of state messages of 13 bytes, neither with headers", Method::MultiLevelFa, 0.6154, BARE),
        ("the same with symbol replacement", Method::MultiLevelFaSymbols, 0.7123, BARE),
        ("a counting Bloom filter of states (it costs more there)", Method::CountingBloom, -0.1514, CELLS),
        ("FA(4,8) of established connections alone (60 to 62 %)", Method::MultiLevelFaEstablished, 0.6154, BARE),
        ("a flow digest (7.9 to 8.4 %, sent in increments of 32 bits)", Method::FlowDigest, 0.08, PERIODS),
    ] {
        row(rows, what, seed, bare(method), reason);
    }
    for (what, method, seed) in [
        (
            "FA(4,8) with the headers of its datagrams, of messages of 13 bytes without any",
            Method::MultiLevelFa,
            0.6154,
        ),
        ("the same with symbol replacement", Method::MultiLevelFaSymbols, 0.7123),
    ] {
        row(rows, what, seed, saves(method), DATAGRAMS);
    }
    let against_real = |method: Method| at(outcome, method, 0).and_then(|cost| cost.reduction);
    let reason = "against the precise-selective messages that a node really sends, both with all headers; these have fewer changes than the filter";
    row(rows, "FA(4,8) saves of precise-selective messages", 0.6154, against_real(Method::MultiLevelFa), reason);
    row(rows, "the same with symbol replacement", 0.7123, against_real(Method::MultiLevelFaSymbols), reason);
    let false_positives = at(outcome, Method::MultiLevelFa, 0).and_then(|cost| cost.false_positive);
    let reason = "a fingerprint has 23 bits here and 20 there; fewer than one in a probe cannot be seen";
    row(rows, "FA(4,8), false positives", 8e-6, false_positives, reason);
}

fn thresholds(outcome: &Outcome, rows: &mut Vec<SeedRow>) {
    let saves = |method, threshold_ms| at(outcome, method, threshold_ms).and_then(|cost| cost.reduction_by_threshold);
    for (what, method, threshold_ms, seed) in [
        ("precise-selective from 50 ms on saves (17 to 28 %)", Method::PreciseSelective, 50, 0.278),
        ("a flow digest from 50 ms on saves (0.05 to 6.3 %)", Method::FlowDigest, 50, 0.063),
        ("a flow digest from 500 ms on saves (IPLS-3)", Method::FlowDigest, 500, 0.744),
        ("a flow digest from 2 s on saves (IPLS-3)", Method::FlowDigest, 2000, 0.889),
        ("FA(4,8) from 50 ms on saves (IPLS-3)", Method::MultiLevelFa, 50, 0.3511),
        ("FA(4,8) from 200 ms on saves (IPLS-3)", Method::MultiLevelFa, 200, 0.5321),
        ("FA(4,8) from 650 ms on saves (IPLS-3)", Method::MultiLevelFa, 650, 0.7525),
        ("FA(4,8) from 2 s on saves (IPLS-3)", Method::MultiLevelFa, 2000, 0.7852),
        (
            "FA(4,8) of established connections from 500 ms on saves (IPLS-3)",
            Method::MultiLevelFaEstablished,
            500,
            0.9595,
        ),
    ] {
        let reason = if method == Method::FlowDigest { PERIODS } else { OTHER_TRAFFIC };
        row(rows, what, seed, saves(method, threshold_ms), reason);
    }
    let entries = |method, threshold_ms| at(outcome, method, threshold_ms).map(|cost| cost.entries_at_backup as f64);
    let fewer = |method, threshold_ms| {
        let (then, all) = (entries(method, threshold_ms)?, entries(method, 0)?);
        (all > 0.0).then(|| 1.0 - then / all)
    };
    row(
        rows,
        "fewer entries at the backup from 50 ms on (figure 12)",
        0.306,
        fewer(Method::PreciseSelective, 50),
        OTHER_TRAFFIC,
    );
    row(
        rows,
        "fewer entries at the backup from 2 s on (figure 12)",
        0.458,
        fewer(Method::PreciseSelective, 2000),
        OTHER_TRAFFIC,
    );
    let of_hosts =
        || Some(entries(Method::HostAggregate, 50)? / entries(Method::PreciseSelective, 50).filter(|all| *all > 0.0)?);
    row(rows, "pairs of hosts, of the entries of connections, from 50 ms on", 0.143, of_hosts(), OTHER_TRAFFIC);
    let excluded = |threshold_ms| {
        let shares =
            |threshold_ms| at(outcome, Method::PreciseSelective, threshold_ms).and_then(|cost| cost.protected_share);
        Some(shares(0)? - shares(threshold_ms)?)
    };
    row(rows, "bytes that are not protected from 500 ms on (IPLS-3)", 0.034, excluded(500), OTHER_TRAFFIC);
}

fn overheads(outcome: &Outcome, rows: &mut Vec<SeedRow>) {
    let eager = at(outcome, Method::PreciseEager, 0).map(|cost| cost.bytes as f64).filter(|bytes| *bytes > 0.0);
    let of_eager = |method| Some(at(outcome, method, 0)?.bytes as f64 / eager?);
    let reason = "the paper's eager messages are of every packet; ours of what another node needs, so that selective ones are not so much fewer";
    row(rows, "precise-selective, of eager's overhead (IPLS-1)", 0.079, of_eager(Method::PreciseSelective), reason);
    row(rows, "flow digest, of eager's overhead (IPLS-1)", 0.024, of_eager(Method::FlowDigest), reason);
    row(rows, "host aggregate, of eager's overhead (IPLS-1)", 0.033, of_eager(Method::HostAggregate), reason);
    let digest = at(outcome, Method::FlowDigest, 500).and_then(|cost| cost.overhead);
    let less_than = |method| Some(1.0 - digest? / at(outcome, method, 500)?.overhead.filter(|share| *share > 0.0)?);
    for (what, method, seed) in [
        ("overhead from 500 ms on, flow digest less than eager (IPLS-3)", Method::PreciseEager, 0.995),
        ("the same, less than selective", Method::PreciseSelective, 0.798),
        ("the same, less than host aggregate", Method::HostAggregate, 0.229),
    ] {
        row(
            rows,
            what,
            seed,
            less_than(method),
            "messages there have 32, 16 and 16 bytes, a change of the digest 4; here they are real ones",
        );
    }
}

fn one_way(outcome: &Outcome, rows: &mut Vec<SeedRow>) {
    let here = (outcome.traffic.connections > 0).then_some(outcome.traffic.one_way_share);
    row(rows, "connections that were never answered (IPLS-3: 39.2 % end in SYN_SENT)", 0.392, here, OTHER_TRAFFIC);
}

fn urls(outcome: &Outcome, rows: &mut Vec<SeedRow>) {
    let Some(urls) = &outcome.urls else { return };
    let all = urls.requested_bytes as f64;
    let of = |name: &str, bytes: fn(&UrlStructure) -> u64| {
        urls.structures.get(name).map(|found| 1.0 - bytes(found) as f64 / all)
    };
    let (memory, network) = (|found: &UrlStructure| found.memory_bytes, |found: &UrlStructure| found.network_bytes);
    let reason = "how long URLs are and how many requests ask for one again decide this; the paper has 55 to 59 bytes and 1.6 to 2 requests";
    row(
        rows,
        "FA(4,8), memory saved for categories, of all requests' URLs",
        0.907,
        of("multi-level-fa", memory),
        reason,
    );
    row(rows, "FA(4,8), bandwidth saved for categories", 0.937, of("multi-level-fa", network), reason);
    let reason = "the paper's cells have 8 bits; ours a counter of 4 and a state of 12, so that they can be emptied, and changed words are sent whole";
    row(rows, "counting Bloom filter, memory saved for categories", 0.826, of("counting-bloom", memory), reason);
    row(rows, "counting Bloom filter, bandwidth saved for categories", 0.834, of("counting-bloom", network), reason);
    let rate = |name: &str, share: fn(&UrlStructure) -> f64| urls.structures.get(name).map(share);
    let reason = "chance: a fingerprint has 20 bits on both sides";
    row(
        rows,
        "FA(4,8), URLs of no category taken for one (0.0003 to 0.0012 %)",
        7.5e-6,
        rate("multi-level-fa", |found| found.false_positive),
        reason,
    );
    row(
        rows,
        "FA(4,8), categories mistaken (below 0.0014 %)",
        1.4e-5,
        rate("multi-level-fa", |found| found.inaccurate_state),
        reason,
    );
    let reason = "the paper's ten cells are for each request, ours too, of which fewer are of different URLs";
    row(
        rows,
        "counting Bloom filter, URLs of no category taken for one",
        0.006_37,
        rate("counting-bloom", |found| found.false_positive),
        reason,
    );
    row(
        rows,
        "counting Bloom filter, categories mistaken",
        0.1496,
        rate("counting-bloom", |found| found.inaccurate_state),
        reason,
    );
    let of = |name: &str| urls.membership.get(name);
    let reason =
        "URLs' length, and how many requests ask for one again, decide this; sent as four bytes for each changed bit";
    let saved = |bytes: u64| 1.0 - bytes as f64 / all;
    let cache = of("summary-cache-10");
    row(
        rows,
        "Summary Cache (load factor 10), memory saved for URLs (81.9 to 88.9 %)",
        0.854,
        cache.map(|it| saved(it.memory_bytes)),
        reason,
    );
    row(
        rows,
        "Summary Cache (load factor 10), bandwidth saved for URLs (81.9 to 88.9 %)",
        0.854,
        cache.map(|it| saved(it.flips_bytes)),
        reason,
    );
    let reason = "chance: four of ten bits for each request";
    row(
        rows,
        "Summary Cache (load factor 10), URLs taken for present (0.0263 %)",
        0.000_263,
        cache.map(|it| it.false_positive),
        reason,
    );
    let beside = |name: &str, bytes: fn(&UrlMembership) -> u64| {
        let levels = of("multi-level-fa").map(bytes).filter(|bytes| *bytes > 0)?;
        Some(bytes(of(name)?) as f64 / levels as f64)
    };
    let reason = "changed cells are encoded shorter than in the paper's messages";
    row(
        rows,
        "Summary Cache (load factor 10), bytes sent, times FA's",
        2.416,
        beside("summary-cache-10", |it| it.flips_bytes),
        reason,
    );
    row(
        rows,
        "Summary Cache (load factor 40), bytes sent, times FA's",
        2.32,
        beside("summary-cache-40", |it| it.flips_bytes),
        reason,
    );
    let reason = "a cell has 32 bits here, with the category";
    row(
        rows,
        "Summary Cache (load factor 40), memory, times FA's",
        7.4,
        beside("summary-cache-40", |it| it.memory_bytes),
        reason,
    );
}
