//! The sides of the comparison, and the network of each.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::BenchError;
use super::remote_store::RemoteStore;
use crate::args::BenchClusterArgs;
use crate::testbed::clock::Epoch;
use crate::testbed::cluster::BackupsPlan;
use crate::testbed::many_nodes::{ManyNodes, ManyNodesPlan, MembersFrom};
use crate::testbed::topology::SERVER_PORTS;
use crate::testbed::watch::Watch;
use crate::testbed::ways;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// Connections have backups.
    Mainstay,
    /// Nothing is replicated.
    Baseline,
    /// Each packet waits for a remote store.
    RemoteStore,
}

/// All sides.
pub(super) const SIDES: [Side; 3] = [Side::Mainstay, Side::Baseline, Side::RemoteStore];

/// A side's nodes, edges and hosts.
pub(super) struct Network {
    pub(super) many: ManyNodes,
    remote: Option<RemoteStore>,
    pub(super) is_replicated: bool,
}

impl Network {
    pub(super) fn start(
        args: &BenchClusterArgs,
        (side, store): (Side, Option<&str>),
        (connections, may_join): (usize, usize),
        watch: &Watch,
    ) -> Result<Self, BenchError> {
        let is_replicated = side == Side::Mainstay;
        let plan = ManyNodesPlan {
            nodes: args.nodes.into(),
            is_replicated,
            accepts: side != Side::RemoteStore,
            backups: Some(BackupsPlan { count: args.kill.into(), broadcast: true }),
            connections,
            workers: 1,
            may_join,
            members: MembersFrom::Static,
            believes_all_sources: false,
        };
        let many = ManyNodes::start(plan, watch)?;
        let remote = store.map(|program| RemoteStore::start(program, &many, watch)).transpose()?;
        Ok(Self { many, remote, is_replicated })
    }

    /// How many records the gateways have read from the remote store, if there is one.
    pub(super) fn store_reads(&self) -> Result<Option<u64>, BenchError> {
        self.remote.as_ref().map(|_| RemoteStore::reads(&self.many.topology.nodes[0])).transpose()
    }

    /// Kills the first `count` nodes, and waits until the edges send them no flows. Returns when.
    pub(super) fn kill(&mut self, count: u8, watch: &Watch) -> Result<Epoch, BenchError> {
        let killed: Vec<usize> = (0..count.into()).collect();
        if let Some(remote) = &mut self.remote {
            killed.iter().for_each(|node| remote.kill(*node));
        }
        Ok(self.many.kill(&killed, Duration::ZERO, watch)?)
    }
}

/// Where the servers listen.
pub(super) fn server_addresses() -> Vec<SocketAddr> {
    ways::server_addresses(ways::chosen(false), SERVER_PORTS).into_iter().filter(SocketAddr::is_ipv4).collect()
}
