//! `mainstay gateway --check`: whether a configuration is right and what this host can do of it, without running it.

use std::path::Path;

use super::CommandError;
use super::host::Host;
use crate::config;
use crate::control::Credentials;
use crate::gateway::credentials;
use crate::output::{self, counted};

/// Says what is doubtful on standard error and, when nothing is wrong, so on standard output, with what this host offers
/// to each port. A right configuration is one on any host: what this one lacks is told and is no failure.
///
/// # Errors
/// The configuration cannot be read or is wrong.
pub fn run(path: &Path, json: bool) -> Result<(), CommandError> {
    let checked = config::load(path)?;
    for warning in &checked.warnings {
        eprintln!("{warning}");
    }
    let config = &checked.config;
    let cluster = config.cluster.as_ref();
    if let Some(security) = cluster.and_then(|cluster| cluster.replication.security.as_ref())
        && let Err(error) = credentials::load(security)
    {
        // They are this host's, as interfaces are.
        eprintln!("warning: {error}");
    }
    if let Some(access) = &config.control {
        Credentials::load(access)?;
    }
    let host = Host::look(config);
    if json {
        return Ok(output::print_json(&host)?);
    }
    let peers = config.cluster.as_ref().map_or(0, |cluster| cluster.replication.peers.len());
    let summary = format!(
        "{}: right. Node {} of {}: {}, {}, {}, {}, {}.\n",
        path.display(),
        config.node.id.0,
        config.node.nodes,
        counted(config.ports.len(), "port"),
        counted(config.routes.len(), "route"),
        counted(config.firewall.len(), "firewall rule"),
        counted(config.source_nat.len() + config.destination_nat.len(), "translation"),
        counted(peers, "peer"),
    );
    Ok(output::print(&(summary + &host.describe()))?)
}
