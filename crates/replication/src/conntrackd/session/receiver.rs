//! The receiving half: which of the peer's numbers came, and what is to be said of it.

use core::time::Duration;

use flow::Instant;
use flow::serial::is_before;

use crate::conntrackd::FtfwConfig;
use crate::conntrackd::message::Range;
use crate::conntrackd::sender::Sender;
use crate::loss_recovery::AckTimer;

/// Numbers that far beyond the expected one are not a gap but another numbering.
pub(super) const GAP_MAX: u32 = 1 << 20;
/// So long a copy of the peer's HELLO may be in flight.
const HELLO_LATE: Duration = Duration::from_secs(2);

/// Whether the peer still sends HELLO: a process does from its start until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HelloState {
    /// Nothing was received from it.
    Unknown,
    /// It does.
    Going,
    /// It did, or did not when its first message came.
    Over,
}

/// How a message is used, by its number and whether it is a HELLO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It is used.
    Use,
    /// It is used; the peer's process is another one than before.
    Restarted,
    /// It is used. Either messages of the same process were lost, or it was restarted before it had received an answer.
    PerhapsRestarted,
    /// It is used; the numbering is another one, although no HELLO came: something was missed.
    Renumbered,
    /// It is a duplicate, or comes after one that was sent later: it is dropped.
    Late,
}

/// Which of the peer's numbers came.
pub(super) struct Receiver {
    hello_state: HelloState,
    /// The number of the last HELLO, and when it came.
    hello: Option<(u32, Instant)>,
    /// The number of the next message.
    expected: u32,
    /// Numbers from here to before `expected` came and were not acknowledged yet.
    unacknowledged_from: u32,
    /// Of those that the peer wants to have acknowledged.
    pub(super) ack_timer: AckTimer,
    /// Acknowledgements came that are to be acknowledged in their turn, in place of the next keep-alive.
    has_acknowledgements: bool,
    pub(super) missed: u64,
    pub(super) late: u64,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            hello_state: HelloState::Unknown,
            hello: None,
            expected: 0,
            unacknowledged_from: 0,
            ack_timer: AckTimer::default(),
            has_acknowledgements: false,
            missed: 0,
            late: 0,
        }
    }

    /// The peer is away: whatever number comes next will do.
    pub(super) fn forget(&mut self) {
        self.hello_state = HelloState::Unknown;
        (self.ack_timer, self.has_acknowledgements) = (AckTimer::default(), false);
    }

    /// A message came. Gaps before it are reported to the peer at once, through `sender`.
    pub(super) fn observe(&mut self, now: Instant, number: u32, is_hello: bool, sender: &mut Sender) -> Verdict {
        let ahead = number.wrapping_sub(self.expected);
        let is_late = is_before(number, self.expected);
        let verdict = match (self.hello_state, is_hello) {
            (HelloState::Unknown, _) => {
                self.adopt(number);
                Verdict::Use
            }
            (HelloState::Over, true) => {
                if self.is_late_hello(now, number) {
                    self.late += 1;
                    return Verdict::Late;
                }
                self.adopt(number);
                Verdict::Restarted
            }
            (HelloState::Going | HelloState::Over, _) if is_late => {
                self.late += 1;
                return Verdict::Late;
            }
            (HelloState::Going | HelloState::Over, _) if ahead > GAP_MAX => {
                self.adopt(number);
                Verdict::Renumbered
            }
            (HelloState::Going, true) if ahead > 0 => {
                self.note_gap(number, sender);
                Verdict::PerhapsRestarted
            }
            (HelloState::Going | HelloState::Over, _) => {
                self.note_gap(number, sender);
                Verdict::Use
            }
        };
        self.expected = number.wrapping_add(1);
        self.hello_state = if is_hello { HelloState::Going } else { HelloState::Over };
        if is_hello {
            self.hello = Some((number, now));
        }
        verdict
    }

    fn is_late_hello(&self, now: Instant, number: u32) -> bool {
        self.hello.is_some_and(|(last, at)| !is_before(last, number) && now.saturating_since(at) < HELLO_LATE)
    }

    fn adopt(&mut self, number: u32) {
        self.expected = number;
        self.unacknowledged_from = number;
        (self.ack_timer, self.has_acknowledgements) = (AckTimer::default(), false);
    }

    fn note_gap(&mut self, number: u32, sender: &mut Sender) {
        if number == self.expected {
            return;
        }
        self.acknowledge(sender);
        sender.ask_for(Range { from: self.expected, to: number.wrapping_sub(1) });
        self.missed += u64::from(number.wrapping_sub(self.expected));
        self.unacknowledged_from = number;
    }

    /// The peer sent an acknowledgement: it keeps that until it is acknowledged, but nothing waits for it.
    pub(super) const fn note_acknowledgement(&mut self) {
        self.has_acknowledgements = true;
    }

    /// What goes in place of a keep-alive, if there is something to send.
    pub(super) fn acknowledge_in_passing(&mut self, sender: &mut Sender) {
        if self.has_acknowledgements {
            self.acknowledge(sender);
        }
    }

    /// The peer wants the message acknowledged: any but an acknowledgement or a mere keep-alive.
    pub(super) fn want_acknowledgement(&mut self, now: Instant, config: &FtfwConfig) {
        self.ack_timer.on_received(now, config.ack_every_messages.into(), config.alive_interval);
    }

    /// Acknowledges what came.
    pub(super) fn acknowledge(&mut self, sender: &mut Sender) {
        if self.unacknowledged_from != self.expected {
            sender.acknowledge(Range { from: self.unacknowledged_from, to: self.expected.wrapping_sub(1) });
            self.unacknowledged_from = self.expected;
        }
        (self.ack_timer, self.has_acknowledgements) = (AckTimer::default(), false);
    }
}
