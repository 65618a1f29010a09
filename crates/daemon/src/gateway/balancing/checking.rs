//! Checks of backends, from one thread apart from the data path.
//!
//! Checks leave from the host's own addresses, by the kernel's routes: the gateway's ports have no addresses of their own, and a
//! standby node, which checks as well, holds no shared ones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::EventKind;
use config::validated::{CheckKind, HealthCheck, Service};
use control::ControlSender;
use control::orders::Order;
use flow::Instant;
use flow::random::SplitMix64;
use network_functions::load_balancer::OnFailure;
use packet_io::{clock, random};
use rustls::ClientConfig;

use super::command::Command;
use super::health::Health;
use super::probe::{Failure, Probe, Target};
use super::{Balancing, InForce};
use crate::error::ProcessError;

/// How often running checks are looked at.
const TICK: Duration = Duration::from_millis(10);
/// The longest pause: a reload is noticed then at the latest.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Checks that run at a time, each with a descriptor; others wait.
const RUNNING_MAX: usize = 512;
/// Programs of checks that run at a time; others wait.
const COMMANDS_MAX: usize = 32;

/// The thread that checks. It ends with this value.
pub(in crate::gateway) struct Checks {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checks {
    /// Checks the backends of the services in force. Changes are reported to the workers by `sender`.
    pub(in crate::gateway) fn start(balancing: Arc<Balancing>, sender: ControlSender) -> Result<Self, ProcessError> {
        let (stop, stopped) = channel();
        let mut checker = Checker {
            balancing,
            sender,
            in_force: InForce::default(),
            checked: Vec::new(),
            random: SplitMix64::new(random::number()),
        };
        let thread = thread::Builder::new().name("checks".to_owned()).spawn(move || checker.run(&stopped));
        Ok(Self { stop: Some(stop), thread: Some(thread.map_err(ProcessError::GatewayThread)?) })
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.stop = None;
        // A panic of the thread has been reported on standard error.
        self.thread.take().map(JoinHandle::join);
    }
}

/// How far a backend's check is.
enum Phase {
    /// The next one is due at `Checked::due`.
    Waiting,
    Running(Probe),
    /// A program was killed after its time, and has not gone yet.
    Killed(Command),
}

/// A backend that is checked.
struct Checked {
    service: usize,
    backend: usize,
    end: SocketAddr,
    check: HealthCheck,
    health: Health,
    tls: Option<Arc<ClientConfig>>,
    /// When the next check begins; of a running one, when it has failed.
    due: Instant,
    phase: Phase,
}

struct Checker {
    balancing: Arc<Balancing>,
    sender: ControlSender,
    /// What `checked` was made of.
    in_force: InForce,
    checked: Vec<Checked>,
    random: SplitMix64,
}

impl Checker {
    fn run(&mut self, stopped: &Receiver<()>) {
        loop {
            self.follow_reload();
            self.in_force.services.handle_timeout(clock::now());
            for (index, result) in self.check() {
                self.note(index, &result);
                if self.checked[index].handle_result(&result) {
                    let reason = result.err().map(|failure| failure.reason).unwrap_or_default();
                    self.report(index, &reason);
                }
            }
            match stopped.recv_timeout(self.pause()) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Goes on with the checks that run, and begins those that are due, within the limits. Returns the results.
    fn check(&mut self) -> Vec<(usize, Result<(), Failure>)> {
        let now = clock::now();
        let is_running = |checked: &&Checked| checked.is_running();
        let mut running = self.checked.iter().filter(is_running).count();
        let mut commands = self.checked.iter().filter(is_running).filter(|checked| checked.is_command()).count();
        let mut results = Vec::new();
        for (index, checked) in self.checked.iter_mut().enumerate() {
            if !checked.is_running() {
                let may_begin = running < RUNNING_MAX && (commands < COMMANDS_MAX || !checked.is_command());
                if checked.due > now || !may_begin {
                    continue;
                }
                running += 1;
                commands += usize::from(checked.is_command());
            }
            let service = &self.in_force.configured[checked.service].config.name;
            if let Some(result) = checked.advance(now, service, self.random.next()) {
                results.push((index, result));
            }
            if !checked.is_running() {
                running -= 1;
                commands -= usize::from(checked.is_command());
            }
        }
        results
    }

    fn pause(&self) -> Duration {
        if self.checked.iter().any(Checked::is_running) {
            return TICK;
        }
        let now = clock::now();
        let checks = self.checked.iter().map(|checked| checked.due);
        let due = checks.chain(self.in_force.services.poll_timeout()).min();
        due.map_or(PAUSE_MAX, |due| due.saturating_since(now)).clamp(TICK, PAUSE_MAX)
    }

    /// Takes the services in force. Health goes on; a backend that is not checked any more is up.
    fn follow_reload(&mut self) {
        let in_force = self.balancing.in_force();
        if Arc::ptr_eq(&in_force.services, &self.in_force.services) {
            return;
        }
        let now = clock::now();
        self.checked.clear();
        for (number, service) in in_force.configured.iter().enumerate() {
            let Some(live) = in_force.services.services().get(number) else { continue };
            for (backend, view) in live.backends().iter().map(|backend| backend.view()).enumerate() {
                // Not all at once.
                let interval = service.check.as_ref().map_or(Duration::ZERO, |check| check.interval);
                let first = now + spread(interval.min(Duration::from_secs(1)) / 4, self.random.next());
                match checked(&in_force, (number, backend), !view.is_down, first) {
                    Some(checked) => self.checked.push(checked),
                    None => drop(in_force.services.handle_health(number, backend, true)),
                }
            }
        }
        self.in_force = in_force;
        let InForce { services, configured, .. } = &self.in_force;
        let name = |checked: &Checked| services.services()[checked.service].backends()[checked.backend].view().name();
        self.balancing.retain_checks(|service, backend| {
            let mut checked = self.checked.iter();
            checked.any(|checked| configured[checked.service].config.name == service && name(checked) == backend)
        });
        // A service may have begun to end the connections of failed backends.
        self.order_end_of_failed();
    }

    /// Has operators see the result.
    fn note(&self, index: usize, result: &Result<(), Failure>) {
        let Checked { service, backend, .. } = &self.checked[index];
        let InForce { services, configured, .. } = &self.in_force;
        let end = services.services()[*service].backends()[*backend].view().name();
        let reason = result.as_ref().err().map(|failure| failure.reason.as_str());
        self.balancing.note_check(clock::now(), &configured[*service].config.name, end, reason);
    }

    /// The health of a backend has changed.
    fn report(&self, index: usize, reason: &str) {
        let Checked { service, backend, health, .. } = &self.checked[index];
        let InForce { services, configured, .. } = &self.in_force;
        services.handle_health(*service, *backend, health.is_up());
        let name = &configured[*service].config.name;
        let end = services.services()[*service].backends()[*backend].view().name();
        let (kind, detail) = if health.is_up() {
            (EventKind::BackendUp, format!("{end} of service {name}"))
        } else {
            (EventKind::BackendDown, format!("{end} of service {name}: {reason}"))
        };
        // A data path that does not answer has other troubles; the service has changed.
        let _ = self.sender.order(Order::Note(kind, detail));
        if !health.is_up() {
            self.order_end_of_failed();
        }
    }

    /// Has all workers end the connections of failed backends, where a service wants that.
    fn order_end_of_failed(&self) {
        let ends = |service: &Service| service.config.on_failure == OnFailure::End;
        if !self.in_force.configured.iter().any(ends) {
            return;
        }
        for worker in 0..self.sender.workers() {
            if let Err(error) = self.sender.order_of(worker, Order::EndFailed) {
                tracing::warn!("connections of failed backends are not ended by worker {worker}: {error}");
            }
        }
    }
}

/// A backend that is to be checked, if its service has checks.
fn checked(in_force: &InForce, (number, backend): (usize, usize), is_up: bool, first: Instant) -> Option<Checked> {
    let service = in_force.configured.get(number)?;
    Some(Checked {
        service: number,
        backend,
        end: service.checked_end(backend)?,
        check: service.check.clone()?,
        health: Health::new(is_up),
        tls: in_force.tls.get(number).cloned().flatten(),
        due: first,
        phase: Phase::Waiting,
    })
}

/// The time to the next check, by a random number: the interval, plus or minus a part of it.
fn until_next(check: &HealthCheck, random: u64) -> Duration {
    let jitter = f64::from(check.jitter_percent) / 100.0;
    check.interval.mul_f64(1.0 - jitter) + spread(check.interval.mul_f64(2.0 * jitter), random)
}

/// A part of `whole`, by a random number.
fn spread(whole: Duration, random: u64) -> Duration {
    whole.mul_f64((random % 1000) as f64 / 1000.0)
}

impl Checked {
    const fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Waiting)
    }

    const fn is_command(&self) -> bool {
        matches!(self.check.kind, CheckKind::Command)
    }

    /// Goes on with a check, or begins one; its result once it is known. The time to the next one is by a random number.
    fn advance(&mut self, now: Instant, service: &str, random: u64) -> Option<Result<(), Failure>> {
        let phase = std::mem::replace(&mut self.phase, Phase::Waiting);
        let target = Target { service, end: self.end, check: &self.check, tls: self.tls.as_ref() };
        let progress = match phase {
            Phase::Waiting => {
                self.due = now + self.check.timeout;
                Probe::begin(&target).map(Some)
            }
            Phase::Running(probe) => probe.advance(&target),
            Phase::Killed(mut command) => {
                if !command.is_gone() {
                    self.phase = Phase::Killed(command);
                }
                return None;
            }
        };
        let result = match progress {
            Ok(Some(probe)) if self.due <= now => {
                if let Probe::Command(mut command) = probe {
                    command.kill();
                    self.phase = Phase::Killed(command);
                }
                Err(Failure::of(format!("no answer within {:?}", self.check.timeout)))
            }
            Ok(Some(probe)) => {
                self.phase = Phase::Running(probe);
                return None;
            }
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        self.due = now + until_next(&self.check, random);
        Some(result)
    }

    /// Takes a result. True if the backend's health has changed.
    fn handle_result(&mut self, result: &Result<(), Failure>) -> bool {
        let HealthCheck { rise, fall, fast_fail, .. } = self.check;
        let is_refused = result.as_ref().is_err_and(|failure| failure.is_refused);
        self.health.handle_check(result.is_ok(), rise, if fast_fail && is_refused { 1 } else { fall })
    }
}

#[cfg(test)]
mod tests;
