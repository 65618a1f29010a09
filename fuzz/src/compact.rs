//! A peer filter that one side sends and the other receives, on a link that treats datagrams as the fuzzer chooses.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flow::{Instant, NodeId, Tuple};
use replication::compact::{
    Addressee, CellState, CompactConfig, CompactReceiver, CompactSender, ReceiverLimits, Representation, UpdateRule,
    addressee,
};

const PEER: NodeId = NodeId(1);
const CONNECTIONS: usize = 256;
const EVENTS_MAX: usize = 200;
const DATAGRAMS_PER_EVENT_MAX: usize = 16;
/// What the receiver takes: more than the sender's filters have.
const WORDS_MAX: usize = 1 << 14;

#[derive(Arbitrary, Debug)]
enum Event<'a> {
    /// A connection begins, or changes its state.
    Set { number: u8, state: u8 },
    /// One ends.
    End { number: u8 },
    /// Time goes on.
    Wait { milliseconds: u16 },
    /// What a side has to send arrives; some datagrams do not, some come twice, some bytes are changed.
    Deliver { by_receiver: bool, lost: u8, repeated: u8, damage: Option<(u16, u8)> },
    /// A datagram that nobody sent.
    Forge { to_receiver: bool, datagram: &'a [u8] },
    /// A forged one of the present stream.
    ForgeBody { kind: u8, body: &'a [u8] },
    /// Waiting changes are sent whatever the rule.
    Flush,
    /// The peer is away, or back.
    Presence { is_back: bool },
    /// A side is started anew.
    Restart { receiver: bool },
}

struct Sides {
    now: Instant,
    sender: CompactSender,
    receiver: CompactReceiver,
    states: [Option<CellState>; CONNECTIONS],
    starts: u64,
    /// The last datagram that was sent.
    last: Vec<u8>,
}

/// A configuration from the first byte, then events, one behind the other.
pub fn run(data: &[u8]) {
    let Some((choice, events)) = data.split_first() else { return };
    let representation = Representation::ALL[usize::from(*choice) % Representation::ALL.len()];
    let update = match choice / 6 % 3 {
        0 => UpdateRule::Immediate { batch: Duration::from_millis(5), establishment_at_once: choice / 36 % 2 == 1 },
        1 => UpdateRule::Periodic(Duration::from_millis(200)),
        _ => UpdateRule::Threshold { changes_per_mille: 50, at_most_every: Duration::from_millis(100) },
    };
    let budget_bytes_per_second = (choice / 18 % 2 == 1).then_some(20_000);
    let usual = CompactConfig::new(representation, CONNECTIONS as u64, [1, 2]);
    let config = CompactConfig { update, budget_bytes_per_second, symbols: choice / 36 % 2 == 0, ..usual };
    let mut sides = Sides {
        now: Instant::from_millis(1),
        sender: CompactSender::new(config, &[PEER]).expect("it is sound"),
        receiver: CompactReceiver::new(ReceiverLimits { words_max: WORDS_MAX }, 3),
        states: [None; CONNECTIONS],
        starts: 0,
        last: Vec::new(),
    };
    let mut input = Unstructured::new(events);
    for _ in 0..EVENTS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(event) = Event::arbitrary(&mut input) else { break };
        sides.handle(event);
        assert!(sides.receiver.memory_bytes() <= 2 * (WORDS_MAX * 4 + 64), "no more than two filters");
    }
    sides.end_well();
}

impl Sides {
    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Set { number, state } => self.set(number, CellState::from_number(state)),
            Event::End { number } => {
                if let Some(state) = self.states[usize::from(number)].take() {
                    self.sender.remove(&tuple(number), state);
                }
            }
            Event::Wait { milliseconds } => {
                self.now = self.now + Duration::from_millis(milliseconds.into());
                self.sender.handle_timeout(self.now);
                self.receiver.handle_timeout(self.now);
            }
            Event::Deliver { by_receiver, lost, repeated, damage } => {
                self.deliver(by_receiver, (lost, repeated, damage));
            }
            Event::Forge { to_receiver: true, datagram } => {
                let _ = self.receiver.handle_datagram(self.now, datagram);
            }
            Event::Forge { to_receiver: false, datagram } => {
                let _ = self.sender.handle_datagram(self.now, PEER, datagram);
            }
            Event::ForgeBody { kind, body } => {
                let mut datagram = self.last.clone();
                datagram.truncate(6);
                if let Some(of_last) = datagram.get_mut(1) {
                    *of_last = kind;
                }
                datagram.extend_from_slice(body);
                self.hand(&datagram);
            }
            Event::Flush => self.sender.flush(self.now),
            Event::Presence { is_back: true } => self.sender.peer_back(self.now, PEER),
            Event::Presence { is_back: false } => self.sender.peer_lost(PEER),
            Event::Restart { receiver: true } => {
                self.starts += 1;
                self.receiver = CompactReceiver::new(ReceiverLimits { words_max: WORDS_MAX }, 3 + self.starts);
            }
            Event::Restart { receiver: false } => {
                self.starts += 1;
                let config = CompactConfig { secret: [self.starts, 7], ..*self.sender.config() };
                self.sender = CompactSender::new(config, &[PEER]).expect("it was sound before");
                self.states = [None; CONNECTIONS];
            }
        }
    }

    fn set(&mut self, number: u8, state: CellState) {
        match self.states[usize::from(number)].replace(state) {
            Some(before) => self.sender.modify(&tuple(number), before, state),
            None => self.sender.insert(&tuple(number), state),
        }
    }

    fn deliver(&mut self, by_receiver: bool, (lost, repeated, damage): (u8, u8, Option<(u16, u8)>)) {
        let mut datagram = Vec::new();
        for number in 0..DATAGRAMS_PER_EVENT_MAX {
            let is_any = if by_receiver {
                self.receiver.poll_transmit(self.now, &mut datagram)
            } else {
                self.sender.poll_transmit(self.now, PEER, &mut datagram)
            };
            if !is_any {
                return;
            }
            self.last.clone_from(&datagram);
            if let Some((at, value)) = damage {
                let at = usize::from(at) % datagram.len();
                datagram[at] = value;
            }
            let is = |bits: u8| bits >> (number % 8) & 1 == 1;
            if !is(lost) {
                self.hand(&datagram);
            }
            if is(repeated) {
                self.hand(&datagram);
            }
        }
    }

    fn hand(&mut self, datagram: &[u8]) {
        // A datagram may be refused for any reason; what must not happen shows by itself.
        let _ = match addressee(datagram) {
            Some(Addressee::Sender) => self.sender.handle_datagram(self.now, PEER, datagram),
            Some(Addressee::Receiver) => self.receiver.handle_datagram(self.now, datagram),
            None => return,
        };
    }

    /// Whatever was forged and damaged: two sides that start anew after it come to the same.
    fn end_well(&mut self) {
        self.handle(Event::Restart { receiver: false });
        self.handle(Event::Restart { receiver: true });
        self.set(1, CellState::from_number(0x33));
        for _ in 0..200 {
            self.handle(Event::Wait { milliseconds: 10 });
            self.deliver(false, (0, 0, None));
            self.deliver(true, (0, 0, None));
        }
        self.handle(Event::Flush);
        self.deliver(false, (0, 0, None));
        assert!(self.receiver.is_complete() && self.receiver.lookup(&tuple(1)).is_some(), "{:?}", self.sender.status());
        assert_eq!(self.sender.status().drifts, 0);
    }
}

fn tuple(number: u8) -> Tuple {
    Tuple::v4(6, ([10, 0, 0, number].into(), 4000), ([192, 0, 2, 1].into(), 80))
}
