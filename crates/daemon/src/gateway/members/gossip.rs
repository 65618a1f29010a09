//! Gossip as the source of members: a socket and a thread around [`membership::gossip`].
//!
//! ```text
//!   datagram: what the protocol sends (to 1400 bytes) │ HMAC-SHA256 of it (32), under a key that is derived from the cluster's
//! ```
//! A datagram without a right tag is dropped before anything reads it. An old datagram that is sent again has records of old versions, which
//! change nothing. What gossip carries is not secret, and not encrypted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flow::Instant;
use membership::MemberState;
use membership::gossip::{DATAGRAM_BYTES_MAX, Gossip, GossipEvent};
use packet_io::poller::{Poller, Token};
use packet_io::udp::{UdpOptions, UdpSocket};
use packet_io::{IoError, clock, random};
use ring::hmac;

use super::super::fast_path::give_up_privilege_here;
use super::Members;
use crate::credentials;
use crate::error::ProcessError;
use config::validated::{self, Cluster};

/// Length of a datagram's tag.
const TAG_BYTES: usize = 32;
/// The longest wait: the own record and the end of the process are looked at.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// After its record has become one that has left, the node goes on for so long: the others have it by then.
const LEAVE_FOR: Duration = Duration::from_millis(300);
/// A node without another member is alone when it has been so for this time.
const LONELY_AFTER: Duration = Duration::from_secs(5);
/// Datagrams that are taken before timers have their turn.
const DATAGRAMS_PER_TURN_MAX: usize = 64;

/// The thread that gossips.
pub(super) struct GossipSource {
    thread: Option<JoinHandle<()>>,
}

impl GossipSource {
    pub(super) fn start(
        members: Arc<Members>,
        config: &validated::Gossip,
        cluster: Option<&Cluster>,
    ) -> Result<Self, ProcessError> {
        let socket = UdpSocket::bind(config.listen, &UdpOptions::default())?;
        let poller = Poller::new()?;
        poller.add(&socket, Token(0))?;
        let tags = Tags::new(&credentials::gossip_keys(cluster)?);
        let now = clock::now();
        let (own, settings) = (members.own(), members.settings());
        let gossip = Gossip::new(config.listen, own, settings, config.seeds.clone(), random::number(), now);
        let mut gossiper =
            Gossiper { members, gossip, socket, poller, tags, buffer: vec![0; 65_536], alone_since: now };
        let thread = thread::Builder::new().name("gossip".to_owned()).spawn(move || {
            give_up_privilege_here();
            gossiper.run();
        });
        Ok(Self { thread: Some(thread.map_err(ProcessError::GatewayThread)?) })
    }

    /// Waits until the others know that this node has left. A panic of the thread has been reported on standard error.
    pub(super) fn leave(&mut self) {
        self.thread.take().map(JoinHandle::join);
    }
}

struct Gossiper {
    members: Arc<Members>,
    gossip: Gossip,
    socket: UdpSocket,
    poller: Poller,
    tags: Tags,
    buffer: Vec<u8>,
    /// Since when no other member answers, if none does.
    alone_since: Instant,
}

impl Gossiper {
    fn run(&mut self) {
        let mut leaving_until = None;
        loop {
            if let Err(error) = self.turn() {
                self.members.note_unreachable(&error.to_string());
                thread::sleep(WAIT_MAX);
            }
            let now = clock::now();
            let has_left = self.members.own().state == MemberState::Left;
            if has_left && *leaving_until.get_or_insert(now + LEAVE_FOR) <= now {
                return;
            }
        }
    }

    fn turn(&mut self) -> Result<(), IoError> {
        if let Some(keys) = self.members.take_gossip_keys() {
            self.tags = Tags::new(&keys);
        }
        let wait = self.gossip.poll_timeout().saturating_since(clock::now()).min(WAIT_MAX);
        self.poller.wait(&mut Vec::new(), Some(wait))?;
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            let Some(received) = self.socket.receive(&mut self.buffer)? else { break };
            let from = received.from;
            let Some(plain) = self.tags.checked(&self.buffer[..received.length_bytes]) else {
                self.members.note_refused_datagram(format!(
                    "a datagram of gossip from {from} is not authentic: has it the cluster's key?"
                ));
                continue;
            };
            if let Err(error) = self.gossip.handle_datagram(clock::now(), plain) {
                self.members.note_refused_datagram(format!("from {from}: {error}"));
            }
        }
        let now = clock::now();
        self.gossip.set_own(now, self.members.own(), self.members.settings());
        if self.gossip.poll_timeout() <= now {
            self.gossip.handle_timeout(now);
        }
        self.report(now);
        while let Some((to, datagram)) = self.gossip.poll_transmit() {
            self.send(to, datagram)?;
        }
        Ok(())
    }

    fn send(&self, to: SocketAddr, datagram: Vec<u8>) -> Result<(), IoError> {
        debug_assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
        self.socket.send_to(&self.tags.tagged(datagram), to).map(drop)
    }

    fn report(&mut self, now: Instant) {
        while let Some(event) = self.gossip.poll_event() {
            match event {
                GossipEvent::Recorded(member) => self.members.handle_member(member),
                GossipEvent::Absent(id) => self.members.handle_absence(id),
                GossipEvent::Settings(settings) => self.members.handle_settings(settings),
                GossipEvent::Renewed(version) => self.members.adopt_version(version),
            }
        }
        if self.gossip.members() > 0 {
            self.alone_since = now;
            self.members.note_list();
        } else if self.alone_since + LONELY_AFTER <= now {
            self.members.note_unreachable("no other member answers");
        }
    }
}

/// What authenticates datagrams.
struct Tags(Vec<hmac::Key>);

impl Tags {
    /// Datagrams are sent with the first of the keys, and taken with any.
    fn new(keys: &[[u8; 16]]) -> Self {
        Self(keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, key)).collect())
    }

    fn tagged(&self, mut datagram: Vec<u8>) -> Vec<u8> {
        if let Some(key) = self.0.first() {
            let tag = hmac::sign(key, &datagram);
            datagram.extend_from_slice(tag.as_ref());
        }
        datagram
    }

    /// The datagram without its tag, if that is right.
    fn checked<'d>(&self, datagram: &'d [u8]) -> Option<&'d [u8]> {
        let (plain, tag) = datagram.split_at_checked(datagram.len().checked_sub(TAG_BYTES)?)?;
        self.0.iter().any(|key| hmac::verify(key, plain, tag).is_ok()).then_some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_taken_with_any_key_of_the_cluster_and_with_no_other() {
        let (old, both, other) = (Tags::new(&[[1; 16]]), Tags::new(&[[2; 16], [1; 16]]), Tags::new(&[[3; 16]]));
        let datagram = old.tagged(b"record".to_vec());
        assert_eq!(both.checked(&datagram), Some(&b"record"[..]));
        assert_eq!(other.checked(&datagram), None);
        for damaged in 0..datagram.len() {
            let mut datagram = datagram.clone();
            datagram[damaged] ^= 1;
            assert_eq!(both.checked(&datagram), None, "byte {damaged}");
        }
        assert_eq!(both.checked(b"short"), None);
        assert_eq!(old.checked(&both.tagged(Vec::new())), None);
    }
}
