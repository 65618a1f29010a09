//! The configuration file read again while packets pass.
//!
//! ```text
//!   SIGHUP ────────► thread "reload" ─┐
//!   control client ─► its own thread ─┴─► read, check, compare, build ─► order ─► data path: between two batches
//! ```
//! Whatever may take long or fail is done away from the data path; what reaches it is checked and built.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use membership::MemberState;
use network_functions::chain::ChainLayout;

use super::balancing::Balancing;
use super::build::{self, NewChain, Secrets, SharedFunctions};
use super::changes::Changes;
use super::files;
use super::members::{GossipKeys, Members};
use super::workers::Ready;
use crate::credentials::{self, SecretError};
use crate::describe;
use crate::error::ProcessError;
use crate::logging;
use crate::url_lists::{self, UrlListsErrors};
use api::{EventKind, ReloadReport};
use config::ConfigError;
use config::diagnostic::Severity;
use config::validated::{Config, Function, MembershipSource};
use control::inquiry::AskError;
use control::orders::{OperationError, Operations, Order, ReloadOrder};
use control::{ControlSender, Credentials, OrderOutcome, RemoteServer};

/// What the data path runs with.
struct Running {
    /// The configuration file as it was read last.
    file: Config,
    /// The same, with the members of the cluster as peers.
    config: Config,
    /// A list of members that was refused: it is not tried again.
    refused: Option<Config>,
    /// The chain's functions: those of the configuration, and those that stay once they were there.
    functions: Vec<Function>,
    layout: ChainLayout,
    /// The fingerprint of the keys and certificates that the channels with peers are secured by.
    channels: Option<u64>,
}

/// Puts another configuration in force, and takes the node out of service and back.
pub(super) struct Operator {
    path: PathBuf,
    secrets: Secrets,
    sender: ControlSender,
    balancing: Arc<Balancing>,
    running: Mutex<Running>,
    /// The members of the cluster, where they come from elsewhere than the file.
    members: Option<Arc<Members>>,
    /// Where the control API is offered from afar.
    remote: Mutex<Weak<RemoteServer>>,
}

impl Operator {
    /// For a gateway that runs with the second of `running`, which is the first, read from `path`, with the members as peers.
    /// Reads the file again at each request, until no sender of requests is left. Requests during a reload count as one.
    pub(super) fn start(
        path: PathBuf,
        (file, config): (Config, Config),
        members: Option<Arc<Members>>,
        ready: Ready,
    ) -> Result<Arc<Self>, ProcessError> {
        let Ready { sender, layout, secrets, balancing, reload_requests, credentials: channels } = ready;
        let functions = config.chain.clone();
        let running = Mutex::new(Running { file, config, refused: None, functions, layout, channels });
        let remote = Mutex::default();
        let operator = Arc::new(Self { path, secrets, sender, balancing, running, members, remote });
        let serving = Arc::clone(&operator);
        let spawned = thread::Builder::new().name("reload".to_owned()).spawn(move || serving.serve(&reload_requests));
        spawned.map(|_| operator).map_err(ProcessError::GatewayThread)
    }

    /// Has reloads exchange what clients of the server must show.
    pub(super) fn exchanges_credentials_of(&self, server: &Arc<RemoteServer>) {
        *self.remote.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(server);
    }

    fn serve(&self, triggered: &Receiver<()>) {
        while triggered.recv().is_ok() {
            if let Err(error) = self.reload(false) {
                tracing::error!("the configuration is not reloaded: {error}");
            }
        }
    }

    /// Reads the file and compares it with the running configuration; applies nothing.
    fn compare(&self, running: &Running, report: &mut ReloadReport) -> Option<(Config, Config, Changes)> {
        let checked = match config::load(&self.path) {
            Ok(checked) => checked,
            Err(ConfigError::Invalid(found)) => {
                let (mistakes, warnings) = found.iter().partition::<Vec<_>, _>(|one| one.severity == Severity::Error);
                report.mistakes = mistakes.iter().map(ToString::to_string).collect();
                report.warnings = warnings.iter().map(ToString::to_string).collect();
                return None;
            }
            Err(error) => {
                report.mistakes.push(error.to_string());
                return None;
            }
        };
        let config = self.with_members(&checked.config);
        let changes = Changes::between(&running.config, &config);
        report.warnings = checked.warnings.iter().map(ToString::to_string).collect();
        report.changes.clone_from(&changes.applicable);
        report.needs_restart.clone_from(&changes.needs_restart);
        if !report.is_possible() {
            // Lists with mistakes are reported once a restart is not needed any more.
            let lists = url_lists::check(&checked.config.url_filter).unwrap_or_default();
            let files = files::digest(&checked.config, lists);
            report.configuration = describe::fingerprint(build::fingerprint(&checked.config, files));
        }
        report.is_possible().then_some((checked.config, config, changes))
    }

    /// The configuration with the members of the cluster as peers.
    fn with_members(&self, file: &Config) -> Config {
        self.members.as_ref().map_or_else(|| file.clone(), |members| members.applied_to(file))
    }

    /// Applies the members of the cluster, if they are not those that the node runs with, to the file as it was read last.
    pub(super) fn follow_members(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let config = self.with_members(&running.file);
        if config == running.config || running.refused.as_ref() == Some(&config) {
            return;
        }
        let changes = Changes::between(&running.config, &config);
        let mut report = ReloadReport { changes: changes.applicable.clone(), ..ReloadReport::default() };
        let file = running.file.clone();
        match self.apply(&mut running, (file, config.clone(), changes), &mut report) {
            Ok(()) if report.applied => {}
            Ok(()) => {
                running.refused = Some(config);
                let text = format!("the members are not applied: {}", report.mistakes.join("; "));
                let _ = self.sender.order(Order::Note(EventKind::ReloadRefused, text));
            }
            // It is tried again.
            Err(error) => tracing::warn!("the members are not applied yet: {error}"),
        }
    }

    fn apply(
        &self,
        running: &mut Running,
        (file, config, changes): (Config, Config, Changes),
        report: &mut ReloadReport,
    ) -> Result<(), AskError> {
        let functions = continued(&running.functions, &config.chain);
        let stays = |function: &Function| functions.contains(function) && !config.chain.contains(function);
        for (_, what) in STAYING.iter().filter(|(function, _)| stays(function)) {
            report.warnings.push((*what).into());
        }
        let before = self.balancing.shared();
        let shared = match SharedFunctions::new(&config, Some(&before), &self.secrets) {
            Ok(shared) => shared,
            Err(ProcessError::UrlFilter(UrlListsErrors(errors))) => {
                report.mistakes.extend(errors.iter().map(ToString::to_string));
                return Ok(());
            }
            Err(error) => {
                report.mistakes.push(error.to_string());
                return Ok(());
            }
        };
        report.configuration = describe::fingerprint(build::fingerprint(&file, shared.files));
        // Files may hold something else under the same name.
        let (lists, lists_before) = (&shared.url_filter, &before.url_filter);
        let lists = (lists.fingerprint() != lists_before.fingerprint()).then(|| {
            format!("entries of url_filter lists: {} before, {} now", lists_before.entries(), lists.entries())
        });
        report.changes.extend(lists.clone());
        let build = |_| {
            let chain = NewChain { functions: &functions, layout: running.layout.clone(), shared: &shared };
            build::reconfiguration(&config, chain, (changes.reevaluation, changes.translates_otherwise), &self.secrets)
        };
        // One for each worker, before any of them is given its own.
        let built: Result<Vec<_>, ProcessError> = (0..self.sender.workers()).map(build).collect();
        let reconfigurations = match built {
            Ok(reconfigurations) => reconfigurations,
            Err(error) => {
                report.mistakes.push(error.to_string());
                return Ok(());
            }
        };
        // Files may hold something else under the same name.
        let security = reconfigurations.first().and_then(|first| first.security.as_ref());
        let channels = security.map(|security| security.credentials.fingerprint());
        let described = security.filter(|_| channels != running.channels).map(|it| it.credentials.describe());
        let described = described.map(|described| format!("replication.security: {described} from now on"));
        report.changes.extend(described.clone());
        // Read anew whether or not the section changed: the files may have.
        let credentials = match config.control.as_ref().map(Credentials::load).transpose() {
            Ok(credentials) => credentials,
            Err(error) => {
                report.mistakes.push(error.to_string());
                return Ok(());
            }
        };
        let gossip_keys = match gossip_keys(&config) {
            Ok(keys) => keys,
            Err(error) => {
                report.mistakes.push(error.to_string());
                return Ok(());
            }
        };
        if report.check_only {
            return Ok(());
        }
        let summary = summary(changes.applicable.iter().chain(&described).chain(&lists));
        let Some(layout) = reconfigurations.first().map(|first| first.chain.layout()) else { return Ok(()) };
        // The lead, which is the first, comes last: it notes what was done.
        for (worker, reconfiguration) in reconfigurations.into_iter().enumerate().rev() {
            let (node_name, summary) = (config.node.name.clone(), summary.clone());
            let lazy = config.cluster.as_ref().and_then(|cluster| cluster.replication.lazy);
            let start = build::start(&config);
            let tracking = config.reachability.tracking.clone();
            let announce_refresh = config.node.announce_refresh;
            let service_paths = build::service_paths(&config);
            let peers = config.cluster.iter().flat_map(|cluster| &cluster.replication.peers).copied().collect();
            let order = ReloadOrder {
                reconfiguration,
                lazy,
                start,
                tracking,
                announce_refresh,
                service_paths,
                peers,
                node_name,
                summary,
            };
            match self.sender.order_of(worker, Order::Reload(Box::new(order)))? {
                Ok(reevaluates) => (report.applied, report.reevaluates) = (true, report.reevaluates | reevaluates),
                Err(reason) => {
                    report.mistakes.push(reason);
                    return Ok(());
                }
            }
        }
        if config.node.log != running.config.node.log && !logging::set_level(config.node.log) {
            report.warnings.push(format!("node.log has no effect: {} goes before it", logging::VARIABLE));
        }
        let remote = self.remote.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some((remote, credentials)) = remote.zip(credentials) {
            remote.exchange(credentials);
        }
        if let Some((members, keys)) = self.members.as_ref().zip(gossip_keys) {
            members.renew_gossip_keys(keys);
        }
        self.balancing.replace(shared, &config.services);
        *running = Running { file, config, refused: None, functions, layout, channels };
        Ok(())
    }

    /// Has the other members know what this node wants to be.
    fn publish(&self, state: MemberState) {
        self.members.iter().for_each(|members| members.set_own_state(state));
    }

    fn operate(&self, order: Order) -> Result<(), OperationError> {
        let outcome: OrderOutcome = self.sender.order(order)?;
        outcome.map(drop).map_err(OperationError::Refused)
    }
}

impl Operations for Operator {
    fn reload(&self, check_only: bool) -> Result<ReloadReport, AskError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = ReloadReport { check_only, ..ReloadReport::default() };
        if let Some(found) = self.compare(&running, &mut report) {
            self.apply(&mut running, found, &mut report)?;
        }
        if !report.applied && !check_only {
            let reasons: Vec<&str> = report.mistakes.iter().chain(&report.needs_restart).map(String::as_str).collect();
            let remedy = if report.mistakes.is_empty() { "a restart is needed for " } else { "" };
            let text = format!("nothing has changed: {remedy}{}", reasons.join("; "));
            // The event is for those who look later; the caller has the report.
            let _ = self.sender.order(Order::Note(EventKind::ReloadRefused, text));
        }
        for warning in report.warnings.iter().filter(|_| report.applied) {
            tracing::warn!("{warning}");
        }
        Ok(report)
    }

    fn drain(&self, is_forced: bool) -> Result<(), OperationError> {
        self.operate(Order::Drain { is_forced })?;
        self.publish(MemberState::Draining);
        Ok(())
    }

    fn undrain(&self) -> Result<(), OperationError> {
        self.operate(Order::Undrain)?;
        self.publish(MemberState::Active);
        Ok(())
    }
}

/// The keys of gossip as their files have them now; `None`: there is no gossip.
fn gossip_keys(config: &Config) -> Result<Option<GossipKeys>, SecretError> {
    let gossips = matches!(config.membership.source, MembershipSource::Gossip(_));
    gossips.then(|| credentials::gossip_keys(config.cluster.as_ref())).transpose()
}

/// Functions that stay in the chain for the connections that they have changed packets of, and what that means. Without NAT,
/// those connections' packets would not be translated; without the FTP helper, their numbers would not be shifted.
const STAYING: [(Function, &str); 4] = [
    (
        Function::SynProxy,
        "syn_proxy stays in the chain, without rules, for the connections whose numbers are shifted: until a restart",
    ),
    (
        Function::LoadBalancer,
        "load_balancer stays in the chain, without services, for the connections that are translated: until a restart",
    ),
    (Function::Nat, "nat stays in the chain, without rules, for the connections that are translated: until a restart"),
    (Function::Ftp, "ftp stays in the chain for the control connections that there are: until a restart"),
];

/// The functions of the chain that goes on after `before`: those wanted, and those that stay.
fn continued(before: &[Function], wanted: &[Function]) -> Vec<Function> {
    let mut functions = wanted.to_vec();
    let stays = |function: &Function| before.contains(function) && !wanted.contains(function);
    functions.extend(STAYING.map(|(function, _)| function).into_iter().filter(stays));
    // It stands before the functions that read or translate packets.
    if let Some(at) =
        functions.iter().position(|function| *function == Function::SynProxy).filter(|at| *at >= wanted.len())
    {
        functions[..=at].rotate_right(1);
    }
    functions
}

fn summary<'a>(changes: impl Iterator<Item = &'a String>) -> String {
    let changes: Vec<&str> = changes.map(String::as_str).collect();
    if changes.is_empty() { "nothing has changed".to_owned() } else { changes.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nat_stays_for_the_connections_that_it_translates() {
        use Function::{Firewall, Ftp, LoadBalancer, Nat, SynProxy};
        assert_eq!(continued(&[Firewall, LoadBalancer], &[Firewall]), [Firewall, LoadBalancer]);
        assert_eq!(continued(&[Firewall], &[Firewall, Nat]), [Firewall, Nat]);
        assert_eq!(continued(&[Firewall, Nat], &[Firewall]), [Firewall, Nat]);
        assert_eq!(continued(&[Nat, Firewall], &[]), [Nat]);
        assert_eq!(continued(&[Firewall, SynProxy, Nat], &[Firewall, Nat]), [SynProxy, Firewall, Nat]);
        assert_eq!(continued(&[Firewall, Nat], &[Firewall, SynProxy, Nat]), [Firewall, SynProxy, Nat]);
        assert_eq!(continued(&[Nat, Ftp], &[Ftp, Firewall]), [Ftp, Firewall, Nat]);
        assert_eq!(continued(&[Firewall, Ftp, Nat], &[Firewall]), [Firewall, Nat, Ftp]);
        assert_eq!(continued(&[Firewall], &[]), []);
    }
}
