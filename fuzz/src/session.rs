//! Two replication sessions that send each other numbers, on a link that treats datagrams as the fuzzer chooses.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flow::{Instant, NodeId};
use replication::{ApplyError, Handle, Kind, Session, SessionConfig, Store};

pub(crate) const SLOTS: u32 = 8;
const EVENTS_MAX: usize = 200;
const DATAGRAMS_PER_EVENT_MAX: usize = 16;

/// The connections of a side are bare numbers: its own, and copies of the other's.
pub(crate) struct Numbers {
    own: Vec<Option<u8>>,
    copies: Vec<Option<u8>>,
}

impl Store for Numbers {
    fn encode(&mut self, _: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
        let Some(number) = self.own[handle.0 as usize] else { return false };
        out.extend_from_slice(&[handle.0 as u8, number]);
        true
    }

    fn apply(&mut self, _: Instant, _: NodeId, _: Kind, attributes: &[u8]) -> Result<(), ApplyError> {
        let [slot, number] = attributes else { return Err(ApplyError::Value(0)) };
        *self.copies.get_mut(usize::from(*slot)).ok_or(ApplyError::Full)? = Some(*number);
        Ok(())
    }

    fn delete(&mut self, _: Instant, _: NodeId, attributes: &[u8]) -> Result<(), ApplyError> {
        let [slot] = attributes else { return Err(ApplyError::Value(0)) };
        *self.copies.get_mut(usize::from(*slot)).ok_or(ApplyError::Full)? = None;
        Ok(())
    }

    fn find(&self, attributes: &[u8]) -> Option<Handle> {
        let [slot] = attributes else { return None };
        let handle = Handle((*slot).into());
        self.own.get(handle.0 as usize)?.map(|_| handle)
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        (from.0..SLOTS).find(|slot| self.own[*slot as usize].is_some()).map(Handle)
    }
}

#[derive(Arbitrary, Debug)]
enum Event<'a> {
    /// A connection changes.
    Change { side: bool, slot: u8, number: u8 },
    /// One ends.
    End { side: bool, slot: u8 },
    /// Time goes on.
    Wait { milliseconds: u16 },
    /// What a side has to send arrives; some datagrams do not, some come twice, some bytes are changed.
    Deliver { from: bool, lost: u8, repeated: u8, damage: Option<(u16, u8)> },
    /// A datagram that nobody sent.
    Forge { to: bool, datagram: &'a [u8] },
    /// A forged one that at least looks like one of the other side's.
    ForgeBody { to: bool, header_flags: u8, body: &'a [u8] },
    /// A side has lost its copies and asks for everything.
    Resync { side: bool },
    /// A side leaves.
    Close { side: bool },
}

struct Side {
    session: Session,
    numbers: Numbers,
}

impl Side {
    fn new(local: u8, peer: u8) -> Self {
        let config = SessionConfig { connections_max: SLOTS, ..SessionConfig::default() };
        let session = Session::new(config, NodeId(local), NodeId(peer), u64::from(local) + 7).expect("it is sound");
        Self { session, numbers: Numbers { own: vec![None; SLOTS as usize], copies: vec![None; SLOTS as usize] } }
    }
}

/// The events, one behind the other.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let mut sides = [Side::new(0, 1), Side::new(1, 0)];
    let mut now = Instant::from_millis(1);
    let mut last = Vec::new();
    for _ in 0..EVENTS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(event) = Event::arbitrary(&mut input) else { return };
        handle(&mut sides, &mut now, &mut last, event);
        for side in &mut sides {
            side.session.handle_timeout(now);
            while side.session.poll_event().is_some() {}
        }
    }
}

fn handle(sides: &mut [Side; 2], now: &mut Instant, last: &mut Vec<u8>, event: Event<'_>) {
    match event {
        Event::Change { side, slot, number } => {
            let side = &mut sides[usize::from(side)];
            let slot = u32::from(slot) % SLOTS;
            side.numbers.own[slot as usize] = Some(number);
            side.session.mark_changed(Handle(slot));
        }
        Event::End { side, slot } => {
            let side = &mut sides[usize::from(side)];
            let slot = u32::from(slot) % SLOTS;
            if side.numbers.own[slot as usize].take().is_some() {
                side.session.mark_deleted(Handle(slot), &[slot as u8]);
            }
        }
        Event::Wait { milliseconds } => *now = *now + Duration::from_millis(milliseconds.into()),
        Event::Deliver { from, lost, repeated, damage } => {
            deliver(sides, *now, last, usize::from(from), (lost, repeated, damage));
        }
        Event::Forge { to, datagram } => hand(&mut sides[usize::from(to)], *now, datagram),
        Event::ForgeBody { to, header_flags, body } => {
            let mut datagram = last.clone();
            datagram.truncate(replication::message::HEADER_BYTES);
            if let Some(flags) = datagram.get_mut(2) {
                *flags = header_flags;
            }
            datagram.extend_from_slice(body);
            hand(&mut sides[usize::from(to)], *now, &datagram);
        }
        Event::Resync { side } => sides[usize::from(side)].session.request_resync(),
        Event::Close { side } => sides[usize::from(side)].session.close(),
    }
}

fn deliver(
    sides: &mut [Side; 2],
    now: Instant,
    last: &mut Vec<u8>,
    from: usize,
    (lost, repeated, damage): (u8, u8, Option<(u16, u8)>),
) {
    let mut datagram = Vec::new();
    for number in 0..DATAGRAMS_PER_EVENT_MAX {
        let sender = &mut sides[from];
        if !sender.session.poll_transmit(now, &mut sender.numbers, &mut datagram) {
            return;
        }
        last.clone_from(&datagram);
        if let Some((at, value)) = damage {
            let at = usize::from(at) % datagram.len();
            datagram[at] = value;
        }
        let is = |bits: u8| bits >> (number % 8) & 1 == 1;
        if !is(lost) {
            hand(&mut sides[1 - from], now, &datagram);
        }
        if is(repeated) {
            hand(&mut sides[1 - from], now, &datagram);
        }
    }
}

fn hand(side: &mut Side, now: Instant, datagram: &[u8]) {
    // A datagram may be refused for any reason; what must not happen shows by itself.
    let _ = side.session.handle_datagram(now, datagram, &mut side.numbers);
}
