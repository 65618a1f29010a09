//! The automaton of the lookup, with the indexes that it looks into.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use filters::{Full, ShapeError};
use flow::{Instant, NodeId, NodeSet, TokenBucket};

use super::{Held, Limits, Lookup, LookupCounters, LookupDrop, Outcome, Receiver, Table};
use crate::index::{Applied, Increment, IndexSecret, OwnIndex, PeerIndex};
use crate::message::{IndexPart, Key, Message, MessageError, Side};

/// What the packets of a connection wait for.
#[derive(Clone, Copy)]
enum Awaited {
    /// The state, from `asked`; then from each of `candidates`.
    State { asked: NodeId, candidates: NodeSet, deadline: Instant },
    /// A query of increments.
    Increments,
}

/// A connection whose packets wait.
struct Waiting<P> {
    awaited: Awaited,
    /// A query has found nothing before: there is no second one.
    is_queried: bool,
    packets: Vec<P>,
}

/// A query whose answers are missing.
struct Query {
    number: u32,
    /// Peers whose answer is missing, for each side.
    pending: [NodeSet; 2],
    deadline: Instant,
    keys: Vec<Key>,
}

/// Connections for the next query.
#[derive(Default)]
struct Batch {
    keys: Vec<Key>,
    /// When the first of them came.
    since: Instant,
}

/// What waits to be sent.
enum Transmit {
    Message(Receiver, Vec<u8>),
    Increment(Receiver, Increment),
}

/// The state service of one node. `P` is a packet, which the service only holds.
pub struct StateService<P> {
    limits: Limits,
    secret: IndexSecret,
    own: OwnIndex,
    alive: NodeSet,
    peers: BTreeMap<NodeId, PeerIndex>,
    waiting: BTreeMap<Key, Waiting<P>>,
    packets: usize,
    batch: Batch,
    query: Option<Query>,
    queries: u32,
    pull_bucket: TokenBucket,
    query_bucket: TokenBucket,
    advertised_at: Instant,
    transmits: VecDeque<Transmit>,
    outcomes: VecDeque<Outcome<P>>,
    counters: LookupCounters,
}

impl<P> StateService<P> {
    /// The service of a node without connections and peers. `incarnation` differs from that of former runs of the process.
    ///
    /// # Errors
    /// There are more connections than an index may have.
    pub fn new(
        secret: IndexSecret,
        connections_max: u64,
        incarnation: u32,
        limits: Limits,
    ) -> Result<Self, ShapeError> {
        Ok(Self {
            limits,
            secret,
            own: OwnIndex::new(connections_max, incarnation)?,
            alive: NodeSet::EMPTY,
            peers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            packets: 0,
            batch: Batch::default(),
            query: None,
            queries: 0,
            pull_bucket: TokenBucket::default(),
            query_bucket: TokenBucket::default(),
            advertised_at: Instant::ZERO,
            transmits: VecDeque::new(),
            outcomes: VecDeque::new(),
            counters: LookupCounters::default(),
        })
    }

    /// What it has done.
    #[must_use]
    pub const fn counters(&self) -> LookupCounters {
        self.counters
    }

    /// Packets that wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.packets
    }

    /// A connection has entered the table, as own or as replica. Each enters and leaves once.
    ///
    /// # Errors
    /// The index is full: peers cannot find the connection here.
    pub fn note_entered(&mut self, key: &Key) -> Result<(), Full> {
        self.own.insert(key.side, self.secret.hash(key))
    }

    /// A connection has left the table.
    pub fn note_left(&mut self, key: &Key) {
        self.own.remove(key.side, self.secret.hash(key));
    }

    /// A peer is alive, or dead. The index of a dead peer is forgotten, and what was expected from it is requested elsewhere.
    pub fn set_alive(&mut self, now: Instant, node: NodeId, is_alive: bool) {
        let has_changed = if is_alive { self.alive.insert(node) } else { self.alive.remove(node) };
        if !has_changed {
            return;
        }
        if is_alive {
            self.peers.insert(node, PeerIndex::default());
            return;
        }
        self.peers.remove(&node);
        let asked = |waiting: &Waiting<P>| matches!(waiting.awaited, Awaited::State { asked, .. } if asked == node);
        let keys: Vec<Key> = self.waiting.iter().filter(|(_, waiting)| asked(waiting)).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| self.pull_failed(now, key));
        if let Some(query) = &mut self.query {
            for pending in &mut query.pending {
                pending.remove(node);
            }
        }
        self.finish_query(now);
    }

    /// Looks up the connection of a packet, of which the table has `held`. `may_begin`: the packet is one that begins
    /// connections, such as a SYN.
    pub fn lookup(&mut self, now: Instant, key: Key, packet: P, held: Held, may_begin: bool) -> Lookup<P> {
        match held {
            Held::Owned => return Lookup::Process(packet),
            Held::Replica => return Lookup::TakeOver(packet),
            Held::Nothing => {}
        }
        let candidates = self.candidates(&key);
        let is_waiting = self.waiting.contains_key(&key);
        if !is_waiting && candidates.is_empty() && may_begin {
            return Lookup::Begin(packet);
        }
        if let Some(reason) = self.refusal(&key) {
            return self.dropped(packet, reason);
        }
        if is_waiting {
            self.hold(key, packet);
            return Lookup::Waits;
        }
        if candidates.is_empty() {
            self.enter(key, Awaited::Increments, packet);
            self.enter_batch(now, key);
            return Lookup::Waits;
        }
        if !self.pull_bucket.take(now, &self.limits.pulls) {
            return self.dropped(packet, LookupDrop::PullBudget);
        }
        let awaited = self.pull(now, &key, candidates);
        self.enter(key, awaited, packet);
        Lookup::Waits
    }

    /// Live peers whose index has the connection.
    fn candidates(&self, key: &Key) -> NodeSet {
        let hash = self.secret.hash(key);
        self.peers.iter().filter(|(_, index)| index.contains(key.side, hash)).map(|(node, _)| *node).collect()
    }

    /// Why a further packet of this connection cannot wait.
    fn refusal(&self, key: &Key) -> Option<LookupDrop> {
        let of_connection = self.waiting.get(key).map_or(0, |waiting| waiting.packets.len());
        let is_full =
            self.packets >= self.limits.packets_max || of_connection >= self.limits.packets_per_connection_max;
        is_full.then_some(LookupDrop::WaitingFull)
    }

    fn dropped(&mut self, packet: P, reason: LookupDrop) -> Lookup<P> {
        self.counters.dropped[reason as usize] += 1;
        Lookup::Dropped(packet, reason)
    }

    fn enter(&mut self, key: Key, awaited: Awaited, packet: P) {
        self.waiting.insert(key, Waiting { awaited, is_queried: false, packets: Vec::new() });
        self.hold(key, packet);
    }

    fn hold(&mut self, key: Key, packet: P) {
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.packets.push(packet);
            self.packets += 1;
        }
    }

    /// The packets of a connection wait no longer.
    fn release(&mut self, key: &Key) -> Option<Vec<P>> {
        let packets = self.waiting.remove(key)?.packets;
        self.packets -= packets.len();
        Some(packets)
    }

    fn drop_waiting(&mut self, key: &Key, reason: LookupDrop) {
        if let Some(packets) = self.release(key) {
            self.counters.dropped[reason as usize] += packets.len() as u64;
            self.outcomes.push_back(Outcome::Dropped { key: *key, packets, reason });
        }
    }

    /// Requests the state from one of the candidates, of which there is at least one. Connections differ in their first one, so
    /// that a flood of pulls is spread.
    fn pull(&mut self, now: Instant, key: &Key, mut candidates: NodeSet) -> Awaited {
        let first = self.secret.hash(key).whole() as usize % (candidates.len().max(1) as usize);
        let asked = candidates.iter().nth(first).unwrap_or_default();
        candidates.remove(asked);
        self.counters.pulls += 1;
        self.send(Receiver::Node(asked), &Message::Pull(*key));
        Awaited::State { asked, candidates, deadline: now + self.limits.answer_timeout }
    }

    /// The asked peer has no state, or does not answer: the next candidate, then one query, then nothing.
    fn pull_failed(&mut self, now: Instant, key: &Key) {
        let Some(waiting) = self.waiting.get(key) else { return };
        let (awaited, is_queried) = (waiting.awaited, waiting.is_queried);
        let Awaited::State { candidates, .. } = awaited else { return };
        self.counters.pulls_failed += 1;
        let alive: NodeSet = candidates.iter().filter(|node| self.alive.contains(*node)).collect();
        if !alive.is_empty() && self.pull_bucket.take(now, &self.limits.pulls) {
            let awaited = self.pull(now, key, alive);
            self.set_awaited(key, awaited);
        } else if alive.is_empty() && !is_queried {
            self.set_awaited(key, Awaited::Increments);
            self.enter_batch(now, *key);
        } else {
            self.drop_waiting(key, if alive.is_empty() { LookupDrop::Unknown } else { LookupDrop::PullBudget });
        }
    }

    fn set_awaited(&mut self, key: &Key, awaited: Awaited) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.awaited = awaited;
        }
    }

    fn enter_batch(&mut self, now: Instant, key: Key) {
        if self.batch.keys.is_empty() {
            self.batch.since = now;
        }
        self.batch.keys.push(key);
        self.send_batch(now);
    }

    /// Sends the query for a batch that is full or old enough, unless one is open.
    fn send_batch(&mut self, now: Instant) {
        let is_due = self.batch.keys.len() >= self.limits.batch_max
            || (!self.batch.keys.is_empty() && now >= self.batch.since + self.limits.batch_delay);
        if !is_due || self.query.is_some() {
            return;
        }
        let last = self.batch.keys.len().min(self.limits.batch_max);
        let keys: Vec<Key> = self.batch.keys.drain(..last).collect();
        self.batch.since = now;
        let refusal = if self.peers.is_empty() {
            Some(LookupDrop::Unknown)
        } else {
            (!self.query_bucket.take(now, &self.limits.queries)).then_some(LookupDrop::QueryBudget)
        };
        if let Some(reason) = refusal {
            keys.iter().for_each(|key| self.drop_waiting(key, reason));
            return;
        }
        self.counters.queries += 1;
        self.queries = self.queries.wrapping_add(1).max(1);
        let number = self.queries;
        let queries: Vec<_> = self.peers.iter().map(|(node, index)| (*node, index.known())).collect();
        for (node, known) in queries {
            self.send(Receiver::Node(node), &Message::Query { number, known });
        }
        let deadline = now + self.limits.answer_timeout;
        self.query = Some(Query { number, pending: [self.alive; 2], deadline, keys });
    }

    /// Ends the query if all have answered or its time is over. Its connections without a hit are dropped.
    fn finish_query(&mut self, now: Instant) {
        let is_over = |query: &Query| now >= query.deadline || query.pending.iter().all(|pending| pending.is_empty());
        let Some(query) = self.query.take_if(|query| is_over(query)) else { return };
        for key in query.keys {
            self.look_up_queried(now, &key);
            let waits = self.waiting.get(&key).is_some_and(|waiting| matches!(waiting.awaited, Awaited::Increments));
            if waits {
                self.drop_waiting(&key, LookupDrop::Unknown);
            }
        }
        self.send_batch(now);
    }

    /// Looks a connection up in the indexes again, once one has changed.
    fn look_up_queried(&mut self, now: Instant, key: &Key) {
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        if !matches!(waiting.awaited, Awaited::Increments) {
            return;
        }
        waiting.is_queried = true;
        let candidates = self.candidates(key);
        if candidates.is_empty() {
            return;
        }
        if self.pull_bucket.take(now, &self.limits.pulls) {
            let awaited = self.pull(now, key, candidates);
            self.set_awaited(key, awaited);
        } else {
            self.drop_waiting(key, LookupDrop::PullBudget);
        }
    }

    fn send(&mut self, to: Receiver, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.transmit(Transmit::Message(to, bytes));
    }

    fn transmit(&mut self, transmit: Transmit) {
        if self.transmits.len() >= self.limits.transmits_max {
            self.counters.transmits_refused += 1;
        } else {
            self.transmits.push_back(transmit);
        }
    }

    /// Confirms a forged packet, which came by this entry of its group ([`Outcome::Forged`]).
    pub fn confirm(&mut self, to: NodeId, hash: u64, failures: u8, rank: u8) {
        self.send(Receiver::Node(to), &Message::Confirm { hash, failures, rank });
    }

    /// Advertises the loads that this node has placed.
    pub fn send_loads(&mut self, loads: crate::message::Loads) {
        self.send(Receiver::All, &Message::Loads(loads));
    }

    /// Handles a message of a peer.
    ///
    /// # Errors
    /// The bytes are no message, or contradict former ones.
    pub fn handle_peer(
        &mut self,
        now: Instant,
        from: NodeId,
        datagram: &[u8],
        table: &mut impl Table,
    ) -> Result<(), MessageError> {
        match Message::parse(datagram)? {
            Message::Predict { hash, failures } => self.outcome(Outcome::Forged { from, hash, failures }),
            Message::Confirm { hash, failures, rank } => self.outcome(Outcome::Answer { hash, failures, rank }),
            Message::Loads(loads) => self.outcome(Outcome::Loads { from, loads }),
            Message::Pull(key) => {
                let mut state = Vec::new();
                let is_held = table.hand_over(from, &key, &mut state);
                let answer = if is_held { Message::State { key, state: &state } } else { Message::NotHeld(key) };
                self.send(Receiver::Node(from), &answer);
            }
            Message::State { key, state } => self.handle_state(&key, from, state),
            Message::NotHeld(key) => {
                if self.is_asked(&key, from) {
                    self.pull_failed(now, &key);
                }
            }
            Message::Query { number, known } => {
                let mut advertised = Vec::new();
                let answer = self.own.answer(number, known, &mut advertised);
                advertised.into_iter().for_each(|one| self.transmit(Transmit::Increment(Receiver::All, one)));
                answer.into_iter().for_each(|one| self.transmit(Transmit::Increment(Receiver::Node(from), one)));
            }
            Message::Index(part) => self.handle_index(now, from, &part)?,
        }
        Ok(())
    }

    /// Queues what a peer causes, within the limit of packets: it is not more important than they are.
    fn outcome(&mut self, outcome: Outcome<P>) {
        if self.outcomes.len() < self.limits.packets_max {
            self.outcomes.push_back(outcome);
        }
    }

    fn is_asked(&self, key: &Key, node: NodeId) -> bool {
        let is_asked = |waiting: &Waiting<P>| matches!(waiting.awaited, Awaited::State { asked, .. } if asked == node);
        self.waiting.get(key).is_some_and(is_asked)
    }

    /// A state that nobody waits for is ignored: nobody may put connections into the table of a node that has not asked.
    fn handle_state(&mut self, key: &Key, from: NodeId, state: &[u8]) {
        if !self.is_asked(key, from) {
            return;
        }
        if let Some(packets) = self.release(key) {
            self.counters.pulled += 1;
            self.outcomes.push_back(Outcome::Pulled { key: *key, from, state: state.into(), packets });
        }
    }

    fn handle_index(&mut self, now: Instant, from: NodeId, part: &IndexPart<'_>) -> Result<(), MessageError> {
        let Some(index) = self.peers.get_mut(&from) else { return Ok(()) };
        match index.apply(part)? {
            Applied::Part => return Ok(()),
            Applied::Gap => self.counters.gaps += 1,
            Applied::Complete => {}
        }
        let Some(query) = self.query.as_mut().filter(|query| query.number == part.query) else { return Ok(()) };
        query.pending[part.side as usize].remove(from);
        let keys: Vec<Key> = query.keys.iter().filter(|key| key.side == part.side).copied().collect();
        let hash = |key: &Key| self.secret.hash(key);
        let hits: Vec<Key> = keys
            .into_iter()
            .filter(|key| self.peers.get(&from).is_some_and(|index| index.contains(key.side, hash(key))))
            .collect();
        hits.iter().for_each(|key| self.look_up_queried(now, key));
        self.finish_query(now);
        Ok(())
    }

    /// Does what is due: advertises the index, sends a batch, and ends pulls and queries without an answer.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now >= self.advertised_at + self.limits.advertise_interval {
            self.advertised_at = now;
            let increments = self.own.advertise();
            increments.into_iter().for_each(|one| self.transmit(Transmit::Increment(Receiver::All, one)));
        }
        let is_late =
            |waiting: &Waiting<P>| matches!(waiting.awaited, Awaited::State { deadline, .. } if now >= deadline);
        let late: Vec<Key> = self.waiting.iter().filter(|(_, waiting)| is_late(waiting)).map(|(key, _)| *key).collect();
        late.iter().for_each(|key| self.pull_failed(now, key));
        self.finish_query(now);
        self.send_batch(now);
    }

    /// When [`StateService::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let pulls = self.waiting.values().filter_map(|waiting| match waiting.awaited {
            Awaited::State { deadline, .. } => Some(deadline),
            Awaited::Increments => None,
        });
        let batch = self.batch.since + self.limits.batch_delay;
        let batch = (!self.batch.keys.is_empty() && self.query.is_none()).then_some(batch);
        let query = self.query.as_ref().map(|query| query.deadline);
        let advertise = self.advertised_at + self.limits.advertise_interval;
        pulls.chain(batch).chain(query).fold(advertise, Instant::min)
    }

    /// Appends the next message to `bytes`, and returns who receives it.
    pub fn poll_transmit(&mut self, bytes: &mut Vec<u8>) -> Option<Receiver> {
        loop {
            match self.transmits.front_mut()? {
                Transmit::Message(to, message) => {
                    let to = *to;
                    bytes.append(message);
                    self.transmits.pop_front();
                    return Some(to);
                }
                Transmit::Increment(to, increment) => {
                    if self.own.encode_next(increment, bytes) {
                        return Some(*to);
                    }
                    self.transmits.pop_front();
                }
            }
        }
    }

    /// The next result.
    pub fn poll_outcome(&mut self) -> Option<Outcome<P>> {
        self.outcomes.pop_front()
    }

    /// Whether the peer's index has a connection, or a false positive, for reports.
    #[must_use]
    pub fn peer_has(&self, node: NodeId, key: &Key) -> bool {
        self.peers.get(&node).is_some_and(|index| index.contains(key.side, self.secret.hash(key)))
    }

    /// Whether an index of both sides of this peer is known.
    #[must_use]
    pub fn has_index(&self, node: NodeId) -> bool {
        let known = self.peers.get(&node).map(PeerIndex::known).unwrap_or_default();
        Side::ALL.into_iter().all(|side| known[side as usize].incarnation != 0)
    }
}
