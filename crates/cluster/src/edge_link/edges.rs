//! The node's end: it answers edges, and reports what it serves.

use alloc::vec::Vec;
use core::time::Duration;

use flow::random;
use flow::{Instant, PortId};

use super::{EdgeError, EdgeState, NodeState};
use crate::failure_detector::{CONTROL_PACKET_BYTES, Config, Session, State, TIME_TO_LIVE};

/// Edges that a node answers, at most. An edge counts once for each port.
pub const EDGES_MAX: u8 = 16;
/// An edge that was silent for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// An edge, on the link of a port.
struct EdgeSession {
    port: PortId,
    edge: u8,
    detector: Session,
    received_at: Instant,
    /// What the edge reported last.
    reported: EdgeState,
    /// The state that it was sent last.
    sent: Option<NodeState>,
}

/// The edges that a node knows of.
pub(crate) struct EdgeSessions {
    config: Config,
    seed: u64,
    edges_max: usize,
    state: NodeState,
    sessions: Vec<EdgeSession>,
}

impl EdgeSessions {
    /// Answers `edges_max` edges at most; 0: none.
    pub(crate) const fn new(edges_max: usize, config: Config, seed: u64) -> Self {
        let state = NodeState { forwards: false, serves: 0 };
        Self { config, seed, edges_max, state, sessions: Vec::new() }
    }

    /// Whether there are any.
    pub(crate) const fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Edges that receive this node, and that it receives.
    pub(crate) fn up(&self) -> usize {
        self.sessions.iter().filter(|session| session.detector.status().state == State::Up).count()
    }

    #[cfg(test)]
    pub(super) fn sessions_len(&self) -> usize {
        self.sessions.len()
    }

    /// What edges receive from now on, as soon as possible.
    pub(crate) const fn set_state(&mut self, state: NodeState) {
        self.state = state;
    }

    /// The nodes to which no edge sends flows; bit n stands for node n.
    pub(crate) fn stopped(&self) -> u64 {
        let up = self.sessions.iter().filter(|session| session.detector.status().state == State::Up);
        up.fold(u64::MAX, |nodes, session| nodes & session.reported.stopped)
    }

    /// A datagram of an edge that arrived on a port.
    pub(crate) fn handle(&mut self, now: Instant, port: PortId, edge: u8, datagram: &[u8]) -> Result<(), EdgeError> {
        let (reported, packet) = EdgeState::decode(datagram).ok_or(EdgeError::Truncated)?;
        let known = self.sessions.iter().position(|session| (session.port, session.edge) == (port, edge));
        let at = match known {
            Some(at) => at,
            None => self.begin(now, port, edge).ok_or(EdgeError::TooMany)?,
        };
        let session = &mut self.sessions[at];
        if !packet.is_empty() {
            session.detector.handle_packet(now, packet, TIME_TO_LIVE)?;
        }
        (session.received_at, session.reported) = (now, reported);
        Ok(())
    }

    /// Adds a session, in the place of one that is not up if there is no room.
    fn begin(&mut self, now: Instant, port: PortId, edge: u8) -> Option<usize> {
        if self.sessions.len() >= self.edges_max {
            let is_not_up = |session: &EdgeSession| session.detector.status().state != State::Up;
            let victim = self.sessions.iter().position(is_not_up)?;
            self.sessions.swap_remove(victim);
        }
        let seed = random::mix(self.seed ^ (u64::from(port.0) << 8) ^ u64::from(edge));
        // RFC 5880 section 6.8.1: unique among this system's sessions and not 0; random besides.
        let discriminator = (seed >> 32) as u32 & !0xffff | u32::from(port.0) << 8 | u32::from(edge) | 1 << 31;
        let detector = Session::new(self.config, discriminator, seed);
        self.sessions.push(EdgeSession {
            port,
            edge,
            detector,
            received_at: now,
            reported: EdgeState::default(),
            sent: None,
        });
        Some(self.sessions.len() - 1)
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.sessions.retain_mut(|session| {
            session.detector.handle_timeout(now);
            while session.detector.poll_event().is_some() {}
            now < session.received_at + FORGOTTEN_AFTER
        });
    }

    /// When there is something to do next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = |session: &EdgeSession| {
            if session.sent == Some(self.state) { session.detector.poll_timeout() } else { Some(Instant::ZERO) }
        };
        self.sessions.iter().filter_map(due).min()
    }

    /// Writes the next datagram for an edge over `out`, and returns its port and the edge.
    pub(crate) fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<(PortId, u8)> {
        let state = self.state;
        let mut packet = Vec::with_capacity(CONTROL_PACKET_BYTES);
        for session in &mut self.sessions {
            let has_packet = session.detector.poll_transmit(now, &mut packet);
            if has_packet || session.sent != Some(state) {
                session.sent = Some(state);
                out.clear();
                state.encode(out);
                if has_packet {
                    out.extend_from_slice(&packet);
                }
                return Some((session.port, session.edge));
            }
        }
        None
    }
}
