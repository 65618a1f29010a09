//! Handshakes with servers that have not answered: their SYN is sent again at doubling intervals, then given up.
//!
//! ```text
//!   begin ──1 s──► resend ──2 s──► resend ──4 s──► resend ──8 s──► give up
//!     └────────────┴── the server answers, or the connection ends: finish
//! ```
//!
//! A deadline by level: each level has one interval, so its deadlines are in order, and no timer is searched.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use flow::{Instant, Tuple};

/// How often a SYN is sent to a server, the first time included.
pub const SYNS_TO_SERVER_MAX: usize = 4;
/// Handshakes with servers that one worker follows. Beyond, a SYN is not sent again by time, but whenever the client sends something.
pub const SERVER_HANDSHAKES_MAX: usize = 65_536;
/// The time before a SYN is sent again for the first time; it doubles each time (RFC 6298 section 5).
pub const SYN_INTERVAL: Duration = Duration::from_secs(1);

/// What is to be done about a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeDue {
    /// The SYN is to be sent again.
    Resend(ServerHandshake),
    /// The server does not answer.
    GiveUp(ServerHandshake),
}

/// A handshake with a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerHandshake {
    /// The connection's original tuple.
    pub original: Tuple,
    /// The client's first sequence number.
    pub sequence: u32,
}

/// The handshakes that a worker has begun, by the original tuples of their connections.
#[derive(Debug, Default)]
pub struct ServerHandshakes {
    /// The number by which each is listed in `levels`: it changes when a handshake begins anew.
    numbers: BTreeMap<Tuple, u64>,
    levels: [VecDeque<(Instant, ServerHandshake, u64)>; SYNS_TO_SERVER_MAX],
    next_number: u64,
}

impl ServerHandshakes {
    /// A SYN was sent to a server. False if there are too many handshakes to follow it.
    pub fn begin(&mut self, now: Instant, handshake: ServerHandshake) -> bool {
        // Entries of handshakes that are over stay in the levels until their time.
        if self.levels.iter().map(VecDeque::len).sum::<usize>() >= SERVER_HANDSHAKES_MAX {
            return false;
        }
        self.next_number += 1;
        self.numbers.insert(handshake.original, self.next_number);
        self.levels[0].push_back((now + SYN_INTERVAL, handshake, self.next_number));
        true
    }

    /// Whether a handshake is followed.
    #[must_use]
    pub fn contains(&self, tuple: &Tuple) -> bool {
        self.numbers.contains_key(tuple)
    }

    /// The server has answered, or the connection is gone.
    pub fn finish(&mut self, tuple: &Tuple) {
        self.numbers.remove(tuple);
    }

    /// Handshakes that are followed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether none is followed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The next thing to do by `now`.
    pub fn poll_due(&mut self, now: Instant) -> Option<HandshakeDue> {
        for level in 0..SYNS_TO_SERVER_MAX {
            while self.levels[level].front().is_some_and(|(due, ..)| *due <= now) {
                let Some((_, handshake, number)) = self.levels[level].pop_front() else { break };
                if self.numbers.get(&handshake.original) != Some(&number) {
                    continue;
                }
                let Some(next) = self.levels.get_mut(level + 1) else {
                    self.numbers.remove(&handshake.original);
                    return Some(HandshakeDue::GiveUp(handshake));
                };
                next.push_back((now + SYN_INTERVAL * (2 << level), handshake, number));
                return Some(HandshakeDue::Resend(handshake));
            }
        }
        None
    }

    /// When [`ServerHandshakes::poll_due`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.levels.iter().filter_map(|level| level.front().map(|(due, ..)| *due)).min()
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::tcp;

    const SECOND: Duration = Duration::from_secs(1);

    fn tuple(port: u16) -> Tuple {
        Tuple { source_port: port, ..tcp("10.0.0.2:1", "192.0.2.1:80") }
    }

    fn client(port: u16) -> ServerHandshake {
        ServerHandshake { original: tuple(port), sequence: port.into() }
    }

    /// All that is due, with its second.
    fn run(servers: &mut ServerHandshakes, seconds: u32) -> Vec<(u32, HandshakeDue)> {
        let mut due = Vec::new();
        for second in 0..=seconds {
            while let Some(what) = servers.poll_due(Instant::ZERO + SECOND * second) {
                due.push((second, what));
            }
        }
        due
    }

    #[test]
    fn a_syn_is_repeated_at_doubling_intervals_and_given_up() {
        let mut servers = ServerHandshakes::default();
        assert!(servers.begin(Instant::ZERO, client(1)));
        let resend = |second| (second, HandshakeDue::Resend(client(1)));
        assert_eq!(run(&mut servers, 60), [resend(1), resend(3), resend(7), (15, HandshakeDue::GiveUp(client(1)))]);
        assert!(servers.is_empty() && servers.poll_timeout().is_none());
    }

    #[test]
    fn an_answered_handshake_is_left_alone() {
        let mut servers = ServerHandshakes::default();
        servers.begin(Instant::ZERO, client(1));
        servers.begin(Instant::ZERO, client(2));
        servers.finish(&tuple(1));
        assert!(!servers.contains(&tuple(1)) && servers.contains(&tuple(2)));
        assert!(
            run(&mut servers, 60)
                .iter()
                .all(|(_, due)| { *due == HandshakeDue::Resend(client(2)) || *due == HandshakeDue::GiveUp(client(2)) })
        );
    }

    #[test]
    fn a_handshake_that_begins_anew_has_its_whole_time() {
        let mut servers = ServerHandshakes::default();
        servers.begin(Instant::ZERO, client(1));
        servers.finish(&tuple(1));
        servers.begin(Instant::ZERO + SECOND * 5, client(1));
        let seconds: Vec<u32> = run(&mut servers, 60).iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [6, 8, 12, 20]);
    }

    #[test]
    fn too_many_handshakes_are_not_followed() {
        let mut servers = ServerHandshakes::default();
        let number = |index: usize| {
            let original = Tuple { destination_port: (index >> 16) as u16, ..tuple(index as u16) };
            ServerHandshake { original, sequence: 0 }
        };
        assert!((0..SERVER_HANDSHAKES_MAX).all(|index| servers.begin(Instant::ZERO, number(index))));
        assert!(!servers.begin(Instant::ZERO, number(SERVER_HANDSHAKES_MAX)));
        assert_eq!(servers.len(), SERVER_HANDSHAKES_MAX);
    }

    proptest! {
        #[test]
        fn each_handshake_is_resent_at_most_thrice(ports in prop::collection::vec(1u16..20, 1..40)) {
            let mut servers = ServerHandshakes::default();
            let mut begun = std::collections::BTreeSet::new();
            for port in ports {
                if begun.insert(port) {
                    servers.begin(Instant::ZERO, client(port));
                }
            }
            let due = run(&mut servers, 30);
            let given_up = due.iter().filter(|(_, due)| matches!(due, HandshakeDue::GiveUp(_))).count();
            prop_assert_eq!((due.len(), given_up), (begun.len() * SYNS_TO_SERVER_MAX, begun.len()));
        }
    }
}
