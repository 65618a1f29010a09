//! Checks of backends, from one thread apart from the data path.
//!
//! Checks leave from the host's own addresses, by the kernel's routes: the gateway's ports have no addresses of their own, and a
//! standby node, which checks as well, holds no shared ones.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::EventKind;
use config::validated::{CheckKind, HealthCheck, Service};
use control::ControlSender;
use control::orders::Order;
use flow::Instant;
use network_functions::load_balancer::OnFailure;
use packet_io::{clock, random, tcp};

use super::health::Health;
use super::{Balancing, InForce};
use crate::error::ProcessError;

/// How often running checks are looked at.
const TICK: Duration = Duration::from_millis(10);
/// The longest pause: a reload is noticed then at the latest.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Checks that run at a time, each with a descriptor; others wait.
const RUNNING_MAX: usize = 512;
/// Bytes of an answer by HTTP that are read: its first line is at the beginning.
const ANSWER_BYTES_MAX: usize = 64;

/// The thread that checks. It ends with this value.
pub(in crate::gateway) struct Checks {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checks {
    /// Checks the backends of the services in force. Changes are reported to the workers by `sender`.
    pub(in crate::gateway) fn start(balancing: Arc<Balancing>, sender: ControlSender) -> Result<Self, ProcessError> {
        let (stop, stopped) = channel();
        let mut checker = Checker { balancing, sender, in_force: InForce::default(), checked: Vec::new() };
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

/// How far a check is.
enum Phase {
    /// The next one is due at `Checked::due`.
    Waiting,
    /// The connection is not established yet.
    Connecting(TcpStream),
    /// The request has been sent.
    Requested(TcpStream, Vec<u8>),
}

/// A backend that is checked.
struct Checked {
    service: usize,
    backend: usize,
    end: SocketAddr,
    check: HealthCheck,
    health: Health,
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
}

impl Checker {
    fn run(&mut self, stopped: &Receiver<()>) {
        loop {
            self.follow_reload();
            let now = clock::now();
            let mut changes = Vec::new();
            let mut running = self.checked.iter().filter(|checked| checked.is_running()).count();
            for (index, checked) in self.checked.iter_mut().enumerate() {
                if checked.is_running() || (checked.due <= now && running < RUNNING_MAX) {
                    running += usize::from(!checked.is_running());
                    if let Some(result) = checked.advance(now) {
                        running -= 1;
                        let HealthCheck { rise, fall, .. } = checked.check;
                        if checked.health.handle_check(result.is_ok(), rise, fall) {
                            changes.push((index, result.err().unwrap_or_default()));
                        }
                    }
                }
            }
            changes.into_iter().for_each(|(index, reason)| self.report(index, &reason));
            match stopped.recv_timeout(self.pause(running > 0)) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn pause(&self, is_checking: bool) -> Duration {
        if is_checking {
            return TICK;
        }
        let now = clock::now();
        let due = self.checked.iter().map(|checked| checked.due.saturating_since(now)).min();
        due.unwrap_or(PAUSE_MAX).clamp(TICK, PAUSE_MAX)
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
                match checked(service, (number, backend), !view.is_down, now) {
                    Some(checked) => self.checked.push(checked),
                    None => drop(in_force.services.handle_health(number, backend, true)),
                }
            }
        }
        self.in_force = in_force;
        // A service may have begun to end the connections of failed backends.
        self.order_end_of_failed();
    }

    /// The health of a backend has changed.
    fn report(&self, index: usize, reason: &str) {
        let Checked { service, backend, health, .. } = &self.checked[index];
        let InForce { services, configured } = &self.in_force;
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
fn checked(service: &Service, (number, backend): (usize, usize), is_up: bool, now: Instant) -> Option<Checked> {
    let check = service.check.clone()?;
    Some(Checked {
        service: number,
        backend,
        end: service.checked_end(backend)?,
        // Not all at once.
        due: now + spread(check.interval.min(Duration::from_secs(1)) / 4, random::number()),
        check,
        health: Health::new(is_up),
        phase: Phase::Waiting,
    })
}

/// A part of `whole`, by a random number.
fn spread(whole: Duration, random: u64) -> Duration {
    whole.mul_f64((random % 1000) as f64 / 1000.0)
}

impl Checked {
    const fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Waiting)
    }

    /// Goes on with a check, or begins one; its result once it is known, of a failed one the reason.
    fn advance(&mut self, now: Instant) -> Option<Result<(), String>> {
        let phase = std::mem::replace(&mut self.phase, Phase::Waiting);
        let progress = match phase {
            Phase::Waiting => {
                self.due = now + self.check.timeout;
                tcp::connect(self.end, self.check.source).map(|stream| Some(Phase::Connecting(stream))).map_err(reason)
            }
            Phase::Connecting(stream) => self.open(stream),
            Phase::Requested(stream, answer) => read_status(stream, answer),
        };
        let result = match progress {
            Ok(Some(_)) if self.due <= now => Err(format!("no answer within {:?}", self.check.timeout)),
            Ok(Some(phase)) => {
                self.phase = phase;
                return None;
            }
            Ok(None) => Ok(()),
            Err(reason) => Err(reason),
        };
        let interval = self.check.interval;
        self.due = now + interval.mul_f64(0.9) + spread(interval / 5, random::number());
        Some(result)
    }

    /// The next phase of a connection that is being opened; `None` when the check has succeeded.
    fn open(&self, mut stream: TcpStream) -> Result<Option<Phase>, String> {
        if let Some(error) = stream.take_error().map_err(reason)? {
            return Err(reason(error));
        }
        if stream.peer_addr().is_err() {
            return Ok(Some(Phase::Connecting(stream)));
        }
        if self.check.kind == CheckKind::Tcp {
            return Ok(None);
        }
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: mainstay-check\r\nConnection: close\r\n\r\n",
            self.check.path, self.end
        );
        // An empty send buffer takes so short a request at once.
        stream.write_all(request.as_bytes()).map_err(reason)?;
        Ok(Some(Phase::Requested(stream, Vec::new())))
    }
}

/// Reads the status line; `None` when the check has succeeded.
fn read_status(mut stream: TcpStream, mut answer: Vec<u8>) -> Result<Option<Phase>, String> {
    let mut bytes = [0; ANSWER_BYTES_MAX];
    match stream.read(&mut bytes) {
        Ok(0) => return Err("the server closed the connection without an answer".to_owned()),
        Ok(length) => answer.extend_from_slice(&bytes[..length]),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Err(error) => return Err(reason(error)),
    }
    match status_of(&answer) {
        Some(200..=399) => Ok(None),
        Some(status) => Err(format!("the server answered with status {status}")),
        None if answer.len() >= ANSWER_BYTES_MAX => Err("the answer is not HTTP".to_owned()),
        None => Ok(Some(Phase::Requested(stream, answer))),
    }
}

/// The status of an answer that begins so: `HTTP/1.1 200 OK` (RFC 9112 section 4).
fn status_of(answer: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(answer.get(..12)?).ok()?;
    let (version, status) = text.split_once(' ')?;
    version.starts_with("HTTP/1.").then(|| status.parse().ok())?
}

fn reason(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn check_of(end: SocketAddr, kind: CheckKind) -> Checked {
        let check = HealthCheck {
            kind,
            path: "/healthy".to_owned(),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
            rise: 1,
            fall: 1,
            port: None,
            source: None,
        };
        let phase = Phase::Waiting;
        Checked { service: 0, backend: 0, end, check, health: Health::new(true), due: Instant::ZERO, phase }
    }

    /// The result of one check.
    fn result(checked: &mut Checked) -> Result<(), String> {
        loop {
            if let Some(result) = checked.advance(clock::now()) {
                return result;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_listening_port_is_up_and_a_closed_one_is_down() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let end = listener.local_addr().expect("bound");
        assert_eq!(result(&mut check_of(end, CheckKind::Tcp)), Ok(()));
        drop(listener);
        let reason = result(&mut check_of(end, CheckKind::Tcp)).expect_err("nothing listens");
        assert!(reason.contains("refused"), "{reason}");
    }

    #[test]
    fn the_status_of_an_answer_decides() {
        for (answer, expected) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", Ok(())),
            ("HTTP/1.0 503 Service Unavailable\r\n\r\n", Err("the server answered with status 503")),
            ("", Err("the server closed the connection without an answer")),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let end = listener.local_addr().expect("bound");
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a check");
                let mut request = [0; 256];
                let length = stream.read(&mut request).expect("a request");
                assert!(request[..length].starts_with(b"GET /healthy HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).expect("it is read");
            });
            assert_eq!(result(&mut check_of(end, CheckKind::Http)), expected.map_err(str::to_owned));
            server.join().expect("it answered");
        }
    }

    #[test]
    fn a_server_that_does_not_answer_has_failed_when_the_time_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut checked = check_of(listener.local_addr().expect("bound"), CheckKind::Http);
        checked.check.timeout = Duration::from_millis(50);
        assert_eq!(result(&mut checked), Err("no answer within 50ms".to_owned()));
    }
}
