//! The parameters of the model, and their limits.

use std::fmt::Display;

use serde::Serialize;

use super::schedule::ScheduleKind;

/// The longest outage in seconds. Senders give up after longer ones: Linux sends its last SYN after 67 s.
pub const OUTAGE_S_MAX: f64 = 60.0;
/// The shortest round-trip time in seconds.
const RTT_S_MIN: f64 = 0.0001;
/// The longest round-trip time in seconds.
const RTT_S_MAX: f64 = 2.0;
/// The highest loss rate. At one half the expected delay of doubling timeouts has no limit.
const LOSS_MAX: f64 = 0.2;
/// The most segments of a short flow: the work of its recursion grows with their fourth power.
pub const SHORT_SEGMENTS_MAX: u32 = 100;
/// The most segments of a long flow.
pub const SEGMENTS_MAX: u32 = 100_000;
/// The largest congestion window in segments: 4 MB of segments of 1 kB.
const WINDOW_MAX: u32 = 4096;

/// What the outage interrupts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The handshake of a short flow (\[HALR\] case 3, equations 3 and 4).
    Syn,
    /// The data of a short flow (case 2, equations 1 and 2).
    Short,
    /// The data of a long flow (case 2, equations 5 and 6).
    Bulk,
    /// The handshake of a long flow (case 3, equations 7 and 8).
    SynBulk,
}

impl Kind {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Syn, Self::Short, Self::Bulk, Self::SynBulk];

    /// Its name in JSON and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syn => "syn",
            Self::Short => "short",
            Self::Bulk => "bulk",
            Self::SynBulk => "syn_bulk",
        }
    }

    /// Whether the flow is a long one.
    pub(super) const fn is_long(self) -> bool {
        matches!(self, Self::Bulk | Self::SynBulk)
    }

    /// Whether the outage interrupts the handshake.
    pub(super) const fn is_handshake(self) -> bool {
        matches!(self, Self::Syn | Self::SynBulk)
    }
}

/// A flow that the outage interrupts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flow {
    /// Its segments.
    pub segments: u32,
    /// Those that precede an outage which interrupts its data.
    pub delivered: u32,
    /// Its round-trip time in seconds.
    pub rtt_s: f64,
}

/// When the outage begins, relative to the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// The first lost packet arrives at any time of the outage (a SYN), or of its first round trip (data). Figures are medians.
    #[default]
    Uniform,
    /// The first lost packet arrives as the outage begins: the flow is interrupted for the whole outage.
    Start,
}

/// How the transfer after the interruption is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Equations {
    /// As \[HALR\] states it: slow start from one segment without a threshold, or congestion avoidance at the steady rate.
    Thesis,
    /// With the congestion window and the slow-start threshold that the timeouts leave.
    #[default]
    Window,
}

/// Which segments the edge keeps and resends (\[HALR\] section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryPolicy {
    /// Every segment that was lost in the outage.
    All,
    /// The lowest unacknowledged segment.
    #[default]
    Lowest,
}

/// Parameters of the model: \[HALR\] table I, and those that it leaves open.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FailoverConfig {
    /// Duration of the outage in seconds (T_failover).
    pub outage_s: f64,
    /// Round-trip time in seconds (R).
    pub rtt_s: f64,
    /// What queues add to the round-trip time of a bulk flow, in seconds.
    pub queue_s: f64,
    /// Whose retransmission schedule.
    pub schedule: ScheduleKind,
    /// How the transfer after the interruption is computed.
    pub equations: Equations,
    /// When the outage begins.
    pub arrival: Arrival,
    /// Which segments the edge resends. The equations of \[HALR\] do not distinguish the policies.
    pub recovery: RecoveryPolicy,
    /// Loss rate of data segments (p).
    pub loss: f64,
    /// Loss rate of SYNs (p_s).
    pub syn_loss: f64,
    /// Segments of a short flow (D).
    pub short_segments: u32,
    /// Segments that a short flow delivers before the outage (i).
    pub short_delivered: u32,
    /// Segments of a bulk flow (D).
    pub bulk_segments: u32,
    /// Segments that a bulk flow delivers before the outage (j).
    pub bulk_delivered: u32,
    /// Initial congestion window in segments (W).
    pub initial_window: u32,
    /// Largest congestion window in segments (W_max).
    pub window_max: u32,
    /// Delay of the acknowledgement of a first segment that is sent alone, in seconds (T_delack).
    pub delayed_ack_s: f64,
    /// Time until the edge has resent what it kept, in seconds (T_lr).
    pub local_recovery_s: f64,
}

impl Default for FailoverConfig {
    fn default() -> Self {
        Self {
            outage_s: 3.0,
            rtt_s: 0.1,
            queue_s: 0.0,
            schedule: ScheduleKind::default(),
            equations: Equations::default(),
            arrival: Arrival::default(),
            recovery: RecoveryPolicy::default(),
            loss: 0.001,
            syn_loss: 0.001,
            short_segments: 9,
            short_delivered: 3,
            bulk_segments: 1000,
            bulk_delivered: 500,
            initial_window: 1,
            window_max: 64,
            delayed_ack_s: 0.0,
            local_recovery_s: 0.0,
        }
    }
}

/// A parameter is out of its range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{parameter} is {value}, and must be from {least} to {most}: {remedy}")]
pub struct ConfigError {
    /// Which one.
    pub parameter: &'static str,
    /// Its value.
    pub value: String,
    /// The least that it can be.
    pub least: String,
    /// The most that it can be.
    pub most: String,
    /// What to do.
    pub remedy: &'static str,
}

/// Refuses what is not within two bounds, which are both allowed; what is no number is in no range.
fn within<T: PartialOrd + Display>(
    parameter: &'static str,
    value: T,
    (least, most): (T, T),
    remedy: &'static str,
) -> Result<(), ConfigError> {
    if value >= least && value <= most {
        return Ok(());
    }
    let [value, least, most] = [value, least, most].map(|bound| bound.to_string());
    Err(ConfigError { parameter, value, least, most, remedy })
}

impl FailoverConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first one that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let shorter = "give a duration within the range";
        within("outage_s", self.outage_s, (0.0, OUTAGE_S_MAX), "after a longer outage senders have given up")?;
        within("rtt_s", self.rtt_s, (RTT_S_MIN, RTT_S_MAX), shorter)?;
        within("queue_s", self.queue_s, (0.0, RTT_S_MAX), shorter)?;
        within("delayed_ack_s", self.delayed_ack_s, (0.0, RTT_S_MAX), shorter)?;
        within("local_recovery_s", self.local_recovery_s, (0.0, RTT_S_MAX), shorter)?;
        let rate = "give the rate as a share, such as 0.001 for 0.1 %";
        within("loss", self.loss, (0.0, LOSS_MAX), rate)?;
        within("syn_loss", self.syn_loss, (0.0, LOSS_MAX), rate)?;
        within("short_segments", self.short_segments, (2, SHORT_SEGMENTS_MAX), "study longer flows as bulk flows")?;
        within("bulk_segments", self.bulk_segments, (2, SEGMENTS_MAX), "the rate is steady in longer flows")?;
        let interrupted = "the outage must interrupt the flow";
        within("short_delivered", self.short_delivered, (1, self.short_segments - 1), interrupted)?;
        within("bulk_delivered", self.bulk_delivered, (1, self.bulk_segments - 1), interrupted)?;
        within("window_max", self.window_max, (1, WINDOW_MAX), "give the window in segments")?;
        let initial = "the initial window cannot exceed the largest";
        within("initial_window", self.initial_window, (1, self.window_max), initial)
    }

    /// The flow of a kind.
    #[must_use]
    pub fn flow(&self, kind: Kind) -> Flow {
        if kind.is_long() {
            return Flow { segments: self.bulk_segments, delivered: self.bulk_delivered, rtt_s: self.bulk_rtt_s() };
        }
        Flow { segments: self.short_segments, delivered: self.short_delivered, rtt_s: self.rtt_s }
    }

    /// The round-trip time of a bulk flow in seconds: its own queue is included.
    #[must_use]
    pub fn bulk_rtt_s(&self) -> f64 {
        self.rtt_s + self.queue_s
    }
}
