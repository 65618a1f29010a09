//! conntrackd's wire format, spoken with a conntrackd as the peer: its FTFW mode (`Sync { Mode FTFW }`), both ways, as a value.
//!
//! * [`object`]: connections and expectations as conntrackd's messages carry them.
//! * [`message`]: a message's header, and the acknowledgements.
//! * [`FtfwSession`]: the protocol, with the verbs of [`crate::Session`]. A [`Table`] is where the connections are.
//!
//! What is known of the format, and how it differs from the native protocol, stands in `docs/conntrackd.md`. It comes from the
//! documentation of conntrackd and from watching it.

mod config;
pub mod message;
pub mod object;
mod sender;
mod session;
mod status;
mod table;
pub mod testing;

pub use config::{DATAGRAM_BYTES_MIN, FtfwConfig, FtfwConfigError};
pub use session::{FtfwSession, Link};
pub use status::{EVENTS_MAX, FtfwError, FtfwEvent, FtfwStatus};
pub use table::Table;
