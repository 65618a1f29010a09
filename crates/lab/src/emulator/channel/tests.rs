//! What a direction promises, for any traffic.

use proptest::prelude::*;

use super::*;

const PACKET_BYTES: u64 = 1250;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Packets: how many microseconds after the one before, and how long.
fn traffic() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0..3000_u64, 40..1500_u64), 1..300)
}

fn sound_settings() -> impl Strategy<Value = Settings> {
    let rate = prop::option::of(100_000..100_000_000_u64);
    (0..50_000_u64, 0..20_000_u64, rate, 1..2000_usize).prop_map(|(delay_us, jitter_us, rate, queue_packets)| {
        Settings {
            delay: Duration::from_micros(delay_us),
            jitter: Duration::from_micros(jitter_us),
            rate_bits_per_s: rate,
            queue_packets,
            ..Settings::default()
        }
    })
}

/// A packet as it went in, and when it came out.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Passed {
    number: usize,
    entered: Instant,
    length_bytes: u64,
    due: Instant,
}

/// Gives the packets to the channel and takes them out when they are due.
fn pass(channel: &mut Channel<(usize, Instant, u64)>, traffic: &[(u64, u64)]) -> Vec<Passed> {
    let (mut now, mut passed) = (Instant::ZERO, Vec::new());
    let drain = |channel: &mut Channel<_>, until: Instant, passed: &mut Vec<Passed>| {
        while let Some(due) = channel.poll_timeout().filter(|due| *due <= until) {
            let Some(Arrival { packet: (number, entered, length_bytes), .. }) = channel.poll_arrival(due) else {
                break;
            };
            passed.push(Passed { number, entered, length_bytes, due });
        }
    };
    for (number, (gap_us, length_bytes)) in traffic.iter().copied().enumerate() {
        now = now + Duration::from_micros(gap_us);
        drain(channel, now, &mut passed);
        channel.handle_packet(now, length_bytes, || (number, now, length_bytes));
    }
    drain(channel, Instant::FAR_FUTURE, &mut passed);
    passed
}

proptest! {
    #[test]
    fn nothing_arrives_early_twice_or_out_of_order(
        settings in sound_settings(),
        traffic in traffic(),
        seed: u64,
    ) {
        let mut channel = Channel::new(settings, seed);
        let passed = pass(&mut channel, &traffic);
        prop_assert!(passed.is_sorted_by(|one, next| one.number < next.number && one.due <= next.due));
        prop_assert!(passed.iter().all(|packet| packet.due >= packet.entered + settings.delay));
        let counters = channel.counters();
        prop_assert_eq!(counters.received_packets, traffic.len() as u64);
        prop_assert_eq!(counters.delivered_packets + counters.queue_full, counters.received_packets);
        prop_assert_eq!((counters.lost, counters.cut, counters.duplicated, counters.held_up), (0, 0, 0, 0));
        prop_assert_eq!(channel.underway_bytes, 0);
    }

    #[test]
    fn the_rate_is_never_exceeded(traffic in traffic(), rate in 100_000..10_000_000_u64, queue_bytes in 3000..90_000_u64) {
        let settings = Settings { rate_bits_per_s: Some(rate), queue_bytes: Some(queue_bytes), ..Settings::default() };
        let passed = pass(&mut Channel::new(settings, 1), &traffic);
        for (begin, first) in passed.iter().enumerate() {
            let mut bits = 0;
            for packet in &passed[begin + 1..] {
                bits += packet.length_bytes * 8;
                let took = packet.due.saturating_since(first.due);
                prop_assert!(u128::from(bits) * 1_000_000_000 <= u128::from(rate) * took.as_nanos());
            }
        }
    }

    #[test]
    fn the_queue_is_never_longer_than_it_may_be(traffic in traffic(), queue_bytes in 3000..30_000_u64) {
        let settings = Settings { rate_bits_per_s: Some(1_000_000), queue_bytes: Some(queue_bytes), ..Settings::default() };
        let passed = pass(&mut Channel::new(settings, 1), &traffic);
        let longest_wait = Duration::from_nanos(queue_bytes * 8 * 1000 + 1000 * passed.len() as u64);
        prop_assert!(passed.iter().all(|packet| packet.due.saturating_since(packet.entered) <= longest_wait));
    }

    #[test]
    fn a_seed_reproduces_the_same_run(settings in sound_settings(), traffic in traffic(), seed: u64) {
        let settings = Settings { loss: 0.2, duplicate: 0.1, reorder: 0.1, ..settings };
        let runs = [(), ()].map(|()| pass(&mut Channel::new(settings, seed), &traffic));
        prop_assert_eq!(&runs[0], &runs[1]);
    }

    #[test]
    fn nothing_passes_during_an_outage(
        settings in sound_settings(),
        traffic in traffic(),
        from_ms in 0..200_u64,
        lasting_ms in 1..200_u64,
    ) {
        let mut channel = Channel::new(settings, 1);
        prop_assert!(channel.interrupt(Instant::ZERO, at(from_ms), Some(ms(lasting_ms))));
        let (from, until) = (at(from_ms), at(from_ms + lasting_ms));
        let passed = pass(&mut channel, &traffic);
        prop_assert!(passed.iter().all(|packet| packet.due < from || packet.entered >= until));
        let counters = channel.counters();
        prop_assert_eq!(counters.delivered_packets + counters.queue_full + counters.cut, counters.received_packets);
    }

    #[test]
    fn any_settings_at_any_time_keep_the_books_balanced(
        steps in prop::collection::vec((sound_settings(), 0.0..1.0, 0..4_u8, traffic()), 1..5),
    ) {
        let mut channel = Channel::new(Settings::default(), 1);
        let mut now = Instant::ZERO;
        for (settings, share, what, traffic) in steps {
            channel.set(Settings { loss: share, duplicate: share / 2.0, reorder: share / 3.0, ..settings });
            match what {
                0 => prop_assert!(channel.interrupt(now, now + ms(50), Some(ms(20)))),
                1 => prop_assert!(channel.interrupt(now, now, None)),
                2 => channel.restore(now),
                _ => {}
            }
            for (gap_us, length_bytes) in traffic {
                now = now + Duration::from_micros(gap_us);
                channel.handle_packet(now, length_bytes, || (0, now, length_bytes));
                while channel.poll_arrival(now).is_some() {}
            }
        }
        let Counters { received_packets, delivered_packets, lost, queue_full, duplicated, cut, .. } = channel.counters();
        let ended = delivered_packets + lost + queue_full + cut + channel.packets_underway() as u64;
        prop_assert_eq!(received_packets + duplicated, ended);
    }
}

/// So many packets, a millisecond apart.
fn steady(packets: usize) -> Vec<(u64, u64)> {
    vec![(1000, PACKET_BYTES); packets]
}

#[test]
fn chances_come_true_as_often_as_asked() {
    for share in [0.0, 0.01, 0.2, 1.0] {
        let settings = Settings { loss: share, duplicate: share, reorder: share, hold: ms(5), ..Settings::default() };
        let mut channel = Channel::new(settings, 11);
        pass(&mut channel, &steady(20_000));
        let Counters { received_packets, lost, held_up, duplicated, .. } = channel.counters();
        let arriving = received_packets - lost;
        for (came_true, of) in [(lost, received_packets), (held_up, arriving), (duplicated, arriving)] {
            let expected = of as f64 * share;
            // Five standard deviations of a binomial distribution.
            let bound = 5.0 * (expected * (1.0 - share)).sqrt();
            assert!((came_true as f64 - expected).abs() <= bound, "{share}: {came_true} of {of}");
        }
    }
}

#[test]
fn what_is_held_up_is_overtaken_and_keeps_nothing_else_waiting() {
    let settings = Settings { delay: ms(10), reorder: 0.1, hold: ms(4), ..Settings::default() };
    let passed = pass(&mut Channel::new(settings, 5), &steady(1000));
    assert!(!passed.is_sorted_by_key(|packet| packet.number));
    let took = |packet: &Passed| packet.due.saturating_since(packet.entered);
    assert!(passed.iter().all(|packet| [ms(10), ms(14)].contains(&took(packet))));
    assert_eq!(passed.len(), 1000);
}

#[test]
fn a_full_queue_drops_the_newest_and_the_transmitter_goes_on() {
    // 1250 bytes take a millisecond.
    let settings =
        Settings { rate_bits_per_s: Some(10_000_000), queue_packets: 10, delay: ms(5), ..Settings::default() };
    let mut channel = Channel::new(settings, 1);
    let mut traffic = vec![(0, PACKET_BYTES); 100];
    traffic.push((20_000, PACKET_BYTES));
    let passed = pass(&mut channel, &traffic);
    let dues: Vec<Instant> = passed.iter().map(|packet| packet.due).collect();
    let expected: Vec<Instant> = (6..=15).chain([26]).map(at).collect();
    assert_eq!(dues, expected);
    assert_eq!(channel.counters().queue_full, 90);
}

#[test]
fn an_outage_loses_packets_in_flight_and_in_the_queue() {
    let settings = Settings { rate_bits_per_s: Some(10_000_000), delay: ms(50), ..Settings::default() };
    let mut channel = Channel::new(settings, 1);
    (0..20).for_each(|_| channel.handle_packet(at(0), PACKET_BYTES, || ()));
    assert!(channel.interrupt(at(10), at(10), None));
    assert_eq!((channel.packets_underway(), channel.counters().cut), (0, 20));
    channel.handle_packet(at(11), PACKET_BYTES, || ());
    channel.restore(at(12));
    // Nothing of what was lost keeps the transmitter busy.
    channel.handle_packet(at(12), PACKET_BYTES, || ());
    assert_eq!(channel.poll_timeout(), Some(at(12 + 1 + 50)));
    assert_eq!(channel.counters().cut, 21);
}

#[test]
fn packets_due_before_an_outage_arrive_even_if_polled_late() {
    let mut channel = Channel::new(Settings { delay: ms(10), ..Settings::default() }, 1);
    channel.handle_packet(at(0), PACKET_BYTES, || "early");
    channel.handle_packet(at(5), PACKET_BYTES, || "late");
    assert!(channel.interrupt(at(5), at(12), Some(ms(1))));
    assert_eq!(channel.poll_arrival(at(100)), Some(Arrival { due: at(10), packet: "early" }));
    assert_eq!(channel.poll_arrival(at(100)), None);
}

#[test]
fn restoring_leaves_scheduled_outages() {
    let mut channel = Channel::new(Settings::default(), 1);
    assert!(channel.interrupt(at(0), at(0), None) && channel.interrupt(at(0), at(100), Some(ms(10))));
    channel.restore(at(50));
    for (now, carried) in [(60, 1), (105, 1), (110, 2)] {
        channel.handle_packet(at(now), PACKET_BYTES, || ());
        while channel.poll_arrival(at(now)).is_some() {}
        assert_eq!(channel.counters().delivered_packets, carried, "at {now} ms");
    }
    let ahead = (0..=OUTAGES_MAX as u64).filter(|number| channel.interrupt(at(200), at(300 + number), None)).count();
    assert_eq!(ahead, OUTAGES_MAX);
}

#[test]
fn memory_is_bounded_whatever_the_settings() {
    let mut channel = Channel::new(Settings { delay: ms(60_000), ..Settings::default() }, 1);
    let packets = UNDERWAY_BYTES_MAX / 65_536;
    (0..packets + 3).for_each(|_| channel.handle_packet(at(0), 65_536, || ()));
    assert_eq!(channel.counters().memory_full, 3);
    assert_eq!(channel.packets_underway() as u64, packets);
}
