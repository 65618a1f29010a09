//! Whatever happens, the replicas become equal when the network is quiet. (That nothing goes backwards, and that no
//! connection's end removes a later one, the harness checks at every message.)

use core::time::Duration;

use proptest::prelude::*;

use super::harness::{FINE, Pair, SLOTS, Weather, small_config};
use crate::session::SessionConfig;

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(usize, u32, u32),
    Change(usize, u32),
    Close(usize, u32),
    Run(u32),
    Partition(bool),
    Restart(usize),
    RequestResync(usize),
    Weather(u8, u8, u32),
}

fn slot() -> impl Strategy<Value = u32> {
    0..12u32
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..2usize;
    prop_oneof![
        12 => (node.clone(), slot(), 0..16u32).prop_map(|(node, slot, tuple)| Step::Open(node, slot, tuple)),
        20 => (node.clone(), slot()).prop_map(|(node, slot)| Step::Change(node, slot)),
        10 => (node.clone(), slot()).prop_map(|(node, slot)| Step::Close(node, slot)),
        20 => (1..3000u32).prop_map(Step::Run),
        1 => (100_000..1_500_000u32).prop_map(Step::Run),
        1 => any::<bool>().prop_map(Step::Partition),
        1 => node.clone().prop_map(Step::Restart),
        1 => node.prop_map(Step::RequestResync),
        2 => (0..=50u8, 0..30u8, 0..2000u32).prop_map(|(loss, duplication, jitter)| Step::Weather(loss, duplication, jitter)),
    ]
}

fn take(pair: &mut Pair, step: Step) {
    match step {
        // Tuples of the two nodes are disjoint: which of two owners is right is the node's concern.
        Step::Open(node, slot, tuple) => pair.open(node, slot, tuple * 2 + node as u32),
        Step::Change(node, slot) => pair.change(node, slot),
        Step::Close(node, slot) => pair.close(node, slot),
        Step::Run(micros) => pair.run_for(Duration::from_micros(micros.into())),
        Step::Partition(partition) => pair.weather.partition = partition,
        Step::Restart(node) => pair.restart(node),
        Step::RequestResync(node) => pair.nodes[node].session.request_resync(),
        Step::Weather(loss_percent, duplication_percent, jitter_micros) => {
            let jitter = Duration::from_micros(jitter_micros.into());
            pair.weather = Weather { loss_percent, duplication_percent, jitter, ..pair.weather };
        }
    }
}

fn small_windows() -> SessionConfig {
    SessionConfig {
        changes_queued_max: 6,
        deletions_max: 3,
        in_flight_messages_max: 8,
        resync_in_flight_messages_max: 4,
        ack_every_messages: 2,
        ..small_config()
    }
}

fn check(config: SessionConfig, seed: u64, loss_at_the_end: u8, steps: &[Step]) {
    let mut pair = Pair::with_config(seed, config);
    for each in steps {
        take(&mut pair, *each);
    }
    // The network becomes quiet but for loss, which must only cost time.
    pair.weather = Weather { loss_percent: loss_at_the_end, ..FINE };
    pair.run_until_equal();
    pair.weather = FINE;
    pair.run_until_synchronised();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.is_equal(), "what is equal stays so");
    for node in &pair.nodes {
        assert_eq!(node.session.status().anti_entropy.divergent_found, 0, "nothing diverged that was not in flight");
        assert_eq!(node.session.status().anti_entropy.unnoted_changes, 0, "every change of a copy was noted");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn copies_become_equal(seed: u64, loss in 0..=50u8, steps in proptest::collection::vec(step(), 1..120)) {
        check(small_config(), seed, loss, &steps);
    }

    #[test]
    fn copies_become_equal_with_queues_that_overflow(
        seed: u64,
        loss in 0..=50u8,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        check(small_windows(), seed, loss, &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn half_of_everything_lost_for_seconds_is_survived(seed: u64) {
        let mut pair = Pair::new(seed);
        pair.weather = Weather { loss_percent: 50, duplication_percent: 10, jitter: Duration::from_millis(1), ..FINE };
        for round in 0..2000u32 {
            pair.open(0, round * 7 % SLOTS, round % 97);
            pair.change(0, round * 13 % SLOTS);
            pair.run_for(Duration::from_millis(1));
        }
        pair.run_until_equal();
    }
}
