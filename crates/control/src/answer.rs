//! What every answer to a client has: its limits, its lines, and why it stops.

use std::io::{self, Write};
use std::time::Duration;

use super::orders::{AskError, INQUIRIES_WAITING_MAX, OperationError};
use api::{ErrorKind, Line, VERSION};

/// Clients at a time. For one more, the one that was waited for longest is closed; where none is waited for, the new one is,
/// with the reason.
pub(crate) const CLIENTS_MAX: usize = 32;
/// A client that asks nothing for so long is closed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A client that takes nothing for so long is closed.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

// Every client waits for at most one answer: they alone never find the channel full.
const _: () = assert!(CLIENTS_MAX < INQUIRIES_WAITING_MAX);

/// Why an answer stops.
pub(super) enum Failed {
    /// The client gets the error.
    Request(Box<Line>),
    /// Nothing can be sent to the client.
    Client(io::Error),
}

impl Failed {
    /// The gateway cannot do it as it is now.
    pub(super) fn refused(reason: String) -> Self {
        Self::Request(Box::new(error_line(ErrorKind::Refused, reason)))
    }

    pub(super) fn malformed(reason: String) -> Self {
        Self::Request(Box::new(error_line(ErrorKind::Malformed, reason)))
    }
}

impl From<AskError> for Failed {
    fn from(error: AskError) -> Self {
        Self::Request(Box::new(error_line(ErrorKind::Busy, error.to_string())))
    }
}

impl From<OperationError> for Failed {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Ask(error) => error.into(),
            OperationError::Refused(why) => Self::refused(why),
        }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Client(error)
    }
}

pub(super) fn error_line(error: ErrorKind, message: String) -> Line {
    Line::Error { version: VERSION, error, message }
}

pub(super) fn write_line(writer: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, line)?;
    writer.write_all(b"\n")
}
