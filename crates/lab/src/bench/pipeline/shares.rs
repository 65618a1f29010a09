//! The pipeline's work shared out to several workers, for `mainstay bench workers`.

use std::sync::Barrier;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use cluster::pipeline::{HandedFrame, Place};
use flow::{BATCH_FRAMES_MAX, PacketBatch, Steering, WorkerId};
use packet_io::usage::thread_cpu_time;

use super::gateway::{Egress, Gateway};
use super::setting::FIREWALL_RULES;
use super::stage::nanos_each;
use super::traffic::{Ring, Traffic, not_sent};
use crate::bench::BenchError;

/// A worker's pipeline with its share of the connections, all established.
struct Share {
    gateway: Gateway,
    traffic: Traffic,
    ring: Ring,
}

impl Share {
    fn new(connections: u32, place: Place) -> Result<Self, BenchError> {
        let mut traffic = Traffic::of_worker(connections, place);
        let mut ring = Ring::new();
        let mut gateway = Gateway::new(connections, FIREWALL_RULES);
        gateway.pipeline.set_place(place);
        gateway.establish(&mut traffic, &mut ring)?;
        Ok(Self { gateway, traffic, ring })
    }

    /// Packets a second of the thread's processor time.
    fn rate(&mut self, packets: u64) -> Result<f64, BenchError> {
        let spent = self.gateway.pass(&mut self.traffic, &mut self.ring, packets)?;
        Ok(packets as f64 / spent.as_secs_f64())
    }
}

/// The same connections, once with one worker and once shared out.
pub(in crate::bench) struct Shares {
    alone: Share,
    workers: Vec<Share>,
}

impl Shares {
    pub(in crate::bench) fn new(connections: u32, workers: u8) -> Result<Self, BenchError> {
        let steering = Steering::new(workers).unwrap_or(Steering::ALONE);
        let share = |worker| Share::new(connections, Place { worker: WorkerId(worker), steering });
        Ok(Self {
            alone: Share::new(connections, Place::ALONE)?,
            workers: (0..steering.workers()).map(share).collect::<Result<_, _>>()?,
        })
    }

    /// Packets a second that one worker passes.
    pub(in crate::bench) fn rate_alone(&mut self, packets: u64) -> Result<f64, BenchError> {
        self.alone.rate(packets)
    }

    /// Packets a second that all workers pass together, each in a thread of its own, all at once.
    pub(in crate::bench) fn rate_together(&mut self, packets: u64) -> Result<f64, BenchError> {
        let each = packets.div_ceil(self.workers.len() as u64);
        let start = Barrier::new(self.workers.len());
        thread::scope(|scope| {
            let pass = |share| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    Share::rate(share, each)
                })
            };
            let threads: Vec<_> = self.workers.iter_mut().map(pass).collect();
            threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).sum()
        })
    }

    /// Nanoseconds that a packet takes at the right worker, and one that came to another and was handed over: the work of
    /// both workers and the mailbox between them.
    pub(in crate::bench) fn nanos_handed_over(&mut self, packets: u64) -> Result<Option<[f64; 2]>, BenchError> {
        let [wrong, right, ..] = &mut self.workers[..] else { return Ok(None) };
        let direct = right.gateway.pass(&mut right.traffic, &mut right.ring, packets)?;
        let mut spent = Duration::ZERO;
        let mut left = packets;
        while left > 0 {
            left -= right.traffic.fill(&mut wrong.ring, left).len() as u64;
            spent += hand_over(&mut wrong.gateway, &mut wrong.ring, &mut right.gateway)?;
        }
        Ok(Some([direct, spent].map(|spent| nanos_each(spent, packets))))
    }
}

fn hand_over(wrong: &mut Gateway, ring: &mut Ring, right: &mut Gateway) -> Result<Duration, BenchError> {
    let (mailbox, taken) = sync_channel(BATCH_FRAMES_MAX);
    let mut batches = ring.batches();
    let mut lost = 0;
    let mut packets = 0;
    let began = thread_cpu_time();
    for batch in &mut batches {
        packets += batch.len() as u64;
        wrong.pipeline.handle_packets(wrong.now, batch, &mut Egress { plans: true });
        while let Some(frame) = wrong.pipeline.poll_handed_over() {
            lost += u64::from(mailbox.try_send(frame).is_err());
        }
        let mut frames: Vec<HandedFrame> = taken.try_iter().collect();
        let mut batch: PacketBatch<'_> = frames.iter_mut().map(HandedFrame::frame).collect();
        right.pipeline.handle_steered(right.now, &mut batch, &mut Egress { plans: true });
        lost += not_sent(&batch);
    }
    let spent = thread_cpu_time().saturating_sub(began);
    if lost > 0 { Err(BenchError::Lost { what: "the hand-over", lost, packets }) } else { Ok(spent) }
}
