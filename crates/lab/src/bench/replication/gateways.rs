//! Two nodes of this program as a [`Pair`].

use std::net::IpAddr;
use std::time::Duration;

use super::network::Network;
use super::pair::{Pair, TakeOver};
use crate::bench::BenchError;
use crate::testbed::clock::Epoch;
use crate::testbed::cluster::{Cluster, ClusterPlan, Shape, Tuning};
use crate::testbed::watch::Watch;
use crate::testbed::ways::WAYS;
use config::validated::Backend;

/// Connections that a node has room for, most of them over and waiting to be forgotten.
const CONNECTIONS_MAX: usize = 1 << 18;
/// Not asked before it can have taken over: a node that watches for ten intervals of 10 ms has other things to do.
const ASKED_AFTER: Duration = Duration::from_millis(150);
/// How long the survivor may take to take over, and for a packet to come.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(3);

/// Two nodes.
pub(super) struct Gateways {
    cluster: Cluster,
    shape: Shape,
}

impl Gateways {
    /// Starts them, watching each other every 10 ms and counting the other dead after 100 ms.
    ///
    /// # Errors
    /// A process cannot be started.
    pub(super) fn start(network: &Network, holds_first_reply: bool) -> Result<Self, BenchError> {
        let plan = ClusterPlan {
            nodes: 2,
            is_replicated: true,
            connections_max: CONNECTIONS_MAX,
            workers: 1,
            backend: Backend::default(),
            tuning: Tuning {
                holds_first_reply,
                // As conntrackd does it.
                is_plain: true,
                route: network.route().map(|route| (route.to, route.via)),
                ..Tuning::default()
            },
        };
        let shape = if network.links().both_active { Shape::AllActive } else { Shape::OneActive };
        Ok(Self { cluster: Cluster::start_as(shape, network.topology(), plan)?, shape })
    }
}

impl Pair for Gateways {
    fn wait_until_ready(&mut self, watch: &Watch) -> Result<(), BenchError> {
        Ok(self.cluster.wait_until_ready(watch)?)
    }

    fn check_roles(&mut self) -> Result<(), BenchError> {
        Ok(self.cluster.check_roles()?)
    }

    fn kill_active(&mut self) -> Result<Epoch, BenchError> {
        Ok(self.cluster.kill_active_unchecked()?)
    }

    fn spares(&self, server: IpAddr) -> bool {
        // Node a is the one that is killed where both are at work; the second way leads through the other alone.
        self.shape == Shape::AllActive && WAYS[1].server.contains(&server)
    }

    fn await_take_over(&mut self, watch: &Watch, killed_at: Epoch) -> Result<TakeOver, BenchError> {
        watch.pass_until(killed_at.instant() + ASKED_AFTER)?;
        let mut take_over = TakeOver::default();
        watch.until(killed_at.instant() + TAKEN_OVER_WITHIN, || -> Result<bool, BenchError> {
            take_over = TakeOver::of(&self.cluster.standby_events(), killed_at);
            Ok(take_over.first_packet_ms.is_some())
        })?;
        Ok(take_over)
    }
}
