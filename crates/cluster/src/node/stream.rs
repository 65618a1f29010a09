//! Replication over streams: whoever runs the node carries bytes instead of datagrams.

use flow::{Instant, NodeId};

use super::{Node, NodeError};

/// What happened to the stream with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamInput<'a> {
    /// It stands, in place of any earlier one.
    Connected,
    /// These bytes came, cut anywhere.
    Bytes(&'a [u8]),
    /// It is no more.
    Disconnected,
}

impl Node {
    /// The peers with whom replication goes over a stream.
    pub fn stream_peers(&self) -> impl Iterator<Item = NodeId> {
        let over_stream = |peer: &&super::Peer| matches!(peer.session, Some(replication::PeerSession::Stream(_)));
        self.replication.peers.iter().filter(over_stream).map(|peer| peer.id)
    }

    /// Something happened to the stream with a peer.
    ///
    /// # Errors
    /// Why the stream is of no more use: it is to be closed, and [`StreamInput::Disconnected`] told.
    pub fn handle_stream(&mut self, now: Instant, from: NodeId, input: StreamInput<'_>) -> Result<(), NodeError> {
        let speaks_for_all = self.speaks_for_all();
        let peer = self.replication.peers.find(from)?;
        if let (Some(theirs), StreamInput::Bytes(_)) = (peer.refused, input) {
            let ours = self.pipeline.place().steering.workers();
            return Err(NodeError::WorkersDiffer { peer: from, theirs: theirs.workers, ours });
        }
        let place = self.replication.peers.place(from)?;
        let session = self.replication.session(&mut self.pipeline, speaks_for_all, place);
        let Some((session, mut store)) = session else { return Ok(()) };
        let result = match input {
            StreamInput::Connected => {
                session.stream().into_iter().for_each(replication::baseline::StreamSession::handle_connected);
                Ok(())
            }
            StreamInput::Bytes(bytes) => session.handle_bytes(now, bytes, &mut store),
            StreamInput::Disconnected => {
                session.stream().into_iter().for_each(replication::baseline::StreamSession::handle_disconnected);
                Ok(())
            }
        };
        self.handle_session_events(now);
        Ok(result?)
    }

    /// What the stream to the peer is to take next; to be polled when [`Node::poll_datagram`] is. Those of the bytes that
    /// the stream takes are to be named to [`Node::handle_stream_taken`]; the others come again.
    pub fn poll_stream(&mut self, now: Instant, to: NodeId) -> &[u8] {
        let speaks_for_all = self.speaks_for_all();
        let peer = self.replication.peers.get(to).filter(|peer| peer.refused.is_none());
        let Some(place) = peer.and_then(|peer| self.replication.peers.place(peer.id).ok()) else { return &[] };
        let session = self.replication.session(&mut self.pipeline, speaks_for_all, place);
        let Some((session, mut store)) = session else { return &[] };
        let Some(session) = session.stream() else { return &[] };
        session.poll_stream(now, &mut store)
    }

    /// The stream to the peer has taken so many of the bytes that were polled last.
    pub fn handle_stream_taken(&mut self, to: NodeId, taken_bytes: usize) {
        let peer = self.replication.peers.get_mut(to);
        let session = peer.and_then(|peer| peer.session.as_mut()?.stream());
        session.into_iter().for_each(|session| session.handle_taken(taken_bytes));
    }
}
