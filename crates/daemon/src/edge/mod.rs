//! `mainstay edge`: one edge switch, running.
//!
//! One thread owns an [`Edge`](::edge::Edge), the links to the nodes ([`NodeLinks`]) and the ports, and waits for nothing but the
//! poller. What the links report of the nodes moves flows, and begins local recovery.

mod fast_path;
mod interfaces;
mod process;
mod reporting;

use std::path::Path;
use std::sync::Arc;

use ::edge::{EdgeConfig, NodePort};
use cluster::edge_link::{LinkSecurity, NodeLinks};
use flow::wire::MacAddress;
use flow::{HashKey, NodeId, PortId, conntrack};
use packet_io::netlink::Netlink;
use packet_io::poller::Waker;
use packet_io::signal::Signals;
use packet_io::{clock, random, usage};

use crate::error::ProcessError;
use crate::ports::{self, Sharing};
use crate::{credentials, logging};
use api::{ReloadReport, SyncOrder, SyncReadiness};
use config::edge::{self, EdgeSettings};
use config::validated::Port;
use control::metrics::server::MetricsServer;
use control::orders::{AskError, OperationError, Operations, Order};
use control::{ControlSender, ControlServer, Credentials, FlowDescriber};
use fast_path::EdgeFastPath;
use interfaces::{NETWORK, interfaces};
use process::{Process, Setting};

pub use fast_path::obstacle as fast_path_obstacle;

/// Runs the edge that the file describes, until a signal ends it.
///
/// # Errors
/// The configuration cannot be used, or the system refuses what it asks for.
pub fn run(path: &Path) -> Result<(), ProcessError> {
    let checked = edge::load(path)?;
    logging::begin(&checked.config.node)?;
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    serve(&checked.config)
}

fn serve(settings: &EdgeSettings) -> Result<(), ProcessError> {
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
    let ports = interfaces(settings);
    let sharing = Sharing::new(&ports, 1)?;
    // Before the sockets: what they receive depends on it.
    let fast_path = EdgeFastPath::open(settings, &ports);
    let io = ports::open(&ports, &sharing, 0, EdgeFastPath::receiving(fast_path.as_ref()))?;
    let edge = ::edge::Edge::new(edge_config(settings)?)?;
    let links = node_links(settings, &ports)?;
    let mut process =
        Process::open(settings, Setting { edge, fast_path, links, ports: io, names: ports, signals, waker, receiver })?;
    let describer = FlowDescriber {
        node: settings.node.id,
        port_names: Vec::new(),
        own_addresses: Vec::new(),
        state_name: conntrack::state_name,
    };
    let control = ControlServer::start(
        &settings.node.control_socket,
        sender.clone(),
        Arc::new(describer),
        Arc::new(Operator(sender.clone())),
    )?;
    let remote = match &settings.control {
        Some(access) => Some(control.listen_afar(access.listen, Credentials::load(access)?)?),
        None => None,
    };
    let metrics = settings.node.metrics.map(|address| MetricsServer::start(address, sender)).transpose()?;
    let result = process.run();
    // Requests that still wait fail at once: there is nothing left to answer them.
    drop(process);
    drop(metrics);
    drop(remote);
    drop(control);
    logging::report_suppressed(clock::now(), true);
    Ok(result?)
}

fn edge_config(settings: &EdgeSettings) -> Result<EdgeConfig, ProcessError> {
    let hash_key = match &settings.hash_key {
        Some(path) => credentials::edge_hash_key(path)?,
        None => HashKey([random::number(), random::number()]),
    };
    let nodes = settings.nodes.iter().zip((NETWORK.0 + 1..=u8::MAX).map(PortId));
    let nodes = nodes.map(|(node, port)| NodePort { node: node.id, port, link_address: None }).collect();
    Ok(EdgeConfig {
        affinity: settings.affinity,
        connections_max: settings.connections_max,
        recovery: settings.recovery,
        rate_control: settings.rate_control,
        ..EdgeConfig::new(NETWORK, nodes, hash_key)
    })
}

fn node_links(settings: &EdgeSettings, ports: &[Port]) -> Result<NodeLinks, ProcessError> {
    let mut netlink = Netlink::open()?;
    let mut nodes = Vec::new();
    for (node, port) in settings.nodes.iter().zip(&ports[1..]) {
        nodes.push((node.id, port.id, MacAddress(netlink.interface(&port.interface)?.mac)));
    }
    let (now, detection) = (clock::now(), settings.failure_detection);
    let security = credentials::begin(settings.security.as_ref())?;
    let security = security.and_then(|security| LinkSecurity::new(now, &security));
    Ok(NodeLinks::new(settings.node.id.0, &nodes, detection, random::number(), (now, security))?)
}

/// What operators can have done: an edge reads its file at its start alone.
struct Operator(ControlSender);

impl Operator {
    fn refuse<T>() -> Result<T, OperationError> {
        Err(OperationError::Refused("this is an edge: its nodes are drained, not itself (mainstay drain at a node, or mainstay edge drain --node N)".to_owned()))
    }
}

impl Operations for Operator {
    fn reload(&self, _check_only: bool) -> Result<ReloadReport, AskError> {
        let mistake =
            "an edge reads its file when it starts: restart it, which costs its held packets and learned nodes";
        Ok(ReloadReport { mistakes: vec![mistake.to_owned()], ..ReloadReport::default() })
    }

    fn drain(&self, _is_forced: bool) -> Result<(), OperationError> {
        Self::refuse()
    }

    fn undrain(&self) -> Result<(), OperationError> {
        Self::refuse()
    }

    fn drain_node(&self, node: NodeId, is_drained: bool) -> Result<(), OperationError> {
        let outcome = self.0.order(Order::DrainNode { node, is_drained })?;
        outcome.map(drop).map_err(OperationError::Refused)
    }

    fn sync(&self, _order: SyncOrder) -> Result<SyncReadiness, OperationError> {
        Self::refuse()
    }
}
