//! Stall and completion of flows across a failover: \[HALR\] section 5.2 and 5.3, equations 1 to 8.

use serde::Serialize;

use super::config::{Arrival, ConfigError, Equations, FailoverConfig, Flow, Kind, RecoveryPolicy};
use super::long_flow::LongFlow;
use super::schedule::RetransmissionSchedule;
use super::short_flow::ShortFlow;
use super::window::{THRESHOLD_MIN, Window};

/// A figure with and without local recovery.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct WithAndWithout {
    /// The edge resends what it kept as soon as the path is back.
    pub with: f64,
    /// The sender waits for its next retransmission.
    pub without: f64,
}

/// What an outage costs a flow.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Estimate {
    /// From the return of the path to the first packet that passes, in seconds: the unused flow time, or T_lr.
    pub stall_s: WithAndWithout,
    /// From the first SYN to the acknowledgement of the last segment, in seconds (L').
    pub completion_s: WithAndWithout,
    /// Completion of the same flow without an outage, in seconds (L).
    pub undisturbed_s: f64,
}

/// Points of the outage at which flows begin, for medians over [`Arrival::Uniform`].
const PHASES: usize = 201;

/// The model of \[HALR\] chapter 5 for one set of parameters.
#[derive(Clone, Debug)]
pub struct Model {
    config: FailoverConfig,
    schedule: RetransmissionSchedule,
    bulk_schedule: RetransmissionSchedule,
    short_flow: ShortFlow,
}

impl Model {
    /// The model of these parameters.
    ///
    /// # Errors
    /// A parameter is out of its range.
    pub fn new(config: &FailoverConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let schedule = RetransmissionSchedule::new(config.schedule, config.rtt_s);
        let bulk_schedule = RetransmissionSchedule::new(config.schedule, config.bulk_rtt_s());
        let FailoverConfig { rtt_s, loss, window_max, short_segments, .. } = *config;
        let short_flow = ShortFlow::new(rtt_s, loss, &schedule.data, window_max, short_segments);
        Ok(Self { config: config.clone(), schedule, bulk_schedule, short_flow })
    }

    /// The same model for an outage of another duration, in seconds.
    ///
    /// # Errors
    /// The outage is out of its range.
    pub fn with_outage(&self, outage_s: f64) -> Result<Self, ConfigError> {
        let config = FailoverConfig { outage_s, ..self.config.clone() };
        config.check()?;
        Ok(Self { config, ..self.clone() })
    }

    /// The schedule of a kind of flow.
    #[must_use]
    pub const fn schedule(&self, kind: Kind) -> &RetransmissionSchedule {
        if kind.is_long() { &self.bulk_schedule } else { &self.schedule }
    }

    /// What the outage costs a flow of this kind.
    #[must_use]
    pub fn estimate(&self, kind: Kind) -> Estimate {
        if self.config.arrival == Arrival::Start {
            return self.at_phase(kind, 0.0);
        }
        let at = |index: usize| self.at_phase(kind, (index as f64 + 0.5) / PHASES as f64);
        median((0..PHASES).map(at).collect())
    }

    /// T_down in seconds of a flow whose first lost packet arrives at a share of the time in which it can arrive.
    #[must_use]
    pub fn down_s(&self, kind: Kind, phase: f64) -> f64 {
        let outage = self.config.outage_s;
        let range = if kind.is_handshake() { outage } else { outage.min(self.config.flow(kind).rtt_s) };
        outage - phase * range
    }

    fn at_phase(&self, kind: Kind, phase: f64) -> Estimate {
        let undisturbed_s = self.undisturbed_s(kind);
        let down_s = self.down_s(kind, phase);
        if down_s <= 0.0 {
            let completion_s = WithAndWithout { with: undisturbed_s, without: undisturbed_s };
            return Estimate { stall_s: WithAndWithout::default(), completion_s, undisturbed_s };
        }
        let schedule = self.schedule(kind);
        let backoff = if kind.is_handshake() { &schedule.syn } else { &schedule.data };
        let stall_s = WithAndWithout { with: self.config.local_recovery_s, without: backoff.unused_s(down_s) };
        let completion = |has_recovery| match kind {
            Kind::Syn | Kind::SynBulk => self.handshake_lost_s(kind, down_s, has_recovery),
            Kind::Short => self.short_s(down_s, has_recovery),
            Kind::Bulk => self.bulk_s(down_s, has_recovery),
        };
        let completion_s = WithAndWithout { with: completion(true), without: completion(false) };
        Estimate { stall_s, completion_s, undisturbed_s }
    }

    /// L in seconds: C_s + C_D, or E\[L_h\] + E\[T\].
    fn undisturbed_s(&self, kind: Kind) -> f64 {
        let config = &self.config;
        if !kind.is_long() {
            return self.handshake_s() + self.short_flow.completion_s(config.short_segments, config.initial_window);
        }
        let (flow, segments) = (self.long_flow(), f64::from(config.bulk_segments));
        let slow_start = flow.slow_start_segments(segments);
        let steady = (segments - slow_start) / flow.rate_per_s();
        let transfer = flow.slow_start_s(slow_start) + flow.first_loss_s(segments) + steady + self.delayed_ack_s();
        self.long_handshake_s() + transfer
    }

    /// Equations 3, 4, 7 and 8. Under [`Equations::Window`] a timeout of the SYN limits slow start if the schedule collapses the threshold.
    fn handshake_lost_s(&self, kind: Kind, down_s: f64, has_recovery: bool) -> f64 {
        let schedule = self.schedule(kind);
        let syn = &schedule.syn;
        let delay = if has_recovery { down_s + self.config.local_recovery_s } else { syn.additional_delay_s(down_s) };
        let learns_s = if has_recovery { delay + self.config.flow(kind).rtt_s } else { delay };
        let transfer = delay + self.undisturbed_s(kind);
        if self.config.equations == Equations::Thesis || syn.timeouts_until(learns_s) == 0 {
            return transfer;
        }
        let threshold = if schedule.collapses_threshold { THRESHOLD_MIN } else { f64::INFINITY };
        let usual = self.slow_start(kind, self.config.initial_window);
        // The window after the loss of a SYN is one segment (RFC 5681 section 3.1).
        let limited = Window { segments: 1.0, threshold, ..usual };
        if kind == Kind::Syn {
            return transfer + self.longer_s(limited, usual, self.config.short_segments);
        }
        if limited == usual {
            return transfer;
        }
        let segments = f64::from(self.config.bulk_segments);
        let first_loss = self.long_flow().first_loss_s(segments);
        delay + self.long_handshake_s() + first_loss + self.delayed_ack_s() + self.rest_s(limited, segments)
    }

    /// Equations 1 and 2.
    fn short_s(&self, down_s: f64, has_recovery: bool) -> f64 {
        let config = &self.config;
        let flow = &self.short_flow;
        let left = config.short_segments - config.short_delivered;
        let before = self.handshake_s() + flow.completion_s(config.short_delivered, config.initial_window);
        let delay = self.data_delay_s(Kind::Short, down_s, has_recovery);
        let after = flow.completion_s(left, 1);
        let thesis = before + delay + after;
        if config.equations == Equations::Thesis {
            return thesis;
        }
        let Some(resumed) = self.resumed(Kind::Short, down_s, has_recovery) else {
            return self.undisturbed_s(Kind::Short) + delay;
        };
        let still_left = left.saturating_sub(resumed.delivered);
        let rest = self.longer_s(resumed.window, self.slow_start(Kind::Short, 1), still_left);
        let saved = after - flow.completion_s(still_left, 1);
        thesis + resumed.delay_s - saved + rest
    }

    /// Equations 5 and 6.
    ///
    /// \[HALR\] lets the outage interrupt congestion avoidance only. If it comes earlier, slow start carries `bulk_delivered` segments.
    fn bulk_s(&self, down_s: f64, has_recovery: bool) -> f64 {
        let config = &self.config;
        let flow = self.long_flow();
        let (segments, delivered) = (f64::from(config.bulk_segments), f64::from(config.bulk_delivered));
        let left = segments - delivered;
        let slow_start = flow.slow_start_segments(segments);
        let before_loss = match config.equations {
            Equations::Thesis => slow_start.min(delivered),
            Equations::Window => flow.slow_start_segments(delivered),
        };
        let steady_before = (delivered - before_loss) / flow.rate_per_s();
        let before = flow.slow_start_s(before_loss) + flow.first_loss_s(segments) + steady_before;
        let delay = self.data_delay_s(Kind::Bulk, down_s, has_recovery);
        let fixed = self.long_handshake_s() + before + delay + self.delayed_ack_s();
        if config.equations == Equations::Window {
            let Some(resumed) = self.resumed(Kind::Bulk, down_s, has_recovery) else {
                return self.undisturbed_s(Kind::Bulk) + delay;
            };
            let left = (left - f64::from(resumed.delivered)).max(0.0);
            return fixed + resumed.delay_s + self.rest_s(resumed.window, left);
        }
        // Before the first timeout, recovery keeps the flow in congestion avoidance (equation 6-2).
        if has_recovery && self.bulk_schedule.data.timeouts_until(config.outage_s) == 0 {
            return fixed + left / flow.rate_per_s();
        }
        fixed + flow.slow_start_s(left.min(slow_start)) + (left - slow_start).max(0.0) / flow.rate_per_s()
    }

    /// How the transfer of data goes on after an interruption.
    ///
    /// Without a timeout, and if the edge resends all that was lost, the flow is merely delayed: `None`. If the edge resends the lowest
    /// segment alone, or a probe passes, the sender learns of the other losses a round trip later, and halves its window (RFC 8985). It
    /// needs a segment beyond them for that: new data, or a probe.
    fn resumed(&self, kind: Kind, down_s: f64, has_recovery: bool) -> Option<Resumed> {
        let schedule = self.schedule(kind);
        let Flow { segments, delivered, rtt_s: round_trip } = self.config.flow(kind);
        let window = self.window_before(kind, delivered);
        let flight = (window.segments as u32).min(segments - delivered);
        let interrupted = Window { segments: flight.into(), ..window };
        let probe_s = schedule.data.probe_s;
        // The acknowledgement of what the edge resends takes a round trip, in which the sender can still time out.
        let learns_s = if has_recovery { down_s + round_trip } else { schedule.data.additional_delay_s(down_s) };
        let timeouts = schedule.data.timeouts_until(learns_s);
        let resends_all = has_recovery && self.config.recovery == RecoveryPolicy::All;
        if timeouts > 0 {
            let window = interrupted.timed_out(timeouts, schedule.collapses_threshold);
            if !resends_all {
                return Some(Resumed { window, delay_s: 0.0, delivered: 0 });
            }
            let window = window.acknowledged(flight.into());
            return Some(Resumed { window, delay_s: round_trip, delivered: flight });
        }
        if resends_all || (has_recovery && flight == 1) {
            return None;
        }
        let window = interrupted.halved();
        if !has_recovery {
            return Some(Resumed { window, delay_s: round_trip, delivered: 1 });
        }
        // A probe that passes reports the losses before the new data do that the acknowledgement releases.
        if let Some(probe_s) = probe_s.filter(|probe_s| (down_s..learns_s).contains(probe_s)) {
            return Some(Resumed { window, delay_s: probe_s + round_trip - down_s, delivered: 2.min(flight) });
        }
        if segments - delivered > flight {
            return Some(Resumed { window, delay_s: 2.0 * round_trip, delivered: 2 });
        }
        Some(match probe_s {
            Some(probe_s) => Resumed { window, delay_s: 2.0 * round_trip + probe_s, delivered: 2.min(flight) },
            None => Resumed {
                window: interrupted.timed_out(1, schedule.collapses_threshold),
                delay_s: round_trip + schedule.data.timeout_s,
                delivered: 1,
            },
        })
    }

    /// The window of a flow that has delivered so many segments.
    ///
    /// That of a long flow is the mean of two, weighted by their probability: the window of slow start without a loss so far, and the mean
    /// window of the steady rate.
    fn window_before(&self, kind: Kind, delivered: u32) -> Window {
        let slow_start = self.slow_start(kind, self.config.initial_window).after(delivered);
        if !kind.is_long() || self.config.loss == 0.0 {
            return slow_start;
        }
        let lossless = (1.0 - self.config.loss).powf(delivered.into());
        let segments = (lossless * slow_start.segments + (1.0 - lossless) * self.steady_window()).max(1.0).floor();
        Window { segments, threshold: segments, ..slow_start }
    }

    fn slow_start(&self, kind: Kind, segments: u32) -> Window {
        Window::slow_start(segments, self.config.window_max, self.schedule(kind).counts_acknowledgements)
    }

    fn steady_window(&self) -> f64 {
        let flow = self.long_flow();
        (flow.rate_per_s() * flow.rtt_s).min(f64::from(self.config.window_max))
    }

    /// Seconds to send `left` segments of a long flow: until the window is the steady one, then at the steady rate.
    fn rest_s(&self, window: Window, left: f64) -> f64 {
        let (round_trips, left) = window.round_trips(left, self.steady_window());
        round_trips * self.config.bulk_rtt_s() + left / self.long_flow().rate_per_s()
    }

    /// Seconds by which a short flow takes longer from one window than from another, without further losses.
    fn longer_s(&self, window: Window, usual: Window, segments: u32) -> f64 {
        let round_trips = |window: Window| window.round_trips(segments.into(), f64::INFINITY).0;
        self.config.rtt_s * (round_trips(window) - round_trips(usual))
    }

    fn data_delay_s(&self, kind: Kind, down_s: f64, has_recovery: bool) -> f64 {
        if has_recovery {
            return down_s + self.config.local_recovery_s;
        }
        self.schedule(kind).data.additional_delay_s(down_s)
    }

    fn long_flow(&self) -> LongFlow {
        LongFlow {
            rtt_s: self.config.bulk_rtt_s(),
            loss: self.config.loss,
            timeout_s: self.bulk_schedule.data.timeout_s,
            initial_window: self.config.initial_window,
            window_max: self.config.window_max,
        }
    }

    /// C_s in seconds: a round trip and the expected timeouts of the SYN.
    fn handshake_s(&self) -> f64 {
        self.config.rtt_s + self.schedule.syn.expected_delay_s(self.config.syn_loss)
    }

    /// E\[L_h\] in seconds: as C_s, with losses of the SYN and of its answer. Cardwell's `2T((1 − p)/(1 − 2p) − 1)` is `2Tp/(1 − 2p)`.
    fn long_handshake_s(&self) -> f64 {
        self.config.bulk_rtt_s() + 2.0 * self.bulk_schedule.syn.expected_delay_s(self.config.syn_loss)
    }

    /// E\[T_delack\] in seconds: only a first segment that is alone waits for its acknowledgement.
    fn delayed_ack_s(&self) -> f64 {
        if self.config.initial_window == 1 { self.config.delayed_ack_s } else { 0.0 }
    }
}

/// How a transfer goes on.
struct Resumed {
    /// The window then.
    window: Window,
    /// Seconds from the first packet that passes until the window is in use.
    delay_s: f64,
    /// Segments that are delivered meanwhile.
    delivered: u32,
}

/// The median of each figure; zeros without any estimate.
#[must_use]
pub fn median(estimates: Vec<Estimate>) -> Estimate {
    let of = |figure: &dyn Fn(&Estimate) -> f64| {
        let mut figures: Vec<f64> = estimates.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        match figures.len() {
            0 => 0.0,
            odd if odd % 2 == 1 => figures[middle],
            _ => f64::midpoint(figures[middle - 1], figures[middle]),
        }
    };
    Estimate {
        stall_s: WithAndWithout {
            with: of(&|estimate| estimate.stall_s.with),
            without: of(&|estimate| estimate.stall_s.without),
        },
        completion_s: WithAndWithout {
            with: of(&|estimate| estimate.completion_s.with),
            without: of(&|estimate| estimate.completion_s.without),
        },
        undisturbed_s: of(&|estimate| estimate.undisturbed_s),
    }
}
