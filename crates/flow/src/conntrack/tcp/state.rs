//! The states of a TCP connection.

/// The number of consecutive retransmissions of a segment after which
/// [`Timeouts::tcp_retransmission`](crate::conntrack::Timeouts::tcp_retransmission) limits the connection's lifetime
/// (Linux's `tcp_max_retrans`).
pub const TCP_RETRANSMISSIONS_MAX: u8 = 3;

/// The states of a TCP connection, by their numbers in [`ProtocolState::state`](crate::conntrack::ProtocolState::state): those of Linux, which conntrackd sends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TcpState {
    /// No connection.
    None = 0,
    /// A SYN was seen.
    SynSent = 1,
    /// Its SYN/ACK was seen.
    SynRecv = 2,
    /// The handshake is over.
    Established = 3,
    /// A FIN was seen.
    FinWait = 4,
    /// It was acknowledged.
    CloseWait = 5,
    /// The other FIN was seen.
    LastAck = 6,
    /// It was acknowledged.
    TimeWait = 7,
    /// A RST was seen.
    Close = 8,
    /// SYNs of both sides were seen.
    SynSent2 = 9,
}

impl TcpState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::None,
        Self::SynSent,
        Self::SynRecv,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Close,
        Self::SynSent2,
    ];

    /// The state with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
    }

    /// Its name, as Linux's tools print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::SynSent => "SYN_SENT",
            Self::SynRecv => "SYN_RECV",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::CloseWait => "CLOSE_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
            Self::Close => "CLOSE",
            Self::SynSent2 => "SYN_SENT2",
        }
    }

    /// Whether the connection is closing: after its first FIN or RST.
    #[must_use]
    pub const fn is_closing(self) -> bool {
        matches!(self, Self::FinWait | Self::CloseWait | Self::LastAck | Self::TimeWait | Self::Close)
    }
}
