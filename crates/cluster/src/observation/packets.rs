//! Packets that are watched, from their arrival to their outcome.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use flow::table::Table;
use flow::wire::{self, Headers, Packet, Parsed};
use flow::{Disposition, DropReason, Frame, PacketBatch, PortId, Tuple, WorkerId};
use network_functions::chain::{Call, CallOutcome, Chain, Watch};

use super::{Arrival, CapturedFrame, Observation, Outcome, PacketTrace, Point, Sight, Step, Subject, WATCHES_MAX};

/// A bit for each watch.
type WatchSet = u8;
const _: () = assert!(WATCHES_MAX <= WatchSet::BITS as usize);

/// Who looks at a frame of the batch.
#[derive(Default)]
struct Mark {
    watches: WatchSet,
    trace: Option<Box<PacketTrace>>,
}

/// Who looks at which frame of the batch.
#[derive(Default)]
pub(super) struct Marks {
    frames: Vec<Mark>,
    /// The frame that is being handled.
    current: usize,
    /// A function's counters before it was called.
    counters: Vec<u64>,
}

impl Marks {
    fn current(&mut self) -> Option<&mut Mark> {
        let current = self.current;
        self.frames.get_mut(current)
    }
}

fn arrival(frame: &Frame<'_>) -> Arrival {
    match wire::parse(frame) {
        Err(reason) => Arrival::Refused(reason),
        Ok(Parsed::Arp(_)) => Arrival::Arp,
        Ok(Parsed::Ip(headers)) => Arrival::Ip(headers),
    }
}

fn captured(frame: &Frame<'_>, snapshot_bytes: u32, at: flow::Instant, port: PortId) -> CapturedFrame {
    let bytes = frame.bytes();
    let kept = bytes.len().min(usize::try_from(snapshot_bytes).unwrap_or(usize::MAX));
    CapturedFrame { at, port, length_bytes: length_bytes(frame), bytes: bytes[..kept].to_vec(), dropped: None }
}

fn length_bytes(frame: &Frame<'_>) -> u32 {
    u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX)
}

impl Observation {
    /// A batch came in: finds out who looks at which of its frames.
    #[cold]
    pub(crate) fn note_arrivals(&mut self, batch: &PacketBatch<'_>, table: &Table) {
        let mut frames = core::mem::take(&mut self.marks.frames);
        frames.clear();
        for frame in batch {
            let mark = self.mark_of(frame, table);
            frames.push(mark);
        }
        self.marks.frames = frames;
    }

    fn mark_of(&mut self, frame: &Frame<'_>, table: &Table) -> Mark {
        let arrival = arrival(frame);
        let mut mark = Mark::default();
        let find = |tuple: &Tuple| {
            let (slot, direction) = table.lookup(table.hash(tuple), tuple)?;
            Some((table.get(slot)?, direction))
        };
        for index in 0..self.watches.len() {
            let (Subject::Packets(filter) | Subject::Frames { filter, .. }) = &self.watches[index].subject else {
                continue;
            };
            if self.watches[index].left == 0 || !filter.matches_arrival(frame, &arrival, find) {
                continue;
            }
            mark.watches |= 1 << index;
            match &self.watches[index].subject {
                Subject::Frames { at: Point::Ingress, snapshot_bytes, .. } => {
                    let frame = captured(frame, *snapshot_bytes, self.now, frame.ingress);
                    self.push(index, Sight::Frame(frame));
                }
                Subject::Packets(_) if mark.trace.is_none() => {
                    mark.trace = Some(Box::new(PacketTrace {
                        at: self.now,
                        ingress: frame.ingress,
                        frame_bytes: length_bytes(frame),
                        arrival,
                        steps: Vec::new(),
                        outcome: Outcome::Consumed,
                    }));
                }
                _ => {}
            }
        }
        mark
    }

    /// A frame of the batch, by its place, is being handled.
    #[cold]
    pub(crate) fn attend_to(&mut self, frame: usize) {
        self.marks.current = frame;
        let is_watched = self.looks_at_packets && self.marks.current().is_some_and(|mark| mark.watches != 0);
        self.attends = self.latency.takes_time_of_packet() | is_watched;
    }

    /// Something was done with the packet that is being handled.
    #[cold]
    pub(crate) fn step(&mut self, step: Step) {
        if let Some(Mark { trace: Some(trace), .. }) = self.marks.current() {
            trace.step(step);
        }
    }

    /// The batch has been handled; the outcomes of its frames are decided. `elsewhere` returns to which other worker a packet
    /// was handed over before it was looked up.
    #[cold]
    pub(crate) fn note_outcomes(
        &mut self,
        batch: &PacketBatch<'_>,
        elsewhere: impl Fn(Option<&Headers>) -> Option<WorkerId>,
    ) {
        self.attends = false;
        let mut frames = core::mem::take(&mut self.marks.frames);
        for (frame, mark) in batch.iter().zip(&mut frames).filter(|(_, mark)| mark.watches != 0) {
            let dropped = match frame.disposition {
                Disposition::Drop(reason) => Some(reason),
                Disposition::Undecided => Some(DropReason::Undecided),
                Disposition::Transmit(_) | Disposition::Consumed => None,
            };
            let trace = mark.trace.take().map(|mut trace| {
                trace.outcome = outcome(frame);
                if let Some(worker) = handed_over(&trace, &elsewhere) {
                    trace.step(Step::HandedOver(worker));
                }
                trace
            });
            for index in (0..self.watches.len()).filter(|index| mark.watches & (1 << index) != 0) {
                if let Some(sight) = self.sight_of_outcome(index, frame, dropped, trace.as_deref()) {
                    self.push(index, sight);
                }
            }
        }
        frames.clear();
        self.marks.frames = frames;
    }

    /// What a watch receives of a frame when its outcome is known.
    fn sight_of_outcome(
        &self,
        watch: usize,
        frame: &Frame<'_>,
        dropped: Option<DropReason>,
        trace: Option<&PacketTrace>,
    ) -> Option<Sight> {
        match &self.watches[watch].subject {
            Subject::Packets(filter) => {
                trace.filter(|_| filter.matches_outcome(dropped)).map(|trace| Sight::Packet(Box::new(trace.clone())))
            }
            Subject::Frames { at: Point::Egress, snapshot_bytes, .. } => {
                let Disposition::Transmit(port) = frame.disposition else { return None };
                Some(Sight::Frame(captured(frame, *snapshot_bytes, self.now, port)))
            }
            Subject::Frames { at: Point::Drop, filter, snapshot_bytes } => {
                let reason = dropped.filter(|_| filter.matches_outcome(dropped))?;
                let frame = captured(frame, *snapshot_bytes, self.now, frame.ingress);
                Some(Sight::Frame(CapturedFrame { dropped: Some(reason), ..frame }))
            }
            Subject::Frames { .. } | Subject::Connections(_) => None,
        }
    }

    /// The observer while the chain handles the packet, whose tuple is `before`.
    #[cold]
    pub(crate) const fn function_observer<'a>(&'a mut self, chain: &'a Chain, before: Tuple) -> FunctionObserver<'a> {
        FunctionObserver { observation: self, chain, before, began_at_ns: None }
    }

    /// A function has handled the packet: captures it for those who want it from there.
    fn capture_behind(&mut self, function: &str, packet: &Packet<'_, '_>) {
        let Some(watches) = self.marks.current().map(|mark| mark.watches) else { return };
        for index in (0..self.watches.len()).filter(|index| watches & (1 << index) != 0) {
            if let Subject::Frames { at: Point::After(name), snapshot_bytes, .. } = &self.watches[index].subject
                && name == function
            {
                let frame = captured(packet.frame, *snapshot_bytes, self.now, packet.frame.ingress);
                self.push(index, Sight::Frame(frame));
            }
        }
    }
}

fn handed_over(trace: &PacketTrace, elsewhere: impl Fn(Option<&Headers>) -> Option<WorkerId>) -> Option<WorkerId> {
    match (&trace.arrival, trace.outcome) {
        _ if !trace.steps.is_empty() => None,
        (Arrival::Ip(headers), Outcome::Consumed) => elsewhere(Some(headers)),
        (Arrival::Arp, Outcome::Consumed) => elsewhere(None),
        _ => None,
    }
}

fn outcome(frame: &Frame<'_>) -> Outcome {
    match frame.disposition {
        Disposition::Undecided => Outcome::Dropped(DropReason::Undecided),
        Disposition::Drop(reason) => Outcome::Dropped(reason),
        Disposition::Consumed => Outcome::Consumed,
        Disposition::Transmit(port) => {
            let ip = match arrival(frame) {
                Arrival::Ip(headers) => Some((headers.tuple, headers.ttl)),
                Arrival::Refused(_) | Arrival::Arp => None,
            };
            Outcome::Sent { port, frame_bytes: length_bytes(frame), ip }
        }
    }
}

/// Looks on while functions are called for a packet that is watched, or whose functions' time is taken.
pub(crate) struct FunctionObserver<'a> {
    observation: &'a mut Observation,
    chain: &'a Chain,
    before: Tuple,
    began_at_ns: Option<u64>,
}

impl Watch for FunctionObserver<'_> {
    fn before_call(&mut self, counters: &[u64]) {
        let marks = &mut self.observation.marks;
        if marks.current().is_some_and(|mark| mark.trace.is_some()) {
            marks.counters.clear();
            marks.counters.extend_from_slice(counters);
        }
        // Last, so that the copy is not counted as the function's time.
        self.began_at_ns = self.observation.latency.read_stopwatch();
    }

    fn after_call(&mut self, call: &Call<'_, '_>, packet: &Packet<'_, '_>) {
        let ended_at_ns = self.began_at_ns.and_then(|_| self.observation.latency.read_stopwatch());
        let chain = self.chain;
        let Some((name, counter_names)) = chain.function(call.function) else { return };
        let begins = matches!(call.outcome, CallOutcome::Began(_));
        if let Some((began_at_ns, ended_at_ns)) = self.began_at_ns.zip(ended_at_ns) {
            self.observation.latency.note_call(name, begins, ended_at_ns.saturating_sub(began_at_ns));
        }
        let after = if begins { call.outgoing() } else { packet.headers.tuple };
        let before = core::mem::replace(&mut self.before, after);
        let marks = &self.observation.marks;
        if marks.frames.get(marks.current).is_some_and(|mark| mark.trace.is_some()) {
            let moved = marks.counters.iter().zip(call.counters()).map(|(before, after)| before != after);
            let counted = counter_names.zip(moved).filter(|(_, moved)| *moved).map(|(name, _)| name.to_string());
            let counted = counted.collect();
            self.observation.step(Step::Function { name, outcome: call.outcome, counted, before, after });
        }
        if !begins {
            self.observation.capture_behind(name, packet);
        }
    }
}
