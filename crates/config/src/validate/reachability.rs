//! `[reachability]`, checked.

use std::ops::RangeInclusive;
use std::time::Duration;

use ::cluster::node::{NEXT_HOPS_TRACKED_MAX, TRACKED_WEIGHT_MAX, Target, Tracked, TrackingConfig};
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake, Text};
use super::super::raw::{RawConfig, RawGroup, RawTrack};
use super::super::validated::{Port, Reachability, Route};
use super::super::value;
use super::common::durations;
use super::routes::next_hop;

/// Default weight of a port.
const PORT_WEIGHT: u16 = 100;
/// Default weight of a next hop: a port counts more than one of the next hops behind it.
const NEXT_HOP_WEIGHT: u16 = 50;
/// How long a node must reach more by default.
const MOVE_AFTER: Duration = Duration::from_millis(100);

const PROBE_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(60);
const UP_DELAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
const MOVE_AFTER_RANGE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);

pub(super) fn reachability(
    raw: &RawConfig,
    (ports, routes): (&[Port], &[Route]),
    diagnostics: &mut Diagnostics<'_>,
) -> Reachability {
    let section = &raw.reachability;
    let mut duration = |key: &str, written: &Option<Text>, default: Duration, range: RangeInclusive<Duration>| {
        let default = Some(value::written_duration(default));
        diagnostics.describe(&format!("reachability.{key}"), default, durations(&range));
        let text = written.as_ref()?;
        let checked = value::duration(text.get_ref()).and_then(|duration| within(duration, &range));
        checked.map_err(|mistake| diagnostics.error(text.span(), &format!("reachability.{key}"), mistake)).ok()
    };
    let defaults = TrackingConfig::default();
    let probe_interval = duration("probe_interval", &section.probe_interval, defaults.probe_interval, PROBE_INTERVAL);
    let up_delay = duration("up_delay", &section.up_delay, defaults.up_delay, UP_DELAY);
    let move_after = duration("move_after", &section.move_after, MOVE_AFTER, MOVE_AFTER_RANGE);
    let default = defaults.probe_misses.to_string();
    diagnostics.describe("reachability.probe_misses", Some(default), format!("1 to {}", u8::MAX));
    if let Some(zero) = section.probe_misses.as_ref().filter(|misses| *misses.get_ref() == 0) {
        let mistake = Mistake::new("0 is out of range", "choose a number from 1 to 255");
        diagnostics.error(zero.span(), "reachability.probe_misses", mistake);
    }
    let general = section.track.as_ref().map(|list| tracked("reachability.track", list, ports, diagnostics));
    let general = general.unwrap_or_else(|| all(ports, routes));
    let of_group = |group: &Spanned<RawGroup>| {
        let list = group.get_ref().track.as_ref();
        list.map_or_else(|| general.clone(), |list| tracked("group.track", list, ports, diagnostics))
    };
    let mut groups: Vec<_> = raw.group.iter().map(of_group).collect();
    if groups.is_empty() {
        groups.push(general);
    }
    Reachability {
        tracking: TrackingConfig {
            groups,
            probe_interval: probe_interval.unwrap_or(defaults.probe_interval),
            probe_misses: section.probe_misses.as_ref().map_or(defaults.probe_misses, |misses| *misses.get_ref()),
            up_delay: up_delay.unwrap_or(defaults.up_delay),
        },
        move_after: move_after.unwrap_or(MOVE_AFTER),
    }
}

/// Every port, and the gateways of the routes, of very many the first.
fn all(ports: &[Port], routes: &[Route]) -> Vec<Tracked> {
    let ports = ports.iter().map(|port| Tracked { target: Target::Port(port.id), weight: PORT_WEIGHT });
    let mut tracked: Vec<Tracked> = ports.collect();
    let count_max = tracked.len() + NEXT_HOPS_TRACKED_MAX;
    for route in routes {
        let target = Target::NextHop(route.port, route.via);
        if tracked.len() < count_max && tracked.iter().all(|other| other.target != target) {
            tracked.push(Tracked { target, weight: NEXT_HOP_WEIGHT });
        }
    }
    tracked
}

/// The entries of a list as written, without those that were reported.
fn tracked(
    subject: &str,
    list: &[Spanned<RawTrack>],
    ports: &[Port],
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<Tracked> {
    diagnostics.describe(&format!("{subject}.weight"), None, format!("1 to {TRACKED_WEIGHT_MAX}"));
    let mut tracked: Vec<Tracked> = Vec::new();
    for written in list {
        let raw = written.get_ref();
        let checked = target(raw, ports).and_then(|(target, default)| {
            let weight = raw.weight.as_ref().map_or(default, |weight| *weight.get_ref());
            check(target, weight, &tracked).map(|()| Tracked { target, weight })
        });
        match checked {
            Ok(entry) => tracked.push(entry),
            Err(mistake) => diagnostics.error(written.span(), subject, mistake),
        }
    }
    tracked
}

fn check(target: Target, weight: u16, others: &[Tracked]) -> Result<(), Mistake> {
    if !(1..=TRACKED_WEIGHT_MAX).contains(&weight) {
        let remedy = format!("choose a weight from 1 to {TRACKED_WEIGHT_MAX}, or remove the entry");
        return Err(Mistake::new(format!("weight {weight} is out of range"), remedy));
    }
    if others.iter().any(|other| other.target == target) {
        return Err(Mistake::new("this is listed twice", "list it once"));
    }
    let is_next_hop = |tracked: &&Tracked| matches!(tracked.target, Target::NextHop(..));
    let next_hops = others.iter().filter(is_next_hop).count();
    if matches!(target, Target::NextHop(..)) && next_hops == NEXT_HOPS_TRACKED_MAX {
        return Err(Mistake::new(format!("there are more than {NEXT_HOPS_TRACKED_MAX} next hops"), "remove some"));
    }
    Ok(())
}

/// What an entry is about, and its weight if it gives none.
fn target(raw: &RawTrack, ports: &[Port]) -> Result<(Target, u16), Mistake> {
    match (&raw.port, &raw.next_hop) {
        (Some(name), None) => {
            let name = name.get_ref();
            let port = ports.iter().find(|port| port.name == *name);
            let missing = || Mistake::new(format!("there is no port {name:?}"), "write the name of a [[port]]");
            port.map(|port| (Target::Port(port.id), PORT_WEIGHT)).ok_or_else(missing)
        }
        (None, Some(address)) => {
            let (port, address) = next_hop(address.get_ref(), None, ports, None)?;
            Ok((Target::NextHop(port, address), NEXT_HOP_WEIGHT))
        }
        _ => Err(Mistake::new(
            "an entry names one port or one next hop",
            "write { port = \"…\", weight = 100 } or { next_hop = \"…\", weight = 50 }",
        )),
    }
}

fn within(duration: Duration, range: &RangeInclusive<Duration>) -> Result<Duration, Mistake> {
    if range.contains(&duration) {
        return Ok(duration);
    }
    Err(Mistake::new("the duration is out of range", format!("write one from {}", durations(range))))
}
