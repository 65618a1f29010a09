//! One conntrackd: started in its router's namespace, asked by its own client.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use packet_io::namespace::Namespace;
use packet_io::signal::die_with_parent;

use super::config::{Files, configuration};
use super::{ConntrackdError, DaemonPlan, Mode};
use crate::bench::BenchError;
use crate::bench::kernel_routers::prepared::Prepared;
use crate::testbed::cluster::{Directory, NAMES};

/// Lines of the log that an error shows.
const LOG_TAIL_LINES: usize = 12;

/// A running daemon. Dropping it ends it.
pub(crate) struct Daemon {
    name: &'static str,
    child: Child,
    config: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Writes its configuration and starts it.
    pub(crate) fn start(
        node: &Namespace,
        directory: &Directory,
        number: usize,
        plan: &DaemonPlan,
    ) -> Result<Self, BenchError> {
        let name = NAMES[number];
        let file = |extension: &str| directory.path.join(format!("{name}.{extension}"));
        let text = |extension: &str| file(extension).to_string_lossy().into_owned();
        let (config, log) = (file("conf"), file("log"));
        let files = Files { log: text("log"), lock: text("lock"), control: text("ctl") };
        let written = fs::write(&config, configuration(number, plan, &files));
        let output = written.and_then(|()| File::create(file("out")));
        let output = output.map_err(|source| directory.error(source))?;
        let mut command = Command::new("conntrackd");
        // Its messages before it has a log, and its logs.
        command.arg("-C").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        die_with_parent(&mut command);
        let child = node.spawn_command(command)?;
        Ok(Self { name, child, config, log })
    }

    /// Returns an error with the end of its log if it has ended.
    pub(crate) fn check_running(&mut self) -> Result<(), ConntrackdError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(ConntrackdError::Ended { name: self.name, status, log: self.log_tail() }),
            _ => Ok(()),
        }
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(&mut self) -> Result<(), ConntrackdError> {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        ended.map(drop).map_err(|error| self.refused("SIGKILL", error.to_string()))
    }

    /// Has it do something, and waits until it has. Returns its answer.
    pub(crate) fn ask(&self, node: &Namespace, request: &'static str) -> Result<String, ConntrackdError> {
        let mut command = Command::new("conntrackd");
        command.arg("-C").arg(&self.config).args(request.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.finish(node.spawn_command(command)?, request)
    }

    /// Makes ready to have it do something later.
    pub(crate) fn prepare(&self, node: &Namespace, request: &'static str) -> Result<Prepared, ConntrackdError> {
        let arguments = ["-C".as_ref(), self.config.as_os_str(), request.as_ref()];
        Ok(Prepared::new(node, "conntrackd", arguments)?)
    }

    /// Has it do what was prepared, and waits until it has.
    pub(crate) fn ask_prepared(&self, prepared: Prepared, request: &'static str) -> Result<(), ConntrackdError> {
        let output = prepared.run().map_err(|error| self.refused(request, error.to_string()))?;
        self.check_done(&output, request)
    }

    fn finish(&self, child: Child, request: &'static str) -> Result<String, ConntrackdError> {
        let output = child.wait_with_output().map_err(|error| self.refused(request, error.to_string()))?;
        self.check_done(&output, request)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn check_done(&self, output: &Output, request: &'static str) -> Result<(), ConntrackdError> {
        if output.status.success() {
            return Ok(());
        }
        Err(self.refused(request, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// Returns what is missing until it has received from the other.
    pub(crate) fn check_receives_from_peer(&self, node: &Namespace, mode: Mode) -> Result<(), String> {
        let statistics = self.ask(node, "-s network").map_err(|error| error.to_string())?;
        if receives_from_peer(&statistics, mode) {
            Ok(())
        } else {
            Err(format!("that of router {} has received nothing", self.name))
        }
    }

    /// Connections of the other that it keeps in its own memory.
    pub(crate) fn external_cache_entries(&self, node: &Namespace) -> Result<u64, ConntrackdError> {
        let request = "-s cache";
        let statistics = self.ask(node, request)?;
        external_entries(&statistics).ok_or_else(|| self.refused(request, format!("its answer is {statistics:?}")))
    }

    fn refused(&self, request: &'static str, reason: String) -> ConntrackdError {
        ConntrackdError::Refused { name: self.name, request, reason }
    }

    fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A child that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a daemon's network statistics show that it has received from its peer. Over TCP, keep-alives do not count as
/// bytes received, but it reports whether both connections stand.
fn receives_from_peer(statistics: &str, mode: Mode) -> bool {
    let words: Vec<&str> = statistics.split_ascii_whitespace().collect();
    match mode {
        Mode::Tcp => ["server=connected", "client=connected:"].iter().all(|word| words.contains(word)),
        Mode::Ftfw | Mode::Notrack => {
            words.windows(3).any(|window| window[1..] == ["Bytes", "recv"] && window[0] != "0")
        }
    }
}

/// Finds the entries of the external cache among the statistics of both caches.
fn external_entries(statistics: &str) -> Option<u64> {
    let (_, external) = statistics.split_once("cache:external")?;
    let (_, count) = external.split_once("active objects:")?;
    count.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_have_the_entries_of_the_external_cache() {
        let statistics = "cache:internal\tactive objects:\t\t   7\n\tactive/total entries:\t 7/ 7\n\n\
                          cache:external\tactive objects:\t\t  30\n\tactive/total entries:\t 30/ 30\n";
        assert_eq!(external_entries(statistics), Some(30));
        assert_eq!(external_entries("cache:internal\tactive objects: 7"), None);
    }

    #[test]
    fn statistics_show_whether_the_peer_was_received() {
        let udp = |bytes: u64| {
            format!(
                "UDP traffic (active device=sync):\n        32 Bytes sent         {bytes} Bytes recv\n\
                 2 Pckts sent       2 Pckts recv\n"
            )
        };
        assert!(receives_from_peer(&udp(24), Mode::Ftfw) && !receives_from_peer(&udp(0), Mode::Notrack));
        let tcp = |server: &str| {
            format!(
                "TCP traffic (active device=sync) server={server} client=connected:\n  16 Bytes sent  0 Bytes recv\n"
            )
        };
        assert!(
            receives_from_peer(&tcp("connected"), Mode::Tcp) && !receives_from_peer(&tcp("disconnected"), Mode::Tcp)
        );
    }
}
