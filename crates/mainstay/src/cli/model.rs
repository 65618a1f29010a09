//! `mainstay model`.

use std::path::PathBuf;
use std::time::Duration;

use analysis::tcp_failover::{
    Arrival, Equations, FailoverConfig, OUTAGE_S_MAX, RecoveryPolicy, SEEDS_MAX, ScheduleKind,
};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use config::value::parse_duration_within;

/// `mainstay model`.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Compute how long TCP stalls across a failover, and when it completes, with and without local recovery
    Failover(Box<ModelFailoverArgs>),
}

/// `mainstay model failover`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("flows").multiple(true))]
pub struct ModelFailoverArgs {
    /// Duration of the outage, at most 1m; a number without a unit is seconds, here and below
    #[arg(long = "outage", value_name = "TIME", default_value = "3s", value_parser = outage_s)]
    pub outage_s: f64,
    /// Round-trip time
    #[arg(long = "rtt", value_name = "TIME", default_value = "100ms", value_parser = delay_s)]
    pub rtt_s: f64,
    /// What queues add to the round-trip time of bulk flows
    #[arg(long = "queue-delay", value_name = "TIME", default_value = "0s", value_parser = delay_s)]
    pub queue_s: f64,
    /// Retransmission schedule: linux and doubling follow the round-trip time, thesis has 1.5s for data and 3s for SYNs
    #[arg(long, value_name = "WHOSE", value_enum, default_value_t = ScheduleChoice::Linux)]
    pub schedule: ScheduleChoice,
    /// Transfer after the outage: window follows the congestion window, thesis is the paper's equations
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = EquationsChoice::Window)]
    pub equations: EquationsChoice,
    /// When flows lose their first packet: uniform, at any time of the outage (figures are medians), or at its start
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ArrivalChoice::Uniform)]
    pub arrival: ArrivalChoice,
    /// Segments that local recovery resends: the lowest unacknowledged one of a connection, or all
    #[arg(long, value_name = "SEGMENTS", value_enum, default_value_t = RecoveryChoice::Lowest)]
    pub recovery: RecoveryChoice,
    /// Loss rate of data segments, 0 to 0.2
    #[arg(long, value_name = "RATE", default_value_t = 0.001)]
    pub loss: f64,
    /// Loss rate of SYNs, 0 to 0.2
    #[arg(long, value_name = "RATE", default_value_t = 0.001)]
    pub syn_loss: f64,
    /// Segments of a short flow
    #[arg(long, value_name = "COUNT", default_value_t = 9)]
    pub segments: u32,
    /// Segments of a short flow that precede the outage [default: a third]
    #[arg(long, value_name = "COUNT")]
    pub delivered: Option<u32>,
    /// Segments of a bulk flow
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub bulk_segments: u32,
    /// Segments of a bulk flow that precede the outage [default: half]
    #[arg(long, value_name = "COUNT")]
    pub bulk_delivered: Option<u32>,
    /// Initial congestion window in segments
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub initial_window: u32,
    /// Largest congestion window in segments
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub window_max: u32,
    /// Delay of the acknowledgement of a first segment that is sent alone
    #[arg(long = "delayed-ack", value_name = "TIME", default_value = "0s", value_parser = delay_s)]
    pub delayed_ack_s: f64,
    /// Time that local recovery takes to resend
    #[arg(long = "recovery-time", value_name = "TIME", default_value = "0s", value_parser = delay_s)]
    pub local_recovery_s: f64,
    /// Show the figures over outages between two durations too, such as 50ms..12s
    #[arg(long, value_name = "FROM..TO", value_parser = sweep_s)]
    pub sweep: Option<(f64, f64)>,
    /// Simulate the flows too, and show the medians beside the model
    #[arg(long, group = "flows")]
    pub simulate: bool,
    /// Run the flows in ns-3 too, for each outage of a sweep, and show the medians and the differences from the model (needs libns3-dev, g++, pkg-config)
    #[cfg(feature = "lab")]
    #[arg(long, group = "flows")]
    pub ns3: bool,
    /// Directory that keeps the compiled ns-3 program [default: a temporary one]
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "DIRECTORY", requires = "ns3")]
    pub ns3_dir: Option<PathBuf>,
    /// Runs of the simulation, and of each outage in ns-3
    #[arg(long, value_name = "COUNT", default_value_t = 101, requires = "flows", value_parser = clap::value_parser!(u32).range(1..=i64::from(SEEDS_MAX)))]
    pub seeds: u32,
    /// Seed of the first run
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "flows")]
    pub seed: u64,
    /// Page with plots that is written, HTML
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl ModelFailoverArgs {
    /// The parameters of the model; they are checked there.
    #[must_use]
    pub fn config(&self) -> FailoverConfig {
        FailoverConfig {
            outage_s: self.outage_s,
            rtt_s: self.rtt_s,
            queue_s: self.queue_s,
            schedule: self.schedule.into(),
            equations: self.equations.into(),
            arrival: self.arrival.into(),
            recovery: self.recovery.into(),
            loss: self.loss,
            syn_loss: self.syn_loss,
            short_segments: self.segments,
            short_delivered: self.delivered.unwrap_or((self.segments / 3).max(1)),
            bulk_segments: self.bulk_segments,
            bulk_delivered: self.bulk_delivered.unwrap_or((self.bulk_segments / 2).max(1)),
            initial_window: self.initial_window,
            window_max: self.window_max,
            delayed_ack_s: self.delayed_ack_s,
            local_recovery_s: self.local_recovery_s,
        }
    }
}

/// A value of the command line for each variant of a type of the model.
macro_rules! choice {
    ($(#[$doc:meta])* $choice:ident of $kind:ident { $($(#[$help:meta])* $variant:ident),+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
        pub enum $choice { $($(#[$help])* $variant),+ }

        impl From<$choice> for $kind {
            fn from(choice: $choice) -> Self {
                match choice { $($choice::$variant => Self::$variant),+ }
            }
        }
    };
}

choice! {
    /// `--schedule`.
    ScheduleChoice of ScheduleKind {
        /// Linux since 6.5
        Linux,
        /// Linux's timeouts without a probe and without linear timeouts of SYNs
        Doubling,
        /// The paper's table I
        Thesis
    }
}
choice! {
    /// `--equations`.
    EquationsChoice of Equations {
        /// With the congestion window that timeouts leave
        Window,
        /// As the paper states them
        Thesis
    }
}
choice! {
    /// `--arrival`.
    ArrivalChoice of Arrival {
        /// At any time of the outage, or of its first round trip
        Uniform,
        /// As the outage begins
        Start
    }
}
choice! {
    /// `--recovery`.
    RecoveryChoice of RecoveryPolicy {
        /// The lowest unacknowledged segment
        Lowest,
        /// Every lost segment
        All
    }
}

/// The longest delay on the command line; the model has narrower limits.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// A duration in seconds: with a unit, or a number of seconds.
fn span_s(text: &str, most: Duration) -> Result<f64, String> {
    let with_unit = if text.parse::<f64>().is_ok() { format!("{text}s") } else { text.to_owned() };
    parse_duration_within(&with_unit, Duration::ZERO..=most).map(|span| span.as_secs_f64())
}

fn outage_s(text: &str) -> Result<f64, String> {
    span_s(text, Duration::from_secs_f64(OUTAGE_S_MAX))
}

fn delay_s(text: &str) -> Result<f64, String> {
    span_s(text, DELAY_MAX)
}

fn sweep_s(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once("..").ok_or("write FROM..TO, such as 50ms..12s")?;
    let (from, to) = (outage_s(from)?, outage_s(to)?);
    if from < to { Ok((from, to)) } else { Err("the first duration must be the shorter one".into()) }
}
