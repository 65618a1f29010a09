//! Capture files: read as a source of frames with timestamps, written as a record of sent frames.
//!
//! [`PcapIo`], [`PcapReader`] and [`PcapWriter`] implement classic pcap (draft-ietf-opsawg-pcap): microseconds or
//! nanoseconds, either byte order, Ethernet. [`CaptureReader`] reads it and pcapng, with several interfaces and link
//! types; [`PcapngWriter`] writes pcapng. Timestamps are [`Instant`]s counted from the Unix epoch.

mod capture;
mod format;
mod link_type;
mod pcapng;

use std::io::{Read, Write};
use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use flow::{BATCH_FRAMES_MAX, Disposition, Frame, Instant, PacketBatch, PortId};

use crate::{IoError, PacketIo, PortCounters, TransmitFailure};

pub use capture::CaptureReader;
pub use format::{PcapError, PcapReader, PcapWriter, Record, SNAPSHOT_BYTES_MAX};
pub use link_type::LinkType;
pub use pcapng::{CAPTURE_INTERFACES_MAX, CaptureInterface, CaptureRecord, PcapngWriter};

/// Headroom of a frame, in bytes.
const HEADROOM_BYTES: usize = 64;
/// The initial size of a frame's buffer; it grows with the largest frame of the capture.
const BUFFER_BYTES: usize = 2048;

/// One port: the source of its frames and the sink of sent ones.
struct Port {
    source: Option<PcapReader<Box<dyn Read + Send>>>,
    sink: Option<PcapWriter<Box<dyn Write + Send>>>,
    /// A record read ahead, in `ahead_frame`.
    ahead: Option<Record>,
    ahead_frame: Vec<u8>,
    counters: PortCounters,
}

impl Port {
    /// Reads ahead, so that the next record's time is available.
    fn look_ahead(&mut self) -> Result<Option<Record>, PcapError> {
        if self.ahead.is_none()
            && let Some(source) = &mut self.source
        {
            self.ahead = source.read(&mut self.ahead_frame)?;
            if self.ahead.is_none() {
                self.source = None;
            }
        }
        Ok(self.ahead)
    }

    fn send(&mut self, now: Instant, frame: &[u8]) -> Result<(), TransmitFailure> {
        let result = match &mut self.sink {
            Some(sink) => sink.write(now, frame).map_err(|_| TransmitFailure::Other),
            None => Ok(()),
        };
        match result {
            Ok(()) => {
                self.counters.sent_frames += 1;
                self.counters.sent_bytes += frame.len() as u64;
            }
            Err(cause) => self.counters.transmit_failures.count(cause),
        }
        result
    }
}

/// Captures as a node's ports. [`PacketIo::poll`] replays the frames of all ports in the order of their timestamps.
///
/// Truncated frames are passed as captured; captured checksums are unverified.
#[derive(Default)]
pub struct PcapIo {
    ports: Vec<Port>,
    buffers: Vec<Vec<u8>>,
    now: Instant,
    until: Option<Instant>,
}

impl PcapIo {
    /// Without ports; replays as fast as it is polled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a port that receives the frames of `source` and writes sent frames to `sink` (discarded if `None`).
    ///
    /// # Errors
    /// There are 256 ports already.
    pub fn add_port(
        &mut self,
        source: Option<PcapReader<Box<dyn Read + Send>>>,
        sink: Option<PcapWriter<Box<dyn Write + Send>>>,
    ) -> Result<PortId, IoError> {
        let number =
            u8::try_from(self.ports.len()).map_err(|_| IoError::Misuse("a node has at most 256 ports".into()))?;
        self.ports.push(Port { source, sink, ahead: None, ahead_frame: Vec::new(), counters: PortCounters::default() });
        Ok(PortId(number))
    }

    /// The timestamp of the last frame replayed, with which sent frames are written.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Holds back frames with later timestamps than `until`.
    pub fn play_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// The timestamp of the next frame; `None` at the end of all captures.
    ///
    /// # Errors
    /// A capture is damaged.
    pub fn next_timestamp(&mut self) -> Result<Option<Instant>, IoError> {
        Ok(self.earliest()?.map(|(_, record)| record.timestamp))
    }

    /// The port with the earliest next frame.
    fn earliest(&mut self) -> Result<Option<(usize, Record)>, IoError> {
        let mut earliest: Option<(usize, Record)> = None;
        for (number, port) in self.ports.iter_mut().enumerate() {
            let ahead = port.look_ahead().map_err(|error| {
                IoError::Misuse(format!("the capture of port {number} cannot be played on: {error}"))
            })?;
            if let Some(record) = ahead
                && earliest.is_none_or(|(_, other)| record.timestamp < other.timestamp)
            {
                earliest = Some((number, record));
            }
        }
        Ok(earliest)
    }

    /// Takes the earliest frames, up to a batch, with the same port and time.
    fn take_batch(&mut self) -> Result<(usize, ArrayVec<usize, BATCH_FRAMES_MAX>), IoError> {
        let mut lengths = ArrayVec::new();
        let mut ingress = None;
        while let Some((number, record)) = self.earliest()? {
            let too_late = self.until.is_some_and(|until| record.timestamp > until);
            let other = ingress.is_some_and(|ingress| ingress != number) && !lengths.is_empty();
            let other_time = !lengths.is_empty() && record.timestamp != self.now;
            if too_late || other || other_time || lengths.is_full() {
                break;
            }
            ingress = Some(number);
            self.now = record.timestamp;
            let port = &mut self.ports[number];
            port.ahead = None;
            if self.buffers.len() == lengths.len() {
                self.buffers.push(vec![0; BUFFER_BYTES]);
            }
            let buffer = &mut self.buffers[lengths.len()];
            let length_bytes = port.ahead_frame.len();
            buffer.resize(buffer.len().max(HEADROOM_BYTES + length_bytes), 0);
            buffer[HEADROOM_BYTES..HEADROOM_BYTES + length_bytes].copy_from_slice(&port.ahead_frame);
            port.counters.received_frames += 1;
            port.counters.received_bytes += length_bytes as u64;
            lengths.push(length_bytes);
        }
        Ok((ingress.unwrap_or(0), lengths))
    }
}

impl PacketIo for PcapIo {
    /// Replays the next frames of one port and one timestamp, so that [`PcapIo::now`] is right for each of them.
    fn poll(&mut self, process: &mut dyn FnMut(&mut PacketBatch<'_>)) -> Result<usize, IoError> {
        let (number, lengths) = self.take_batch()?;
        if lengths.is_empty() {
            return Ok(0);
        }
        let ingress = PortId(u8::try_from(number).expect("add_port numbers ports in a byte"));
        let mut batch: PacketBatch<'_> = self
            .buffers
            .iter_mut()
            .zip(&lengths)
            .filter_map(|(buffer, length_bytes)| Frame::new(buffer, HEADROOM_BYTES, *length_bytes, ingress))
            .collect();
        process(&mut batch);
        for frame in &batch {
            match frame.disposition {
                Disposition::Transmit(egress) => match self.ports.get_mut(usize::from(egress.0)) {
                    // The port has counted a failure; the caller needs no error.
                    Some(port) => drop(port.send(self.now, frame.bytes())),
                    None => self.ports[number].counters.transmit_failures.count(TransmitFailure::NoSuchPort),
                },
                Disposition::Undecided => self.ports[number].counters.undecided += 1,
                Disposition::Drop(_) | Disposition::Consumed => {}
            }
        }
        Ok(lengths.len())
    }

    fn transmit(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), IoError> {
        let result = match self.ports.get_mut(usize::from(port.0)) {
            Some(opened) => opened.send(self.now, frame.bytes()),
            None => Err(TransmitFailure::NoSuchPort),
        };
        result.map_err(|cause| IoError::Transmit { port, cause })
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
