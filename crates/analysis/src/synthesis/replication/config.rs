//! What is asked of the traffic.

use std::time::Duration;

use flow::Instant;

use super::super::endpoints::{CLIENTS_MAX, SEGMENT_BYTES_MAX, SERVERS_MAX};
use super::super::random::Quantiles;
use super::super::{ConfigError, sums_to_one, within};

/// The first port that clients use.
pub(super) const CLIENT_PORT_MIN: u16 = 1024;
/// Bytes that payloads are cut from.
pub(super) const PAYLOAD_BYTES: usize = 1 << 16;
/// Connections that are open at a time; further ones are left out, and counted.
pub const CONNECTIONS_OPEN_MAX: u32 = 1 << 22;
/// Connections of one session, at most.
pub const TOGETHER_MAX: u32 = 4096;
/// Components of a mixture, at most.
const COMPONENTS_MAX: usize = 64;
/// Ports of a client.
const CLIENT_PORTS: f64 = (u16::MAX - CLIENT_PORT_MIN) as f64 + 1.0;

/// How sessions arrive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrivals {
    /// Independently of each other.
    Poisson,
    /// In bursts, with silence between them: an interrupted Poisson process.
    Bursty {
        /// How many times the mean rate the rate within a burst is; above 1.
        peak: f64,
        /// How long a burst lasts on average.
        burst: Duration,
    },
}

/// The data on an established connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exchanges {
    /// Requests, each with its response: at least so many.
    pub at_least: u32,
    /// For each second that the connection lasts, so many more.
    pub per_second: f64,
    /// At most so many.
    pub most: u32,
    /// Payload bytes of a request.
    pub request_bytes: u16,
    /// Packets of a response.
    pub response_packets: u16,
    /// Payload bytes of each of these.
    pub response_bytes: u16,
}

impl Exchanges {
    /// Requests of a connection that lasts so long.
    pub(super) fn count(&self, lifetime: Duration) -> u32 {
        let wanted = f64::from(self.at_least) + self.per_second * lifetime.as_secs_f64();
        (wanted as u32).clamp(self.at_least.max(1), self.most.max(1))
    }
}

/// How a TCP connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Both sides close it.
    Closed,
    /// The client resets it.
    Reset,
    /// The client closes it, and nothing is seen of the server's side: its packets go another way, or it is gone.
    HalfClosed,
    /// Neither host closes it.
    Abandoned,
}

/// What the connections of a component do.
#[derive(Clone, PartialEq, Debug)]
pub enum Behaviour {
    /// A TCP connection.
    Tcp {
        /// From the SYN to the last segment, in seconds.
        lifetime: Quantiles,
        /// How it ends.
        ending: Ending,
        /// The data on it.
        exchanges: Exchanges,
    },
    /// A SYN without an answer, sent again after 1, 3, 7 … seconds: from 1 to `tries` SYNs, each number as likely.
    TcpUnanswered {
        /// SYNs at most.
        tries: u8,
    },
    /// A SYN that is answered by a RST.
    TcpRefused,
    /// Datagrams there and back.
    Udp {
        /// From the first datagram to the last, in seconds.
        lifetime: Quantiles,
        /// The data.
        exchanges: Exchanges,
    },
    /// From 1 to `datagrams` datagrams, a second after each other, without an answer.
    UdpUnanswered {
        /// Datagrams at most.
        datagrams: u8,
    },
}

impl Behaviour {
    /// The mean and the longest lifetime, in seconds.
    pub(super) fn lifetime_s(&self) -> (f64, f64) {
        match self {
            Self::Tcp { lifetime, .. } | Self::Udp { lifetime, .. } => (lifetime.mean(), lifetime.largest()),
            Self::TcpUnanswered { tries } => {
                let last = |tries: u8| ((1_u64 << (tries - 1).min(32)) - 1) as f64;
                ((1..=*tries).map(last).sum::<f64>() / f64::from(*tries), last(*tries))
            }
            Self::TcpRefused => (0.1, 0.1),
            Self::UdpUnanswered { datagrams } => (f64::from(*datagrams - 1) / 2.0, f64::from(*datagrams - 1)),
        }
    }

    /// Nothing comes back.
    #[must_use]
    pub const fn is_one_way(&self) -> bool {
        matches!(self, Self::TcpUnanswered { .. } | Self::UdpUnanswered { .. })
    }

    /// It is of UDP.
    #[must_use]
    pub const fn is_udp(&self) -> bool {
        matches!(self, Self::Udp { .. } | Self::UdpUnanswered { .. })
    }
}

/// A kind of connection in the mixture.
#[derive(Clone, PartialEq, Debug)]
pub struct Component {
    /// What it is called in summaries.
    pub name: String,
    /// Its share of the connections, 0 to 1.
    pub share: f64,
    /// What its connections do.
    pub behaviour: Behaviour,
    /// Connections that begin together between the same two hosts, on average (geometric; 1: each for itself).
    pub together: f64,
    /// Those that begin together go to one port of the server after the other, as a port scan's do; else all to one.
    pub sweeps: bool,
    /// The servers' ports, each as likely.
    pub server_ports: Vec<u16>,
}

/// Traffic that is made of connections.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplicationConfig {
    /// Connections that begin in a second, on average.
    pub connections_per_second: f64,
    /// Connections begin for so long.
    pub duration: Duration,
    /// Connections that are open then go on to their ends; else the traffic stops there, as a capture does.
    pub runs_out: bool,
    /// How they arrive.
    pub arrivals: Arrivals,
    /// What they are.
    pub components: Vec<Component>,
    /// Connections that stand from the first second to the end, beside those that come and go.
    pub persistent: u32,
    /// Hosts that begin connections, each as likely.
    pub clients: u32,
    /// Hosts that they go to.
    pub servers: u32,
    /// Zipf's exponent of the servers' popularity; 0: each as likely.
    pub server_popularity: f64,
    /// From a SYN to the ACK that ends the handshake; of connections that are shorter than four of these, a quarter of their
    /// lifetime.
    pub round_trip: Duration,
    /// The share of the clients that use IPv6, 0 to 1.
    pub ipv6_share: f64,
    /// The time of the first moment.
    pub begins_at: Instant,
}

impl ReplicationConfig {
    /// The mixture's shares as they are, each multiplied so that those of connections without an answer come to
    /// `share`.
    pub fn set_one_way_share(&mut self, share: f64) {
        self.scale_shares(share, Behaviour::is_one_way);
    }

    /// As [`ReplicationConfig::set_one_way_share`], for connections of UDP.
    pub fn set_udp_share(&mut self, share: f64) {
        self.scale_shares(share, Behaviour::is_udp);
    }

    fn scale_shares(&mut self, share: f64, is_of: impl Fn(&Behaviour) -> bool) {
        let now: f64 = self.components.iter().filter(|one| is_of(&one.behaviour)).map(|one| one.share).sum();
        for one in &mut self.components {
            let (part, whole) = if is_of(&one.behaviour) { (share, now) } else { (1.0 - share, 1.0 - now) };
            if whole > 0.0 {
                one.share *= part / whole;
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        within("connections a second", self.connections_per_second, 0.001..=10_000_000.0)?;
        within("seconds", self.duration.as_secs_f64(), 0.001..=1e7)?;
        within("clients", self.clients.into(), 1.0..=f64::from(CLIENTS_MAX))?;
        within("servers", self.servers.into(), 1.0..=f64::from(SERVERS_MAX))?;
        within("the servers' popularity", self.server_popularity, 0.0..=4.0)?;
        within("the share of IPv6", self.ipv6_share, 0.0..=1.0)?;
        within("the round trip in seconds", self.round_trip.as_secs_f64(), 0.0..=60.0)?;
        within("persistent connections", self.persistent.into(), 0.0..=f64::from(CONNECTIONS_OPEN_MAX))?;
        within("components", self.components.len() as f64, 1.0..=COMPONENTS_MAX as f64)?;
        if let Arrivals::Bursty { peak, burst } = self.arrivals {
            within("the peak of bursts", peak, 1.01..=1000.0)?;
            within("the length of bursts in seconds", burst.as_secs_f64(), 0.001..=3600.0)?;
        }
        self.components.iter().try_for_each(Component::check)?;
        sums_to_one("the components", self.components.iter().map(|component| component.share))?;
        self.check_room()
    }

    fn check_room(&self) -> Result<(), ConfigError> {
        let lifetimes = self.components.iter().map(|component| (component.share, component.behaviour.lifetime_s()));
        let (mean, longest) = lifetimes.fold((0.0, 0.0_f64), |(mean, longest), (share, (of_mean, of_longest))| {
            (mean + share * of_mean, if share > 0.0 { longest.max(of_longest) } else { longest })
        });
        let rate = self.connections_per_second;
        let expected = rate * mean.min(self.duration.as_secs_f64()) + f64::from(self.persistent);
        if expected > f64::from(CONNECTIONS_OPEN_MAX) {
            return Err(ConfigError::TooManyOpen { expected, most: CONNECTIONS_OPEN_MAX });
        }
        // Twice what is needed on average: clients are chosen at random.
        let longest_s = longest.min(self.duration.as_secs_f64());
        let needed = (2.0 * rate * longest_s / CLIENT_PORTS).ceil() as u64;
        if needed > self.clients.into() {
            return Err(ConfigError::TooFewClients { clients: self.clients, rate, longest_s, needed });
        }
        Ok(())
    }
}

/// The data on a persistent connection: a little now and then, so that it does not expire.
const PERSISTENT: Exchanges = Exchanges {
    at_least: 2,
    per_second: 0.1,
    most: u32::MAX,
    request_bytes: 80,
    response_packets: 1,
    response_bytes: 200,
};

impl Component {
    /// Connections that outlast traffic of `duration`.
    pub(super) fn persistent(duration: Duration) -> Self {
        let lifetime = Quantiles::constant(duration.as_secs_f64() * 2.0);
        Self {
            name: "persistent".into(),
            share: 0.0,
            behaviour: Behaviour::Tcp { lifetime, ending: Ending::Abandoned, exchanges: PERSISTENT },
            together: 1.0,
            sweeps: false,
            server_ports: vec![443],
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        within("a component's share", self.share, 0.0..=1.0)?;
        within("connections that begin together", self.together, 1.0..=f64::from(TOGETHER_MAX) / 4.0)?;
        within("a component's server ports", self.server_ports.len() as f64, 1.0..=65_535.0)?;
        match &self.behaviour {
            Behaviour::Tcp { exchanges, .. } | Behaviour::Udp { exchanges, .. } => exchanges.check(),
            Behaviour::TcpUnanswered { tries: most } | Behaviour::UdpUnanswered { datagrams: most } => {
                within("packets without an answer", (*most).into(), 1.0..=8.0)
            }
            Behaviour::TcpRefused => Ok(()),
        }
    }
}

impl Exchanges {
    fn check(&self) -> Result<(), ConfigError> {
        let segment_bytes_max = SEGMENT_BYTES_MAX as f64;
        within("exchanges a second", self.per_second, 0.0..=1e6)?;
        within("exchanges at most", self.most.into(), f64::from(self.at_least.max(1))..=1e9)?;
        within("bytes of a request", self.request_bytes.into(), 0.0..=segment_bytes_max)?;
        within("bytes of a response's packet", self.response_bytes.into(), 0.0..=segment_bytes_max)?;
        // So that a response fits the window.
        within("packets of a response", self.response_packets.into(), 1.0..=512.0)
    }
}
