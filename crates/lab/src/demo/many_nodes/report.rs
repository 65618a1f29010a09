//! What became of the connections through many nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::super::DemoError;
use super::super::table::ms;
use crate::args::DemoArgs;
use crate::testbed::clock::Epoch;
use crate::testbed::many_nodes::{DETECTED_WITHIN, Passed};
use crate::testbed::topology::NODES_MAX;
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::outcome::Outcome;
use api::{Event, EventKind};
use console::{Table, count};

/// How the demo was asked to run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct ManyNodesSettings {
    /// Nodes.
    pub(super) nodes: usize,
    /// Nodes that are killed, and backups of each connection.
    pub(super) kill: usize,
    /// Nodes that join before that.
    pub(super) add: usize,
    /// Time between the kills, in milliseconds.
    kill_interval_ms: f64,
    /// Seconds of traffic asked for.
    seconds: f64,
    /// Workers of each node.
    workers: u8,
}

impl ManyNodesSettings {
    /// As the command line has it.
    ///
    /// # Errors
    /// No node would be left, or there would be too many.
    pub(super) fn new(args: &DemoArgs, nodes: u8) -> Result<Self, DemoError> {
        if args.kill >= nodes {
            return Err(DemoError::Missing(format!(
                "--kill {} of --nodes {nodes} leaves no node: kill {} at most",
                args.kill,
                nodes - 1
            )));
        }
        if usize::from(nodes + args.add) > NODES_MAX {
            let most = NODES_MAX - usize::from(nodes);
            return Err(DemoError::Missing(format!(
                "--add {} to --nodes {nodes} makes more than {NODES_MAX} nodes: add {most} at most",
                args.add
            )));
        }
        Ok(Self {
            nodes: nodes.into(),
            kill: args.kill.into(),
            add: args.add.into(),
            kill_interval_ms: args.kill_interval_ms,
            seconds: args.seconds,
            workers: args.workers,
        })
    }

    /// Time between the kills.
    pub(super) fn kill_interval(&self) -> Duration {
        Duration::from_secs_f64(self.kill_interval_ms / 1e3)
    }
}

/// A time between two marks, in which every connection has to make progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// From the joining of further nodes on, if any joined.
    Joined,
    /// From the switch-over on.
    Killed,
    /// From the return of the killed nodes on.
    Returned,
}

impl Phase {
    const fn marks(self) -> [usize; 2] {
        match self {
            Self::Joined => [0, 1],
            Self::Killed => [2, 3],
            Self::Returned => [4, 5],
        }
    }

    /// The connections that count: those that stood when the first node was killed.
    pub(super) fn counted(outcomes: &[Outcome], killed_at: Epoch) -> Vec<Outcome> {
        let counted = outcomes.iter().filter(|outcome| outcome.was_established_before(killed_at.instant()));
        counted.cloned().collect()
    }

    /// Connections without progress in it, by reason.
    fn broken(self, outcomes: &[Outcome]) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        for outcome in outcomes.iter().filter(|outcome| outcome.bytes_between(self.marks()) == 0) {
            let reason = outcome.broken.clone().unwrap_or_else(|| "nothing came back".into());
            *reasons.entry(format!("{}: {reason}", outcome.kind.label())).or_default() += 1;
        }
        reasons
    }
}

/// Pauses of the transfers that passed a killed node, in milliseconds. A transfer makes progress every few milliseconds. One that passed a
/// killed node makes none until the edges have detected the failure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Pause {
    /// Transfers.
    transfers: usize,
    /// The median.
    median_ms: Option<f64>,
    /// The longest.
    longest_ms: Option<f64>,
}

impl Pause {
    fn of(outcomes: &[Outcome]) -> Self {
        let transfers = outcomes.iter().filter(|outcome| matches!(outcome.kind, Kind::Download | Kind::Upload));
        let gaps = transfers.map(|outcome| outcome.longest_gap);
        // The last heartbeat may have been sent one interval before the kill, and the last packet passed after it.
        let mut paused: Vec<Duration> = gaps.filter(|gap| *gap >= DETECTED_WITHIN * 4 / 5).collect();
        paused.sort_unstable();
        let ms = |gap: Duration| gap.as_secs_f64() * 1e3;
        Self {
            transfers: paused.len(),
            median_ms: paused.get(paused.len() / 2).copied().map(ms),
            longest_ms: paused.last().copied().map(ms),
        }
    }
}

/// What happened once the killed nodes had returned.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Rejoined {
    /// Nodes that returned.
    nodes: usize,
    /// Connections that had survived the kills and broke afterwards.
    broken: usize,
    /// Why, and how many each.
    broken_by_reason: BTreeMap<String, usize>,
    /// Connections that were opened after the return.
    opened: usize,
    /// Those of them that broke.
    opened_broken: usize,
    /// Connections that were pulled meanwhile.
    pulls: u64,
}

impl Rejoined {
    /// Of so many nodes and pulls, of the connections before, and of those that were opened later.
    pub(super) fn new(nodes: usize, pulls: u64, outcomes: &[Outcome], later: &[Outcome]) -> Self {
        let survived = |outcome: &&Outcome| outcome.bytes_between(Phase::Killed.marks()) > 0;
        let survivors: Vec<Outcome> = outcomes.iter().filter(survived).cloned().collect();
        let broken_by_reason = Phase::Returned.broken(&survivors);
        Self {
            nodes,
            broken: broken_by_reason.values().sum(),
            broken_by_reason,
            opened: later.len(),
            opened_broken: later
                .iter()
                .filter(|outcome| outcome.broken.is_some() || outcome.verified_bytes == 0)
                .count(),
            pulls,
        }
    }
}

/// What happened once further nodes had joined.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Joined {
    /// Nodes that joined.
    nodes: usize,
    /// Connections that stood before and broke.
    connections_broken_by_join: usize,
    /// Why, and how many each.
    broken_by_reason: BTreeMap<String, usize>,
    /// Connections that were pulled meanwhile.
    pulls: u64,
}

impl Joined {
    /// Of so many nodes and pulls, and of the connections that stood.
    pub(super) fn new(nodes: usize, pulls: u64, outcomes: &[Outcome]) -> Self {
        let broken_by_reason = Phase::Joined.broken(outcomes);
        Self { nodes, connections_broken_by_join: broken_by_reason.values().sum(), broken_by_reason, pulls }
    }
}

/// Where the nodes had their list of members from, at the kill.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct MembershipReport {
    /// `etcd`.
    source: &'static str,
    /// Members that every node knew, itself included.
    members: usize,
    /// Members of etcd that had been killed by then.
    etcd_members_killed: usize,
}

impl MembershipReport {
    /// So many members were in etcd, of which one member had been killed.
    pub(super) const fn of_etcd(members: usize) -> Self {
        Self { source: "etcd", members, etcd_members_killed: 1 }
    }
}

/// What the network and the nodes did.
pub(super) struct Observed<'a> {
    /// When the first node was killed.
    pub(super) killed_at: Epoch,
    /// The edges' events until the return of the killed nodes.
    pub(super) edge_events: &'a [Event],
    /// What passed from before the first connection until the kill.
    pub(super) before: Passed,
    /// What passed from the kill until the killed nodes were started again.
    pub(super) after: Passed,
    /// Connections that the failures moved, at the inside edge.
    pub(super) moved: u64,
    /// Connections whose state was pulled by the survivors.
    pub(super) pulls: u64,
    /// Bytes between the nodes in a second before there were connections.
    pub(super) idle_control_bytes_per_s: f64,
}

/// The demo's result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct ManyNodesReport {
    /// The program's version.
    program_version: String,
    /// How it was asked to run.
    #[serde(flatten)]
    settings: ManyNodesSettings,
    /// Connections that stood when the first node was killed, datagram flows among them.
    connections: usize,
    /// Those that went on at the survivors.
    survived: usize,
    /// Those that did not.
    broken: usize,
    /// Why, and how many each.
    broken_by_reason: BTreeMap<String, usize>,
    /// Connections that the failures moved to survivors, at the inside edge.
    moved: u64,
    /// Connections whose state was pulled by the survivors.
    pulls: u64,
    /// Bytes between the nodes in a second before there were connections: heartbeats, keep-alives and acknowledgements.
    idle_control_bytes_per_s: f64,
    /// Before the kill: bytes between the nodes over bytes that entered the cluster.
    control_share: f64,
    /// The same from the kill until the killed nodes were started again.
    control_share_after: f64,
    /// Before the kill: bytes between the nodes, from the link header on, with acknowledgements and keep-alives.
    control_bytes: u64,
    /// Before the kill: bytes that entered the cluster at the edges.
    workload_bytes: u64,
    /// From the first kill until both edges had moved the flows of all killed nodes.
    switch_over_ms: Option<f64>,
    /// Pauses of transfers that passed a killed node.
    pause: Pause,
    /// Bytes that arrived and were compared with what was sent.
    bytes_verified: u64,
    /// Runs before this one that proved nothing, because a node was taken for dead before the kill.
    repeated: usize,
    /// Where the nodes had their members from; left out: from their files.
    #[serde(skip_serializing_if = "Option::is_none")]
    membership: Option<MembershipReport>,
    /// After further nodes had joined; left out if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    joined: Option<Joined>,
    /// After the return of the killed nodes.
    rejoined: Rejoined,
}

impl ManyNodesReport {
    /// What was observed, and the connections that count.
    pub(super) fn new(
        settings: &ManyNodesSettings,
        observed: &Observed<'_>,
        outcomes: &[Outcome],
        rejoined: Rejoined,
    ) -> Self {
        let Observed { killed_at, edge_events, before, after, moved, pulls, idle_control_bytes_per_s } = *observed;
        let broken_by_reason = Phase::Killed.broken(outcomes);
        let broken: usize = broken_by_reason.values().sum();
        let moved_at = edge_events.iter().filter(|event| event.kind == EventKind::PeerDown);
        let switch_over_ms = moved_at.map(|event| killed_at.ms_to_event(event.monotonic_ns)).max_by(f64::total_cmp);
        Self {
            program_version: env!("CARGO_PKG_VERSION").into(),
            settings: settings.clone(),
            connections: outcomes.len(),
            survived: outcomes.len() - broken,
            broken,
            broken_by_reason,
            moved,
            pulls,
            idle_control_bytes_per_s,
            control_share: before.control_share(),
            control_share_after: after.control_share(),
            control_bytes: before.control.bytes,
            workload_bytes: before.workload_bytes,
            switch_over_ms,
            pause: Pause::of(outcomes),
            bytes_verified: outcomes.iter().map(|outcome| outcome.verified_bytes).sum(),
            repeated: 0,
            membership: None,
            joined: None,
            rejoined,
        }
    }

    /// With further nodes that joined, and with members from elsewhere.
    pub(super) fn with(self, joined: Option<Joined>, membership: Option<MembershipReport>) -> Self {
        Self { joined, membership, ..self }
    }

    /// After so many runs that proved nothing.
    pub(super) fn repeated(self, repeated: usize) -> Self {
        Self { repeated, ..self }
    }

    /// Connections that broke, with those after joining and after the return, and all connections.
    pub(super) fn broken_of(&self) -> (usize, usize) {
        let Rejoined { broken, opened, opened_broken, .. } = self.rejoined;
        let by_join = self.joined.as_ref().map_or(0, |joined| joined.connections_broken_by_join);
        (by_join + self.broken + broken + opened_broken, self.connections + opened)
    }

    pub(super) fn describe(&self) -> String {
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let mut table = Table::of("MANY NODES|>");
        let rows = [
            ("nodes", count(self.settings.nodes as u64)),
            ("killed, and backups of each connection", count(self.settings.kill as u64)),
            ("established before the kill", count(self.connections as u64)),
            ("survived", count(self.survived as u64)),
            ("broken", count(self.broken as u64)),
            ("moved to survivors", count(self.moved)),
            ("pulled", count(self.pulls)),
            ("kill to switch-over", ms(self.switch_over_ms)),
            ("transfers of the killed nodes", count(self.pause.transfers as u64)),
            ("their pause, median", ms(self.pause.median_ms)),
            ("longest", ms(self.pause.longest_ms)),
            ("between the nodes, of the workload's bytes", percent(self.control_share)),
            ("the same after the kill", percent(self.control_share_after)),
            ("broken after the killed nodes returned", count(self.rejoined.broken as u64)),
            ("opened then", count(self.rejoined.opened as u64)),
            ("broken of these", count(self.rejoined.opened_broken as u64)),
        ];
        let joined = self.joined.iter().flat_map(|joined| {
            let Joined { nodes, connections_broken_by_join, pulls, .. } = joined;
            [
                ("nodes that joined before the kill", count(*nodes as u64)),
                ("broken by that", count(*connections_broken_by_join as u64)),
                ("pulled meanwhile", count(*pulls)),
            ]
        });
        let members = self.membership.iter().flat_map(|membership| {
            let MembershipReport { members, etcd_members_killed, .. } = membership;
            [
                ("members in etcd", count(*members as u64)),
                ("members of etcd killed before nodes were", count(*etcd_members_killed as u64)),
            ]
        });
        for (what, value) in rows.into_iter().chain(joined).chain(members) {
            table.row([what.to_owned(), value]);
        }
        let joined = self.joined.iter().flat_map(|joined| &joined.broken_by_reason);
        let reasons = self.broken_by_reason.iter().chain(&self.rejoined.broken_by_reason).chain(joined);
        let reasons = reasons.map(|(reason, number)| format!("  {:>6}  {reason}\n", count(*number as u64)));
        format!("{}{}", table.render(), reasons.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A connection that had verified so many bytes at each mark.
    fn with_marks(bytes: [u64; 6]) -> Outcome {
        let marks = bytes.into_iter().map(|bytes| (Instant::now(), bytes)).collect();
        let established_at = Some(Instant::now());
        Outcome { marks, established_at, verified_bytes: bytes[5], ..Outcome::new(Kind::Idle, false) }
    }

    #[test]
    fn transfers_that_stood_still_for_a_detection_time_have_paused() {
        let with_gap = |kind, ms| Outcome { longest_gap: Duration::from_millis(ms), ..Outcome::new(kind, false) };
        let outcomes = [
            with_gap(Kind::Download, 20),
            with_gap(Kind::Upload, 240),
            with_gap(Kind::Download, 260),
            with_gap(Kind::Download, 300),
            with_gap(Kind::Idle, 900),
        ];
        let pause = Pause::of(&outcomes);
        assert_eq!((pause.transfers, pause.median_ms, pause.longest_ms), (3, Some(260.0), Some(300.0)));
    }

    #[test]
    fn a_connection_breaks_in_the_phase_in_which_nothing_came_back() {
        let outcomes = [
            with_marks([0, 64, 64, 128, 128, 192]),
            with_marks([0, 64, 64, 64, 64, 64]),
            with_marks([0, 64, 64, 128, 128, 128]),
            with_marks([64, 64, 64, 64, 64, 128]),
        ];
        assert_eq!(Phase::Killed.broken(&outcomes)["idle: nothing came back"], 2);
        assert_eq!(Joined::new(1, 0, &outcomes).connections_broken_by_join, 1);
        let opened = with_marks([0, 0, 0, 0, 0, 64]);
        let later = [opened.clone(), Outcome { broken: Some("reset".into()), ..opened }];
        let rejoined = Rejoined::new(2, 0, &outcomes, &later);
        assert_eq!((rejoined.broken, rejoined.opened, rejoined.opened_broken), (1, 2, 1));
    }
}
