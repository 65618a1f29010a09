//! What source NAT chooses ports from and by: the node's part of the ports, and the secret.

use std::num::NonZeroU8;

use config::validated::Config;
use flow::{HashKey, NodeId};
use network_functions::port_range::PortRange;

use super::hash::fnv;
use super::secrets::Secrets;
use crate::credentials;
use crate::error::ProcessError;

/// The ports for translated sources, and the node's part of them.
pub(super) struct PortDivision {
    pub(super) ports: PortRange,
    pub(super) node: NodeId,
    pub(super) nodes: NonZeroU8,
}

/// Nodes that forward at the same time divide the ports. Where one forwards at a time, each has all of them, so that all choose alike.
pub(super) fn port_division(config: &Config) -> PortDivision {
    let ports = config.nat_ports;
    match NonZeroU8::new(config.node.nodes).filter(|_| config.several_forward()) {
        Some(nodes) => PortDivision { ports, node: config.node.id, nodes },
        None => PortDivision { ports, node: NodeId(0), nodes: NonZeroU8::MIN },
    }
}

/// The secret under which free ports are chosen: that of a file or of the cluster, as every node has it; or else one of this process.
/// Picked-up connections need one that outlasts the process.
pub(super) fn nat_key(config: &Config, secrets: &Secrets) -> Result<HashKey, ProcessError> {
    if let Some(path) = &config.nat_key {
        return Ok(credentials::nat_key(path)?);
    }
    let of_rules = || {
        let rules = format!("{:?}", (&config.nat_ports, &config.source_nat, &config.destination_nat));
        HashKey([fnv(&rules), fnv(&format!("nat key {rules}"))])
    };
    let otherwise = || if config.tracking.loose { of_rules() } else { secrets.nat_key };
    Ok(credentials::cluster_nat_key(config.cluster.as_ref())?.unwrap_or_else(otherwise))
}
