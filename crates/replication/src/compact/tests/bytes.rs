//! What it costs to replicate connections in each of the representations, beside messages of each connection.

use core::time::Duration;
use std::vec::Vec;
use std::{print, println};

use flow::conntrack::TcpState;
use flow::{Connection, Instant, NodeId};

use super::harness::{FAIR, Pair, config, tcp, tuple};
use crate::compact::{CompactConfig, Representation, UpdateRule};
use crate::representation::precise::{self, NoFunctions};

/// Connections that begin and end.
const CONNECTIONS: u32 = 100_000;
/// Connections that begin in a step of ten milliseconds: 5000 a second.
const BEGINNING: u32 = 50;
/// The state changes of each, and how many steps after its beginning: it lives for about a second.
const LIFECYCLE: [(u32, TcpState); 6] = [
    (0, TcpState::SynSent),
    (2, TcpState::SynRecv),
    (4, TcpState::Established),
    (100, TcpState::FinWait),
    (104, TcpState::LastAck),
    (106, TcpState::TimeWait),
];
const END: u32 = 120;
/// Bytes of a message of MLCBF's precise replication (section 2.2.1 A).
const SEED_MESSAGE_BYTES: usize = 16;

/// Lets all connections live and returns bytes a connection.
fn bytes_per_connection(config: CompactConfig) -> f64 {
    let mut pair = Pair::new(config, FAIR);
    pair.until_equal(Duration::from_secs(2));
    let before = pair.sender.status().bytes;
    let steps = CONNECTIONS / BEGINNING;
    for step in 0..=steps + END {
        let begun = |after: u32| step.checked_sub(after).filter(|begun| *begun < steps);
        for (after, state) in LIFECYCLE {
            let of_step = begun(after).into_iter().flat_map(|begun| begun * BEGINNING..(begun + 1) * BEGINNING);
            of_step.for_each(|number| pair.set(number, tcp(state)));
        }
        let of_step = begun(END).into_iter().flat_map(|begun| begun * BEGINNING..(begun + 1) * BEGINNING);
        of_step.for_each(|number| pair.end(number));
        pair.run(Duration::from_millis(10));
    }
    let within = match config.update {
        UpdateRule::Periodic(period) => period,
        _ => Duration::ZERO,
    };
    pair.until_equal(within + Duration::from_secs(2));
    pair.assert_no_errors();
    assert_eq!(pair.sender.status().entries, 0, "all have ended");
    (pair.sender.status().bytes - before) as f64 / f64::from(CONNECTIONS)
}

#[test]
fn a_connection_in_each_representation_and_its_cost() {
    let messages = LIFECYCLE.len() + 1;
    let protocol = tcp(TcpState::Established).protocol_state(6);
    let connection = Connection::new(tuple(1), NodeId(0), protocol, Instant::ZERO);
    let mut message = Vec::new();
    precise::encode(Instant::ZERO, &connection, &NoFunctions, &mut message);
    let (native, seed) = (messages * (message.len() + 4), messages * SEED_MESSAGE_BYTES);
    println!("bytes a connection, {CONNECTIONS} connections with {messages} changes each, 5000 a second");
    println!("precise: {native} by the native protocol, {seed} as MLCBF counts\n");
    println!("{:24} {:>12} {:>12} {:>12} {:>12}", "", "words", "symbols", "every 1 s", "every 5 s");
    let at_once = UpdateRule::Immediate { batch: Duration::from_millis(10), establishment_at_once: false };
    let rules = [
        (at_once, false),
        (at_once, true),
        (UpdateRule::Periodic(Duration::from_secs(1)), true),
        (UpdateRule::Periodic(Duration::from_secs(5)), true),
    ];
    for representation in Representation::ALL {
        print!("{:24}", representation.name());
        let costs = rules.map(|(update, symbols)| {
            let config = CompactConfig { update, symbols, ..config(representation, 20_000) };
            let bytes = bytes_per_connection(config);
            print!(" {bytes:6.1} {:3.0} %", 100.0 * (1.0 - bytes / seed as f64));
            bytes
        });
        println!();
        assert!(costs[1] <= costs[0] && costs.iter().all(|bytes| *bytes < native as f64), "{costs:?}");
        if matches!(representation, Representation::MultiLevel(_)) {
            // MLCBF, section 4.1 B: 61.54 %, and 71.23 % with symbol replacement.
            let [words, symbols, ..] = costs.map(|bytes| 1.0 - bytes / seed as f64);
            assert!(words > 0.53 && symbols > 0.7123, "{words} {symbols}");
        }
    }
}
