//! A connection whose segments are forwarded below the edge: the numbers go there, and come back risen.

use flow::fast_path::{Side, Windows};
use flow::serial::{is_after, later};
use flow::wire::tcp::WINDOW_SCALE_MAX;

use super::{End, Sender, TcpConnection, WINDOW_BYTES_MAX, flag};

/// What the near end did meanwhile, in bytes of payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Progress {
    /// It has sent them for the first time.
    pub(crate) sent_bytes: u32,
    /// They were acknowledged.
    pub(crate) acknowledged_bytes: u32,
}

impl TcpConnection {
    /// Segments of both ends were seen, and neither has ended the connection.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_in_handshake() && !self.is_closed() && self.ends.iter().all(|end| !end.has(flag::FIN))
    }

    /// The windows of the near end and of the far end.
    pub(crate) fn windows(&self) -> Windows {
        let side = |of: End| {
            let (sender, receiver) = (&self.ends[of as usize], &self.ends[1 - of as usize]);
            let window = receiver.edge.wrapping_sub(receiver.unacknowledged);
            Side {
                end: sender.next,
                end_max: sender.edge,
                // An edge behind the acknowledgement is that of a closed window.
                window_max: if window > WINDOW_BYTES_MAX { 0 } else { window },
                acknowledged_max: receiver.unacknowledged,
                window_scale: self.window_shift(of).unwrap_or(WINDOW_SCALE_MAX),
                permits_sack: sender.has(flag::SACK),
            }
        };
        Windows { sides: [side(End::Near), side(End::Far)] }
    }

    /// Raises the numbers to these, as if the segments had been observed. `now_us`: when the last of them passed.
    pub(crate) fn raise(&mut self, windows: &Windows, now_us: u32) -> Progress {
        let before = self.ends[End::Near as usize];
        for (of, side) in windows.sides.iter().enumerate() {
            let sender = &mut self.ends[of];
            sender.next = later(sender.next, side.end);
            sender.edge = later(sender.edge, side.end_max);
            self.ends[1 - of].note_acknowledged(side.acknowledged_max);
        }
        let near = &self.ends[End::Near as usize];
        let progress = Progress {
            sent_bytes: near.next.wrapping_sub(before.next),
            acknowledged_bytes: near.unacknowledged.wrapping_sub(before.unacknowledged),
        };
        if progress != Progress::default() {
            self.progress_at_us = now_us;
        }
        progress
    }
}

impl Sender {
    /// An acknowledgement that passed unseen.
    const fn note_acknowledged(&mut self, acknowledgement: u32) {
        if is_after(acknowledgement, self.unacknowledged) {
            self.unacknowledged = acknowledgement;
            self.flags &= !flag::RETRANSMITTED;
            self.round_trip.abandon();
        }
    }
}
