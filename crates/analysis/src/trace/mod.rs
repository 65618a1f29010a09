//! Captures as one stream of packets, and the connections in it.
//!
//! ```text
//!  files, standard input ─► CaptureReader, one each ─► the earliest first ─► Ethernet ─► flow::wire::parse ─► Packet
//!                                │ damaged: Damage                    │ not to be read: Skips                  │
//!                                └──► the others go on                └──► counted                             ▼
//!                                                                                      Connections: table, tracker, events
//! ```
//! Nothing is held but a frame of each capture and the table of connections: captures may be of any length. A capture
//! has what a link carried, not what a gateway would have passed, so hosts' habits that a gateway never sees are put up
//! with: checksums and lengths that the sending host left to its hardware, and frames of which only the beginning was
//! kept. What is wrong beyond that is skipped, unless the study admits it ([`Admission`]).

mod admission;
pub mod connections;
mod input;
mod packet;
mod skips;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flow::Instant;
use packet_io::pcap::PcapError;

use input::Input;

pub use admission::Admission;
pub use connections::{Connections, ConnectionsConfig};
pub use packet::Packet;
pub use skips::{Skip, Skips};

/// The most captures that are merged.
pub const CAPTURES_MAX: usize = 256;
/// In place of a path: the capture comes on standard input.
pub const STANDARD_INPUT: &str = "-";

/// Why captures cannot be studied.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// One of them cannot be opened, or is no capture.
    #[error("{}: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: PcapError,
    },
    /// One of them is a folder.
    #[error("{} is a folder: name the captures that are in it ({}/*.pcap)", .0.display(), .0.display())]
    Folder(PathBuf),
    /// None is named.
    #[error("no capture is named: name pcap or pcapng files, or {STANDARD_INPUT} for standard input")]
    None,
    /// Too many are named.
    #[error("{0} captures are named, and at most {CAPTURES_MAX} are merged: merge some of them into one file first")]
    TooMany(usize),
    /// Standard input is named twice.
    #[error("standard input ({STANDARD_INPUT}) is named more than once, and can be read only once")]
    StandardInputTwice,
}

/// Where a capture could be read no further. What came before it counts.
#[derive(Debug)]
pub struct Damage {
    /// The capture, as it was named.
    pub path: PathBuf,
    /// The frame that could not be read, from 1.
    pub frame_number: u64,
    /// Where that frame's record begins in the file, in bytes.
    pub offset_bytes: u64,
    /// What is wrong with it.
    pub cause: PcapError,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, frame_number, offset_bytes, cause } = self;
        write!(f, "{}: read up to frame {frame_number} (byte {offset_bytes}): {cause}", path.display())
    }
}

/// What a trace has read up to here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames in the captures.
    pub frames: u64,
    /// Their bytes on the wire, from the link header on.
    pub wire_bytes: u64,
    /// Frames that were lent as packets; the others were skipped.
    pub packets: u64,
    /// Bytes on the wire of these.
    pub packet_bytes: u64,
    /// Packets of which the capture holds only the beginning.
    pub truncated: u64,
    /// Packets whose checksums or length the sending host left to its hardware.
    pub unfinished: u64,
    /// Packets that are fragments.
    pub fragments: u64,
    /// Times that a capture's clock ran backwards.
    pub steps_back: u64,
}

/// How far the reading is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes read, of all captures.
    pub read_bytes: u64,
    /// Bytes that there are; `None` while one of the captures is no file.
    pub total_bytes: Option<u64>,
}

/// Several captures, merged by time.
pub struct Trace {
    inputs: Vec<Input>,
    /// The one whose frame is lent.
    lent: Option<usize>,
    admission: Admission,
    counts: Counts,
    skips: Skips,
    damages: Vec<Damage>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("counts", &self.counts).field("damages", &self.damages).finish_non_exhaustive()
    }
}

impl Trace {
    /// Opens captures, pcap or pcapng; [`STANDARD_INPUT`] stands for the one that comes that way.
    ///
    /// # Errors
    /// One of them cannot be opened or does not begin as a capture, or they are none or too many.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self, TraceError> {
        let is_input = |path: &&P| path.as_ref().as_os_str() == STANDARD_INPUT;
        if paths.iter().filter(is_input).count() > 1 {
            return Err(TraceError::StandardInputTwice);
        }
        let mut sources = Vec::new();
        for path in paths {
            let opened: Result<(Box<dyn Read + Send>, Option<u64>), std::io::Error> = if is_input(&path) {
                Ok((Box::new(std::io::stdin()), None))
            } else {
                File::open(path).map(|file| {
                    let length = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
                    (Box::new(file) as Box<dyn Read + Send>, length)
                })
            };
            let path = path.as_ref().to_owned();
            // A folder can be opened, and would only fail when it is read.
            if path.is_dir() {
                return Err(TraceError::Folder(path));
            }
            let (source, length) =
                opened.map_err(|error| TraceError::Capture { path: path.clone(), source: error.into() })?;
            sources.push((path, source, length));
        }
        Self::merge(sources)
    }

    /// Captures from anywhere: how each is named in messages, its bytes, and how many they are where that is known.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn merge(sources: Vec<(PathBuf, Box<dyn Read + Send>, Option<u64>)>) -> Result<Self, TraceError> {
        match sources.len() {
            0 => return Err(TraceError::None),
            count if count > CAPTURES_MAX => return Err(TraceError::TooMany(count)),
            _ => {}
        }
        let mut inputs = Vec::new();
        for (path, source, length) in sources {
            let input = Input::new(path.clone(), source, length);
            inputs.push(input.map_err(|source| TraceError::Capture { path, source })?);
        }
        let mut trace = Self {
            inputs,
            lent: None,
            admission: Admission::default(),
            counts: Counts::default(),
            skips: Skips::default(),
            damages: Vec::new(),
        };
        (0..trace.inputs.len()).for_each(|index| trace.read_ahead(index));
        Ok(trace)
    }

    /// The trace, with what is to be taken in although a gateway would drop it; without this, nothing of the kind.
    #[must_use]
    pub fn admitting(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// The next packet of all captures; times never fall. `None` at the end of all.
    #[allow(
        clippy::should_implement_trait,
        reason = "what it lends it lends until the next call, which no Iterator can"
    )]
    pub fn next(&mut self) -> Option<Packet<'_>> {
        loop {
            if let Some(index) = self.lent.take() {
                self.read_ahead(index);
            }
            let index = self.earliest()?;
            self.lent = Some(index);
            let input = &mut self.inputs[index];
            let record = input.record?;
            self.counts.frames += 1;
            self.counts.wire_bytes += u64::from(record.wire_bytes);
            match packet::look(&mut input.frame, record.link_type, record.wire_bytes, self.admission) {
                Ok(seen) => {
                    self.counts.note(&seen, record.wire_bytes);
                    let input = &self.inputs[index];
                    let at = (input.frames, record.at);
                    return Some(seen.packet(&input.frame, index, record.interface, at, record.wire_bytes));
                }
                Err(skip) => self.skips.count(skip, record.wire_bytes),
            }
        }
    }

    /// The capture with the earliest frame; of several, the one that was named first.
    fn earliest(&self) -> Option<usize> {
        let ahead = self.inputs.iter().enumerate();
        let times = ahead.filter_map(|(index, input)| input.record.map(|record| (record.at, index)));
        times.min().map(|(_, index)| index)
    }

    fn read_ahead(&mut self, index: usize) {
        let input = &mut self.inputs[index];
        if let Err(cause) = input.read_ahead() {
            self.damages.push(input.damage(cause));
        }
        self.counts.steps_back += std::mem::take(&mut input.steps_back);
    }

    /// The captures, as they were named; [`Packet::capture_index`] is an index of these.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.inputs.iter().map(|input| input.path.as_path())
    }

    /// What was read up to here.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What was skipped up to here, and why.
    #[must_use]
    pub const fn skips(&self) -> &Skips {
        &self.skips
    }

    /// Captures that could not be read to their ends, in the order in which that was found.
    #[must_use]
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// How far the reading is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let read_bytes = self.inputs.iter().map(Input::position_bytes).sum();
        Progress { read_bytes, total_bytes: self.inputs.iter().map(|input| input.total_bytes).sum() }
    }
}

impl Counts {
    fn note(&mut self, seen: &packet::Seen, wire_bytes: u32) {
        self.packets += 1;
        self.packet_bytes += u64::from(wire_bytes);
        self.truncated += u64::from(seen.is_truncated());
        self.unfinished += u64::from(seen.is_unfinished);
        self.fragments += u64::from(seen.headers.is_fragment);
    }
}

/// A time of a capture, for people: seconds from the Unix epoch on.
#[must_use]
pub fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}
