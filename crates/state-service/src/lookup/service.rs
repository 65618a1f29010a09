//! The automaton of the lookup, with the indexes that it looks into.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use filters::{Full, ShapeError};
use flow::{Instant, NodeId, NodeSet, TokenBucket};

use super::peers::Peers;
use super::transmits::Transmits;
use super::waiting::{Awaited, WaitingConnections};
use super::{Held, Limits, Lookup, LookupCounters, LookupDrop, Outcome, Receiver, Table};
use crate::index::{Applied, Increment, IndexSecret, OwnIndex};
use crate::message::{IndexPart, Key, Message, MessageError};

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

/// The state service of one node. `P` is a packet, which the service only holds.
pub struct StateService<P> {
    limits: Limits,
    secret: IndexSecret,
    own: OwnIndex,
    peers: Peers,
    waiting: WaitingConnections<P>,
    batch: Batch,
    query: Option<Query>,
    queries: u32,
    pull_bucket: TokenBucket,
    query_bucket: TokenBucket,
    advertised_at: Instant,
    transmits: Transmits,
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
            peers: Peers::default(),
            waiting: WaitingConnections::default(),
            batch: Batch::default(),
            query: None,
            queries: 0,
            pull_bucket: TokenBucket::default(),
            query_bucket: TokenBucket::default(),
            advertised_at: Instant::ZERO,
            transmits: Transmits::default(),
            outcomes: VecDeque::new(),
            counters: LookupCounters::default(),
        })
    }

    /// What it has done.
    #[must_use]
    pub const fn counters(&self) -> LookupCounters {
        LookupCounters { transmits_refused: self.transmits.refused, ..self.counters }
    }

    /// Packets that wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting.packets()
    }

    /// A connection has entered the table, as own or as replica. Each enters and leaves once.
    ///
    /// # Errors
    /// The index is full: peers cannot find the connection here.
    pub fn note_entered(&mut self, key: &Key) -> Result<(), Full> {
        if self.limits.broadcast { self.own.insert(key.side, self.secret.hash(key)) } else { Ok(()) }
    }

    /// A connection has left the table.
    pub fn note_left(&mut self, key: &Key) {
        if self.limits.broadcast {
            self.own.remove(key.side, self.secret.hash(key));
        }
    }

    /// A peer is alive, or dead. The index of a new peer is requested by the next [`StateService::handle_timeout`], which is due at once.
    /// That of a dead peer is forgotten, and what was expected from it is requested elsewhere.
    pub fn set_alive(&mut self, now: Instant, node: NodeId, is_alive: bool) {
        if !self.peers.set_alive(now, node, is_alive) || is_alive {
            return;
        }
        let keys = self.waiting.keys();
        keys.iter().for_each(|key| self.note_not_answered(now, key, node));
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
            Held::Owned => Lookup::Process(packet),
            Held::Replica => Lookup::TakeOver(packet),
            Held::Nothing => self.lookup_elsewhere(now, key, packet, (may_begin, true)),
        }
    }

    /// As [`StateService::lookup`], of a packet that shows too little of itself to move its connection here, of which the table has nothing:
    /// a copy of the connection is requested, and its owner stays.
    pub fn lookup_copy(&mut self, now: Instant, key: Key, packet: P, may_begin: bool) -> Lookup<P> {
        self.lookup_elsewhere(now, key, packet, (may_begin, false))
    }

    fn lookup_elsewhere(
        &mut self,
        now: Instant,
        key: Key,
        packet: P,
        (may_begin, takes_over): (bool, bool),
    ) -> Lookup<P> {
        if self.waiting.get(&key).is_some() {
            if let Some(reason) = self.waiting.refusal(&self.limits, &key, true) {
                return self.dropped(packet, reason);
            }
            self.waiting.hold(&key, packet);
            return Lookup::Waits;
        }
        let candidates = self.candidates(&key);
        let is_found = !candidates.is_empty();
        if !is_found && may_begin && self.are_indexes_known(now) {
            return Lookup::Begin(packet);
        }
        let refusal = self.waiting.refusal(&self.limits, &key, is_found).or_else(|| {
            let is_refused = is_found && !self.pull_bucket.take(now, &self.limits.pulls);
            is_refused.then_some(LookupDrop::PullBudget)
        });
        match refusal {
            Some(_) if !is_found && may_begin => return Lookup::Begin(packet),
            Some(reason) => return self.dropped(packet, reason),
            None => {}
        }
        let awaited = if is_found { self.pull(now, &key, candidates, takes_over) } else { Awaited::Increments };
        self.waiting.enter(key, awaited, (may_begin, takes_over), packet);
        if !is_found {
            self.enter_batch(now, key);
        }
        Lookup::Waits
    }

    /// Nodes that may have the connection: those whose index has it, or all without indexes.
    fn candidates(&self, key: &Key) -> NodeSet {
        if self.limits.broadcast { self.peers.having(key.side, self.secret.hash(key)) } else { self.peers.alive() }
    }

    /// A connection that no index has is on no live node.
    fn are_indexes_known(&self, now: Instant) -> bool {
        !self.limits.broadcast || self.peers.are_known(now, self.limits.index_patience)
    }

    fn dropped(&mut self, packet: P, reason: LookupDrop) -> Lookup<P> {
        self.counters.dropped[reason as usize] += 1;
        Lookup::Dropped(packet, reason)
    }

    /// No peer has sent the state: the packets begin the connection if the first one may, or are dropped.
    fn give_up(&mut self, key: &Key, reason: LookupDrop) {
        let may_begin = self.waiting.get(key).is_some_and(|waiting| waiting.may_begin);
        let Some(packets) = self.waiting.release(key) else { return };
        self.outcomes.push_back(if may_begin {
            Outcome::Begin { key: *key, packets }
        } else {
            self.counters.dropped[reason as usize] += packets.len() as u64;
            Outcome::Dropped { key: *key, packets, reason }
        });
    }

    /// Requests the state from one of the candidates, of which there is at least one; without indexes from all. Connections differ in
    /// their first one, so that a flood of pulls is spread.
    fn pull(&mut self, now: Instant, key: &Key, candidates: NodeSet, takes_over: bool) -> Awaited {
        let first = self.secret.hash(key).whole() as usize % (candidates.len().max(1) as usize);
        let asked = if self.limits.broadcast { candidates.iter().nth(first).into_iter().collect() } else { candidates };
        for node in asked.iter() {
            self.counters.pulls += 1;
            let request = if takes_over { Message::Pull(*key) } else { Message::Copy(*key) };
            self.send(Receiver::Node(node), &request);
        }
        let deadline = now + self.limits.answer_timeout;
        self.waiting.note_requested(deadline, *key);
        Awaited::State { asked, candidates: candidates.without(asked), deadline }
    }

    /// The peer has no state, or is dead: the others that were asked may still send it.
    fn note_not_answered(&mut self, now: Instant, key: &Key, node: NodeId) {
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        if let Awaited::State { asked, .. } = &mut waiting.awaited
            && asked.remove(node)
            && asked.is_empty()
        {
            self.pull_failed(now, key);
        }
    }

    /// The asked peers have no state, or do not answer: the next candidate, then one query, then nothing.
    fn pull_failed(&mut self, now: Instant, key: &Key) {
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        waiting.has_failed = true;
        let takes_over = waiting.takes_over;
        let is_queried = waiting.is_queried || !self.limits.broadcast;
        let Awaited::State { candidates, .. } = waiting.awaited else { return };
        self.counters.pulls_failed += 1;
        let alive = self.peers.alive();
        let alive: NodeSet = candidates.iter().filter(|node| alive.contains(*node)).collect();
        if !alive.is_empty() && self.pull_bucket.take(now, &self.limits.pulls) {
            let awaited = self.pull(now, key, alive, takes_over);
            self.waiting.set_awaited(key, awaited);
        } else if alive.is_empty() && !is_queried {
            self.waiting.set_awaited(key, Awaited::Increments);
            self.enter_batch(now, *key);
        } else {
            self.give_up(key, if alive.is_empty() { LookupDrop::Unknown } else { LookupDrop::PullBudget });
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
        // An index may have arrived since.
        let keys: Vec<Key> = keys.into_iter().filter(|key| !self.pulls_late(now, key)).collect();
        let alive = self.peers.alive();
        let refusal = match () {
            () if keys.is_empty() => return,
            () if alive.is_empty() => Some(LookupDrop::Unknown),
            () => (!self.query_bucket.take(now, &self.limits.queries)).then_some(LookupDrop::QueryBudget),
        };
        if let Some(reason) = refusal {
            keys.iter().for_each(|key| self.give_up(key, reason));
            return;
        }
        self.counters.queries += 1;
        let number = self.next_query();
        // The whole index of a peer is requested by itself: its answer is awaited, too.
        let queries: Vec<_> = self.peers.known().collect();
        for (node, known) in queries {
            self.send(Receiver::Node(node), &Message::Query { number, known });
        }
        let deadline = now + self.limits.answer_timeout;
        self.query = Some(Query { number, pending: [alive; 2], deadline, keys });
    }

    const fn next_query(&mut self) -> u32 {
        self.queries = self.queries.wrapping_add(1);
        if self.queries == 0 {
            self.queries = 1;
        }
        self.queries
    }

    /// Ends the query if all have answered or its time is over. Its connections without a hit are dropped.
    fn finish_query(&mut self, now: Instant) {
        let is_over = |query: &Query| now >= query.deadline || query.pending.iter().all(|pending| pending.is_empty());
        let Some(query) = self.query.take_if(|query| is_over(query)) else { return };
        for key in query.keys {
            if !self.pulls_queried(now, &key) && self.waiting.awaits_increments(&key) {
                self.give_up(&key, LookupDrop::Unknown);
            }
        }
        self.send_batch(now);
    }

    /// As [`Self::pulls_from_index`], for a connection that no index had when its packet came.
    fn pulls_late(&mut self, now: Instant, key: &Key) -> bool {
        let has_failed = self.waiting.get(key).is_some_and(|waiting| waiting.has_failed);
        !has_failed && self.pulls_from_index(now, key)
    }

    /// As [`Self::pulls_from_index`], for a connection of the open query: there is no second one for it.
    fn pulls_queried(&mut self, now: Instant, key: &Key) -> bool {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.is_queried = true;
        }
        self.pulls_from_index(now, key)
    }

    /// Looks a connection up in the indexes again, once one has changed. True if the packets wait no longer for increments.
    fn pulls_from_index(&mut self, now: Instant, key: &Key) -> bool {
        let candidates = self.candidates(key);
        if !self.waiting.awaits_increments(key) || candidates.is_empty() {
            return false;
        }
        if self.pull_bucket.take(now, &self.limits.pulls) {
            let takes_over = self.waiting.get(key).is_none_or(|waiting| waiting.takes_over);
            let awaited = self.pull(now, key, candidates, takes_over);
            self.waiting.set_awaited(key, awaited);
        } else {
            self.give_up(key, LookupDrop::PullBudget);
        }
        true
    }

    fn send(&mut self, to: Receiver, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.transmits.push_message(self.limits.transmits_max, to, bytes);
    }

    fn send_increments(&mut self, to: Receiver, increments: impl IntoIterator<Item = Increment>) {
        for increment in increments {
            self.transmits.push_increment(self.limits.transmits_max, to, increment);
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
                self.counters.handed_over += u64::from(is_held);
                self.answer(from, key, is_held.then_some(&state));
            }
            Message::Copy(key) => {
                let mut state = Vec::new();
                let is_held = table.copy(&key, &mut state);
                self.answer(from, key, is_held.then_some(&state));
            }
            Message::State { key, state } => self.handle_state(&key, from, state),
            Message::NotHeld(key) => {
                self.counters.not_held += 1;
                self.note_not_answered(now, &key, from);
            }
            Message::Query { number, known } => {
                let is_whole = known.iter().any(|known| known.incarnation != self.own.known().incarnation);
                // One is being sent to the peer.
                if !(is_whole && self.transmits.has_whole(from)) {
                    let mut advertised = Vec::new();
                    let answer = self.own.answer(number, known, &mut advertised);
                    self.send_increments(Receiver::All, advertised);
                    self.send_increments(Receiver::Node(from), answer);
                }
            }
            Message::Index(part) => self.handle_index(now, from, &part)?,
        }
        Ok(())
    }

    fn answer(&mut self, to: NodeId, key: Key, state: Option<&Vec<u8>>) {
        let answer = state.map_or(Message::NotHeld(key), |state| Message::State { key, state });
        self.send(Receiver::Node(to), &answer);
    }

    /// Queues what a peer causes, within the limit of packets: it is not more important than they are.
    fn outcome(&mut self, outcome: Outcome<P>) {
        if self.outcomes.len() < self.limits.packets_max {
            self.outcomes.push_back(outcome);
        }
    }

    /// A state that nobody waits for is ignored: nobody may put connections into the table of a node that has not asked.
    fn handle_state(&mut self, key: &Key, from: NodeId, state: &[u8]) {
        if !self.waiting.is_asked(key, from) {
            return;
        }
        let takes_over = self.waiting.get(key).is_none_or(|waiting| waiting.takes_over);
        let Some(packets) = self.waiting.release(key) else { return };
        let (key, state) = (*key, state.into());
        if takes_over {
            self.counters.pulled += 1;
            self.outcomes.push_back(Outcome::Pulled { key, from, state, packets });
        } else {
            self.outcomes.push_back(Outcome::Copied { key, from, state, packets });
        }
    }

    fn handle_index(&mut self, now: Instant, from: NodeId, part: &IndexPart<'_>) -> Result<(), MessageError> {
        let was_known = self.peers.is_known(from);
        match self.peers.apply(now, from, part)? {
            Some(Applied::Complete) => {}
            Some(Applied::Gap) => self.counters.gaps += 1,
            Some(Applied::Part) | None => return Ok(()),
        }
        let is_awaited = |query: &&mut Query| query.number == part.query || !was_known;
        let Some(query) = self.query.as_mut().filter(is_awaited) else { return Ok(()) };
        query.pending[part.side as usize].remove(from);
        let (secret, peers) = (&self.secret, &self.peers);
        let is_hit = |key: &&Key| key.side == part.side && peers.has(from, key.side, secret.hash(key));
        let hits: Vec<Key> = query.keys.iter().filter(is_hit).copied().collect();
        for key in &hits {
            let _ = self.pulls_queried(now, key);
        }
        self.finish_query(now);
        Ok(())
    }

    /// Requests indexes that are not known, and what was lost of others.
    fn request_indexes(&mut self, now: Instant) {
        while let Some((node, known)) = self.peers.poll_request(now, self.limits.index_timeout) {
            self.counters.index_requests += 1;
            let number = self.next_query();
            self.send(Receiver::Node(node), &Message::Query { number, known });
        }
    }

    /// Does what is due: advertises the index, sends a batch, and ends pulls and queries without an answer.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.limits.broadcast {
            if now >= self.advertised_at + self.limits.advertise_interval {
                self.advertised_at = now;
                let increments = self.own.advertise();
                self.send_increments(Receiver::All, increments);
            }
            self.request_indexes(now);
            self.transmits.end_pause(now);
        }
        while let Some(key) = self.waiting.poll_late(now) {
            self.pull_failed(now, &key);
        }
        self.finish_query(now);
        self.send_batch(now);
    }

    /// When [`StateService::handle_timeout`] is due. `None`: nothing waits, and no index is advertised.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let pull = self.waiting.poll_timeout();
        let batch = self.batch.since + self.limits.batch_delay;
        let batch = (!self.batch.keys.is_empty() && self.query.is_none()).then_some(batch);
        let query = self.query.as_ref().map(|query| query.deadline);
        let of_indexes = self.limits.broadcast.then(|| {
            let advertise = self.advertised_at + self.limits.advertise_interval;
            let others = [self.peers.poll_timeout(self.limits.index_timeout), self.transmits.poll_timeout()];
            others.into_iter().flatten().fold(advertise, Instant::min)
        });
        [pull, batch, query, of_indexes].into_iter().flatten().min()
    }

    /// Appends the next message to `bytes`, and returns who receives it.
    pub fn poll_transmit(&mut self, now: Instant, bytes: &mut Vec<u8>) -> Option<Receiver> {
        self.transmits.poll(now, &self.own, &self.limits.index_parts, bytes)
    }

    /// The next result.
    pub fn poll_outcome(&mut self) -> Option<Outcome<P>> {
        self.outcomes.pop_front()
    }

    /// Whether an index of both sides of this peer is known.
    #[must_use]
    pub fn has_index(&self, node: NodeId) -> bool {
        self.peers.is_known(node)
    }
}
