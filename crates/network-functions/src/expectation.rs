//! Connections that are expected: announced within another connection, as FTP, SIP and H.323 announce them.
//!
//! ```text
//!   master connection ── a helper reads "PORT …" ──► expect(…) ──► table of expectations
//!                                                                       │ looked up when a packet begins a connection
//!   first packet of the announced connection ───────────────────────────┘─► related: firewall and NAT follow the master
//! ```
//!
//! An expectation names the first packet's tuple as it comes in, with wildcards, and the tuple with which that packet is to
//! leave. It belongs to its master and ends with it, with its time, or, unless it is permanent, when its connection begins.
//! Packets of known connections never come near the table. A connection that has an expected tuple already is found
//! before the expectation is: an expectation takes nothing away from anybody.

#[cfg(test)]
mod tests;
mod wire;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, Tuple, WorkerId};

pub use wire::decode;

/// Connections expected at once, at most, of all masters together. Further ones are refused until some have come or gone.
pub const EXPECTATIONS_MAX: usize = 4096;
/// Connections expected on behalf of one master, at most: enough for audio and video with a control channel each. A further
/// one takes the place of the oldest. All of them travel in one message with their master.
pub const EXPECTATIONS_PER_MASTER_MAX: usize = 4;
/// How long an announced connection is waited for, unless its function says otherwise (as Linux waits for those of FTP).
pub const EXPECTATION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

/// In an expected tuple: any address.
pub const ANY_ADDRESS: [u8; 16] = [0; 16];
/// In an expected tuple: any port.
pub const ANY_PORT: u16 = 0;

/// An expected connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// Its first packet's tuple as it comes in. The source may be [`ANY_ADDRESS`] and [`ANY_PORT`].
    pub tuple: Tuple,
    /// The same packet's tuple as it is to leave. A source of [`ANY_ADDRESS`] or [`ANY_PORT`] is kept as it came; a port
    /// that is taken is replaced by a free one when the address is translated.
    pub outgoing: Tuple,
    /// The function that expects it, by its [`crate::function::FlowState::ATTRIBUTE`].
    pub function: u16,
    /// When it is given up.
    pub expires_at: Instant,
    /// It stays when its connection has begun, for more of the kind.
    pub is_permanent: bool,
}

/// Why a connection cannot be expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another master's connection is expected under the same tuple.
    Clash,
    /// [`EXPECTATIONS_MAX`] are expected.
    Full,
}

/// A connection that began as expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fulfilled {
    /// The original tuple of the connection that announced it.
    pub master: Tuple,
    /// The expectation is used up: the master's backups must be told.
    pub is_used_up: bool,
}

/// What an expected connection is looked up by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    destination: [u8; 16],
    destination_port: u16,
    protocol: u8,
    version: u8,
    source: [u8; 16],
}

impl Key {
    const fn of(tuple: &Tuple) -> Self {
        let Tuple { source, destination, destination_port, protocol, version, .. } = *tuple;
        Self { destination, destination_port, protocol, version, source }
    }
}

/// A tuple's bytes: an order for the maps, of no meaning.
type TupleBytes = [u8; size_of::<Tuple>()];

fn bytes(tuple: &Tuple) -> TupleBytes {
    zerocopy::transmute!(*tuple)
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    expectation: Expectation,
    master: Tuple,
}

/// A worker's part of the ports that functions announce. Workers announce at the same time, and hear of each other's
/// expectations a moment later: parts keep them from announcing the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortShare {
    worker: WorkerId,
    workers: u8,
}

impl PortShare {
    /// All ports, for the only worker.
    pub const WHOLE: Self = Self { worker: WorkerId::LEAD, workers: 1 };

    /// The part of `worker` when there are `workers` (not 0).
    #[must_use]
    pub const fn of(worker: WorkerId, workers: u8) -> Self {
        Self { worker, workers }
    }

    /// Whether the port is in it.
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.workers <= 1 || port % self.workers as u16 == self.worker.0 as u16
    }
}

/// The expected connections of one worker: those that its own connections announced and, if there are other workers, those
/// that theirs did.
#[derive(Clone, Debug)]
pub struct Expectations {
    entries: BTreeMap<Key, Entry>,
    deadlines: BTreeSet<(Instant, Key)>,
    /// What each master expects, oldest first.
    masters: BTreeMap<TupleBytes, Vec<Key>>,
    port_share: PortShare,
    revision: u64,
}

impl Default for Expectations {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            masters: BTreeMap::new(),
            port_share: PortShare::WHOLE,
            revision: 0,
        }
    }
}

impl Expectations {
    /// Connections expected.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Sets the part of the ports that are announced here; at first it is the whole.
    pub const fn set_port_share(&mut self, share: PortShare) {
        self.port_share = share;
    }

    /// The part of the ports that are announced here.
    #[must_use]
    pub const fn port_share(&self) -> PortShare {
        self.port_share
    }

    /// A number that is another one whenever what is expected is.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// None is expected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Expects a connection on behalf of `master` (its original tuple). What the same master expected under the same tuple
    /// is replaced.
    ///
    /// # Errors
    /// [`Refusal`]; nothing changes then.
    pub fn expect(&mut self, now: Instant, master: &Tuple, expectation: Expectation) -> Result<(), Refusal> {
        self.expire(now);
        let key = Key::of(&expectation.tuple);
        match self.entries.get(&key) {
            Some(entry) if entry.master != *master => return Err(Refusal::Clash),
            Some(_) => self.remove(&key),
            None if self.entries.len() >= EXPECTATIONS_MAX => return Err(Refusal::Full),
            None => {}
        }
        let oldest = self.masters.get(&bytes(master)).filter(|keys| keys.len() >= EXPECTATIONS_PER_MASTER_MAX);
        if let Some(oldest) = oldest.and_then(|keys| keys.first().copied()) {
            self.remove(&oldest);
        }
        self.masters.entry(bytes(master)).or_default().push(key);
        self.revision += 1;
        self.deadlines.insert((expectation.expires_at, key));
        self.entries.insert(key, Entry { expectation, master: *master });
        Ok(())
    }

    /// The expectation that a packet with this tuple fulfils if it begins a connection.
    #[inline]
    #[must_use]
    pub fn find(&self, now: Instant, tuple: &Tuple) -> Option<&Expectation> {
        if self.entries.is_empty() {
            return None;
        }
        self.find_entry(now, tuple).map(|entry| &entry.expectation)
    }

    /// The original tuple of the connection on whose behalf that expectation is.
    #[must_use]
    pub fn master_of(&self, now: Instant, tuple: &Tuple) -> Option<&Tuple> {
        self.find_entry(now, tuple).map(|entry| &entry.master)
    }

    fn find_entry(&self, now: Instant, tuple: &Tuple) -> Option<&Entry> {
        let exact = Key::of(tuple);
        let from_anywhere = Key { source: ANY_ADDRESS, ..exact };
        [exact, from_anywhere].iter().filter_map(|key| self.entries.get(key)).find(|entry| {
            let Expectation { tuple: expected, expires_at, .. } = &entry.expectation;
            *expires_at > now && (expected.source_port == ANY_PORT || expected.source_port == tuple.source_port)
        })
    }

    /// A connection has begun with a packet of this tuple: the expectation that it fulfils is used up unless it is permanent.
    pub fn fulfil(&mut self, now: Instant, tuple: &Tuple) -> Option<Fulfilled> {
        if self.entries.is_empty() {
            return None;
        }
        let Entry { expectation, master } = *self.find_entry(now, tuple)?;
        if !expectation.is_permanent {
            self.remove(&Key::of(&expectation.tuple));
        }
        Some(Fulfilled { master, is_used_up: !expectation.is_permanent })
    }

    /// Whether anything is expected on behalf of `master`.
    #[must_use]
    pub fn has(&self, master: &Tuple) -> bool {
        !self.masters.is_empty() && self.masters.contains_key(&bytes(master))
    }

    /// What is expected on behalf of `master`, oldest first; that of which the time is over may be among it.
    pub fn of(&self, master: &Tuple) -> impl Iterator<Item = &Expectation> {
        let keys = self.masters.get(&bytes(master)).map_or(&[][..], Vec::as_slice);
        keys.iter().filter_map(|key| self.entries.get(key)).map(|entry| &entry.expectation)
    }

    /// Nothing is expected on behalf of `master` any more: it has ended.
    pub fn forget(&mut self, master: &Tuple) {
        while let Some(key) = self.masters.get(&bytes(master)).and_then(|keys| keys.last().copied()) {
            self.remove(&key);
        }
    }

    /// What `function` expected on behalf of `master` is expected no more.
    pub fn forget_function(&mut self, master: &Tuple, function: u16) {
        loop {
            let found = self.of(master).find(|known| known.function == function).map(|known| Key::of(&known.tuple));
            let Some(key) = found else { return };
            self.remove(&key);
        }
    }

    /// Another node says all that it expects on behalf of its connection `master`. What clashes with another master's, or
    /// finds no room, is left out.
    pub fn replace(&mut self, now: Instant, master: &Tuple, expected: &[Expectation]) {
        if self.has(master) {
            self.forget(master);
        }
        for expectation in expected {
            // The node that was first to expect it knows better, or this one is full: nothing else can be done here.
            let _ = self.expect(now, master, *expectation);
        }
    }

    /// Appends what is expected on behalf of `master` as attributes, for another node.
    pub fn encode(&self, now: Instant, master: &Tuple, out: &mut Vec<u8>) {
        for expectation in self.of(master).filter(|expectation| expectation.expires_at > now) {
            wire::encode(now, expectation, out);
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((expires_at, key)) = self.deadlines.first().copied()
            && expires_at <= now
        {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.revision += 1;
        self.deadlines.remove(&(entry.expectation.expires_at, *key));
        let master = bytes(&entry.master);
        if let Some(keys) = self.masters.get_mut(&master) {
            keys.retain(|known| known != key);
            if keys.is_empty() {
                self.masters.remove(&master);
            }
        }
    }
}
