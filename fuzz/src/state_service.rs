//! Messages of the state service, handed to a node that looks up connections.

use flow::{Instant, NodeId, RateLimit, Tuple};
use state_service::index::IndexSecret;
use state_service::lookup::{Held, Limits, Lookup, Outcome, StateService, Table};
use state_service::message::{Key, Message, Side};

/// Words of an index that the fuzzer may cause to be allocated: a node permits more.
const BUCKETS_MAX: u64 = 1 << 12;

/// A table that has every other connection.
struct EveryOther;

impl Table for EveryOther {
    fn hand_over(&mut self, _to: NodeId, key: &Key, state: &mut Vec<u8>) -> bool {
        self.copy(key, state)
    }

    fn copy(&mut self, key: &Key, state: &mut Vec<u8>) -> bool {
        state.push(key.side as u8);
        key.tuple.source_port.is_multiple_of(2)
    }
}

/// Messages, each led by a byte with its length, a millisecond apart, with lookups between them.
pub fn run(data: &[u8]) {
    let limits = Limits {
        packets_max: 16,
        batch_max: 2,
        queries: RateLimit::new(100, 4),
        transmits_max: 64,
        ..Limits::default()
    };
    let mut service = StateService::new(IndexSecret::new([1, 2]), 100, 1, limits).expect("few connections");
    (1..4).for_each(|node| service.set_alive(Instant::ZERO, NodeId(node), true));
    let (mut millis, mut rest) = (1, data);
    let (mut asked, mut answered) = (0_usize, 0);
    while let Some((length, after)) = rest.split_first() {
        let (message, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        millis += 1;
        let now = Instant::from_millis(millis);
        if let Ok(parsed) = Message::parse(message) {
            let mut encoded = Vec::new();
            parsed.encode(&mut encoded);
            assert_eq!(encoded, message, "each message has one form");
            if matches!(&parsed, Message::Index(part) if part.shape.buckets > BUCKETS_MAX) {
                continue;
            }
        }
        let _ = service.handle_peer(now, NodeId(1 + length % 3), message, &mut EveryOther);
        let tuple = Tuple::v4(6, (u32::from(length % 8).into(), 1), (1.into(), 2));
        let side = Side::ALL[usize::from(length % 2)];
        asked += 1;
        match service.lookup(now, Key { side, tuple }, asked, Held::Nothing, length.is_multiple_of(16)) {
            Lookup::Waits => {}
            Lookup::Begin(_) | Lookup::Dropped(..) => answered += 1,
            other => panic!("the table has nothing: {other:?}"),
        }
        service.handle_timeout(now);
        assert!(service.poll_timeout().is_none_or(|at| at > now), "all that was due has been done");
        assert!(service.waiting() <= limits.packets_max);
        answered += drained(now, &mut service);
    }
    for _ in 0..200 {
        millis += 10;
        let now = Instant::from_millis(millis);
        service.handle_timeout(now);
        answered += drained(now, &mut service);
    }
    assert_eq!((asked, service.waiting()), (answered, 0), "every packet has one result");
}

/// Takes what the service has done. Returns the packets among it.
fn drained(now: Instant, service: &mut StateService<usize>) -> usize {
    let mut bytes = Vec::new();
    while service.poll_transmit(now, &mut bytes).is_some() {
        Message::parse(&bytes).expect("what is sent can be read");
        bytes.clear();
    }
    let mut packets = 0;
    while let Some(outcome) = service.poll_outcome() {
        match outcome {
            Outcome::Pulled { packets: released, .. }
            | Outcome::Copied { packets: released, .. }
            | Outcome::Begin { packets: released, .. }
            | Outcome::Dropped { packets: released, .. } => {
                packets += released.len();
            }
            Outcome::Forged { .. } | Outcome::Answer { .. } | Outcome::Loads { .. } => {}
        }
    }
    packets
}
