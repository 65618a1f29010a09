//! Programs that run beside a router, each with a log, ended with the value.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use packet_io::namespace::Namespace;
use packet_io::signal::{self, Signal, die_with_parent};

use crate::testbed::cluster::{ClusterError, Directory, NAMES};

/// Lines of a log that an error shows.
const LOG_TAIL_LINES: usize = 12;

/// A running program.
pub(super) struct Program {
    /// The router's.
    name: &'static str,
    child: Child,
    log: PathBuf,
    /// Where the program writes the number of a process that it has started and that is to be killed with it.
    worker: Option<PathBuf>,
}

impl Program {
    /// Starts a program in a router's namespace. Its output is appended to `LOG`.
    pub(super) fn start(
        node: &Namespace,
        directory: &Directory,
        number: usize,
        log: &str,
        mut command: Command,
    ) -> Result<Self, ClusterError> {
        let name = NAMES[number];
        let log = directory.path.join(format!("{name}-{log}.log"));
        let open = || OpenOptions::new().create(true).append(true).open(&log);
        let output = open().map_err(|source| directory.error(source))?;
        let errors = open().map_err(|source| directory.error(source))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        die_with_parent(&mut command);
        let child = node.spawn_command(command)?;
        Ok(Self { name, child, log, worker: None })
    }

    /// With a process of its own, whose number is in a file.
    pub(super) fn with_worker(mut self, file: &Path) -> Self {
        self.worker = Some(file.to_owned());
        self
    }

    pub(super) fn check_running(&mut self) -> Result<(), ClusterError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(ClusterError::Ended { name: self.name, status, log: self.log_tail() }),
            _ => Ok(()),
        }
    }

    /// The process's number.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has it end in good order.
    pub(super) fn terminate(mut self) {
        if signal::send(self.id(), Signal::Terminate).is_ok() {
            // Its last output is in its log.
            let _ = self.child.wait();
        }
    }

    /// What it has logged so far.
    pub(super) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    pub(super) fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].iter().map(|line| format!("  {line}\n")).collect()
    }

    /// Kills it, as a power cut would. A worker goes first, and a program that sees it go would start another: so the
    /// program stands still meanwhile.
    fn kill(&mut self) {
        let worker = self.worker.take().and_then(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
        // Processes that have ended already need not be killed.
        if let Some(worker) = worker {
            let _ = signal::pause(self.child.id());
            let _ = signal::kill(worker);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
