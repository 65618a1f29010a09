//! What the pipeline does with unacknowledged segments of peers: see [`super::segments`].

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use flow::conntrack::is_in_handshake;
use flow::serial::is_after;
use flow::wire::ip_protocol;
use flow::{Instant, NodeId};
use replication::message::SegmentMessage;

use super::Pipeline;
use super::segments::{Due, SegmentStatus, Segments, SegmentsConfig, SegmentsResent, is_closed, unacknowledged};

/// A segment to be handed to the pipeline as if its sender had sent it once more.
pub(crate) struct Resend {
    /// Its sender.
    pub(crate) source: IpAddr,
    /// Its frame, with link addresses of zeros.
    pub(crate) frame: Vec<u8>,
    /// It is a SYN, or a SYN/ACK.
    pub(crate) is_syn: bool,
}

impl Pipeline {
    /// From now on unacknowledged segments are replicated as configured; `None`: they are not. What is held is dropped. Packets of
    /// more than `packet_bytes_max` bytes are cut.
    pub(crate) fn set_segments(&mut self, config: Option<&SegmentsConfig>, packet_bytes_max: usize) {
        self.connections.segments = config.map(|config| Box::new(Segments::new(config, packet_bytes_max)));
    }

    /// How the replication of segments stands; `None`: there is none.
    #[must_use]
    pub fn segments_status(&self) -> Option<SegmentStatus> {
        self.connections.segments.as_ref().map(|segments| segments.status())
    }

    /// A peer has forwarded a segment, or one was acknowledged.
    pub(crate) fn note_segment_message(&mut self, now: Instant, from: NodeId, message: &SegmentMessage<'_>) {
        if let Some(segments) = &mut self.connections.segments {
            segments.note_message(now, &self.connections.table, from, message);
        }
    }

    /// Replaces `out` with messages about segments for the peers, at most `room_bytes`. False: there are none now.
    pub(crate) fn poll_segment_messages(&mut self, now: Instant, room_bytes: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        let connections = &mut self.connections;
        let Some(segments) = &mut connections.segments else { return false };
        segments.poll_messages(now, &connections.table, connections.node, room_bytes, out)
    }

    /// This node has taken over, and neighbours know: what the former owners forwarded is due.
    pub(crate) fn begin_resending(&mut self, now: Instant) {
        self.connections.segments.iter_mut().for_each(|segments| segments.begin_resending(now));
    }

    /// The next segment that is to be resent now. To be followed by [`Pipeline::count_resent`].
    pub(crate) fn poll_resend(&mut self, now: Instant) -> Option<Resend> {
        loop {
            let connections = &mut self.connections;
            let (segments, sharing) = (connections.segments.as_mut()?, connections.sharing.as_ref());
            let is_live = |owner| sharing.is_some_and(|sharing| sharing.live_owners.contains(&owner));
            let due = segments.poll_due(now, is_live)?;
            if self.may_resend(&due) {
                return Some(Resend { source: due.tuple.source_ip(), frame: due.frame, is_syn: due.is_syn });
            }
            self.count_resent(false, due.is_syn);
        }
    }

    /// Whether the connection of a segment is open, as far as this node knows, and has not acknowledged it. A first SYN may be of a
    /// connection that was never replicated: the rules decide, as they do about every SYN.
    fn may_resend(&self, due: &Due) -> bool {
        let Some((slot, direction)) = self.lookup(&due.tuple) else { return due.is_first };
        let Some(connection) = self.connection(slot) else { return false };
        let is_awaited = !due.is_syn || is_in_handshake(ip_protocol::TCP, &connection.protocol);
        let is_new = unacknowledged(connection, direction).is_none_or(|number| is_after(due.end, number));
        is_awaited && is_new && !is_closed(connection)
    }

    /// What [`Pipeline::poll_resend`] returned last was handed to the pipeline, or could not be.
    pub(crate) fn count_resent(&mut self, is_resent: bool, is_syn: bool) {
        self.connections.segments.iter_mut().for_each(|segments| segments.count_resent(is_resent, is_syn));
    }

    /// All segments that were due after a take-over were polled: what came of them, once.
    pub(crate) fn poll_resent(&mut self) -> Option<SegmentsResent> {
        self.connections.segments.as_mut()?.poll_finished()
    }

    /// When a segment is to be resent next.
    pub(crate) fn resends_at(&self) -> Option<Instant> {
        self.connections.segments.as_ref()?.resends_at()
    }

    /// When messages about segments are to be sent next.
    pub(crate) fn segment_messages_at(&self) -> Option<Instant> {
        self.connections.segments.as_ref()?.messages_at()
    }
}
