//! `mainstay sync`, as an operator would run it: a configuration file, a process in its router's namespace, and the commands that
//! keepalived calls.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use packet_io::namespace::Namespace;
use packet_io::signal::die_with_parent;

use super::error::SyncDaemonError;
use super::replicator::Replicator;
use super::routers::{ACTIVE, Tuning, tracked};
use crate::bench::BenchError;
use crate::bench::kernel_routers::prepared::Prepared;
use crate::testbed::cluster::{Directory, NAMES};
use crate::testbed::topology::SYNC;
use control::client::Client;

/// UDP port of the replication link.
const PORT: u16 = 3781;
/// Lines of the log that an error shows.
const LOG_TAIL_LINES: usize = 12;

/// A running daemon. Dropping it ends it.
pub(super) struct SyncDaemon {
    number: usize,
    child: Child,
    program: PathBuf,
    control_socket: PathBuf,
    log: PathBuf,
}

impl SyncDaemon {
    /// Writes its configuration and starts it.
    ///
    /// # Errors
    /// Files cannot be written, or the process not be started.
    pub(super) fn start(
        node: &Namespace,
        directory: &Directory,
        number: usize,
        takes_all_events: bool,
        tuning: Tuning,
    ) -> Result<Self, BenchError> {
        let file = |extension: &str| directory.path.join(format!("{}.{extension}", NAMES[number]));
        let (config, control_socket, log) = (file("toml"), file("sock"), file("log"));
        let written = fs::write(&config, configuration(number, takes_all_events, tuning, &control_socket));
        let output = written.and_then(|()| File::create(&log)).map_err(|source| directory.error(source))?;
        let program = std::env::current_exe().map_err(SyncDaemonError::Program)?;
        let mut command = Command::new(&program);
        command.arg("sync").arg("--config").arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        die_with_parent(&mut command);
        let child = node.spawn_command(command)?;
        Ok(Self { number, child, program, control_socket, log })
    }

    fn refused(&self, request: &'static str, reason: String) -> SyncDaemonError {
        SyncDaemonError::Refused { name: NAMES[self.number], request, reason }
    }

    fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

/// The configuration of the daemon of router `number`. All that is not set here has its default.
fn configuration(number: usize, takes_all_events: bool, tuning: Tuning, control_socket: &Path) -> String {
    let (own, other) = (SYNC[number], SYNC[1 - number]);
    let mut kernel = String::new();
    // Writing to a string cannot fail.
    if takes_all_events {
        let _ = writeln!(kernel, "events = \"all\"");
    }
    if let Some(bytes) = tuning.event_buffer_bytes {
        let _ = writeln!(kernel, "receive_buffer = \"{bytes}B\"\nreceive_buffer_max = \"{bytes}B\"");
    }
    format!(
        "[node]\nid = {number}\nname = \"{}\"\ncontrol_socket = {control_socket:?}\n\n\
         [kernel]\n{kernel}\n\
         [cluster]\nmode = \"primary-backup\"\nrole = \"{}\"\n\n\
         [[filter.ignore]]\naddresses = [\"127.0.0.0/8\", \"::1\", \"{own}\", \"{other}\"]\n\n\
         [replication]\nlocal = \"{own}:{PORT}\"\n\n\
         [[replication.peer]]\nid = {}\naddress = \"{other}:{PORT}\"\n\n\
         [replication.security]\nmode = \"plain\"\n",
        NAMES[number],
        if number == ACTIVE { "primary" } else { "backup" },
        1 - number,
    )
}

impl Replicator for SyncDaemon {
    fn process(&self) -> u32 {
        self.child.id()
    }

    fn check_running(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                Err(SyncDaemonError::Ended { name: NAMES[self.number], status, log: self.log_tail() }.into())
            }
            _ => Ok(()),
        }
    }

    fn check_ready(&self, _: &Namespace) -> Result<(), String> {
        let name = NAMES[self.number];
        let said = |error| format!("that of router {name}: {error}");
        let status = Client::connect(&self.control_socket).and_then(|mut client| client.status());
        let status = status.map_err(|error| said(error.to_string()))?;
        let sync = status.sync.ok_or_else(|| said("its status has no replication".into()))?;
        let (ready, hindrances) = match self.number == ACTIVE {
            true => (sync.readiness.failover_safe, sync.readiness.not_safe_reasons),
            false => (sync.readiness.may_take_over, sync.readiness.may_not_reasons),
        };
        if ready { Ok(()) } else { Err(said(hindrances.join("; "))) }
    }

    fn known(&self, node: &Namespace) -> Result<u64, BenchError> {
        // Its replicas are in the kernel.
        tracked(node)
    }

    fn kill(&mut self) -> Result<(), BenchError> {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        Ok(ended.map(drop).map_err(|error| self.refused("SIGKILL", error.to_string()))?)
    }

    fn prepare_take_over(&self, node: &Namespace) -> Result<Prepared, BenchError> {
        let arguments = ["sync".as_ref(), "primary".as_ref(), OsStr::new("--socket"), self.control_socket.as_os_str()];
        Ok(Prepared::new(node, &self.program, arguments)?)
    }

    fn take_over(&self, prepared: Prepared) -> Result<(), BenchError> {
        let request = "sync primary";
        let output = prepared.run().map_err(|error| self.refused(request, error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(self.refused(request, format!("{reason}; its log ends with:\n{}", self.log_tail())).into())
    }

    fn begin_as_primary(&self, _: &Namespace) -> Result<(), BenchError> {
        // It has begun.
        Ok(())
    }
}

impl Drop for SyncDaemon {
    fn drop(&mut self) {
        // A child that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
