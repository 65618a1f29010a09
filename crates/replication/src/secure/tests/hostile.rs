//! Strangers who send whatever they like, also what they have overheard.

use super::super::wire;
use super::*;

/// Multiplications of points that an honest handshake costs one side.
const HONEST_HANDSHAKE: u64 = 2;

fn flood(pair: &mut Pair, to: usize, mut datagram: impl FnMut(u64) -> Vec<u8>, datagrams: u64) {
    for number in 0..datagrams {
        let datagram = datagram(number);
        pair.hand_in(to, &datagram);
        assert!(!pair.channels[to].poll_transmit(&mut Vec::new()), "a stranger gets no answer");
        // A hundred datagrams a millisecond.
        if number % 100 == 0 {
            pair.step();
        }
    }
}

fn initiation(key: KeyId, noise: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    wire::put_initiation(&mut datagram, wire::Mode::new(true, false), key, 7);
    datagram.extend_from_slice(noise);
    datagram
}

#[test]
fn a_flood_of_strangers_costs_no_multiplication_and_changes_nothing() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.run(Duration::from_secs(1));
    let before = pair.channels.each_ref().map(Channel::status);
    let overheard = pair.recorded.clone();
    let mut random = SeededRandom { seed: Seed::new([9; 32]), next: 0 };
    let to_left: Vec<Vec<u8>> =
        overheard.iter().filter(|(to, _)| *to == 0).map(|(_, datagram)| datagram.clone()).collect();
    // Handshakes that name the right key but were not made with it.
    flood(
        &mut pair,
        0,
        |_| {
            let mut noise = [0; wire::INITIATION_NOISE_BYTES];
            random.fill(&mut noise);
            initiation(key(1).id(), &noise)
        },
        20_000,
    );
    // All that was ever sent, again.
    flood(&mut pair, 0, |number| to_left[number as usize % to_left.len()].clone(), 20_000);
    // The same, cut short and changed.
    flood(
        &mut pair,
        0,
        |number| {
            let mut datagram = to_left[number as usize % to_left.len()].clone();
            let at = number as usize / 7 % datagram.len();
            if number % 3 == 0 {
                datagram.truncate(at);
            } else {
                datagram[at] ^= 1 << (number % 8);
            }
            datagram
        },
        20_000,
    );
    let mut random = SeededRandom { seed: Seed::new([8; 32]), next: 0 };
    flood(
        &mut pair,
        0,
        |number| {
            let mut noise = std::vec![0; number as usize % 1500];
            random.fill(&mut noise);
            if let [first, version, ..] = &mut noise[..] {
                (*first, *version) = (0xe0 | (*first % 6), 1);
            }
            noise
        },
        20_000,
    );
    for (node, before) in before.iter().enumerate() {
        let after = pair.channels[node].status();
        assert_eq!(after.multiplications, before.multiplications, "no stranger got as far as that");
        assert_eq!(after.keys, before.keys);
        let expected: Vec<u64> = (0..pair.sent_numbers[1 - node]).collect();
        assert_eq!(pair.received[node], expected, "what the peer said came through, once");
    }
    for refusal in [Refusal::Forged, Refusal::Replayed, Refusal::Malformed, Refusal::UnknownSession] {
        assert!(pair.refused(0, refusal) > 1000, "{}", refusal.label());
    }
    assert!(pair.refused(0, Refusal::RateLimited) > 1000, "not even all handshakes are looked into");
    assert!(pair.channels[0].pending.is_empty() && pair.channels[0].outbox.is_empty());
}

#[test]
fn while_the_peer_is_away_strangers_cannot_make_a_node_work_much() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.run(Duration::from_secs(1));
    let recorded: Vec<Vec<u8>> =
        pair.recorded.iter().filter(|(to, _)| *to == 0).map(|(_, datagram)| datagram.clone()).collect();
    pair.delivery = Box::new(Vec::new);
    // Nothing of the peer comes any more, only what it sent once and forgeries.
    let before = pair.channels[0].status().multiplications;
    let (began_at, mut content) = (pair.now, Vec::new());
    for number in 0..100_000_usize {
        let mut datagram = recorded[number % recorded.len()].clone();
        if number % 2 == 0 {
            datagram[4..8].copy_from_slice(&[1, 2, 3, 4]);
        }
        assert!(pair.channels[0].handle_datagram(pair.now, &datagram, &mut content).is_err());
        if number % 20 == 0 {
            pair.step();
        }
    }
    let seconds = pair.now.saturating_since(began_at).as_secs();
    let multiplications = pair.channels[0].status().multiplications - before;
    // It tries to reach the peer: ten times quickly, then at most twice a second.
    assert!(multiplications <= 2 * seconds + 20, "{multiplications} in {seconds} s");
}

#[test]
fn handshakes_of_somebody_with_the_key_are_limited_too() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.run(Duration::from_secs(1));
    let before = pair.channels[0].status().multiplications;
    for number in 0..1000_u64 {
        let mut insider = channel(1, &credentials(&[1]), Rotation::default(), (number % 251) as u8, pair.now);
        insider.set_unix_time(pair.now, TODAY + Duration::from_secs(10 + number));
        insider.handle_timeout(pair.now);
        let mut datagram = Vec::new();
        assert!(insider.poll_transmit(&mut datagram));
        pair.hand_in(0, &datagram);
        if number % 100 == 0 {
            pair.step();
        }
    }
    let multiplications = pair.channels[0].status().multiplications - before;
    assert!(multiplications <= 22 * HONEST_HANDSHAKE, "{multiplications}");
    assert!(pair.channels[0].pending.len() <= PENDING_KEYS_MAX);
    assert!(pair.refused(0, Refusal::RateLimited) > 900);
}

#[test]
fn a_handshake_that_is_repeated_is_refused_before_it_costs_anything() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.run(Duration::from_secs(1));
    let handshakes: Vec<_> = pair.recorded.iter().filter(|(_, datagram)| datagram[0] < 0xe4).cloned().collect();
    assert!(handshakes.len() >= 3, "two initiations that crossed, and an answer");
    let before = pair.channels.each_ref().map(Channel::status);
    for (to, datagram) in &handshakes {
        pair.hand_in(*to, datagram);
    }
    for (channel, before) in pair.channels.iter().zip(before) {
        let after = channel.status();
        assert_eq!((after.multiplications, after.keys), (before.multiplications, before.keys));
    }
}

#[test]
fn forged_answers_to_a_handshake_are_tried_a_few_times_only() {
    let mut pair = Pair::with_keys(&[1], &[1]);
    pair.delivery = Box::new(Vec::new);
    pair.step();
    let initiation = &pair.recorded[0].1;
    let index = u32::from_be_bytes(initiation[8..12].try_into().unwrap());
    let before = pair.channels[1].status().multiplications;
    let (to, _) = pair.recorded[0];
    let from = 1 - to;
    let mut forged = Vec::new();
    wire::put_response(&mut forged, 99, index);
    forged.extend([0x42; wire::RESPONSE_NOISE_BYTES]);
    let cost_before = pair.channels[from].status().multiplications;
    for _ in 0..1000 {
        pair.hand_in(from, &forged);
    }
    assert!(pair.channels[from].status().multiplications - cost_before <= 8);
    assert_eq!(pair.channels[1 - from].status().multiplications.min(before), before.min(2));
    pair.delivery = Box::new(|| vec![Duration::ZERO]);
    pair.run_until("both to be ready all the same", Pair::are_ready);
}
