//! What is asked of the traffic.

use std::time::Duration;

use flow::Instant;
use rand::Rng;
use rand::rngs::SmallRng;

use super::super::endpoints::{CLIENTS_MAX, SEGMENT_BYTES_MAX, SERVERS_MAX};
use super::super::{BEGINS_AT, ConfigError, Quantiles, sums_to_one, within};
use super::pieces::Copy;

/// Shorter runs are not sought by any encoder: fewer bytes than a window.
pub(super) const MATCH_BYTES_MIN: usize = 32;

/// The most payload that a repeat may lie behind what it repeats, in bytes; so much is kept in memory.
const DISTANCE_BYTES_MAX: f64 = (1_u64 << 30) as f64;
/// Pairs of hosts, at most: some pieces are kept of each.
const PAIRS_MAX: f64 = (1 << 20) as f64;

/// Where repeated bytes were last (RE figure 2.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// In the same connection.
    IntraFlow,
    /// Between the same two hosts in the same direction, in another connection.
    InterFlow,
    /// From the same source to another destination.
    InterDestination,
    /// From another source to the same destination.
    InterSource,
    /// Between other hosts.
    InterNode,
}

impl Origin {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::IntraFlow, Self::InterFlow, Self::InterDestination, Self::InterSource, Self::InterNode];

    /// The origin as a key of results.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::IntraFlow => "intra_flow",
            Self::InterFlow => "inter_flow",
            Self::InterDestination => "inter_destination",
            Self::InterSource => "inter_source",
            Self::InterNode => "inter_node",
        }
    }

    /// What the later of two copies has in common with the earlier.
    pub(super) fn between(earlier: &Copy, later: &Copy) -> Self {
        match (earlier.source == later.source, earlier.destination == later.destination) {
            (true, true) if earlier.flow == later.flow => Self::IntraFlow,
            (true, true) => Self::InterFlow,
            (true, false) => Self::InterDestination,
            (false, true) => Self::InterSource,
            (false, false) => Self::InterNode,
        }
    }
}

/// How the repeated bytes divide into origins; the shares sum to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shares {
    /// Of each origin, in the order of [`Origin::ALL`].
    pub shares: [f64; Origin::ALL.len()],
}

impl Shares {
    /// A small or medium enterprise: nine tenths between the same two hosts (RE section 2.4).
    pub const ENTERPRISE: Self = Self { shares: [0.45, 0.45, 0.06, 0.02, 0.02] };
    /// The link of a busy web server: most goes from one source to several destinations.
    pub const UNIVERSITY: Self = Self { shares: [0.10, 0.15, 0.60, 0.05, 0.10] };

    /// The share of an origin.
    #[must_use]
    pub const fn of(&self, origin: Origin) -> f64 {
        self.shares[origin as usize]
    }

    pub(super) fn draw(&self, random: &mut SmallRng) -> Option<Origin> {
        let mut left = random.random::<f64>();
        Origin::ALL.into_iter().find(|origin| {
            left -= self.of(*origin);
            left < 0.0
        })
    }
}

/// Traffic that is made of bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct RedundancyConfig {
    /// The share of the bytes that TCP carries that were sent before.
    pub redundancy: f64,
    /// Bytes of a repeat.
    pub match_bytes: Quantiles,
    /// Where what is repeated was last.
    pub origins: Shares,
    /// Zipf's exponent of how often what several hosts have in common is repeated (RE figure 2.10: 0.97).
    pub popularity: f64,
    /// Pieces that several hosts have in common, for each of the origins.
    pub popular_pieces: u32,
    /// How much other payload lies between a repeat and what it repeats at most: what a cache must hold, in bytes.
    pub distance_bytes: usize,
    /// The share of the payload that is encrypted, and repeats nothing.
    pub encrypted_share: f64,
    /// Of the connections that are not, the share that carries text, which compresses; the rest does not.
    pub text_share: f64,
    /// Bits a second on the link, on average.
    pub bits_per_second: f64,
    /// How long the traffic goes on.
    pub duration: Duration,
    /// Connections at a time.
    pub connections: u32,
    /// Objects fetched on a connection, one after the other, on average (geometric).
    pub objects_per_connection: f64,
    /// Bytes of an object.
    pub object_bytes: Quantiles,
    /// Hosts that fetch objects.
    pub clients: u32,
    /// Hosts that have them.
    pub servers: u32,
    /// Zipf's exponent of the servers' popularity; 0: each as likely.
    pub server_popularity: f64,
    /// The time of the first moment.
    pub begins_at: Instant,
}

impl Default for RedundancyConfig {
    /// An enterprise's link: 40 % repeated, most of it between the same two hosts, in runs as the seed's figure 2.7 has
    /// them (70 % shorter than 150 bytes, a tenth whole packets).
    fn default() -> Self {
        let quantiles = |points: &[(f64, f64)]| Quantiles::new("bytes", points).expect("the points rise");
        Self {
            redundancy: 0.4,
            match_bytes: quantiles(&[
                (0.0, 48.0),
                (0.4, 80.0),
                (0.7, 150.0),
                (0.85, 600.0),
                (0.92, 1459.0),
                (1.0, 1460.0),
            ]),
            origins: Shares::ENTERPRISE,
            popularity: 0.97,
            popular_pieces: 4096,
            distance_bytes: 8 << 20,
            encrypted_share: 0.2,
            text_share: 0.5,
            bits_per_second: 100e6,
            duration: Duration::from_secs(10),
            connections: 64,
            objects_per_connection: 3.0,
            object_bytes: quantiles(&[(0.0, 500.0), (0.5, 12_000.0), (0.9, 150_000.0), (1.0, 5_000_000.0)]),
            clients: 64,
            servers: 16,
            server_popularity: 0.8,
            begins_at: BEGINS_AT,
        }
    }
}

impl RedundancyConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        within("the redundancy", self.redundancy, 0.0..=0.95)?;
        within("the encrypted share", self.encrypted_share, 0.0..=1.0)?;
        within("the share of text", self.text_share, 0.0..=1.0)?;
        within("the popularity", self.popularity, 0.0..=4.0)?;
        within("the servers' popularity", self.server_popularity, 0.0..=4.0)?;
        within("popular pieces", self.popular_pieces.into(), 16.0..=65_536.0)?;
        within("the distance in bytes", self.distance_bytes as f64, 65_536.0..=DISTANCE_BYTES_MAX)?;
        within("bits a second", self.bits_per_second, 1000.0..=1e12)?;
        within("seconds", self.duration.as_secs_f64(), 0.001..=1e7)?;
        within("connections", self.connections.into(), 1.0..=65_536.0)?;
        within("objects a connection", self.objects_per_connection, 1.0..=1000.0)?;
        within("bytes of an object", self.object_bytes.largest(), 1.0..=1e9)?;
        within("clients", self.clients.into(), 1.0..=f64::from(CLIENTS_MAX))?;
        within("servers", self.servers.into(), 1.0..=f64::from(SERVERS_MAX))?;
        within("pairs of client and server", f64::from(self.clients) * f64::from(self.servers), 1.0..=PAIRS_MAX)?;
        let (least, most) = (MATCH_BYTES_MIN as f64, SEGMENT_BYTES_MAX as f64);
        within("bytes of the shortest repeat", self.match_bytes.at(0.0), least..=most)?;
        within("bytes of the longest repeat", self.match_bytes.largest(), least..=most)?;
        for share in self.origins.shares {
            within("the share of an origin", share, 0.0..=1.0)?;
        }
        sums_to_one("the origins", self.origins.shares.into_iter())?;
        // What is in the clear can be repeated but for a remainder: headers, and what does not fit a packet.
        if self.redundancy > 0.95 * (1.0 - self.encrypted_share) {
            let (redundancy, encrypted) = (self.redundancy, self.encrypted_share);
            return Err(ConfigError::NothingToRepeat { redundancy, encrypted });
        }
        Ok(())
    }
}
