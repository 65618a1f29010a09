//! How channels come about, and come about again.

use super::*;

#[test]
fn two_nodes_with_a_key_exchange_datagrams_after_one_round_trip() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.step();
    assert!(pair.are_ready());
    pair.run(Duration::from_secs(1));
    for node in 0..2 {
        let expected: Vec<u64> = (0..pair.sent_numbers[1 - node]).collect();
        assert_eq!(pair.received[node], expected, "nothing is lost, doubled or turned round on the way");
        assert_eq!(pair.channels[node].status().handshakes, 1);
        assert_eq!(pair.key_in_use(node), Some(key(1).id()));
        assert_eq!(pair.channels[node].poll_event(), Some(ChannelEvent::Established));
    }
    assert_eq!(pair.errors, [], "both began at once, and one gave way");
}

#[test]
fn nothing_can_be_said_before() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.send_next(0);
    assert_eq!((pair.sent_numbers[0], pair.sent), (0, 0));
}

#[test]
fn what_travels_does_not_show_its_content() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.step();
    let mut datagram = Vec::new();
    let secret = b"10.0.0.1:40000 to 192.0.2.1:443, established";
    assert!(pair.channels[0].seal(pair.now, Content::Replication, &mut secret.to_vec(), &mut datagram));
    assert_eq!(datagram.len(), secret.len() + OVERHEAD_BYTES);
    assert!(!datagram.windows(8).any(|window| secret.windows(8).any(|part| part == window)));
}

#[test]
fn nodes_without_a_key_in_common_never_connect_and_report_the_keys_that_there_are() {
    let mut pair = Pair::with_keys(&[1, 2], &[3]);
    pair.run(Duration::from_secs(5));
    assert!(!pair.channels[0].is_ready() && !pair.channels[1].is_ready());
    let (_, error) = pair.errors.iter().find(|(node, _)| *node == 1).expect("the second node refuses");
    let sent_numbers = std::format!("{error}");
    for id in [key(1).id(), key(3).id()] {
        assert!(sent_numbers.contains(&std::format!("{id}")), "{sent_numbers}");
    }
    assert!(sent_numbers.contains("pre_shared_keys"), "{sent_numbers}");
    let multiplications = pair.channels[1].status().multiplications;
    assert!(multiplications <= 30, "a refused handshake costs nothing much: {multiplications}");
}

#[test]
fn another_worker_or_another_node_number_makes_another_handshake() {
    let (mut pair, now) = (Pair::with_keys(&[1], &[1]), Instant::from_millis(1));
    let config =
        ChannelConfig { local: NodeId(1), peer: NodeId(0), worker: WorkerId(1), rotation: Rotation::default() };
    let other_worker = Channel::new(config, credentials(&[1]), Seed::new([3; 32]), now, TODAY);
    pair.channels[1] = other_worker;
    pair.run(Duration::from_secs(1));
    assert!(!pair.channels[0].is_ready() && !pair.channels[1].is_ready());
    assert!(pair.errors.iter().all(|(_, error)| *error == ChannelError::ForgedHandshake), "{:?}", pair.errors);
}

#[test]
fn a_restarted_node_is_accepted_at_once() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.run(Duration::from_secs(1));
    let before = pair.received[0].len();
    pair.restart(1, &credentials(&[1]));
    let (restarted_at, sent_numbers) = (pair.now, pair.sent_numbers[1]);
    pair.run_until("the first word", |pair| pair.received[0].len() > before && pair.received[1].last() > Some(&0));
    assert!(pair.now.saturating_since(restarted_at) <= Duration::from_millis(30));
    pair.run(Duration::from_millis(100));
    assert!(pair.received[0].last().unwrap() >= &(sent_numbers + 90));
    assert_eq!(pair.channels[0].poll_event(), Some(ChannelEvent::Established));
    assert_eq!(pair.channels[0].poll_event(), Some(ChannelEvent::KeysExchanged));
}

#[test]
fn a_restarted_node_whose_clock_went_back_is_accepted_soon() {
    let ways = [(0, 0), (0, 600), (0, 5_000), (1, 0), (1, 600), (1, 5_000)];
    for (restarted, delay_us) in ways {
        // The other node has begun a handshake of its own meanwhile, and tries less and less often, at least twice a second.
        for away_ms in (0..700).step_by(7) {
            let mut pair = Pair::with_keys(&[1], &[1]);
            let (other, away) = (1 - usize::from(restarted), Duration::from_millis(away_ms));
            pair.run(Duration::from_secs(1));
            if away_ms > 0 {
                pair.channels[other].want(pair.now);
                pair.delivery = Box::new(Vec::new);
                pair.run(away);
            }
            pair.delivery = Box::new(move || vec![Duration::from_micros(delay_us)]);
            let before = pair.received[other].len();
            pair.restart(restarted, &credentials(&[1]));
            pair.channels[usize::from(restarted)].set_unix_time(pair.now, Duration::from_secs(5));
            let restarted_at = pair.now;
            pair.run_until("the first word", |pair| pair.received[other].len() > before + 10);
            let took = pair.now.saturating_since(restarted_at);
            let case = alloc::format!("node {restarted} was away for {away:?}, the way takes {delay_us} us");
            let limit = Duration::from_millis(if away_ms == 0 { 300 } else { 550 });
            assert!(took <= limit, "the other node begins then: {case}, took {took:?}");
        }
    }
}

#[test]
fn a_lossy_network_delays_the_handshake_and_nothing_else() {
    for seed in 0..20 {
        let mut random = SeededRandom { seed: Seed::new([seed; 32]), next: 0 };
        let mut pair = Pair::with_keys(&[1], &[1]);
        // Half of all datagrams are lost.
        pair.delivery =
            Box::new(move || if random.number().is_multiple_of(2) { vec![Duration::ZERO] } else { Vec::new() });
        pair.run_until("both to be ready", Pair::are_ready);
        assert!(pair.now < Instant::from_millis(4000), "{:?}", pair.now);
        pair.delivery = Box::new(|| vec![Duration::ZERO]);
        let received = pair.received.each_ref().map(Vec::len);
        pair.run(Duration::from_secs(1));
        assert_eq!(pair.received.each_ref().map(Vec::len), received.map(|before| before + 1000));
    }
}

#[test]
fn a_node_whose_key_is_only_accepted_waits_for_the_other_to_begin() {
    // What the left one begins with is unknown to the right one, which knows only the second.
    let mut pair = Pair::with_keys(&[2, 1], &[1]);
    pair.run(Duration::from_millis(300));
    assert!(pair.are_ready());
    assert_eq!(pair.key_in_use(0), Some(key(1).id()));
}

#[test]
fn plain_text_is_refused() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.step();
    for datagram in [&[0, 1, 0, 5][..], &[0xf1; 40], &[], &[0xe9, 1, 0, 0], &[0xe4, 1, 0, 0], &[0xe1; 200]] {
        pair.hand_in(0, datagram);
    }
    assert_eq!(pair.errors[0].1, ChannelError::Unprotected);
    assert_eq!(pair.refused(0, Refusal::Unprotected), 3);
    assert_eq!(pair.errors[3].1, ChannelError::Malformed { length_bytes: 4 });
    assert_eq!(pair.errors[5].1, ChannelError::Version(0xe1));
}
