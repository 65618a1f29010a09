//! Synthetic captures of stated redundancy, from their bytes as files have them to the result.

use std::io::Cursor;
use std::time::Duration;

use packet_io::pcap::PcapWriter;

use super::*;
use crate::synthesis::redundancy::{Made, Origin, RedundancyConfig, RedundancyTraffic, Shares};
use crate::trace::Trace;

/// A capture as a file has it, and what is in it.
fn capture(config: RedundancyConfig) -> (Vec<u8>, Made) {
    let mut traffic = RedundancyTraffic::new(config, 7).expect("it can be made");
    let mut writer = PcapWriter::new(Vec::new()).expect("memory takes it");
    while let Some((at, frame)) = traffic.next() {
        writer.write(at, frame).expect("memory takes it");
    }
    (writer.finish().expect("memory takes it"), traffic.made())
}

fn config(redundancy: f64, origins: Shares) -> RedundancyConfig {
    RedundancyConfig {
        redundancy,
        origins,
        bits_per_second: 10e6,
        duration: Duration::from_secs(3),
        ..RedundancyConfig::default()
    }
}

fn study_of(capture: &[u8]) -> RedundancyResult {
    let options = Options { cache_bytes: 8 << 20, ..options() };
    let open = |_: &Site| {
        let source: Box<dyn std::io::Read + Send> = Box::new(Cursor::new(capture.to_vec()));
        let trace = Trace::merge(vec![("made".into(), source, Some(capture.len() as u64))])?;
        Ok(Box::new(TraceSource::from(trace)) as Box<dyn Source>)
    };
    let (sites, mut state) = ([site("made")], State::in_memory());
    let watch = Watch { progress: &|_| {}, stop: &AtomicBool::new(false) };
    let left_out = run(&sites, &options, &mut state, &open, &watch).expect("nothing stops it");
    RedundancyResult::new(&sites, &options, &state, &left_out)
}

#[test]
fn what_was_put_in_is_found_but_for_pointers_and_shims() {
    for redundancy in [0.1, 0.5] {
        let (capture, made) = capture(config(redundancy, Shares::ENTERPRISE));
        let result = study_of(&capture);
        let traffic = &result.traffic;
        assert_eq!((traffic.packets, traffic.payload_bytes), (made.frames, made.payload_bytes));
        assert!(result.skipped.frames.is_empty() && result.skipped.damaged.is_empty());
        // A pointer for each repeat, a shim for each packet with one at most.
        let most = made.repeated_bytes as f64 / traffic.bytes as f64;
        let least = (made.repeated_bytes - 18 * made.repeats) as f64 / traffic.bytes as f64;
        let optimal = result.optimal.expect("it fits the memory");
        assert!(optimal > least - 0.01 && optimal < most + 0.01, "{optimal} is not from {least} to {most}");
        for method in ["maxp", "samplebyte"] {
            let saved = result.saved[method].max_match.expect("it fits the memory");
            // Some of the text repeats within its packet, which the bound between packets leaves out.
            let most = result.optimal_with_own.expect("it is found with the other bound");
            assert!(saved <= most && saved > 0.8 * optimal, "{method} saves {saved} of {optimal}");
        }
        let encrypted = result.skipped.encrypted_by_port;
        assert!(encrypted.saved < 0.01, "{encrypted:?}");
    }
}

#[test]
fn origins_are_those_that_were_put_in() {
    for shares in [Shares::ENTERPRISE, Shares::UNIVERSITY] {
        let (capture, made) = capture(config(0.4, shares));
        let result = study_of(&capture);
        for (origin, made) in Origin::ALL.into_iter().zip(&made.origins) {
            let found = result.origins.shares[origin.label()];
            assert!((found - made.share).abs() < 0.08, "{}: found {found}, made {}", origin.label(), made.share);
        }
    }
}

#[test]
fn a_capture_that_breaks_off_is_named_and_studied_up_to_there() {
    let (capture, _) = capture(config(0.4, Shares::ENTERPRISE));
    let result = study_of(&capture[..capture.len() / 2]);
    let damaged = &result.skipped.damaged;
    assert!(damaged.len() == 1 && damaged[0].starts_with("made: read up to frame"), "{damaged:?}");
    assert!(result.traffic.packets > 500 && result.saved["samplebyte"].max_match > Some(0.1));
}
