//! Network namespaces, each a private network stack: created without any tool, deleted with the last descriptor.
//!
//! Only a descriptor keeps a [`Namespace`] alive, never a mount, so that a killed process leaves nothing behind.

mod user;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;

use crate::system::check;
use crate::{IoError, netlink};

pub use user::{NamespaceSupport, enter_user_namespace, for_tests, probe, skip};

const THREAD_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// A separate network namespace. The loopback interface is up.
#[derive(Debug)]
pub struct Namespace {
    descriptor: OwnedFd,
}

impl Namespace {
    /// A new, empty namespace.
    ///
    /// # Errors
    /// The process lacks permission (see [`probe`] for the remedy), or the system is out of namespaces.
    pub fn new() -> Result<Self, IoError> {
        // A separate thread creates the namespace, so that the caller's does not change.
        let made = thread::scope(|scope| scope.spawn(Self::make).join());
        made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> Result<Self, IoError> {
        let file = File::open(THREAD_NAMESPACE)
            .map_err(|error| IoError::from_io(error, format!("opening {THREAD_NAMESPACE}")))?;
        Ok(Self { descriptor: file.into() })
    }

    /// The namespace of a file: `/run/netns/NAME` for those of `ip netns`, `/proc/PID/ns/net` for a process's.
    ///
    /// # Errors
    /// The file does not exist, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, IoError> {
        let file = File::open(path)
            .map_err(|error| IoError::from_io(error, format!("opening the network namespace {}", path.display())))?;
        Ok(Self { descriptor: file.into() })
    }

    /// Passes the open namespace to the child that `command` starts. Returns the child's path to it, for
    /// [`Namespace::open`]. Start the child while this value exists.
    pub fn pass_to(&self, command: &mut Command) -> PathBuf {
        let number = self.descriptor.as_raw_fd();
        let inherit = move || {
            // SAFETY: fcntl with these arguments takes no pointers; `number` is open in the child, for it is here.
            check(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }).map(drop)
        };
        // SAFETY: between fork and exec the closure makes one system call; it neither allocates nor takes a lock.
        unsafe { command.pre_exec(inherit) };
        PathBuf::from(format!("/proc/self/fd/{number}"))
    }

    fn make() -> Result<Self, IoError> {
        // SAFETY: unshare takes no pointers; it moves the calling thread, which does nothing else, to a new namespace.
        if let Err(error) = check(unsafe { libc::unshare(libc::CLONE_NEWNET) }) {
            return Err(match error.raw_os_error() {
                Some(libc::EPERM) => IoError::NotPermitted {
                    operation: "making a network namespace".into(),
                    capability: "CAP_SYS_ADMIN, or enter a user namespace first",
                },
                _ => IoError::from_io(error, "making a network namespace"),
            });
        }
        netlink::Netlink::open()?.set_up("lo", true)?;
        Self::current()
    }

    /// Runs `work` in a thread inside the namespace and returns its value. Sockets that it opens stay in the namespace;
    /// threads that it starts begin there, too.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    ///
    /// # Panics
    /// When `work` does, with the same message.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, IoError> {
        let inside = || {
            enter(self.descriptor.as_fd()).map_err(|error| IoError::from_io(error, "entering a network namespace"))?;
            Ok(work())
        };
        let done = thread::scope(|scope| scope.spawn(inside).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Starts `command` inside the namespace.
    ///
    /// # Errors
    /// The program cannot be started, or the namespace not be entered.
    pub fn spawn_command(&self, mut command: Command) -> Result<Child, IoError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let descriptor = self
            .descriptor
            .try_clone()
            .map_err(|error| IoError::from_io(error, "duplicating a namespace's descriptor"))?;
        // SAFETY: between fork and exec the closure makes one system call on a descriptor that it owns; it neither
        // allocates nor takes a lock.
        unsafe { command.pre_exec(move || enter(descriptor.as_fd())) };
        command.spawn().map_err(|error| IoError::from_io(error, format!("starting {program} in a network namespace")))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Moves the calling thread into the namespace.
fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns takes no pointers; the descriptor is open.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

#[cfg(test)]
mod tests;
