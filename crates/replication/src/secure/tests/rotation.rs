//! Session keys and pre-shared keys that are exchanged while traffic passes.

use super::*;

fn rotating(interval: Duration, datagrams: u64) -> Pair {
    Pair::new([credentials(&[1]), credentials(&[1])], Rotation { interval, datagrams })
}

#[test]
fn session_keys_are_exchanged_after_their_time_and_nothing_is_lost() {
    let mut pair = rotating(Duration::from_secs(1), u64::MAX);
    // Two milliseconds each way, so that there is always something in flight under former keys.
    pair.delivery = Box::new(|| vec![Duration::from_millis(2)]);
    pair.run_until("both to be ready", Pair::are_ready);
    pair.run(Duration::from_secs(10));
    let sent_numbers = pair.sent_numbers;
    pair.run(Duration::from_millis(5));
    for node in 0..2 {
        let handshakes = pair.channels[node].status().handshakes;
        assert!((10..=11).contains(&handshakes), "{handshakes}");
        let expected: Vec<u64> = (0..sent_numbers[1 - node]).collect();
        assert_eq!(pair.received[node][..expected.len()], expected);
    }
    assert_eq!(pair.errors, []);
}

#[test]
fn session_keys_are_exchanged_after_so_many_datagrams() {
    let mut pair = rotating(Duration::from_secs(3600), 200);
    pair.run(Duration::from_secs(2));
    let handshakes = pair.channels[0].status().handshakes;
    assert!((9..=11).contains(&handshakes), "{handshakes}");
    assert_eq!(pair.received[0].len() as u64, pair.sent_numbers[1]);
}

#[test]
fn keys_go_on_while_no_exchange_succeeds() {
    let mut pair = rotating(Duration::from_secs(1), u64::MAX);
    pair.run(Duration::from_millis(100));
    // The right node has lost its key file: nothing new can be agreed upon.
    pair.channels[1].credentials = credentials(&[9]);
    pair.run(Duration::from_secs(60));
    assert_eq!(pair.received[0].len() as u64, pair.sent_numbers[1]);
    assert_eq!(pair.channels[0].status().handshakes, 1);
    assert!(pair.refused(1, Refusal::UnknownKey) > 50, "the exchange is tried again and again");
    pair.channels[1].credentials = credentials(&[1]);
    pair.run(Duration::from_secs(2));
    assert!(pair.channels[0].status().handshakes > 1);
}

#[test]
fn a_pre_shared_key_is_replaced_step_by_step_without_a_gap() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.run(Duration::from_millis(100));
    let steps: [(usize, &[u8]); 6] = [(0, &[1, 2]), (1, &[1, 2]), (0, &[2, 1]), (1, &[2, 1]), (0, &[2]), (1, &[2])];
    for (node, keys) in steps {
        let now = pair.now;
        assert!(pair.channels[node].set_credentials(now, credentials(keys)));
        assert!(!pair.channels[node].set_credentials(now, credentials(keys)), "the same again changes nothing");
        pair.run(Duration::from_secs(3));
    }
    for node in 0..2 {
        assert_eq!(pair.key_in_use(node), Some(key(2).id()));
        let expected: Vec<u64> = (0..pair.sent_numbers[1 - node]).collect();
        assert_eq!(pair.received[node], expected);
    }
}

#[test]
fn a_key_that_is_withdrawn_is_of_no_use_any_more() {
    let mut pair = Pair::with_keys(&[1, 2], &[1, 2]);
    pair.run(Duration::from_millis(100));
    for channel in &mut pair.channels {
        channel.set_credentials(pair.now, credentials(&[2]));
    }
    pair.run(Duration::from_millis(500));
    assert_eq!([0, 1].map(|node| pair.key_in_use(node)), [Some(key(2).id()); 2]);
    // Somebody who has the old key.
    let mut thief = channel(1, &credentials(&[1]), Rotation::default(), 77, pair.now);
    thief.handle_timeout(pair.now);
    let (mut datagram, mut content) = (Vec::new(), Vec::new());
    assert!(thief.poll_transmit(&mut datagram));
    let refusal = pair.channels[0].handle_datagram(pair.now, &datagram, &mut content);
    assert!(matches!(refusal, Err(ChannelError::UnknownKey { .. })));
}

#[test]
fn two_nodes_that_use_different_keys_find_a_common_one() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.run(Duration::from_millis(100));
    // Both begin a handshake at the same time, again and again; delays decide which of the two comes through.
    for delay in [0, 1, 5, 30, 120, 300] {
        pair.delivery = Box::new(move || vec![Duration::from_millis(delay)]);
        for channel in &mut pair.channels {
            channel.want(pair.now);
        }
        pair.run(Duration::from_secs(5));
        let received = pair.received.each_ref().map(Vec::len);
        pair.run(Duration::from_secs(20));
        for (node, before) in received.into_iter().enumerate() {
            assert_eq!(pair.received[node].len(), before + 20_000, "with {delay} ms each way");
        }
    }
}
