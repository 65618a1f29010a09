//! `mainstay sync`: the kernel's connection tracking, replicated.
//!
//! One thread owns a [`SyncNode`](conntrack_sync::SyncNode), the sockets to the kernel and to the peers, and waits for nothing but
//! the poller; operators' questions come to it over the same channel as a gateway's. The kernel forwards; this never sees a
//! packet.

mod admission;
mod build;
mod daemon;
mod event_rules;
mod flows;
mod kernel;
mod links;
mod operator;
mod redundancy;
mod reporting;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use flow::conntrack;
use packet_io::poller::Waker;
use packet_io::signal::Signals;
use packet_io::{clock, usage};

use crate::error::ProcessError;
use crate::logging;
use config::sync::{self, SyncConfig};
use control::metrics::server::MetricsServer;
use control::{ControlServer, Credentials, FlowDescriber, RemoteServer};
use daemon::{Daemon, Setting};
use operator::Operator;

pub use build::TIMEOUT_FLOOR;

/// Replicates the kernel's connections as configured, until a signal ends it.
///
/// # Errors
/// The configuration cannot be used, or the system refuses what it asks for.
pub fn run(path: &Path) -> Result<(), ProcessError> {
    let checked = sync::load(path)?;
    logging::begin(&checked.config.node)?;
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    serve(path, &checked.config)
}

fn serve(path: &Path, config: &SyncConfig) -> Result<(), ProcessError> {
    // Before any thread is started, so that all of them leave the signals to this one.
    let signals = Signals::new()?;
    if !usage::prefer_this_process() {
        tracing::debug!("not permitted to run before other processes (CAP_SYS_NICE)");
    }
    let waker = Arc::new(Waker::new()?);
    let (sender, receiver) = control::channel({
        let waker = Arc::clone(&waker);
        Arc::new(move || waker.wake())
    });
    // One reload that waits is enough: it reads the file as it is when its turn comes.
    let (request_reload, reload_requests) = sync_channel(1);
    let node = build::node(config)?;
    let mut daemon = Daemon::open(config, Setting { node, signals, request_reload, waker, receiver })?;
    let describer = FlowDescriber {
        node: config.node.id,
        port_names: Vec::new(),
        own_addresses: Vec::new(),
        state_name: conntrack::state_name,
    };
    let operator = Operator::start(path.to_owned(), config.clone(), sender.clone(), reload_requests)?;
    let orders = Arc::<Operator>::clone(&operator);
    let control = ControlServer::start(&config.node.control_socket, sender.clone(), Arc::new(describer), orders)?;
    let remote = offer_afar(config, &control, &operator)?;
    let metrics = config.node.metrics.map(|address| MetricsServer::start(address, sender)).transpose()?;
    let result = daemon.run();
    // Requests that still wait fail at once: there is no daemon left to answer.
    drop(daemon);
    drop(metrics);
    drop(remote);
    drop(control);
    logging::report_suppressed(clock::now(), true);
    Ok(result?)
}

/// Offers the control API over TCP, where the configuration asks for it.
fn offer_afar(
    config: &SyncConfig,
    control: &ControlServer,
    operator: &Operator,
) -> Result<Option<Arc<RemoteServer>>, ProcessError> {
    let Some(access) = &config.control else { return Ok(None) };
    let server = Arc::new(control.listen_afar(access.listen, Credentials::load(access)?)?);
    tracing::info!("the control API is offered at {}", server.address());
    operator.exchanges_credentials_of(&server);
    Ok(Some(server))
}
