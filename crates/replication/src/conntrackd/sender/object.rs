//! The two kinds of objects: connections and expectations.

use alloc::vec::Vec;

use flow::Instant;
use flow::netfilter::{Entry, Expectation};

use super::endings::EndId;
use super::log::Sent;
use crate::conntrackd::message::Kind;
use crate::conntrackd::object::{self, EncodeError};
use crate::conntrackd::{FtfwConfig, Table};
use crate::session::Handle;

/// What messages carry.
pub(super) trait Object: Sized {
    /// The types of messages: it began, it changed, it ended.
    const KINDS: [Kind; 3];

    fn current(table: &mut impl Table, now: Instant, handle: Handle) -> Option<Self>;
    fn next(table: &impl Table, from: Handle) -> Option<Handle>;
    /// The object that is there now in the place of this one, which has ended; `is_retransmission` if the end was sent before.
    fn successor(&self, table: &mut impl Table, now: Instant, is_retransmission: bool) -> Option<Handle>;
    fn encode(&self, config: &FtfwConfig, out: &mut Vec<u8>) -> Result<(), EncodeError>;
    fn change(handle: Handle) -> Sent;
    fn end(id: EndId) -> Sent;
}

impl Object for Entry {
    const KINDS: [Kind; 3] = [Kind::New, Kind::Update, Kind::Delete];

    fn current(table: &mut impl Table, now: Instant, handle: Handle) -> Option<Self> {
        table.connection(now, handle)
    }

    fn next(table: &impl Table, from: Handle) -> Option<Handle> {
        table.next_for_resync(from)
    }

    fn successor(&self, table: &mut impl Table, _: Instant, _: bool) -> Option<Handle> {
        table.find(&self.original, self.zone)
    }

    fn encode(&self, config: &FtfwConfig, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        object::encode(self, config.replicates_window_scales, out)
    }

    fn change(handle: Handle) -> Sent {
        Sent::Connection(handle)
    }

    fn end(id: EndId) -> Sent {
        Sent::ConnectionEnd(id)
    }
}

impl Object for Expectation {
    const KINDS: [Kind; 3] = [Kind::ExpectationNew, Kind::ExpectationUpdate, Kind::ExpectationDelete];

    fn current(table: &mut impl Table, now: Instant, handle: Handle) -> Option<Self> {
        table.expectation(now, handle)
    }

    fn next(table: &impl Table, from: Handle) -> Option<Handle> {
        table.next_expectation_for_resync(from)
    }

    /// Expectations are few, and rarely sent again: they are looked through. The first time, ends go before changes anyway.
    fn successor(&self, table: &mut impl Table, now: Instant, is_retransmission: bool) -> Option<Handle> {
        let mut from = Handle(0);
        while let Some(handle) = Self::next(table, from).filter(|_| is_retransmission) {
            let is_same = |other: Self| other.expected == self.expected && other.mask == self.mask;
            if table.expectation(now, handle).is_some_and(is_same) {
                return Some(handle);
            }
            from = Handle(handle.0.checked_add(1)?);
        }
        None
    }

    fn encode(&self, _: &FtfwConfig, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        object::encode_expectation(self, out)
    }

    fn change(handle: Handle) -> Sent {
        Sent::Expectation(handle)
    }

    fn end(id: EndId) -> Sent {
        Sent::ExpectationEnd(id)
    }
}
