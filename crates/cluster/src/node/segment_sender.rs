//! Messages about unacknowledged segments, on their way to the peers.

use alloc::vec::Vec;

use flow::{Instant, NodeId};

use super::peers::Peers;
use crate::pipeline::{Pipeline, SegmentsConfig};

/// Messages for all peers: those of a datagram are taken from the pipeline, and sent to one peer after the other.
#[derive(Debug, Default)]
pub(super) struct SegmentSender {
    config: Option<SegmentsConfig>,
    messages: Vec<u8>,
    /// The places of the peers that they are still to be sent to begin here.
    next_place: usize,
}

impl SegmentSender {
    pub(super) fn new(config: Option<SegmentsConfig>) -> Self {
        Self { config, ..Self::default() }
    }

    pub(super) const fn config(&self) -> Option<SegmentsConfig> {
        self.config
    }

    /// The next datagram; `None`: there is none now.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        peers: &mut Peers,
        buffer: &mut Vec<u8>,
    ) -> Option<NodeId> {
        self.config?;
        if self.messages.is_empty() {
            let room_bytes = room_bytes(peers);
            if !pipeline.poll_segment_messages(now, room_bytes, &mut self.messages) {
                return None;
            }
            self.next_place = 0;
        }
        while self.next_place < peers.len() {
            let peer = &mut peers[self.next_place];
            self.next_place += 1;
            let takes_updates = peer.takes_updates();
            let session = peer.session.as_mut().filter(|_| takes_updates);
            if session.is_some_and(|session| session.transmit_unnumbered(now, &self.messages, buffer)) {
                return Some(peer.id);
            }
        }
        self.messages.clear();
        None
    }
}

/// Bytes of messages that a datagram to every peer has room for.
pub(super) fn room_bytes(peers: &Peers) -> usize {
    peers.iter().filter_map(|peer| peer.session.as_ref()).map(|session| session.messages_bytes_max()).min().unwrap_or(0)
}
