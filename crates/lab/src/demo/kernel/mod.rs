//! `mainstay demo --kernel`: the demo on the kernel's own connection tracking. Two ordinary Linux routers with nftables
//! ([`routers`]), `mainstay sync` beside each, real traffic that is routed and translated ([`network`]); the active
//! router dies, a manager (the demo itself, or keepalived if asked) moves the addresses, and what survived is counted.

pub mod example;
mod manager;
pub mod network;
mod program;
pub mod report;
pub mod routers;
mod sync;

use std::env;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use packet_io::sysctl;

use super::DemoError;
use super::report::Settings;
use super::run::{FunctionPlan, REPETITIONS_MAX, RunError, Stage};
use crate::args::DemoArgs;
use crate::testbed::clock::Epoch;
use crate::testbed::cluster::{ClusterError, Shape};
use crate::testbed::session::Session;
use crate::testbed::watch::{Waited, Watch};
use console::Progress;
use manager::{Succession, Watcher};
use report::{KernelReport, KernelRun, Manager};
use routers::Routers;

/// The routers, by number: the one that has the addresses at first, and the one that takes them over.
const ACTIVE: usize = 0;
const STANDBY: usize = 1;
/// How long daemons and managers may take until they are ready.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// How long connections may take to go on after that.
const PROGRESS_WITHIN: Duration = Duration::from_secs(10);
/// How long the standby may take until it has the addresses and has forwarded.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(5);

/// Runs the demo with replication and without, and shows what became of the connections.
///
/// # Errors
/// It could not be run, or a replicated connection broke.
pub(super) fn run(args: &DemoArgs, watch: &Watch) -> Result<(), DemoError> {
    let keepalived = args.keepalived.then_some(("keepalived", "keepalived"));
    let programs: Vec<_> = [("nft", "nftables")].into_iter().chain(keepalived).collect();
    available(&programs).map_err(DemoError::Missing)?;
    let report = make_report(args, watch)?;
    console::print_as(args.json, &report, || report.describe())?;
    let (broken, connections) = (report.replicated.run.broken, report.replicated.run.connections);
    if broken == 0 { Ok(()) } else { Err(DemoError::Broken { broken, connections }) }
}

fn make_report(args: &DemoArgs, watch: &Watch) -> Result<KernelReport, DemoError> {
    let manager = if args.keepalived { Manager::Keepalived } else { Manager::Demo };
    let settings = Settings::new(args);
    let progress = Progress::new();
    let servers = network::targets().into_iter().map(|(_, address)| address).collect();
    let traffic = Stage {
        edges: None,
        host_parameters: Vec::new(),
        function: FunctionPlan::default(),
        watch,
        progress: &progress,
        settings: &settings,
        keep_logs: args.keep_logs,
        shape: Shape::OneActive,
        servers,
    };
    let demonstration = Demonstration { manager, traffic };
    Ok(KernelReport {
        program_version: env!("CARGO_PKG_VERSION").into(),
        kernel: sysctl::read("kernel/osrelease").unwrap_or_default(),
        manager,
        replicated: demonstration.run(true)?,
        without_replication: demonstration.run(false)?,
        seconds: settings.seconds,
        ramp: settings.ramp,
    })
}

/// What the runs have in common.
struct Demonstration<'a> {
    manager: Manager,
    traffic: Stage<'a>,
}

impl Demonstration<'_> {
    /// Runs in a network of its own; again in another when the standby took over before the kill.
    fn run(&self, is_replicated: bool) -> Result<KernelRun, RunError> {
        let mut repeated = 0;
        loop {
            match self.run_once(is_replicated) {
                Err(RunError::Cluster(ClusterError::TookOverEarly)) if repeated < REPETITIONS_MAX => repeated += 1,
                result => return result.map(|run| run.repeated(repeated)),
            }
        }
    }

    fn run_once(&self, is_replicated: bool) -> Result<KernelRun, RunError> {
        let Stage { watch, progress, settings, .. } = self.traffic;
        let name = if is_replicated { "replicated" } else { "not replicated" };
        let show = |what: &str| progress.show(&format!("{name}: {what}"));
        show("building the network");
        let program =
            env::current_exe().map_err(|source| ClusterError::Refused { name, reason: source.to_string() })?;
        let mut routers = Routers::build(&program)?;
        if self.traffic.keep_logs {
            let files = routers.keep_files();
            progress.show("");
            eprintln!("{name}: configurations and logs are in {}", files.display());
        }
        show("waiting for the routers");
        if is_replicated {
            self.start_replication(&mut routers)?;
        }
        let watchers = self.start_managers(&mut routers, is_replicated)?;
        let session = Session::start_behind(routers.topology(), self.traffic.traffic_plan(), &network::listening())?;
        self.traffic.warm_up(&session, &show)?;
        routers.check_running()?;
        if !watchers[STANDBY].is_watching() || !routers.holds_addresses(ACTIVE) {
            return Err(ClusterError::TookOverEarly.into());
        }
        watchers[ACTIVE].fall_silent();
        let killed_at = routers.kill(ACTIVE)?;
        // Nothing comes over the link any more: what the standby has now is what was replicated to it.
        let replicated = if is_replicated { Some(routers.tracked(STANDBY)?) } else { None };
        show("the active router is dead");
        self.await_take_over(killed_at, &watchers[STANDBY])?;
        let taken_over_at = Instant::now();
        watch.pass_until(killed_at.instant() + Duration::from_secs_f64(settings.seconds / 2.0))?;
        show("waking the silent connections");
        session.wake_silent()?;
        self.traffic.await_answers(&session, is_replicated)?;
        if is_replicated {
            self.await_progress(&session, taken_over_at)?;
        }
        let traffic = session.finish()?;
        let [_, standby] = watchers;
        let taken_over = standby.finish()?;
        Ok(KernelRun::new(killed_at, traffic, taken_over, replicated.as_ref()))
    }

    /// Starts the daemons and waits until the standby could go on with what the active one knows.
    fn start_replication(&self, routers: &mut Routers) -> Result<(), RunError> {
        for number in [ACTIVE, STANDBY] {
            routers.start_sync(number)?;
        }
        self.wait(routers, "the daemons are not synchronised", |routers| routers.are_ready())
    }

    /// Gives the active router the addresses and has the other watch it.
    fn start_managers(&self, routers: &mut Routers, is_replicated: bool) -> Result<[Watcher; 2], RunError> {
        let topology = Arc::clone(routers.topology());
        let watchers = match self.manager {
            Manager::Demo => {
                if is_replicated {
                    routers.hook(ACTIVE, "primary")?;
                }
                routers.take_addresses(ACTIVE)?;
                let hook = is_replicated.then(|| (routers.program().to_owned(), routers.control_socket(STANDBY)));
                let standby = Succession { topology: Arc::clone(&topology), number: STANDBY, hook };
                [Watcher::of_active(&topology, ACTIVE), Watcher::of_standby(standby)]
            }
            Manager::Keepalived => {
                // The hooks fail where there is no daemon, which keepalived does not mind.
                routers.start_keepalived(ACTIVE, &[])?;
                self.wait(routers, "keepalived has not taken the addresses", |routers| {
                    routers.holds_addresses(ACTIVE)
                })?;
                routers.start_keepalived(STANDBY, &[])?;
                [ACTIVE, STANDBY].map(|number| Watcher::of_keepalived(&topology, number))
            }
        };
        let met = |_: &mut Routers| watchers[STANDBY].is_watching();
        if let Err(error) = self.wait(routers, "the routers do not receive from each other", met) {
            // A watcher that has ended knows why.
            let reason = watchers.into_iter().filter(Watcher::has_ended).find_map(|watcher| watcher.finish().err());
            return Err(reason.map_or(error, RunError::from));
        }
        Ok(watchers)
    }

    fn wait(
        &self,
        routers: &mut Routers,
        missing: &str,
        mut is_ready: impl FnMut(&mut Routers) -> bool,
    ) -> Result<(), RunError> {
        let waited = self.traffic.watch.until(Instant::now() + READY_WITHIN, || -> Result<bool, RunError> {
            routers.check_running()?;
            Ok(is_ready(routers))
        })?;
        if waited == Waited::Met {
            return Ok(());
        }
        Err(ClusterError::NotReady { reason: missing.into(), logs: routers.logs() }.into())
    }

    /// Gives every connection the time for its next retransmission, which comes the later the longer no answer came. That
    /// one has no progress all the same shows in the result.
    fn await_progress(&self, session: &Session, since: Instant) -> Result<(), RunError> {
        let deadline = Instant::now() + PROGRESS_WITHIN;
        self.traffic.watch.until(deadline, || -> Result<bool, RunError> {
            Ok(session.progress().all_progressed_since.is_none_or(|at| at > since))
        })?;
        Ok(())
    }

    /// That the standby never takes over shows in the result.
    fn await_take_over(&self, killed_at: Epoch, standby: &Watcher) -> Result<(), RunError> {
        let deadline = killed_at.instant() + TAKEN_OVER_WITHIN;
        let waited = self.traffic.watch.until(deadline, || -> Result<bool, RunError> { Ok(standby.has_ended()) })?;
        if waited == Waited::TooLate {
            self.traffic.progress.show("the standby has not taken over");
        }
        Ok(())
    }
}

/// Whether programs are installed that routers or tests of them need; if not, which, and what to do about it.
///
/// # Errors
/// What is missing.
pub fn available(programs: &[(&str, &str)]) -> Result<(), String> {
    for (program, package) in programs {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
            .status()
            .map_err(|error| format!("{program} cannot be run ({error}): install the package {package}"))?;
    }
    Ok(())
}
