//! Datagrams of the peer: what is in them, and what they do to the keys they are under.

use alloc::vec::Vec;

use flow::Instant;

use super::certificate::Part;
use super::error::ChannelError;
use super::handshake::Initiation;
use super::keys::{Action, Input, Keys};
use super::wire::{View, is_channel};
use super::{Channel, Content, PROOF, SWITCH_WITHIN};

/// Where session keys are kept.
#[derive(Clone, Copy)]
enum Place {
    Current,
    Previous(usize),
    Pending(usize),
}

impl Channel {
    /// Handles a datagram of the peer's. What it held, if anything, is written over `content`; afterwards
    /// [`Channel::poll_transmit`] may have an answer.
    ///
    /// # Errors
    /// Why it was refused, which has been counted; nothing else has changed.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        datagram: &[u8],
        content: &mut Vec<u8>,
    ) -> Result<Option<Content>, ChannelError> {
        content.clear();
        let result = self.take_datagram(now, datagram, content);
        if let Err(error) = &result {
            content.clear();
            self.counters.refused[error.refusal() as usize] += 1;
        }
        result
    }

    fn take_datagram(
        &mut self,
        now: Instant,
        datagram: &[u8],
        content: &mut Vec<u8>,
    ) -> Result<Option<Content>, ChannelError> {
        if !is_channel(datagram) {
            return Err(ChannelError::Unprotected);
        }
        match View::parse(datagram)? {
            View::Initiation { mode, key, initiator_index: index, noise } => {
                self.answer(now, &Initiation { mode, key, index, noise }).map(|()| None)
            }
            View::Response { responder_index, initiator_index, noise } => {
                self.finish(now, responder_index, initiator_index, noise).map(|()| None)
            }
            View::Sealed { receiver_index, counter, ciphertext } => {
                self.open(now, receiver_index, counter, ciphertext, content)
            }
        }
    }

    /// Counts a datagram that came past the channel though there is one.
    pub const fn refuse_plain_text(&mut self) -> ChannelError {
        self.counters.refused[super::Refusal::Unprotected as usize] += 1;
        ChannelError::Unprotected
    }

    fn place_of(&self, index: u32) -> Option<Place> {
        let is_it = |keys: &Keys| keys.local_index == index;
        if self.current.as_ref().is_some_and(is_it) {
            return Some(Place::Current);
        }
        if let Some(at) = self.previous.iter().position(is_it) {
            return Some(Place::Previous(at));
        }
        self.pending.iter().position(is_it).map(Place::Pending)
    }

    fn keys_at(&mut self, place: Place) -> Option<&mut Keys> {
        match place {
            Place::Current => self.current.as_mut(),
            Place::Previous(index) => self.previous.get_mut(index),
            Place::Pending(index) => self.pending.get_mut(index),
        }
    }

    fn open(
        &mut self,
        now: Instant,
        index: u32,
        counter: u64,
        ciphertext: &[u8],
        content: &mut Vec<u8>,
    ) -> Result<Option<Content>, ChannelError> {
        let has_certificates = self.credentials.certificates().is_some();
        let Some(place) = self.place_of(index) else {
            self.hint(now);
            return Err(ChannelError::UnknownSession);
        };
        let Some(keys) = self.keys_at(place) else { return Err(ChannelError::UnknownSession) };
        keys.open(counter, ciphertext, content)?;
        let length_bytes = content.len();
        let malformed = || ChannelError::Malformed { length_bytes };
        let number = content.pop().ok_or_else(malformed)?;
        let (input, kind) = if number == PROOF {
            (Input::Proof, Content::Nothing)
        } else {
            (Input::Content, Content::from_number(number).ok_or_else(malformed)?)
        };
        // Keys in use were proven, whatever the credentials are by now.
        let (next, action) = keys.stage.next(has_certificates, input);
        match action {
            Action::Accept => self.note_received(now, place),
            Action::TakeIntoUse => {
                if let Some(keys) = self.take_pending(place) {
                    self.take_into_use(now, keys);
                }
            }
            Action::CheckAndShow => {
                self.check_proof(now, place, content)?;
                self.keys_at(place).into_iter().for_each(|keys| keys.stage = next);
                self.show_proof(index);
            }
            Action::CheckAndTakeIntoUse => {
                self.check_proof(now, place, content)?;
                if let Some(keys) = self.take_pending(place) {
                    self.take_into_use(now, keys);
                    self.confirm(now);
                }
            }
            Action::RepeatProof => self.show_proof(index),
            Action::Ignore => {}
            Action::Refuse => return Err(ChannelError::Unproven),
        }
        if input == Input::Proof {
            content.clear();
            return Ok(None);
        }
        self.counters.opened += 1;
        Ok((kind != Content::Nothing).then_some(kind))
    }

    fn take_pending(&mut self, place: Place) -> Option<Keys> {
        match place {
            Place::Pending(index) if index < self.pending.len() => Some(self.pending.remove(index)),
            _ => None,
        }
    }

    fn note_received(&mut self, now: Instant, place: Place) {
        self.received_at = now;
        if let Some(keys) = self.keys_at(place) {
            keys.received_at = now;
        }
        let is_late = now.saturating_since(self.in_use_since) >= SWITCH_WITHIN;
        if matches!(place, Place::Previous(_)) && is_late && self.attempt.is_none() {
            self.want(now);
        }
    }

    /// Whether a proof holds. If not, the keys that it came under are forgotten.
    fn check_proof(&mut self, now: Instant, place: Place, proof: &[u8]) -> Result<(), ChannelError> {
        let (peer, unix_time) = (self.config.peer, self.unix_now(now));
        let credentials = alloc::sync::Arc::clone(&self.credentials);
        let Some(certificates) = credentials.certificates() else { return Err(ChannelError::Unproven) };
        let Some(keys) = self.keys_at(place) else { return Err(ChannelError::UnknownSession) };
        let their_part = if keys.part == Part::Initiator { Part::Responder } else { Part::Initiator };
        match certificates.verify(peer, their_part, &keys.hash, proof, unix_time) {
            Ok(name) => {
                keys.peer_name = Some(name);
                Ok(())
            }
            Err(error) => {
                self.take_pending(place);
                Err(error.into())
            }
        }
    }

    /// Sends this node's proof under the pending keys of this index.
    pub(super) fn show_proof(&mut self, index: u32) {
        let credentials = alloc::sync::Arc::clone(&self.credentials);
        let Some(certificates) = credentials.certificates() else { return };
        let Some(keys) = self.pending.iter_mut().find(|keys| keys.local_index == index) else { return };
        let Some(mut proof) = certificates.prove(keys.part, &keys.hash) else { return };
        proof.push(PROOF);
        let mut datagram = Vec::new();
        if keys.seal(&proof, &mut datagram) {
            self.push_out(datagram);
        }
    }
}
