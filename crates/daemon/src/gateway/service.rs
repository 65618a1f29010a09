//! Notifies the service manager (systemd) of the gateway's state, by the protocol of sd_notify(3).
//!
//! ```text
//!   READY=1      the ports are open and the node listens for its peers: units that wait for the gateway may start
//!   STATUS=…     the role, for `systemctl status`
//!   WATCHDOG=1   the loop that moves packets still turns; sent by that loop itself, so that one that hangs is restarted
//!   RELOADING=1  the configuration is being read again; READY=1 follows
//!   STOPPING=1   the addresses are being handed over
//! ```
//! Without a service manager nothing is sent.

use std::time::Duration;

use cluster::failure_detector;
use cluster::node::NodeStatus;
use flow::Instant;
use packet_io::service_manager::{ServiceManager, watchdog_timeout};

use crate::describe;

/// How often the status is looked at. It is sent when it has changed.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// The service manager as the data path sees it.
#[derive(Debug)]
pub(crate) struct Service {
    manager: Option<ServiceManager>,
    /// How often the watchdog is fed: twice within the time after which the manager takes the gateway for hung.
    watchdog_interval: Option<Duration>,
    watchdog_at: Instant,
    /// The manager knows that the gateway is ready.
    is_ready: bool,
    is_stopping: bool,
    status: String,
    status_at: Instant,
}

impl Service {
    /// The manager that started the process, if one did. One that cannot be reached is warned of and left alone.
    pub(crate) fn from_environment() -> Self {
        let manager = ServiceManager::from_environment().unwrap_or_else(|error| {
            tracing::warn!("the service manager cannot be notified: {error}");
            None
        });
        Self::new(manager, watchdog_timeout())
    }

    /// Notifies no manager.
    pub(super) fn none() -> Self {
        Self::new(None, None)
    }

    fn new(manager: Option<ServiceManager>, watchdog_timeout: Option<Duration>) -> Self {
        Self {
            manager,
            watchdog_interval: watchdog_timeout.map(|timeout| timeout / 2),
            watchdog_at: Instant::ZERO,
            is_ready: false,
            is_stopping: false,
            status: String::new(),
            status_at: Instant::ZERO,
        }
    }

    /// Sends the manager what is due. Only the loop that moves packets calls this, once a turn. `all_turn` is whether the
    /// loops of all workers have turned since the last call.
    pub(crate) fn turn(&mut self, now: Instant, all_turn: impl FnOnce() -> bool, status: impl FnOnce() -> String) {
        let Some(manager) = &self.manager else { return };
        if let Some(interval) = self.watchdog_interval.filter(|_| self.watchdog_at <= now)
            && all_turn()
            && manager.notify("WATCHDOG=1")
        {
            self.watchdog_at = now + interval;
        }
        if self.is_stopping || (self.status_at > now && self.is_ready) {
            return;
        }
        self.status_at = now + STATUS_INTERVAL;
        let status = status();
        if self.is_ready && status == self.status {
            return;
        }
        let ready = if self.is_ready { "" } else { "READY=1\n" };
        // A notification that it does not take is sent again in the next turn.
        if manager.notify(&format!("{ready}STATUS={status}")) {
            self.is_ready = true;
            self.status = status;
        }
    }

    /// The configuration is being read again. The next turn notifies the manager that the gateway is ready.
    pub(crate) fn reloading(&mut self, now: Instant) {
        if let Some(manager) = &self.manager {
            let micros = now.as_nanos() / 1000;
            // A manager that misses this misses nothing that it would have waited for.
            let _ = manager.notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
            self.is_ready = false;
        }
    }

    /// The process is about to end; `status` names what it does before.
    pub(crate) fn stopping(&mut self, status: &str) {
        if let Some(manager) = self.manager.as_ref().filter(|_| !self.is_stopping) {
            self.is_stopping = manager.notify(&format!("STOPPING=1\nSTATUS={status}"));
        }
    }
}

/// The node in a line.
pub(super) fn describe(status: &NodeStatus) -> String {
    let is_up = |peer: &&cluster::node::PeerStatus| peer.detector.state == failure_detector::State::Up;
    let (up, peers) = (status.peers.iter().filter(is_up).count(), status.peers.len());
    format!("{}; {up} of {peers} peers up", describe::role(status.role).name().replace('_', " "))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    /// A service manager, and a service that knows it and is watched with this timeout.
    fn managed(name: &str, watchdog_timeout: Option<Duration>) -> (UnixDatagram, Service) {
        let name = format!("mainstay-service-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("a free name");
        manager.set_nonblocking(true).expect("it can be");
        let to_it = ServiceManager::connect(&OsString::from(format!("@{name}"))).expect("somebody listens");
        (manager, Service::new(Some(to_it), watchdog_timeout))
    }

    fn received(manager: &UnixDatagram) -> Vec<String> {
        let mut bytes = [0; 256];
        std::iter::from_fn(|| manager.recv(&mut bytes).ok().map(|length| bytes[..length].to_vec()))
            .map(|bytes| String::from_utf8(bytes).expect("text"))
            .collect()
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(1_000_000 + millis)
    }

    #[test]
    fn the_manager_is_notified_from_ready_to_stopping() {
        let (manager, mut service) = managed("states", None);
        service.turn(at(0), || true, || "standby".into());
        assert_eq!(received(&manager), ["READY=1\nSTATUS=standby"]);
        service.turn(at(99), || true, || panic!("nobody wants to know yet"));
        service.turn(at(100), || true, || "standby".into());
        assert_eq!(received(&manager), Vec::<String>::new());
        service.turn(at(200), || true, || "active".into());
        assert_eq!(received(&manager), ["STATUS=active"]);
        service.reloading(at(250));
        service.turn(at(251), || true, || "active".into());
        assert_eq!(received(&manager), ["RELOADING=1\nMONOTONIC_USEC=1000250000", "READY=1\nSTATUS=active"]);
        service.stopping("handing the addresses over");
        service.stopping("handing the addresses over");
        service.turn(at(500), || true, || "active".into());
        assert_eq!(received(&manager), ["STOPPING=1\nSTATUS=handing the addresses over"]);
    }

    #[test]
    fn the_watchdog_is_fed_twice_within_its_timeout_until_the_very_end() {
        let (manager, mut service) = managed("watchdog", Some(Duration::from_secs(2)));
        let signs = |service: &mut Service, millis: std::ops::Range<u64>| {
            let said = millis.step_by(100).flat_map(|ms| {
                service.turn(at(ms), || true, String::new);
                received(&manager)
            });
            said.filter(|text| text == "WATCHDOG=1").count()
        };
        assert_eq!(signs(&mut service, 0..10_000), 10);
        service.stopping("handing the addresses over");
        assert_eq!(signs(&mut service, 10_000..12_000), 2);
        service.turn(at(20_000), || false, || panic!("it is stopping"));
        assert_eq!(received(&manager), Vec::<String>::new(), "a worker's loop hangs");
    }

    #[test]
    fn nothing_is_sent_without_a_manager() {
        let mut service = Service::new(None, Some(Duration::from_secs(1)));
        service.turn(at(0), || true, || panic!("nobody wants to know"));
        service.reloading(at(0));
        service.stopping("handing the addresses over");
        assert!(!service.is_ready && !service.is_stopping);
    }
}
