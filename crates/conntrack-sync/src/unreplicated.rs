//! Why connections of this node are not replicated, and how many.

/// Why a connection of this node is not replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnreplicatedReason {
    /// It has no reply yet, and connections are replicated from their first reply on.
    Unreplied,
    /// Its zone is of one direction, which conntrackd's protocol cannot express.
    ZoneDirection,
    /// conntrackd's protocol cannot express it for another reason: translated identifiers of ICMP, keys of GRE.
    Inexpressible,
    /// It is younger than the deferral threshold.
    Deferred,
}

impl UnreplicatedReason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Unreplied, Self::ZoneDirection, Self::Inexpressible, Self::Deferred];

    /// Its name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreplied => "unreplied",
            Self::ZoneDirection => "zone_of_one_direction",
            Self::Inexpressible => "inexpressible",
            Self::Deferred => "deferred",
        }
    }

    /// What such connections are, behind their number.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Unreplied => "without a reply yet",
            Self::ZoneDirection => "with a zone of one direction",
            Self::Inexpressible => "that conntrackd's protocol cannot express",
            Self::Deferred => "deferred",
        }
    }
}

/// Connections of this node that are not replicated, by reason, in the order of [`UnreplicatedReason::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unreplicated(pub [u32; 4]);

impl Unreplicated {
    /// All of them.
    #[must_use]
    pub fn total(self) -> u32 {
        self.0.iter().sum()
    }

    /// Without those that are deferred on purpose.
    #[must_use]
    pub const fn unintended(mut self) -> Self {
        self.0[3] = 0;
        self
    }

    /// Each reason and its connections.
    pub fn counts(self) -> impl Iterator<Item = (UnreplicatedReason, u32)> {
        UnreplicatedReason::ALL.into_iter().zip(self.0)
    }
}
