//! The session keys of one handshake, and how far both nodes trust them.

use alloc::string::String;
use alloc::vec::Vec;

use flow::Instant;
use snow::StatelessTransportState;

use super::certificate::Part;
use super::error::ChannelError;
use super::resolver::{HASH_BYTES, TAG_BYTES};
use super::secret::KeyId;
use super::window::ReplayWindow;
use super::wire::{SEALED_HEADER_BYTES, sealed_header};

/// Datagrams under one key: far below where AES-GCM's promises wear thin, far above where keys are exchanged.
pub(super) const DATAGRAMS_PER_KEY_MAX: u64 = 1 << 36;

/// How far session keys are.
///
/// ```text
///  initiator, pre-shared keys:   ────────────────────────────────────────► InUse
///  initiator, certificates:      Proving ── the peer's proof ────────────► InUse
///  responder, pre-shared keys:   Answered ───────────── content ─────────► InUse
///  responder, certificates:      Answered ── the peer's proof ─► Proven ── content ─► InUse
/// ```
/// A responder takes keys into use when it has received something under them: then the initiator has them for certain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The responder has answered.
    Answered,
    /// The initiator has shown its certificate and waits for the responder's.
    Proving,
    /// The responder has seen the initiator's certificate, and shown its own.
    Proven,
    /// Both have them.
    InUse,
}

/// What came under session keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// A proof of identity.
    Proof,
    /// Anything else.
    Content,
}

/// What is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Take it.
    Accept,
    /// Take the keys into use, then accept it.
    TakeIntoUse,
    /// Check the proof; if it holds, show one's own.
    CheckAndShow,
    /// Check the proof; if it holds, take the keys into use.
    CheckAndTakeIntoUse,
    /// Show one's own proof again: it was lost.
    RepeatProof,
    /// A repetition.
    Ignore,
    /// The peer has not proven who it is.
    Refuse,
}

impl Stage {
    /// The table of transitions; actions that check lead on only if the check succeeds.
    pub(super) const fn next(self, has_certificates: bool, input: Input) -> (Self, Action) {
        match (self, has_certificates, input) {
            (Self::InUse, _, Input::Content) => (Self::InUse, Action::Accept),
            (Self::Answered, false, Input::Content) | (Self::Proven, true, Input::Content) => {
                (Self::InUse, Action::TakeIntoUse)
            }
            (Self::Answered, true, Input::Proof) => (Self::Proven, Action::CheckAndShow),
            (Self::Proving, true, Input::Proof) => (Self::InUse, Action::CheckAndTakeIntoUse),
            (Self::Proven, true, Input::Proof) => (Self::Proven, Action::RepeatProof),
            (Self::InUse, true, Input::Proof) => (Self::InUse, Action::Ignore),
            (stage, _, _) => (stage, Action::Refuse),
        }
    }
}

/// The session keys of one handshake.
pub(super) struct Keys {
    pub(super) local_index: u32,
    pub(super) peer_index: u32,
    transport: StatelessTransportState,
    pub(super) part: Part,
    pub(super) hash: [u8; HASH_BYTES],
    /// The pre-shared key of the handshake.
    pub(super) key: KeyId,
    /// The name of the peer's certificate, once it was shown.
    pub(super) peer_name: Option<String>,
    pub(super) stage: Stage,
    /// When the handshake said this was made, for what the peer begins.
    pub(super) stamp: u64,
    pub(super) made_at: Instant,
    pub(super) received_at: Instant,
    /// The counter of the next datagram to be sent.
    pub(super) sent: u64,
    window: ReplayWindow,
}

/// What of [`Keys`] the handshake knows.
pub(super) struct Made {
    pub(super) local_index: u32,
    pub(super) peer_index: u32,
    pub(super) part: Part,
    pub(super) key: KeyId,
    pub(super) stamp: u64,
    pub(super) stage: Stage,
}

impl Keys {
    pub(super) fn new(made: &Made, transport: StatelessTransportState, hash: [u8; HASH_BYTES], now: Instant) -> Self {
        let &Made { local_index, peer_index, part, key, stamp, stage } = made;
        Self {
            local_index,
            peer_index,
            transport,
            part,
            hash,
            key,
            peer_name: None,
            stage,
            stamp,
            made_at: now,
            received_at: now,
            sent: 0,
            window: ReplayWindow::new(),
        }
    }

    /// Appends what `plain` looks like under these keys to `out`. False when they have been used too often.
    pub(super) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> bool {
        if self.sent >= DATAGRAMS_PER_KEY_MAX {
            return false;
        }
        let at = out.len();
        out.extend_from_slice(&sealed_header(self.peer_index, self.sent));
        out.resize(at + SEALED_HEADER_BYTES + plain.len() + TAG_BYTES, 0);
        let written = self.transport.write_message(self.sent, plain, &mut out[at + SEALED_HEADER_BYTES..]);
        // A counter is never used twice, whatever becomes of the datagram.
        self.sent += 1;
        written.is_ok()
    }

    /// Writes what was sealed over `plain`.
    pub(super) fn open(&mut self, counter: u64, ciphertext: &[u8], plain: &mut Vec<u8>) -> Result<(), ChannelError> {
        if !self.window.is_new(counter) {
            return Err(ChannelError::Replayed);
        }
        plain.resize(ciphertext.len(), 0);
        let length_bytes = self.transport.read_message(counter, ciphertext, plain).map_err(|_| ChannelError::Forged)?;
        self.window.note(counter);
        plain.truncate(length_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_accepted_before_the_peer_has_proven_who_it_is() {
        for stage in [Stage::Answered, Stage::Proving] {
            assert_eq!(stage.next(true, Input::Content), (stage, Action::Refuse));
        }
        assert_eq!(Stage::Proven.next(true, Input::Content), (Stage::InUse, Action::TakeIntoUse));
    }

    #[test]
    fn every_stage_has_an_answer_to_everything() {
        for has_certificates in [false, true] {
            for stage in [Stage::Answered, Stage::Proving, Stage::Proven, Stage::InUse] {
                for input in [Input::Proof, Input::Content] {
                    let (next, action) = stage.next(has_certificates, input);
                    let comes_into_use = stage != Stage::InUse && next == Stage::InUse;
                    let takes = matches!(action, Action::TakeIntoUse | Action::CheckAndTakeIntoUse);
                    assert_eq!(comes_into_use, takes, "{stage:?} {input:?}");
                    assert!(has_certificates || input == Input::Content || action == Action::Refuse);
                }
            }
        }
    }
}
