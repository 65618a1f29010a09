//! What can happen, and what comes of it.

use std::sync::Arc;
use std::vec::Vec;

use super::Exploration;
use super::scopes::{Beginning, Fault, Randomness};
use super::state::{Node, Property, State};
use crate::session::tests::harness::Connection;
use crate::session::{Handle, Link};

/// Something that happens. Nodes are 0 and 1, datagrams are named by their place in [`State::wire`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Deliver(usize),
    Lose(usize),
    /// Delivers a datagram that will come again.
    Double(usize),
    /// The connection in the node's slot changes.
    Change(usize, u32),
    End(usize, u32),
    Begin(usize, u32),
    /// The connection ends and its tuple begins another at once, in another slot if one is free.
    Replace(usize, u32),
    /// Time goes on to what the node asked for (unless that has passed) and the node is called.
    Time(usize),
    Restart(usize),
    Partition,
    RequestResync(usize),
    Close(usize),
}

impl Exploration {
    pub(super) fn begin(&self) -> State {
        let (connections, is_cold) = match self.scope.beginning {
            Beginning::Cold(connections) => (connections, true),
            Beginning::Synchronised(connections) => (connections, false),
        };
        let mut state = State {
            now: flow::Instant::from_millis(1000),
            nodes: [0, 1].map(|index| Arc::new(self.node(index, 0))),
            wire: Vec::new(),
            changes_left: u8::MAX,
            faults_left: 0,
            lives: 0,
            broken: None,
            normal: 0,
        };
        for slot in 0..connections {
            self.open(&mut state, 0, slot, slot * 2);
        }
        if !is_cold {
            let steps = self.run_to_rest(&mut state);
            assert!(steps.is_some(), "the beginning does not come to rest: {state:?}");
        }
        state.changes_left = self.scope.changes;
        state.faults_left = self.scope.faults;
        self.normalise(&mut state);
        state
    }

    /// Everything that can happen in a state.
    pub(super) fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        let faulty = |fault: Fault| state.faults_left > 0 && self.scope.kinds.contains(&fault);
        for at in 0..state.wire.len() {
            actions.push(Action::Deliver(at));
            if faulty(Fault::Loss) {
                actions.push(Action::Lose(at));
            }
            if faulty(Fault::Duplication) {
                actions.push(Action::Double(at));
            }
        }
        let earliest = Self::earliest(state);
        for node in 0..2 {
            let asked = state.nodes[node].session.poll_timeout().map(|at| at.max(state.now));
            let is_in_time = self.scope.late || asked == earliest.map(|(at, _)| at);
            if asked.is_some_and(|at| is_in_time && self.may_wait(state, at)) {
                actions.push(Action::Time(node));
            }
            if faulty(Fault::Restart) && self.may_restart(state, node) {
                actions.push(Action::Restart(node));
            }
            if state.nodes[node].session.link == Link::Closed {
                continue;
            }
            if faulty(Fault::Resync) {
                actions.push(Action::RequestResync(node));
            }
            if faulty(Fault::Close) {
                actions.push(Action::Close(node));
            }
            self.possible_changes(state, node, actions);
        }
        if faulty(Fault::Partition) {
            actions.push(Action::Partition);
        }
    }

    fn possible_changes(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        if state.changes_left == 0 {
            return;
        }
        for slot in 0..self.scope.slots[node] {
            if state.nodes[node].table.slots[slot as usize].is_some() {
                actions.extend([Action::Change(node, slot), Action::End(node, slot), Action::Replace(node, slot)]);
            } else {
                actions.push(Action::Begin(node, slot));
            }
        }
    }

    fn may_restart(&self, state: &State, index: usize) -> bool {
        if self.scope.randomness == Randomness::Fresh {
            return true;
        }
        let drawn = self.node(index, state.nodes[index].starts + 1).session.session;
        let is_in_flight = state.wire.iter().any(|flight| flight.to != index && flight.session() == drawn);
        let peer_knows = state.nodes[1 - index].session.peer_session == Some(state.nodes[index].session.session);
        peer_knows && !is_in_flight
    }

    /// When which node is to be called next, not before now.
    pub(super) fn earliest(state: &State) -> Option<(flow::Instant, usize)> {
        (0..2).filter_map(|node| Some((state.nodes[node].session.poll_timeout()?.max(state.now), node))).min()
    }

    /// What comes of an action: the next state, normalised, with what it broke.
    pub(super) fn step(&self, state: &State, action: Action) -> State {
        let mut next = state.clone();
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.take(&mut next, action)));
        if taken.is_err() {
            next.break_property(Property::NeverPanics);
        }
        self.normalise(&mut next);
        next
    }

    fn take(&self, state: &mut State, action: Action) {
        match action {
            Action::Deliver(_) | Action::Time(_) => {}
            Action::Change(..) | Action::End(..) | Action::Begin(..) | Action::Replace(..) => state.changes_left -= 1,
            _ => state.faults_left -= 1,
        }
        match action {
            Action::Deliver(at) => {
                let flight = state.wire.remove(at);
                self.deliver(state, &flight);
                self.transmit(state, flight.to);
            }
            Action::Lose(at) => {
                state.wire.remove(at);
            }
            Action::Double(at) => {
                let flight = Arc::clone(&state.wire[at]);
                self.deliver(state, &flight);
                self.transmit(state, flight.to);
            }
            Action::Change(node, _) | Action::End(node, _) | Action::Begin(node, _) | Action::Replace(node, _) => {
                self.change(state, action);
                self.transmit(state, node);
            }
            Action::Time(node) => self.let_time_pass(state, node),
            Action::Restart(node) => {
                let starts = state.nodes[node].starts + 1;
                state.nodes[node] = Arc::new(self.node(node, starts));
            }
            Action::Partition => self.partition(state),
            Action::RequestResync(node) => {
                Arc::make_mut(&mut state.nodes[node]).session.request_resync();
                self.transmit(state, node);
            }
            Action::Close(node) => {
                Arc::make_mut(&mut state.nodes[node]).session.close();
                self.transmit(state, node);
            }
        }
    }

    fn change(&self, state: &mut State, action: Action) {
        match action {
            Action::Change(node, slot) => {
                let node = Arc::make_mut(&mut state.nodes[node]);
                if let Some(connection) = &mut node.table.slots[slot as usize] {
                    connection.version += 1;
                    node.session.mark_changed(Handle(slot));
                }
            }
            Action::End(node, slot) => {
                end(Arc::make_mut(&mut state.nodes[node]), slot);
            }
            Action::Begin(node, slot) => {
                let tuple = self.free_tuple(&state.nodes[node], node);
                self.open(state, node, slot, tuple);
            }
            Action::Replace(node, slot) => {
                let free = self.free_slot(&state.nodes[node], node).unwrap_or(slot);
                if let Some(ended) = end(Arc::make_mut(&mut state.nodes[node]), slot) {
                    self.open(state, node, free, ended.tuple);
                }
            }
            _ => {}
        }
    }

    /// The tuples of the two nodes are disjoint: which of two owners is right is the node's concern.
    fn free_tuple(&self, node: &Node, index: usize) -> u32 {
        let is_free = |tuple: &u32| !node.table.slots.iter().flatten().any(|own| own.tuple == *tuple);
        let mut tuples = (0..=self.scope.slots[index]).map(|tuple| tuple * 2 + index as u32);
        tuples.find(is_free).expect("there are more tuples than slots")
    }

    fn free_slot(&self, node: &Node, index: usize) -> Option<u32> {
        (0..self.scope.slots[index]).find(|slot| node.table.slots[*slot as usize].is_none())
    }

    fn open(&self, state: &mut State, node: usize, slot: u32, tuple: u32) {
        state.lives += 1;
        let connection = Connection { tuple, incarnation: state.lives, version: 1 };
        let node = Arc::make_mut(&mut state.nodes[node]);
        node.table.slots[slot as usize] = Some(connection);
        node.session.mark_changed(Handle(slot));
        // As where a connection's first reply is held until the peer has it.
        node.session.ask_for_acknowledgement();
    }

    fn let_time_pass(&self, state: &mut State, node: usize) {
        let Some(asked) = state.nodes[node].session.poll_timeout() else { return };
        state.now = state.now.max(asked);
        let now = state.now;
        Arc::make_mut(&mut state.nodes[node]).session.handle_timeout(now);
        self.transmit(state, node);
    }

    /// Nothing that is or comes on the wire arrives, until both nodes' timeouts have passed.
    fn partition(&self, state: &mut State) {
        state.wire.clear();
        let until = state.now + self.scope.session.peer_timeout;
        while let Some((_, node)) = Self::earliest(state).filter(|(at, _)| *at <= until) {
            self.let_time_pass(state, node);
            state.wire.clear();
        }
        state.now = until;
    }

    /// Whether time may go on to when the node is to be called: no datagram is in flight for as long as the peer's timeout,
    /// which is what the list of retired sessions counts on.
    fn may_wait(&self, state: &State, until: flow::Instant) -> bool {
        let max = if self.scope.delay { self.scope.session.peer_timeout } else { core::time::Duration::ZERO };
        state.wire.iter().all(|flight| until.saturating_since(flight.sent_at) < max)
    }
}

fn end(node: &mut Node, slot: u32) -> Option<Connection> {
    let connection = node.table.slots[slot as usize].take()?;
    let mut attributes = connection.tuple.to_be_bytes().to_vec();
    attributes.extend_from_slice(&connection.incarnation.to_be_bytes());
    node.session.mark_deleted(Handle(slot), &attributes);
    Some(connection)
}
