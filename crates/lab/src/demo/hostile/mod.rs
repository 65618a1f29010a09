//! Attacks on running processes: real packets, frames, control messages and clocks, each held against what is promised.
//!
//! `attacks` lists them, `site` is the network of gateways that they are played against, `edge_site` the one with edges. `packets`, `requests`,
//! `control`, `records`, `clocks` and `edges` play them, `tracked` is a connection whose numbers an attacker knows in part, and `report` holds the results.
//! Attacks on one network come one after the other. After each, connections that pass all the time must go on, and roles be what they were.

mod attacks;
mod clocks;
mod control;
mod edge_site;
mod edges;
mod packets;
mod records;
mod report;
mod requests;
mod site;
mod tracked;

use super::DemoError;
use super::run::RunError;
use crate::args::DemoArgs;
use crate::testbed::cluster::ClusterError;
use crate::testbed::watch::Watch;
use attacks::{ATTACKS, Attack};
use console::Progress;
use edge_site::EdgeSite;
pub use report::{AttackReport, HostileReport, LeftOut};
use report::{Observed, Played};
use site::{Place, Site};

/// The names of all attacks.
pub fn names() -> impl Iterator<Item = &'static str> {
    ATTACKS.iter().map(|attack| attack.name)
}

/// Plays the attacks that are asked for and prints what came of them.
///
/// # Errors
/// They could not be played, or one was not held.
pub(super) fn run(args: &DemoArgs, watch: &Watch) -> Result<(), DemoError> {
    let chosen = chosen(args.attack.as_deref())?;
    let progress = Progress::new();
    let mut report = HostileReport::new();
    for place in Place::ALL {
        let of_place: Vec<&Attack> = chosen.iter().copied().filter(|attack| attack.place() == place).collect();
        if of_place.is_empty() {
            continue;
        }
        progress.show(&format!("building {}", place.name()));
        let show = |attack: &Attack| progress.show(attack.name);
        play_all(&of_place, place, (args.keep_logs, watch), &show, &mut report)?;
    }
    progress.show("");
    console::print_as(args.json, &report, || report.describe())?;
    let broken = report.broken_rows();
    if broken.is_empty() { Ok(()) } else { Err(DemoError::PromisesBroken(broken.join(", "))) }
}

fn play_all(
    attacks: &[&Attack],
    place: Place,
    (keep_logs, watch): (bool, &Watch),
    show: &dyn Fn(&Attack),
    report: &mut HostileReport,
) -> Result<(), RunError> {
    match place {
        Place::Gateways | Place::Gossip => {
            let mut site = Site::build(place, watch, keep_logs)?;
            for attack in attacks {
                show(attack);
                let played = attack.play_at(&mut site);
                enter(attack, played, report)?;
            }
            Ok(())
        }
        Place::Edges => {
            let mut site = EdgeSite::build(watch, keep_logs)?;
            for attack in attacks {
                show(attack);
                let played = attack.play_at_edges(&mut site);
                enter(attack, played, report)?;
            }
            Ok(())
        }
    }
}

/// Enters a result. An attack that could not be played to its end is not held.
fn enter(attack: &Attack, played: Result<Played, RunError>, report: &mut HostileReport) -> Result<(), RunError> {
    match played {
        Err(error @ (RunError::Watch(_) | RunError::Cluster(ClusterError::Watch(_)))) => return Err(error),
        Err(error) => report.enter([attack.name, attack.target], Observed::broken(error.to_string())),
        Ok(Played::Observed(observed)) => report.enter([attack.name, attack.target], observed),
        Ok(Played::LeftOut(reason)) => report.leave_out(attack.name, reason),
    }
    Ok(())
}

/// The attacks of a name, or all.
fn chosen(only: Option<&str>) -> Result<Vec<&'static Attack>, DemoError> {
    let chosen: Vec<&Attack> = ATTACKS.iter().filter(|attack| only.is_none_or(|only| only == attack.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = names().collect();
        let only = only.unwrap_or_default();
        return Err(DemoError::Missing(format!("there is no attack {only}: write one of {}", names.join(", "))));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_attack_is_refused_with_the_known_ones() {
        assert!(chosen(None).expect("all").len() >= 20);
        assert_eq!(chosen(Some("land")).expect("one").len(), 1);
        let refused =
            chosen(Some("meteor")).map(|chosen| chosen.len()).expect_err("there is no such attack").to_string();
        assert!(refused.contains("meteor: write one of forged-reset,"), "{refused}");
    }

    #[test]
    fn each_attack_has_a_name_of_its_own() {
        let mut sorted: Vec<&str> = names().collect();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ATTACKS.len());
    }
}
