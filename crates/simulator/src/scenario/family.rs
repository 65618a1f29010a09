//! The kinds of trouble that a run may be drawn from, by the names that `--faults` takes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A kind of trouble.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// The active node stops dead and comes back empty.
    Kill,
    /// The standby does.
    KillStandby,
    /// The active node leaves in good order, and starts again.
    Leave,
    /// The link between the nodes is cut for a moment: both hold the addresses.
    Partition,
    /// The link of a host is cut.
    HostLink,
    /// The link of a node's port is cut.
    NodeLink,
    /// One way of the link between the nodes is cut.
    OneWay,
    /// Heartbeats alone are lost.
    Heartbeats,
    /// Replication alone is lost.
    Replication,
    /// Failure detection alone is lost.
    Detection,
    /// Failure detection alone passes.
    ControlPort,
    /// The link between the nodes goes up and down.
    Flapping,
    /// A node serves late.
    SlowNode,
    /// The link between the nodes has a low rate and a long queue.
    SlowLink,
    /// The active node's process stands still, and goes on.
    PauseActive,
    /// The standby's does.
    PauseStandby,
    /// A node's clock leaps forward.
    ClockJump,
    /// The nodes' clocks run at different speeds.
    ClockSpeed,
    /// A node speaks another version of the protocol.
    OtherVersion,
    /// A node says more than the other understands.
    NewerPeer,
    /// The link between the nodes is cut for minutes.
    LongPartition,
    /// A node has room for less.
    SmallMemory,
    /// A node that came back empty is needed before it was told.
    NeededEmpty,
    /// Both nodes are dead at once.
    BothDead,
    /// Both nodes are restarted, one after the other.
    RollingRestart,
    /// A node leaves, and one of both stands still meanwhile.
    LeavePause,
    /// A port of a node loses its carrier.
    PortDown,
    /// A node does not reach a next hop, though its port has carrier.
    NextHop,
    /// A host claims the shared addresses of its link.
    AddressClaim,
}

impl Family {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 29] = [
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
    ];

    /// The name that the command line knows it by.
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
        }
    }

    /// How often it is drawn, beside the others of its set.
    pub(crate) const fn weight(self) -> u64 {
        match self {
            Self::Kill => 6,
            Self::Partition => 2,
            _ => 1,
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The kinds of trouble that a run may be drawn from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultSet(u32);

impl FaultSet {
    /// What is played unless one asks for more: deaths, leaving, short cuts.
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

    /// Whether the kind is in the set.
    #[must_use]
    pub const fn contains(self, family: Family) -> bool {
        self.0 & family.bit() != 0
    }

    /// What is in the set.
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

/// There is no such kind of trouble: whoever asked for it made a mistake.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no fault `{0}`; give default, all, or some of: {known}", known = FaultSet::ALL.names())]
pub struct UnknownFault(String);

impl FaultSet {
    /// The names of what is in the set, with commas between them.
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
    fn a_set_is_read_as_it_is_written() {
        for set in [FaultSet::DEFAULT, FaultSet::ALL, FaultSet::only(Family::ClockJump)] {
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        let two: FaultSet = "pause-active, kill".parse().unwrap();
        assert_eq!(two.iter().collect::<Vec<_>>(), [Family::Kill, Family::PauseActive]);
        assert_eq!("default,flapping".parse::<FaultSet>().unwrap().iter().count(), 6);
    }

    #[test]
    fn an_unknown_name_is_told_with_those_that_there_are() {
        let error = "kill,meteor".parse::<FaultSet>().unwrap_err().to_string();
        assert!(error.contains("`meteor`") && error.contains("long-partition"), "{error}");
    }

    #[test]
    fn names_are_what_files_hold() {
        for family in Family::ALL {
            assert_eq!(serde_json::to_value(family).unwrap(), family.name());
        }
    }
}
