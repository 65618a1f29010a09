//! The families of faults, by the names that `--faults` accepts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A family of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// The active node fails and restarts empty.
    Kill,
    /// The standby fails and restarts empty.
    KillStandby,
    /// The active node shuts down, and starts again.
    Leave,
    /// The link between the nodes is cut for a moment: both hold the addresses.
    Partition,
    /// The link of a host is cut.
    HostLink,
    /// The link of a node's port is cut.
    NodeLink,
    /// One direction of the link between the nodes is cut.
    OneWay,
    /// Only heartbeats are lost.
    Heartbeats,
    /// Only replication is lost.
    Replication,
    /// Only failure detection is lost.
    Detection,
    /// Only failure detection passes.
    ControlPort,
    /// The link between the nodes goes up and down.
    Flapping,
    /// A node serves late.
    SlowNode,
    /// The link between the nodes has a low rate and a long queue.
    SlowLink,
    /// The active node's process is paused, and resumes.
    PauseActive,
    /// The standby's does.
    PauseStandby,
    /// A node's clock leaps forward.
    ClockJump,
    /// The nodes' clocks run at different speeds.
    ClockSpeed,
    /// A node uses another version of the protocol.
    OtherVersion,
    /// A node sends attributes that the other does not know.
    NewerPeer,
    /// The link between the nodes is cut for minutes.
    LongPartition,
    /// A node has less capacity.
    SmallMemory,
    /// A restarted node must take over before it is resynchronised.
    NeededEmpty,
    /// Both nodes fail at once.
    BothDead,
    /// Both nodes are restarted, one after the other.
    RollingRestart,
    /// A node shuts down, and one of both is paused meanwhile.
    LeavePause,
    /// A port of a node loses its carrier.
    PortDown,
    /// A node does not reach a next hop, though its port has carrier.
    NextHop,
    /// A host claims the shared addresses of its link.
    AddressClaim,
    /// The replication link alone is cut, and the active node fails meanwhile.
    ReplicationLink,
    /// Wall clocks are wrong from the beginning, and are set: by seconds to days, forward or back. Beside the other faults, in every run.
    WallClock,
    /// Nodes of a larger cluster leave, die and return. Beside the other faults, in every run.
    LeaveReturn,
}

impl Family {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 32] = [
        Self::Kill,
        Self::KillStandby,
        Self::Leave,
        Self::Partition,
        Self::HostLink,
        Self::NodeLink,
        Self::OneWay,
        Self::Heartbeats,
        Self::Replication,
        Self::Detection,
        Self::ControlPort,
        Self::Flapping,
        Self::SlowNode,
        Self::SlowLink,
        Self::PauseActive,
        Self::PauseStandby,
        Self::ClockJump,
        Self::ClockSpeed,
        Self::OtherVersion,
        Self::NewerPeer,
        Self::LongPartition,
        Self::SmallMemory,
        Self::NeededEmpty,
        Self::BothDead,
        Self::RollingRestart,
        Self::LeavePause,
        Self::PortDown,
        Self::NextHop,
        Self::AddressClaim,
        Self::ReplicationLink,
        Self::WallClock,
        Self::LeaveReturn,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillStandby => "kill-standby",
            Self::Leave => "leave",
            Self::Partition => "partition",
            Self::HostLink => "host-link",
            Self::NodeLink => "node-link",
            Self::OneWay => "one-way",
            Self::Heartbeats => "heartbeats",
            Self::Replication => "replication",
            Self::Detection => "detection",
            Self::ControlPort => "control-port",
            Self::Flapping => "flapping",
            Self::SlowNode => "slow-node",
            Self::SlowLink => "slow-link",
            Self::PauseActive => "pause-active",
            Self::PauseStandby => "pause-standby",
            Self::ClockJump => "clock-jump",
            Self::ClockSpeed => "clock-speed",
            Self::OtherVersion => "other-version",
            Self::NewerPeer => "newer-peer",
            Self::LongPartition => "long-partition",
            Self::SmallMemory => "small-memory",
            Self::NeededEmpty => "needed-empty",
            Self::BothDead => "both-dead",
            Self::RollingRestart => "rolling-restart",
            Self::LeavePause => "leave-pause",
            Self::PortDown => "port-down",
            Self::NextHop => "next-hop",
            Self::AddressClaim => "address-claim",
            Self::ReplicationLink => "replication-link",
            Self::WallClock => "wall-clock",
            Self::LeaveReturn => "leave-return",
        }
    }

    /// Its relative frequency among the others of its set.
    pub(crate) const fn weight(self) -> u64 {
        match self {
            Self::Kill => 6,
            Self::Partition => 2,
            Self::WallClock | Self::LeaveReturn => 0,
            _ => 1,
        }
    }

    const fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// A set of families of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultSet(u64);

impl FaultSet {
    /// The default faults: deaths, shutdowns, short cuts.
    pub const DEFAULT: Self = Self(
        Family::Kill.bit()
            | Family::KillStandby.bit()
            | Family::Leave.bit()
            | Family::Partition.bit()
            | Family::HostLink.bit(),
    );
    /// Everything.
    pub const ALL: Self = Self((1 << Family::ALL.len()) - 1);

    /// One kind alone.
    #[must_use]
    pub const fn only(family: Family) -> Self {
        Self(family.bit())
    }

    /// Whether the family is in the set.
    #[must_use]
    pub const fn contains(self, family: Family) -> bool {
        self.0 & family.bit() != 0
    }

    /// The families in the set.
    pub fn iter(self) -> impl Iterator<Item = Family> {
        Family::ALL.into_iter().filter(move |family| self.contains(*family))
    }
}

impl Default for FaultSet {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DEFAULT => formatter.write_str("default"),
            Self::ALL => formatter.write_str("all"),
            _ => formatter.write_str(&self.iter().map(Family::name).collect::<Vec<_>>().join(",")),
        }
    }
}

/// An unknown name of a fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no fault `{0}`; give default, all, or some of: {known}", known = FaultSet::ALL.names())]
pub struct UnknownFault(String);

impl FaultSet {
    /// The names of the set's families, separated by commas.
    #[must_use]
    pub fn names(self) -> String {
        self.iter().map(Family::name).collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for FaultSet {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        text.split(',').try_fold(Self(0), |set, name| match name.trim() {
            "default" => Ok(Self(set.0 | Self::DEFAULT.0)),
            "all" => Ok(Self::ALL),
            name => {
                let family = Family::ALL.into_iter().find(|family| family.name() == name);
                family.map(|family| Self(set.0 | family.bit())).ok_or_else(|| UnknownFault(name.to_owned()))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_set_is_parsed_back() {
        for set in [FaultSet::DEFAULT, FaultSet::ALL, FaultSet::only(Family::ClockJump)] {
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        let two: FaultSet = "pause-active, kill".parse().unwrap();
        assert_eq!(two.iter().collect::<Vec<_>>(), [Family::Kill, Family::PauseActive]);
        assert_eq!("default,flapping".parse::<FaultSet>().unwrap().iter().count(), 6);
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_known_ones() {
        let error = "kill,meteor".parse::<FaultSet>().unwrap_err().to_string();
        assert!(error.contains("`meteor`") && error.contains("long-partition"), "{error}");
    }

    #[test]
    fn names_equal_those_in_files() {
        for family in Family::ALL {
            assert_eq!(serde_json::to_value(family).unwrap(), family.name());
        }
    }
}
