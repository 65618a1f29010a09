//! Channels to peers that are encrypted.
//!
//! Where a peer has a [`Channel`], all that it is told travels in it, and nothing that comes past it is taken: neither
//! replication nor heartbeats, nor failure detection, by which a stranger could make a dead node look alive.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId};
use replication::secure::{
    Channel, ChannelError, ChannelEvent, Content, Security, SecurityReconfiguration, UnnamedPeer, is_channel,
};

use super::peer::Peer;
use super::{ConfigError, Node, NodeError, NodeEvent, PeerConfig, ReloadError, Transmit};
use crate::failure_detector::{CONTROL_PACKET_BYTES, TIME_TO_LIVE};

/// Room for what is about to be encrypted, and for what was decrypted.
#[derive(Debug, Default)]
pub(super) struct PlainText {
    outgoing: Vec<u8>,
    pub(super) incoming: Vec<u8>,
}

/// The channel with a peer.
pub(super) fn channel(
    security: &Security,
    local: NodeId,
    peer: &PeerConfig,
    now: Instant,
) -> Result<Channel, ConfigError> {
    Ok(security.channel(local, peer.id, now)?)
}

impl Peer {
    /// Whatever is said to the peer reaches it: the channel, if there is one, has keys.
    pub(super) fn can_be_told(&self) -> bool {
        self.channel.as_ref().is_none_or(Channel::is_ready)
    }
}

impl Node {
    /// A datagram on the replication port.
    ///
    /// # Errors
    /// Why it was not taken; the node goes on.
    pub fn handle_replication(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), NodeError> {
        let peer = self.replication.peers.get_mut(from);
        let Some(channel) = peer.and_then(|peer| peer.channel.as_mut()) else {
            let result = if is_channel(datagram) {
                Err(NodeError::NotSecured)
            } else {
                self.handle_plain_replication(now, from, datagram)
            };
            return result.inspect_err(|error| self.note_rejected(now, from, error));
        };
        let mut content = core::mem::take(&mut self.plain.incoming);
        let result = match channel.handle_datagram(now, datagram, &mut content) {
            Ok(Some(Content::Replication)) => self.handle_plain_replication(now, from, &content),
            // It crossed no router, or it could not have been made: what the time to live says is said by the keys.
            // One of a service path says which path it is of.
            Ok(Some(Content::Detection)) if content.len() != CONTROL_PACKET_BYTES => Err(NodeError::OtherPath),
            Ok(Some(Content::Detection)) => self.handle_plain_detection(now, from, &content, TIME_TO_LIVE),
            Ok(Some(Content::Nothing) | None) => Ok(()),
            // Counted.
            Err(error) if error.is_routine() => {
                if error == ChannelError::UnknownSession {
                    self.note_rejected(now, from, &error.into());
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        };
        self.plain.incoming = content;
        self.handle_channel_events(now);
        result.inspect_err(|error| self.note_rejected(now, from, error))
    }

    /// A packet on the failure-detection port, with the time to live that it arrived with.
    ///
    /// # Errors
    /// Why it was not taken; the node goes on.
    pub fn handle_detection(&mut self, now: Instant, from: NodeId, packet: &[u8], ttl: u8) -> Result<(), NodeError> {
        let peer = self.replication.peers.get_mut(from);
        if let Some(channel) = peer.and_then(|peer| peer.channel.as_mut()) {
            let error = channel.refuse_plain_text().into();
            self.note_rejected(now, from, &error);
            return Err(error);
        }
        self.handle_plain_detection(now, from, packet, ttl)
    }

    /// As [`Node::poll_transmit`], only what goes to peers.
    pub fn poll_datagram(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        for peer in &mut self.replication.peers {
            if peer.channel.as_mut().is_some_and(|channel| channel.poll_transmit(buffer)) {
                peer.paths.keep_handshake(buffer);
                return Some(Transmit::Replication(peer.id));
            }
        }
        loop {
            let transmit = self.poll_plain_datagram(now, buffer)?;
            if let Some(transmit) = self.secure(now, transmit, buffer) {
                return Some(transmit);
            }
        }
    }

    /// Encrypts what was polled, where the peer has a channel. `None` when its keys have been used too often: then it is lost
    /// as the network may lose it.
    fn secure(&mut self, now: Instant, transmit: Transmit, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (id, kind) = match transmit {
            Transmit::Replication(id) => (id, Content::Replication),
            Transmit::Detection(id) => (id, Content::Detection),
            Transmit::Port { .. } => return Some(transmit),
        };
        let peer = self.replication.peers.get_mut(id);
        let Some(channel) = peer.and_then(|peer| peer.channel.as_mut()) else { return Some(transmit) };
        core::mem::swap(buffer, &mut self.plain.outgoing);
        let is_sealed = channel.seal(now, kind, &mut self.plain.outgoing, buffer);
        is_sealed.then_some(Transmit::Replication(id))
    }

    /// The time since 1970, as the system has it at `now`: peers' certificates are held against it.
    pub fn set_unix_time(&mut self, now: Instant, unix_time: Duration) {
        for channel in self.replication.peers.iter_mut().filter_map(|peer| peer.channel.as_mut()) {
            channel.set_unix_time(now, unix_time);
        }
        if let Some(site) = &mut self.site {
            site.set_unix_time(now, unix_time);
        }
    }

    pub(super) fn handle_channel_timeouts(&mut self, now: Instant) {
        for channel in self.replication.peers.iter_mut().filter_map(|peer| peer.channel.as_mut()) {
            channel.handle_timeout(now);
        }
    }

    pub(super) fn handle_channel_events(&mut self, now: Instant) {
        for peer in &mut self.replication.peers {
            while let Some(event) = peer.channel.as_mut().and_then(Channel::poll_event) {
                let event = match event {
                    ChannelEvent::Established => NodeEvent::ChannelSecured(peer.id),
                    ChannelEvent::KeysExchanged => NodeEvent::SessionKeysExchanged(peer.id),
                };
                self.events.push(now, event);
            }
        }
    }

    pub(super) fn check_security(&self, new: Option<&SecurityReconfiguration>) -> Result<(), ReloadError> {
        if self.replication.peers.iter().any(|peer| peer.channel.is_some() != new.is_some()) {
            return Err(ReloadError::SecurityDiffers);
        }
        let credentials = new.map(|new| &new.credentials);
        let unnamed = self.replication.peers.iter().find(|peer| credentials.is_some_and(|known| !known.knows(peer.id)));
        unnamed.map_or(Ok(()), |peer| Err(ConfigError::from(UnnamedPeer(peer.id)).into()))
    }

    pub(super) fn renew_security(&mut self, now: Instant, new: &SecurityReconfiguration) {
        for channel in self.replication.peers.iter_mut().filter_map(|peer| peer.channel.as_mut()) {
            channel.set_rotation(new.rotation);
            channel.set_credentials(now, Arc::clone(&new.credentials));
        }
    }
}
