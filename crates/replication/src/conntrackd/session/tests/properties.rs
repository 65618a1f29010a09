//! Whatever happens on the link, both agree once it is quiet.

use core::time::Duration;

use proptest::prelude::*;

use super::harness::{Node, TIME_OF_DAY_S, Weather, agree, connection, pair};
use crate::conntrackd::FtfwConfig;

#[derive(Clone, Copy, Debug)]
enum Step {
    Put { is_left: bool, number: u16 },
    End { is_left: bool, number: u16 },
    Wait { milliseconds: u64 },
    Weather(Weather),
    Restart { is_left: bool },
    Resync { is_left: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let weather = (0..60u64, 0..30u64, 0..20u64)
        .prop_map(|(lost, doubled, delay_max_ms)| Step::Weather(Weather { lost, doubled, delay_max_ms }));
    prop_oneof![
        8 => (any::<bool>(), 0..12u16).prop_map(|(is_left, number)| Step::Put { is_left, number }),
        4 => (any::<bool>(), 0..12u16).prop_map(|(is_left, number)| Step::End { is_left, number }),
        4 => prop_oneof![0..20u64, 0..3000u64].prop_map(|milliseconds| Step::Wait { milliseconds }),
        2 => weather,
        1 => any::<bool>().prop_map(|is_left| Step::Restart { is_left }),
        1 => any::<bool>().prop_map(|is_left| Step::Resync { is_left }),
    ]
}

/// The left node's connections and the right one's have different tuples: who is master is not the session's business.
fn tuple_number(is_left: bool, number: u16) -> u16 {
    if is_left { number } else { 100 + number }
}

fn play(steps: &[Step], config: FtfwConfig, seed: u64) {
    let mut world = pair(config, seed);
    for (version, step) in steps.iter().enumerate() {
        let mut restarted = None;
        match *step {
            Step::Put { is_left, number } => {
                let node = if is_left { &mut world.left } else { &mut world.right };
                node.put(connection(tuple_number(is_left, number), version as u32));
            }
            Step::End { is_left, number } => {
                let node = if is_left { &mut world.left } else { &mut world.right };
                node.end(tuple_number(is_left, number));
            }
            Step::Wait { milliseconds } => world.run(Duration::from_millis(milliseconds)),
            Step::Weather(weather) => world.weather = weather,
            Step::Restart { is_left } => restarted = Some(is_left),
            Step::Resync { is_left } => {
                let node = if is_left { &mut world.left } else { &mut world.right };
                node.session.request_resync();
            }
        }
        world.flush();
        if let Some(is_left) = restarted {
            // A full synchronisation has no end that the peer sees: what a dead process sent last, it keeps.
            world.lose_in_flight();
            // With the kernel's connections, but no memory of what was sent: those that end from now on, this process must have
            // sent to the peer.
            let (node, other) =
                if is_left { (&mut world.left, &mut world.right) } else { (&mut world.right, &mut world.left) };
            let table = core::mem::take(&mut node.table);
            *node = Node::new(config, TIME_OF_DAY_S + 10 + version as u32 * 1000);
            table.connections.into_iter().flatten().for_each(|entry| node.put(entry));
            // What is left over at the other of what ended unsaid goes by its timeout there.
            let own = node.own();
            other.table.copies.retain(|(tuple, _), _| own.contains_key(tuple));
        }
    }
    world.weather = Weather::default();
    world.until(Duration::from_secs(30), "both agree", |world| agree(world));
    let before = world.datagrams;
    world.run(Duration::from_secs(10));
    assert!(agree(&world), "and stay so");
    assert!(world.datagrams - before < 60, "and are quiet: {}", world.datagrams - before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn once_the_link_is_quiet_both_agree(steps in proptest::collection::vec(step(), 0..60), seed in any::<u64>()) {
        play(&steps, FtfwConfig::default(), seed);
    }

    #[test]
    fn small_windows_change_nothing(steps in proptest::collection::vec(step(), 0..60), seed in any::<u64>()) {
        let config = FtfwConfig {
            in_flight_messages_max: 4,
            resync_in_flight_messages_max: 2,
            ack_every_messages: 1,
            batch_delay: Duration::from_millis(2),
            datagram_bytes_max: 576,
            ..FtfwConfig::default()
        };
        play(&steps, config, seed);
    }
}
