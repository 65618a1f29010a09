//! One kill, and what became of the flows that were in progress.

use std::time::{Duration, Instant};

use super::network::{Links, Network};
use super::objects::{Flow, Phase, Plan, Traffic};
use super::pair::TakeOver;
use crate::args::replication::Subject;
use crate::bench::BenchError;
use crate::testbed::clock::Epoch;
use crate::testbed::watch::{Waited, Watch};

/// Time that flows are given to spread over their lives before the kill, at least.
const WARM_UP: Duration = Duration::from_secs(1);
/// The same, at most.
const WARM_UP_MAX: Duration = Duration::from_secs(20);
/// How long before the kill the client begins a flow wherever one has ended, so that as many are in progress as may be, at
/// least; and at most, where half as many as may be in progress have not ended in that time.
const HURRY: Duration = Duration::from_millis(15);
const HURRY_MAX: Duration = Duration::from_millis(500);
/// Flows that begin in a second before that, at most: more would keep this machine, on which all of it runs, so busy
/// that a gateway could seem dead.
const FLOWS_PER_S_MAX: u64 = 2000;

/// What an experiment is made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub(super) links: Links,
    pub(super) object_kilobytes: &'a [u32],
    /// Flows at a time.
    pub(super) at_once: usize,
    /// How long after the kill a flow is given up.
    pub(super) give_up: Duration,
    /// If more than one packet in a hundred is later on an emulated link, the run is thrown away.
    pub(super) lateness_max: Duration,
}

/// What became of a flow that was in progress at the kill.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum FlowOutcome {
    /// It went on after the take-over and got its whole object. When it first did so, in milliseconds from the kill.
    Recovered { resumed_ms: f64 },
    /// It did not, and why.
    Lost(String),
    /// All that it still needed had left the gateway before the kill.
    Unaffected,
    /// Its connection was not established by the gateway that died, so that there was nothing to recover: it was begun again
    /// by its first segment.
    Connecting { finished: bool },
}

/// A flow that was in progress at the kill.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sample {
    pub(super) object_kilobytes: u32,
    pub(super) flow_outcome: FlowOutcome,
}

/// The result of one kill.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Outcome {
    pub(super) samples: Vec<Sample>,
    pub(super) take_over: TakeOver,
    /// Times that connections took to be established before the hurry, in milliseconds.
    pub(super) connect_ms: Vec<f64>,
}

/// Why an experiment is to be made again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rejected {
    /// An emulated link was so late that times are the machine's, not the network's.
    Late { p99_us: u64 },
    /// The standby took over before the kill.
    TookOverEarly,
}

/// Makes one.
///
/// # Errors
/// It cannot be made at all.
pub(super) fn run(
    watch: &Watch,
    subject: Subject,
    setting: Setting<'_>,
    show: &dyn Fn(&str),
) -> Result<Result<Outcome, Rejected>, BenchError> {
    show("building the network");
    let mut network = Network::build(setting.links)?;
    let mut pair = subject.start(&network)?;
    show("waiting for the gateways");
    pair.wait_until_ready(watch)?;
    let plan = Plan {
        servers: network.server_addresses(),
        object_kilobytes: setting.object_kilobytes.to_vec(),
        at_once: setting.at_once,
        flows_per_s_max: FLOWS_PER_S_MAX,
    };
    let traffic = Traffic::start(&network, plan)?;
    show("fetching objects");
    warm_up(watch, &traffic, setting)?;
    network.begin_measuring()?;
    watch.pass_until(Instant::now() + WARM_UP / 2)?;
    if pair.check_roles().is_err() {
        return Ok(Err(Rejected::TookOverEarly));
    }
    // A machine that is too busy already need not be waited for.
    if let Some(late) = lateness(&mut network, setting)? {
        return Ok(Err(late));
    }
    let hurried_at = Instant::now();
    traffic.set_phase(Phase::Hurried);
    let finished_before = traffic.finished();
    watch.until(hurried_at + HURRY_MAX, || {
        let turned_over = traffic.finished() - finished_before >= setting.at_once / 2;
        Ok::<_, BenchError>(turned_over && hurried_at.elapsed() >= HURRY)
    })?;
    network.disconnect_dedicated_link()?;
    let killed_at = pair.kill_active()?;
    traffic.set_phase(Phase::Waiting);
    show("the active gateway is dead");
    let take_over = pair.await_take_over(watch, killed_at)?;
    let given_up_at = killed_at.instant() + setting.give_up;
    watch.until(given_up_at, || Ok::<_, BenchError>(traffic.in_progress() == 0))?;
    if let Some(late) = lateness(&mut network, setting)? {
        return Ok(Err(late));
    }
    let mut flows = traffic.finish()?;
    flows.retain(|flow| !pair.spares(flow.server.ip()));
    let moments = Moments { hurried_at, killed_at, take_over, give_up: setting.give_up };
    Ok(Ok(moments.sum_up(&flows)))
}

/// Whether an emulated link has been so late that the run is worth nothing.
fn lateness(network: &mut Network, setting: Setting<'_>) -> Result<Option<Rejected>, BenchError> {
    let p99_us = network.lateness_p99_us()?;
    Ok((Duration::from_micros(p99_us) > setting.lateness_max).then_some(Rejected::Late { p99_us }))
}

/// Waits until flows of all ages are in progress.
fn warm_up(watch: &Watch, traffic: &Traffic, setting: Setting<'_>) -> Result<(), BenchError> {
    let begin = Instant::now();
    let waited = watch.until(begin + WARM_UP_MAX, || {
        Ok::<_, BenchError>(begin.elapsed() >= WARM_UP / 2 && traffic.finished() >= setting.at_once)
    })?;
    if waited == Waited::TooLate {
        return Err(BenchError::NothingPassed);
    }
    Ok(())
}

/// When what happened.
struct Moments {
    hurried_at: Instant,
    killed_at: Epoch,
    take_over: TakeOver,
    give_up: Duration,
}

impl Moments {
    fn sum_up(&self, flows: &[Flow]) -> Outcome {
        let killed = self.killed_at.instant();
        let in_progress =
            flows.iter().filter(|flow| flow.opened_at <= killed && flow.ended_at.is_none_or(|at| at > killed));
        let samples = in_progress
            .map(|flow| Sample { object_kilobytes: flow.object_kilobytes, flow_outcome: self.flow_outcome(flow) })
            .collect();
        let undisturbed = flows.iter().filter(|flow| flow.opened_at < self.hurried_at);
        let connect_ms = undisturbed
            .filter_map(|flow| {
                let established_at = flow.established_at.filter(|at| *at <= killed)?;
                Some((established_at - flow.opened_at).as_secs_f64() * 1e3)
            })
            .collect();
        Outcome { samples, take_over: self.take_over, connect_ms }
    }

    fn flow_outcome(&self, flow: &Flow) -> FlowOutcome {
        let finished = flow.ended_at.is_some() && flow.failure.is_none();
        let taken_over_at = self.take_over.announced_ms.map(|ms| self.killed_at.after_ms(ms));
        // What came between the kill and the take-over had passed the dead gateway, also if the client saw it late.
        let had_passed =
            |at: Option<Instant>| at.is_some_and(|at| taken_over_at.is_none_or(|taken_over_at| at < taken_over_at));
        if !had_passed(flow.established_at) {
            return FlowOutcome::Connecting { finished };
        }
        if finished && had_passed(flow.ended_at) {
            return FlowOutcome::Unaffected;
        }
        if !finished {
            let in_vain = || format!("nothing within {} s", self.give_up.as_secs());
            return FlowOutcome::Lost(flow.failure.clone().unwrap_or_else(in_vain));
        }
        let resumed = flow.progress.iter().find(|at| taken_over_at.is_some_and(|taken_over_at| **at >= taken_over_at));
        let resumed = resumed.copied().or(flow.ended_at).unwrap_or(flow.opened_at);
        FlowOutcome::Recovered { resumed_ms: self.killed_at.ms_to(resumed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(opened: Instant, established: Option<Instant>, ended: Option<Instant>) -> Flow {
        Flow {
            object_kilobytes: 5,
            server: "198.51.100.10:7200".parse().expect("an address"),
            opened_at: opened,
            established_at: established,
            ended_at: ended,
            failure: None,
            progress: Vec::new(),
        }
    }

    #[test]
    fn a_flow_counts_if_the_dead_gateway_established_it_and_it_was_not_over() {
        let start = Instant::now();
        let killed_at = Epoch::now();
        let after = |ms| killed_at.instant() + Duration::from_millis(ms);
        let take_over = TakeOver { announced_ms: Some(100.0), ..TakeOver::default() };
        let moments = Moments { hurried_at: after(0), killed_at, take_over, give_up: Duration::from_secs(6) };
        let reset = Flow { failure: Some("reset".into()), ..flow(start, Some(start), Some(after(300))) };
        let resumed =
            Flow { progress: vec![after(20), after(240), after(250)], ..flow(start, Some(start), Some(after(900))) };
        let flows = [
            flow(start, Some(start), Some(start)),
            flow(after(5), Some(after(200)), Some(after(300))),
            flow(start, Some(after(3)), None),
            flow(start, None, None),
            flow(start, Some(after(1100)), Some(after(1200))),
            flow(start, Some(start), Some(after(30))),
            flow(start, Some(start), None),
            reset,
            resumed,
        ];
        let flow_outcomes: Vec<FlowOutcome> =
            moments.sum_up(&flows).samples.into_iter().map(|sample| sample.flow_outcome).collect();
        assert_eq!(
            flow_outcomes[..6],
            [
                FlowOutcome::Lost("nothing within 6 s".into()),
                FlowOutcome::Connecting { finished: false },
                FlowOutcome::Connecting { finished: true },
                FlowOutcome::Unaffected,
                FlowOutcome::Lost("nothing within 6 s".into()),
                FlowOutcome::Lost("reset".into()),
            ]
        );
        let FlowOutcome::Recovered { resumed_ms } = flow_outcomes[6] else { panic!("{flow_outcomes:?}") };
        assert!((resumed_ms - 240.0).abs() < 1e-6);
        assert_eq!(flow_outcomes.len(), 7);
    }

    #[test]
    fn where_nobody_takes_over_nothing_is_recovered() {
        let start = Instant::now();
        let killed_at = Epoch::now();
        let after = |ms| killed_at.instant() + Duration::from_millis(ms);
        let moments = Moments {
            hurried_at: after(0),
            killed_at,
            take_over: TakeOver::default(),
            give_up: Duration::from_secs(6),
        };
        assert_eq!(moments.flow_outcome(&flow(start, Some(start), Some(after(10)))), FlowOutcome::Unaffected);
        assert!(matches!(moments.flow_outcome(&flow(start, Some(start), None)), FlowOutcome::Lost(_)));
    }
}
