//! A small model of the kernel's connection tracking: a table with timers, events, and a socket buffer that may overflow.

use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use flow::Instant;
use flow::netfilter::{Entry, Expectation, ProtocolInfo, Status, TcpInfo, TcpSide, TcpState, Tuple};

use crate::{KernelAction, KernelRefusal};

/// An event in the socket.
#[derive(Clone, Debug)]
pub(super) enum Queued {
    Began(Entry),
    Changed(Entry),
    Ended(Entry),
    Expected(Expectation),
}

#[derive(Clone, Debug)]
struct Live {
    entry: Entry,
    ends_at_s: u64,
}

/// The kernel of one node.
#[derive(Debug)]
pub(super) struct Kernel {
    live: BTreeMap<(Tuple, u16), Live>,
    pub(super) expectations: Vec<Expectation>,
    pub(super) events: VecDeque<Queued>,
    /// The capacity of the socket's event buffer.
    pub(super) buffer_max: usize,
    pub(super) has_overrun: bool,
    pub(super) connections_max: usize,
    /// The next so many creations are refused for this reason.
    pub(super) refuse: Option<(usize, KernelRefusal)>,
    now_s: u64,
    next_id: u32,
}

impl Kernel {
    pub(super) fn new(first_id: u32) -> Self {
        Self {
            live: BTreeMap::new(),
            expectations: Vec::new(),
            events: VecDeque::new(),
            buffer_max: usize::MAX,
            has_overrun: false,
            connections_max: usize::MAX,
            refuse: None,
            now_s: 0,
            next_id: first_id,
        }
    }

    fn push(&mut self, event: Queued) {
        if self.events.len() >= self.buffer_max {
            self.has_overrun = true;
        } else {
            self.events.push_back(event);
        }
    }

    /// Time goes on: what nothing add_own for ends.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now_s = now.as_nanos() / 1_000_000_000;
        let over: Vec<_> =
            self.live.iter().filter(|(_, live)| live.ends_at_s <= self.now_s).map(|(key, _)| *key).collect();
        over.into_iter().for_each(|key| self.end(key));
    }

    fn end(&mut self, key: (Tuple, u16)) {
        if let Some(live) = self.live.remove(&key) {
            self.push(Queued::Ended(Entry { timeout_s: None, ..live.entry }));
        }
    }

    /// A packet moves the connection to this state (and begins it if necessary).
    pub(super) fn packet(&mut self, tuple: Tuple, reply: Tuple, state: TcpState) {
        let timeout_s = timeout_s(state);
        let key = (tuple, 0);
        let now_s = self.now_s;
        let status = status_of(state);
        let id = self.next_id;
        let is_new = !self.live.contains_key(&key);
        let live = self
            .live
            .entry(key)
            .or_insert_with(|| Live { entry: Entry { id: Some(id), ..Entry::new(tuple, reply) }, ends_at_s: 0 });
        live.ends_at_s = now_s + u64::from(timeout_s);
        let before = live.entry.tcp().map(|info| info.state);
        if before == Some(state) {
            return;
        }
        let old = live.entry.status.unwrap_or_default();
        live.entry.status = Some(old.union(status));
        live.entry.timeout_s = Some(timeout_s);
        live.entry.protocol_info = Some(ProtocolInfo::Tcp(TcpInfo {
            state,
            sides: Some([TcpSide { window_scale: 7, ..TcpSide::default() }; 2]),
        }));
        let entry = live.entry.clone();
        self.next_id += u32::from(is_new);
        self.push(if is_new { Queued::Began(entry) } else { Queued::Changed(entry) });
    }

    /// A packet that renews the timeout only.
    pub(super) fn keep_alive(&mut self, tuple: Tuple) {
        if let Some(live) = self.live.get_mut(&(tuple, 0)) {
            let state = live.entry.tcp().map_or(TcpState::Established, |info| info.state);
            live.ends_at_s = self.now_s + u64::from(timeout_s(state));
        }
    }

    pub(super) fn keep_all_alive(&mut self) {
        let all: Vec<_> = self.live.keys().map(|(tuple, _)| *tuple).collect();
        all.into_iter().for_each(|tuple| self.keep_alive(tuple));
    }

    /// Sets the values of the operator's rules.
    pub(super) fn set_mark(&mut self, tuple: Tuple, mark: u32) {
        if let Some(live) = self.live.get_mut(&(tuple, 0)) {
            live.entry.mark = Some(mark);
            let entry = live.entry.clone();
            self.push(Queued::Changed(entry));
        }
    }

    pub(super) fn expect(&mut self, expectation: Expectation) {
        self.expectations.push(expectation.clone());
        self.push(Queued::Expected(expectation));
    }

    /// An operator ends one connection.
    pub(super) fn delete(&mut self, tuple: Tuple) {
        self.end((tuple, 0));
    }

    pub(super) fn get(&self, tuple: Tuple) -> Option<Entry> {
        self.live.get(&(tuple, 0)).map(|live| self.now(live))
    }

    fn now(&self, live: &Live) -> Entry {
        Entry { timeout_s: Some((live.ends_at_s - self.now_s.min(live.ends_at_s)) as u32), ..live.entry.clone() }
    }

    pub(super) fn dump(&self) -> Vec<Entry> {
        self.live.values().map(|live| self.now(live)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// The properties that must be equal on two nodes: end points, state, mark.
    pub(super) fn summary(&self) -> BTreeMap<Tuple, (Tuple, Option<TcpState>, u32)> {
        let of =
            |live: &Live| (live.entry.reply, live.entry.tcp().map(|info| info.state), live.entry.mark.unwrap_or(0));
        self.live.iter().map(|((tuple, _), live)| (*tuple, of(live))).collect()
    }

    /// Executes a request as ctnetlink does: the requester receives no event for it.
    pub(super) fn execute(&mut self, action: &KernelAction) -> Result<Option<Entry>, KernelRefusal> {
        match action {
            KernelAction::Create(entry) => self.create(entry).map(|()| None),
            KernelAction::Update(entry) => {
                let now_s = self.now_s;
                let key = (entry.original, entry.zone);
                let live = self.live.get_mut(&key).ok_or(KernelRefusal::Missing)?;
                let before = live.entry.status.unwrap_or_default();
                let lasting = Status::SEEN_REPLY.union(Status::ASSURED);
                if entry.status.is_some_and(|status| before.without(status).intersects(lasting)) {
                    return Err(KernelRefusal::Other(16));
                }
                let (id, reply) = (live.entry.id, live.entry.reply);
                live.entry.update(&Entry { reply, ..entry.clone() });
                live.entry.id = id;
                live.ends_at_s = now_s + u64::from(entry.timeout_s.unwrap_or(0));
                Ok(None)
            }
            KernelAction::Delete(entry) => {
                self.live.remove(&(entry.original, entry.zone)).map(|_| None).ok_or(KernelRefusal::Missing)
            }
            KernelAction::Get { tuple, zone } => Ok(self.live.get(&(*tuple, *zone)).map(|live| self.now(live))),
            KernelAction::CreateExpectation(expectation) => {
                if !self.live.contains_key(&(expectation.master, expectation.zone)) {
                    return Err(KernelRefusal::Missing);
                }
                self.expectations.push((**expectation).clone());
                Ok(None)
            }
            KernelAction::DeleteExpectation(expectation) => {
                self.expectations.retain(|known| known.expected != expectation.expected);
                Ok(None)
            }
        }
    }

    fn create(&mut self, entry: &Entry) -> Result<(), KernelRefusal> {
        if let Some((left, refusal)) = self.refuse {
            self.refuse = (left > 1).then_some((left - 1, refusal));
            return Err(refusal);
        }
        let is_taken = |live: &Live| live.entry.reply == entry.reply || live.entry.original == entry.original;
        if self.live.values().any(is_taken) {
            return Err(KernelRefusal::Exists);
        }
        if self.live.len() >= self.connections_max {
            return Err(KernelRefusal::Full);
        }
        let id = Some(self.next_id);
        self.next_id += 1;
        let ends_at_s = self.now_s + u64::from(entry.timeout_s.unwrap_or(0));
        self.live.insert((entry.original, entry.zone), Live { entry: Entry { id, ..entry.clone() }, ends_at_s });
        Ok(())
    }
}

fn timeout_s(state: TcpState) -> u32 {
    match state {
        TcpState::Established => 60,
        TcpState::Close => 10,
        TcpState::SynSent | TcpState::SynRecv => 60,
        _ => 120,
    }
}

fn status_of(state: TcpState) -> Status {
    let seen = Status::CONFIRMED.union(Status::SEEN_REPLY);
    match state {
        TcpState::SynSent => Status::CONFIRMED,
        TcpState::SynRecv => seen,
        _ => seen.union(Status::ASSURED),
    }
}
