//! Where the kernel's automaton of TCP stands.

/// The automaton's states, with the kernel's numbers (`TCP_CONNTRACK_*`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TcpState {
    /// Nothing was seen.
    None = 0,
    /// A SYN.
    SynSent = 1,
    /// A SYN and its SYN/ACK.
    SynReceived = 2,
    /// The handshake is over.
    Established = 3,
    /// One side has sent its FIN.
    FinWait = 4,
    /// The other has acknowledged it,
    CloseWait = 5,
    /// and sent its own.
    LastAck = 6,
    /// Both FINs are acknowledged.
    TimeWait = 7,
    /// A RST.
    Close = 8,
    /// SYNs crossed.
    SynSent2 = 9,
}

impl TcpState {
    /// All of them, by number.
    pub const ALL: [Self; 10] = [
        Self::None,
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Close,
        Self::SynSent2,
    ];

    /// The state with the number; `None` for a number that no kernel has given.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// What conntrack(8) calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::SynSent => "SYN_SENT",
            Self::SynReceived => "SYN_RECV",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::CloseWait => "CLOSE_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
            Self::Close => "CLOSE",
            Self::SynSent2 => "SYN_SENT2",
        }
    }
}

/// What is known of one side (`IP_CT_TCP_FLAG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// It offered window scaling.
    pub const WINDOW_SCALE: Self = Self(0x01);
    /// It offered selective acknowledgement.
    pub const SACK: Self = Self(0x02);
    /// It began to close.
    pub const CLOSE_INITIATED: Self = Self(0x04);
    /// Its segments are let through wherever they lie.
    pub const BE_LIBERAL: Self = Self(0x08);
    /// Something it sent was not acknowledged.
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

/// What is known of one side of a TCP connection. The kernel keeps windows, and tells nobody of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TcpSide {
    /// The shift of the windows that it announces.
    pub window_scale: u8,
    /// What it offered and did.
    pub flags: TcpFlags,
}

/// Where TCP's automaton stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpInfo {
    /// Its state.
    pub state: TcpState,
    /// The side that sent the first packet, and the other; `None` where only the state was said (the end of a connection,
    /// and conntrackd without `TCPWindowTracking`).
    pub sides: Option<[TcpSide; 2]>,
}
