//! Timeouts of connections, and the options of tracking.

use core::time::Duration;

use super::tcp::TcpState;

/// The lifetime of a connection after its last packet, by protocol and state. The defaults are Linux's
/// (`nf_conntrack_*_timeout*` in its `nf_conntrack-sysctl` documentation).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// SYN seen, nothing else.
    pub tcp_syn_sent: Duration,
    /// SYN/ACK seen.
    pub tcp_syn_recv: Duration,
    /// The handshake is complete.
    pub tcp_established: Duration,
    /// The first FIN was seen.
    pub tcp_fin_wait: Duration,
    /// The first FIN was acknowledged.
    pub tcp_close_wait: Duration,
    /// Both FINs were seen.
    pub tcp_last_ack: Duration,
    /// Both FINs were acknowledged.
    pub tcp_time_wait: Duration,
    /// RST seen.
    pub tcp_close: Duration,
    /// SYNs of both sides were seen (simultaneous open).
    pub tcp_syn_sent2: Duration,
    /// The maximum after [`super::TCP_RETRANSMISSIONS_MAX`] consecutive retransmissions, or while a window is closed.
    pub tcp_retransmission: Duration,
    /// The maximum while data is unacknowledged.
    pub tcp_unacknowledged: Duration,
    /// UDP, before a reply and for short exchanges.
    pub udp: Duration,
    /// UDP that continues in both directions (see [`super::UDP_STREAM_AFTER`]).
    pub udp_stream: Duration,
    /// SCTP: INIT seen.
    pub sctp_cookie_wait: Duration,
    /// SCTP: COOKIE ECHO seen.
    pub sctp_cookie_echoed: Duration,
    /// SCTP: the association is established. A little longer than its end points need to detect a dead path.
    pub sctp_established: Duration,
    /// SCTP: the initiator sent SHUTDOWN.
    pub sctp_shutdown_sent: Duration,
    /// SCTP: the responder sent SHUTDOWN.
    pub sctp_shutdown_recd: Duration,
    /// SCTP: SHUTDOWN ACK seen.
    pub sctp_shutdown_ack_sent: Duration,
    /// SCTP: the association has ended.
    pub sctp_closed: Duration,
    /// SCTP: a HEARTBEAT on a further path seen.
    pub sctp_heartbeat_sent: Duration,
    /// ICMP and ICMPv6 queries.
    pub icmp: Duration,
    /// Every other protocol.
    pub generic: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        const DAY_S: u64 = 24 * 60 * 60;
        Self {
            tcp_syn_sent: Duration::from_secs(120),
            tcp_syn_recv: Duration::from_secs(60),
            tcp_established: Duration::from_secs(5 * DAY_S),
            tcp_fin_wait: Duration::from_secs(120),
            tcp_close_wait: Duration::from_secs(60),
            tcp_last_ack: Duration::from_secs(30),
            tcp_time_wait: Duration::from_secs(120),
            tcp_close: Duration::from_secs(10),
            tcp_syn_sent2: Duration::from_secs(120),
            tcp_retransmission: Duration::from_secs(300),
            tcp_unacknowledged: Duration::from_secs(300),
            udp: Duration::from_secs(30),
            udp_stream: Duration::from_secs(120),
            sctp_cookie_wait: Duration::from_secs(3),
            sctp_cookie_echoed: Duration::from_secs(3),
            sctp_established: Duration::from_secs(210),
            sctp_shutdown_sent: Duration::from_secs(3),
            sctp_shutdown_recd: Duration::from_secs(3),
            sctp_shutdown_ack_sent: Duration::from_secs(3),
            sctp_closed: Duration::from_secs(10),
            sctp_heartbeat_sent: Duration::from_secs(30),
            icmp: Duration::from_secs(30),
            generic: Duration::from_secs(600),
        }
    }
}

impl Timeouts {
    /// The timeout of a TCP state; none at all for [`TcpState::None`], in which no connection stays.
    #[must_use]
    pub const fn tcp(&self, state: TcpState) -> Duration {
        match state {
            TcpState::None => Duration::ZERO,
            TcpState::SynSent => self.tcp_syn_sent,
            TcpState::SynRecv => self.tcp_syn_recv,
            TcpState::Established => self.tcp_established,
            TcpState::FinWait => self.tcp_fin_wait,
            TcpState::CloseWait => self.tcp_close_wait,
            TcpState::LastAck => self.tcp_last_ack,
            TcpState::TimeWait => self.tcp_time_wait,
            TcpState::Close => self.tcp_close,
            TcpState::SynSent2 => self.tcp_syn_sent2,
        }
    }
}

/// Which TCP segments of no connection are answered by a reset (RFC 9293 section 3.10.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StrayResets {
    /// None.
    #[default]
    Never,
    /// Those whose addresses or ports a function would translate: without the connection's record they never reach the other end.
    Served,
    /// All that the rules would let begin a connection.
    Always,
}

impl StrayResets {
    /// All choices, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("never", Self::Never), ("served", Self::Served), ("always", Self::Always)];
}

/// The operator's options of tracking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrackerConfig {
    /// The timeouts of connections.
    pub timeouts: Timeouts,
    /// TCP connections may be picked up in the middle, without window checks (Linux's `tcp_loose`, which is on by
    /// default there). Off: only a SYN begins a connection.
    pub loose: bool,
    /// Of the TCP segments outside the window only RSTs are dropped (Linux's `tcp_be_liberal`).
    pub liberal: bool,
    /// Which TCP segments of no connection are answered by a reset.
    pub stray_resets: StrayResets,
}
