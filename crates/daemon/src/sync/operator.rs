//! What operators, and keepalived, have done: away from the thread that replicates as far as it may take long or fail.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use crate::credentials;
use crate::error::ProcessError;
use crate::logging;
use api::{EventKind, ReloadReport, SyncOrder, SyncReadiness};
use config::ConfigError;
use config::diagnostic::Severity;
use config::sync::{self, SyncConfig};
use config::validated::{Node, Security};
use control::inquiry::AskError;
use control::orders::{OperationError, Operations, Order, SyncReloadOrder};
use control::{ControlSender, Credentials, RemoteServer};

/// Puts another configuration in force, and passes on what is ordered.
pub(super) struct Operator {
    path: PathBuf,
    sender: ControlSender,
    running: Mutex<SyncConfig>,
    /// Where the control API is offered from afar.
    remote: Mutex<Weak<RemoteServer>>,
}

impl Operator {
    /// For a node that runs with `config`, read from `path`. Reads the file again whenever that is requested.
    pub(super) fn start(
        path: PathBuf,
        config: SyncConfig,
        sender: ControlSender,
        reload_requests: Receiver<()>,
    ) -> Result<Arc<Self>, ProcessError> {
        let operator = Arc::new(Self { path, sender, running: Mutex::new(config), remote: Mutex::default() });
        let serving = Arc::clone(&operator);
        let serve = move || {
            while reload_requests.recv().is_ok() {
                if let Err(error) = serving.reload(false) {
                    tracing::error!("the configuration is not reloaded: {error}");
                }
            }
        };
        let spawned = thread::Builder::new().name("reload".to_owned()).spawn(serve);
        spawned.map(|_| operator).map_err(ProcessError::Thread)
    }

    /// Has reloads exchange what clients of the server must show.
    pub(super) fn exchanges_credentials_of(&self, server: &Arc<RemoteServer>) {
        *self.remote.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(server);
    }

    /// Reads the file. If it cannot be used, the report has the reason.
    fn read(&self, report: &mut ReloadReport) -> Option<SyncConfig> {
        match sync::load(&self.path) {
            Ok(checked) => {
                report.warnings = checked.warnings.iter().map(ToString::to_string).collect();
                Some(checked.config)
            }
            Err(ConfigError::Invalid(found)) => {
                let (mistakes, warnings) = found.iter().partition::<Vec<_>, _>(|one| one.severity == Severity::Error);
                report.mistakes = mistakes.iter().map(ToString::to_string).collect();
                report.warnings = warnings.iter().map(ToString::to_string).collect();
                None
            }
            Err(error) => {
                report.mistakes.push(error.to_string());
                None
            }
        }
    }

    fn apply(&self, running: &mut SyncConfig, config: SyncConfig, report: &mut ReloadReport) -> Result<(), AskError> {
        let credentials = match config.control.as_ref().map(Credentials::load).transpose() {
            Ok(credentials) => credentials,
            Err(error) => {
                report.mistakes.push(error.to_string());
                return Ok(());
            }
        };
        // Read anew whether or not the section changed: the files may have.
        let security = match credentials::renew(security_of(&config)) {
            Ok(security) => security,
            Err(error) => {
                report.mistakes.push(error.to_string());
                return Ok(());
            }
        };
        if report.check_only {
            return Ok(());
        }
        let summary =
            if report.changes.is_empty() { "nothing has changed".to_owned() } else { report.changes.join("; ") };
        let order = SyncReloadOrder { config: config.clone(), security, summary };
        match self.sender.order(Order::SyncReload(Box::new(order)))? {
            Ok(_) => report.applied = true,
            Err(why) => {
                report.mistakes.push(why);
                return Ok(());
            }
        }
        if config.node.log != running.node.log && !logging::set_level(config.node.log) {
            report.warnings.push(format!("node.log has no effect: {} goes before it", logging::VARIABLE));
        }
        let remote = self.remote.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some((remote, credentials)) = remote.zip(credentials) {
            remote.exchange(credentials);
        }
        *running = config;
        Ok(())
    }
}

/// What the channels with peers are secured by, if anything.
fn security_of(config: &SyncConfig) -> Option<&Security> {
    config.replication.as_ref().and_then(|native| native.replication.security.as_ref())
}

/// What is otherwise in the new configuration, and what of it needs a restart.
fn compare(before: &SyncConfig, after: &SyncConfig, report: &mut ReloadReport) {
    // Every field is named, so that a new one cannot be forgotten.
    let SyncConfig { node, kernel, mode, role, filter, replication, conntrackd, control } = after;
    let mut change = |is_otherwise: bool, what: &str| {
        if is_otherwise {
            report.changes.push(what.to_owned());
        }
    };
    change(node.name != before.node.name, "node.name");
    change(node.log != before.node.log, "node.log");
    change(*filter != before.filter, "[filter]");
    change(kernel.event_interval != before.kernel.event_interval, "kernel.event_interval");
    let buffer = |config: &SyncConfig| config.kernel.receive_buffer_bytes_max;
    change(buffer(after) != buffer(before), "kernel.receive_buffer_max");
    // Keys can be exchanged for others, but not for none.
    let goes_over = security_of(after).is_some() && security_of(before).is_some();
    change(goes_over && security_of(after) != security_of(before), "[replication.security]");
    change(*role != before.role, "cluster.role, of the next start");
    let listens = |config: &SyncConfig| config.control.as_ref().map(|access| access.listen);
    change(*control != before.control && listens(after) == listens(before), "[control]");
    let mut restart = |is_otherwise: bool, what: &str| {
        if is_otherwise {
            report.needs_restart.push(what.to_owned());
        }
    };
    let kept = Node { name: node.name.clone(), log: node.log, ..before.node.clone() };
    restart(*node != kept, "[node] but for name and log");
    restart(kernel.events != before.kernel.events, "kernel.events");
    restart(kernel.injection != before.kernel.injection, "kernel.injection");
    restart(kernel.connections_max != before.kernel.connections_max, "kernel.connections_max");
    restart(kernel.receive_buffer_bytes != before.kernel.receive_buffer_bytes, "kernel.receive_buffer");
    restart(kernel.expectations != before.kernel.expectations, "kernel.expectations");
    restart(*mode != before.mode, "cluster.mode");
    let mut kept = before.replication.clone();
    if let (Some(kept), Some(native), true) = (&mut kept, replication, goes_over) {
        kept.replication.security.clone_from(&native.replication.security);
    }
    restart(*replication != kept, "[replication]");
    restart(*conntrackd != before.conntrackd, "[conntrackd]");
    restart(listens(after) != listens(before), "control.listen");
}

impl Operations for Operator {
    fn reload(&self, check_only: bool) -> Result<ReloadReport, AskError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = ReloadReport { check_only, ..ReloadReport::default() };
        if let Some(config) = self.read(&mut report) {
            compare(&running, &config, &mut report);
            if report.is_possible() {
                self.apply(&mut running, config, &mut report)?;
            }
        }
        if !report.applied && !check_only {
            let reasons: Vec<&str> = report.mistakes.iter().chain(&report.needs_restart).map(String::as_str).collect();
            let remedy = if report.mistakes.is_empty() { "a restart is needed for " } else { "" };
            let text = format!("nothing has changed: {remedy}{}", reasons.join("; "));
            // The event is for those who look later; the caller has the report.
            let _ = self.sender.order(Order::Note(EventKind::ReloadRefused, text));
        }
        Ok(report)
    }

    fn drain(&self, _is_forced: bool) -> Result<(), OperationError> {
        Err(OperationError::Refused(
            "this is mainstay sync, not a gateway: keepalived has the addresses here. Have it hand them over (its track_file, \
             or a stop), which calls `mainstay sync backup`"
                .to_owned(),
        ))
    }

    fn undrain(&self) -> Result<(), OperationError> {
        Err(OperationError::Refused(
            "this is mainstay sync, not a gateway: keepalived has the addresses here. Have it take them back"
                .to_owned(),
        ))
    }

    fn sync(&self, order: SyncOrder) -> Result<SyncReadiness, OperationError> {
        if order != SyncOrder::Nothing {
            self.sender.order(Order::Sync(order))?.map_err(OperationError::Refused)?;
        }
        let status = self.sender.status()?;
        Ok(status.sync.map(|sync| sync.readiness).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = include_str!("../../../../examples/sync-left.toml");

    fn compared(from: &str, to: &str) -> ReloadReport {
        let text = BEFORE.replace(from, to);
        assert_ne!(text, BEFORE, "{from} is in the file");
        let config = |text: &str| sync::parse("sync.toml", text).expect("it is right").config;
        let mut report = ReloadReport::default();
        compare(&config(BEFORE), &config(&text), &mut report);
        report
    }

    #[test]
    fn what_is_left_out_changes_without_a_restart() {
        for (from, to, what) in [
            ("\"10.99.0.0/30\"", "\"10.98.0.0/30\"", "[filter]"),
            ("log = \"info\"", "log = \"debug\"", "node.log"),
            ("name = \"left\"", "name = \"west\"", "node.name"),
            ("receive_buffer_max = \"64MiB\"", "receive_buffer_max = \"128MiB\"", "kernel.receive_buffer_max"),
            ("role = \"backup\"", "role = \"primary\"", "cluster.role, of the next start"),
            ("cluster.key\"]", "new.key\", \"/etc/mainstay/cluster.key\"]", "[replication.security]"),
        ] {
            let report = compared(from, to);
            assert_eq!((report.changes, report.needs_restart), (vec![what.to_owned()], Vec::new()));
        }
    }

    #[test]
    fn what_others_rely_on_needs_a_restart_and_is_named() {
        for (from, to, what) in [
            ("injection = \"direct\"", "injection = \"external-cache\"", "kernel.injection"),
            ("local = \"10.99.0.1:3781\"", "local = \"10.99.0.9:3781\"", "[replication]"),
            ("/run/mainstay/sync.sock", "/run/mainstay/other.sock", "[node] but for name and log"),
            ("mode = \"primary-backup\"\nrole = \"backup\"", "mode = \"multi-primary\"\n#", "cluster.mode"),
        ] {
            assert!(compared(from, to).needs_restart.contains(&what.to_owned()), "{what}");
        }
    }
}
