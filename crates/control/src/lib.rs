//! The control API: how operators and tools look into a running gateway.
//!
//! A Unix stream socket takes one JSON request a line and answers with JSON lines ([`api`]). The server ([`server`])
//! lives in its own threads; what only the data path knows, it asks of the data path's thread over a bounded channel
//! ([`inquiry`]), which that thread serves between batches with bounded work ([`ControlHandler`]). Where it is configured, the
//! same is offered over TCP to clients with a token or a certificate ([`remote`]).

mod answer;
pub mod client;
pub mod events;
pub mod flows;
pub mod inquiry;
mod merge;
pub mod metrics;
pub mod orders;
pub mod remote;
pub mod server;
pub mod streams;
pub mod target;
pub mod trace;
pub mod watching;

pub use events::EventLog;
pub use flows::{FlowDescriber, FlowFilter, FlowsPage, FlowsQuery};
pub use inquiry::{ControlHandler, ControlReceiver, ControlSender, channel};
pub use orders::{Operations, OrderOutcome};
pub use remote::{Credentials, RemoteServer};
pub use server::{ControlServer, ServerError};

#[cfg(test)]
mod tests;
