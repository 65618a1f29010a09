//! The formulas against what \[HALR\] states of them, and against what their terms mean.

use proptest::prelude::*;

use super::*;

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

fn thesis() -> FailoverConfig {
    FailoverConfig {
        schedule: ScheduleKind::Thesis,
        equations: Equations::Thesis,
        arrival: Arrival::Start,
        ..FailoverConfig::default()
    }
}

#[test]
fn thesis_timeouts_double_from_its_table() {
    let RetransmissionSchedule { data, syn, .. } = RetransmissionSchedule::thesis();
    assert_eq!(data.times_s().take(4).collect::<Vec<_>>(), [1.5, 4.5, 10.5, 22.5]);
    assert_eq!(syn.times_s().take(3).collect::<Vec<_>>(), [3.0, 9.0, 21.0]);
    // Section 7.2.2: a failover of 3 s delays some SYNs by 9 s.
    close(syn.additional_delay_s(3.0), 3.0);
    close(syn.additional_delay_s(3.001), 9.0);
}

#[test]
fn linux_sends_five_syns_a_second_apart_before_it_doubles() {
    let schedule = RetransmissionSchedule::linux(0.1);
    assert_eq!(schedule.syn.times_s().take(8).collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 11.0, 19.0]);
    let expected = [0.208, 0.508, 1.108, 2.308, 4.708];
    for (found, expected) in schedule.data.times_s().zip(expected) {
        close(found, expected);
    }
    let longest = schedule.data.intervals_s().nth(15).expect("without end");
    close(longest, 120.0);
}

#[test]
fn doubling_schedule_has_no_probe_and_no_linear_timeouts() {
    let RetransmissionSchedule { data, syn, .. } = RetransmissionSchedule::doubling(0.1);
    assert_eq!(syn.times_s().take(4).collect::<Vec<_>>(), [1.0, 3.0, 7.0, 15.0]);
    for (found, expected) in data.times_s().zip([0.3, 0.9, 2.1, 4.5]) {
        close(found, expected);
    }
}

#[test]
fn unused_flow_time_is_a_sawtooth() {
    let data = RetransmissionSchedule::thesis().data;
    // Figure 9: it falls by a second a second, and jumps by the next interval behind each timeout.
    for (down_s, unused_s) in [(0.0, 0.0), (0.5, 1.0), (1.5, 0.0), (1.5001, 2.9999), (4.5, 0.0), (4.6, 5.9)] {
        close(data.unused_s(down_s), unused_s);
    }
    assert_eq!([1.4, 1.5, 4.5, 10.4].map(|down_s| data.timeouts_until(down_s)), [0, 1, 2, 2]);
}

#[test]
fn expected_delay_of_doubling_timeouts_is_the_closed_form() {
    let syn = RetransmissionSchedule::thesis().syn;
    // The sums end where the intervals stop doubling.
    for loss in [0.0, 0.001, 0.02] {
        close(syn.expected_delay_s(loss), 3.0 * loss / (1.0 - 2.0 * loss));
    }
}

#[test]
fn short_flows_have_the_terms_of_the_paper() {
    let data = RetransmissionSchedule::thesis().data;
    let (rtt_s, loss, timeout_s) = (0.1, 0.01, 1.5);
    let flow = ShortFlow::new(rtt_s, loss, &data, 64, 3);
    let one = rtt_s + timeout_s * loss / (1.0 - 2.0 * loss);
    close(flow.completion_s(1, 1), one);
    // C₂¹ = C₁¹ + C₁², and a window of two with one segment left sends one.
    let two_by_one = one + one;
    close(flow.completion_s(2, 1), two_by_one);
    let delivered = 1.0 - loss;
    let two = rtt_s * delivered * delivered
        + delivered * loss * (timeout_s + rtt_s + one)
        + loss * delivered * (timeout_s + one)
        + loss * loss * (timeout_s + two_by_one);
    close(flow.completion_s(2, 2), two);
    close(flow.completion_s(3, 1), one + two);
}

#[test]
fn short_flows_without_losses_double_their_window() {
    let data = RetransmissionSchedule::thesis().data;
    let flow = ShortFlow::new(0.1, 0.0, &data, 4, 12);
    // 1, 2, 4, then 4 again: the window is limited.
    for (segments, round_trips) in [(1, 1.0), (3, 2.0), (7, 3.0), (9, 4.0), (11, 4.0), (12, 5.0)] {
        close(flow.completion_s(segments, 1), 0.1 * round_trips);
    }
}

#[test]
fn long_flows_reach_the_rates_of_their_papers() {
    // Without losses the window limits the rate; with them, the square root of the loss rate does.
    close(throughput_per_s(0.0, 0.1, 1.5, 64.0), 640.0);
    let rare = throughput_per_s(1e-6, 0.1, 0.3, 1e9);
    let square_root = (1.5_f64 / 1e-6).sqrt() / 0.1;
    assert!((rare / square_root - 1.0).abs() < 0.02, "{rare} is not about {square_root}");
    let flow = LongFlow { rtt_s: 0.1, loss: 0.001, timeout_s: 1.5, initial_window: 1, window_max: 64 };
    // Half of the first thousand segments are expected before a first loss, and more than a half with the survivors.
    close(flow.slow_start_segments(1000.0), (1.0 - 0.999_f64.powi(1000)) * 0.999 / 0.001 + 1.0);
    // 1, 2, 4, … 64 are 127 segments in seven round trips, and each further round trip has 64.
    close(flow.slow_start_s(127.0), 0.7);
    close(flow.slow_start_s(127.0 + 128.0), 0.9);
}

#[test]
fn recovery_of_thesis_flows_saves_the_unused_flow_time() {
    // Equations 1 to 4 and 7 and 8 differ in AD − T_down alone; 5 and 6-1 too, from the first timeout on.
    for (kind, outage_s) in
        [(Kind::Syn, 3.5), (Kind::Short, 0.5), (Kind::Short, 2.0), (Kind::Bulk, 2.0), (Kind::SynBulk, 1.0)]
    {
        let estimate = Model::new(&FailoverConfig { outage_s, ..thesis() }).expect("valid").estimate(kind);
        let saved = estimate.completion_s.without - estimate.completion_s.with;
        close(saved, estimate.stall_s.without);
        let handshake = RetransmissionSchedule::thesis();
        let backoff = if kind.is_handshake() { handshake.syn } else { handshake.data };
        close(saved, backoff.additional_delay_s(outage_s) - outage_s);
    }
}

#[test]
fn recovery_before_the_first_timeout_keeps_congestion_avoidance() {
    let without_timeout = FailoverConfig { outage_s: 1.4, bulk_segments: 5000, bulk_delivered: 2500, ..thesis() };
    let estimate = Model::new(&without_timeout).expect("valid").estimate(Kind::Bulk);
    let flow = LongFlow { rtt_s: 0.1, loss: 0.001, timeout_s: 1.5, initial_window: 1, window_max: 64 };
    // Equation 6-2: all that is left goes at the steady rate, which equals what was left without the outage.
    close(estimate.completion_s.with, estimate.undisturbed_s + 1.4);
    // Equation 5 enters slow start again.
    let slow_start = flow.slow_start_s(flow.slow_start_segments(5000.0));
    let skipped = flow.slow_start_segments(5000.0) / flow.rate_per_s();
    close(estimate.completion_s.without, estimate.undisturbed_s + 1.5 + slow_start - skipped);
}

#[test]
fn flows_that_begin_at_any_time_of_the_outage_stall_for_half_an_interval() {
    let uniform = FailoverConfig { outage_s: 5.0, ..FailoverConfig::default() };
    let estimate = Model::new(&uniform).expect("valid").estimate(Kind::Syn);
    assert!((estimate.stall_s.without - 0.5).abs() < 0.01, "{estimate:?}");
}

#[test]
fn an_outage_of_no_duration_costs_nothing() {
    let model = Model::new(&FailoverConfig { outage_s: 0.0, ..FailoverConfig::default() }).expect("valid");
    for kind in Kind::ALL {
        let estimate = model.estimate(kind);
        assert_eq!(estimate.stall_s, WithAndWithout::default());
        assert_eq!(estimate.completion_s.without, estimate.undisturbed_s);
    }
}

#[test]
fn parameters_out_of_range_are_named_with_range_and_remedy() {
    let refused = |config: FailoverConfig| Model::new(&config).expect_err("out of range").to_string();
    let usual = FailoverConfig::default;
    for (text, parts) in [
        (refused(FailoverConfig { outage_s: 61.0, ..usual() }), ["outage_s is 61", "from 0 to 60", "given up"]),
        (refused(FailoverConfig { loss: 0.5, ..usual() }), ["loss is 0.5", "from 0 to 0.2", "as a share"]),
        (refused(FailoverConfig { rtt_s: f64::NAN, ..usual() }), ["rtt_s is NaN", "from 0.0001 to 2", "within"]),
        (refused(FailoverConfig { short_delivered: 9, ..usual() }), ["short_delivered is 9", "1 to 8", "interrupt"]),
        (refused(FailoverConfig { initial_window: 65, ..usual() }), ["initial_window is 65", "1 to 64", "exceed"]),
    ] {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn pages_hold_every_kind_and_parameter() {
    let config = FailoverConfig::default();
    let rows = sweep(&config, (0.05, 12.0), 24).expect("valid");
    assert_eq!((rows.len(), rows[0].outage_s), (24, 0.05));
    assert!((rows[23].outage_s - 12.0).abs() < 1e-9);
    let kinds = rows[3].kinds.clone();
    let page = report(&config, &kinds, &kinds, &rows, "footer".into());
    assert!(matches!(&page.sections[0].blocks[0], crate::report::Block::Table(table) if table.rows().len() == 8));
    let html = page.html();
    for text in ["syn_bulk", "window_max", "sawtooth", "<svg", "footer"] {
        assert!(html.contains(text), "{text} is missing");
    }
    assert!(sweep(&config, (1.0, 61.0), 5).is_err());
}

fn any_config() -> impl Strategy<Value = FailoverConfig> {
    let times = (0.0..60.0, 0.0001..2.0, 0.0..2.0);
    let rates = (0.0..0.2, 0.0..0.2);
    let schedules = prop_oneof![Just(ScheduleKind::Linux), Just(ScheduleKind::Doubling), Just(ScheduleKind::Thesis)];
    let choices = (schedules, any::<bool>(), any::<bool>());
    let windows = (1_u32..200).prop_flat_map(|most| (1..=most, Just(most)));
    let segments =
        ((2_u32..40).prop_flat_map(|all| (1..all, Just(all))), (2_u32..3000).prop_flat_map(|all| (1..all, Just(all))));
    (times, rates, choices, windows, segments).prop_map(|(times, rates, choices, windows, segments)| FailoverConfig {
        outage_s: times.0,
        rtt_s: times.1,
        queue_s: times.2,
        loss: rates.0,
        syn_loss: rates.1,
        schedule: choices.0,
        equations: if choices.1 { Equations::Thesis } else { Equations::Window },
        arrival: Arrival::Start,
        recovery: if choices.2 { RecoveryPolicy::All } else { RecoveryPolicy::Lowest },
        initial_window: windows.0,
        window_max: windows.1,
        short_delivered: segments.0.0,
        short_segments: segments.0.1,
        bulk_delivered: segments.1.0,
        bulk_segments: segments.1.1,
        ..FailoverConfig::default()
    })
}

proptest! {
    /// Section 5.1: 0 ≤ UFT ≤ 2^(x−1)·T, and AD is a retransmission time.
    #[test]
    fn unused_flow_time_is_below_the_last_interval(down_s in 0.0..60.0, srtt_s in 0.0001..2.0, is_linux: bool) {
        let kind = if is_linux { ScheduleKind::Linux } else { ScheduleKind::Thesis };
        let schedule = RetransmissionSchedule::new(kind, srtt_s);
        for backoff in [schedule.data, schedule.syn] {
            let delay_s = backoff.additional_delay_s(down_s);
            let intervals = backoff.timeouts_until(delay_s);
            let last = intervals.checked_sub(1).and_then(|index| backoff.intervals_s().nth(index));
            let longest = last.or(backoff.probe_s).unwrap_or_default();
            prop_assert!(backoff.unused_s(down_s) >= 0.0 && backoff.unused_s(down_s) <= longest + 1e-9);
            prop_assert!(down_s == 0.0 || backoff.times_s().take(intervals + 2).any(|at| at == delay_s));
        }
    }

    /// Every valid set of parameters has figures, and an outage shortens no flow that was in slow start.
    #[test]
    fn figures_are_finite(config in any_config()) {
        let model = Model::new(&config).expect("valid");
        for kind in Kind::ALL {
            let Estimate { stall_s, completion_s, undisturbed_s } = model.estimate(kind);
            for figure in [stall_s.with, stall_s.without, completion_s.with, completion_s.without, undisturbed_s] {
                prop_assert!(figure.is_finite() && figure >= 0.0, "{kind:?} {figure}");
            }
            prop_assert!(completion_s.without >= config.outage_s && stall_s.with <= stall_s.without);
        }
    }

    /// A simulated flow ends, has no stall beyond that without recovery, and is not faster than an undisturbed one.
    #[test]
    fn simulated_flows_end(config in any_config(), seed: u64) {
        let loss = config.loss / 10.0;
        let config = FailoverConfig { loss, syn_loss: loss, bulk_segments: config.bulk_segments.min(300), ..config };
        let config = FailoverConfig { bulk_delivered: config.bulk_delivered.min(config.bulk_segments - 1), ..config };
        for kind in Kind::ALL {
            let run = simulate(&config, kind, seed >> 1, 1).expect("valid");
            prop_assert!(run.completion_s.without >= run.stall_s.without + config.outage_s);
            prop_assert!(run.stall_s.with <= run.stall_s.without + 1e-9);
        }
    }
}
