//! Two sessions on a link in memory, and one session alone with hand-made packets.

use std::vec::Vec;

use core::time::Duration;

use flow::Instant;
use flow::random::SplitMix64;
use proptest::prelude::*;

use super::*;

const LATENCY: Duration = Duration::from_micros(300);
const SETTLING: Duration = Duration::from_secs(3);

/// Two sessions and the link between them. Time jumps from one thing that happens to the next.
struct Pair {
    now: Instant,
    sessions: [Session; 2],
    in_flight: Vec<(Instant, usize, Vec<u8>)>,
    loss_percent: u64,
    random: SplitMix64,
    stopped: [bool; 2],
    /// Packets arrive authenticated.
    is_authentic: bool,
    events: [Vec<Event>; 2],
    transmitted: [Vec<Instant>; 2],
}

impl Pair {
    fn new(configs: [Config; 2], loss_percent: u64, seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            sessions: [Session::new(configs[0], 11, seed), Session::new(configs[1], 22, !seed)],
            in_flight: Vec::new(),
            loss_percent,
            random: SplitMix64::new(seed ^ 77),
            stopped: [false; 2],
            is_authentic: false,
            events: [Vec::new(), Vec::new()],
            transmitted: [Vec::new(), Vec::new()],
        }
    }

    fn defaults() -> Self {
        Self::new([Config::default(); 2], 0, 1)
    }

    fn step(&mut self) {
        let timers = (0..2).filter(|side| !self.stopped[*side]).filter_map(|side| self.sessions[side].poll_timeout());
        let next = timers.chain(self.in_flight.iter().map(|packet| packet.0)).min().expect("something is always due");
        self.now = self.now.max(next);
        let (arrived, waiting) = self.in_flight.drain(..).partition(|packet| packet.0 <= self.now);
        self.in_flight = waiting;
        let arrived: Vec<(Instant, usize, Vec<u8>)> = arrived;
        for (_, to, bytes) in arrived {
            if !self.stopped[to] {
                let _ = if self.is_authentic {
                    self.sessions[to].handle_authentic_packet(self.now, &bytes)
                } else {
                    self.sessions[to].handle_packet(self.now, &bytes, 255)
                };
            }
        }
        for side in (0..2).filter(|side| !self.stopped[*side]) {
            let session = &mut self.sessions[side];
            session.handle_timeout(self.now);
            let mut bytes = Vec::new();
            while session.poll_transmit(self.now, &mut bytes) {
                self.transmitted[side].push(self.now);
                if self.random.between(0, 99) >= self.loss_percent {
                    self.in_flight.push((self.now + LATENCY, 1 - side, bytes.clone()));
                }
            }
            while let Some(event) = session.poll_event() {
                self.events[side].push(event);
            }
        }
    }

    fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.step();
        }
    }

    fn run_until(&mut self, limit: Duration, condition: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        while !condition(self) {
            assert!(self.now < end, "the condition did not come true within {limit:?}");
            self.step();
        }
    }

    fn both_up(&self) -> bool {
        self.sessions.iter().all(|session| session.status().state == State::Up)
    }
}

#[test]
fn two_sessions_come_up_and_agree_on_the_intervals() {
    let mut pair = Pair::defaults();
    pair.run_until(Duration::from_millis(500), Pair::both_up);
    pair.run_for(Duration::from_millis(200));
    for session in &pair.sessions {
        let status = session.status();
        assert_eq!(status.transmit_interval, Some(Duration::from_millis(10)));
        assert_eq!(status.detection_time, Duration::from_millis(100));
        assert_eq!(status.diagnostic, Diagnostic::None);
    }
    assert_eq!(pair.events, [[Event::Up], [Event::Up]]);
}

#[test]
fn a_silent_peer_is_down_within_its_detection_time() {
    let mut pair = Pair::defaults();
    pair.run_for(Duration::from_secs(1));
    assert!(pair.both_up());
    pair.stopped[1] = true;
    let stopped_at = pair.now;
    pair.run_until(SETTLING, |pair| pair.sessions[0].status().state == State::Down);
    let took = pair.now.saturating_since(stopped_at);
    assert!(took <= Duration::from_millis(100) + LATENCY, "{took:?}");
    assert!(took >= Duration::from_millis(90), "{took:?}");
    let down = Event::Down { diagnostic: Diagnostic::DetectionTimeExpired };
    assert_eq!(pair.events[0], [Event::Up, down]);
    assert_eq!(pair.sessions[0].status().remote_discriminator, 0);
}

#[test]
fn a_side_that_did_not_run_gives_its_peer_another_detection_time_and_no_second_one() {
    let mut pair = Pair::defaults();
    pair.run_for(SETTLING);
    let absence = Duration::from_secs(5);
    let session = &mut pair.sessions[0];
    let detection_time = session.status().detection_time;
    let back = pair.now + absence;
    session.handle_absence(back, absence);
    session.handle_timeout(back);
    assert_eq!(session.status().state, State::Up);
    let late = back + detection_time;
    session.handle_absence(late, detection_time);
    session.handle_timeout(late);
    assert_eq!(session.status().state, State::Down);
}

/// Both sessions are up and slow.
fn slow_pair() -> Pair {
    let mut pair = Pair::defaults();
    pair.run_for(SETTLING);
    for session in &mut pair.sessions {
        session.set_pace(pair.now, Pace::Slow(Duration::from_secs(1)));
    }
    pair.run_for(SETTLING);
    pair.transmitted = [Vec::new(), Vec::new()];
    pair
}

#[test]
fn a_slow_pair_sends_once_a_second_and_stays_up() {
    let mut pair = slow_pair();
    pair.run_for(Duration::from_secs(30));
    for side in 0..2 {
        let count = pair.transmitted[side].len();
        assert!((30..=42).contains(&count), "{count}");
        assert_eq!(pair.sessions[side].status().state, State::Up);
    }
}

#[test]
fn a_slow_peer_that_is_urgently_polled_answers_and_stays_slow_and_a_dead_one_is_down_in_the_detection_time() {
    let mut pair = slow_pair();
    pair.sessions[0].set_pace(pair.now, Pace::Urgent { since: pair.now });
    pair.run_for(Duration::from_secs(5));
    assert!(pair.transmitted[0].len() > 400 && pair.transmitted[1].len() > 400, "each packet is answered");
    assert!(pair.sessions.iter().all(|session| session.status().state == State::Up));

    pair.stopped[1] = true;
    let stopped_at = pair.now;
    while pair.sessions[0].status().state == State::Up {
        pair.step();
    }
    let silent = pair.now.saturating_since(stopped_at);
    assert!(silent <= Duration::from_millis(105), "{silent:?}");
}

#[test]
fn a_death_before_the_urgent_polls_counts_from_what_another_path_received_last() {
    let mut pair = slow_pair();
    pair.stopped[1] = true;
    pair.run_for(Duration::from_millis(400));
    let last_at = pair.now;
    pair.run_for(Duration::from_millis(15));
    pair.sessions[0].set_pace(pair.now, Pace::Urgent { since: last_at });
    while pair.sessions[0].status().state == State::Up {
        pair.step();
    }
    let silent = pair.now.saturating_since(last_at);
    assert!((Duration::from_millis(90)..=Duration::from_millis(105)).contains(&silent), "{silent:?}");
}

#[test]
fn a_slow_peer_that_misses_a_packet_is_asked_and_down_soon_after() {
    let mut pair = slow_pair();
    pair.stopped[1] = true;
    let stopped_at = pair.now;
    while pair.sessions[0].status().state == State::Up {
        pair.step();
    }
    let silent = pair.now.saturating_since(stopped_at);
    assert!(silent <= Duration::from_millis(1650), "{silent:?}");
}

#[test]
fn a_third_of_the_packets_lost_between_slow_peers_takes_nobody_down() {
    let mut pair = slow_pair();
    pair.loss_percent = 30;
    pair.run_for(Duration::from_secs(600));
    assert!(pair.events.iter().flatten().all(|event| *event == Event::Up), "{:?}", pair.events);
}

/// The time after which a restarted peer is noticed, and why the session went down.
fn noticed_after_restart(is_authentic: bool) -> (Duration, Event) {
    let mut pair = Pair { is_authentic, ..Pair::defaults() };
    pair.run_for(Duration::from_secs(1));
    pair.sessions[1] = Session::new(Config::default(), 33, 5);
    pair.events = [Vec::new(), Vec::new()];
    let restarted_at = pair.now;
    pair.run_until(SETTLING, |pair| !pair.events[0].is_empty());
    let noticed_after = pair.now.saturating_since(restarted_at);
    let event = pair.events[0][0];
    pair.run_until(SETTLING, Pair::both_up);
    assert_eq!(pair.sessions[0].status().remote_discriminator, 33);
    (noticed_after, event)
}

#[test]
fn a_peer_that_restarts_is_noticed_at_once_if_it_is_authentic_and_comes_up() {
    let (after, event) = noticed_after_restart(true);
    assert_eq!(event, Event::Down { diagnostic: Diagnostic::NeighbourSignalledDown });
    assert!(after < Duration::from_millis(20), "{after:?}");
}

#[test]
fn a_peer_that_restarts_in_plain_text_is_down_after_the_detection_time_and_comes_up() {
    let (after, event) = noticed_after_restart(false);
    assert_eq!(event, Event::Down { diagnostic: Diagnostic::DetectionTimeExpired });
    assert!((Duration::from_millis(90)..=Duration::from_millis(110)).contains(&after), "{after:?}");
}

#[test]
fn forged_packets_that_name_no_session_take_nothing_down() {
    let mut pair = Pair::defaults();
    pair.run_for(Duration::from_secs(1));
    for state in [State::Down, State::AdminDown] {
        for my_discriminator in 100..1100 {
            let mut bytes = Vec::new();
            ControlPacket { state, my_discriminator, your_discriminator: 0, ..peer_packet() }.encode(&mut bytes);
            let refused = pair.sessions[0].handle_packet(pair.now, &bytes, 255);
            assert_eq!(refused, Err(BfdError::OtherSender(my_discriminator)));
            pair.step();
        }
    }
    assert!(pair.both_up());
    assert_eq!(pair.events, [[Event::Up], [Event::Up]]);
    // The peer itself is believed: its detection time has run out, so that it does not know this side any more.
    let mut bytes = Vec::new();
    ControlPacket { my_discriminator: 22, your_discriminator: 0, ..peer_packet() }.encode(&mut bytes);
    assert_eq!(pair.sessions[0].handle_packet(pair.now, &bytes, 255), Ok(()));
    assert_eq!(pair.sessions[0].status().state, State::Down);
}

#[test]
fn taking_a_session_down_notifies_the_peer_and_enabling_it_brings_both_back() {
    let mut pair = Pair::defaults();
    pair.run_for(Duration::from_secs(1));
    pair.sessions[0].set_enabled(pair.now, false);
    pair.run_for(Duration::from_millis(500));
    assert_eq!(pair.events[0], [Event::Up, Event::Down { diagnostic: Diagnostic::AdministrativelyDown }]);
    assert_eq!(pair.events[1], [Event::Up, Event::Down { diagnostic: Diagnostic::NeighbourSignalledDown }]);
    assert_eq!(pair.sessions[1].status().remote_state, State::AdminDown);
    pair.sessions[0].set_enabled(pair.now, true);
    pair.run_until(SETTLING, Pair::both_up);
}

#[test]
fn slower_intervals_wait_for_the_peer_to_confirm_and_nobody_goes_down() {
    let mut pair = Pair::new([Config::default(); 2], 10, 3);
    pair.run_for(Duration::from_secs(1));
    let slow = Config { desired_min_tx: Duration::from_millis(400), ..Config::default() };
    pair.sessions[0].set_config(pair.now, slow).unwrap();
    assert_eq!(pair.sessions[0].status().transmit_interval, Some(Duration::from_millis(10)), "not yet confirmed");
    pair.run_until(SETTLING, |pair| pair.sessions[0].status().transmit_interval == Some(Duration::from_millis(400)));
    assert_eq!(pair.sessions[1].status().detection_time, Duration::from_secs(4));
    pair.sessions[0].set_config(pair.now, Config::default()).unwrap();
    assert_eq!(pair.sessions[0].status().transmit_interval, Some(Duration::from_millis(10)), "faster is at once");
    pair.run_until(SETTLING, |pair| pair.sessions[1].status().detection_time == Duration::from_millis(100));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.events, [[Event::Up], [Event::Up]]);
}

#[test]
fn a_change_during_a_poll_sequence_starts_another_after_a_packet_without_poll() {
    let mut session = Session::new(Config::default(), 1, 1);
    let mut bytes = Vec::new();
    let peer = |state, is_final| {
        let mut bytes = Vec::new();
        let packet = ControlPacket { state, is_final, ..peer_packet() };
        packet.encode(&mut bytes);
        bytes
    };
    let mut at_ms = 0;
    let mut next_poll_bit = |session: &mut Session| {
        at_ms += 100;
        session.handle_packet(Instant::from_millis(at_ms), &peer(State::Up, false), 255).unwrap();
        assert!(session.poll_transmit(Instant::from_millis(at_ms), &mut bytes));
        ControlPacket::decode(&bytes).unwrap().poll
    };
    session.handle_packet(Instant::ZERO, &peer(State::Init, false), 255).unwrap();
    assert!(next_poll_bit(&mut session), "going up changes the interval");
    let slower = Config { desired_min_tx: Duration::from_millis(20), ..Config::default() };
    session.set_config(Instant::from_millis(100), slower).unwrap();
    session.handle_packet(Instant::from_millis(101), &peer(State::Up, true), 255).unwrap();
    assert!(!next_poll_bit(&mut session), "a gap, so that a late F is not taken for the next one's");
    assert!(next_poll_bit(&mut session));
    assert_eq!(session.status().transmit_interval, Some(Duration::from_millis(10)), "the first F confirmed nothing");
    session.handle_packet(Instant::from_millis(301), &peer(State::Up, true), 255).unwrap();
    assert_eq!(session.status().transmit_interval, Some(Duration::from_millis(20)));
}

#[test]
fn intervals_are_jittered_between_three_quarters_and_the_whole() {
    for (detect_multiplier, longest_us) in [(10, 10_000), (1, 9_000)] {
        let config = Config { detect_multiplier, ..Config::default() };
        let mut pair = Pair::new([config; 2], 0, 9);
        pair.run_for(Duration::from_secs(1));
        let start = pair.transmitted[0].len();
        pair.run_for(Duration::from_secs(10));
        let gaps: Vec<_> =
            pair.transmitted[0][start..].windows(2).map(|two| two[1].saturating_since(two[0]).as_micros()).collect();
        assert!(gaps.iter().all(|gap| (7_500..=longest_us).contains(gap)), "{gaps:?}");
        assert!(gaps.iter().max().unwrap() - gaps.iter().min().unwrap() > 1_000, "jitter spreads");
    }
}

#[test]
fn a_session_sends_slowly_until_it_is_up() {
    let config = Config { interval_while_down: Duration::from_secs(1), ..Config::default() };
    let mut pair = Pair::new([config; 2], 0, 4);
    pair.stopped[1] = true;
    pair.run_for(Duration::from_secs(20));
    assert!((20..=28).contains(&pair.transmitted[0].len()), "{}", pair.transmitted[0].len());
}

fn peer_packet() -> ControlPacket {
    ControlPacket {
        diagnostic: Diagnostic::None,
        state: State::Down,
        poll: false,
        is_final: false,
        authentication_present: false,
        demand: false,
        detect_multiplier: 3,
        my_discriminator: 9,
        your_discriminator: 1,
        desired_min_tx_us: 50_000,
        required_min_rx_us: 5_000,
        required_min_echo_rx_us: 0,
    }
}

#[test]
fn a_peer_that_wants_silence_gets_only_answers_to_polls() {
    let mut session = Session::new(Config::default(), 1, 1);
    let (mut sent, mut bytes) = (Vec::new(), Vec::new());
    let silent = ControlPacket { required_min_rx_us: 0, ..peer_packet() };
    silent.encode(&mut bytes);
    session.handle_packet(Instant::ZERO, &bytes, 255).unwrap();
    assert!(!session.poll_transmit(Instant::from_millis(100), &mut sent));
    bytes.clear();
    ControlPacket { poll: true, ..silent }.encode(&mut bytes);
    session.handle_packet(Instant::from_millis(100), &bytes, 255).unwrap();
    assert_eq!(session.poll_timeout(), Some(Instant::from_millis(100)));
    assert!(session.poll_transmit(Instant::from_millis(100), &mut sent));
    let answer = ControlPacket::decode(&sent).unwrap();
    assert!(answer.is_final && !answer.poll);
    assert!(!session.poll_transmit(Instant::from_millis(100), &mut sent));
    session.handle_timeout(Instant::from_millis(5000));
    assert!(session.poll_transmit(Instant::from_millis(5000), &mut sent), "silence ends with whoever asked for it");
}

#[test]
fn every_discard_has_its_own_reason() {
    let mut valid = Vec::new();
    peer_packet().encode(&mut valid);
    let changed = |at: usize, value: u8| {
        let mut bytes = valid.clone();
        bytes[at] = value;
        bytes
    };
    let without_your_discriminator = [&valid[..1], &[0x80], &valid[2..8], &[0; 4], &valid[12..]].concat();
    let authenticated = [&valid[..1], &[0x44], &valid[2..3], &[26], &valid[4..], &[1, 2]].concat();
    let cases = [
        (valid[..23].to_vec(), BfdError::Truncated { length_bytes: 23 }),
        (changed(0, 0x40), BfdError::Version(2)),
        (changed(3, 23), BfdError::LengthTooSmall(23)),
        ([&valid[..1], &[0x44], &valid[2..]].concat(), BfdError::LengthTooSmall(24)),
        (changed(3, 25), BfdError::LengthBeyondPayload { claimed: 25, length_bytes: 24 }),
        (changed(2, 0), BfdError::ZeroDetectMultiplier),
        (changed(1, 0x41), BfdError::Multipoint),
        (changed(7, 0), BfdError::ZeroMyDiscriminator),
        (changed(11, 2), BfdError::UnknownDiscriminator(2)),
        (without_your_discriminator, BfdError::ZeroYourDiscriminator(State::Init)),
        (authenticated, BfdError::UnexpectedAuthentication),
    ];
    for (bytes, reason) in cases {
        let mut session = Session::new(Config::default(), 1, 1);
        assert_eq!(session.handle_packet(Instant::ZERO, &bytes, 255), Err(reason));
        assert_eq!(session.status().remote_discriminator, 0, "{reason}");
    }
    let mut session = Session::new(Config::default(), 1, 1);
    assert_eq!(session.handle_packet(Instant::ZERO, &valid, 254), Err(BfdError::TimeToLive(254)));
    session.set_enabled(Instant::ZERO, false);
    assert_eq!(session.handle_packet(Instant::ZERO, &valid, 255), Err(BfdError::AdministrativelyDown));
}

/// Ten losses in a row come once in 10⁷ packets: these seeds, 2 × 10⁵ packets in all, hold none.
#[test]
fn a_fifth_of_the_packets_lost_takes_nobody_down_in_fifteen_minutes() {
    for seed in 0..3 {
        let mut pair = Pair::new([Config::default(); 2], 20, seed);
        pair.run_until(Duration::from_secs(5), Pair::both_up);
        pair.run_for(Duration::from_secs(300));
        assert_eq!(pair.events, [[Event::Up], [Event::Up]], "seed {seed}");
    }
}

#[test]
fn a_configuration_that_cannot_be_sent_is_refused() {
    let zero = Config { detect_multiplier: 0, ..Config::default() };
    assert_eq!(zero.check(), Err(ConfigError::ZeroDetectMultiplier));
    let hours = Duration::from_secs(7200);
    let long = Config { required_min_rx: hours, ..Config::default() };
    assert_eq!(long.check(), Err(ConfigError::Interval(hours)));
}

#[test]
fn unread_events_are_bounded_and_end_with_how_things_stand() {
    let mut session = Session::new(Config::default(), 1, 1);
    let mut now = Instant::ZERO;
    for _ in 0..100 {
        for state in [State::Init, State::Down] {
            now = now + Duration::from_millis(1);
            let mut bytes = Vec::new();
            ControlPacket { state, ..peer_packet() }.encode(&mut bytes);
            session.handle_packet(now, &bytes, 255).unwrap();
        }
    }
    let events: Vec<_> = core::iter::from_fn(|| session.poll_event()).collect();
    assert!(events.len() <= EVENTS_PENDING_MAX);
    let ends_up = session.status().state == State::Up;
    assert_eq!(events.last() == Some(&Event::Up), ends_up);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        packets in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..64), any::<u8>()), 0..20),
    ) {
        let mut session = Session::new(Config::default(), 1, 1);
        for (index, (bytes, ttl)) in packets.iter().enumerate() {
            let _ = session.handle_packet(Instant::from_millis(index as u64), bytes, *ttl);
        }
    }

    #[test]
    fn plausible_packets_never_panic_and_survive_a_round_trip(
        flags in any::<u8>(), multiplier in 1u8.., mine in 1u32.., yours in 1u32..=1, words in any::<[u32; 3]>(), step_ms in 0u64..5000,
    ) {
        let mut bytes = std::vec![0x20, flags & 0xf2, multiplier, 24];
        for word in [mine, yours, words[0], words[1], words[2]] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        let packet = ControlPacket::decode(&bytes).unwrap();
        let mut reencoded = Vec::new();
        packet.encode(&mut reencoded);
        prop_assert_eq!(&reencoded, &bytes);
        let mut session = Session::new(Config::default(), 1, 1);
        for round in 0..4 {
            let now = Instant::from_millis(round * step_ms);
            session.handle_packet(now, &bytes, 255).unwrap();
            session.handle_timeout(now);
            session.poll_transmit(now, &mut reencoded);
            prop_assert!(session.poll_timeout().is_some());
        }
    }

    #[test]
    fn whatever_the_intervals_a_session_without_loss_stays_up_and_a_stop_is_detected_in_time(
        tx_ms in [1u64..200, 1..200], rx_ms in [1u64..200, 1..200], multipliers in [2u8..12, 2..12], seed in any::<u64>(),
    ) {
        let config = |side: usize| Config {
            desired_min_tx: Duration::from_millis(tx_ms[side]),
            required_min_rx: Duration::from_millis(rx_ms[side]),
            detect_multiplier: multipliers[side],
            interval_while_down: Duration::from_millis(200),
        };
        let mut pair = Pair::new([config(0), config(1)], 0, seed);
        pair.run_for(Duration::from_secs(30));
        prop_assert_eq!(&pair.events, &[std::vec![Event::Up], std::vec![Event::Up]]);
        pair.stopped[1] = true;
        let (stopped_at, bound) = (pair.now, pair.sessions[0].status().detection_time + LATENCY);
        pair.run_until(bound, |pair| pair.events[0].len() == 2);
        prop_assert!(pair.now.saturating_since(stopped_at) <= bound);
    }
}
