//! What compact replication costs the processor, and how many bytes: a table of connections that come, change and go at a
//! steady rate, replicated to one peer on a link of 0.2 ms.
//!
//! `cargo run --release -p replication --example compact_cost -- [connections] [beginning a second]`

use std::time::{Duration, Instant as Clock};

use flow::{Instant, NodeId, Tuple};
use replication::compact::{
    CellState, CompactConfig, CompactReceiver, CompactSender, ReceiverLimits, Representation, UpdateRule,
};

const PEER: NodeId = NodeId(1);
const SECONDS: u64 = 5;
const STEP: Duration = Duration::from_millis(1);
const SYN_SENT: CellState = CellState::from_number(1);
const ESTABLISHED: CellState = CellState::from_number(0x33);

fn tuple(number: u64) -> Tuple {
    let [_, _, _, _, a, b, c, d] = number.to_be_bytes();
    Tuple::v4(6, ([10, b, c, d].into(), 1024 + u16::from(a)), ([192, 0, 2, 1].into(), 443))
}

struct Link {
    now: Instant,
    sender: CompactSender,
    receiver: CompactReceiver,
    /// What the sender said a step ago.
    in_flight: Vec<Vec<u8>>,
    changing: Duration,
    sending: Duration,
    receiving: Duration,
}

impl Link {
    #[expect(clippy::disallowed_methods, reason = "it measures")]
    fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
        let begin = Clock::now();
        let result = work();
        *total += begin.elapsed();
        result
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        let Self { now, sender, receiver, in_flight, sending, receiving, .. } = self;
        let mut answers = Vec::new();
        Self::timed(receiving, || {
            for datagram in in_flight.drain(..) {
                receiver.handle_datagram(*now, &datagram).expect("the sender's own");
            }
            let mut answer = Vec::new();
            while receiver.poll_transmit(*now, &mut answer) {
                answers.push(answer.clone());
            }
        });
        Self::timed(sending, || {
            for answer in answers {
                sender.handle_datagram(*now, PEER, &answer).expect("the receiver's own");
            }
            let mut datagram = Vec::new();
            while sender.poll_transmit(*now, PEER, &mut datagram) {
                in_flight.push(datagram.clone());
            }
        });
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let connections = arguments.next().unwrap_or(1_000_000);
    let rate = arguments.next().unwrap_or(20_000);
    println!("{connections} connections, {rate} begin and end a second, each replicated three times; {SECONDS} s");
    println!(
        "{:24} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "", "change ns", "send ns", "recv ns", "bytes/conn.", "MB, sender"
    );
    for representation in Representation::ALL {
        let config = CompactConfig {
            update: UpdateRule::Immediate { batch: Duration::from_millis(10), establishment_at_once: false },
            ..CompactConfig::new(representation, connections + rate, [1, 2])
        };
        let mut link = Link {
            now: Instant::from_millis(1),
            sender: CompactSender::new(config, &[PEER]).expect("a configuration that is sound"),
            receiver: CompactReceiver::new(ReceiverLimits::default(), 3),
            in_flight: Vec::new(),
            changing: Duration::ZERO,
            sending: Duration::ZERO,
            receiving: Duration::ZERO,
        };
        (0..connections).for_each(|number| link.sender.insert(&tuple(number), ESTABLISHED));
        while !link.receiver.is_complete() {
            link.step();
        }
        let before = link.sender.status();
        (link.sending, link.receiving) = (Duration::ZERO, Duration::ZERO);
        let per_step = rate / 1000;
        let mut number = connections;
        for _ in 0..SECONDS * 1000 {
            let Link { sender, changing, .. } = &mut link;
            Link::timed(changing, || {
                for number in number..number + per_step {
                    sender.insert(&tuple(number), SYN_SENT);
                    // Twenty milliseconds old; those of the beginning are established.
                    let answered = number - per_step * 20;
                    if answered >= connections {
                        sender.modify(&tuple(answered), SYN_SENT, ESTABLISHED);
                    }
                    sender.remove(&tuple(number - connections), ESTABLISHED);
                }
            });
            number += per_step;
            link.step();
        }
        let after = link.sender.status();
        let lives = (per_step * SECONDS * 1000) as f64;
        let nanos = |total: Duration| total.as_nanos() as f64 / lives / 3.0;
        println!(
            "{:24} {:10.0} {:10.0} {:10.0} {:12.1} {:12.1}",
            representation.name(),
            nanos(link.changing),
            nanos(link.sending),
            nanos(link.receiving),
            (after.bytes - before.bytes) as f64 / lives,
            after.memory_bytes as f64 / 1e6,
        );
    }
}
