//! The capabilities of the kernel and the namespace.

use std::fmt;

use super::attributes::{Header, Writer, messages};
use super::numbers::{CONNECTIONS, GET_STATISTICS, HEADERS_BYTES, NLM_F_ACK, NLM_F_REQUEST};
use super::request::errno;
use super::socket::{CAPABILITY, Socket};
use crate::{IoError, sysctl};

/// The share of the table in percent from which it counts as nearly full.
const NEARLY_FULL_PERCENT: u64 = 90;
/// The minimum size of a table that is adequate for a gateway.
const CONNECTIONS_SMALL: u64 = 65_536;

/// The capabilities of connection tracking in the calling thread's namespace. `None` where a value could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Support {
    /// Connections in the table (`nf_conntrack_count`).
    pub connections: Option<u64>,
    /// The maximum number of connections (`nf_conntrack_max`); 0 is unlimited.
    pub connections_max: Option<u64>,
    /// The table's buckets (`nf_conntrack_buckets`).
    pub buckets: Option<u64>,
    /// The maximum number of expectations (`nf_conntrack_expect_max`).
    pub expectations_max: Option<u64>,
    /// The connections with events (`nf_conntrack_events`): 0 none, 1 all, 2 those that began with a listener.
    pub events: Option<u64>,
    /// Packets and bytes are counted (`nf_conntrack_acct`); not needed.
    pub accounting: Option<bool>,
    /// Beginnings are stamped (`nf_conntrack_timestamp`); not needed.
    pub timestamps: Option<bool>,
    /// The missing capabilities, the worst first.
    pub lacks: Vec<Lack>,
}

/// A missing capability. Its text names the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lack {
    /// The kernel lacks a netlink interface to netfilter, or to connection tracking.
    Netfilter(String),
    /// Permission is missing.
    Permission,
    /// No events are made.
    Events,
    /// Connections that began before the program did cause no events.
    EventsOfOlder,
    /// The table is nearly full: the number of connections, and the maximum.
    NearlyFull(u64, u64),
    /// The table is small: the maximum.
    Small(u64),
}

impl Lack {
    /// Whether replication is impossible without it.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::Netfilter(_) | Self::Permission | Self::Events)
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Netfilter(detail) => write!(
                formatter,
                "the kernel cannot be asked for its connections ({detail}): load the modules nf_conntrack and \
                 nf_conntrack_netlink (modprobe nf_conntrack_netlink loads both), or take a kernel built with \
                 CONFIG_NF_CT_NETLINK"
            ),
            Self::Permission => write!(
                formatter,
                "connections may not be read or changed by this process: run it as root, or give it {CAPABILITY} in the \
                 user namespace that the network namespace belongs to"
            ),
            Self::Events => write!(
                formatter,
                "the kernel sends no events of connections: sysctl -w net.netfilter.nf_conntrack_events=1"
            ),
            Self::EventsOfOlder => write!(
                formatter,
                "the kernel sends no events of connections that began without a listener: to receive them, too, \
                 sysctl -w net.netfilter.nf_conntrack_events=1"
            ),
            Self::NearlyFull(connections, max) => write!(
                formatter,
                "the table of connections is nearly full ({connections} of {max}): sysctl -w \
                 net.netfilter.nf_conntrack_max={}",
                max.saturating_mul(2)
            ),
            Self::Small(max) => write!(
                formatter,
                "the table has room for {max} connections only: raise net.netfilter.nf_conntrack_max, on all nodes alike"
            ),
        }
    }
}

/// The capabilities of connection tracking in the calling thread's namespace, and the missing ones.
#[must_use]
pub fn support() -> Support {
    let number = |name: &str| sysctl::read(&format!("net/netfilter/nf_conntrack_{name}")).ok()?.parse::<u64>().ok();
    let mut support = Support {
        connections: number("count"),
        connections_max: number("max"),
        buckets: number("buckets"),
        expectations_max: number("expect_max"),
        events: number("events"),
        accounting: number("acct").map(|value| value != 0),
        timestamps: number("timestamp").map(|value| value != 0),
        lacks: Vec::new(),
    };
    support.lacks.extend(ask().err());
    match support.events {
        Some(0) => support.lacks.push(Lack::Events),
        Some(2) => support.lacks.push(Lack::EventsOfOlder),
        _ => {}
    }
    if let (Some(connections), Some(max @ 1..)) = (support.connections, support.connections_max) {
        if connections.saturating_mul(100) >= max.saturating_mul(NEARLY_FULL_PERCENT) {
            support.lacks.push(Lack::NearlyFull(connections, max));
        }
        if max < CONNECTIONS_SMALL {
            support.lacks.push(Lack::Small(max));
        }
    }
    support
}

/// Sends the kernel a harmless request.
fn ask() -> Result<(), Lack> {
    let refused = |error: &IoError| match error {
        IoError::NotPermitted { .. } => Lack::Permission,
        error => Lack::Netfilter(error.to_string()),
    };
    let socket = Socket::open().map_err(|error| refused(&error))?;
    let header =
        Header { subsystem: CONNECTIONS, kind: GET_STATISTICS, flags: NLM_F_REQUEST | NLM_F_ACK, sequence: 0, port: 0 };
    let mut request = Vec::with_capacity(HEADERS_BYTES);
    Writer::begin(&mut request, header, libc::AF_UNSPEC).end();
    let explain = |error: std::io::Error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Lack::Permission,
        Some(libc::EINVAL | libc::EOPNOTSUPP) => Lack::Netfilter("it has no such interface".into()),
        _ => Lack::Netfilter(error.to_string()),
    };
    socket.send(&request).map_err(explain)?;
    let mut answer = [0; 1024];
    while let Some(length_bytes) = socket.receive(&mut answer).map_err(explain)? {
        let mut refused = None;
        messages(&answer[..length_bytes], |header, rest| refused = refused.or(errno(header, rest)));
        match refused {
            Some(0) => return Ok(()),
            Some(errno) => return Err(explain(std::io::Error::from_raw_os_error(errno))),
            None => {}
        }
    }
    Err(Lack::Netfilter("it does not answer".into()))
}
