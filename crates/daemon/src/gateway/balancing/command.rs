//! A check by a program. Its time and its output are limited. After its time it is killed with all that it started.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::thread;

use packet_io::signal;

use super::probe::{Failure, Target};

/// Bytes of its standard error that become the reason of a failure; more are read and discarded.
const REASON_BYTES_MAX: usize = 200;
/// Bytes that are read of it at a time, and how often at one look.
const CHUNK_BYTES: usize = 1024;
const CHUNKS_MAX: usize = 16;
/// Where programs that it calls by name are found.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that runs. It is killed when this is dropped.
pub(super) struct Command {
    /// `None` once it has ended.
    child: Option<Child>,
    /// Its standard error.
    output: UnixStream,
    reason: Vec<u8>,
}

impl Command {
    /// Starts the program of the target's check.
    pub(super) fn start(target: &Target<'_>) -> Result<Self, Failure> {
        let (program, arguments) =
            target.check.command.split_first().ok_or_else(|| Failure::of("no program is named"))?;
        let mut command = std::process::Command::new(program);
        command.args(arguments).env_clear().env("PATH", PATH).current_dir("/");
        command.env("MAINSTAY_SERVICE", target.service);
        command.env("MAINSTAY_ADDRESS", target.end.ip().to_string());
        command.env("MAINSTAY_PORT", target.end.port().to_string());
        let (output, written) = UnixStream::pair()?;
        output.set_nonblocking(true)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(OwnedFd::from(written));
        // A group of its own is killed as a whole.
        command.process_group(0);
        signal::die_with_parent(&mut command);
        let child = command.spawn().map_err(|error| Failure::of(format!("{program} cannot be run: {error}")))?;
        Ok(Self { child: Some(child), output, reason: Vec::new() })
    }

    /// Looks whether it has ended. `None`: it has succeeded.
    pub(super) fn advance(mut self) -> Result<Option<Self>, Failure> {
        self.read();
        let Some(child) = &mut self.child else { return Ok(None) };
        let Some(status) = child.try_wait()? else { return Ok(Some(self)) };
        self.child = None;
        self.read();
        if status.success() {
            return Ok(None);
        }
        let reason = String::from_utf8_lossy(&self.reason);
        let line = reason.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let line: String = line.chars().filter(|character| !character.is_control()).collect();
        Err(Failure::of(if line.is_empty() { status.to_string() } else { format!("{status}: {line}") }))
    }

    /// Reads what it has written, so that it never waits for a reader.
    fn read(&mut self) {
        let mut chunk = [0; CHUNK_BYTES];
        for _ in 0..CHUNKS_MAX {
            match self.output.read(&mut chunk) {
                Ok(length @ 1..) => {
                    let room = REASON_BYTES_MAX.saturating_sub(self.reason.len());
                    self.reason.extend_from_slice(&chunk[..length.min(room)]);
                }
                _ => return,
            }
        }
    }
}

impl Command {
    /// Kills it with all that it started. [`Command::is_gone`] then has to be called until it is true.
    pub(super) fn kill(&mut self) {
        if let Some(child) = &self.child {
            // It has not been waited for, so its number is still its own.
            let _ = signal::kill_group(child.id());
        }
    }

    /// Whether a killed program has gone. One that hangs in the kernel takes its time.
    pub(super) fn is_gone(&mut self) -> bool {
        let is_gone = self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
        if is_gone {
            self.child = None;
        }
        is_gone
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        self.kill();
        if self.is_gone() {
            return;
        }
        let child = self.child.take();
        // Nothing waits for a program that a reload or the end of the process has overtaken.
        let _ = thread::Builder::new().name("reaper".to_owned()).spawn(move || child.map(|mut child| child.wait()));
    }
}
