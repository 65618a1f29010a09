//! How often each datagram is sent to a peer whose link loses some.
//!
//! A lost message is retransmitted within milliseconds, but the last ones before a node fails are not. So where a link
//! loses datagrams, each is sent so many times that hardly one is lost in all its copies. The session
//! takes the first that comes, as it does where a network doubles packets. On a link that loses nothing, and on one that
//! has much to carry, where more of it could be the very reason for the loss, each is sent once.

use flow::{Instant, NodeId};
use replication::SessionStatus;

/// Copies of a datagram, at most.
const COPIES_MAX: u8 = 4;
/// Copies are sent until the share that is lost in all of them is below this.
const LOST_SHARE_MAX: f64 = 0.01;
/// More bytes a second than this, each counted once, are sent once.
const BYTES_PER_S_MAX: f64 = 2e6;
/// Messages that a share is computed from, at least.
const MESSAGES_MIN: u64 = 32;
/// What a new share counts in the estimate where it is greater than what was believed, and where it is less: loss is to be believed
/// quickly, and its end to be waited for.
const WEIGHTS: (f64, f64) = (0.5, 0.05);

/// What a session has sent, and what of it was found missing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    session: u32,
    messages: u64,
    lost: u64,
    bytes: u64,
}

impl From<&SessionStatus> for Counters {
    fn from(status: &SessionStatus) -> Self {
        let SessionStatus { session, messages_sent: messages, lost, bytes_sent: bytes, .. } = *status;
        Self { session, messages, lost, bytes }
    }
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    id: NodeId,
    looked_at: Instant,
    counters: Counters,
    /// Share of the datagrams that the link loses, as far as is known.
    loss: f64,
    copies: u8,
}

/// What is known of the links.
#[derive(Debug, Default)]
pub(super) struct Redundancy {
    peers: Vec<Peer>,
}

impl Redundancy {
    /// How often a datagram is to be sent to the peer.
    pub(super) fn copies(&self, to: NodeId) -> u8 {
        self.peers.iter().find(|peer| peer.id == to).map_or(1, |peer| peer.copies)
    }

    /// Looks at what became of the messages to a peer; to be called now and then.
    pub(super) fn look(&mut self, now: Instant, id: NodeId, counters: Counters) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == id) else {
            self.peers.push(Peer { id, looked_at: now, counters, loss: 0.0, copies: 1 });
            return;
        };
        let is_another = peer.counters.session != counters.session || counters.messages < peer.counters.messages;
        if !is_another && counters.messages - peer.counters.messages < MESSAGES_MIN {
            return;
        }
        let before = std::mem::replace(&mut peer.counters, counters);
        let passed_s = now.saturating_since(peer.looked_at).as_secs_f64().max(1e-3);
        peer.looked_at = now;
        if !is_another {
            peer.note(before, passed_s);
        }
    }
}

impl Peer {
    fn note(&mut self, before: Counters, passed_s: f64) {
        let now = self.counters;
        let bytes_per_s = now.bytes.saturating_sub(before.bytes) as f64 / passed_s;
        let lost_share = now.lost.saturating_sub(before.lost) as f64 / (now.messages - before.messages) as f64;
        // What is missing was lost in each of its copies.
        let loss = lost_share.clamp(0.0, 1.0).powf(1.0 / f64::from(self.copies));
        let weight = if loss > self.loss { WEIGHTS.0 } else { WEIGHTS.1 };
        self.loss += (loss - self.loss) * weight;
        let copies = if bytes_per_s > BYTES_PER_S_MAX { 1 } else { copies_against(self.loss) };
        if copies > self.copies {
            let percent = self.loss * 100.0;
            tracing::debug!(
                "the link to node {} loses {percent:.0} %: each datagram is sent {copies} times",
                self.id.0
            );
        }
        self.copies = copies;
    }
}

/// So many copies that hardly a datagram is lost in all of them.
fn copies_against(loss: f64) -> u8 {
    let lost_in_all = |copies: u8| loss.powi(copies.into());
    (1..COPIES_MAX).find(|copies| lost_in_all(*copies) <= LOST_SHARE_MAX).unwrap_or(COPIES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second in which so many messages were sent and so many found missing.
    fn second(redundancy: &mut Redundancy, sums: &mut Counters, number: u64, (messages, lost): (u64, u64)) -> u8 {
        sums.messages += messages;
        sums.lost += lost;
        sums.bytes += 80 * messages;
        redundancy.look(Instant::from_millis(1000 * number), NodeId(1), *sums);
        redundancy.copies(NodeId(1))
    }

    #[test]
    fn copies_grow_with_the_loss_and_only_then() {
        let (mut redundancy, mut sums) = (Redundancy::default(), Counters::default());
        assert_eq!(second(&mut redundancy, &mut sums, 0, (0, 0)), 1);
        assert_eq!(second(&mut redundancy, &mut sums, 1, (2000, 1)), 1, "one in two thousand is nothing");
        let mut copies = 1;
        for number in 2..12 {
            // A fifth of the datagrams is lost, so of messages what is lost in all copies.
            let lost = (2000.0 * 0.2_f64.powi(copies.into())) as u64;
            copies = second(&mut redundancy, &mut sums, number, (2000, lost));
        }
        assert_eq!(copies, 3, "0.2 to the third is 0.8 %");
        assert_eq!(redundancy.copies(NodeId(2)), 1, "of another link nothing is known");
        for number in 12..80 {
            copies = second(&mut redundancy, &mut sums, number, (2000, 0));
        }
        assert_eq!(copies, 1, "the loss is over");
    }

    #[test]
    fn a_link_with_much_to_carry_is_not_given_more() {
        let (mut redundancy, mut sums) = (Redundancy::default(), Counters::default());
        second(&mut redundancy, &mut sums, 0, (0, 0));
        assert_eq!(second(&mut redundancy, &mut sums, 1, (100_000, 30_000)), 1);
        assert!(second(&mut redundancy, &mut sums, 2, (1000, 300)) > 1, "it is when there is little");
    }
}
