//! `mainstay sync --check`: whether a configuration is right and what this host can do of it, without running it.

use std::path::Path;

use packet_io::ctnetlink::{Support, support};
use packet_io::netlink::Netlink;
use serde::Serialize;

use super::super::CommandError;
use crate::config::sync::{self, SyncConfig};
use crate::control::Credentials;
use crate::gateway::credentials;
use crate::output::{self, counted};

/// What `--json` prints.
#[derive(Serialize)]
struct Host {
    /// Connections that the kernel tracks.
    connections: Option<u64>,
    /// And at most.
    connections_max: Option<u64>,
    /// `net.netfilter.nf_conntrack_events`.
    events: Option<u64>,
    /// What is missing, or looks doubtful, a sentence each with its remedy.
    findings: Vec<String>,
    /// Nothing is replicated before the first of them is put right.
    is_fatal: bool,
}

/// Says what is doubtful on standard error and, when nothing is wrong, so on standard output, with what this host can do. A right
/// configuration is one on any host: what this one lacks is told and is no failure.
///
/// # Errors
/// The configuration cannot be read or is wrong.
pub(super) fn run(path: &Path, json: bool) -> Result<(), CommandError> {
    let checked = sync::load(path)?;
    for warning in &checked.warnings {
        eprintln!("{warning}");
    }
    let config = &checked.config;
    let native = config.replication.as_ref().map(|native| &native.replication);
    if let Some(security) = native.and_then(|replication| replication.security.as_ref())
        && let Err(error) = credentials::load(security)
    {
        // They are this host's, as interfaces are.
        eprintln!("warning: {error}");
    }
    if let Some(access) = &config.control {
        Credentials::load(access)?;
    }
    let host = look(config);
    if json {
        return Ok(output::print_json(&host)?);
    }
    let peers = native.map_or(0, |replication| replication.peers.len()) + usize::from(config.conntrackd.is_some());
    let mut text = format!(
        "{}: right. Node {}: {}, {}{}.\n",
        path.display(),
        config.node.id.0,
        counted(peers, "peer"),
        counted(config.filter.ignore.len(), "filter"),
        if config.conntrackd.is_some() { "; a conntrackd is spoken with" } else { "" },
    );
    if host.findings.is_empty() {
        text.push_str("This host has all that it takes.\n");
    }
    for finding in &host.findings {
        text.push_str(&format!("{finding}\n"));
    }
    Ok(output::print(&text)?)
}

fn look(config: &SyncConfig) -> Host {
    let support = support();
    let mut findings: Vec<String> = support.lacks.iter().map(ToString::to_string).collect();
    findings.extend(room(config, &support));
    findings.extend(addresses(config));
    Host {
        connections: support.connections,
        connections_max: support.connections_max,
        events: support.events,
        is_fatal: support.lacks.iter().any(packet_io::ctnetlink::Lack::is_fatal),
        findings,
    }
}

/// What the kernel may track has to be remembered.
fn room(config: &SyncConfig, support: &Support) -> Option<String> {
    let remembered = u64::from(config.kernel.connections_max);
    let max = support.connections_max.filter(|max| *max > remembered)?;
    Some(format!(
        "the kernel tracks up to {max} connections, of which kernel.connections_max = {remembered} are remembered: raise it"
    ))
}

/// Own addresses that this host does not have.
fn addresses(config: &SyncConfig) -> Vec<String> {
    let native = config.replication.as_ref().map(|native| ("replication.local", native.replication.local));
    let conntrackd = config.conntrackd.as_ref().map(|conntrackd| ("conntrackd.local", conntrackd.local));
    let Ok(interfaces) = Netlink::open().and_then(|mut netlink| netlink.interfaces()) else { return Vec::new() };
    let is_here = |address: std::net::IpAddr| {
        address.is_loopback()
            || interfaces.iter().any(|interface| interface.addresses.iter().any(|own| own.address == address))
    };
    native
        .into_iter()
        .chain(conntrackd)
        .filter(|(_, local)| !is_here(local.ip()))
        .map(|(key, local)| format!("{key}: no interface has {}: add it to the link between the nodes", local.ip()))
        .collect()
}
