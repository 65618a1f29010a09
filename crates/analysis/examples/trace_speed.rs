//! How fast synthetic traffic is made, read and followed: `cargo run --release -p analysis --example trace_speed [SECONDS]`.
//!
//! The traffic is the `flow-digest` preset at 90 000 connections a second, the most that MLCBF has.

use std::io::Cursor;
use std::time::{Duration, Instant};

use analysis::synthesis::ReplicationTraffic;
use analysis::synthesis::replication::presets::preset;
use analysis::trace::connections::Statistics;
use analysis::trace::{Connections, ConnectionsConfig, Trace};
use packet_io::pcap::PcapWriter;

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10.0);
    let mut config = preset("flow-digest").expect("it is one").config();
    (config.connections_per_second, config.clients) = (90_000.0, 1 << 20);
    config.duration = Duration::from_secs_f64(seconds);
    let mut traffic = ReplicationTraffic::new(config, 1).expect("the preset is right");
    let mut capture = PcapWriter::new(Vec::new()).expect("memory can be written");
    let begun = Instant::now();
    while let Some((at, frame)) = traffic.next() {
        capture.write(at, frame).expect("memory can be written");
    }
    let made_s = begun.elapsed().as_secs_f64();
    let bytes = capture.finish().expect("memory can be written");
    let frames = traffic.made().frames;
    println!(
        "made: {frames} frames, {} connections, {} bytes in {made_s:.2} s: {:.2} M frames/s, {:.1} times as fast as time",
        traffic.made().connections,
        bytes.len(),
        frames as f64 / made_s / 1e6,
        seconds / made_s
    );
    let open = |bytes: Vec<u8>| {
        let length = bytes.len() as u64;
        Trace::merge(vec![("made".into(), Box::new(Cursor::new(bytes)), Some(length))]).expect("it is a capture")
    };
    let mut trace = open(bytes.clone());
    let begun = Instant::now();
    while trace.next().is_some() {}
    let read_s = begun.elapsed().as_secs_f64();
    println!("read: {:.2} M packets/s", trace.counts().packets as f64 / read_s / 1e6);

    let mut trace = open(bytes);
    let mut connections =
        Connections::new(&ConnectionsConfig { connections_max: 1 << 22, ..ConnectionsConfig::seed() });
    let mut statistics = Statistics::default();
    let begun = Instant::now();
    while let Some(packet) = trace.next() {
        connections.handle_packet(&packet, &mut |event| statistics.handle_event(event));
    }
    let followed_s = begun.elapsed().as_secs_f64();
    println!(
        "read and followed: {:.2} M packets/s, {} connections at a time",
        trace.counts().packets as f64 / followed_s / 1e6,
        statistics.open_max
    );
}
