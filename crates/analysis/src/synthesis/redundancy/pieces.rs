//! What was sent, as far as it may be repeated, and by whom.

use std::collections::HashMap;
use std::collections::VecDeque;

use rand::Rng;
use rand::rngs::SmallRng;

use super::super::random::Zipf;
use super::{Origin, RedundancyConfig};

/// Pieces that are kept of a connection, and of a pair of hosts.
const PIECES_KEPT: usize = 24;
/// Connections of which pieces are kept; the oldest is forgotten.
const FLOWS_KEPT: usize = 4096;
/// Pieces that are looked at until one is found that was last where it should have been.
const DRAWS_MAX: usize = 12;

/// A host, client or server.
pub(super) type Host = u64;

/// Where a piece is: in which connection, from whom to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Copy {
    pub(super) flow: u64,
    pub(super) source: Host,
    pub(super) destination: Host,
}

/// A piece that was sent.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Where it was last, counted in bytes of payload from the first on.
    position: u64,
    bytes: usize,
    copy: Copy,
}

/// A piece to be repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    place: Place,
    origin: Origin,
    pub(super) bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Flow(u64, usize),
    Pair((Host, Host), usize),
    Popular(usize, usize),
}

/// Bytes that every request or response has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    Request,
    Response(bool),
}

impl Known {
    const fn index(self) -> usize {
        match self {
            Self::Request => 0,
            Self::Response(false) => 1,
            Self::Response(true) => 2,
        }
    }
}

/// All pieces that may be repeated, and the bytes that they are made of.
pub(super) struct Pieces {
    /// The payload of late, a ring.
    history: Box<[u8]>,
    /// Bytes of payload that were sent.
    end: u64,
    flows: HashMap<u64, VecDeque<Piece>>,
    flow_order: VecDeque<u64>,
    pairs: HashMap<(Host, Host), VecDeque<Piece>>,
    /// What hosts have in common: from one source, to one destination, anywhere; by rank, those of one host behind each other.
    popular: [Vec<Option<Piece>>; 3],
    ranks: [Zipf; 3],
    hosts: [usize; 3],
    known: [Option<(u64, Copy)>; 3],
}

impl Pieces {
    pub(super) fn new(config: &RedundancyConfig) -> Self {
        let count = config.popular_pieces as usize;
        let hosts = [config.servers as usize, config.clients as usize, 1];
        let ranks = hosts.map(|hosts| Zipf::new((count / hosts).max(1), config.popularity));
        let popular = hosts.map(|hosts| vec![None; (count / hosts).max(1) * hosts]);
        Self {
            history: vec![0; config.distance_bytes].into_boxed_slice(),
            end: 0,
            flows: HashMap::new(),
            flow_order: VecDeque::new(),
            pairs: HashMap::new(),
            popular,
            ranks,
            hosts,
            known: [None; 3],
        }
    }

    /// Payload goes out.
    pub(super) fn note_payload(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(self.history.len()) {
            let from = (self.end % self.history.len() as u64) as usize;
            let first = part.len().min(self.history.len() - from);
            self.history[from..from + first].copy_from_slice(&part[..first]);
            self.history[..part.len() - first].copy_from_slice(&part[first..]);
            self.end += part.len() as u64;
        }
    }

    /// The bytes are still within the distance, with a packet to spare.
    fn is_held(&self, position: u64) -> bool {
        position + self.history.len() as u64 > self.end + 2048
    }

    /// A fresh piece has gone out, the last of the payload; it will be repeated with this origin.
    pub(super) fn note_fresh(&mut self, origin: Option<Origin>, copy: Copy, bytes: &[u8], random: &mut SmallRng) {
        let piece = Piece { position: self.end - bytes.len() as u64, bytes: bytes.len(), copy };
        match origin {
            None => {}
            Some(Origin::IntraFlow) => {
                if !self.flows.contains_key(&copy.flow) {
                    self.flow_order.push_back(copy.flow);
                }
                keep(self.flows.entry(copy.flow).or_default(), piece);
                if self.flow_order.len() > FLOWS_KEPT
                    && let Some(oldest) = self.flow_order.pop_front()
                {
                    self.flows.remove(&oldest);
                }
            }
            Some(Origin::InterFlow) => keep(self.pairs.entry((copy.source, copy.destination)).or_default(), piece),
            Some(origin) => {
                let (list, place) = self.draw_popular(origin, &copy, random);
                let is_held = self.popular[list][place].is_some_and(|piece| self.is_held(piece.position));
                if !is_held {
                    self.popular[list][place] = Some(piece);
                }
            }
        }
    }

    /// A place among those pieces that may have this origin here.
    fn draw_popular(&self, origin: Origin, copy: &Copy, random: &mut SmallRng) -> (usize, usize) {
        let (list, host) = match origin {
            Origin::InterDestination => (0, copy.source),
            Origin::InterSource => (1, copy.destination),
            _ => (2, 0),
        };
        let hosts = self.hosts[list];
        let host = (host % hosts as u64) as usize;
        (list, self.ranks[list].sample(random) * hosts + host)
    }

    /// A piece whose repetition here has this origin.
    pub(super) fn find(&self, origin: Origin, copy: &Copy, random: &mut SmallRng) -> Option<Found> {
        (0..DRAWS_MAX).find_map(|_| {
            let place = match origin {
                Origin::IntraFlow => Place::Flow(copy.flow, random.random_range(0..self.flows.get(&copy.flow)?.len())),
                Origin::InterFlow => {
                    let pair = (copy.source, copy.destination);
                    Place::Pair(pair, random.random_range(0..self.pairs.get(&pair)?.len()))
                }
                _ => {
                    let (list, place) = self.draw_popular(origin, copy, random);
                    Place::Popular(list, place)
                }
            };
            let piece = self.piece(place)?;
            let found = Found { place, origin, bytes: piece.bytes };
            self.is_still(&found, copy).then_some(found)
        })
    }

    /// There is a piece as long as what was found where that was, and its repetition here has the origin that was sought.
    pub(super) fn is_still(&self, found: &Found, copy: &Copy) -> bool {
        self.piece(found.place).is_some_and(|piece| {
            piece.bytes == found.bytes
                && self.is_held(piece.position)
                && Origin::between(&piece.copy, copy) == found.origin
        })
    }

    fn piece(&self, place: Place) -> Option<&Piece> {
        match place {
            Place::Flow(flow, at) => self.flows.get(&flow)?.get(at),
            Place::Pair(pair, at) => self.pairs.get(&pair)?.get(at),
            Place::Popular(list, place) => self.popular[list][place].as_ref(),
        }
    }

    /// Repeats a piece. Returns where it was last.
    pub(super) fn repeat(&mut self, found: &Found, copy: Copy, payload: &mut Vec<u8>) -> Copy {
        let piece = match found.place {
            Place::Flow(flow, at) => self.flows.get_mut(&flow).and_then(|pieces| pieces.get_mut(at)),
            Place::Pair(pair, at) => self.pairs.get_mut(&pair).and_then(|pieces| pieces.get_mut(at)),
            Place::Popular(list, place) => self.popular[list][place].as_mut(),
        };
        let piece = piece.expect("what was found is there until something else is noted");
        let last = piece.copy;
        let from = payload.len();
        let position = std::mem::replace(&mut piece.position, self.end);
        piece.copy = copy;
        let length = self.history.len();
        payload.extend((0..found.bytes).map(|at| self.history[((position + at as u64) % length as u64) as usize]));
        let repeated = payload[from..].to_vec();
        self.note_payload(&repeated);
        last
    }

    /// Bytes that every request or response has go out here. Returns where they were last, if that is within the
    /// distance.
    pub(super) fn exchange_known(&mut self, which: Known, copy: Copy) -> Option<Copy> {
        let last = self.known[which.index()].replace((self.end, copy));
        last.filter(|(position, _)| self.is_held(*position)).map(|(_, copy)| copy)
    }
}

fn keep(pieces: &mut VecDeque<Piece>, piece: Piece) {
    if pieces.len() == PIECES_KEPT {
        pieces.pop_front();
    }
    pieces.push_back(piece);
}
