//! Traffic that is made of connections: for studies of what replicating them costs.
//!
//! ```text
//!  sessions (Poisson or in bursts) ─► each some connections between two hosts ─► calendar ─► frames, in the order of time
//!                                       │ of a component of the mixture: behaviour, lifetime, exchanges
//! ```
//! What begins together is a session: a page's parallel connections, a port scan. Shares are of connections, not of
//! sessions, and the rate is of connections too.

mod config;
mod made;
pub mod presets;
mod script;
#[cfg(test)]
mod tests;

use std::time::Duration;

use flow::Instant;
use flow::timer_wheel::{Timer, TimerStore};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use super::ConfigError;
use super::calendar::Calendar;
use super::endpoints::{Ends, SEGMENT_BYTES_MAX};
use super::random::{Zipf, geometric, until_next};
use config::{CLIENT_PORT_MIN, PAYLOAD_BYTES};
use script::{Script, Sender};

pub use config::{
    Arrivals, Behaviour, CONNECTIONS_OPEN_MAX, Component, Ending, Exchanges, ReplicationConfig, TOGETHER_MAX,
};
pub use made::Made;

/// How soon after each other the connections of a session begin, on average.
const GAP_PER_SECOND: f64 = 500.0;
/// Standing connections begin within so long.
const PERSISTENT_BEGIN: Duration = Duration::from_secs(1);

/// Open connections, by index.
struct Scripts(Vec<Script>);

impl TimerStore for Scripts {
    fn timer(&self, index: u32) -> &Timer {
        &self.0[index as usize].timer
    }

    fn timer_mut(&mut self, index: u32) -> &mut Timer {
        &mut self.0[index as usize].timer
    }
}

/// The stream of frames.
pub struct ReplicationTraffic {
    config: ReplicationConfig,
    random: SmallRng,
    calendar: Calendar,
    scripts: Scripts,
    free: Vec<u32>,
    /// The next port of each client.
    ports: Vec<u16>,
    servers: Zipf,
    /// Sessions of the components up to each, summed; in sessions a second at the mean rate.
    sessions: Vec<f64>,
    next_session: Instant,
    /// Of arrivals in bursts: the end of the present one.
    burst_ends: Instant,
    ends_at: Instant,
    payload: Box<[u8]>,
    frame: Vec<u8>,
    made: Made,
}

impl std::fmt::Debug for ReplicationTraffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicationTraffic")
            .field("config", &self.config)
            .field("made", &self.made)
            .finish_non_exhaustive()
    }
}

impl ReplicationTraffic {
    /// The traffic of `config`, with the random numbers of `seed`.
    ///
    /// # Errors
    /// No traffic can be made of the configuration.
    pub fn new(mut config: ReplicationConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let persistent = (config.persistent > 0).then(|| Component::persistent(config.duration));
        let of_persistent = config.components.len();
        config.components.extend(persistent);
        let mut random = SmallRng::seed_from_u64(seed);
        let mut payload = vec![0; PAYLOAD_BYTES + SEGMENT_BYTES_MAX].into_boxed_slice();
        random.fill_bytes(&mut payload);
        let mut sum = 0.0;
        let sessions = config.components.iter().map(|component| {
            sum += config.connections_per_second * component.share / component.together.max(1.0);
            sum
        });
        let mut new = Self {
            sessions: sessions.collect(),
            random,
            calendar: Calendar::new(config.begins_at),
            scripts: Scripts(Vec::new()),
            free: Vec::new(),
            ports: vec![CLIENT_PORT_MIN; config.clients as usize],
            servers: Zipf::new(config.servers as usize, config.server_popularity),
            next_session: config.begins_at,
            burst_ends: config.begins_at,
            ends_at: config.begins_at + config.duration,
            payload,
            frame: Vec::new(),
            made: Made::new(&config),
            config,
        };
        new.begin_persistent(of_persistent);
        new.wait_for_session();
        Ok(new)
    }

    /// Enters the connections that stand from the first second on, evenly over that.
    fn begin_persistent(&mut self, component: usize) {
        let within_nanos = self.config.duration.min(PERSISTENT_BEGIN).as_nanos() as u64;
        for number in 0..u64::from(self.config.persistent) {
            let at = within_nanos * number / u64::from(self.config.persistent);
            let server_ports = &self.config.components[component].server_ports;
            let server_port = server_ports[number as usize % server_ports.len()];
            let client = self.random.random_range(0..self.config.clients);
            let server = self.servers.sample(&mut self.random) as u32;
            let client_port = self.next_port(client);
            let is_ipv6 = self.is_ipv6(client);
            let ends = Ends { client, server, client_port, server_port, is_ipv6 };
            self.begin(component, self.config.begins_at + Duration::from_nanos(at), ends);
        }
    }

    /// Whether a client uses IPv6.
    fn is_ipv6(&self, client: u32) -> bool {
        f64::from(client) < self.config.ipv6_share * f64::from(self.config.clients)
    }

    /// The next frame and its time, which never falls. `None` when the traffic is over.
    #[allow(
        clippy::should_implement_trait,
        reason = "what it lends it lends until the next call, which no Iterator can"
    )]
    pub fn next(&mut self) -> Option<(Instant, &[u8])> {
        loop {
            let is_open = self.next_session < self.ends_at;
            let until = match (is_open, self.config.runs_out) {
                (true, _) => self.next_session,
                (false, true) => Instant::FAR_FUTURE,
                (false, false) => Instant::from_nanos(self.ends_at.as_nanos().saturating_sub(1)),
            };
            let at_of = |scripts: &Scripts, index: u32| scripts.0[index as usize].at;
            if let Some((at, index)) = self.calendar.take(&mut self.scripts, until, at_of) {
                self.send(index);
                self.made.note_frame(at, self.frame.len());
                return Some((at, &self.frame));
            }
            if !is_open {
                return None;
            }
            self.begin_session();
            self.wait_for_session();
        }
    }

    /// What was made up to here.
    #[must_use]
    pub const fn made(&self) -> &Made {
        &self.made
    }

    /// When the traffic begins, and when the last connection does at the latest.
    #[must_use]
    pub fn span(&self) -> (Instant, Instant) {
        (self.config.begins_at, self.ends_at)
    }

    /// Writes the frame that is the connection's turn, and enters its next one.
    fn send(&mut self, index: u32) {
        let script = &mut self.scripts.0[index as usize];
        let component = &self.config.components[usize::from(script.component)];
        let mut sender = Sender { random: &mut self.random, payload: &self.payload, frame: &mut self.frame };
        match script.send(&component.behaviour, &mut sender) {
            Some(at) => {
                script.at = at;
                self.calendar.add(&mut self.scripts, index, at);
            }
            None => {
                self.free.push(index);
                self.made.note_end();
            }
        }
    }

    /// Draws when the next session begins.
    fn wait_for_session(&mut self) {
        let mean = self.sessions[self.sessions.len() - 1];
        match self.config.arrivals {
            Arrivals::Poisson => self.next_session = self.next_session + until_next(&mut self.random, mean),
            Arrivals::Bursty { peak, burst } => {
                self.next_session = self.next_session + until_next(&mut self.random, mean * peak);
                while self.next_session > self.burst_ends {
                    // What was left of the wait goes on in the next burst: the exponential distribution has no memory.
                    let per_second = 1.0 / burst.as_secs_f64();
                    let silence = until_next(&mut self.random, per_second / (peak - 1.0));
                    self.next_session = self.next_session + silence;
                    self.burst_ends = self.burst_ends + silence + until_next(&mut self.random, per_second);
                }
            }
        }
    }

    fn begin_session(&mut self) {
        let all = self.sessions[self.sessions.len() - 1];
        let wanted = self.random.random::<f64>() * all;
        let chosen = self.sessions.partition_point(|sum| *sum <= wanted).min(self.sessions.len() - 1);
        let component = &self.config.components[chosen];
        let (together, sweeps) = (component.together, component.sweeps);
        let server_port = component.server_ports[self.random.random_range(0..component.server_ports.len())];
        let count = geometric(&mut self.random, together, TOGETHER_MAX);
        let client = self.random.random_range(0..self.config.clients);
        let server = self.servers.sample(&mut self.random) as u32;
        let is_ipv6 = self.is_ipv6(client);
        let mut begins_at = self.next_session;
        for number in 0..count {
            if begins_at >= self.ends_at {
                break;
            }
            let server_port = if sweeps { server_port.wrapping_add(number as u16).max(1) } else { server_port };
            let client_port = self.next_port(client);
            self.begin(chosen, begins_at, Ends { client, server, client_port, server_port, is_ipv6 });
            begins_at = begins_at + until_next(&mut self.random, GAP_PER_SECOND);
        }
        self.made.sessions += 1;
    }

    fn next_port(&mut self, client: u32) -> u16 {
        let port = &mut self.ports[client as usize];
        let taken = *port;
        *port = port.checked_add(1).unwrap_or(CLIENT_PORT_MIN);
        taken
    }

    fn begin(&mut self, chosen: usize, at: Instant, ends: Ends) {
        let component = &self.config.components[chosen];
        let script = Script::new(chosen as u16, component, at, ends, self.config.round_trip, &mut self.random);
        let index = match self.free.pop() {
            Some(index) => {
                self.scripts.0[index as usize] = script;
                index
            }
            None if self.scripts.0.len() < CONNECTIONS_OPEN_MAX as usize => {
                self.scripts.0.push(script);
                self.scripts.0.len() as u32 - 1
            }
            None => {
                self.made.left_out += 1;
                return;
            }
        };
        let lifetime = Duration::from_nanos(script.lifetime_nanos());
        self.made.note_connection(chosen, &component.behaviour, ends.is_ipv6, lifetime);
        self.calendar.add(&mut self.scripts, index, at);
    }
}
