//! The node's end: it answers edges, and reports what it serves.

use alloc::vec::Vec;
use core::time::Duration;

use flow::random;
use flow::wire::MacAddress;
use flow::{Instant, PortId};
use replication::secure::{Channel, Security, is_channel};

use super::security::{LinkSecurity, open, seal};
use super::{EdgeError, EdgeState, NodeState};
use crate::failure_detector::{CONTROL_PACKET_BYTES, Config, Session, State, TIME_TO_LIVE};

/// Edges that a node answers, at most. An edge counts once for each port.
pub const EDGES_MAX: u8 = 16;
/// An edge that was silent for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How a node answers edges.
pub struct EdgeConfig {
    /// Edges at most; 0: none.
    pub edges_max: u8,
    /// The configuration of failure detection.
    pub detector: Config,
    /// A random number.
    pub seed: u64,
    /// What edges are authenticated by. `None`: edges are taken in plain text, each from one link address while it is up.
    pub security: Option<LinkSecurity>,
    /// Edges are taken in plain text as well as authenticated ones.
    pub accepts_plain: bool,
}

/// Where a frame of an edge came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EdgeAddress {
    pub(crate) port: PortId,
    pub(crate) edge: u8,
    pub(crate) link_address: MacAddress,
}

/// An edge, on the link of a port.
struct EdgeSession {
    address: EdgeAddress,
    /// `None`: the edge sends plain text.
    channel: Option<Channel>,
    detector: Session,
    received_at: Instant,
    /// What the edge reported last.
    reported: EdgeState,
    /// The state that it was sent last.
    sent: Option<NodeState>,
}

impl EdgeSession {
    fn is_up(&self) -> bool {
        self.detector.status().state == State::Up
    }

    fn is_of(&self, address: EdgeAddress) -> bool {
        (self.address.port, self.address.edge) == (address.port, address.edge)
    }

    /// A datagram of the edge, sealed if the edge authenticates itself.
    fn handle(&mut self, now: Instant, from: EdgeAddress, datagram: &[u8]) -> Result<(), EdgeError> {
        let Some(channel) = &mut self.channel else {
            return if self.is_up() && self.address != from {
                Err(EdgeError::OtherLinkAddress)
            } else {
                self.handle_content(now, from, datagram)
            };
        };
        match open(channel, now, datagram)? {
            Some(content) => self.handle_content(now, from, &content),
            None => {
                self.address = from;
                Ok(())
            }
        }
    }

    /// What the edge reports, with a packet of failure detection behind it.
    fn handle_content(&mut self, now: Instant, address: EdgeAddress, content: &[u8]) -> Result<(), EdgeError> {
        let (reported, packet) = EdgeState::decode(content).ok_or(EdgeError::Truncated)?;
        if !packet.is_empty() && self.channel.is_some() {
            self.detector.handle_authentic_packet(now, packet)?;
        } else if !packet.is_empty() {
            self.detector.handle_packet(now, packet, TIME_TO_LIVE)?;
        }
        (self.address, self.received_at, self.reported) = (address, now, reported);
        Ok(())
    }
}

/// The edges that a node knows of.
pub(crate) struct EdgeSessions {
    node: u8,
    config: EdgeConfig,
    state: NodeState,
    sessions: Vec<EdgeSession>,
}

impl EdgeSessions {
    /// The edges of the node with this number.
    pub(crate) const fn new(node: u8, config: EdgeConfig) -> Self {
        let state = NodeState { forwards: false, serves: 0 };
        Self { node, config, state, sessions: Vec::new() }
    }

    /// Answers no edge.
    pub(crate) fn none() -> Self {
        let (detector, security) = (Config::default(), None);
        Self::new(0, EdgeConfig { edges_max: 0, detector, seed: 0, security, accepts_plain: false })
    }

    /// Edges are authenticated by keys that follow from these from now on. Nothing changes where none were authenticated.
    pub(crate) fn renew_security(&mut self, now: Instant, new: &Security) {
        let Some(credentials) = self.config.security.as_mut().and_then(|security| security.renew(new)) else { return };
        for channel in self.sessions.iter_mut().filter_map(|session| session.channel.as_mut()) {
            channel.set_rotation(new.rotation);
            channel.set_credentials(now, alloc::sync::Arc::clone(&credentials));
        }
    }

    /// Whether there are any.
    pub(crate) const fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Edges that receive this node, and that it receives.
    pub(crate) fn up(&self) -> usize {
        self.sessions.iter().filter(|session| session.is_up()).count()
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
        let up = self.sessions.iter().filter(|session| session.is_up());
        up.fold(u64::MAX, |nodes, session| nodes & session.reported.stopped)
    }

    /// A datagram of an edge. An edge that is up is bound: it goes on as it was authenticated, and in plain text it stays at its link
    /// address.
    pub(crate) fn handle(&mut self, now: Instant, from: EdgeAddress, datagram: &[u8]) -> Result<(), EdgeError> {
        let is_sealed = is_channel(datagram);
        match self.sessions.iter_mut().find(|session| session.is_of(from)) {
            Some(session) if session.channel.is_some() == is_sealed => session.handle(now, from, datagram),
            Some(session) if session.is_up() => Err(EdgeError::NotAuthenticated),
            _ if is_sealed => self.handle_unknown_sealed(now, from, datagram),
            _ => self.handle_unknown_plain(now, from, datagram),
        }
    }

    /// An edge that is not known as authenticated: it is once it has begun a handshake with the key.
    fn handle_unknown_sealed(&mut self, now: Instant, from: EdgeAddress, datagram: &[u8]) -> Result<(), EdgeError> {
        let security = self.config.security.as_mut().ok_or(EdgeError::NoKey)?;
        let mut channel = security.channel(now, self.node, from.edge).ok_or(EdgeError::NoKey)?;
        open(&mut channel, now, datagram)?;
        self.begin(now, from, Some(channel)).map(drop)
    }

    fn handle_unknown_plain(&mut self, now: Instant, from: EdgeAddress, datagram: &[u8]) -> Result<(), EdgeError> {
        if self.config.security.is_some() && !self.config.accepts_plain {
            return Err(EdgeError::NotAuthenticated);
        }
        self.begin(now, from, None)?.handle_content(now, from, datagram)
    }

    /// Adds a session, in the place of its own or of another one that is not up if there is no room.
    fn begin(
        &mut self,
        now: Instant,
        address: EdgeAddress,
        channel: Option<Channel>,
    ) -> Result<&mut EdgeSession, EdgeError> {
        self.sessions.retain(|session| !session.is_of(address));
        if self.sessions.len() >= usize::from(self.config.edges_max) {
            let victim = self.sessions.iter().position(|session| !session.is_up()).ok_or(EdgeError::TooMany)?;
            self.sessions.swap_remove(victim);
        }
        let EdgeAddress { port, edge, .. } = address;
        let seed = random::mix(self.config.seed ^ (u64::from(port.0) << 8) ^ u64::from(edge));
        // RFC 5880 section 6.8.1: unique among this system's sessions and not 0; random besides.
        let discriminator = (seed >> 32) as u32 & !0xffff | u32::from(port.0) << 8 | u32::from(edge) | 1 << 31;
        let detector = Session::new(self.config.detector, discriminator, seed);
        let reported = EdgeState::default();
        self.sessions.push(EdgeSession { address, channel, detector, received_at: now, reported, sent: None });
        self.sessions.last_mut().ok_or(EdgeError::TooMany)
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.sessions.retain_mut(|session| {
            session.channel.iter_mut().for_each(|channel| channel.handle_timeout(now));
            session.detector.handle_timeout(now);
            while session.detector.poll_event().is_some() {}
            now < session.received_at + FORGOTTEN_AFTER
        });
    }

    /// When there is something to do next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = |session: &EdgeSession| {
            let channel = session.channel.as_ref();
            let handshake = channel.and_then(Channel::poll_timeout);
            let packet =
                if session.sent == Some(self.state) { session.detector.poll_timeout() } else { Some(Instant::ZERO) };
            let packet = packet.filter(|_| channel.is_none_or(Channel::is_ready));
            let forgotten = session.received_at + FORGOTTEN_AFTER;
            [handshake, packet, Some(forgotten)].into_iter().flatten().min()
        };
        self.sessions.iter().filter_map(due).min()
    }

    /// Writes the next datagram for an edge over `out`, and returns where it goes.
    pub(crate) fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<EdgeAddress> {
        let state = self.state;
        let mut packet = Vec::with_capacity(CONTROL_PACKET_BYTES);
        for session in &mut self.sessions {
            if session.channel.as_mut().is_some_and(|channel| channel.poll_transmit(out)) {
                return Some(session.address);
            }
            if !session.channel.as_ref().is_none_or(Channel::is_ready) {
                continue;
            }
            let has_packet = session.detector.poll_transmit(now, &mut packet);
            if has_packet || session.sent != Some(state) {
                session.sent = Some(state);
                out.clear();
                state.encode(out);
                if has_packet {
                    out.extend_from_slice(&packet);
                }
                if session.channel.as_mut().is_none_or(|channel| seal(channel, now, out)) {
                    return Some(session.address);
                }
            }
        }
        None
    }
}
