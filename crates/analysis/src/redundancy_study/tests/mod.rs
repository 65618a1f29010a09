//! Traffic whose redundancy is known, and what the study finds in it.

mod interrupted;
mod made;
mod synthesised;

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use self::made::{Made, MadeSource, random};
use super::*;

fn options() -> Options {
    Options { cache_bytes: 1 << 20, threads: NonZeroUsize::new(2).expect("two"), is_quick: true, ..Options::default() }
}

fn site(name: &str) -> Site {
    Site::of(vec![name.into()])
}

fn study_with(
    options: &Options,
    sites: &[Site],
    state: &mut State,
    made: impl Fn(&Site) -> Made + Sync,
) -> RedundancyResult {
    let open = |site: &Site| Ok(Box::new(MadeSource::new(made(site))) as Box<dyn Source>);
    let watch = Watch { progress: &|_| {}, stop: &AtomicBool::new(false) };
    let left_out = run(sites, options, state, &open, &watch).expect("nothing stops it");
    RedundancyResult::new(sites, options, state, &left_out)
}

fn study(made: impl Fn(&Site) -> Made + Sync) -> RedundancyResult {
    study_with(&options(), &[site("made")], &mut State::in_memory(), made)
}

const SERVER: &str = "198.51.100.1:80";
const CLIENT: &str = "10.0.0.1:40000";

/// Packets of 1000 bytes, of which every second has 600 bytes of one that came 11 packets before it.
fn half_of_them_redundant(_: &Site) -> Made {
    let mut made = Made::default();
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for number in 0..1000_usize {
        let mut payload = random(number as u64, 1000);
        if number % 2 == 1 && number > 10 {
            payload[200..800].copy_from_slice(&sent[number - 11][200..800]);
        }
        made.tcp(number as u64 * 10, SERVER, CLIENT, &payload);
        sent.push(payload);
    }
    made
}

#[test]
fn savings_are_the_redundancy_that_was_put_in() {
    let result = study(half_of_them_redundant);
    // 495 packets of 1040 bytes save 600 bytes less a shim of 10 and a pointer of 8; what has nothing redundant in it pays
    // four bytes for its shim.
    let exact = 495.0 * 582.0 / (1000.0 * 1040.0);
    let optimal = result.optimal.expect("it fits the memory");
    assert!((optimal - exact).abs() < 0.002, "{optimal} is not {exact}");
    for (method, saved) in &result.saved {
        let max_match = saved.max_match.expect("it fits the memory");
        assert!(max_match <= optimal && max_match > 0.97 * optimal, "{method} saves {max_match} of {optimal}");
        let chunk_match = saved.chunk_match.expect("it fits the memory");
        assert!(chunk_match < max_match, "{method}: chunks {chunk_match} are cut, matches {max_match} grow");
        // 600 bytes of which the chunks at both ends are lost, 32 bytes each or so.
        let least = if *method == "modp" { 0.5 } else { 0.75 };
        assert!(chunk_match > least * optimal, "{method} with chunks saves {chunk_match} of {optimal}");
    }
    let lengths = &result.match_lengths;
    assert!(lengths.matches >= 490 && lengths.matches <= 530, "{lengths:?}");
    // One in 128 is longer by a byte that is the same by chance.
    let up_to = |bytes| lengths.of_matches.iter().rfind(|step| step.to <= bytes).map_or(0.0, |step| step.share);
    assert!(up_to(550.0) < 0.01 && up_to(600.0) > 0.95 && up_to(650.0) == 1.0, "{lengths:?}");
    assert_eq!(lengths.whole_payload.matches, 0.0);
    assert_eq!(result.traffic.packets, 1000);
    assert_eq!(result.traffic.bytes, 1_040_000);
    assert_eq!(result.traffic.bytes_by_way["outbound"], 0);
    assert_eq!(result.saved_by_way["outbound"], 0.0);
}

#[test]
fn copies_lie_as_far_back_and_are_as_old_as_they_were_put() {
    let result = study(half_of_them_redundant);
    // Eleven packets of 1024 bytes back: a little more than a hundredth of a cache of a megabyte, and of a second's tenth.
    let near = result.distances.iter().find(|step| step.to >= 0.02).expect("there are steps");
    assert!(near.share > 0.99, "{:?}", result.distances);
    let [before, after] =
        [0.09, 0.13].map(|seconds| result.ages.iter().rfind(|step| step.to <= seconds).map_or(0.0, |step| step.share));
    assert!(before < 0.01 && after > 0.99, "{:?}", result.ages);
    assert_eq!(result.hits.chunks, result.match_lengths.matches, "each chunk is found once");
    assert_eq!(result.zipf_alpha, None, "and there is no law in that");
    let over_time = &result.over_time.expect("there is a microscope").ways["inbound"];
    let second = over_time.usage_saved.iter().find(|saved| saved.bucket_seconds == 1).expect("there are ten seconds");
    assert!((second.median - second.mean).abs() < 0.02 && (second.peak - second.mean).abs() < 0.05, "{second:?}");
}

#[test]
fn matches_come_from_whom_they_were_taken() {
    let others = [
        ("intra_flow", (SERVER, CLIENT)),
        ("inter_flow", (SERVER, "10.0.0.1:40001")),
        ("inter_destination", (SERVER, "10.0.0.2:40000")),
        ("inter_source", ("198.51.100.2:80", CLIENT)),
        ("inter_node", ("198.51.100.2:80", "10.0.0.2:40000")),
    ];
    for (expected, (source, destination)) in others {
        let result = study(|_| {
            let mut made = Made::default();
            for number in 0..20 {
                let payload = random(number, 1400);
                made.tcp(number * 2, SERVER, CLIENT, &payload);
                made.tcp(number * 2 + 1, source, destination, &payload);
            }
            made
        });
        for (origin, share) in &result.origins.shares {
            let all = f64::from(u8::from(*origin == expected));
            assert_eq!(*share, all, "{origin} where it is {expected}");
            assert_eq!(result.origins.first_sent[origin], all);
        }
        assert_eq!(result.origins.retransmitted, 0.0);
        assert_eq!(result.match_lengths.whole_payload.saved, 1.0);
    }
}

#[test]
fn who_sent_first_may_be_another_than_who_sent_last() {
    let result = study(|_| {
        let mut made = Made::default();
        let payload = random(1, 1400);
        made.tcp(0, "198.51.100.2:80", "10.0.0.2:40000", &payload);
        for number in 1..=10 {
            made.tcp(number, SERVER, CLIENT, &payload);
        }
        made
    });
    // The first of ten is found where another node sent it, the others where the same flow did.
    let [node, flow] = ["inter_node", "intra_flow"].map(|origin| result.origins.shares[origin]);
    assert_eq!((node, flow), (0.1, 0.9));
    assert_eq!(result.origins.first_sent["inter_node"], 1.0, "but all of it was sent first by the other");
}

#[test]
fn ways_have_caches_of_their_own() {
    let result = study(|_| {
        let mut made = Made::default();
        for number in 0..50 {
            let payload = random(number, 1000);
            made.tcp(number * 2, SERVER, CLIENT, &payload);
            // An echo: the same bytes, the other way.
            made.tcp(number * 2 + 1, CLIENT, SERVER, &payload);
        }
        made
    });
    assert!(result.saved_by_way["inbound"] <= 0.0 && result.saved_by_way["outbound"] <= 0.0);
    assert_eq!(result.optimal, Some(0.0));
    assert_eq!(result.traffic.bytes_by_way["inbound"], result.traffic.bytes_by_way["outbound"]);
}

#[test]
fn retransmissions_are_counted_apart_from_what_can_be_saved() {
    let result = study(|_| {
        let mut made = Made::default();
        for number in 0..20 {
            made.tcp(number * 20, SERVER, CLIENT, &random(number, 1000));
            made.retransmit(number * 20 + 10);
        }
        made
    });
    assert_eq!(result.origins.retransmitted, 1.0);
    assert_eq!(result.traffic.retransmitted_bytes, 20_000);
    let saved = result.saved["samplebyte"].max_match.expect("it fits the memory");
    let of_retransmissions = result.traffic.saved_of_retransmissions;
    assert!(saved > 0.4 && of_retransmissions >= saved, "{of_retransmissions} of {saved}");
}

#[test]
fn larger_caches_save_what_smaller_ones_have_forgotten() {
    // 3 MB that come retransmit: a cache of 4 MB and more saves the second turn, one of 2 MB nothing.
    let result = study(|_| {
        let mut made = Made::default();
        for number in 0..4000 {
            made.tcp(number, SERVER, CLIENT, &random(number % 2000, 1400));
        }
        made
    });
    for row in &result.cache_sizes {
        let is_enough = row.cache_bytes >= 4 << 20;
        assert!(if is_enough { row.saved > 0.45 } else { row.saved < 0.01 }, "{row:?}");
        assert_eq!(row.by_protocol["http"], row.saved);
    }
    assert_eq!(result.cache_enough_bytes, Some(4 << 20));
    assert!(result.sites[0].larger_cache > Some(0.45), "four times a megabyte is enough");
}

#[test]
fn text_is_compressed_and_what_is_random_is_named() {
    let result = study(|_| {
        let mut made = Made::default();
        for number in 0..100 {
            // What repeats within a packet is for the library, what repeats between packets for the codec.
            let line = |line| format!("line {line} of what a person has written, and sends over and over; ");
            let text = format!("page {number}: ") + &(0..20).map(line).collect::<String>();
            made.tcp(number * 2, "198.51.100.1:21", CLIENT, text.as_bytes());
            made.tcp(number * 2 + 1, "198.51.100.1:443", CLIENT, &random(number, 1400));
        }
        made
    });
    let alone = result.combined.iter().find(|row| row.method.is_none() && row.library == "gzip");
    let after = result.combined.iter().find(|row| row.method.is_some() && row.library == "gzip");
    let (alone, after) = (alone.expect("alone"), after.expect("after the codec"));
    assert!(alone.by_packet > 0.3 && alone.gathered_10_ms > alone.by_packet, "{alone:?}");
    assert!(after.gathered_10_ms > 0.3, "{after:?}");
    let part = result.skipped.encrypted_by_port;
    assert!((part.share - 0.5).abs() < 0.1 && part.saved <= 0.0, "{part:?}");
    assert_eq!(result.skipped.encrypted_by_entropy.packets, 0, "a known port needs no guess");
    let row = |name: &str| result.by_protocol.iter().find(|row| row.protocol == name).expect("it was sent").saved;
    let [ftp, https] = ["ftp", "https"].map(row);
    assert!(ftp > 0.6 && https <= 0.0, "{ftp} of ftp, {https} of https");
}

#[test]
fn what_fits_no_memory_is_named_and_the_rest_is_found() {
    let options = Options { memory_bytes: 16 << 20, ..options() };
    let result = study_with(&options, &[site("made")], &mut State::in_memory(), half_of_them_redundant);
    assert!(result.saved["samplebyte"].max_match.is_some_and(|saved| saved > 0.2));
    assert_eq!(result.optimal, None);
    assert!(result.left_out.iter().any(|left| left.contains("at most with w = 32")), "{:?}", result.left_out);
    assert!(serde_json::to_string(&result).is_ok());
}

#[test]
fn sites_are_studied_apart_and_added_up() {
    let sites = [site("one"), site("other"), site("third")];
    let made = |site: &Site| {
        let mut made = Made::default();
        for number in 0..100 {
            // The other sends retransmit and retransmit what the one sends once: caches are not shared.
            let seed = if site.name == "one" { number } else { number % 10 };
            made.tcp(number, SERVER, CLIENT, &random(seed, 1000));
        }
        made
    };
    let result = study_with(&options(), &sites, &mut State::in_memory(), made);
    let saved: Vec<f64> = result.sites.iter().map(|site| site.saved["maxp"].expect("it fits")).collect();
    assert!(saved[0] <= 0.0 && saved[1] > 0.8, "{saved:?}");
    assert_eq!(saved[1], saved[2]);
    let all = result.saved["maxp"].max_match.expect("it fits");
    assert!((all - saved.iter().sum::<f64>() / 3.0).abs() < 1e-5, "the sites have as many bytes each");
    assert_eq!(result.traffic.packets, 300);
}
