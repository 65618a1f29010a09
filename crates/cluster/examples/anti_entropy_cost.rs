//! The cost of comparing replicas all the time between two nodes, and how soon a wrong replica is repaired.
//!
//! `cargo run --release -p cluster --example anti_entropy_cost [connections]`
//!
//! Prints the share of a core that the owner and the node with the replicas spend while nothing changes, the bytes that they
//! send, and the time from a replica's vanishing to its return. Time is simulated: what is measured is work.

#![expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use std::time::{Duration, Instant as Clock};

use cluster::pipeline::ChainStates;
use cluster::pipeline::{Pipeline, TableChange};
use flow::conntrack::{ProtocolState, Tracker};
use flow::table::Slot;
use flow::{Connection, Direction, HashKey, Instant, NodeId, Tuple};
use network_functions::chain::ChainBuilder;
use replication::representation::{self, precise};
use replication::{ApplyError, Handle, Holding, Item, Kind, Session, SessionConfig, Store};

const QUIET: Duration = Duration::from_secs(60);

struct Side {
    node: NodeId,
    pipeline: Pipeline,
}

impl Side {
    fn new(node: u8, connections_max: u32) -> Self {
        let chain = ChainBuilder::new().build().expect("an empty chain is a chain");
        let key = HashKey([u64::from(node), 7]);
        let node = NodeId(node);
        Self { node, pipeline: Pipeline::new(node, connections_max, key, Tracker::default(), chain) }
    }

    fn holding_of(&self, key: u64, slot: Slot) -> Holding {
        match self.pipeline.connection(slot) {
            None => Holding::Nothing,
            Some(connection) if connection.owner == self.node => Holding::Own,
            Some(connection) => Holding::Peers(representation::item(key, connection)),
        }
    }
}

impl Store for Side {
    fn encode(&mut self, now: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
        let own = self.pipeline.connection(Slot(handle.0)).filter(|connection| connection.owner == self.node);
        own.map(|own| precise::encode(now, own, &ChainStates(self.pipeline.chain()), out)).is_some()
    }

    fn apply(&mut self, now: Instant, from: NodeId, _: Kind, attributes: &[u8]) -> Result<(), ApplyError> {
        let copy = precise::decode(now, attributes, &ChainStates(self.pipeline.chain()))?;
        self.pipeline.replicas().apply(now, from, copy);
        Ok(())
    }

    fn delete(&mut self, now: Instant, from: NodeId, attributes: &[u8]) -> Result<(), ApplyError> {
        let ended = precise::decode_ended(attributes)?;
        self.pipeline.replicas().delete(now, from, &ended);
        Ok(())
    }

    fn find(&self, attributes: &[u8]) -> Option<Handle> {
        let original = precise::decode_ended(attributes).ok()?.original;
        let found = self.pipeline.lookup(&original).filter(|(_, direction)| *direction == Direction::Original);
        found.map(|(slot, _)| Handle(slot.0))
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        let mut all = self.pipeline.table().next_occupied(Slot(from.0)).into_iter();
        all.find(|slot| self.pipeline.connection(*slot).is_some_and(|own| own.owner == self.node))
            .map(|slot| Handle(slot.0))
    }

    fn item(&self, key: u64, handle: Handle) -> Item {
        self.pipeline.connection(Slot(handle.0)).map_or(Item::NONE, |connection| representation::item(key, connection))
    }

    fn holding(&self, key: u64, _: NodeId, handle: Handle) -> Holding {
        self.holding_of(key, Slot(handle.0))
    }

    fn slots_used(&self) -> u32 {
        self.pipeline.table().slots_used()
    }
}

/// Two sessions and their tables. What each side does is timed.
struct Pair {
    now: Instant,
    sides: [Side; 2],
    sessions: [Session; 2],
    spent: [Duration; 2],
}

impl Pair {
    fn new(connections_max: u32) -> Self {
        let config = SessionConfig { connections_max, ..SessionConfig::default() };
        let session = |node: u8| {
            Session::new(config, NodeId(node), NodeId(1 - node), 7 + u64::from(node)).expect("the default is sound")
        };
        Self {
            now: Instant::from_millis(1),
            sides: [0, 1].map(|node| Side::new(node, connections_max)),
            sessions: [0, 1].map(session),
            spent: [Duration::ZERO; 2],
        }
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        let mut datagram = Vec::new();
        for from in 0..2 {
            loop {
                let began = Clock::now();
                self.sessions[from].handle_timeout(self.now);
                let is_sent = self.sessions[from].poll_transmit(self.now, &mut self.sides[from], &mut datagram);
                self.spent[from] += began.elapsed();
                if !is_sent {
                    break;
                }
                self.deliver(1 - from, &datagram);
            }
        }
    }

    fn deliver(&mut self, to: usize, datagram: &[u8]) {
        let began = Clock::now();
        let (session, side) = (&mut self.sessions[to], &mut self.sides[to]);
        session.handle_datagram(self.now, datagram, side).expect("the peer is honest");
        let changes = side.pipeline.take_changes();
        for change in &changes {
            if let TableChange::Copied { slot } = change {
                session.note_copy(Handle(slot.0), |key| side.holding_of(key, *slot));
            }
        }
        side.pipeline.return_changes(changes);
        self.spent[to] += began.elapsed();
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Duration {
        let began = self.now;
        while !done(self) {
            self.step();
            assert!(self.now.saturating_since(began) < Duration::from_secs(600), "waited too long for {what}");
        }
        self.now.saturating_since(began)
    }

    fn bytes_sent(&self) -> [u64; 2] {
        self.sessions.each_ref().map(|session| session.status().bytes_sent)
    }
}

fn connection(index: u32) -> Connection {
    let source = ((0x0a00_0000 | index >> 6).into(), 1024 + (index & 63) as u16);
    let tuple = Tuple::v4(6, source, ([192, 0, 2, 1].into(), 443));
    let protocol = ProtocolState { state: 3, ..ProtocolState::default() };
    let mut connection = Connection::new(tuple, NodeId(0), protocol, Instant::from_millis(1 << 40));
    let outside = [198, 51, 100, (index >> 16) as u8].into();
    connection.reply = Tuple::v4(6, ([192, 0, 2, 1].into(), 443), (outside, index as u16));
    connection
}

fn main() {
    let connections: u32 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1 << 20);
    let mut pair = Pair::new(connections);
    let table = pair.sides[0].pipeline.table_to_break();
    for index in 0..connections {
        table.insert(connection(index), Instant::from_millis(1)).expect("there is room");
    }
    pair.run_until("both nodes to be synchronised", |pair| {
        pair.sessions.iter().all(|session| session.status().is_synchronised())
    });
    pair.run_until("the first comparison", |pair| pair.sessions[1].status().anti_entropy.agreed_at.is_some());

    pair.spent = [Duration::ZERO; 2];
    let (before, end) = (pair.bytes_sent(), pair.now + QUIET);
    while pair.now < end {
        pair.step();
    }
    for (name, (spent, (sent, before))) in
        ["owner", "node with the replicas"].iter().zip(pair.spent.iter().zip(pair.bytes_sent().iter().zip(before)))
    {
        let share = spent.as_secs_f64() / QUIET.as_secs_f64() * 100.0;
        let bytes_per_s = (sent - before) / QUIET.as_secs();
        println!("{name}: {share:.2} % of a core, {bytes_per_s} bytes/s, alives included");
    }

    let mut longest = Duration::ZERO;
    for nth in 0..8 {
        let slot = Slot(connections / 8 * nth + 5);
        let table = pair.sides[1].pipeline.table_to_break();
        assert!(table.remove(slot).is_some(), "every slot is in use");
        let repaired = u64::from(nth) + 1;
        let is_repaired = |pair: &Pair| pair.sessions[1].status().anti_entropy.repaired == repaired;
        longest = longest.max(pair.run_until("the replica to be sent again", is_repaired));
        pair.run_until("the replicas to agree", |pair| pair.sessions[1].status().anti_entropy.divergent == 0);
    }
    println!("a copy that vanished is back after {:.1} s at the longest of 8", longest.as_secs_f64());
}
