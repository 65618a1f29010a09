//! Expected connections: announced within another connection, as in FTP, SIP and H.323.
//!
//! ```text
//!   master connection ── a helper reads "PORT …" ──► expect(…) ──► table of expectations
//!                                                                       │ looked up when a packet begins a connection
//!   first packet of the announced connection ───────────────────────────┘─► related: firewall and NAT follow the master
//! ```
//!
//! An expectation contains the first packet's tuple as received, with wildcards, and the tuple with which that packet
//! leaves. It belongs to its master connection and ends with it, on its timeout, or, unless it is permanent, when the
//! expected connection begins.
//!
//! Packets of known connections bypass the table. An existing connection with an expected tuple takes precedence over
//! the expectation.

#[cfg(test)]
mod tests;
mod wire;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, Tuple, WorkerId};

pub use wire::decode;

/// The maximum number of expectations of all masters together. Further ones are refused until some end.
pub const EXPECTATIONS_MAX: usize = 4096;
/// The maximum number of expectations of one master: enough for audio and video with a control channel each. A further
/// one replaces the oldest. All of them are replicated in one message with their master.
pub const EXPECTATIONS_PER_MASTER_MAX: usize = 4;
/// The default timeout of an expectation (that of Linux for FTP).
pub const EXPECTATION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

/// In an expected tuple: any address.
pub const ANY_ADDRESS: [u8; 16] = [0; 16];
/// In an expected tuple: any port.
pub const ANY_PORT: u16 = 0;

/// An expected connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// Its first packet's incoming tuple. The source may be [`ANY_ADDRESS`] and [`ANY_PORT`].
    pub tuple: Tuple,
    /// The tuple with which the same packet leaves. A source of [`ANY_ADDRESS`] or [`ANY_PORT`] is unchanged; a port in
    /// use is replaced by a free one when the address is translated.
    pub outgoing: Tuple,
    /// The function that expects it, by its [`crate::function::FlowState::ATTRIBUTE`].
    pub function: u16,
    /// When it expires.
    pub expires_at: Instant,
    /// It remains when its connection has begun, for further ones.
    pub is_permanent: bool,
}

/// Why an expectation is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another master has an expectation for the same tuple.
    Clash,
    /// The limit [`EXPECTATIONS_MAX`] is reached.
    Full,
}

/// A connection that began as expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fulfilled {
    /// The original tuple of the master connection.
    pub master: Tuple,
    /// Whether the expectation is removed: the change must be replicated.
    pub is_used_up: bool,
}

/// The lookup key of an expected connection.
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

/// A tuple's bytes: an arbitrary order for the maps.
type TupleBytes = [u8; size_of::<Tuple>()];

fn bytes(tuple: &Tuple) -> TupleBytes {
    zerocopy::transmute!(*tuple)
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    expectation: Expectation,
    master: Tuple,
}

/// A worker's part of the ports that functions announce. Workers announce concurrently and learn each other's
/// expectations a moment later: separate parts prevent conflicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortShare {
    worker: WorkerId,
    workers: u8,
}

impl PortShare {
    /// All ports, for the only worker.
    pub const WHOLE: Self = Self { worker: WorkerId::LEAD, workers: 1 };

    /// The part of `worker` among `workers` (not 0).
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

/// The expected connections of one worker: those announced by its connections and, with several workers, by the others'
/// connections.
#[derive(Clone, Debug)]
pub struct Expectations {
    entries: BTreeMap<Key, Entry>,
    deadlines: BTreeSet<(Instant, Key)>,
    /// The expectations of each master, oldest first.
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
    /// The number of expectations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Sets the part of the ports for announcements here; initially it is the whole.
    pub const fn set_port_share(&mut self, share: PortShare) {
        self.port_share = share;
    }

    /// The part of the ports for announcements here.
    #[must_use]
    pub const fn port_share(&self) -> PortShare {
        self.port_share
    }

    /// A number that changes whenever the expectations change.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// None is expected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Expects a connection on behalf of `master` (its original tuple). It replaces an expectation of the same master
    /// for the same tuple.
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

    /// The expectation that a packet with this tuple matches if it begins a connection.
    #[inline]
    #[must_use]
    pub fn find(&self, now: Instant, tuple: &Tuple) -> Option<&Expectation> {
        if self.entries.is_empty() {
            return None;
        }
        self.find_entry(now, tuple).map(|entry| &entry.expectation)
    }

    /// The original tuple of that expectation's master.
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

    /// A connection has begun with a packet of this tuple: removes the matching expectation unless it is permanent.
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

    /// Whether `master` has expectations.
    #[must_use]
    pub fn has(&self, master: &Tuple) -> bool {
        !self.masters.is_empty() && self.masters.contains_key(&bytes(master))
    }

    /// The expectations of `master`, oldest first; expired ones may be included.
    pub fn of(&self, master: &Tuple) -> impl Iterator<Item = &Expectation> {
        let keys = self.masters.get(&bytes(master)).map_or(&[][..], Vec::as_slice);
        keys.iter().filter_map(|key| self.entries.get(key)).map(|entry| &entry.expectation)
    }

    /// Removes the expectations of `master`, which has ended.
    pub fn forget(&mut self, master: &Tuple) {
        while let Some(key) = self.masters.get(&bytes(master)).and_then(|keys| keys.last().copied()) {
            self.remove(&key);
        }
    }

    /// Removes the expectations that `function` created on behalf of `master`.
    pub fn forget_function(&mut self, master: &Tuple, function: u16) {
        loop {
            let found = self.of(master).find(|known| known.function == function).map(|known| Key::of(&known.tuple));
            let Some(key) = found else { return };
            self.remove(&key);
        }
    }

    /// Replaces the expectations of `master`, a connection of another node. Expectations that clash with another
    /// master's, or exceed the limit, are omitted.
    pub fn replace(&mut self, now: Instant, master: &Tuple, expected: &[Expectation]) {
        if self.has(master) {
            self.forget(master);
        }
        for expectation in expected {
            // The node that created the expectation first takes precedence, or this table is full: nothing else can be
            // done here.
            let _ = self.expect(now, master, *expectation);
        }
    }

    /// Appends the expectations of `master` as attributes, for another node.
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
