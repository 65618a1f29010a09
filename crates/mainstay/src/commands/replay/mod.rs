//! `mainstay replay`: a capture's packets through the configured node, on a clock that shows the packets' times.
//!
//! ```text
//!  capture ─► Ethernet ─► ingress port ─► Node (real: table, tracker, chain, forwarding) ─► what becomes of it, output capture
//! ```
//! What the capture cannot know is made up: the node holds the shared addresses and stands alone, every neighbour
//! answers at once, and all frames are addressed to the node. The seeds are fixed, so that the same
//! capture under the same configuration gives the same result each time.

mod error;
mod ingress;
mod neighbours;
mod player;
mod report;
#[cfg(test)]
mod tests;
mod timeline;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use flow::Instant;
use packet_io::pcap::{CaptureReader, CaptureRecord, PcapError, PcapngWriter};

use super::CommandError;
use crate::cli::{ChecksumsChoice, PortMapping, ReplayArgs};
use config::Config;
use console::{Progress, Unit};
use ingress::IngressChooser;
use player::{CapturedFrame, Player};
use timeline::Timeline;

pub use error::ReplayError;
pub use report::{Connections, PortReport, ReplayReport};

/// Packets between two updates of the progress line.
const PROGRESS_PACKETS: u64 = 1 << 16;

/// What to replay, and how.
#[derive(Debug)]
pub struct Replay<'a> {
    /// The gateway. Its peers are left out of the replay.
    pub config: &'a Config,
    /// Which port stands for which interface of the capture, where that is given.
    pub port_map: &'a [PortMapping],
    /// Believe checksums unread: a capture from the sending host has them unfinished.
    pub ignore_checksums: bool,
    /// Packets at most.
    pub limit: u64,
}

/// Replays a capture and prints what became of its packets.
///
/// # Errors
/// The configuration or the capture cannot be used, or the output cannot be written.
pub fn run(args: &ReplayArgs) -> Result<(), CommandError> {
    let checked = config::load(&args.config)?;
    for warning in &checked.warnings {
        eprintln!("{warning}");
    }
    let mut config = checked.config;
    config.tracking.loose |= args.loose;
    let replay = Replay {
        config: &config,
        port_map: &args.port_map,
        ignore_checksums: args.ignore_checksums || args.checksums == ChecksumsChoice::Believe,
        limit: args.limit.unwrap_or(u64::MAX),
    };
    let reading = |source| ReplayError::Capture { path: args.capture.clone(), source };
    let file = File::open(&args.capture).map_err(|error| reading(error.into()))?;
    let capture = CaptureReader::new(BufReader::new(file)).map_err(reading)?;
    let report = match &args.output {
        None => replay.play(capture, &args.capture, None::<(&Path, File)>)?,
        Some(path) => {
            let writing = |source: std::io::Error| ReplayError::Output { path: path.clone(), source: source.into() };
            let file = BufWriter::new(File::create(path).map_err(writing)?);
            replay.play(capture, &args.capture, Some((path, file)))?
        }
    };
    console::print_as(args.json, &report, || report.describe())?;
    Ok(())
}

/// Where frames that the node sends are written.
struct Sink<'a, W> {
    path: &'a Path,
    writer: PcapngWriter<W>,
}

impl<'a, W: Write> Sink<'a, W> {
    fn new(path: &'a Path, file: W, config: &Config) -> Result<Self, ReplayError> {
        let names = config.ports.iter().map(|port| port.name.as_str());
        let writer = PcapngWriter::new(file, names);
        let writer = writer.map_err(|source| ReplayError::Output { path: path.to_owned(), source })?;
        Ok(Self { path, writer })
    }

    fn write(&mut self, at: Instant, sent: &player::Sent<'_>) -> Result<(), ReplayError> {
        let result = self.writer.write(usize::from(sent.port.0), at, sent.bytes, sent.wire_bytes);
        result.map_err(|source| ReplayError::Output { path: self.path.to_owned(), source })
    }
}

impl Replay<'_> {
    /// Plays the capture that `source` names; what the node sends is written to `sink`.
    ///
    /// # Errors
    /// The configuration or the capture cannot be used, or the output cannot be written. A capture that ends within a
    /// packet is no error: the report counts it.
    pub fn play<R: Read, W: Write>(
        &self,
        mut capture: CaptureReader<R>,
        source: &Path,
        sink: Option<(&Path, W)>,
    ) -> Result<ReplayReport, ReplayError> {
        let forwarding = player::forwarding_config(self.config);
        let chooser = IngressChooser::new(self.config, &forwarding, self.port_map)?;
        let mut sink = sink.map(|(path, file)| Sink::new(path, file, self.config)).transpose()?;
        let mut report = ReplayReport::new(self.config);
        let mut player: Option<Player> = None;
        let mut timeline: Option<Timeline> = None;
        let mut frame = Vec::new();
        let progress = Progress::new();
        let work = progress.work(Unit::Of("packets"), Some(self.limit).filter(|limit| *limit < u64::MAX));
        while report.packets < self.limit {
            let Some(record) = next(&mut capture, &mut frame, &mut report, source)? else { break };
            let interface = &capture.interfaces()[record.interface];
            let mut captured =
                CapturedFrame::new(&mut frame, interface.link_type, record.wire_bytes, self.ignore_checksums);
            let timeline = timeline.get_or_insert_with(|| Timeline::new(record.timestamp));
            let stamp = timeline.advance(record.timestamp);
            report.note_packet(stamp, timeline.now(), &captured);
            let (ingress, certainty) = chooser.choose(capture.interfaces(), record.interface, &mut captured);
            report.note_ingress(ingress, certainty);
            let player = match &mut player {
                Some(player) => player,
                None => player.insert(Player::new(self.config, forwarding.clone(), timeline.now())?),
            };
            let mut failed = None;
            let outcome = player.play(timeline.now(), ingress, captured, &mut |at, sent| {
                report.note_sent(sent.port);
                if let Some(Err(error)) = sink.as_mut().map(|sink| sink.write(at, &sent)) {
                    failed = Some(error);
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            report.note_outcome(outcome);
            report.note_connections(player.connections());
            if report.packets.is_multiple_of(PROGRESS_PACKETS) {
                work.show(report.packets, "");
            }
        }
        drop(progress);
        if let Some(sink) = sink {
            let path = sink.path;
            sink.writer.finish().map_err(|source| ReplayError::Output { path: path.to_owned(), source })?;
        }
        if let Some(player) = &player {
            report.finish(player);
        }
        Ok(report)
    }
}

/// The next packet; none at the end of the capture, wherever that is.
fn next<R: Read>(
    capture: &mut CaptureReader<R>,
    frame: &mut Vec<u8>,
    report: &mut ReplayReport,
    path: &Path,
) -> Result<Option<CaptureRecord>, ReplayError> {
    match capture.read(frame) {
        Err(PcapError::Truncated) if report.packets > 0 => {
            report.is_truncated = true;
            Ok(None)
        }
        result => result.map_err(|source| ReplayError::Capture { path: path.to_owned(), source }),
    }
}
