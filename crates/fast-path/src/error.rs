//! Errors between the program's loader and the system.

use std::io;
use std::path::PathBuf;

use aya::maps::MapError;
use aya::pin::PinError;
use aya::programs::links::LinkError;
use aya::programs::{ProgramError, TcError};
use aya::{EbpfError, sys::SyscallError};

/// An operation on the fast path failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process lacks a privilege.
    #[error(
        "{operation} is not permitted: run as root, or give the program CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (outside any \
         user namespace)"
    )]
    NotPermitted {
        /// The attempted operation.
        operation: String,
    },
    /// The kernel lacks something that the program needs.
    #[error(
        "{operation}: this kernel lacks it ({source}): use Linux 5.15 or newer with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF"
    )]
    Unsupported {
        /// The attempted operation.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel's verifier refused the program: a defect of this program on this kernel.
    #[error(
        "the kernel's verifier refused the program ({source}); report this with the kernel's version and this: {log}"
    )]
    Verifier {
        /// The end of the verifier's log, in one line.
        log: String,
        /// The system's error.
        source: io::Error,
    },
    /// An interface takes no XDP program in its driver.
    #[error("{interface} takes no native XDP program ({source}): {}", native_remedy(source))]
    Native {
        /// The interface.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no memory for the maps.
    #[error(
        "{operation}: no memory ({source}): install fewer connections at most, or raise the limit of the process's control \
         group (memory.max)"
    )]
    NoMemory {
        /// The attempted operation.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
    /// The operator named an interface that does not exist.
    #[error("there is no interface \"{0}\" in this network namespace: check the name, or create it first")]
    NoSuchInterface(String),
    /// As many connections are installed as the configuration allows.
    #[error("all {connections_max} places for connections are taken: remove some, or configure more")]
    Full {
        /// The configured maximum.
        connections_max: u32,
    },
    /// A connection with this tuple on this interface is installed already; the caller is at fault.
    #[error("{0} is installed already: remove the connection first")]
    Installed(String),
    /// An argument that is always invalid; the caller is at fault.
    #[error("{0}")]
    Misuse(String),
    /// A plan contradicts itself. The caller's fault.
    #[error(transparent)]
    Plan(#[from] flow::fast_path::PlanError),
    /// Something else than the fast path's maps and program is pinned in the directory, or those of another version.
    #[error("{} holds other maps or another program ({detail}): remove it, or choose another directory", path.display())]
    Pins {
        /// The directory, or the pin.
        path: PathBuf,
        /// What differs.
        detail: String,
    },
    /// The operating system refused.
    #[error("{operation}: {source}")]
    System {
        /// The attempted operation, with its object.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// `source`, which occurred during `operation`.
    pub(crate) fn from_io(source: io::Error, operation: impl Into<String>) -> Self {
        let operation = operation.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { operation },
            Some(libc::ENOMEM) => Self::NoMemory { operation, source },
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => Self::Unsupported { operation, source },
            _ => Self::System { operation, source },
        }
    }

    /// `source`, with which the kernel refused a program in the driver of `interface`.
    pub(crate) fn from_native(source: io::Error, interface: &str) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Self::NotPermitted { operation: format!("attaching an XDP program to {interface}") }
            }
            _ => Self::Native { interface: interface.to_owned(), source },
        }
    }

    pub(crate) fn from_syscall(error: SyscallError, operation: impl Into<String>) -> Self {
        Self::from_io(error.io_error, operation)
    }

    pub(crate) fn from_map(error: MapError, operation: impl Into<String>) -> Self {
        match error {
            MapError::CreateError { io_error, .. } | MapError::IoError(io_error) => Self::from_io(io_error, operation),
            MapError::SyscallError(error) => Self::from_syscall(error, operation),
            other => Self::from_io(io::Error::other(other), operation),
        }
    }

    pub(crate) fn from_pin(error: PinError, operation: impl Into<String>) -> Self {
        match error {
            PinError::SyscallError(error) => Self::from_syscall(error, operation),
            other => Self::from_io(io::Error::other(other), operation),
        }
    }

    pub(crate) fn from_link(error: LinkError, operation: impl Into<String>) -> Self {
        match error {
            LinkError::SyscallError(error) => Self::from_syscall(error, operation),
            other => Self::from_io(io::Error::other(other), operation),
        }
    }

    pub(crate) fn from_program(error: ProgramError, operation: impl Into<String>) -> Self {
        match error {
            ProgramError::LoadError { io_error, verifier_log } => {
                Self::from_verifier(io_error, &verifier_log.to_string(), operation)
            }
            ProgramError::SyscallError(error) => Self::from_syscall(error, operation),
            ProgramError::TcError(TcError::NetlinkError { io_error }) | ProgramError::IOError(io_error) => {
                Self::from_io(io_error, operation)
            }
            other => Self::from_io(io::Error::other(other), operation),
        }
    }

    /// `source`, with which the kernel refused to load a program, and its verifier's log.
    fn from_verifier(source: io::Error, log: &str, operation: impl Into<String>) -> Self {
        if log.trim().is_empty() {
            // It refused before it verified anything.
            Self::from_io(source, operation)
        } else if log.contains(UNPRIVILEGED) {
            Self::NotPermitted { operation: operation.into() }
        } else {
            Self::Verifier { log: end_of(log), source }
        }
    }

    pub(crate) fn from_ebpf(error: EbpfError, operation: impl Into<String>) -> Self {
        match error {
            EbpfError::MapError(error) => Self::from_map(error, operation),
            EbpfError::ProgramError(error) => Self::from_program(error, operation),
            other => Self::from_io(io::Error::other(other), operation),
        }
    }

    /// The system's error number, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Unsupported { source, .. }
            | Self::Verifier { source, .. }
            | Self::Native { source, .. }
            | Self::NoMemory { source, .. }
            | Self::System { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// What the verifier writes about arithmetic on addresses, which it allows only a process with CAP_PERFMON.
const UNPRIVILEGED: &str = "prohibited for !root";

/// Lines of the verifier's log that an error quotes. The whole has more than a thousand: a pipe that nobody empties does not hold it.
const LOG_LINES_MAX: usize = 6;

/// The last lines of the verifier's log, which have the reason, in one.
fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("; ")
}

/// What to do where a driver refuses an XDP program.
fn native_remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "its driver has none",
        Some(libc::EBUSY) => "another XDP program is there: remove it (ip link set dev … xdp off)",
        Some(libc::ENOSPC) => "it has fewer receive queues than its other end or the processors need (ethtool -L)",
        Some(libc::EINVAL | libc::ERANGE) => {
            "frames of its MTU must fit into one buffer, about 3500 bytes, and large receive offload must be off"
        }
        _ => "the kernel's log may have why (dmesg)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_remedy() {
        let text = |errno| Error::from_io(io::Error::from_raw_os_error(errno), "loading the program").to_string();
        assert!(text(libc::EPERM).contains("CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"));
        assert!(text(libc::ENOMEM).contains("memory.max"));
        assert!(text(libc::ENOSYS).contains("Linux 5.15"));
        let refused = |log: &str| {
            Error::from_verifier(io::Error::from_raw_os_error(libc::EACCES), log, "loading the program").to_string()
        };
        assert!(refused("R4 pointer arithmetic with it prohibited for !root\n").contains("CAP_PERFMON"));
        let long = refused(&"0: R1=ctx()\n".repeat(2000));
        assert!(long.contains("report this") && long.len() < 400 && !long.contains('\n'), "{long}");
        assert!(text(libc::EIO).starts_with("loading the program: "));
        let native = |errno| Error::from_native(io::Error::from_raw_os_error(errno), "eth0").to_string();
        assert!(native(libc::EOPNOTSUPP).ends_with("its driver has none"));
        assert!(native(libc::EBUSY).contains("another XDP program"));
        assert!(native(libc::EPERM).contains("CAP_NET_ADMIN"));
    }
}
