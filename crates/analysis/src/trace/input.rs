//! One capture, read a frame ahead.

use std::io::{self, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flow::Instant;
use packet_io::pcap::{CaptureReader, LinkType, PcapError};

use super::Damage;

/// Bytes read from a file at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// A clock that falls back by less than this is taken to stand still (frames of several queues come a little out of order);
/// by more, to have been set: time goes on from where it was.
const STEP_BACK_NANOS_MAX: u64 = 1_000_000_000;

/// Counts what is read through it.
struct Counted {
    inner: BufReader<Box<dyn Read + Send>>,
    position: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        // There is one writer.
        let position = self.position.load(Ordering::Relaxed) + count as u64;
        self.position.store(position, Ordering::Relaxed);
        Ok(count)
    }
}

/// The frame that was read ahead, as the capture has it.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) at: Instant,
    pub(super) wire_bytes: u32,
    pub(super) interface: usize,
    pub(super) link_type: LinkType,
}

pub(super) struct Input {
    pub(super) path: PathBuf,
    pub(super) total_bytes: Option<u64>,
    /// None at its end.
    reader: Option<CaptureReader<Counted>>,
    position: Arc<AtomicU64>,
    /// Where the record that was read last begins.
    record_bytes: u64,
    pub(super) frame: Vec<u8>,
    pub(super) record: Option<Ahead>,
    /// Frames read, the one ahead included.
    pub(super) frames: u64,
    /// The last time, as the capture has it and as it is returned.
    last: (Instant, Instant),
    pub(super) steps_back: u64,
}

impl Input {
    pub(super) fn new(
        path: PathBuf,
        source: Box<dyn Read + Send>,
        total_bytes: Option<u64>,
    ) -> Result<Self, PcapError> {
        let position = Arc::new(AtomicU64::new(0));
        let inner = BufReader::with_capacity(BUFFER_BYTES, source);
        let reader = CaptureReader::new(Counted { inner, position: position.clone() })?;
        let last = (Instant::ZERO, Instant::ZERO);
        Ok(Self {
            path,
            total_bytes,
            reader: Some(reader),
            position,
            record_bytes: 0,
            frame: Vec::new(),
            record: None,
            frames: 0,
            last,
            steps_back: 0,
        })
    }

    pub(super) fn position_bytes(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Reads the next frame in place of the last. There is none at the end of the capture, wherever that is.
    pub(super) fn read_ahead(&mut self) -> Result<(), PcapError> {
        self.record = None;
        let Some(reader) = &mut self.reader else { return Ok(()) };
        self.record_bytes = self.position.load(Ordering::Relaxed);
        let read = reader.read(&mut self.frame);
        let Ok(Some(record)) = read else {
            self.reader = None;
            return read.map(|_| ());
        };
        let link_type = reader.interfaces()[record.interface].link_type;
        let at = self.monotonic_time(record.timestamp);
        self.frames += 1;
        self.record = Some(Ahead { at, wire_bytes: record.wire_bytes, interface: record.interface, link_type });
        Ok(())
    }

    /// The time of a frame, which is not before the one before.
    fn monotonic_time(&mut self, stamp: Instant) -> Instant {
        let (last_stamp, last) = self.last;
        if stamp < last_stamp {
            self.steps_back += 1;
            let is_set = last_stamp.as_nanos() - stamp.as_nanos() > STEP_BACK_NANOS_MAX;
            if is_set {
                self.last.0 = stamp;
            }
            return last;
        }
        let at = last + stamp.saturating_since(last_stamp);
        self.last = (stamp, at);
        at
    }

    /// That the frame behind those read cannot be read.
    pub(super) fn damage(&self, cause: PcapError) -> Damage {
        let frame_number = self.frames + 1;
        Damage { path: self.path.clone(), frame_number, offset_bytes: self.record_bytes, cause }
    }
}
