//! Which of two heartbeats of a node is the later one. They arrive over several paths, whose queues know nothing of each
//! other: after a pause, a heartbeat from before it can be read behind one from after it.

use alloc::vec::Vec;

use flow::wire::tlv::{self, TlvError};

use super::heartbeat::attribute;

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
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        let mut value = [0; ORDER_BYTES];
        value[..4].copy_from_slice(&self.incarnation.to_be_bytes());
        value[4..].copy_from_slice(&self.sequence.to_be_bytes());
        tlv::put(out, attribute::ORDER, &value);
    }

    /// The order that a heartbeat's attributes name; `None`: an older release sent it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<Self>, TlvError> {
        let found = tlv::read(bytes).flatten().find(|(kind, _)| *kind == attribute::ORDER);
        let Some((kind, value)) = found else { return Ok(None) };
        let [i0, i1, i2, i3, sequence @ ..]: [u8; ORDER_BYTES] =
            value.try_into().map_err(|_| TlvError::ValueSize(kind))?;
        let incarnation = u32::from_be_bytes([i0, i1, i2, i3]);
        Ok(Some(Self { incarnation, sequence: u64::from_be_bytes(sequence) }))
    }
}

/// The latest heartbeat of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LatestHeartbeat {
    latest: Option<Order>,
    /// The incarnation before the latest one: what still arrives of it is late.
    ended: Option<u32>,
}

impl LatestHeartbeat {
    /// Whether a heartbeat is not older than the latest one, which it then is itself.
    pub(super) fn admit(&mut self, order: Option<Order>) -> bool {
        let Some(order) = order else { return true };
        match self.latest {
            Some(latest) if latest.incarnation == order.incarnation && order.sequence < latest.sequence => {
                return false;
            }
            Some(latest) if latest.incarnation != order.incarnation => {
                if self.ended == Some(order.incarnation) {
                    return false;
                }
                self.ended = Some(latest.incarnation);
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
            assert_eq!(latest.admit(order), is_admitted, "the heartbeat at {index}");
        }
    }
}
