//! Why a session changed its state, as control packets carry it.

/// Why a session last changed its state (RFC 5880 section 4.1, field Diag).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Diagnostic {
    /// No diagnostic.
    #[default]
    None,
    /// No packet came within the detection time.
    DetectionTimeExpired,
    /// The echo function failed.
    EchoFailed,
    /// The other system said that it is down.
    NeighbourSignalledDown,
    /// The forwarding plane was reset.
    ForwardingPlaneReset,
    /// The path is down.
    PathDown,
    /// A path that this one is made of is down.
    ConcatenatedPathDown,
    /// An operator took the session down.
    AdministrativelyDown,
    /// A path that this one is made of is down, seen in the reverse direction.
    ReverseConcatenatedPathDown,
    /// A value that RFC 5880 reserves.
    Reserved(u8),
}

impl Diagnostic {
    /// The diagnostic with this number; only the low five bits count.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number & 0x1f {
            0 => Self::None,
            1 => Self::DetectionTimeExpired,
            2 => Self::EchoFailed,
            3 => Self::NeighbourSignalledDown,
            4 => Self::ForwardingPlaneReset,
            5 => Self::PathDown,
            6 => Self::ConcatenatedPathDown,
            7 => Self::AdministrativelyDown,
            8 => Self::ReverseConcatenatedPathDown,
            reserved => Self::Reserved(reserved),
        }
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::DetectionTimeExpired => 1,
            Self::EchoFailed => 2,
            Self::NeighbourSignalledDown => 3,
            Self::ForwardingPlaneReset => 4,
            Self::PathDown => 5,
            Self::ConcatenatedPathDown => 6,
            Self::AdministrativelyDown => 7,
            Self::ReverseConcatenatedPathDown => 8,
            Self::Reserved(number) => number & 0x1f,
        }
    }
}
