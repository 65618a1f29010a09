//! Defects put in on purpose, each of which the check must find.

use std::vec::Vec;

use flow::serial::is_before;
use flow::{Instant, NodeId};

use super::rest::COMES_TO_REST;
use crate::message::{ACK, HEADER_BYTES, Header, Kind};
use crate::session::output::ALIVE;
use crate::session::tests::harness::Table;
use crate::session::{ApplyError, Handle, Link, Session, Store};

/// What is done wrongly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sabotage {
    /// Nothing.
    None,
    /// Late datagrams of a session that is over make it the peer's again.
    RetiredSessionsCount,
    /// Messages with a number below the highest received are used.
    LateMessagesAreUsed,
    /// An acknowledgement does not report what is missing.
    LossIsNotSaid,
    /// A header states that nothing is unsettled.
    EverythingIsSettled,
    /// A deletion is sent again although the tuple is used by its next connection.
    NextLivesAreNotSeen,
    /// What a round did not send again stays.
    NothingIsSwept,
    /// All rounds have the same number.
    RoundsAreAlike,
    /// A node that has left goes on sending.
    SendsAfterGoodbye,
    /// Datagrams do not name the session that they answer.
    PeersSessionIsNotSaid,
}

/// Each with the scope in which it is found, and the properties of which one is seen to be broken first.
pub(super) const FOUND_BY: [(Sabotage, &str, &[&str]); 9] = [
    (Sabotage::RetiredSessionsCount, "any two faults", &[COMES_TO_REST, "living copies stay"]),
    (Sabotage::LateMessagesAreUsed, "a bad link", &["never backwards", COMES_TO_REST]),
    (Sabotage::LossIsNotSaid, "a bad link", &[COMES_TO_REST]),
    (Sabotage::EverythingIsSettled, "a bad link", &[COMES_TO_REST]),
    (Sabotage::NextLivesAreNotSeen, "a bad link", &["living copies stay", COMES_TO_REST]),
    (Sabotage::NothingIsSwept, "any two faults", &[COMES_TO_REST]),
    (Sabotage::RoundsAreAlike, "any two faults", &[COMES_TO_REST]),
    (Sabotage::SendsAfterGoodbye, "any two faults", &["Goodbye is the last word"]),
    (Sabotage::PeersSessionIsNotSaid, "two nodes that begin, on a bad link, and restart", &[COMES_TO_REST]),
];

impl Sabotage {
    pub(super) fn before_delivery(self, session: &mut Session, datagram: &[u8]) {
        match self {
            Self::RetiredSessionsCount => session.retired.clear(),
            Self::LateMessagesAreUsed => {
                let (header, _) = Header::parse(datagram).expect("sessions send datagrams");
                let (next, _) = session.receiver.origin();
                let is_theirs = session.peer_session == Some(header.session);
                if is_theirs && header.count > 0 && is_before(header.first, next) {
                    session.receiver.rewind(header.first);
                }
            }
            _ => {}
        }
    }

    pub(super) fn before_sending(self, session: &mut Session) {
        if self == Self::SendsAfterGoodbye && session.link == Link::Closed && session.pending == 0 {
            session.pending = ALIVE;
        }
    }

    pub(super) fn on_the_wire(self, datagram: &mut Vec<u8>) {
        match self {
            Self::LossIsNotSaid => remove_ranges(datagram),
            Self::EverythingIsSettled => datagram[16..18].fill(0),
            Self::RoundsAreAlike => datagram[3] = datagram[3].min(1),
            Self::PeersSessionIsNotSaid => datagram[8..12].fill(0),
            _ => {}
        }
    }
}

/// An acknowledgement comes first in a datagram; its ranges lie behind its eight fixed bytes.
fn remove_ranges(datagram: &mut Vec<u8>) {
    let at = HEADER_BYTES;
    if datagram.get(at..at + 2) == Some(&ACK.to_be_bytes()) {
        let length = usize::from(u16::from_be_bytes([datagram[at + 2], datagram[at + 3]]));
        datagram.drain(at + 12..at + length);
        datagram[at + 2..at + 4].copy_from_slice(&12u16.to_be_bytes());
    }
}

/// A node's table that answers and applies wrongly.
pub(super) struct Spoiled<'a> {
    pub(super) table: &'a mut Table,
    pub(super) sabotage: Sabotage,
}

impl Store for Spoiled<'_> {
    fn encode(&mut self, now: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
        self.table.encode(now, handle, out)
    }

    fn apply(&mut self, now: Instant, from: NodeId, kind: Kind, attributes: &[u8]) -> Result<(), ApplyError> {
        self.table.apply(now, from, kind, attributes)
    }

    fn delete(&mut self, now: Instant, from: NodeId, attributes: &[u8]) -> Result<(), ApplyError> {
        self.table.delete(now, from, attributes)
    }

    fn find(&self, attributes: &[u8]) -> Option<Handle> {
        if self.sabotage == Sabotage::NextLivesAreNotSeen { None } else { self.table.find(attributes) }
    }

    fn next_for_resync(&self, from: Handle) -> Option<Handle> {
        self.table.next_for_resync(from)
    }

    fn resync_started(&mut self, now: Instant, from: NodeId) {
        self.table.resync_started(now, from);
    }

    fn resync_completed(&mut self, now: Instant, from: NodeId) {
        if self.sabotage == Sabotage::NothingIsSwept {
            self.table.unrefreshed.clear();
        } else {
            self.table.resync_completed(now, from);
        }
    }
}
