//! Whatever the network does: nothing comes twice, nothing comes that was not sent, and in the end both exchange datagrams.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Happening {
    Run(u16),
    Restart(u8),
    Exchange(u8),
    Replay(u16),
    Damage(u16, u8),
    ClockBack(u8),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (1_u16..400).prop_map(Happening::Run),
        1 => (0_u8..2).prop_map(Happening::Restart),
        2 => (0_u8..2).prop_map(Happening::Exchange),
        3 => any::<u16>().prop_map(Happening::Replay),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(which, bit)| Happening::Damage(which, bit)),
        1 => (0_u8..2).prop_map(Happening::ClockBack),
    ]
}

fn play(pair: &mut Pair, happening: &Happening, received: &mut [Vec<u64>; 2]) {
    match *happening {
        Happening::Run(ms) => pair.run(Duration::from_millis(ms.into())),
        Happening::Restart(node) => {
            pair.restart(node, &credentials(&[1]));
            // What the new process receives is not to be compared with what the old one received.
            let at = usize::from(node);
            received[at].append(&mut pair.received[at]);
        }
        Happening::Exchange(node) => pair.channels[usize::from(node)].want(pair.now),
        Happening::Replay(which) => {
            if let Some((to, datagram)) = pair.recorded.get(usize::from(which) % pair.recorded.len().max(1)).cloned() {
                pair.hand_in(to, &datagram);
            }
        }
        Happening::Damage(which, bit) => {
            let at = usize::from(which) % pair.recorded.len().max(1);
            if let Some((to, mut datagram)) = pair.recorded.get(at).cloned() {
                let at = usize::from(which / 3) % datagram.len();
                datagram[at] ^= 1 << (bit % 8);
                pair.hand_in(to, &datagram);
            }
        }
        Happening::ClockBack(node) => {
            pair.channels[usize::from(node)].set_unix_time(pair.now, Duration::from_secs(1000));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_nothing_is_taken_twice_and_both_exchange_datagrams_in_the_end(
        seed in any::<u8>(),
        loss_percent in 0_u32..60,
        happenings in prop::collection::vec(happening(), 1..24),
    ) {
        let mut random = SeededRandom { seed: Seed::new([seed; 32]), next: 0 };
        let mut pair = Pair::with_keys(&[1], &[1]);
        pair.delivery = Box::new(move || {
            let arrivals = match random.number() % 100 {
                drawn if drawn < loss_percent => 0,
                drawn if drawn > 90 => 2,
                _ => 1,
            };
            (0..arrivals).map(|_| Duration::from_micros((random.number() % 8000).into())).collect()
        });
        let mut received_before = [Vec::new(), Vec::new()];
        for happening in &happenings {
            play(&mut pair, happening, &mut received_before);
        }
        for (node, before) in received_before.iter().enumerate() {
            let mut all = pair.received[node].clone();
            prop_assert!(all.iter().chain(before).all(|number| *number < pair.sent_numbers[1 - node]));
            let length = all.len();
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(all.len(), length, "a process takes nothing twice");
        }
        pair.delivery = Box::new(|| vec![Duration::from_millis(1)]);
        pair.run(Duration::from_secs(15));
        let received = pair.received.each_ref().map(Vec::len);
        pair.run(Duration::from_secs(3));
        for (node, before) in received.into_iter().enumerate() {
            prop_assert_eq!(pair.received[node].len(), before + 3000);
        }
    }
}
