//! `mainstay gateway`: one node of the cluster, running.
//!
//! One thread owns a [`Node`](cluster::node::Node) and everything that it sends and receives on; it waits for nothing but the
//! poller. Operators' questions come to it over a channel and are answered between batches. Several such threads, the
//! workers, have a share of the connections each and exchange messages by mailboxes.

mod balancing;
pub mod build;
mod categorisation;
mod changes;
mod data_path;
pub(crate) mod fast_path;
mod files;
mod functions;
mod hash;
mod links;
mod mailbox;
mod members;
mod nat;
mod outgoing;
mod reload;
mod reporting;
mod secrets;
pub(crate) mod service;
mod shared;
mod utilisation;
mod workers;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use flow::{WorkerId, conntrack};
use packet_io::signal::Signals;
use packet_io::{clock, usage};

use crate::error::ProcessError;
use crate::logging;
use balancing::Checks;
use categorisation::Categorisation;
use config::validate::mapping::formulas;
use config::validated::{Cluster, Config, replication_address};
use control::metrics::server::MetricsServer;
use control::remote::{RemoteAccess, RemoteError};
use control::{ControlServer, Credentials, FlowDescriber, RemoteServer};
use members::{Follower, Members, Source};
use reload::Operator;
use workers::Workers;

pub use fast_path::fast_path_obstacle;

/// Runs the gateway that the file describes, until a signal ends it.
///
/// # Errors
/// The configuration cannot be used, or the system refuses what it asks for.
pub fn run(path: &Path) -> Result<(), ProcessError> {
    let checked = config::load(path)?;
    logging::begin(&checked.config.node)?;
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    note_mappings(&checked.config);
    serve(path, &checked.config)
}

/// Logs how the hosts behind computed translations are found (RFC 7422 section 3): nothing else need be kept of them.
fn note_mappings(config: &Config) {
    for (index, formula) in formulas(config) {
        tracing::info!("source NAT rule {index} computes its mapping, {formula}");
    }
}

/// Offers the control API over TCP. A reload exchanges what clients must show.
fn offer_afar(
    control: &ControlServer,
    access: &RemoteAccess,
    operator: &Operator,
) -> Result<Arc<RemoteServer>, RemoteError> {
    let server = Arc::new(control.listen_afar(access.listen, Credentials::load(access)?)?);
    tracing::info!("the control API is offered at {}", server.address());
    operator.exchanges_credentials_of(&server);
    Ok(server)
}

/// Waits for the first list of the source. Without it, the node begins with the last known members.
fn begin_with(members: &Members, config: &Config) {
    if !members.wait_for_list(config.membership.start_wait) {
        let count = members.status().members.len();
        tracing::warn!(
            "{} is not reachable within {:?}: beginning with the {count} members last known",
            config.membership.source.name(),
            config.membership.start_wait,
        );
    }
    members.note_start();
}

/// Where the workers exchange datagrams with their peers.
fn own_addresses(cluster: &Cluster, workers: u8) -> Vec<SocketAddr> {
    let replication =
        (0..workers).filter_map(|worker| replication_address(cluster.replication.local, WorkerId(worker)));
    replication.chain([cluster.failure_detection.local]).collect()
}

fn serve(path: &Path, config: &Config) -> Result<(), ProcessError> {
    // Before any thread is started, so that all of them leave the signals to this one.
    let signals = Signals::new()?;
    if !usage::prefer_this_process() {
        tracing::debug!("not permitted to run before other processes (CAP_SYS_NICE)");
    }
    let describer = FlowDescriber {
        node: config.node.id,
        port_names: config.ports.iter().map(|port| port.name.clone()).collect(),
        own_addresses: config.cluster.as_ref().map(|it| own_addresses(it, config.workers.count)).unwrap_or_default(),
        state_name: conntrack::state_name,
    };
    let members = Members::load(config);
    let source = members.as_ref().map(|members| Source::start(members, config)).transpose()?.flatten();
    let members = members.inspect(|members| begin_with(members, config));
    let with_members = members.as_ref().map_or_else(|| config.clone(), |members| members.applied_to(config));
    let result = Workers::new(&with_members, members.clone())?.run(signals, |ready| {
        let sender = ready.sender.clone();
        let checks = Checks::start(Arc::clone(&ready.balancing), sender.clone())?;
        let categorisation = Categorisation::start(Arc::clone(&ready.balancing), sender.clone())?;
        let running = (config.clone(), with_members.clone());
        let operator = Operator::start(path.to_owned(), running, members.clone(), ready)?;
        let follow = |members| Follower::start(members, Arc::clone(&operator), sender.clone());
        let follower = members.map(follow).transpose()?;
        let orders = Arc::<Operator>::clone(&operator);
        let control = ControlServer::start(&config.node.control_socket, sender.clone(), Arc::new(describer), orders)?;
        let remote = config.control.as_ref().map(|access| offer_afar(&control, access, &operator)).transpose()?;
        let metrics = config.node.metrics.map(|address| MetricsServer::start(address, sender)).transpose()?;
        // They end in this order: clients from afar before the server that serves them.
        Ok((follower, checks, categorisation, remote, control, metrics))
    });
    drop(source);
    logging::report_suppressed(clock::now(), true);
    result
}
