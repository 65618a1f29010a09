//! `mainstay gateway --check`: whether a configuration is right and what this host can do of it, without running it.

use std::path::Path;

use replication::lazy;

use super::CommandError;
use super::host::Host;
use crate::config;
use crate::config::compact::promise;
use crate::config::validate::mapping::formulas;
use crate::config::validated::{Redundancy, Replication};
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
    if let Some(Err(error)) = config.nat_mapping_key.as_deref().map(credentials::mapping_key) {
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
    let formulas = formulas(config).into_iter();
    let mappings: String = formulas
        .map(|(index, formula)| format!("Source NAT rule {index} computes its mapping, {formula}.\n"))
        .collect();
    let replication = cluster.map_or_else(String::new, |cluster| {
        describe_filter(&cluster.replication, config.workers.count) + &describe_lazy(&cluster.replication)
    });
    let tunnel = config.redundancy.as_ref().map_or_else(String::new, describe_tunnel);
    Ok(output::print(&(summary + &mappings + &replication + &tunnel + &host.describe()))?)
}

/// What a failover loses, where connections are put off.
fn describe_lazy(replication: &Replication) -> String {
    let threshold = match &replication.lazy {
        None => return String::new(),
        Some(lazy::Config::Fixed(threshold)) => output::duration(*threshold),
        Some(lazy::Config::Dynamic(dynamic)) => {
            let [least, most] = [dynamic.threshold_min, dynamic.threshold_max].map(output::duration);
            format!("{least} to {most} while the load demands it")
        }
    };
    format!("Connections are told once they have lived for {threshold}: a failover loses those that are younger.\n")
}

/// What goes through the tunnel, and what that takes.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn describe_tunnel(redundancy: &Redundancy) -> String {
    let chosen = match redundancy.rules.len() {
        0 => "all that leaves by its port".to_owned(),
        rules => format!("what {} chooses", counted(rules, "rule")),
    };
    let cache = output::scaled(redundancy.cache_bytes as f64, "B");
    format!("A tunnel to {} takes {chosen}, with a cache of {cache} for either direction.\n", redundancy.peer)
}

/// What a filter takes and promises, where connections are told by one.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn describe_filter(replication: &Replication, workers: u8) -> String {
    let Some(compact) = &replication.compact else { return String::new() };
    let stream = compact.stream([0; 2], replication.datagram_bytes_max.into(), workers);
    let bytes = stream.filter_bytes().unwrap_or_default() * usize::from(workers.max(1));
    format!(
        "Connections are told as {}, a filter of {} for {} entries: {}.\n",
        compact.representation.name(),
        output::scaled(bytes as f64, "B"),
        output::count(compact.entries_max),
        promise(compact.representation),
    )
}
