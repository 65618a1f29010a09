//! The edges beside the cluster: they are answered, and learn what this node serves.

use alloc::vec::Vec;

use flow::{Instant, NodeId};

use super::Node;
use super::peer::Peer;
use crate::edge_link::{EDGES_MAX, EdgeAddress, EdgeConfig, EdgeSessions, NodeState};
use crate::failure_detector::ConfigError;
use crate::forwarding::{OutFrame, PathFrame, PathFrameKind, PathFrameTo};
use crate::role::State;

impl Node {
    /// Has the node answer edges over the links of its ports, at most [`EDGES_MAX`]. The lead alone does.
    ///
    /// # Errors
    /// The configuration of failure detection cannot be used.
    pub fn set_edges(&mut self, config: EdgeConfig) -> Result<(), ConfigError> {
        config.detector.check()?;
        if self.place().leads() && config.edges_max > 0 {
            let edges_max = config.edges_max.min(EDGES_MAX);
            self.edges = EdgeSessions::new(self.id.0, EdgeConfig { edges_max, ..config });
            self.forwarder.set_edges(self.id);
        }
        Ok(())
    }

    /// What an edge sent.
    pub(super) fn handle_edge_frame(&mut self, now: Instant, frame: &PathFrame) {
        let from = EdgeAddress { port: frame.port, edge: frame.from.0, link_address: frame.link_address };
        if let Err(error) = self.edges.handle(now, from, &frame.datagram) {
            self.pipeline.count_drop(error.reason());
        }
    }

    /// What this node serves. It has replicas of all connections that peers owned. Once no edge sends flows to a peer any more, it serves
    /// those of the peer: if it holds all addresses, if the peer is dead, or if nodes forward for live owners, too. So it need not have
    /// detected the failure itself. While this node takes over, their state is not usable yet.
    fn served(&self) -> NodeState {
        let (roles, forwards) = (&self.roles, self.roles.forwards_any());
        let is_taking_over = roles.states().any(|state| state == State::TakingOver);
        if !forwards || is_taking_over {
            return NodeState { forwards, serves: 0 };
        }
        let serves_live = roles.claims_all() || self.pipeline.is_sharing();
        let is_served = |peer: &&Peer| serves_live || !peer.is_up();
        let served = self.replication.peers.iter().filter(is_served);
        // A node that is no peer any more is dead, as far as its connections are concerned.
        let served = served.map(|peer| peer.id).chain(self.replication.peers.removed());
        let bit = |id: NodeId| 1_u64.checked_shl(id.0.into()).unwrap_or(0);
        NodeState { forwards, serves: served.fold(0, |nodes, id| nodes | bit(id)) & self.edges.stopped() }
    }

    /// The next frame for an edge. One leaves at once when it has changed what this node serves.
    pub(super) fn poll_edge_frame(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<OutFrame> {
        if self.edges.is_empty() {
            return None;
        }
        let state = self.served();
        self.edges.set_state(state);
        let mut datagram = Vec::new();
        while let Some(EdgeAddress { port, edge, .. }) = self.edges.poll_transmit(now, &mut datagram) {
            let frame = PathFrameTo { node: NodeId(edge), kind: PathFrameKind::ToEdge, link_address: None };
            if self.forwarder.write_path_frame(port, frame, &datagram, buffer).is_some() {
                return Some(OutFrame::of_own(port));
            }
        }
        None
    }
}
