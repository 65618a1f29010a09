//! What is made is what was asked for, as an optimal encoder and a strict tracker see it.

use redundancy::fingerprint::Window;
use redundancy::wire::shim::{ENCODED_SHIM_BYTES, POINTER_BYTES};

use super::*;
use crate::redundancy_study::optimal::Optimal;
use crate::synthesis::Quantiles;
use crate::trace::connections::{ConnectionsConfig, Statistics};

/// More than all of the traffic: the estimate is by a Bloom filter, which is nearly always right while it is nearly empty.
const CACHE_BYTES: usize = 8 << 20;

fn small(redundancy: f64) -> RedundancyConfig {
    RedundancyConfig {
        redundancy,
        bits_per_second: 40e6,
        duration: Duration::from_secs(1),
        distance_bytes: 2 << 20,
        connections: 32,
        object_bytes: Quantiles::new("bytes", &[(0.0, 500.0), (0.5, 8000.0), (1.0, 300_000.0)]).unwrap(),
        ..RedundancyConfig::default()
    }
}

/// What TCP carries in a frame of this traffic: IPv4 without options.
fn payload_of(frame: &[u8]) -> &[u8] {
    &frame[14 + 20 + usize::from(frame[46] >> 4) * 4..]
}

/// The share of the payload that an optimal encoder with a cache of `cache_bytes` saves; packets that do not shrink cost it nothing.
fn found_by_optimal(traffic: &mut RedundancyTraffic, cache_bytes: usize) -> f64 {
    let mut optimal = Optimal::new(cache_bytes, Window::DEFAULT);
    let (mut payload_bytes, mut found) = (0_usize, 0.0);
    while let Some((_, frame)) = traffic.next() {
        let payload = payload_of(frame);
        if payload.is_empty() {
            continue;
        }
        payload_bytes += payload.len();
        found += optimal.handle_block(payload).max(0) as f64;
    }
    found / payload_bytes as f64
}

fn assert_near(what: &str, found: f64, asked: f64, tolerance: f64) {
    assert!((found - asked).abs() <= tolerance, "{what}: {found}, {asked} were asked for");
}

#[test]
fn an_optimal_encoder_finds_the_share_that_was_asked_for() {
    for asked in [0.1, 0.4, 0.6] {
        let mut traffic = RedundancyTraffic::new(small(asked), 1).unwrap();
        let saved = found_by_optimal(&mut traffic, CACHE_BYTES);
        let made = traffic.made();
        assert_near("repeated", made.redundancy, asked, 0.01);
        // What is repeated, less what pointers and shims cost at most.
        let pointers = made.repeats as f64 * (POINTER_BYTES + ENCODED_SHIM_BYTES) as f64 / made.payload_bytes as f64;
        assert!(saved <= asked + 0.01, "{saved} of the bytes are saved, and {asked} are repeated");
        assert!(saved >= asked - pointers - 0.01, "{saved} are saved of {asked}, and pointers cost {pointers} at most");
    }
}

#[test]
fn nothing_is_repeated_by_accident() {
    let mut traffic = RedundancyTraffic::new(RedundancyConfig { text_share: 1.0, ..small(0.0) }, 2).unwrap();
    let saved = found_by_optimal(&mut traffic, CACHE_BYTES);
    let made = traffic.made();
    // HTTP's headers alone are the same again and again.
    assert!(made.redundancy < 0.03 && saved <= made.redundancy + 0.003, "{saved} saved, {made:?}");
}

#[test]
fn what_lies_further_back_than_a_cache_holds_is_not_found() {
    let asked = RedundancyConfig { encrypted_share: 0.0, ..small(0.6) };
    let large = found_by_optimal(&mut RedundancyTraffic::new(asked.clone(), 3).unwrap(), CACHE_BYTES);
    let tiny = found_by_optimal(&mut RedundancyTraffic::new(asked, 3).unwrap(), 16 << 10);
    assert!(tiny < 0.5 * large, "{tiny} in a cache of 16 kB, {large} in one of 8 MB");
}

#[test]
fn origins_and_lengths_are_those_that_were_asked_for() {
    for origins in [Shares::ENTERPRISE, Shares::UNIVERSITY] {
        let config = RedundancyConfig { origins, encrypted_share: 0.0, duration: Duration::from_secs(4), ..small(0.5) };
        let asked_bytes = config.match_bytes.mean();
        let mut traffic = RedundancyTraffic::new(config, 4).unwrap();
        while traffic.next().is_some() {}
        let made = traffic.made();
        for (origin, found) in Origin::ALL.into_iter().zip(&made.origins) {
            assert_near(origin.label(), found.share, origins.of(origin), 0.05);
        }
        // Headers of HTTP are repeats too, and not of the lengths that were asked for.
        assert_near("bytes of a repeat", made.match_bytes, asked_bytes, 0.2 * asked_bytes);
    }
}

#[test]
fn popular_pieces_are_repeated_by_their_rank() {
    let mut config = RedundancyConfig { encrypted_share: 0.0, popularity: 1.0, ..small(0.5) };
    config.origins = Shares { shares: [0.0, 0.0, 1.0, 0.0, 0.0] };
    (config.servers, config.popular_pieces, config.match_bytes) = (1, 1024, Quantiles::constant(200.0));
    let mut traffic = RedundancyTraffic::new(config, 5).unwrap();
    let mut counts = std::collections::HashMap::new();
    while let Some((_, frame)) = traffic.next() {
        // Pieces of equal length: a run that comes again begins with the same eight bytes somewhere in the packet.
        let payload = payload_of(frame);
        for window in payload.windows(8) {
            *counts.entry(u64::from_le_bytes(window.try_into().unwrap())).or_insert(0_u32) += 1;
        }
    }
    let mut hits: Vec<u32> = counts.into_values().filter(|count| *count > 1).collect();
    hits.sort_unstable_by(|one, other| other.cmp(one));
    // Every byte of a piece is a window: some 193 of each. Headers of HTTP lead.
    let at = |rank: usize| f64::from(hits[hits.len().min(193 * rank + 400) - 1]);
    let slope = (at(100) / at(10)).ln() / 10_f64.ln();
    assert_near("slope of hits over rank", slope, -1.0, 0.35);
}

#[test]
fn a_strict_tracker_follows_the_connections() {
    let mut traffic = RedundancyTraffic::new(small(0.4), 6).unwrap();
    let mut bytes = Vec::new();
    let mut writer = packet_io::pcap::PcapWriter::new(&mut bytes).unwrap();
    while let Some((at, frame)) = traffic.next() {
        writer.write(at, frame).unwrap();
    }
    let length = bytes.len() as u64;
    let source = ("made".into(), Box::new(std::io::Cursor::new(bytes)) as Box<dyn std::io::Read + Send>, Some(length));
    let mut trace = crate::trace::Trace::merge(vec![source]).unwrap();
    let tracker = flow::conntrack::TrackerConfig::default();
    let mut connections = crate::trace::Connections::new(&ConnectionsConfig { tracker, ..ConnectionsConfig::seed() });
    let mut statistics = Statistics::default();
    while let Some(packet) = trace.next() {
        connections.handle_packet(&packet, &mut |event| statistics.handle_event(event));
    }
    connections.finish(&mut |event| statistics.handle_event(event));
    let made = traffic.made();
    assert_eq!(*connections.untracked(), crate::trace::connections::Untracked::default());
    assert_eq!((statistics.packets, statistics.payload_bytes), (made.frames, made.payload_bytes));
    // Some were never given a turn.
    assert!(statistics.begun > 50 && statistics.begun <= made.connections, "{} of {made:?}", statistics.begun);
    let mbit_per_s = made.bytes as f64 * 8.0 / made.seconds / 1e6;
    assert_near("Mbit/s", mbit_per_s, 40.0, 2.0);
}

#[test]
fn what_cannot_be_made_is_refused_with_the_reason() {
    let refused = |change: fn(&mut RedundancyConfig)| {
        let mut config = small(0.4);
        change(&mut config);
        RedundancyTraffic::new(config, 1).expect_err("it cannot be made").to_string()
    };
    assert!(refused(|config| config.encrypted_share = 0.7).contains("what is encrypted repeats nothing"));
    assert!(refused(|config| config.origins.shares[0] = 0.0).contains("sum to"));
    assert!(refused(|config| config.match_bytes = Quantiles::constant(10.0)).contains("shortest repeat"));
    assert!(refused(|config| config.connections = 0).contains("connections is 0"));
}
