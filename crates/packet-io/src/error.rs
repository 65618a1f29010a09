//! Errors between the program and the system.

use std::io;
use std::net::SocketAddr;

use flow::PortId;

/// Why a frame was not sent. Each is a counter of [`crate::TransmitFailureCounters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransmitFailure {
    /// The node has no such port (a defect of the node).
    #[error("the node has no such port")]
    NoSuchPort,
    /// The interface is down or deleted.
    #[error("the interface is down")]
    Down,
    /// The socket's or the interface's queue is full; the frame is dropped, as a router drops at a full queue.
    #[error("the queue is full")]
    QueueFull,
    /// The frame exceeds the interface's MTU.
    #[error("the frame is larger than the interface takes")]
    TooLarge,
    /// The kernel found the frame's checksum or segmentation fields contradictory.
    #[error("the kernel refused the frame as invalid")]
    Invalid,
    /// Another error of the system.
    #[error("the system refused the frame")]
    Other,
}

impl TransmitFailure {
    /// The failure for a system error of a send.
    #[must_use]
    pub fn from_errno(errno: i32) -> Self {
        match errno {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => Self::QueueFull,
            libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::ENETUNREACH => Self::Down,
            libc::EMSGSIZE => Self::TooLarge,
            libc::EINVAL => Self::Invalid,
            _ => Self::Other,
        }
    }
}

/// An operation on ports, namespaces, links or sockets failed.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// The operator named an interface that does not exist.
    #[error("there is no interface \"{interface}\" in this network namespace: check the name, or create it first")]
    NoSuchInterface {
        /// The requested name.
        interface: String,
    },
    /// The process lacks a privilege.
    #[error("{operation} is not permitted: run as root, or give the program {capability}")]
    NotPermitted {
        /// The attempted operation, with its object.
        operation: String,
        /// The capability that would permit it (capabilities(7)).
        capability: &'static str,
    },
    /// No interface has the address that the operator named.
    #[error("no interface of this network namespace has the address {}: add it, or write one that is there", .0.ip())]
    NoSuchAddress(SocketAddr),
    /// Another program has the UDP port that the operator named.
    #[error("UDP port {} of {} is taken by another program: stop it, or write another port", .0.port(), .0.ip())]
    AddressTaken(SocketAddr),
    /// A frame that the node created could not be sent.
    #[error("port {}: {cause}", port.0)]
    Transmit {
        /// The port it was for.
        port: PortId,
        /// The cause.
        cause: TransmitFailure,
    },
    /// An argument that is always invalid; the caller is at fault.
    #[error("{0}")]
    Misuse(String),
    /// The machine forbids network namespaces to this user.
    #[error("network namespaces cannot be made: {0}")]
    NamespacesForbidden(String),
    /// The kernel's reply to a netlink request is unexpected.
    #[error("the kernel's reply to {operation} is invalid: {detail}")]
    UnexpectedAnswer {
        /// The request.
        operation: String,
        /// The fault of the reply.
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

impl IoError {
    /// `source`, which occurred during `operation`.
    pub(crate) fn from_io(source: io::Error, operation: impl Into<String>) -> Self {
        Self::System { operation: operation.into(), source }
    }

    /// The system's error number, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::System { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
