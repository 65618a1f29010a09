//! Two nodes that forward at once, each with a program below it that forwards established connections.

use std::time::Duration;
use std::vec::Vec;

use flow::connection::flags;
use flow::wire::{ip_protocol, tcp_flags};
use flow::{NodeId, Tuple};
use proptest::prelude::*;

use super::super::cluster::{CLIENT, INSIDE, OUTSIDE, Options, SERVER, segment};
use super::pair::{A, B, Pair};
use crate::pipeline::{GatewayReason, PacketPath};

const ACK: u8 = tcp_flags::ACK;
const FIN_ACK: u8 = tcp_flags::FIN | tcp_flags::ACK;
const PORT: u16 = 40_000;
/// Packets that wait for an update of a peer have been decided by then.
const DECIDED_WITHIN: Duration = Duration::from_millis(30);
/// A host sends a segment again after this time.
const REPEATED_AFTER: Duration = Duration::from_millis(200);

/// A client and a server with one connection, and how far they are.
struct Hosts {
    /// The port that the server sees the client under.
    seen: u16,
    /// What the client and the server send next.
    next: [u32; 2],
    /// Segments that were sent again.
    repeated: u32,
}

impl Hosts {
    fn begin(pair: &mut Pair, out: u8, back: u8) -> Self {
        Self { seen: pair.connect(PORT, out, back), next: [1001, 5001], repeated: 0 }
    }

    /// The client sends a question by way of one node, the server its answer by way of the other. Each is repeated until it
    /// arrives.
    fn exchange(&mut self, pair: &mut Pair, out: u8, back: u8) {
        let [sequence, acknowledgement] = self.next;
        let seen = self.seen;
        self.until_received(
            pair,
            |pair| pair.client_sends(out, PORT, segment(ACK, sequence, acknowledgement), b"question"),
            |pair| pair.server_receives().is_some_and(|question| question.tuple.source_port == seen),
        );
        self.until_received(
            pair,
            |pair| pair.server_sends(back, seen, segment(ACK, acknowledgement, sequence.wrapping_add(8)), b"answer"),
            |pair| pair.client_receives().is_some_and(|answer| answer.tuple.destination_port == PORT),
        );
        self.next = [sequence.wrapping_add(8), acknowledgement.wrapping_add(6)];
        pair.step();
    }

    fn until_received(&mut self, pair: &mut Pair, send: impl Fn(&mut Pair), has_come: impl Fn(&mut Pair) -> bool) {
        for attempt in 0..4 {
            self.repeated += u32::from(attempt > 0);
            send(pair);
            let until = pair.now + DECIDED_WITHIN;
            loop {
                check_programs(pair);
                if has_come(pair) {
                    return;
                }
                if pair.now >= until {
                    break;
                }
                pair.step();
            }
            pair.run(REPEATED_AFTER);
        }
        panic!("a segment was sent four times and never came");
    }

    fn exchange_often(&mut self, pair: &mut Pair, out: u8, back: u8) {
        (0..20).for_each(|_| self.exchange(pair, out, back));
    }
}

/// What each program forwards is owned by its node, and known to be shared by no other.
fn check_programs(pair: &Pair) {
    for id in pair.living().filter(|_| pair.has_fast_path()) {
        let plans: Vec<_> = pair.program(id).below().in_force().copied().collect();
        for plan in plans {
            let connection = pair.record_of(id, &plan.directions[0].tuple).expect("what is installed is known");
            assert_eq!(connection.owner, NodeId(id), "only the owner forwards it below");
            assert_eq!(connection.flags & (flags::SHARED | flags::REPLICA), 0);
        }
    }
}

fn forwarded(pair: &Pair, id: u8) -> u64 {
    pair.program(id).below().forwarded
}

fn installed(pair: &Pair, id: u8) -> usize {
    pair.program(id).below().in_force().count()
}

fn path(pair: &Pair, id: u8) -> Option<PacketPath> {
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, PORT), (SERVER, 80));
    pair.node(id).packet_path(pair.now, &tuple)
}

fn started() -> Pair {
    Pair::start_with_fast_path(Options::default())
}

#[test]
fn each_node_forwards_below_what_it_owns_and_what_keeps_to_it() {
    for id in [A, B] {
        let mut pair = started();
        let mut hosts = Hosts::begin(&mut pair, id, id);
        hosts.exchange_often(&mut pair, id, id);
        assert_eq!((installed(&pair, id), installed(&pair, 1 - id)), (1, 0));
        assert_eq!(path(&pair, id), Some(PacketPath::Kernel));
        assert_eq!(path(&pair, 1 - id), Some(PacketPath::Gateway(GatewayReason::NotOwner)));
        let before = (forwarded(&pair, id), pair.messages());
        hosts.exchange_often(&mut pair, id, id);
        assert_eq!((forwarded(&pair, id) - before.0, pair.messages()), (40, before.1));
    }
}

#[test]
fn a_connection_whose_directions_pass_two_nodes_is_forwarded_below_neither() {
    let mut pair = started();
    let mut hosts = Hosts::begin(&mut pair, A, B);
    hosts.exchange_often(&mut pair, A, B);
    assert_eq!((forwarded(&pair, A), forwarded(&pair, B), hosts.repeated), (0, 0, 0));
    assert_eq!(path(&pair, A), Some(PacketPath::Gateway(GatewayReason::Shared)));
    assert_eq!(path(&pair, B), Some(PacketPath::Gateway(GatewayReason::NotOwner)));
}

#[test]
fn a_direction_that_moves_to_the_peer_ends_the_forwarding_below() {
    let mut pair = started();
    let mut hosts = Hosts::begin(&mut pair, A, A);
    hosts.exchange_often(&mut pair, A, A);
    pair.delay = Duration::from_millis(5);
    // The client's acknowledgement of the first answer comes below before A has the update.
    hosts.exchange_often(&mut pair, A, B);
    assert_eq!((installed(&pair, A), installed(&pair, B), hosts.repeated), (0, 0, 0));
    assert_eq!(path(&pair, A), Some(PacketPath::Gateway(GatewayReason::Shared)));
}

#[test]
fn what_was_forwarded_below_counts_when_the_connection_moves() {
    let mut pair = started();
    let mut hosts = Hosts::begin(&mut pair, A, A);
    hosts.exchange_often(&mut pair, A, A);
    let packets = forwarded(&pair, A);
    assert!(packets > 20);
    hosts.exchange_often(&mut pair, B, B);
    assert_eq!((installed(&pair, A), installed(&pair, B), hosts.repeated), (0, 1, 0));
    assert!(forwarded(&pair, B) > 20);
    // The handshake, and 20 exchanges.
    assert_eq!(pair.record(A, PORT).expect("a replica").packets.iter().sum::<u64>(), 3 + 40);
}

#[test]
fn a_fin_at_the_peer_ends_the_forwarding_below() {
    let mut pair = started();
    let mut hosts = Hosts::begin(&mut pair, A, A);
    hosts.exchange_often(&mut pair, A, A);
    let [sequence, acknowledgement] = hosts.next;
    pair.server_sends(B, hosts.seen, segment(FIN_ACK, acknowledgement, sequence), b"");
    assert!(pair.client_receives().is_some());
    assert_eq!(installed(&pair, A), 0);
    pair.client_sends(A, PORT, segment(ACK, sequence, acknowledgement + 1), b"");
    assert!(pair.server_receives().is_some());
}

#[test]
fn datagrams_are_forwarded_below_at_the_owner_whichever_way_the_others_go() {
    let mut pair = started();
    let tuple = Tuple::v4(ip_protocol::UDP, (CLIENT, PORT), (SERVER, 53));
    let exchange = |pair: &mut Pair, out: u8, back: u8| {
        pair.host_sends(out, INSIDE, |envelope| envelope.udp(&tuple, b"question"));
        let seen = pair.server_receives().expect("the question passes").tuple;
        pair.host_sends(back, OUTSIDE, |envelope| envelope.udp(&seen.inverse(), b"answer"));
        assert_eq!(pair.client_receives().expect("the answer passes").tuple, tuple.inverse());
        check_programs(pair);
        pair.step();
    };
    exchange(&mut pair, A, A);
    pair.run_long(Duration::from_secs(3));
    (0..20).for_each(|_| exchange(&mut pair, A, A));
    assert_eq!(installed(&pair, A), 1);
    let before = forwarded(&pair, A);
    (0..20).for_each(|_| exchange(&mut pair, A, B));
    assert_eq!(forwarded(&pair, A) - before, 20, "the questions");
    // The peer shows the owner that the flow lives, and is its owner then.
    pair.run_long(Duration::from_secs(31));
    (0..20).for_each(|_| exchange(&mut pair, A, B));
    assert_eq!((pair.record_of(A, &tuple).expect("it is known").owner, installed(&pair, A)), (NodeId(B), 0));
}

#[test]
fn the_survivor_forwards_all_below_and_the_returning_node_gets_its_group_back() {
    for ways in [[A, A], [B, B], [A, B]] {
        let mut pair = started();
        let mut hosts = Hosts::begin(&mut pair, ways[0], ways[1]);
        hosts.exchange_often(&mut pair, ways[0], ways[1]);
        pair.kill(A);
        pair.run_until("node B to hold both groups", |pair| pair.holds_all(B));
        let before = forwarded(&pair, B);
        hosts.exchange_often(&mut pair, B, B);
        assert!(forwarded(&pair, B) - before > 20, "{ways:?}");
        let generation = pair.program(B).below().generation();
        pair.restart(A);
        pair.run_until("each to have its group", Pair::have_each_their_own);
        assert_ne!(pair.program(B).below().generation(), generation, "B has lost a group");
        assert!(pair.program(B).below().is_enabled);
        hosts.exchange_often(&mut pair, A, A);
        assert_eq!((installed(&pair, A), installed(&pair, B)), (1, 0), "{ways:?}");
        assert_eq!(hosts.repeated, 0, "{ways:?}");
    }
}

#[test]
fn a_drained_node_forwards_nothing_below_and_its_peer_goes_on() {
    let mut pair = started();
    let mut hosts = Hosts::begin(&mut pair, B, B);
    hosts.exchange_often(&mut pair, B, B);
    let (now, generation) = (pair.now, pair.program(B).below().generation());
    pair.node_mut(A).drain(now, false).expect("the other has everything");
    pair.run_until("node B to hold both groups", |pair| pair.holds_all(B));
    assert!(!pair.program(A).below().is_enabled);
    assert_eq!(pair.program(B).below().generation(), generation, "what B forwards below goes on");
    let now = pair.now;
    pair.node_mut(A).undrain(now);
    pair.run_until("each to have its group", Pair::have_each_their_own);
    assert!(pair.program(A).below().is_enabled);
    assert_ne!(pair.program(B).below().generation(), generation);
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// Some exchanges by these ways.
    Exchange { out: u8, back: u8, times: u8 },
    /// Nothing is sent for so many milliseconds.
    Pause(u64),
    /// Updates between the nodes take so many milliseconds, and this share of their datagrams is lost.
    Link { delay_ms: u64, loss_percent: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    let way = || prop_oneof![3 => Just(A), 1 => Just(B)];
    prop_oneof![
        6 => (way(), way(), 1..24_u8).prop_map(|(out, back, times)| Action::Exchange { out, back, times }),
        2 => (0..2, 1..24_u8).prop_map(|(id, times)| {
            let id = if id == 0 { A } else { B };
            Action::Exchange { out: id, back: id, times }
        }),
        2 => prop_oneof![Just(1), Just(30), Just(300), Just(12_000)].prop_map(Action::Pause),
        1 => (0..8_u64, prop_oneof![Just(0), Just(20)])
            .prop_map(|(delay_ms, loss_percent)| Action::Link { delay_ms, loss_percent }),
    ]
}

/// Plays it all, and returns how many segments were repeated.
fn play(mut pair: Pair, actions: &[Action]) -> u32 {
    let mut hosts = Hosts::begin(&mut pair, A, A);
    for action in actions {
        match *action {
            Action::Exchange { out, back, times } => {
                (0..times).for_each(|_| hosts.exchange(&mut pair, out, back));
            }
            Action::Pause(ms) => pair.run(Duration::from_millis(ms)),
            Action::Link { delay_ms, loss_percent } => {
                (pair.delay, pair.loss_percent) = (Duration::from_millis(delay_ms), loss_percent);
            }
        }
    }
    hosts.repeated
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whichever_way_each_segment_goes_the_programs_forward_only_what_their_nodes_own(
        actions in prop::collection::vec(action(), 1..12),
        seed in 1..u64::MAX,
    ) {
        let mut pair = started();
        pair.seed(seed);
        let repeated = play(pair, &actions);
        let has_losses = actions.iter().any(|action| matches!(action, Action::Link { loss_percent: 1.., .. }));
        if !has_losses {
            let repeated_without = play(Pair::started(), &actions);
            prop_assert!(repeated <= repeated_without, "{repeated} segments are repeated, {repeated_without} without");
        }
    }
}
