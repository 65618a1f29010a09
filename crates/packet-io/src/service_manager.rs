//! Notifications to the service manager that started the process, in the protocol of sd_notify(3): a datagram of
//! `KEY=value` lines to the Unix socket in `NOTIFY_SOCKET`.
//!
//! No call blocks: the caller retries a notification that the manager does not accept now.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use crate::IoError;

const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS_VARIABLE: &str = "WATCHDOG_PID";

/// The connection to the service manager.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
}

impl ServiceManager {
    /// The manager of the environment; `None` when the process was started by another program.
    ///
    /// # Errors
    /// The environment names a socket that cannot be reached.
    pub fn from_environment() -> Result<Option<Self>, IoError> {
        let address = env::var_os(SOCKET_VARIABLE).filter(|address| !address.is_empty());
        address.map(|address| Self::connect(&address)).transpose()
    }

    /// The manager that listens at `address`: a path that begins with `/`, or `@` and a name in the abstract namespace
    /// (unix(7)).
    ///
    /// # Errors
    /// The address is of another kind, or no socket listens there.
    pub fn connect(address: &OsStr) -> Result<Self, IoError> {
        let explain = |error| IoError::from_io(error, format!("reaching the service manager at {address:?}"));
        let name = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            [b'/', ..] => SocketAddr::from_pathname(address),
            _ => {
                return Err(IoError::Misuse(format!(
                    "{SOCKET_VARIABLE}={address:?} is neither a path nor an abstract name: unset it, or begin it with / or @"
                )));
            }
        };
        let socket = UnixDatagram::unbound().map_err(explain)?;
        socket.set_nonblocking(true).map_err(explain)?;
        socket.connect_addr(&name.map_err(explain)?).map_err(explain)?;
        Ok(Self { socket })
    }

    /// Sends `state` to the manager, lines such as `READY=1`. False: the manager did not accept it, and the caller may
    /// retry.
    #[must_use]
    pub fn notify(&self, state: &str) -> bool {
        loop {
            match self.socket.send(state.as_bytes()) {
                Ok(sent) => return sent == state.len(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

/// How long the manager waits for a keep-alive (`WATCHDOG=1`) before it considers the process hung and restarts it;
/// `None` when it does not monitor this process.
#[must_use]
pub fn watchdog_timeout() -> Option<Duration> {
    let variable = |name| env::var(name).ok();
    watchdog_timeout_of(variable(WATCHDOG_VARIABLE).as_deref(), variable(WATCHDOG_PROCESS_VARIABLE).as_deref())
}

fn watchdog_timeout_of(micros: Option<&str>, process: Option<&str>) -> Option<Duration> {
    // A child of the supervised process inherits the variables, but they do not apply to it.
    if process.is_some_and(|process| process.parse() != Ok(process::id())) {
        return None;
    }
    let micros = micros?.parse().ok().filter(|micros| *micros > 0)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn received(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_is_notified_at_a_path_and_at_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("mainstay-notify-{}", process::id()));
        let manager = UnixDatagram::bind(&path).unwrap();
        assert!(ServiceManager::connect(path.as_os_str()).unwrap().notify("READY=1"));
        assert_eq!(received(&manager), "READY=1");
        std::fs::remove_file(&path).unwrap();

        let name = format!("mainstay-notify-{}", process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let connected = ServiceManager::connect(&OsString::from(format!("@{name}"))).unwrap();
        assert!(connected.notify("WATCHDOG=1") && connected.notify("STOPPING=1"));
        assert_eq!([received(&manager), received(&manager)], ["WATCHDOG=1", "STOPPING=1"]);
        drop(manager);
        assert!(!connected.notify("READY=1"), "the manager is gone");
    }

    #[test]
    fn a_manager_that_accepts_nothing_does_not_block() {
        let name = format!("mainstay-notify-full-{}", process::id());
        let _manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let connected = ServiceManager::connect(&OsString::from(format!("@{name}"))).unwrap();
        let taken = (0..100_000).take_while(|_| connected.notify("WATCHDOG=1")).count();
        assert!((1..100_000).contains(&taken), "{taken}");
    }

    #[test]
    fn an_invalid_address_is_refused_with_a_valid_form() {
        let error = ServiceManager::connect(OsStr::new("vsock:2:1234")).unwrap_err().to_string();
        assert!(error.contains("neither a path nor an abstract name"), "{error}");
        let error = ServiceManager::connect(OsStr::new("/nonexistent/notify")).unwrap_err().to_string();
        assert!(error.starts_with("reaching the service manager at \"/nonexistent/notify\""), "{error}");
    }

    #[test]
    fn the_watchdog_is_for_one_process() {
        let own = process::id().to_string();
        assert_eq!(watchdog_timeout_of(Some("5000000"), Some(&own)), Some(Duration::from_secs(5)));
        assert_eq!(watchdog_timeout_of(Some("5000000"), None), Some(Duration::from_secs(5)));
        for (micros, process) in
            [(Some("5000000"), Some("1")), (Some("0"), None), (Some("soon"), None), (None, Some(own.as_str()))]
        {
            assert_eq!(watchdog_timeout_of(micros, process), None);
        }
    }
}
