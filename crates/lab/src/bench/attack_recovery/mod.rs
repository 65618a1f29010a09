//! `mainstay bench attack-recovery`: what a flood of bogus replies after a take-over costs the legitimate traffic.
//!
//! A node has taken over from one that advertised its connections by a filter: half of them have come back and send, the others
//! are silent. Source NAT is computed with the smallest blocks, so that a reply of no connection may belong to 512 inside ports
//! of a host. Then replies of no connection come, each from a server of its own, so that no limit of a source holds them up.
//!
//! Both sides are measured in turns on the same [`Pipeline`]: the legitimate packets alone, and with the flood between them. The
//! node's clock is the processor time that it has spent, so that the flood has its rate whatever else runs on the machine: for
//! each second that the node works, so many bogus replies come. The share is the legitimate throughput with the flood over that
//! without, the median of the rounds. It counts what a bogus reply costs in any case (it is parsed, looked up and dropped), too.

mod report;
mod setting;

use std::time::Duration;

use cluster::forwarding::Admission;
use cluster::pipeline::{Edge, FilterMatch, Pipeline, RecoveryConfig, ReplicaExpiry};
use flow::conntrack::{Tracker, TrackerConfig};
use flow::wire::{Packet, build, tcp_flags};
use flow::{BATCH_FRAMES_MAX, Disposition, Frame, Instant, PacketBatch, PortId, Tuple};
use packet_io::usage::thread_cpu_time;
use replication::compact::CompactReceiver;

use self::report::Report;
use self::setting::{HASH_KEY, INSIDE, NODES, OUTSIDE};
use super::BenchError;
use super::rounds::{self, Rounds};
use crate::args::BenchAttackRecoveryArgs;
use console::Progress;

/// Bytes that a frame has room for.
const PLACE_BYTES: usize = 128;
/// Bogus replies that come together.
const BURST: usize = BATCH_FRAMES_MAX;
/// Bursts that wait between two batches of legitimate packets, at most: a network card's queue is no longer.
const BURSTS_WAITING_MAX: usize = 8;
/// What a legitimate packet carries.
const PAYLOAD: [u8; 10] = [0x5a; 10];

/// Measures and prints.
///
/// # Errors
/// Legitimate packets are lost, or the result cannot be printed.
pub fn run(args: &BenchAttackRecoveryArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// What was measured: of each side legitimate packets a second, without the flood and with it.
#[derive(Default)]
struct Figures {
    legitimate_per_s: [Rounds; 2],
    flood: Flooded,
}

/// What the flood was, over all rounds.
#[derive(Clone, Copy, Default)]
struct Flooded {
    bogus: u64,
    spent: Duration,
    over_budget: u64,
    tuples: u64,
}

fn measure(args: &BenchAttackRecoveryArgs) -> Result<Report, BenchError> {
    let progress = Progress::new();
    progress.show("restoring connections");
    let mut node = Recovering::start(args.connections)?;
    let mut figures = Figures::default();
    rounds::repeat(&progress, "flood", args.rounds, |round| {
        for is_flooded in rounds::turns(round, [false, true]) {
            let rate = if is_flooded { args.rate } else { 0 };
            let per_s = node.pass(args.packets, rate, &mut figures.flood)?;
            figures.legitimate_per_s[usize::from(is_flooded)].push(per_s);
        }
        Ok::<_, BenchError>(())
    })?;
    let counters = node.pipeline.recovery.counters();
    (figures.flood.over_budget, figures.flood.tuples) = (counters.over_budget, counters.tuples);
    Ok(Report::new(args, &figures))
}

/// A node in the midst of a recovery.
struct Recovering {
    pipeline: Pipeline,
    around: Around,
    /// The node's clock: processor time that it has spent.
    now: Instant,
    /// Tuples of the connections that have come back, as packets come in, and where.
    legitimate: Vec<(PortId, Tuple)>,
    next_legitimate: usize,
    /// Numbers the bogus replies.
    next_bogus: u32,
    places: Box<[[u8; PLACE_BYTES]; BATCH_FRAMES_MAX]>,
}

/// What lies around the pipeline: two links, and the filter of the node that is gone.
struct Around {
    filter: CompactReceiver,
}

impl Edge for Around {
    fn handle_arp(&mut self, _: Instant, _: &mut Frame<'_>, _: u16) -> Disposition {
        Disposition::Consumed
    }

    fn admit(&mut self, _: Instant, _: &Packet<'_, '_>) -> Admission {
        Admission::Transit
    }

    fn handle_local(&mut self, _: Instant, _: &mut Packet<'_, '_>) -> Disposition {
        Disposition::Consumed
    }

    fn recovery_lookup(&self, original: &Tuple) -> Option<FilterMatch> {
        let known = self.filter.lookup(original)?;
        let state = known.state.map(|cell| (cell.protocol_state(original.protocol), cell.connection_flags()));
        Some(FilterMatch { owner: NODES[1], state, class: None, is_of_hosts: false })
    }

    fn forward(&mut self, _: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        Disposition::Transmit(PortId(1 - packet.frame.ingress.0))
    }
}

impl Recovering {
    /// A node to which `connections` connections have come back, and which waits for as many more.
    fn start(connections: u32) -> Result<Self, BenchError> {
        let now = Instant::from_millis(1000);
        let filter = setting::filter(now, 2 * connections)?;
        let tracker = Tracker::new(TrackerConfig::default());
        // A false hit needs room, too.
        let connections_max = 2 * connections + 1024;
        let mut pipeline = Pipeline::new(NODES[0], connections_max, HASH_KEY, tracker, setting::chain());
        let _ = pipeline.recovery.begin(now, &RecoveryConfig::default(), u64::from(2 * connections));
        let mut node = Self {
            pipeline,
            around: Around { filter },
            now,
            legitimate: (0..connections).map(|number| (INSIDE, setting::original(number))).collect(),
            next_legitimate: 0,
            next_bogus: 0,
            places: Box::new([[0; PLACE_BYTES]; BATCH_FRAMES_MAX]),
        };
        for from in (0..node.legitimate.len()).step_by(BATCH_FRAMES_MAX) {
            let count = BATCH_FRAMES_MAX.min(node.legitimate.len() - from);
            let _ = node.pass_legitimate(count)?;
        }
        let there = node.pipeline.table().len();
        if there != connections {
            return Err(BenchError::Connections { there, expected: connections });
        }
        let replies = node.pipeline.table().iter().map(|(_, connection)| (OUTSIDE, connection.reply));
        node.legitimate.extend(replies.collect::<Vec<_>>());
        Ok(node)
    }

    /// Passes `packets` legitimate packets while bogus replies come at `rate` a second. Returns legitimate packets a second.
    fn pass(&mut self, packets: u64, rate: u32, flood: &mut Flooded) -> Result<f64, BenchError> {
        let (mut passed, mut spent, mut due_packets) = (0, Duration::ZERO, 0.0);
        while passed < packets {
            let count = BATCH_FRAMES_MAX.min(usize::try_from(packets - passed).unwrap_or(BATCH_FRAMES_MAX));
            let mut took = self.pass_legitimate(count)?;
            passed += count as u64;
            due_packets += took.as_secs_f64() * f64::from(rate);
            due_packets = due_packets.min((BURSTS_WAITING_MAX * BURST) as f64);
            // What comes while these are handled waits for the next turn: a node that is too slow still serves both.
            for _ in 0..due_packets as usize / BURST {
                let flooded = self.pass_bogus(flood);
                due_packets += flooded.as_secs_f64() * f64::from(rate) - BURST as f64;
                took += flooded;
            }
            spent += took;
        }
        if rate > 0 {
            flood.spent += spent;
        }
        Ok(packets as f64 / spent.as_secs_f64().max(f64::MIN_POSITIVE))
    }

    fn pass_legitimate(&mut self, count: usize) -> Result<Duration, BenchError> {
        let mut filled = Vec::with_capacity(count);
        for place in &mut self.places[..count] {
            let (port, tuple) = self.legitimate[self.next_legitimate];
            self.next_legitimate = (self.next_legitimate + 1) % self.legitimate.len();
            filled.push((fill(place, &tuple, &PAYLOAD), port));
        }
        let (spent, sent) = self.handle(&filled);
        let lost = (count - sent) as u64;
        if lost > 0 {
            return Err(BenchError::Lost { what: "the recovering node", lost, packets: count as u64 });
        }
        Ok(spent)
    }

    fn pass_bogus(&mut self, flood: &mut Flooded) -> Duration {
        let mut filled = Vec::with_capacity(BURST);
        for place in &mut self.places[..BURST] {
            filled.push((fill(place, &setting::bogus(self.next_bogus), &[]), OUTSIDE));
            self.next_bogus = self.next_bogus.wrapping_add(1);
        }
        flood.bogus += BURST as u64;
        self.handle(&filled).0
    }

    /// Handles what lies in the places, of these lengths and ports. Returns the processor time that it took, by which the
    /// node's clock goes on, and how many were sent.
    fn handle(&mut self, filled: &[(usize, PortId)]) -> (Duration, usize) {
        let frames = self.places.iter_mut().zip(filled);
        let mut batch: PacketBatch<'_> = frames
            .map(|(place, (length_bytes, port))| {
                Frame::new(place, 0, *length_bytes, *port).expect("places are longer than frames")
            })
            .collect();
        let began = thread_cpu_time();
        self.pipeline.handle_packets(self.now, &mut batch, &mut self.around);
        self.pipeline.expire(self.now, 1, |_| ReplicaExpiry::Recheck(Duration::ZERO));
        let changes = self.pipeline.take_changes();
        self.pipeline.return_changes(changes);
        let spent = thread_cpu_time().saturating_sub(began);
        self.now = self.now + spent;
        let sent = batch.iter().filter(|frame| matches!(frame.disposition, Disposition::Transmit(_))).count();
        (spent, sent)
    }
}

/// Makes a segment of an open connection. Returns its length.
fn fill(place: &mut [u8; PLACE_BYTES], tuple: &Tuple, payload: &[u8]) -> usize {
    let segment = build::Tcp { flags: tcp_flags::ACK, sequence: 1000, acknowledgement: 1000, ..build::Tcp::default() };
    let frame = build::tcp(tuple, segment, payload);
    place[..frame.len()].copy_from_slice(&frame);
    frame.len()
}

#[cfg(test)]
mod tests;
