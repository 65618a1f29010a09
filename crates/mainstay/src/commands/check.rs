//! `mainstay gateway --check`: whether a configuration is right, without running it.

use std::path::Path;

use super::CommandError;
use crate::{config, output};

/// Says what is doubtful on standard error and, when nothing is wrong, so on standard output.
///
/// # Errors
/// The configuration cannot be read or is wrong.
pub fn run(path: &Path) -> Result<(), CommandError> {
    let checked = config::load(path)?;
    for warning in &checked.warnings {
        eprintln!("{warning}");
    }
    let config = &checked.config;
    let peers = config.cluster.as_ref().map_or(0, |cluster| cluster.replication.peers.len());
    let summary = format!(
        "{}: right. Node {} of {}: {} ports, {} routes, {} firewall rules, {} translations, {peers} peers.\n",
        path.display(),
        config.node.id.0,
        config.node.nodes,
        config.ports.len(),
        config.routes.len(),
        config.firewall.len(),
        config.source_nat.len() + config.destination_nat.len(),
    );
    Ok(output::print(&summary)?)
}
