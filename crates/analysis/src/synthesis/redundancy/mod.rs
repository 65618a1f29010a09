//! Traffic that is made of bytes: for studies of what redundancy elimination saves.
//!
//! ```text
//!  connections ─► objects ─► packets ─► pieces ─┬─ fresh: text, binary or cipher, never sent before
//!                                               └─ repeats of a piece, by where that was last: this connection, these two
//!                                                  hosts, this source, this destination, elsewhere
//! ```
//! A piece is repeated whole, and lies within one packet both times, so that what an optimal encoder finds is what was asked
//! for: pieces are as long as matches are to be. Each piece is repeated in one way only (its origin is drawn when it is first
//! sent), so that origins are what was asked for too.

mod config;
mod connection;
mod content;
mod pieces;
#[cfg(test)]
mod tests;

use std::time::Duration;

use flow::Instant;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::ConfigError;
use super::endpoints::{Ends, SEGMENT_BYTES_MAX};
use super::random::{Zipf, geometric, until_next};
use connection::{Connection, Kind, NextPiece, Turn};
use content::Content;
use pieces::{Copy, Pieces};

pub use config::{Origin, RedundancyConfig, Shares};

/// What is left of a packet and is shorter than this is filled with fresh bytes.
const ROOM_BYTES_MIN: usize = 64;
/// How strongly a share that is off is corrected.
const CORRECTION: f64 = 30.0;
/// The share of new connections that go between hosts that have one already, at most.
const SAME_HOSTS_MAX: f64 = 0.8;
/// An origin may have so much more of the repeated bytes than its share, and these bytes besides, while others cannot be had.
const ORIGIN_EXCESS: f64 = 0.04;
const ORIGIN_EXCESS_BYTES: f64 = 65_536.0;
/// The first port that clients use.
const CLIENT_PORT_MIN: u16 = 1024;

/// What was made up to now.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Made {
    /// Frames.
    pub frames: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Seconds from the first frame to the last.
    pub seconds: f64,
    /// Bytes that TCP carries.
    pub payload_bytes: u64,
    /// Of these, repeated within the distance that was asked for.
    pub repeated_bytes: u64,
    /// The share of the payload that is repeated.
    pub redundancy: f64,
    /// Runs of repeated bytes: what an encoder pays a pointer for.
    pub repeats: u64,
    /// Bytes of a repeat, on average.
    pub match_bytes: f64,
    /// The share of the repeated bytes by where they were last, in the order of [`Origin::ALL`].
    pub origins: Vec<MadeOrigin>,
    /// Of the payload, encrypted.
    pub encrypted_bytes: u64,
    /// Of the payload that is not repeated, text.
    pub text_bytes: u64,
    /// Connections begun.
    pub connections: u64,
    /// Objects sent.
    pub objects: u64,
}

/// The repeated bytes of an origin.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct MadeOrigin {
    /// Where they were last.
    pub origin: &'static str,
    /// How many there are.
    pub bytes: u64,
    /// Their share of all that is repeated.
    pub share: f64,
}

/// The stream of frames.
pub struct RedundancyTraffic {
    config: RedundancyConfig,
    random: SmallRng,
    content: Content,
    pieces: Pieces,
    connections: Vec<Connection>,
    servers: Zipf,
    next_flow: u64,
    ports: Vec<u16>,
    at: Instant,
    ends_at: Instant,
    payload: Vec<u8>,
    frame: Vec<u8>,
    made: Made,
    origin_bytes: [u64; Origin::ALL.len()],
}

impl std::fmt::Debug for RedundancyTraffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedundancyTraffic")
            .field("config", &self.config)
            .field("made", &self.made)
            .finish_non_exhaustive()
    }
}

impl RedundancyTraffic {
    /// The traffic of `config`, with the random numbers of `seed`.
    ///
    /// # Errors
    /// No traffic can be made of the configuration.
    pub fn new(config: RedundancyConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let mut random = SmallRng::seed_from_u64(seed);
        let content = Content::new(&mut random);
        let pieces = Pieces::new(&config);
        let mut new = Self {
            servers: Zipf::new(config.servers as usize, config.server_popularity),
            ports: vec![CLIENT_PORT_MIN; config.clients as usize],
            at: config.begins_at,
            ends_at: config.begins_at + config.duration,
            connections: Vec::new(),
            next_flow: 0,
            payload: Vec::new(),
            frame: Vec::new(),
            made: Made::default(),
            origin_bytes: [0; Origin::ALL.len()],
            random,
            content,
            pieces,
            config,
        };
        for _ in 0..new.config.connections {
            let connection = new.connect();
            new.connections.push(connection);
        }
        Ok(new)
    }

    /// The next frame and its time, which never falls. `None` when the traffic is over.
    #[allow(
        clippy::should_implement_trait,
        reason = "what it lends it lends until the next call, which no Iterator can"
    )]
    pub fn next(&mut self) -> Option<(Instant, &[u8])> {
        if self.at >= self.ends_at {
            return None;
        }
        let slot = self.random.random_range(0..self.connections.len());
        let turn = self.connections[slot].turn();
        self.payload.clear();
        match turn {
            Turn::Request => self.write_request(slot),
            Turn::Data => self.write_data(slot),
            Turn::Other => {}
        }
        let payload_bytes = self.payload.len();
        let is_over = self.connections[slot].send(&self.payload, &mut self.frame);
        if is_over {
            self.connections[slot] = self.connect();
        } else if self.connections[slot].wants_object() {
            let bytes = self.config.object_bytes.sample(&mut self.random) as u32;
            self.connections[slot].begin_object(bytes.max(1));
            self.made.objects += 1;
        }
        let at = self.at;
        self.made.frames += 1;
        self.made.bytes += self.frame.len() as u64;
        self.made.payload_bytes += payload_bytes as u64;
        self.made.seconds = at.saturating_since(self.config.begins_at).as_secs_f64();
        let frames_per_second = self.config.bits_per_second / (self.frame.len() as f64 * 8.0);
        self.at = self.at + until_next(&mut self.random, frames_per_second).max(Duration::from_nanos(1));
        Some((at, &self.frame))
    }

    /// What was made up to here.
    #[must_use]
    pub fn made(&self) -> Made {
        let mut made = self.made.clone();
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        made.redundancy = share(made.repeated_bytes, made.payload_bytes);
        made.match_bytes = share(made.repeated_bytes, made.repeats);
        let origins = Origin::ALL.into_iter().zip(self.origin_bytes);
        made.origins = origins
            .map(|(origin, bytes)| MadeOrigin {
                origin: origin.label(),
                bytes,
                share: share(bytes, made.repeated_bytes),
            })
            .collect();
        made
    }

    /// When the traffic begins and ends.
    #[must_use]
    pub fn span(&self) -> (Instant, Instant) {
        (self.config.begins_at, self.ends_at)
    }

    fn connect(&mut self) -> Connection {
        let (client, server) = self.choose_hosts();
        let port = &mut self.ports[client as usize];
        let client_port = *port;
        *port = port.checked_add(1).unwrap_or(CLIENT_PORT_MIN);
        let random = &mut self.random;
        // The share is of bytes, of which a few connections have most.
        let has_too_few =
            (self.made.encrypted_bytes as f64) < self.config.encrypted_share * self.made.payload_bytes as f64;
        let is_first = self.made.payload_bytes == 0;
        let kind = if has_too_few || is_first && random.random_bool(self.config.encrypted_share) {
            Kind::Encrypted
        } else if random.random_bool(self.config.text_share) {
            Kind::Text
        } else {
            Kind::Binary
        };
        let server_port = if kind == Kind::Encrypted { 443 } else { 80 };
        let ends = Ends { client, server, client_port, server_port, is_ipv6: false };
        let objects = geometric(random, self.config.objects_per_connection, 1000);
        let sequences = (random.random(), random.random());
        let first_bytes = self.config.object_bytes.sample(random) as u32;
        self.made.connections += 1;
        self.made.objects += 1;
        self.next_flow += 1;
        Connection::new(self.next_flow, ends, kind, objects, first_bytes.max(1), sequences)
    }

    /// The two hosts of a new connection: active pairs stay active, the more so the more of their content repeats.
    fn choose_hosts(&mut self) -> (u32, u32) {
        let same = self.config.origins.of(Origin::IntraFlow) + self.config.origins.of(Origin::InterFlow);
        if !self.connections.is_empty() && self.random.random_bool(same.min(SAME_HOSTS_MAX)) {
            let other = &self.connections[self.random.random_range(0..self.connections.len())].ends;
            return (other.client, other.server);
        }
        (self.random.random_range(0..self.config.clients), self.servers.sample(&mut self.random) as u32)
    }

    fn write_request(&mut self, slot: usize) {
        let connection = &self.connections[slot];
        let (kind, server) = (connection.kind, connection.ends.server);
        if kind == Kind::Encrypted {
            self.content.cipher(&mut self.random, &mut self.payload, 160);
            self.made.encrypted_bytes += self.payload.len() as u64;
            return;
        }
        let (fresh, known) = self.content.request(&mut self.random, server);
        self.payload.extend_from_slice(fresh.as_bytes());
        let copy = connection.copy(true);
        self.pieces.note_payload(fresh.as_bytes());
        self.put_known(known, pieces::Known::Request, copy);
    }

    /// Bytes that are the same in every request, or every response.
    fn put_known(&mut self, known: &str, which: pieces::Known, copy: Copy) {
        self.payload.extend_from_slice(known.as_bytes());
        if let Some(last) = self.pieces.exchange_known(which, copy) {
            self.note_repeat(&last, &copy, known.len());
        }
        self.pieces.note_payload(known.as_bytes());
    }

    fn note_repeat(&mut self, last: &Copy, copy: &Copy, bytes: usize) {
        self.made.repeats += 1;
        self.made.repeated_bytes += bytes as u64;
        self.origin_bytes[Origin::between(last, copy) as usize] += bytes as u64;
    }

    /// A full packet of an object, or its last.
    fn write_data(&mut self, slot: usize) {
        let (kind, copy) = (self.connections[slot].kind, self.connections[slot].copy(false));
        if kind == Kind::Encrypted {
            let room_bytes = (self.connections[slot].object_bytes as usize).min(SEGMENT_BYTES_MAX);
            self.content.cipher(&mut self.random, &mut self.payload, room_bytes);
            self.made.encrypted_bytes += self.payload.len() as u64;
            return;
        }
        if self.connections[slot].is_at_beginning() {
            let body_bytes = self.connections[slot].object_bytes;
            let (known, fresh) = self.content.response(&mut self.random, kind == Kind::Text, body_bytes);
            self.put_known(known, pieces::Known::Response(kind == Kind::Text), copy);
            self.payload.extend_from_slice(fresh.as_bytes());
            self.pieces.note_payload(fresh.as_bytes());
            self.connections[slot].object_bytes += self.payload.len() as u32;
        }
        let end = (self.connections[slot].object_bytes as usize).min(SEGMENT_BYTES_MAX);
        while self.payload.len() < end {
            let room = end - self.payload.len();
            if room < ROOM_BYTES_MIN || !self.put_piece(slot, copy, room) {
                self.put_fresh(kind, room);
            }
        }
    }

    /// A piece, sent before or fresh. False if the one whose turn it is does not fit: then it is the next packet's first, so that
    /// long pieces come as often as they are to.
    fn put_piece(&mut self, slot: usize, copy: Copy, room_bytes: usize) -> bool {
        let carried = self.connections[slot].carried.take().filter(|piece| match piece {
            NextPiece::Repeat(found) => self.pieces.is_still(found, &copy),
            NextPiece::Fresh(_) => true,
        });
        let next = carried.unwrap_or_else(|| self.choose_piece(&copy));
        match next {
            NextPiece::Repeat(found) if found.bytes <= room_bytes => {
                let last = self.pieces.repeat(&found, copy, &mut self.payload);
                self.note_repeat(&last, &copy, found.bytes);
                true
            }
            NextPiece::Fresh(bytes) if bytes <= room_bytes => {
                let from = self.payload.len();
                self.put_fresh(self.connections[slot].kind, bytes);
                let origin = self.config.origins.draw(&mut self.random);
                self.pieces.note_fresh(origin, copy, &self.payload[from..], &mut self.random);
                true
            }
            too_long => {
                self.connections[slot].carried = Some(too_long);
                false
            }
        }
    }

    fn choose_piece(&mut self, copy: &Copy) -> NextPiece {
        let wanted = self.config.redundancy;
        let payload_bytes = (self.made.payload_bytes + self.payload.len() as u64).max(1) as f64;
        let short = wanted - self.made.repeated_bytes as f64 / payload_bytes;
        let share = wanted / (1.0 - self.config.encrypted_share) + CORRECTION * short;
        if self.random.random::<f64>() < share {
            let found = self.origins_by_need().find_map(|origin| self.pieces.find(origin, copy, &mut self.random));
            if let Some(found) = found {
                return NextPiece::Repeat(found);
            }
        }
        NextPiece::Fresh(self.config.match_bytes.sample(&mut self.random) as usize)
    }

    fn put_fresh(&mut self, kind: Kind, bytes: usize) {
        let from = self.payload.len();
        if kind == Kind::Text {
            self.content.text(&mut self.random, &mut self.payload, bytes);
            self.made.text_bytes += bytes as u64;
        } else {
            self.content.binary(&mut self.random, &mut self.payload, bytes);
        }
        self.pieces.note_payload(&self.payload[from..]);
    }

    /// The origins that may be repeated from, the one first that has least of what it should have.
    fn origins_by_need(&self) -> impl Iterator<Item = Origin> + use<> {
        let repeated = self.made.repeated_bytes as f64;
        let mut origins = Origin::ALL.map(|origin| {
            let share = self.config.origins.of(origin);
            (origin, share * repeated - self.origin_bytes[origin as usize] as f64, share > 0.0)
        });
        origins.sort_by(|(_, one, _), (_, other, _)| other.total_cmp(one));
        let least = -(ORIGIN_EXCESS * repeated + ORIGIN_EXCESS_BYTES);
        origins.into_iter().filter(move |(_, short, is_asked)| *is_asked && *short >= least).map(|(origin, ..)| origin)
    }
}
