//! What is made is what was asked for, as the gateway's own tracker sees it.

use std::time::Duration;

use flow::Checksum;
use flow::conntrack::{Timeouts, TrackerConfig};
use flow::wire::{Headers, Parsed, parse_into};
use flow::{Frame, PortId};

use super::presets::{PRESETS, preset};
use super::*;
use crate::synthesis::Quantiles;
use crate::trace::connections::{ConnectionsConfig, End, Statistics};
use crate::trace::{Connections, Packet};

/// Follows all of the traffic with a tracker that refuses what a gateway refuses, and lets nothing expire that lives.
fn follow(traffic: &mut ReplicationTraffic) -> (Statistics, Connections) {
    let timeouts =
        Timeouts { udp: Duration::from_secs(4000), udp_stream: Duration::from_secs(4000), ..Timeouts::default() };
    let tracker = TrackerConfig { timeouts, ..TrackerConfig::default() };
    let mut connections = Connections::new(&ConnectionsConfig { tracker, ..ConnectionsConfig::seed() });
    let mut statistics = Statistics::default();
    let mut last = Instant::ZERO;
    while let Some((at, frame)) = traffic.next() {
        assert!(at >= last, "time falls");
        last = at;
        let mut bytes = frame.to_vec();
        let length_bytes = bytes.len();
        let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
        assert_eq!(frame.checksum, Checksum::Unverified);
        let mut headers = Headers::NONE;
        assert_eq!(parse_into(&frame, &mut headers), Ok(Parsed::Ip(())), "a gateway would refuse the frame");
        let payload_bytes = (length_bytes - usize::from(headers.payload_offset)) as u32;
        let packet = Packet {
            at,
            capture_index: 0,
            interface: 0,
            frame_number: 1,
            headers,
            frame: frame.bytes(),
            payload: &frame.bytes()[usize::from(headers.payload_offset)..],
            payload_bytes,
            wire_bytes: length_bytes as u32,
        };
        connections.handle_packet(&packet, &mut |event| statistics.handle_event(event));
    }
    connections.finish(&mut |event| statistics.handle_event(event));
    (statistics, connections)
}

fn small(name: &str, connections: f64) -> ReplicationConfig {
    let config = preset(name).expect("it is one").config();
    let seconds = 10.0;
    ReplicationConfig {
        connections_per_second: connections / seconds,
        duration: Duration::from_secs_f64(seconds),
        runs_out: true,
        ..config
    }
}

fn assert_near(what: &str, found: f64, asked: f64, tolerance: f64) {
    assert!((found - asked).abs() <= tolerance, "{what}: {found}, {asked} were asked for");
}

#[test]
fn a_strict_tracker_follows_every_connection_of_every_preset() {
    for preset in PRESETS {
        let mut traffic = ReplicationTraffic::new(small(preset.name, 600.0), 7).expect("presets are right");
        let (found, connections) = follow(&mut traffic);
        let made = traffic.made();
        assert!(made.connections > 400, "{}: {made:?}", preset.name);
        assert_eq!(*connections.untracked(), crate::trace::connections::Untracked::default(), "{}", preset.name);
        assert_eq!((found.begun, found.packets), (made.connections, made.frames), "{}", preset.name);
        assert_eq!((found.one_way, found.udp), (made.one_way, made.udp), "{}", preset.name);
    }
}

#[test]
fn shares_rate_and_lifetimes_are_those_that_were_asked_for() {
    let mut config = small("ipls-3", 20_000.0);
    // A few port scans of 64 would make more noise than what is measured.
    config.components[5].together = 4.0;
    let mut traffic = ReplicationTraffic::new(config.clone(), 1).unwrap();
    let (found, _) = follow(&mut traffic);
    assert_near("connections", found.begun as f64, 20_000.0, 1000.0);
    for (component, made) in config.components.iter().zip(&traffic.made().components) {
        let share = made.connections as f64 / found.begun as f64;
        assert_near(&component.name, share, component.share, 0.015);
    }
    assert_near("one-way share", found.one_way as f64 / found.begun as f64, 0.392 * 0.871, 0.02);
    let refused = found.ended_by(End::Refused) as f64 / found.begun as f64;
    assert_near("refused", refused, 0.392 * 0.129, 0.015);
    // The seed's curve is of the connections that were established.
    let answered = found.answered_lifetimes.count() as f64;
    let refused = found.ended_by(End::Refused) as f64;
    for (seconds, asked) in [(0.32, 0.5), (0.5, 0.744), (2.0, 0.889)] {
        let up_to = found.answered_lifetimes.share_up_to(Duration::from_secs_f64(seconds)) * answered - refused;
        assert_near("lifetimes", up_to / (answered - refused), asked, 0.03);
    }
}

#[test]
fn connections_begin_together_between_two_hosts() {
    let mut config = small("flow-digest", 4000.0);
    config.components[0].together = 4.0;
    let mut traffic = ReplicationTraffic::new(config, 3).unwrap();
    while traffic.next().is_some() {}
    let made = traffic.made();
    assert_near("connections of a session", made.connections as f64 / made.sessions as f64, 4.0, 0.3);
    assert_near("connections", made.connections as f64, 4000.0, 350.0);
}

#[test]
fn bursts_keep_the_mean_rate_and_make_it_uneven() {
    let per_100_ms = |arrivals| {
        let mut config = small("classification", 20_000.0);
        config.arrivals = arrivals;
        let mut counts = vec![0.0_f64; 100];
        let mut traffic = ReplicationTraffic::new(config, 5).unwrap();
        while let Some((at, frame)) = traffic.next() {
            // A SYN alone.
            if frame[47] == 2 {
                let since = at.saturating_since(crate::synthesis::BEGINS_AT);
                counts[(since.as_millis() / 100).min(99) as usize] += 1.0;
            }
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        (mean, variance / mean)
    };
    let (mean, dispersion) = per_100_ms(Arrivals::Poisson);
    assert_near("connections in 100 ms", mean, 200.0, 10.0);
    assert!(dispersion < 2.0, "Poisson arrivals have a variance of their mean, not {dispersion} times that");
    let (mean, dispersion) = per_100_ms(Arrivals::Bursty { peak: 5.0, burst: Duration::from_millis(5) });
    assert_near("connections in 100 ms", mean, 200.0, 40.0);
    assert!(dispersion > 20.0, "bursts make a variance of {dispersion} times the mean");
}

#[test]
fn the_same_seed_makes_the_same_traffic_and_another_seed_another() {
    let digest = |seed| {
        let mut traffic = ReplicationTraffic::new(small("mixed", 300.0), seed).unwrap();
        let mut digest = 0_u64;
        while let Some((at, frame)) = traffic.next() {
            let bytes = frame.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            digest = digest.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(bytes ^ at.as_nanos());
        }
        digest
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn traffic_that_stops_stops_at_its_end_and_one_that_runs_out_closes_what_is_open() {
    let mut config = ReplicationConfig { runs_out: false, ..small("flow-digest", 500.0) };
    let mut traffic = ReplicationTraffic::new(config.clone(), 1).unwrap();
    let (_, ends_at) = traffic.span();
    while let Some((at, _)) = traffic.next() {
        assert!(at < ends_at);
    }
    config.runs_out = true;
    let (found, _) = follow(&mut ReplicationTraffic::new(config, 1).unwrap());
    assert_eq!(found.ended_by(End::Closed), found.begun, "{found:?}");
}

#[test]
fn persistent_connections_last_from_the_first_second_to_the_end() {
    let config = ReplicationConfig { persistent: 300, runs_out: false, ..small("classification", 1000.0) };
    let mut traffic = ReplicationTraffic::new(config, 1).unwrap();
    let (found, _) = follow(&mut traffic);
    assert_eq!(
        traffic.made().components.last().map(|one| (one.name.as_str(), one.connections)),
        Some(("persistent", 300))
    );
    assert!(found.ended_by(End::Trace) >= 300 && found.ended_by(End::Expired) == 0, "{found:?}");
    assert!(found.answered_lifetimes.quantile_s(1.0) > 7.0, "{found:?}");
}

#[test]
fn a_connection_that_one_side_closes_waits_until_its_time_is_over() {
    let mut config = small("classification", 500.0);
    let Behaviour::Tcp { ending, .. } = &mut config.components[0].behaviour else { panic!("it is TCP") };
    *ending = Ending::HalfClosed;
    let (found, _) = follow(&mut ReplicationTraffic::new(config, 1).unwrap());
    assert_eq!((found.ended_by(End::Closed), found.one_way), (0, 0), "{found:?}");
}

#[test]
fn what_cannot_be_made_is_refused_with_the_reason() {
    let base = small("flow-digest", 500.0);
    let refused = |change: fn(&mut ReplicationConfig)| {
        let mut config = base.clone();
        change(&mut config);
        ReplicationTraffic::new(config, 1).expect_err("it cannot be made").to_string()
    };
    assert!(refused(|config| config.connections_per_second = 0.0).contains("connections a second is 0"));
    assert!(refused(|config| config.components[0].share = 0.5).contains("sum to 0.5"));
    assert!(refused(|config| config.clients = 0).contains("clients"));
    assert!(refused(|config| (config.clients, config.connections_per_second) = (1, 100_000.0)).contains("ports"));
    assert!(refused(|config| config.connections_per_second = 9e6).contains("open at a time"));
    assert!(Quantiles::new("lifetimes", &[(0.0, f64::NAN), (1.0, 1.0)]).is_err());
}

#[test]
fn shares_can_be_moved_and_still_sum_to_one() {
    let mut config = preset("mixed").unwrap().config();
    config.set_one_way_share(0.5);
    config.set_udp_share(0.25);
    config.check().expect("shares sum to 1");
    let udp: f64 = config.components.iter().filter(|one| one.behaviour.is_udp()).map(|one| one.share).sum();
    assert_near("share of UDP", udp, 0.25, 1e-9);
}
