//! Hosts that ask each other.

use flow::wire::build::Echo;

use super::*;

#[test]
fn two_hosts_ping_each_other_under_the_same_identifier() {
    for (here, there) in [(CLIENT.into(), SERVER.into()), (CLIENT6.into(), SERVER6.into())] {
        let mut bench = Bench::new(false, 16, Limits::default());
        let out = Tuple::echo(here, there, 7);
        let back = Tuple::echo(there, here, 7);
        let reply = Echo { is_reply: true, ..Echo::default() };
        assert!(bench.feed_one(INSIDE, build::echo(&out, Echo::default(), b"one")).is_some());
        assert!(bench.feed_one(OUTSIDE, build::echo(&back, Echo::default(), b"two")).is_some(), "a query of its own");
        assert!(bench.feed_one(OUTSIDE, build::echo(&back, reply, b"one")).is_some());
        assert!(bench.feed_one(INSIDE, build::echo(&out, reply, b"two")).is_some());
        let packets: Vec<_> = bench.pipeline.table().iter().map(|(_, connection)| connection.packets).collect();
        assert_eq!(packets, [[1, 1], [1, 1]]);
    }
}

#[test]
fn an_answer_to_no_question_is_dropped() {
    let mut bench = Bench::new(false, 16, Limits::default());
    let reply = Echo { is_reply: true, ..Echo::default() };
    let frame = build::echo(&Tuple::echo(SERVER.into(), CLIENT.into(), 7), reply, b"");
    assert!(bench.feed_one(OUTSIDE, frame).is_none());
    assert_eq!(bench.dropped(DropReason::NoConnection), 1);
}
