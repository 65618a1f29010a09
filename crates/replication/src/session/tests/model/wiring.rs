//! Nodes and datagrams: what goes in, what comes out, and what is checked of both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec::Vec;

use flow::NodeId;
use flow::serial::is_before;

use super::Exploration;
use super::sabotage::Spoiled;
use super::scopes::Randomness;
use super::state::{Flight, Node, Property, State};
use crate::message::{Header, flags};
use crate::session::tests::harness::Table;
use crate::session::{Link, Session};

/// A session that has more than this to send at once never stops.
const DATAGRAMS_AT_ONCE_MAX: usize = 16;

impl Exploration {
    /// A node that was just started.
    pub(super) fn node(&self, index: usize, starts: u8) -> Node {
        let drawn = match self.scope.randomness {
            Randomness::Fresh => starts,
            Randomness::EverySecondAlike => starts % 2,
        };
        let (local, peer) = (NodeId(index as u8), NodeId(1 - index as u8));
        let session = Session::new(self.scope.session, local, peer, u64::from(drawn) + 1).unwrap();
        let slots = std::vec![None; self.scope.session.connections_max as usize];
        let padding_bytes = if self.scope.one_message_each { 600 } else { 0 };
        Node {
            session,
            table: Table { slots, padding_bytes, ..Table::default() },
            removed: BTreeMap::new(),
            numbering: None,
            starts,
            left: false,
        }
    }

    pub(super) fn deliver(&self, state: &mut State, flight: &Flight) {
        let now = state.now;
        let node = Arc::make_mut(&mut state.nodes[flight.to]);
        let before = node.table.copies.clone();
        self.sabotage.before_delivery(&mut node.session, &flight.bytes);
        // An error is a finding only if something comes of it.
        let mut store = Spoiled { table: &mut node.table, sabotage: self.sabotage };
        let _ = node.session.handle_datagram(now, &flight.bytes, &mut store);
        while node.session.poll_event().is_some() {}
        node.table.applied.clear();
        node.table.removed_later.clear();
        if node.table.backwards.is_some() {
            state.break_property(Property::NeverBackwards);
        }
        check_copies(state, flight.to, &before);
    }

    /// Takes what the node has to send.
    pub(super) fn transmit(&self, state: &mut State, from: usize) {
        let now = state.now;
        for _ in 0..DATAGRAMS_AT_ONCE_MAX {
            let node = Arc::make_mut(&mut state.nodes[from]);
            self.sabotage.before_sending(&mut node.session);
            let mut bytes = Vec::new();
            let mut store = Spoiled { table: &mut node.table, sabotage: self.sabotage };
            if !node.session.poll_transmit(now, &mut store, &mut bytes) {
                return;
            }
            if let Err(property) = self.check_sent(node, &bytes) {
                state.break_property(property);
            }
            self.sabotage.on_the_wire(&mut bytes);
            state.wire.push(Arc::new(Flight { to: 1 - from, sent_at: now, bytes }));
        }
        state.break_property(Property::WithinBounds);
    }

    fn check_sent(&self, node: &mut Node, bytes: &[u8]) -> Result<(), Property> {
        let config = &self.scope.session;
        let (header, _) = Header::parse(bytes).map_err(|_| Property::WithinBounds)?;
        let status = node.session.status();
        let queued_max = config.changes_queued_max as usize + config.deletions_max as usize;
        let is_within = status.in_flight <= config.in_flight_messages_max
            && header.unresolved <= config.in_flight_messages_max
            && status.queued <= queued_max
            && bytes.len() <= config.datagram_bytes_max;
        if !is_within {
            return Err(Property::WithinBounds);
        }
        if node.session.link == Link::Closed {
            if node.left || header.flags != flags::GOODBYE {
                return Err(Property::GoodbyeIsTheLastWord);
            }
            node.left = true;
        }
        let follows = node.numbering.is_none_or(|(session, next, base)| {
            session != header.session || next == header.first && !is_before(header.base(), base)
        });
        let next = header.first.wrapping_add(header.count.into());
        node.numbering = Some((header.session, next, header.base()));
        if follows { Ok(()) } else { Err(Property::NumbersAreUsedOnce) }
    }
}

/// What a datagram did to a node's replicas, held against the peer's connections.
fn check_copies(state: &mut State, index: usize, before: &BTreeMap<u32, crate::session::tests::harness::Connection>) {
    let mut broken = None;
    let peer = Arc::clone(&state.nodes[1 - index]);
    let node = Arc::make_mut(&mut state.nodes[index]);
    for (tuple, was) in before {
        let is_there = node.table.copies.get(tuple).is_some_and(|copy| copy.incarnation == was.incarnation);
        if is_there {
            continue;
        }
        let mut living = peer.table.slots.iter().flatten();
        if living.any(|own| (own.tuple, own.incarnation) == (*tuple, was.incarnation)) {
            broken = Some(Property::LivingCopiesStay);
        }
        let removed = node.removed.entry(*tuple).or_insert(was.incarnation);
        *removed = was.incarnation.max(*removed);
    }
    for (tuple, copy) in &node.table.copies {
        if node.removed.get(tuple).is_some_and(|removed| copy.incarnation <= *removed) {
            broken = broken.or(Some(Property::TheEndedStaysEnded));
        }
    }
    if let Some(property) = broken {
        state.break_property(property);
    }
}
