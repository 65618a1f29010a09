//! Control messages that wait to be sent.

use alloc::collections::VecDeque;

use super::log::Sent;
use crate::conntrackd::message::Range;

/// Control messages that wait, at most. Beyond, a question for missing numbers is widened to those behind it: the peer then
/// sends some connections once more than it need.
const CONTROLS_QUEUED_MAX: usize = 256;

/// Control messages that wait to be sent, in order.
#[derive(Default)]
pub(super) struct Controls {
    queue: VecDeque<Sent>,
}

impl Controls {
    pub(super) fn push(&mut self, control: Sent) {
        if control == Sent::Resync && self.queue.contains(&control) {
            return;
        }
        if self.queue.len() < CONTROLS_QUEUED_MAX {
            self.queue.push_back(control);
            return;
        }
        match (self.queue.back_mut(), control) {
            (Some(Sent::Nack(last)), Sent::Ack(Range { to, .. }) | Sent::Nack(Range { to, .. })) => last.to = to,
            (Some(last), control) => *last = control,
            (None, _) => {}
        }
    }

    pub(super) fn front(&self) -> Option<Sent> {
        self.queue.front().copied()
    }

    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_there_is_no_room_the_last_question_is_widened() {
        let mut controls = Controls::default();
        for number in 0..CONTROLS_QUEUED_MAX as u32 * 2 {
            let range = Range { from: number, to: number };
            controls.push(if number % 2 == 0 { Sent::Ack(range) } else { Sent::Nack(range) });
        }
        assert_eq!(controls.queue.len(), CONTROLS_QUEUED_MAX);
        let (from, to) = (CONTROLS_QUEUED_MAX as u32 - 1, CONTROLS_QUEUED_MAX as u32 * 2 - 1);
        assert_eq!(controls.queue.back(), Some(&Sent::Nack(Range { from, to })));
    }

    #[test]
    fn everything_is_asked_for_once() {
        let mut controls = Controls::default();
        controls.push(Sent::Resync);
        controls.push(Sent::Resync);
        controls.pop();
        assert!(controls.is_empty() && controls.front().is_none());
    }
}
