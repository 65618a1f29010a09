//! The table against a list of connections, with hashes that collide in every way.

use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::NodeId;
use crate::conntrack::ProtocolState;

const KEY: HashKey = HashKey([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);

impl Table {
    /// A table that distinguishes hashes only by the bits of `hash_mask`.
    fn with_hash_mask(connections_max: u32, hash_mask: u64) -> Self {
        Self { hash_mask, ..Self::new(connections_max, KEY) }
    }

    /// The invariants between calls.
    fn check_invariants(&self) {
        let mut entries = 0;
        for (slot, connection) in self.iter() {
            let (original, reply) = self.hashes(connection);
            entries += 1 + usize::from(original != reply);
            assert_eq!(self.lookup(original, &connection.original), Some((slot, Direction::Original)));
            assert_eq!(self.lookup(reply, &connection.reply).map(|found| found.0), Some(slot));
            let deadline = self.slab.cold[slot.0 as usize].timer.deadline();
            let expires_at = Instant::from_nanos(connection.expires_at_nanos);
            // A connection that was returned as expired and not removed is returned again a tick later.
            let latest = expires_at.max(self.wheel.turned_to()) + Duration::from_nanos(2 * self.wheel.tick_nanos());
            assert!(deadline.is_some_and(|deadline| deadline <= latest), "{slot:?} would outlive its expiry");
        }
        assert_eq!(self.iter().count(), self.len() as usize);
        assert_eq!(self.wheel.len(), self.len(), "one timer a connection");
        let (held, passed) = self.index.count();
        assert_eq!(held, entries, "the index holds exactly the expected entries");
        assert!(!self.is_empty() || passed == 0, "an empty index counts no overflow");
        let (free, used) = self.slab.count_free();
        assert_eq!(free + self.len(), used);
        assert!(used <= self.capacity());
    }
}

fn tuple(client: u16, server: u8) -> Tuple {
    Tuple {
        source: [1; 16],
        destination: [server; 16],
        source_port: client,
        destination_port: 443,
        protocol: 6,
        version: 6,
        discriminator: 0,
    }
}

fn connection(original: Tuple, expires_at: Instant) -> Connection {
    Connection::new(original, NodeId(0), ProtocolState::default(), expires_at)
}

fn translated(original: Tuple, reply: Tuple, expires_at: Instant) -> Connection {
    Connection { reply, ..connection(original, expires_at) }
}

fn secs(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

/// Removes the connections that expire by `now`.
fn expire(table: &mut Table, now: Instant) -> Vec<Slot> {
    let mut expired = Vec::new();
    while table.next_expiry().is_some_and(|next| next <= now) {
        if let Some(slot) = table.poll_expired(now) {
            table.remove(slot);
            expired.push(slot);
        }
    }
    expired
}

#[test]
fn a_connection_is_found_by_both_tuples() {
    let mut table = Table::new(10, KEY);
    let plain = connection(tuple(1, 9), secs(10));
    let slot = table.insert(plain, secs(1)).unwrap();
    assert_eq!(table.lookup(table.hash(&plain.original), &plain.original), Some((slot, Direction::Original)));
    assert_eq!(table.lookup(table.hash(&plain.reply), &plain.reply), Some((slot, Direction::Reply)));
    assert_eq!(table.index.count().0, 1, "one entry serves both directions");
    assert_eq!(table.cold(slot).map(|cold| cold.created_at_nanos), Some(secs(1).as_nanos()));
    table.check_invariants();
}

#[test]
fn a_translated_connection_is_found_by_exactly_its_two_tuples() {
    let mut table = Table::new(10, KEY);
    let (inside, outside) = (tuple(1, 9), tuple(60_000, 8).inverse());
    let slot = table.insert(translated(inside, outside, secs(10)), secs(0)).unwrap();
    assert_eq!(table.lookup(table.hash(&outside), &outside), Some((slot, Direction::Reply)));
    assert!(table.is_used(&inside) && table.is_used(&outside));
    assert!(!table.is_used(&inside.inverse()) && !table.is_used(&outside.inverse()));
    table.check_invariants();
}

#[test]
fn a_tuple_in_use_in_either_direction_is_refused() {
    let mut table = Table::new(10, KEY);
    let (a, b, outside) = (tuple(1, 9), tuple(2, 9), tuple(60_000, 8).inverse());
    table.insert(translated(a, outside, secs(10)), secs(0)).unwrap();
    for taken in [connection(a, secs(10)), connection(outside, secs(10)), translated(b, outside, secs(10))] {
        assert_eq!(table.insert(taken, secs(0)), Err(InsertError::TupleInUse));
    }
    assert_eq!(table.len(), 1);
    table.check_invariants();
}

#[test]
fn a_full_table_refuses_until_one_is_removed() {
    let mut table = Table::new(3, KEY);
    let slots = [1, 2, 3].map(|client| table.insert(connection(tuple(client, 9), secs(10)), secs(0)).unwrap());
    let late = connection(tuple(4, 9), secs(10));
    assert_eq!(table.insert(late, secs(0)), Err(InsertError::Full));
    assert_eq!(table.insert(connection(tuple(3, 9), secs(10)), secs(0)), Err(InsertError::TupleInUse));
    table.check_invariants();
    assert!(table.remove(slots[1]).is_some());
    assert!(table.remove(slots[1]).is_none() && table.get(slots[1]).is_none(), "a slot ends with its connection");
    assert_eq!(table.insert(late, secs(0)), Ok(slots[1]));
    table.check_invariants();
}

#[test]
fn early_drop_keeps_assured_connections() {
    let mut table = Table::with_hash_mask(8, 0);
    let near = table.hash(&tuple(99, 9));
    assert_eq!(table.early_drop_candidate(near, |_| true), None, "nothing to drop");
    let slots: Vec<_> =
        (0..8).map(|client| table.insert(connection(tuple(client, 9), secs(10)), secs(0)).unwrap()).collect();
    for slot in &slots {
        table.get_mut(*slot).unwrap().flags |= flags::ASSURED;
    }
    assert_eq!(table.early_drop_candidate(near, |_| true), None);
    table.get_mut(slots[5]).unwrap().flags = flags::REPLIED;
    assert_eq!(table.early_drop_candidate(near, |_| true), Some(slots[5]));
}

#[test]
fn early_drop_examines_a_bounded_number() {
    let mut table = Table::with_hash_mask(200, 0);
    let slots: Vec<_> =
        (0..200).map(|client| table.insert(connection(tuple(client, 9), secs(10)), secs(0)).unwrap()).collect();
    for slot in &slots[..EARLY_DROP_CONNECTIONS_MAX] {
        table.get_mut(*slot).unwrap().flags |= flags::ASSURED;
    }
    assert_eq!(table.early_drop_candidate(0, |_| true), None);
}

#[test]
fn an_extended_expiry_costs_nothing_until_the_timer_fires() {
    let mut table = Table::new(10, KEY);
    let slot = table.insert(connection(tuple(1, 9), secs(30)), secs(0)).unwrap();
    table.get_mut(slot).unwrap().expires_at_nanos = secs(432_000).as_nanos();
    assert_eq!(expire(&mut table, secs(431_999)), []);
    assert_eq!(expire(&mut table, secs(432_001)), [slot]);
    assert_eq!(table.next_expiry(), None);
}

#[test]
fn a_shortened_expiry_is_met() {
    let mut table = Table::new(10, KEY);
    let slot = table.insert(connection(tuple(1, 9), secs(432_000)), secs(0)).unwrap();
    table.expire_sooner(slot, secs(10));
    assert_eq!(expire(&mut table, secs(9)), []);
    assert_eq!(expire(&mut table, secs(11)), [slot]);
}

#[test]
fn an_expired_connection_is_returned_until_it_is_removed() {
    let mut table = Table::new(10, KEY);
    let slot = table.insert(connection(tuple(1, 9), secs(10)), secs(0)).unwrap();
    assert_eq!(table.poll_expired(secs(11)), Some(slot));
    assert_eq!(table.poll_expired(secs(11)), None, "not in the same call");
    assert_eq!(table.poll_expired(secs(12)), Some(slot));
    table.get_mut(slot).unwrap().expires_at_nanos = secs(20).as_nanos();
    assert_eq!(table.poll_expired(secs(19)), None);
    assert_eq!(table.poll_expired(secs(21)), Some(slot));
}

#[test]
fn a_clock_that_runs_backwards_expires_each_connection_once() {
    let mut table = Table::new(10, KEY);
    assert_eq!(table.poll_expired(secs(100)), None);
    let slot = table.insert(connection(tuple(1, 9), secs(50)), secs(20)).unwrap();
    assert_eq!(expire(&mut table, secs(100)), [slot]);
    table.insert(connection(tuple(1, 9), secs(50)), secs(20)).unwrap();
    assert_eq!(table.poll_expired(secs(20)), Some(slot), "past for the wheel is past");
}

#[derive(Clone, Debug)]
enum Step {
    Insert { original: u16, reply: Option<u16>, timeout_millis: u64 },
    Remove { nth: usize },
    Extend { nth: usize, by_millis: u64 },
    Hasten { nth: usize, by_millis: u64 },
    Pass { millis: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let millis = || prop_oneof![Just(0), 0u64..200, 0u64..100_000, 0u64..1_000_000_000];
    prop_oneof![
        12 => (0u16..120, prop::option::of(0u16..120), millis())
            .prop_map(|(original, reply, timeout_millis)| Step::Insert { original, reply, timeout_millis }),
        3 => any::<usize>().prop_map(|nth| Step::Remove { nth }),
        1 => (any::<usize>(), millis()).prop_map(|(nth, by_millis)| Step::Extend { nth, by_millis }),
        1 => (any::<usize>(), millis()).prop_map(|(nth, by_millis)| Step::Hasten { nth, by_millis }),
        1 => millis().prop_map(|millis| Step::Pass { millis }),
    ]
}

/// The expected content of the table.
struct Model {
    connections: Vec<(Slot, Connection)>,
    capacity: usize,
}

impl Model {
    fn find(&self, tuple: &Tuple) -> Option<(Slot, Direction)> {
        self.connections.iter().find_map(|(slot, connection)| {
            [Direction::Original, Direction::Reply]
                .into_iter()
                .find(|direction| connection.tuple(*direction) == tuple)
                .map(|direction| (*slot, direction))
        })
    }

    fn insert(&self, connection: &Connection) -> Result<(), InsertError> {
        if self.find(&connection.original).or(self.find(&connection.reply)).is_some() {
            Err(InsertError::TupleInUse)
        } else if self.connections.len() == self.capacity {
            Err(InsertError::Full)
        } else {
            Ok(())
        }
    }

    fn nth(&mut self, nth: usize) -> Option<usize> {
        nth.checked_rem(self.connections.len())
    }
}

fn apply(step: &Step, now: &mut Instant, table: &mut Table, model: &mut Model) {
    match *step {
        Step::Insert { original, reply, timeout_millis } => {
            let original = tuple(original, 9);
            let reply = reply.map_or(original.inverse(), |reply| tuple(reply, 8).inverse());
            let connection = translated(original, reply, *now + Duration::from_millis(timeout_millis));
            let result = table.insert(connection, *now);
            assert_eq!(result.map(|_| ()), model.insert(&connection));
            model.connections.extend(result.map(|slot| (slot, connection)));
        }
        Step::Remove { nth } => {
            let Some(nth) = model.nth(nth) else { return };
            let (slot, connection) = model.connections.swap_remove(nth);
            assert_eq!(table.remove(slot).map(|removed| removed.original), Some(connection.original));
        }
        Step::Extend { nth, by_millis } => {
            let Some(nth) = model.nth(nth) else { return };
            let (slot, connection) = &mut model.connections[nth];
            connection.expires_at_nanos += by_millis * 1_000_000;
            table.get_mut(*slot).unwrap().expires_at_nanos = connection.expires_at_nanos;
        }
        Step::Hasten { nth, by_millis } => {
            let Some(nth) = model.nth(nth) else { return };
            let (slot, connection) = &mut model.connections[nth];
            connection.expires_at_nanos = connection.expires_at_nanos.saturating_sub(by_millis * 1_000_000);
            table.expire_sooner(*slot, Instant::from_nanos(connection.expires_at_nanos));
        }
        Step::Pass { millis } => {
            *now = *now + Duration::from_millis(millis);
            for slot in expire(table, *now) {
                let nth = model.connections.iter().position(|(held, _)| *held == slot).unwrap();
                let (_, connection) = model.connections.swap_remove(nth);
                assert!(connection.expires_at_nanos <= now.as_nanos(), "expired early");
            }
            for (_, connection) in &model.connections {
                let expires_by = connection.expires_at_nanos + table.wheel.tick_nanos();
                assert!(now.as_nanos() < expires_by, "expired late");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn it_equals_a_list_of_connections(
        capacity in prop_oneof![Just(1u32), Just(16), Just(60), Just(100)],
        hash_mask in prop_oneof![Just(u64::MAX), Just(0), Just(0xffff_ffff), Just(0xffff << 32), Just(0xc000_0000)],
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut table = Table::with_hash_mask(capacity, hash_mask);
        let mut model = Model { connections: Vec::new(), capacity: capacity as usize };
        let mut now = Instant::ZERO;
        for step in &steps {
            apply(step, &mut now, &mut table, &mut model);
        }
        table.check_invariants();
        let tuples = (0..120).flat_map(|client| [9, 8].map(|server| tuple(client, server)));
        for tuple in tuples.flat_map(|tuple| [tuple, tuple.inverse()]) {
            let hash = table.hash(&tuple);
            table.prefetch_index(hash);
            let found = model.find(&tuple);
            prop_assert_eq!(table.lookup(hash, &tuple), found);
            for likely in [table.prefetch_record(hash), None].into_iter().chain(table.iter().map(|(slot, _)| Some(slot))) {
                prop_assert_eq!(table.lookup_likely(likely, hash, &tuple), found);
            }
        }
        for (slot, _) in model.connections.drain(..) {
            let connection = table.remove(slot);
            prop_assert!(connection.is_some());
            let connection = connection.unwrap();
            for tuple in [connection.original, connection.reply] {
                let found = table.lookup_likely(Some(slot), table.hash(&tuple), &tuple);
                prop_assert_eq!(found, None, "what was removed is not found where it was");
            }
        }
        table.check_invariants();
    }
}
