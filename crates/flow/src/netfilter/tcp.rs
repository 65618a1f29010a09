//! The state of the kernel's automaton of TCP.

pub use crate::conntrack::TcpState;

/// The flags of one side (`IP_CT_TCP_FLAG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// It offered window scaling.
    pub const WINDOW_SCALE: Self = Self(0x01);
    /// It offered selective acknowledgement.
    pub const SACK: Self = Self(0x02);
    /// It initiated the close.
    pub const CLOSE_INITIATED: Self = Self(0x04);
    /// Its segments pass without window check.
    pub const BE_LIBERAL: Self = Self(0x08);
    /// It has unacknowledged data.
    pub const UNACKNOWLEDGED: Self = Self(0x10);
    /// Its highest acknowledgement is known.
    pub const MAXIMUM_ACK_SET: Self = Self(0x20);

    /// Whether all of `bits` are set.
    #[must_use]
    pub const fn contains(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// The bits of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The published state of one side of a TCP connection. The kernel does not publish windows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TcpSide {
    /// The shift of the windows that it advertises.
    pub window_scale: u8,
    /// Its flags.
    pub flags: TcpFlags,
}

/// The state of TCP's automaton.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpInfo {
    /// Its state.
    pub state: TcpState,
    /// The side that sent the first packet, and the other. `None` where only the state is stated (at the end of a
    /// connection, and by conntrackd without `TCPWindowTracking`).
    pub sides: Option<[TcpSide; 2]>,
}
