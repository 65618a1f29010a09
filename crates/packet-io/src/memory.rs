//! Ports in memory: two queues each, for tests, the simulator and benchmarks.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use flow::{BATCH_FRAMES_MAX, Checksum, Disposition, Frame, PacketBatch, PortId, Segmentation};

use crate::{IoError, PacketIo, PortCounters, TransmitFailure};

/// The maximum number of frames in a queue; further ones are dropped and counted, as at a full ring.
pub const QUEUE_FRAMES_MAX: usize = 65_536;
/// Headroom of a frame from [`MemoryIo::inject`], in bytes.
const HEADROOM_BYTES: usize = 64;
/// Tailroom of such a frame, in bytes.
const TAILROOM_BYTES: usize = 64;

/// A frame that owns its buffer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryFrame {
    buffer: Vec<u8>,
    start: usize,
    length_bytes: usize,
    /// The state of its transport checksum.
    pub checksum: Checksum,
    /// Its segmentation offload.
    pub segmentation: Segmentation,
}

impl MemoryFrame {
    /// A copy of `bytes`, an ordinary packet with an unverified checksum.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut frame = Self::default();
        frame.refill(bytes);
        frame
    }

    /// The frame from its link header on.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.length_bytes]
    }

    /// Replaces it by a copy of `bytes` in its buffer, an ordinary packet with an unverified checksum.
    pub fn refill(&mut self, bytes: &[u8]) {
        self.buffer.resize(HEADROOM_BYTES + bytes.len() + TAILROOM_BYTES, 0);
        self.buffer[HEADROOM_BYTES..HEADROOM_BYTES + bytes.len()].copy_from_slice(bytes);
        self.start = HEADROOM_BYTES;
        self.length_bytes = bytes.len();
        self.checksum = Checksum::default();
        self.segmentation = Segmentation::default();
    }
}

#[derive(Debug, Default)]
struct Port {
    inbound: VecDeque<MemoryFrame>,
    outbound: VecDeque<MemoryFrame>,
    up: bool,
    counters: PortCounters,
}

impl Port {
    fn send(&mut self, frame: MemoryFrame) -> Result<(), TransmitFailure> {
        let failure = if !self.up {
            TransmitFailure::Down
        } else if self.outbound.len() >= QUEUE_FRAMES_MAX {
            TransmitFailure::QueueFull
        } else {
            self.counters.sent_frames += 1;
            self.counters.sent_bytes += frame.length_bytes as u64;
            self.outbound.push_back(frame);
            return Ok(());
        };
        self.counters.transmit_failures.count(failure);
        Err(failure)
    }
}

/// The result of processing a frame, kept after the batch that borrowed it.
struct ProcessedFrame {
    start: usize,
    length_bytes: usize,
    checksum: Checksum,
    segmentation: Segmentation,
    disposition: Disposition,
}

/// Ports in memory. Frames are never copied: their buffers move from one queue to the other.
#[derive(Debug)]
pub struct MemoryIo {
    ports: Vec<Port>,
}

impl MemoryIo {
    /// `ports` ports (at most 256), all up and empty.
    #[must_use]
    pub fn new(ports: u8) -> Self {
        Self { ports: (0..ports).map(|_| Port { up: true, ..Port::default() }).collect() }
    }

    /// Queues a copy of `frame` for reception on `port`.
    ///
    /// # Errors
    /// The port does not exist.
    pub fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), IoError> {
        self.inject_frame(port, MemoryFrame::new(frame))
    }

    /// Queues `frame` for reception on `port`. It is dropped and counted when the port is down or its queue is full.
    ///
    /// # Errors
    /// The port does not exist.
    pub fn inject_frame(&mut self, port: PortId, frame: MemoryFrame) -> Result<(), IoError> {
        let port = self.port_mut(port)?;
        if !port.up {
            return Ok(());
        }
        if port.inbound.len() >= QUEUE_FRAMES_MAX {
            port.counters.receive_queue_full += 1;
        } else {
            port.inbound.push_back(frame);
        }
        Ok(())
    }

    /// The oldest frame sent on `port`. [`MemoryFrame::refill`] and [`MemoryIo::inject_frame`] reuse its buffer where
    /// allocation must be avoided.
    pub fn take_sent(&mut self, port: PortId) -> Option<MemoryFrame> {
        self.ports.get_mut(usize::from(port.0))?.outbound.pop_front()
    }

    /// Takes `port` down (frames waiting for reception are lost, transmissions fail) or up again.
    ///
    /// # Errors
    /// The port does not exist.
    pub fn set_up(&mut self, port: PortId, up: bool) -> Result<(), IoError> {
        let port = self.port_mut(port)?;
        if port.up && !up {
            port.inbound.clear();
            port.counters.went_down += 1;
        }
        port.up = up;
        Ok(())
    }

    fn port_mut(&mut self, port: PortId) -> Result<&mut Port, IoError> {
        self.ports
            .get_mut(usize::from(port.0))
            .ok_or_else(|| IoError::Misuse(format!("there is no port {} in memory", port.0)))
    }

    fn settle(&mut self, ingress: PortId, mut frame: MemoryFrame, outcome: &ProcessedFrame) {
        frame.start = outcome.start;
        frame.length_bytes = outcome.length_bytes;
        frame.checksum = outcome.checksum;
        frame.segmentation = outcome.segmentation;
        match outcome.disposition {
            Disposition::Transmit(port) => match self.ports.get_mut(usize::from(port.0)) {
                // The port has counted a failure; the caller needs no error.
                Some(port) => drop(port.send(frame)),
                None => {
                    self.ports[usize::from(ingress.0)].counters.transmit_failures.count(TransmitFailure::NoSuchPort)
                }
            },
            Disposition::Undecided => self.ports[usize::from(ingress.0)].counters.undecided += 1,
            Disposition::Drop(_) | Disposition::Consumed => {}
        }
    }
}

fn lend(frame: &mut MemoryFrame, ingress: PortId) -> Frame<'_> {
    let mut lent = Frame::new(&mut frame.buffer, frame.start, frame.length_bytes, ingress)
        .expect("a memory frame lies within its buffer");
    lent.checksum = frame.checksum;
    lent.segmentation = frame.segmentation;
    lent
}

fn outcome(frame: &mut Frame<'_>) -> ProcessedFrame {
    let (_, start, length_bytes) = frame.buffer_parts();
    ProcessedFrame {
        start,
        length_bytes,
        checksum: frame.checksum,
        segmentation: frame.segmentation,
        disposition: frame.disposition,
    }
}

impl PacketIo for MemoryIo {
    fn poll(&mut self, process: &mut dyn FnMut(&mut PacketBatch<'_>)) -> Result<usize, IoError> {
        let mut received = 0;
        for number in 0..self.ports.len() {
            let ingress = PortId(u8::try_from(number).expect("ports are counted in a u8"));
            let port = &mut self.ports[number];
            let count = port.inbound.len().min(BATCH_FRAMES_MAX);
            if count == 0 {
                continue;
            }
            let mut frames: ArrayVec<MemoryFrame, BATCH_FRAMES_MAX> = port.inbound.drain(..count).collect();
            port.counters.received_frames += count as u64;
            port.counters.received_bytes += frames.iter().map(|frame| frame.length_bytes as u64).sum::<u64>();
            received += count;

            let mut batch: PacketBatch<'_> = frames.iter_mut().map(|frame| lend(frame, ingress)).collect();
            process(&mut batch);
            let outcomes: ArrayVec<ProcessedFrame, BATCH_FRAMES_MAX> = batch.iter_mut().map(outcome).collect();
            drop(batch);
            for (frame, outcome) in frames.into_iter().zip(&outcomes) {
                self.settle(ingress, frame, outcome);
            }
        }
        Ok(received)
    }

    fn transmit(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), IoError> {
        let failure = match self.ports.get_mut(usize::from(port.0)) {
            Some(port) => {
                let mut copy = MemoryFrame::new(frame.bytes());
                (copy.checksum, copy.segmentation) = (frame.checksum, frame.segmentation);
                port.send(copy)
            }
            None => Err(TransmitFailure::NoSuchPort),
        };
        failure.map_err(|cause| IoError::Transmit { port, cause })
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn counters(&self, port: PortId) -> PortCounters {
        self.ports.get(usize::from(port.0)).map_or_else(PortCounters::default, |port| port.counters)
    }
}

#[cfg(test)]
mod tests;
