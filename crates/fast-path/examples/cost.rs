//! What the program for each hook costs a packet on this machine, in nanoseconds of processor time (`BPF_PROG_TEST_RUN`): without interrupts,
//! driver and redirection.
//!
//! ```sh
//! cargo run --release -p fast-path --example cost              # 1,000,000 connections
//! cargo run --release -p fast-path --example cost -- 50000
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use fast_path::{Config, DirectionPlan, FastPath, Hook, NextHop, Outcome, Plan, Side, TestContext, Windows};
use flow::Tuple;
use flow::wire::{MacAddress, build, ip_protocol, tcp_flags};

type Failure = Box<dyn std::error::Error>;

/// The loopback interface, on which the kernel runs the program by default.
const LOOPBACK: u32 = 1;
/// Runs on one frame. Each lowers the time to live.
const REPEAT: u32 = 250;
/// Measurements, of which the median counts.
const ROUNDS: usize = 201;
/// Frames for a measurement over many connections.
const SPREAD: u32 = 20_000;
/// The sequence and acknowledgement number of all segments.
const NUMBER: u32 = 1000;

/// A connection whose packets are translated into those of its other direction: the program can run on its own output.
fn plan(protocol: u8, number: u32) -> Plan {
    let [_, b, c, d] = number.to_be_bytes();
    let port = 4000 + (number >> 24) as u16;
    let original = Tuple::v4(protocol, (Ipv4Addr::new(10, b, c, d), port), (Ipv4Addr::new(192, 0, 2, 1), 80));
    let reply = Tuple::v4(protocol, (Ipv4Addr::new(11, b, c, d), 50_000), (Ipv4Addr::new(198, 51, 100, 1), 81));
    let direction = |tuple, translated| DirectionPlan { tuple, translated, ingress: LOOPBACK, next_hop: 0 };
    let side =
        Side { end: NUMBER, end_max: NUMBER + 60_000, window_max: 60_000, acknowledged_max: NUMBER, ..Side::default() };
    let windows = (protocol == ip_protocol::TCP).then_some(Windows { sides: [side; 2] });
    Plan {
        directions: [direction(original, reply), direction(reply, original)],
        windows,
        is_liberal: false,
        link_addresses: [None; 2],
    }
}

/// A frame of 60 bytes at most, as it comes in on the loopback interface.
fn frame(tuple: &Tuple) -> Vec<u8> {
    let envelope = build::Envelope { destination: MacAddress([0; 6]), ttl: 255, ..build::Envelope::default() };
    if tuple.protocol == ip_protocol::UDP {
        return envelope.udp(tuple, &[0; 18]);
    }
    let segment = build::Tcp {
        flags: tcp_flags::ACK,
        sequence: NUMBER,
        acknowledgement: NUMBER,
        window: 60_000,
        ..build::Tcp::default()
    };
    envelope.tcp(tuple, segment, b"")
}

/// The duration of a run on `frame`, in nanoseconds: the median of [`ROUNDS`] means. All runs have this outcome.
fn measure(fast_path: &FastPath, frame: &[u8], repeat: u32, outcome: Outcome) -> Result<u128, Failure> {
    let before = fast_path.counters()?;
    let context = TestContext { repeat, ..TestContext::default() };
    let run = |_| fast_path.test_run(frame, context).map(|run| run.duration);
    let mut durations: Vec<Duration> = (0..ROUNDS).map(run).collect::<Result<_, _>>()?;
    let runs = (fast_path.counters()? - before).of(outcome);
    if runs != ROUNDS as u64 * u64::from(repeat) {
        return Err(format!("only {runs} runs ended as {outcome:?}").into());
    }
    durations.sort_unstable();
    Ok(durations[ROUNDS / 2].as_nanos())
}

/// The mean duration of single runs on frames of connections all over the table, in nanoseconds.
fn measure_spread(fast_path: &FastPath, protocol: u8, connections: u32) -> Result<u128, Failure> {
    let mut total = Duration::ZERO;
    for step in 0..SPREAD {
        // Spread over the table by a multiplier without common factors.
        let number = (u64::from(step) * 2_654_435_761 % u64::from(connections)) as u32;
        let run = fast_path.test_run(&frame(&plan(protocol, number).directions[0].tuple), TestContext::default())?;
        if !run.is_redirected {
            return Err(format!("a packet of connection {number} was not forwarded").into());
        }
        total += run.duration;
    }
    Ok(total.as_nanos() / u128::from(SPREAD))
}

fn main() -> Result<(), Failure> {
    let connections: u32 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    for (name, hook) in Hook::ALL {
        println!("at {name}");
        measure_hook(hook, connections)?;
    }
    Ok(())
}

/// Measures the program for a hook.
fn measure_hook(hook: Hook, connections: u32) -> Result<(), Failure> {
    let config =
        Config { connections_max: connections + 1, heartbeat_age_max: Duration::MAX, hook, ..Config::default() };
    let mut fast_path = FastPath::load(&config)?;
    fast_path.set_link_address(LOOPBACK, [0; 6])?;
    fast_path.set_enabled(true);
    fast_path.beat(fast_path::now());
    fast_path.set_next_hop(0, Some(&NextHop::new(LOOPBACK, [0; 6], [0; 6], 1500)))?;

    println!("{:<52} {:>8}", "one connection, caches warm", "ns");
    let unknown = frame(&plan(ip_protocol::UDP, u32::MAX).directions[0].tuple);
    println!("{:<52} {:>8}", "left: not installed", measure(&fast_path, &unknown, REPEAT, Outcome::Miss)?);
    for (name, protocol) in [("UDP", ip_protocol::UDP), ("TCP", ip_protocol::TCP)] {
        let plan = plan(protocol, u32::MAX);
        let installed = fast_path.install(&plan)?;
        let frame = frame(&plan.directions[0].tuple);
        let text = format!("forwarded: {name}, addresses and ports translated");
        println!("{text:<52} {:>8}", measure(&fast_path, &frame, REPEAT, Outcome::Forwarded)?);
        let text = format!("the same, {name}, timed one by one");
        println!("{text:<52} {:>8}", measure(&fast_path, &frame, 1, Outcome::Forwarded)?);
        fast_path.remove(installed)?;
    }

    let plans: Vec<Plan> = (0..connections).map(|number| plan(ip_protocol::TCP, number)).collect();
    fast_path.install_many(&plans)?;
    println!("\n{connections} connections installed, TCP, timed one by one between other work");
    for (text, of) in [("forwarded: all of one connection", 1), ("forwarded: each of another connection", connections)]
    {
        println!("{text:<52} {:>8}", measure_spread(&fast_path, ip_protocol::TCP, of)?);
    }
    println!();
    Ok(())
}
