//! When a sender retransmits what nothing acknowledges.

use serde::Serialize;

/// Whose constants a schedule has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// Linux since 6.5: a tail-loss probe, a timeout that follows the round-trip time, SYNs after one second.
    #[default]
    Linux,
    /// Linux's timeouts without the probe and without the linear timeouts of SYNs, as Linux had them before 6.5 with
    /// `tcp_early_retrans` = 0: each timeout is twice the last.
    Doubling,
    /// \[HALR\] table I: data after 1.5 s, SYNs after 3 s, each timeout twice the last.
    Thesis,
}

/// Smoothed round-trip times after which Linux sends a tail-loss probe (RFC 8985 section 7.2).
const PROBE_ROUND_TRIPS: f64 = 2.0;
/// What Linux adds to a probe's delay: two ticks of a clock of 250 Hz, in seconds.
const PROBE_TICKS_S: f64 = 0.008;
/// The part of Linux's retransmission timeout that does not follow the round-trip time (`TCP_RTO_MIN`), in seconds.
const LINUX_RTO_MIN_S: f64 = 0.2;
/// The longest interval between two retransmissions in Linux (`TCP_RTO_MAX`), in seconds.
const LINUX_INTERVAL_S_MAX: f64 = 120.0;
/// The first timeout of a SYN in Linux, in seconds (RFC 6298 section 2.1).
const LINUX_SYN_TIMEOUT_S: f64 = 1.0;
/// Linux's `net.ipv4.tcp_syn_linear_timeouts`.
const LINUX_SYN_LINEAR_TIMEOUTS: u32 = 4;
/// The first timeout of data in \[HALR\] table I, in seconds.
const THESIS_TIMEOUT_S: f64 = 1.5;
/// The first timeout of a SYN in \[HALR\] table I, in seconds.
const THESIS_SYN_TIMEOUT_S: f64 = 3.0;
/// The longest interval in \[HALR\], as a multiple of the first: where its references end the doubling.
const THESIS_INTERVAL_FACTOR_MAX: f64 = 64.0;
/// Retransmissions that contribute to an expected delay. At a loss rate of 0.2 the last one weighs less than 10⁻²⁷.
const RETRANSMISSIONS_WEIGHED: usize = 40;

/// The times at which one lost segment is retransmitted, counted from its first transmission.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Backoff {
    /// Delay of the tail-loss probe, in seconds. The first timeout is counted from the probe.
    pub probe_s: Option<f64>,
    /// The first timeout, in seconds.
    pub timeout_s: f64,
    /// Further timeouts that are as long as the first, before they double.
    pub linear_timeouts: u32,
    /// The longest interval between two retransmissions, in seconds.
    pub interval_s_max: f64,
}

impl Backoff {
    /// The intervals between timeouts in seconds, without end.
    pub fn intervals_s(&self) -> impl Iterator<Item = f64> {
        let linear = std::iter::repeat_n(self.timeout_s, self.linear_timeouts as usize);
        let doubled = std::iter::successors(Some(self.timeout_s), |interval| Some(interval * 2.0));
        linear.chain(doubled).map(|interval| interval.min(self.interval_s_max))
    }

    /// The times of the timeouts in seconds, without end; a probe is none of them.
    pub fn timeouts_s(&self) -> impl Iterator<Item = f64> {
        self.intervals_s().scan(self.probe_s.unwrap_or_default(), |at, interval| {
            *at += interval;
            Some(*at)
        })
    }

    /// The times of all retransmissions in seconds, without end: the probe, then the timeouts.
    pub fn times_s(&self) -> impl Iterator<Item = f64> {
        self.probe_s.into_iter().chain(self.timeouts_s())
    }

    /// The additional delay AD(T) of a flow that was interrupted for `down_s` seconds: the time of the first retransmission that is not
    /// lost too (\[HALR\] section 5.1). It is zero if nothing was interrupted.
    #[must_use]
    pub fn additional_delay_s(&self, down_s: f64) -> f64 {
        if down_s <= 0.0 {
            return 0.0;
        }
        // The intervals do not shrink, so the times exceed any duration.
        self.times_s().find(|at| *at >= down_s).unwrap_or(f64::INFINITY)
    }

    /// The unused flow time in seconds: how long the sender still waits after the path is back (\[HALR\] section 5.1, figure 9).
    #[must_use]
    pub fn unused_s(&self, down_s: f64) -> f64 {
        self.additional_delay_s(down_s) - down_s.max(0.0)
    }

    /// Timeouts up to a time in seconds, which is included.
    #[must_use]
    pub fn timeouts_until(&self, at_s: f64) -> usize {
        self.timeouts_s().take_while(|timeout| *timeout <= at_s).count()
    }

    /// The expected delay in seconds before a segment passes whose transmissions are each lost with probability `loss`.
    ///
    /// With timeouts that double it is `timeout · loss / (1 − 2 · loss)`, as in C<sub>s</sub> and C₁¹ of \[HALR\] section 5.2.
    #[must_use]
    pub fn expected_delay_s(&self, loss: f64) -> f64 {
        let mut weight = 1.0 - loss;
        let weighed = self.times_s().take(RETRANSMISSIONS_WEIGHED).map(|at| {
            weight *= loss;
            weight * at
        });
        weighed.sum()
    }
}

/// When data and SYNs are retransmitted, and what timeouts do to the slow-start threshold.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RetransmissionSchedule {
    /// Of data segments.
    pub data: Backoff,
    /// Of SYNs.
    pub syn: Backoff,
    /// Whether repeated timeouts and a SYN's timeout lower the threshold to two segments (\[HALR\] section 4.2). RFC 5681 section 3.1
    /// and Linux lower it once for each window.
    pub collapses_threshold: bool,
    /// Whether the window above the threshold grows by a segment once all of its segments are acknowledged, as in Linux. Otherwise each
    /// acknowledgement adds the window's reciprocal (RFC 5681 section 3.1, equation 3), as in ns-2 and ns-3.
    pub counts_acknowledgements: bool,
}

impl RetransmissionSchedule {
    /// The schedule of a kind for a smoothed round-trip time in seconds.
    #[must_use]
    pub fn new(kind: ScheduleKind, srtt_s: f64) -> Self {
        match kind {
            ScheduleKind::Linux => Self::linux(srtt_s),
            ScheduleKind::Doubling => Self::doubling(srtt_s),
            ScheduleKind::Thesis => Self::thesis(),
        }
    }

    /// Linux's schedule for a smoothed round-trip time in seconds, with little variance.
    #[must_use]
    pub fn linux(srtt_s: f64) -> Self {
        let data = Backoff {
            probe_s: Some(PROBE_ROUND_TRIPS * srtt_s + PROBE_TICKS_S),
            timeout_s: srtt_s + LINUX_RTO_MIN_S,
            linear_timeouts: 0,
            interval_s_max: LINUX_INTERVAL_S_MAX,
        };
        let syn = Backoff {
            probe_s: None,
            timeout_s: LINUX_SYN_TIMEOUT_S,
            linear_timeouts: LINUX_SYN_LINEAR_TIMEOUTS,
            interval_s_max: LINUX_INTERVAL_S_MAX,
        };
        Self { data, syn, collapses_threshold: false, counts_acknowledgements: true }
    }

    /// Linux's timeouts for a smoothed round-trip time in seconds, doubling from the first one on, without a probe.
    #[must_use]
    pub fn doubling(srtt_s: f64) -> Self {
        let usual = Self::linux(srtt_s);
        let Self { data, syn, .. } = usual.clone();
        let data = Backoff { probe_s: None, ..data };
        Self { data, syn: Backoff { linear_timeouts: 0, ..syn }, ..usual }
    }

    /// The schedule of \[HALR\] table I.
    #[must_use]
    pub fn thesis() -> Self {
        let doubling = |timeout_s| Backoff {
            probe_s: None,
            timeout_s,
            linear_timeouts: 0,
            interval_s_max: timeout_s * THESIS_INTERVAL_FACTOR_MAX,
        };
        Self {
            data: doubling(THESIS_TIMEOUT_S),
            syn: doubling(THESIS_SYN_TIMEOUT_S),
            collapses_threshold: true,
            counts_acknowledgements: false,
        }
    }
}
