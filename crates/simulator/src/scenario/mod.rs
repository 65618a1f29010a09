//! The events of a run: drawn from the RNG seed, plain data afterwards.

mod compact;
mod draw;
mod family;
mod fault;
pub mod file;

use std::net::SocketAddr;
use std::time::Duration;

use flow::Instant;
use replication::compact::Representation;
use replication::representation::Selection;
use replication::representation::selection::TcpStates;

use crate::link::LinkConfig;
use crate::random::Random;
use crate::stream::{HEADER_BYTES, StreamDirection};
use crate::topology;

pub use compact::{NAMES, UnknownRepresentation, representation_named};
pub use family::{Family, FaultSet, UnknownFault};
pub use fault::{Capacity, Channels, Dialect, Episode, Fault, Step, Who};

/// The delay of the first transfers, until a node has become active.
const TRAFFIC_BEGINS_MS: u64 = 1000;
/// Transfers begin until this time, or until the last fault has ended.
const TRAFFIC_BEGINS_LAST_MS: u64 = 6000;
/// The time to finish after the last fault.
const GRACE: Duration = Duration::from_secs(45);
/// From the end of the last fault until all faults are removed: longer than an episode's late cut of a link.
const CALM_AFTER_MS: u64 = 2000;
/// The duration of faults above which a run has more transfers.
const LONG_RUN_MS: u64 = 30_000;
/// The maximum number of transfers in a run.
pub const TRANSFERS_MAX: u64 = 80;

/// The kind of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A TCP connection with data in both directions.
    Tcp,
    /// UDP requests and replies.
    Udp,
    /// Pings.
    Echo,
}

/// How a TCP connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// Either side sends FIN when it has sent and received everything.
    Fin,
    /// The client sends FIN as soon as it has sent everything, and continues to receive.
    HalfClose,
    /// The client sends RST when it has sent and received everything.
    Reset,
}

/// One transfer between a client and a server.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Its number, from 0.
    pub number: u32,
    /// Its kind.
    pub kind: Kind,
    /// The client, as an index of the hosts.
    pub client: usize,
    /// The target of the client.
    pub target: SocketAddr,
    /// The time of its beginning.
    pub begins_at: Instant,
    /// Bytes from the client, and from the server.
    pub bytes: [u64; 2],
    /// The application writes this many bytes …
    pub burst_bytes: u64,
    /// … at this interval (requests: the interval of requests).
    pub interval: Duration,
    /// The number of requests to be answered, except for TCP.
    pub requests: u32,
    /// The kind of close.
    pub closing: Closing,
    /// The window that the client offers.
    pub window_bytes: u32,
    /// The window scale of its announcement.
    pub window_shift: u8,
    /// The client's maximum segment size.
    pub segment_bytes: u16,
}

impl Transfer {
    /// Bytes that the end which sends in direction `direction` sends and receives.
    pub(crate) const fn lengths(&self, direction: StreamDirection) -> (u64, u64) {
        let [up, down] = self.bytes;
        match direction {
            StreamDirection::Up => (up, down),
            StreamDirection::Down => (down, up),
        }
    }
}

/// The events of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The RNG seed that it was drawn from.
    pub seed: u64,
    /// The transfers of clients and servers.
    pub transfers: Vec<Transfer>,
    /// The links of the hosts and of the nodes' data ports.
    pub data_link: LinkConfig,
    /// The link between the nodes.
    pub replication_link: LinkConfig,
    /// Whether damaged datagrams between the nodes reach them. Else UDP's checksum, which detects every single wrong
    /// byte, drops them.
    pub damaged_datagrams_pass: bool,
    /// The faults.
    pub episodes: Vec<Episode>,
    /// From here on there are no faults: links are reliable, and dead nodes restart.
    pub calm_at: Instant,
    /// The changes that the nodes replicate.
    pub selection: Selection,
    /// The maximum time that first replies are held; zero: none.
    pub hold_first_reply: Duration,
    /// The filter for replication; `None`: precise. Drawn for one seed in three of all faults.
    pub representation: Option<Representation>,
    /// The deferral of replication; zero: none. Never drawn, only set by callers.
    pub deferral: Duration,
    /// The run continues until ended connections must have expired.
    pub waits_for_expiry: bool,
    /// The end of the run in any case.
    pub ends_at: Instant,
}

impl Scenario {
    /// The scenario of an RNG seed, with faults of some kinds.
    #[must_use]
    pub fn generate(seed: u64, faults: FaultSet) -> Self {
        let mut random = Random::new(seed);
        let data_link = data_link(&mut random);
        let replication_link = replication_link(&mut random);
        let mut episodes = draw::episodes(&mut random, faults);
        let last_ms = episodes.iter().map(Episode::ends_at_ms).max().unwrap_or(0);
        let calm_at_ms = last_ms + CALM_AFTER_MS;
        if faults.contains(Family::WallClock) {
            // By a generator of its own, so that the other faults of a seed stay the same.
            episodes.insert(0, draw::wall_clocks(&mut Random::new(seed ^ 0xc10c), last_ms));
        }
        if faults.contains(Family::LeaveReturn) {
            episodes.insert(0, Episode { family: Family::LeaveReturn, at_ms: 0, steps: Vec::new() });
        }
        let is_long = calm_at_ms > LONG_RUN_MS;
        let count = random.between(5, if is_long { TRANSFERS_MAX } else { TRANSFERS_MAX / 2 }) as u32;
        let begins_last_ms = TRAFFIC_BEGINS_LAST_MS.max(calm_at_ms);
        Self {
            seed,
            transfers: (0..count).map(|number| transfer(&mut random, number, begins_last_ms)).collect(),
            data_link,
            replication_link,
            damaged_datagrams_pass: false,
            episodes,
            calm_at: Instant::from_millis(calm_at_ms),
            selection: random.pick(&[Selection::Eager, Selection::Selective(TcpStates::THAT_MATTER)]),
            hold_first_reply: Duration::from_millis(random.pick(&[0, 50, 500])),
            representation: None,
            deferral: Duration::ZERO,
            waits_for_expiry: random.chance(100),
            ends_at: Instant::from_millis(calm_at_ms) + GRACE,
        }
        .draw_representation(faults)
    }

    /// The families of faults in the run.
    #[must_use]
    pub fn families(&self) -> std::collections::BTreeSet<Family> {
        self.episodes.iter().map(|episode| episode.family).collect()
    }

    /// The schedule of faults, in order.
    pub(crate) fn schedule(&self) -> Vec<(Instant, Fault)> {
        let steps = self.episodes.iter().flat_map(|episode| {
            episode.steps.iter().map(|step| (Instant::from_millis(episode.at_ms + step.after_ms), step.fault))
        });
        let mut schedule: Vec<_> = steps.collect();
        schedule.sort_by_key(|(at, _)| *at);
        schedule
    }
}

fn data_link(random: &mut Random) -> LinkConfig {
    let faulty = random.chance(600);
    let up_to = |random: &mut Random, per_mille| if faulty { random.between(0, per_mille) as u32 } else { 0 };
    LinkConfig {
        delay: Duration::from_micros(random.between(50, 5_000)),
        jitter: Duration::from_micros(random.between(0, 2_000)),
        loss_per_mille: up_to(random, 20),
        duplicate_per_mille: up_to(random, 10),
        reorder_per_mille: up_to(random, 20),
        corrupt_per_mille: up_to(random, 5),
    }
}

fn replication_link(random: &mut Random) -> LinkConfig {
    let faulty = random.chance(700);
    let up_to = |random: &mut Random, per_mille| if faulty { random.between(0, per_mille) as u32 } else { 0 };
    LinkConfig {
        delay: Duration::from_micros(random.between(20, 1_000)),
        jitter: Duration::from_micros(random.between(0, 1_000)),
        loss_per_mille: up_to(random, 300),
        duplicate_per_mille: up_to(random, 50),
        reorder_per_mille: up_to(random, 100),
        corrupt_per_mille: up_to(random, 20),
    }
}

fn transfer(random: &mut Random, number: u32, begins_last_ms: u64) -> Transfer {
    let kind = random.pick(&[Kind::Tcp, Kind::Tcp, Kind::Tcp, Kind::Tcp, Kind::Udp, Kind::Echo]);
    let server = random.between(0, 1) as usize;
    let (client, target) = match random.between(0, 4) {
        0 if kind != Kind::Echo => (topology::OUTSIDE_FIRST + server, topology::forwarded_address()),
        1 | 2 => (server, topology::server_address(random.between(0, 1) as usize, true, topology::SERVICE_PORT)),
        _ => (server, topology::server_address(random.between(0, 1) as usize, false, topology::SERVICE_PORT)),
    };
    let small = random.chance(400);
    let bytes_max = if small { 4_000 } else { 150_000 };
    Transfer {
        number,
        kind,
        client,
        target,
        begins_at: Instant::from_millis(random.between(TRAFFIC_BEGINS_MS, begins_last_ms)),
        bytes: [random.between(HEADER_BYTES as u64, bytes_max), random.between(0, bytes_max)],
        burst_bytes: random.between(bytes_max / 20, bytes_max / 3),
        interval: Duration::from_millis(if kind == Kind::Tcp { random.between(50, 900) } else { 100 }),
        requests: random.between(10, 80) as u32,
        closing: random.pick(&[Closing::Fin, Closing::Fin, Closing::HalfClose, Closing::Reset]),
        window_bytes: random.between(8_000, 300_000) as u32,
        window_shift: random.between(3, 9) as u8,
        segment_bytes: random.pick(&[536, 1400]),
    }
}
