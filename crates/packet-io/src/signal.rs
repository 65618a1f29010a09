//! Signals as pollable events, and children that do not outlive their parent.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::IoError;
use crate::system::{check, own, zeroed};

/// A signal that a daemon handles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signal {
    /// SIGTERM: the service manager stops the process.
    Terminate,
    /// SIGINT: the operator at the terminal stops it.
    Interrupt,
    /// SIGHUP: reload the configuration.
    Reload,
}

impl Signal {
    const ALL: [Self; 3] = [Self::Terminate, Self::Interrupt, Self::Reload];

    const fn number(self) -> libc::c_int {
        match self {
            Self::Terminate => libc::SIGTERM,
            Self::Interrupt => libc::SIGINT,
            Self::Reload => libc::SIGHUP,
        }
    }
}

/// Receives signals through a descriptor (signalfd(2)) instead of interrupts.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
}

impl Signals {
    /// Redirects the signals of [`Signal`] to this descriptor. Call it before any thread is started: only the calling
    /// thread and the threads that it starts block the signals.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new() -> Result<Self, IoError> {
        let explain = |error| IoError::from_io(error, "taking over signals");
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set, which the other calls then only change or read.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in Signal::ALL {
                libc::sigaddset(set.as_mut_ptr(), signal.number());
            }
            let errno = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if errno != 0 {
                return Err(explain(io::Error::from_raw_os_error(errno)));
            }
            let descriptor = own(libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK));
            Ok(Self { descriptor: descriptor.map_err(explain)? })
        }
    }

    /// The next pending signal; `None` when none is pending.
    #[must_use]
    pub fn receive(&self) -> Option<Signal> {
        // SAFETY: all-zero bytes are a valid signalfd_siginfo.
        let mut info: libc::signalfd_siginfo = unsafe { zeroed() };
        let length = mem::size_of_val(&info);
        // SAFETY: `info` is writable for its length.
        let got = unsafe { libc::read(self.descriptor.as_raw_fd(), (&raw mut info).cast(), length) };
        if usize::try_from(got) != Ok(length) {
            return None;
        }
        Signal::ALL.into_iter().find(|signal| u32::try_from(signal.number()) == Ok(info.ssi_signo))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Sends a signal to a process that this process started, or has permission to signal.
///
/// # Errors
/// The process does not exist, or belongs to another user.
pub fn send(process: u32, signal: Signal) -> Result<(), IoError> {
    send_number(process, signal.number())
}

/// Kills a process (SIGKILL).
///
/// # Errors
/// As [`send`].
pub fn kill(process: u32) -> Result<(), IoError> {
    send_number(process, libc::SIGKILL)
}

/// Kills a process that leads its process group, with the group (SIGKILL).
///
/// # Errors
/// As [`send`].
pub fn kill_group(leader: u32) -> Result<(), IoError> {
    let explain = |error| IoError::from_io(error, format!("killing the processes of group {leader}"));
    // 0 and 1 would mean groups that are not the child's.
    let number = libc::pid_t::try_from(leader).ok().filter(|number| *number > 1);
    let number = number.ok_or_else(|| explain(io::Error::from_raw_os_error(libc::ESRCH)))?;
    // SAFETY: kill takes no pointers.
    check(unsafe { libc::kill(-number, libc::SIGKILL) }).map(drop).map_err(explain)
}

/// Pauses a process until [`resume`] (SIGSTOP).
///
/// # Errors
/// As [`send`].
pub fn pause(process: u32) -> Result<(), IoError> {
    send_number(process, libc::SIGSTOP)
}

/// Resumes a process that [`pause`] stopped (SIGCONT).
///
/// # Errors
/// As [`send`].
pub fn resume(process: u32) -> Result<(), IoError> {
    send_number(process, libc::SIGCONT)
}

fn send_number(process: u32, signal: libc::c_int) -> Result<(), IoError> {
    let explain = |error| IoError::from_io(error, format!("sending a signal to process {process}"));
    // Numbers below 1 would mean process groups.
    let number = libc::pid_t::try_from(process).ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| explain(io::Error::from_raw_os_error(libc::ESRCH)))?;
    // SAFETY: kill takes no pointers.
    check(unsafe { libc::kill(number, signal) }).map(drop).map_err(explain)
}

/// Makes the kernel kill the child of `command` (SIGKILL) when the thread that starts it ends, so that no child
/// survives a killed parent. Start it from a thread that lives as long as the child is needed.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: getpid takes nothing and cannot fail.
    let parent = unsafe { libc::getpid() };
    let in_child = move || -> io::Result<()> {
        // SAFETY: prctl with these arguments takes no pointers.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
        // A parent that died before the call above would not be detected.
        // SAFETY: getppid takes nothing and cannot fail.
        if unsafe { libc::getppid() } != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(in_child) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn signals_come_one_by_one() {
        // In a separate thread, and sent to that thread alone, so that other tests are undisturbed.
        std::thread::spawn(|| {
            let signals = Signals::new().unwrap();
            assert_eq!(signals.receive(), None);
            for signal in [Signal::Reload, Signal::Terminate] {
                // SAFETY: the thread is the calling one; the signal is blocked and leads nowhere but to the descriptor.
                unsafe { libc::pthread_kill(libc::pthread_self(), signal.number()) };
                assert_eq!(signals.receive(), Some(signal));
            }
            assert_eq!(signals.receive(), None);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_child_is_terminated() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        send(child.id(), Signal::Terminate).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(send(child.id(), Signal::Terminate).is_err(), "it is gone");
        assert!(send(0, Signal::Terminate).is_err(), "never the whole group");
    }

    #[test]
    fn a_paused_child_ends_when_it_is_resumed_or_killed() {
        let start = || Command::new("sleep").arg("600").spawn().unwrap();
        let mut paused = start();
        pause(paused.id()).unwrap();
        send(paused.id(), Signal::Terminate).unwrap();
        assert!(paused.try_wait().unwrap().is_none(), "it stands still");
        resume(paused.id()).unwrap();
        assert_eq!(paused.wait().unwrap().signal(), Some(libc::SIGTERM));
        let mut killed = start();
        pause(killed.id()).unwrap();
        kill(killed.id()).unwrap();
        assert_eq!(killed.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("600");
            die_with_parent(&mut command);
            command.spawn().unwrap()
        })
        .join()
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
