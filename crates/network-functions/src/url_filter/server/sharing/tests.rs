//! Nodes that share answers over links which lose some.

use std::format;
use std::vec;

use proptest::prelude::*;

use super::*;
use crate::shared_values::is_shared_values;

const RUN: [u64; 3] = [11, 22, 33];
const LIFETIME: Duration = Duration::from_secs(3600);

fn answer(number: usize) -> SharedAnswer {
    let target = format!("host-{number}.example");
    SharedAnswer { target, category: "ads".into(), scope: Scope::Host, age: Duration::ZERO }
}

fn at_ms(ms: u64) -> Instant {
    Instant::from_millis(1_000_000 + ms)
}

fn node(number: usize) -> NodeId {
    NodeId(number as u8)
}

/// Nodes that share what they have, and what each of them has received.
struct Cluster {
    nodes: Vec<(Sharing, Vec<SharedAnswer>)>,
    runs: Vec<u64>,
    now_ms: u64,
    datagrams: usize,
}

impl Cluster {
    fn of(count: usize) -> Self {
        let nodes = (0..count).map(|number| (Sharing::new(RUN[number]), Vec::new())).collect();
        Self { nodes, runs: RUN[..count].to_vec(), now_ms: 0, datagrams: 0 }
    }

    fn ask(&mut self, at: usize, numbers: core::ops::Range<usize>) {
        for number in numbers {
            self.nodes[at].0.note(at_ms(self.now_ms), answer(number), None);
        }
    }

    /// A tick of ten milliseconds; every datagram for which `is_lost` is true is.
    fn tick(&mut self, is_lost: &mut impl FnMut() -> bool) {
        self.now_ms += 10;
        let now = at_ms(self.now_ms);
        for _ in 0..4 {
            let count = self.nodes.len();
            for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
                let mut datagram = Vec::new();
                while from != to && self.nodes[from].0.poll(now, (node(to), self.runs[to]), &mut datagram) {
                    assert!(datagram.len() <= DATAGRAM_BYTES_MAX && is_shared_values(&datagram));
                    self.datagrams += 1;
                    if !is_lost() {
                        let answers = self.nodes[to].0.handle(now, node(from), &datagram).expect("sound");
                        for answer in answers {
                            self.nodes[to].0.note(now, answer.clone(), Some(node(from)));
                            self.nodes[to].1.push(answer);
                        }
                    }
                    datagram.clear();
                }
            }
        }
    }

    fn run(&mut self, ticks: usize) {
        (0..ticks).for_each(|_| self.tick(&mut || false));
    }

    fn received(&self, at: usize) -> Vec<&str> {
        self.nodes[at].1.iter().map(|answer| answer.target.as_str()).collect()
    }

    fn restart(&mut self, at: usize) {
        self.runs[at] += 100;
        self.nodes[at] = (Sharing::new(self.runs[at]), Vec::new());
    }
}

fn targets(numbers: core::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| answer(number).target).collect()
}

#[test]
fn a_peer_receives_each_answer_once_and_sends_none_back() {
    let mut cluster = Cluster::of(2);
    cluster.ask(0, 0..100);
    cluster.run(100);
    cluster.ask(1, 100..120);
    cluster.ask(0, 120..121);
    cluster.run(10);
    assert_eq!(cluster.received(0), targets(100..120));
    assert_eq!(cluster.received(1), [targets(0..100), targets(120..121)].concat());
    let datagrams = cluster.datagrams;
    cluster.run(100);
    assert_eq!(cluster.datagrams, datagrams, "there is nothing to send");
}

#[test]
fn a_node_that_starts_is_filled_with_what_others_have_asked() {
    let mut cluster = Cluster::of(2);
    cluster.ask(0, 0..50);
    cluster.run(50);
    // The node that asked restarts, and has it from its peer.
    cluster.restart(0);
    cluster.run(50);
    assert_eq!(cluster.received(0), targets(0..50));
    cluster.restart(1);
    cluster.run(50);
    assert_eq!(cluster.received(1), targets(0..50));
}

#[test]
fn a_fill_is_sent_within_its_rate() {
    let mut cluster = Cluster::of(2);
    cluster.ask(0, 0..80_000);
    cluster.run(100);
    let datagrams_max = 2 * (DATAGRAMS_PER_S + BURST) as usize;
    assert!(cluster.datagrams <= datagrams_max && cluster.datagrams > datagrams_max / 2, "{}", cluster.datagrams);
    cluster.run(1400);
    assert_eq!(cluster.received(1).len(), 80_000);
}

#[test]
fn the_log_is_bounded_and_old_answers_leave_it() {
    let mut sharing = Sharing::new(1);
    for number in 0..100_000 {
        sharing.note(at_ms(number as u64), answer(number), None);
        assert!(sharing.bytes() <= LOG_BYTES_MAX);
    }
    assert!(sharing.start > 0);
    // A peer begins with what is left.
    let mut datagram = Vec::new();
    assert!(sharing.poll(at_ms(100_000), (node(1), 2), &mut datagram));
    let Ok(Message::Answers { start, first, .. }) = Message::decode(&datagram) else { panic!("answers") };
    assert_eq!((start, first), (sharing.start, sharing.start));
    sharing.expire(at_ms(100_000 + 3_600_000), LIFETIME);
    assert_eq!((sharing.log.len(), sharing.bytes()), (0, 0));
}

#[test]
fn an_answer_has_its_age_with_it() {
    let mut sharing = Sharing::new(1);
    sharing.note(at_ms(0), SharedAnswer { age: Duration::from_secs(7), ..answer(0) }, Some(node(2)));
    sharing.note(at_ms(5000), answer(1), None);
    let mut datagram = Vec::new();
    assert!(sharing.poll(at_ms(20_000), (node(1), 2), &mut datagram));
    let Ok(Message::Answers { answers, .. }) = Message::decode(&datagram) else { panic!("answers") };
    assert_eq!(answers.iter().map(|answer| answer.age.as_secs()).collect::<Vec<_>>(), [27, 15]);
}

#[test]
fn malformed_datagrams_are_refused() {
    let mut sound = Vec::new();
    Message::Answers { run: 1, start: 2, first: 3, next: 4, answers: vec![answer(1)] }.encode(&mut sound);
    for length in 0..sound.len() {
        let whole_head = 2 + 4 * 8;
        assert_eq!(Message::decode(&sound[..length]).is_ok(), length == whole_head, "{length}");
    }
    let changed = |at: usize, byte: u8| {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        Message::decode(&bytes)
    };
    assert_eq!(changed(0, VERSION + 1), Err(SharingError::Version(VERSION + 1)));
    for (at, byte) in [
        (1, 9),
        (17, 9),
        (25, 9),
        (33, 0),
        (38, 2),
        (40, 99),
        (41, b' '),
        (sound.len() - 1, b'\n'),
        (sound.len() - 1, b'E'),
    ] {
        assert!(matches!(changed(at, byte), Err(SharingError::Malformed(_))), "{at} {byte}");
    }
}

fn answers() -> impl Strategy<Value = SharedAnswer> {
    ("[a-z0-9-]{1,20}(\\.[a-z]{1,9}){0,3}(/[!-~]{1,40}){0,3}", "[!-~]{0,64}", any::<bool>(), any::<u32>()).prop_map(
        |(target, category, is_host, age_s)| SharedAnswer {
            target,
            category,
            scope: if is_host { Scope::Host } else { Scope::Path },
            age: Duration::from_secs(age_s.into()),
        },
    )
}

proptest! {
    #[test]
    fn messages_are_read_as_they_were_written(answers in proptest::collection::vec(answers(), 0..9), run: u64, start in 0..u64::MAX / 2, of: u64) {
        let (first, next) = (start + 1, start + 1 + answers.len() as u64);
        for message in [Message::Answers { run, start, first, next, answers }, Message::Acknowledgement { of, run, next }] {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = Message::decode(&[&[VERSION][..], &bytes].concat());
        let _ = Message::decode(&bytes);
    }

    /// However datagrams are lost, in the end each node has what each other one has asked.
    #[test]
    fn nodes_have_all_answers_though_datagrams_are_lost(lost in proptest::collection::vec(any::<bool>(), 300), restarts in 0..40_usize) {
        let mut cluster = Cluster::of(3);
        let mut lost = lost.into_iter();
        for round in 0..40 {
            (0..3).for_each(|at| cluster.ask(at, 1000 * at + 3 * round..1000 * at + 3 * round + 3));
            cluster.tick(&mut || lost.next().unwrap_or(false));
            if round == restarts {
                cluster.restart(2);
            }
        }
        cluster.run(200);
        for at in 0..3 {
            let received: std::collections::BTreeSet<&str> = cluster.received(at).into_iter().collect();
            for other in (0..3).filter(|other| *other != at) {
                let expected = if other == 2 { 3 * (restarts + 1)..120 } else { 0..120 };
                for target in targets(1000 * other + expected.start..1000 * other + expected.end) {
                    prop_assert!(received.contains(target.as_str()), "{} lacks {}", at, target);
                }
            }
        }
    }
}
