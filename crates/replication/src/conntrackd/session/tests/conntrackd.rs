//! A session against a model of conntrackd, made from what conntrackd was seen to do (`docs/conntrackd.md`): it acknowledges
//! every so many messages, else when it has sent nothing for a second; it asks for gaps at once; it never retransmits anything
//! by itself.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use flow::Instant;
use flow::netfilter::{Entry, Tuple};
use flow::serial::is_before;
use proptest::prelude::*;

use super::harness::{End, Node, TIME_OF_DAY_S, Weather, World, connection};
use crate::conntrackd::message::{self, Kind, Message, Range, flags};
use crate::conntrackd::{FtfwConfig, object};

const ALIVE: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
const ACK_WINDOW: u32 = 300;

/// What its resend queue holds: the tuple of an object, or a control message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Object(Tuple),
    Control(u8, Range),
}

struct Conntrackd {
    internal: BTreeMap<Tuple, Entry>,
    external: BTreeMap<Tuple, Entry>,
    /// The last state of those that have ended, as long as their end is in the resend queue.
    ended: BTreeMap<Tuple, Entry>,
    resend: VecDeque<(u32, Kept)>,
    out: VecDeque<Kept>,
    next: u32,
    sends_hello: bool,
    hello_back_pending: bool,
    expected: Option<u32>,
    ack_from: u32,
    alive_at: Instant,
    before: usize,
}

impl Conntrackd {
    fn new(time_of_day_s: u32) -> Self {
        Self {
            internal: BTreeMap::new(),
            external: BTreeMap::new(),
            ended: BTreeMap::new(),
            resend: VecDeque::new(),
            out: VecDeque::new(),
            next: time_of_day_s,
            sends_hello: true,
            hello_back_pending: false,
            expected: None,
            ack_from: 0,
            alive_at: Instant::ZERO + ALIVE,
            before: 0,
        }
    }

    fn put(&mut self, entry: Entry) {
        self.out.push_back(Kept::Object(entry.original));
        self.internal.insert(entry.original, entry);
    }

    fn end(&mut self, tuple: &Tuple) {
        if let Some(entry) = self.internal.remove(tuple) {
            self.ended.insert(*tuple, entry);
            self.out.push_back(Kept::Object(*tuple));
        }
    }

    fn acknowledge(&mut self) {
        let Some(expected) = self.expected.filter(|expected| *expected != self.ack_from) else { return };
        let range = Range { from: self.ack_from, to: expected.wrapping_sub(1) };
        self.out.push_back(Kept::Control(flags::ACK, range));
        self.ack_from = expected;
    }

    fn handle_message(&mut self, message: &Message<'_>) {
        if message.has(flags::HELLO) {
            self.resend.clear();
            self.hello_back_pending = true;
            (self.expected, self.ack_from) = (Some(message.number), message.number);
        }
        let expected = *self.expected.get_or_insert_with(|| {
            self.ack_from = message.number;
            message.number
        });
        if is_before(message.number, expected) {
            self.before += 1;
            return;
        }
        if message.number != expected {
            self.acknowledge();
            let range = Range { from: expected, to: message.number.wrapping_sub(1) };
            self.out.push_back(Kept::Control(flags::NACK, range));
            self.ack_from = message.number;
        }
        self.expected = Some(message.number.wrapping_add(1));
        self.sends_hello &= !message.has(flags::HELLO_BACK);
        if message.kind == Kind::Control as u8 {
            self.handle_control(message);
        } else {
            let entry = object::decode(message.body).expect("the session sends nothing that is not understood");
            if message.kind == Kind::Delete as u8 {
                self.external.remove(&entry.original);
            } else {
                self.external.insert(entry.original, entry);
            }
        }
        if self.expected.is_some_and(|expected| expected.wrapping_sub(self.ack_from) >= ACK_WINDOW) {
            self.acknowledge();
        }
    }

    fn handle_control(&mut self, message: &Message<'_>) {
        if message.has(flags::RESYNC) {
            self.out.extend(self.internal.keys().copied().map(Kept::Object));
        } else if let Some(range) = message.range() {
            let (named, others) = self.resend.drain(..).partition(|(number, _)| range.contains(*number));
            self.resend = others;
            let named: VecDeque<(u32, Kept)> = named;
            if message.has(flags::NACK) {
                self.out.extend(named.into_iter().map(|(_, kept)| kept));
            }
        }
    }
}

impl End for Conntrackd {
    fn handle(&mut self, _: Instant, datagram: &[u8]) {
        message::read(datagram)
            .for_each(|message| self.handle_message(&message.expect("the session's datagrams are sound")));
    }

    fn tick(&mut self, now: Instant) {
        if self.alive_at <= now && self.out.is_empty() {
            self.acknowledge();
        }
    }

    fn poll(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        let mut message_flags = 0;
        if self.sends_hello {
            message_flags |= flags::HELLO;
        }
        if self.hello_back_pending {
            message_flags |= flags::HELLO_BACK;
        }
        if self.out.is_empty() && self.alive_at <= now {
            message::put_alive(buffer, message_flags, self.next);
            self.next = self.next.wrapping_add(1);
        }
        while buffer.len() < 1300 {
            let Some(kept) = self.out.pop_front() else { break };
            let sent_flags = core::mem::take(&mut message_flags);
            match kept {
                Kept::Control(flag, range) => message::put_range(buffer, flag | sent_flags, self.next, range),
                Kept::Object(tuple) => {
                    let (kind, entry) = match (self.internal.get(&tuple), self.ended.get(&tuple)) {
                        (Some(entry), _) => (Kind::Update, entry),
                        (None, Some(entry)) => (Kind::Delete, entry),
                        (None, None) => continue,
                    };
                    // Of a connection that waits twice, once is enough.
                    self.resend.retain(|(_, other)| *other != kept);
                    let at = message::begin(buffer, kind, sent_flags, self.next);
                    object::encode(entry, false, buffer).unwrap();
                    message::finish(buffer, at);
                }
            }
            self.resend.push_back((self.next, kept));
            self.next = self.next.wrapping_add(1);
        }
        if buffer.is_empty() {
            return false;
        }
        self.hello_back_pending = false;
        self.alive_at = now + ALIVE;
        true
    }

    fn timeout(&self) -> Option<Instant> {
        Some(self.alive_at)
    }
}

fn world(seed: u64) -> World<Node, Conntrackd> {
    let (node, peer) = (Node::new(FtfwConfig::default(), TIME_OF_DAY_S), Conntrackd::new(TIME_OF_DAY_S + 3));
    World::new(node, peer, seed)
}

fn marks<'a>(entries: impl Iterator<Item = &'a Entry>) -> BTreeMap<Tuple, Option<u32>> {
    entries.map(|entry| (entry.original, entry.mark)).collect()
}

fn agree(world: &World<Node, Conntrackd>) -> bool {
    marks(world.right.external.values()) == world.left.own()
        && marks(world.right.internal.values()) == world.left.copies()
        && world.left.session.status().is_synchronised()
}

#[test]
fn each_gets_what_the_other_has() {
    let mut world = world(1);
    (0..2000).for_each(|number| world.left.put(connection(number, 1)));
    (5000..7000).for_each(|number| world.right.put(connection(number, 1)));
    world.until(20 * SECOND, "both agree", |world| agree(world));
    world.left.end(1);
    world.right.end(&connection(5001, 0).original);
    world.until(3 * SECOND, "both agree", |world| agree(world));
    assert_eq!(world.left.session.status().lost, 0);
}

#[test]
fn a_conntrackd_that_talks_all_the_time_is_asked_what_it_has() {
    let mut world = world(1);
    world.until(5 * SECOND, "both agree", |world| agree(world));
    world.left.put(connection(1, 1));
    for version in 0..20 {
        world.right.put(connection(5000, version));
        world.run(Duration::from_millis(300));
    }
    let status = world.left.session.status();
    assert_eq!((status.in_flight, status.asks, status.resent), (0, 1, 0), "it was asked, and nothing was sent twice");
}

#[test]
fn a_lost_message_to_a_conntrackd_is_there_in_milliseconds() {
    let mut world = world(1);
    world.until(5 * SECOND, "both agree", |world| agree(world));
    world.weather.lost = 100;
    world.left.put(connection(1, 1));
    world.flush();
    world.weather.lost = 0;
    let took = world.until(SECOND, "it is there", |world| world.right.external.len() == 1);
    assert!(took < Duration::from_millis(10), "{took:?}");
}

#[test]
fn a_restarted_conntrackd_gets_a_full_synchronisation() {
    let mut world = world(1);
    (0..500).for_each(|number| world.left.put(connection(number, 1)));
    world.until(5 * SECOND, "both agree", |world| agree(world));
    world.right = Conntrackd::new(TIME_OF_DAY_S + 60);
    world.right.alive_at = world.now + ALIVE;
    world.until(5 * SECOND, "both agree again", |world| agree(world));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// What conntrackd itself loses at the tail comes with its next message, so that one is said at the end.
    #[test]
    fn whatever_the_link_does_both_agree_in_the_end(
        changes in proptest::collection::vec((any::<bool>(), any::<bool>(), 0..30u16, 0..60u64), 1..120),
        (lost, doubled, seed) in (0..40u64, 0..20u64, any::<u64>()),
    ) {
        let mut world = world(seed);
        // An end that a conntrackd sends before it was answered, and that gets lost, it never sends again.
        world.until(5 * SECOND, "both have met", |world| agree(world));
        world.weather = Weather { lost, doubled, delay_max_ms: 0 };
        for (version, (is_left, ends, number, milliseconds)) in changes.into_iter().enumerate() {
            match (is_left, ends) {
                (true, true) => world.left.end(number),
                (true, false) => world.left.put(connection(number, version as u32)),
                (false, true) => world.right.end(&connection(1000 + number, 0).original),
                (false, false) => world.right.put(connection(1000 + number, version as u32)),
            }
            world.run(Duration::from_millis(milliseconds));
        }
        world.weather = Weather::default();
        world.until(Duration::from_secs(30), "both agree", |world| agree(world));
    }
}
