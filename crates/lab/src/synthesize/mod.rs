//! `mainstay synthesize`: traffic of stated statistics as a capture, for studies where none is to be had.

mod redundancy;
mod replication;
#[cfg(test)]
mod tests;
mod traffic;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use self::traffic::Traffic;
use crate::args::{SynthesizeCommand, SynthesizeOutputArgs};
use analysis::synthesis::{ConfigError, RedundancyTraffic, ReplicationTraffic};
use console::{Progress, Unit};
use flow::Instant;
use packet_io::pcap::{PcapError, PcapWriter};

/// Frames between two updates of the progress line.
const PROGRESS_FRAMES: u64 = 1 << 16;
/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// Why no traffic is made.
#[derive(Debug, thiserror::Error)]
pub enum SynthesizeError {
    /// It cannot be made.
    #[error("no such traffic can be made: {0}")]
    Config(#[from] ConfigError),
    /// The capture would go to a terminal.
    #[error(
        "standard output is a terminal, which a capture would garble: name a file with --output, or pipe it into a study"
    )]
    Terminal,
    /// A file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: PcapError,
    },
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] io::Error),
}

impl SynthesizeError {
    fn writing(path: &Path, source: impl Into<PcapError>) -> Self {
        Self::Write { path: path.to_owned(), source: source.into() }
    }
}

/// Makes the traffic that is asked for.
///
/// # Errors
/// It cannot be made or written.
pub fn run(command: &SynthesizeCommand) -> Result<(), SynthesizeError> {
    match command {
        SynthesizeCommand::Replication(args) if args.presets => Ok(console::print(&replication::describe_presets())?),
        SynthesizeCommand::Replication(args) => {
            let traffic = ReplicationTraffic::new(replication::config(args), args.output.seed);
            write(traffic?, &args.output)
        }
        SynthesizeCommand::Redundancy(args) => {
            let traffic = RedundancyTraffic::new(redundancy::config(args), args.output.seed);
            write(traffic?, &args.output)
        }
    }
}

fn write<T: Traffic>(mut traffic: T, args: &SynthesizeOutputArgs) -> Result<(), SynthesizeError> {
    let path = args.output.as_path();
    let is_standard_output = path == Path::new("-");
    if is_standard_output && io::stdout().is_terminal() {
        return Err(SynthesizeError::Terminal);
    }
    let file: Box<dyn Write> = if is_standard_output {
        Box::new(io::stdout())
    } else {
        Box::new(File::create(path).map_err(|error| SynthesizeError::writing(path, error))?)
    };
    // Checked first: else minutes of work could end without a place for the summary.
    let summary = match &args.summary {
        Some(path) => Some((path, File::create(path).map_err(|error| SynthesizeError::writing(path, error))?)),
        None => None,
    };
    match write_frames(&mut traffic, BufWriter::with_capacity(BUFFER_BYTES, file)) {
        // A reader that has seen enough is no error; what was made up to there is reported.
        Err(PcapError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe && is_standard_output => {}
        result => result.map_err(|error| SynthesizeError::writing(path, error))?,
    }
    let made = traffic.made();
    if let Some((path, mut file)) = summary {
        let text = serde_json::to_string_pretty(&made).map_err(io::Error::from)?;
        file.write_all(text.as_bytes()).map_err(|error| SynthesizeError::writing(path, error))?;
    }
    if !is_standard_output {
        return Ok(console::print_as(args.json, &made, || T::describe(&made))?);
    }
    if args.json {
        eprintln!("{}", serde_json::to_string_pretty(&made).map_err(io::Error::from)?);
    } else {
        eprint!("{}", T::describe(&made));
    }
    Ok(())
}

fn write_frames<T: Traffic, W: Write>(traffic: &mut T, writer: W) -> Result<(), PcapError> {
    let mut capture = PcapWriter::new(writer)?;
    let progress = Progress::new();
    let (begins_at, ends_at) = traffic.span();
    let seconds = |at: Instant| at.saturating_since(begins_at).as_secs();
    let work = progress.work(Unit::Of("seconds of traffic"), Some(seconds(ends_at)));
    let mut frames = 0_u64;
    while let Some((at, frame)) = traffic.next() {
        capture.write(at, frame)?;
        frames += 1;
        if frames.is_multiple_of(PROGRESS_FRAMES) {
            work.show(seconds(at), &format!("{} frames", console::count(frames)));
        }
    }
    capture.finish()?;
    Ok(())
}
