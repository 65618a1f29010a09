//! `[reachability]`: the ports and next hops that a node should reach, and what follows when it does not.

use std::time::Duration;

use ::cluster::node::{Target, Tracked, TrackingConfig};
use flow::PortId;

use super::port::Port;

/// What a node should reach, and how fast it moves addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reachability {
    /// What is tracked for each group, and how.
    pub tracking: TrackingConfig,
    /// How long a node must reach more than the active node before it takes the addresses.
    pub move_after: Duration,
}

impl Reachability {
    /// The settings with their names, as a comparison of files lists them.
    #[must_use]
    pub fn entries(&self, ports: &[Port]) -> Vec<(&'static str, String)> {
        let Self { tracking: TrackingConfig { groups, probe_interval, probe_misses, up_delay }, move_after } = self;
        let name = |port: PortId| ports.get(usize::from(port.0)).map_or("", |port| port.name.as_str());
        let describe = |tracked: &Tracked| match tracked.target {
            Target::Port(port) => format!("{} {}", name(port), tracked.weight),
            Target::NextHop(port, address) => format!("{address} on {} {}", name(port), tracked.weight),
        };
        let list = |group: &Vec<Tracked>| format!("[{}]", group.iter().map(describe).collect::<Vec<_>>().join(", "));
        let mut lists: Vec<String> = groups.iter().map(list).collect();
        lists.dedup();
        vec![
            ("track", lists.join(", ")),
            ("probe_interval", format!("{probe_interval:?}")),
            ("probe_misses", probe_misses.to_string()),
            ("up_delay", format!("{up_delay:?}")),
            ("move_after", format!("{move_after:?}")),
        ]
    }
}
