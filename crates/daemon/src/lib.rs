//! The processes: [`gateway`] runs a node of a cluster, [`edge`] the switch beside a cluster, [`sync`] replicates the kernel's
//! connection tracking.
//!
//! Each owns its node, its sockets and its threads, and answers operators over the control API. What a node decides is in
//! `cluster` and `edge`; what a configuration means is in `config`.

pub mod category_server;
pub mod check_tls;
mod complaints;
pub mod credentials;
mod describe;
pub mod edge;
mod error;
pub mod etcd;
pub mod gateway;
pub mod logging;
mod ports;
pub mod sync;
pub mod url_lists;

pub use error::ProcessError;
