//! Which of two heartbeats of a node is the later one. They arrive over several paths, whose queues know nothing of each
//! other: after a pause, a heartbeat from before it can be read behind one from after it.

use alloc::vec::Vec;

use flow::Instant;
use flow::wire::tlv::{self, TlvError};

/// Bytes of the attribute: incarnation, sequence number.
const ORDER_BYTES: usize = 4 + 8;

/// A heartbeat's place among those of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// One run of the sender's process: random.
    pub incarnation: u32,
    /// Rises with every heartbeat of the incarnation; the same on all paths.
    pub sequence: u64,
}

impl Order {
    const fn is_later_than(self, other: Self) -> bool {
        self.incarnation == other.incarnation && self.sequence > other.sequence
    }

    pub(super) fn encode(self, kind: u16, out: &mut Vec<u8>) {
        let mut value = [0; ORDER_BYTES];
        value[..4].copy_from_slice(&self.incarnation.to_be_bytes());
        value[4..].copy_from_slice(&self.sequence.to_be_bytes());
        tlv::put(out, kind, &value);
    }

    /// The order in a heartbeat's attribute of this kind; `None`: an older release sent it, or there is none yet.
    pub(super) fn decode(kind: u16, bytes: &[u8]) -> Result<Option<Self>, TlvError> {
        let found = tlv::read(bytes).flatten().find(|(found, _)| *found == kind);
        let Some((kind, value)) = found else { return Ok(None) };
        let [i0, i1, i2, i3, sequence @ ..]: [u8; ORDER_BYTES] =
            value.try_into().map_err(|_| TlvError::ValueSize(kind))?;
        let incarnation = u32::from_be_bytes([i0, i1, i2, i3]);
        Ok(Some(Self { incarnation, sequence: u64::from_be_bytes(sequence) }))
    }
}

/// What this node waits for after a pause: the peer's answer to a heartbeat that was sent after it.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// The first own heartbeat after the pause.
    own: Order,
    /// From then on any heartbeat will do: the peer may be of a release that answers none, or receive none.
    until: Instant,
}

/// The latest heartbeat of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LatestHeartbeat {
    latest: Option<Order>,
    /// The incarnation before the latest one: what still arrives of it is late, unless it answers a later heartbeat of this
    /// node than this one.
    ended: Option<(u32, Order)>,
    awaited: Option<Awaited>,
}

impl LatestHeartbeat {
    /// Its place among those of the peer.
    pub(super) const fn order(&self) -> Option<Order> {
        self.latest
    }

    /// This node did not run for long. What waits to be read is as old as the pause: until `until`, heartbeats count only
    /// if the peer sent them after it received `own`. A pause before the first one that counts changes nothing: a node that
    /// pauses again and again must not wait for ever.
    pub(super) fn await_answer(&mut self, own: Order, until: Instant) {
        self.awaited.get_or_insert(Awaited { own, until });
    }

    /// Whether a heartbeat may have been sent before this node's last pause ended.
    pub(super) fn is_stale(&mut self, now: Instant, answers: Option<Order>) -> bool {
        let Some(Awaited { own, until }) = self.awaited else { return false };
        let is_answer = answers.is_some_and(|it| it.incarnation == own.incarnation && it.sequence >= own.sequence);
        if is_answer || until <= now {
            self.awaited = None;
        }
        self.awaited.is_some()
    }

    /// Whether a heartbeat is not older than the latest one, which it then is itself. `answers` is the heartbeat of this node
    /// that it answers, `own` the last one that this node has sent.
    ///
    /// A node that starts may receive its peer's heartbeats in any order, the last ones of an ended incarnation after the
    /// first ones of the next. So the one that it took for ended counts again once it answers what was sent after that.
    pub(super) fn admit(&mut self, order: Option<Order>, answers: Option<Order>, own: Order) -> bool {
        let Some(order) = order else { return true };
        match self.latest {
            Some(latest) if latest.incarnation == order.incarnation && order.sequence < latest.sequence => {
                return false;
            }
            Some(latest) if latest.incarnation != order.incarnation => {
                let is_late = self.ended.is_some_and(|(ended, at)| {
                    ended == order.incarnation && !answers.is_some_and(|it| it.is_later_than(at))
                });
                if is_late {
                    return false;
                }
                self.ended = Some((latest.incarnation, own));
            }
            _ => {}
        }
        self.latest = Some(order);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_from_before_the_latest_and_of_an_ended_incarnation_are_not_admitted() {
        let order = |incarnation, sequence| Some(Order { incarnation, sequence });
        let mut latest = LatestHeartbeat::default();
        let admitted = [
            (order(7, 3), true),
            (order(7, 2), false),
            (order(7, 3), true),
            (None, true),
            (order(7, 9), true),
            (order(8, 0), true),
            (order(7, 10), false),
            (order(8, 1), true),
            (order(9, 0), true),
            (order(8, 2), false),
        ];
        for (index, (order, is_admitted)) in admitted.into_iter().enumerate() {
            assert_eq!(latest.admit(order, None, Order::default()), is_admitted, "the heartbeat at {index}");
        }
    }

    #[test]
    fn a_late_heartbeat_of_an_ended_incarnation_does_not_silence_the_living_one_for_long() {
        let (living, ended) = (7, 6);
        let order = |incarnation, sequence| Some(Order { incarnation, sequence });
        let own = |sequence| Order { incarnation: 3, sequence };
        let mut latest = LatestHeartbeat::default();
        assert!(latest.admit(order(living, 1), None, own(4)));
        assert!(latest.admit(order(ended, 90), Some(own(3)), own(4)), "nothing shows yet that it is late");
        assert!(!latest.admit(order(living, 2), Some(own(4)), own(5)), "so far it may be the one that ended");
        assert!(latest.admit(order(living, 3), Some(own(5)), own(5)), "it answers what was sent since");
        assert!(!latest.admit(order(ended, 91), Some(own(5)), own(5)), "one that has ended never does");
    }

    #[test]
    fn after_a_pause_heartbeats_count_that_answer_a_later_one_or_arrive_after_the_limit() {
        let at = Instant::from_millis;
        let own = |sequence| Order { incarnation: 3, sequence };
        let mut latest = LatestHeartbeat::default();
        assert!(!latest.is_stale(at(0), None), "there was no pause");
        latest.await_answer(own(8), at(100));
        for answers in [None, Some(own(7)), Some(Order { incarnation: 4, sequence: 9 })] {
            assert!(latest.is_stale(at(99), answers), "{answers:?}");
        }
        // Another pause before any that counts changes nothing.
        latest.await_answer(own(9), at(500));
        assert!(!latest.is_stale(at(99), Some(own(8))));
        assert!(!latest.is_stale(at(99), None), "one that counts is enough");
        latest.await_answer(own(20), at(700));
        assert!(latest.is_stale(at(699), Some(own(19))) && !latest.is_stale(at(700), None));
    }
}
