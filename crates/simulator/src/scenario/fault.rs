//! Faults of nodes and links: plain data, so that a schedule can be stored and loaded.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Family;

/// The target of a fault, by the nodes' roles when it happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The node that holds the addresses.
    Active,
    /// The standby node.
    Standby,
    /// Node 0.
    Node0,
    /// Node 1.
    Node1,
    /// Both.
    Both,
}

/// The kinds of datagrams between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Channels {
    /// Failure detection.
    pub detection: bool,
    /// Heartbeats.
    pub heartbeats: bool,
    /// Replication.
    pub replication: bool,
    /// Failure detection over the links of the ports, with all that nodes send there.
    #[serde(default)]
    pub paths: bool,
}

impl Channels {
    /// All datagrams between nodes.
    pub const ALL: Self = Self { detection: true, heartbeats: true, replication: true, paths: true };
    /// All datagrams on the replication link.
    pub const REPLICATION_LINK: Self = Self { paths: false, ..Self::ALL };
}

/// The difference of a node's protocol from this release's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// No difference.
    #[default]
    Same,
    /// It adds attributes and messages that this release does not define.
    Newer,
    /// It uses this version of the replication protocol.
    Version(u8),
}

/// The capacity of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// Connections.
    pub connections_max: u32,
    /// Changed connections waiting for replication.
    pub changes_queued_max: u32,
    /// Ended connections waiting for replication.
    pub deletions_max: u32,
    /// Messages in flight.
    pub in_flight_messages_max: u16,
}

/// A fault, or its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A node stops dead.
    Kill(Who),
    /// A dead or stopped node restarts empty.
    Restart(Who),
    /// A node is ordered to shut down.
    Leave(Who),
    /// A node's datagrams on some channels are lost from now on, or pass again.
    Silence {
        /// The node.
        who: Who,
        /// The affected channels.
        channels: Channels,
        /// Lost, else restored.
        is_lost: bool,
    },
    /// The link between the nodes gets this rate and queue; zero bytes a second: unlimited.
    Rate {
        /// The rate in bytes per second, headers included.
        bytes_per_second: u64,
        /// The capacity of its queue in bytes; more is lost.
        queue_bytes: u64,
    },
    /// A node's process is paused, as by SIGSTOP.
    Pause(Who),
    /// Paused processes resume.
    Continue(Who),
    /// A node does everything up to this much later than due; zero: promptly again.
    Lag {
        /// The node.
        who: Who,
        /// The maximum delay.
        lag_ms: u64,
    },
    /// A node's clock leaps forward.
    Jump {
        /// The node.
        who: Who,
        /// The distance of the leap.
        by_ms: u64,
    },
    /// A node's clock runs at another speed from now on.
    Speed {
        /// The node.
        who: Who,
        /// The speed: thousandths of a second that pass in a second.
        per_mille: u64,
    },
    /// A node's wall clock is set.
    WallClock {
        /// The node.
        who: Who,
        /// The distance, forward or back.
        by_s: i64,
    },
    /// A node uses another protocol from its next start on.
    SetDialect {
        /// The node.
        who: Who,
        /// The protocol.
        dialect: Dialect,
    },
    /// A node has another capacity from its next start on.
    Room {
        /// The node.
        who: Who,
        /// The capacity.
        room: Capacity,
    },
    /// The link of a host goes down, or is restored.
    HostLink {
        /// The host.
        host: usize,
        /// Down, else restored.
        is_down: bool,
    },
    /// The links of a node's ports go down, or are restored.
    NodeLink {
        /// The node.
        who: Who,
        /// The port of the inside link.
        inside: bool,
        /// The port of the outside link.
        outside: bool,
        /// Down, else restored.
        is_down: bool,
        /// The ports lose their carrier, too, which the node detects at once; else only frames are lost.
        #[serde(default)]
        carrier: bool,
    },
    /// A host claims the shared addresses of its link.
    Claim {
        /// The host.
        host: usize,
    },
}

/// Faults of one family, from beginning to end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Episode {
    /// The family of the faults.
    pub family: Family,
    /// The time of its beginning.
    pub at_ms: u64,
    /// The steps, with their delays.
    pub steps: Vec<Step>,
}

/// A step of an episode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The delay from the episode's beginning.
    pub after_ms: u64,
    /// The fault.
    pub fault: Fault,
}

impl Episode {
    /// The time of its end.
    #[must_use]
    pub fn ends_at_ms(&self) -> u64 {
        self.at_ms + self.steps.iter().map(|step| step.after_ms).max().unwrap_or(0)
    }
}

impl fmt::Display for Who {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Active => "the active node",
            Self::Standby => "the standby",
            Self::Node0 => "node 0",
            Self::Node1 => "node 1",
            Self::Both => "both nodes",
        })
    }
}

impl fmt::Display for Channels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return formatter.write_str("everything");
        }
        let names = [
            (self.detection, "failure detection"),
            (self.heartbeats, "heartbeats"),
            (self.replication, "replication"),
            (self.paths, "service paths"),
        ];
        let named: Vec<_> = names.iter().filter(|(is_meant, _)| *is_meant).map(|(_, name)| *name).collect();
        formatter.write_str(&named.join(" and "))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Kill(who) => write!(formatter, "{who}: dies"),
            Self::Restart(who) => write!(formatter, "{who}: restarts, if dead or stopped"),
            Self::Leave(who) => write!(formatter, "{who}: shuts down"),
            Self::Silence { who, channels, is_lost: true } => write!(formatter, "{who}: {channels} sent is lost"),
            Self::Silence { who, channels, is_lost: false } => write!(formatter, "{who}: {channels} sent passes"),
            Self::Rate { bytes_per_second: 0, .. } => write!(formatter, "the link between the nodes is fast again"),
            Self::Rate { bytes_per_second, queue_bytes } => write!(
                formatter,
                "the link between the nodes carries {bytes_per_second} bytes a second, {queue_bytes} bytes wait"
            ),
            Self::Pause(who) => write!(formatter, "{who}: is paused"),
            Self::Continue(who) => write!(formatter, "{who}: resumes, if paused"),
            Self::Lag { who, lag_ms: 0 } => write!(formatter, "{who}: prompt again"),
            Self::Lag { who, lag_ms } => write!(formatter, "{who}: up to {lag_ms} ms late in everything"),
            Self::Jump { who, by_ms } => write!(formatter, "{who}: the clock leaps {by_ms} ms"),
            Self::Speed { who, per_mille } => write!(formatter, "{who}: the clock runs at {per_mille} thousandths"),
            Self::WallClock { who, by_s } => write!(formatter, "{who}: the wall clock is set by {by_s} s"),
            Self::SetDialect { who, dialect } => write!(formatter, "{who}: uses {dialect:?} from the next start on"),
            Self::Room { who, room } => write!(
                formatter,
                "{who}: capacity of {} connections, {} changes, {} deletions, {} messages in flight from the next start on",
                room.connections_max, room.changes_queued_max, room.deletions_max, room.in_flight_messages_max
            ),
            Self::HostLink { host, is_down } => write!(formatter, "host {host}: link {}", down_or_restored(is_down)),
            Self::Claim { host } => write!(formatter, "host {host}: claims the shared addresses"),
            Self::NodeLink { who, inside, outside, is_down, carrier } => {
                let which = match (inside, outside) {
                    (true, false) => "inside",
                    (false, true) => "outside",
                    _ => "both",
                };
                let what = if carrier { "carrier" } else { "link" };
                write!(formatter, "{who}: {which} {what} {}", down_or_restored(is_down))
            }
        }
    }
}

const fn down_or_restored(is_down: bool) -> &'static str {
    if is_down { "down" } else { "restored" }
}
