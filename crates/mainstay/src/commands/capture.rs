//! `mainstay capture`: frames at a point of their way through a running gateway, as pcapng.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::thread;

use flow::Instant;
use packet_io::pcap::{PcapError, PcapngWriter};
use packet_io::poller::{Poller, Token};
use packet_io::signal::Signals;

use super::error::{CaptureError, CommandError};
use crate::cli::CaptureArgs;
use api::{FrameLine, Line, Query};
use console::counted;
use control::client::{Client, StreamStopper};
use control::streams::from_hexadecimal;

/// The poller's name of the signals.
const SIGNALS: Token = Token(0);

/// Asks the gateway and writes frame after frame, each as it comes. SIGINT and SIGTERM end the capture as its time does.
///
/// # Errors
/// The gateway does not answer, or the file cannot be written.
pub fn run(args: &CaptureArgs) -> Result<(), CommandError> {
    // Before any thread begins, so that no other one takes a signal.
    let signals = Signals::new().map_err(CaptureError::from)?;
    let mut client = Client::open(args.socket.target())?;
    let ports: Vec<String> = client.status()?.ports.into_iter().map(|port| port.name).collect();
    let writer = open(&args.output)?;
    let file = PcapngWriter::new(writer, ports.iter().map(String::as_str));
    let mut file = file.map_err(|error| end_if_nobody_reads(error.into()))?;
    file.flush().map_err(|error| end_if_nobody_reads(error.into()))?;
    stop_at_signal(signals, client.stopper()?)?;
    let query = Query::Capture {
        at: args.at.clone(),
        filter: args.packets.filter(),
        count: args.limit,
        seconds: args.seconds,
        snapshot_bytes: args.snapshot_bytes,
    };
    let (mut frames, mut missed, mut result) = (0, 0, Ok(()));
    let ended = client.stream(query, args.seconds, |line| match line {
        Line::Frame(frame) if result.is_ok() => {
            result = write(&mut file, &ports, &frame).map_err(end_if_nobody_reads);
            frames += usize::from(result.is_ok());
        }
        Line::Missed { count, .. } => missed += count,
        _ => {}
    });
    // Standard output may be the capture itself. What was captured counts, however the stream ended.
    if ended.is_ok() || frames > 0 {
        eprintln!(
            "{} captured{}",
            counted(frames, "frame"),
            if missed == 0 { String::new() } else { format!(", {missed} missed") }
        );
    }
    result?;
    Ok(ended?)
}

/// Has a thread wait for a signal, and then end the stream.
fn stop_at_signal(signals: Signals, stopper: StreamStopper) -> Result<(), CaptureError> {
    let poller = Poller::new()?;
    poller.add(&signals, SIGNALS)?;
    let wait = move || {
        let mut ready = Vec::new();
        while signals.receive().is_none() {
            if poller.wait(&mut ready, None).is_err() {
                break;
            }
        }
        stopper.stop();
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop).map_err(CaptureError::Thread)
}

/// Ends the process, quietly, if what reads the capture has seen enough (`head`); the error otherwise.
fn end_if_nobody_reads(error: CaptureError) -> CaptureError {
    match error {
        CaptureError::Write(PcapError::Io(error)) => {
            CaptureError::Write(PcapError::Io(console::end_if_nobody_reads(error)))
        }
        error => error,
    }
}

fn open(path: &Path) -> Result<Box<dyn Write>, CaptureError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let create = |source| CaptureError::Create { path: path.to_owned(), source };
    Ok(Box::new(BufWriter::new(File::create(path).map_err(create)?)))
}

fn write<W: Write>(file: &mut PcapngWriter<W>, ports: &[String], frame: &FrameLine) -> Result<(), CaptureError> {
    let interface = ports.iter().position(|port| *port == frame.port).ok_or(CaptureError::NotUnderstood)?;
    let bytes = from_hexadecimal(&frame.bytes).ok_or(CaptureError::NotUnderstood)?;
    let comment = frame.dropped.as_ref().map(|reason| format!("dropped: {reason}"));
    let at = Instant::from_nanos(frame.unix_ns);
    file.write_commented(interface, at, &bytes, frame.length_bytes, comment.as_deref())?;
    // A capture that is killed, or read while it runs, has whole frames.
    Ok(file.flush()?)
}
