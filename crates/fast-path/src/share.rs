//! The maps of the fast path as one worker uses them, and the connections that it has installed.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use flow::Instant;
use flow::fast_path::{Activity, NextHop, Plan, Side, Windows};

use crate::Error;
use crate::mapping::Mapping;
use crate::pins::{self, Maps};
use crate::shapes::{
    ConnectionCell, ControlCell, FlowKey, FlowValue, NextHopEntry, RECORD_BYTES_MAX, RecordEntry, SWITCH_BRIDGED,
    SWITCH_ENABLED,
};
use crate::system::{clock_offset_ns, now};

/// An index is not reused for so long after its removal: a processor may be about to write to its entry.
const INDEX_REST: Duration = Duration::from_millis(100);
/// An insertion fails if the key is there (`BPF_NOEXIST`).
const NO_EXIST: u64 = 1;

/// An installed connection of a share, until its removal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionIndex(pub u32);

/// What user space keeps of an installed connection.
#[derive(Clone, Copy, Debug)]
struct Installed {
    keys: [FlowKey; 2],
    /// As they were installed; after a take-over without the numbers, which are in the kernel.
    windows: Windows,
}

/// Indices that belong to one share: so many, from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Indices {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Indices {
    /// One of so many equal parts.
    pub(crate) const fn part(self, number: u32, parts: u32) -> Self {
        let count = self.count / parts;
        Self { first: self.first + number * count, count }
    }
}

/// The maps as one worker uses them. It installs connections under indices of its own, and sets next hops of its own, so workers
/// share no lock. Generation, switch and heartbeat are those of the program, common to all shares.
pub struct Share {
    flows: HashMap<MapData, FlowKey, FlowValue>,
    next_hops: Array<MapData, NextHopEntry>,
    /// By index, where they are pinned.
    records: Array<MapData, RecordEntry>,
    connections: Mapping<ConnectionCell>,
    control: Mapping<ControlCell>,
    /// By how much this process's clock is ahead of the program's, in two's complement.
    clock_offset_ns: u64,
    keeps_records: bool,
    places: Indices,
    hops: Indices,
    /// By index, from the share's first on.
    installed: Vec<Option<Installed>>,
    /// Indices that may be used again, with the times of their removal.
    released: VecDeque<(u32, Instant)>,
}

impl Share {
    /// A share of the maps with these indices of connections and next hops.
    pub(crate) fn new(maps: &Maps, places: Indices, hops: Indices, keeps_records: bool) -> Result<Self, Error> {
        let map = |error| Error::from_map(error, "opening the maps of the fast path");
        let mapped = |error| Error::from_io(error, "mapping the maps of the fast path");
        Ok(Self {
            connections: Mapping::new(maps.connections.fd().as_fd(), places.first + places.count).map_err(mapped)?,
            control: Mapping::new(maps.control.fd().as_fd(), 1).map_err(mapped)?,
            clock_offset_ns: clock_offset_ns(),
            flows: Map::HashMap(pins::handle(&maps.flows)?).try_into().map_err(map)?,
            next_hops: Map::Array(pins::handle(&maps.next_hops)?).try_into().map_err(map)?,
            records: Map::Array(pins::handle(&maps.records)?).try_into().map_err(map)?,
            keeps_records,
            places,
            hops,
            installed: Vec::new(),
            released: VecDeque::new(),
        })
    }

    /// Connections that can be installed at once.
    #[must_use]
    pub const fn connections_max(&self) -> u32 {
        self.places.count
    }

    /// The time of the last heartbeat after which the program forwards nothing, in nanoseconds.
    pub(crate) fn set_heartbeat_age_max(&self, nanoseconds: u64) {
        self.control[0].heartbeat_age_max_ns.store(nanoseconds, Relaxed);
    }

    /// Has only some of its indices from now on. Nothing is installed.
    pub(crate) fn narrow(&mut self, places: Indices, hops: Indices) {
        (self.places, self.hops) = (places, hops);
    }

    pub(crate) const fn indices(&self) -> [Indices; 2] {
        [self.places, self.hops]
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.installed.is_empty()
    }

    /// Whether this thread may still change the maps. Kernels before 5.19 permit that only with `CAP_BPF` where
    /// `kernel.unprivileged_bpf_disabled` is set.
    #[must_use]
    pub fn is_permitted(&self) -> bool {
        self.records.get(&self.places.first, 0).is_ok()
    }

    /// Switches the program on or off; off, all packets go to user space.
    pub fn set_enabled(&self, is_enabled: bool) {
        self.set_switch(SWITCH_ENABLED, is_enabled);
    }

    /// Has packets bridged, or routed.
    pub(crate) fn set_bridged(&self, is_bridged: bool) {
        self.set_switch(SWITCH_BRIDGED, is_bridged);
    }

    fn set_switch(&self, switch: u32, is_on: bool) {
        let switches = &self.control[0].switches;
        if is_on {
            switches.fetch_or(switch, Relaxed)
        } else {
            switches.fetch_and(!switch, Relaxed)
        };
    }

    /// Gives the heartbeat; `now` is a time of [`crate::now`].
    pub fn beat(&self, now: Instant) {
        self.control[0].heartbeat_ns.store(self.in_kernel(now), Relaxed);
    }

    /// Until `until`, a time of [`crate::now`], the program forwards without heartbeats: for a planned restart of its loader.
    pub fn allow_without_heartbeat_until(&self, until: Instant) {
        self.control[0].allow_without_heartbeat_until_ns.store(self.in_kernel(until), Relaxed);
    }

    /// Begins another generation, and returns it: connections installed in earlier ones are not forwarded.
    pub fn begin_generation(&self) -> u32 {
        self.control[0].generation.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Changes the generation: connections installed in another one are not forwarded. The first is 0.
    pub fn set_generation(&self, generation: u32) {
        self.control[0].generation.store(generation, Relaxed);
    }

    /// The generation.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.control[0].generation.load(Relaxed)
    }

    /// Sets the next hop `index`, or clears it: packets to it then go to user space.
    ///
    /// # Errors
    /// There is no such index.
    pub fn set_next_hop(&mut self, index: u32, hop: Option<&NextHop>) -> Result<(), Error> {
        let Indices { first, count } = self.hops;
        if index >= count {
            return Err(Error::Misuse(format!("there is no next hop {index}: {count} are configured")));
        }
        let entry = hop.map_or_else(NextHopEntry::default, NextHopEntry::new);
        self.next_hops.set(first + index, entry, 0).map_err(|error| Error::from_map(error, "setting a next hop"))
    }

    /// Installs a connection, in both directions or not at all.
    ///
    /// # Errors
    /// The plan is contradictory, a direction is installed already, or all places are taken.
    pub fn install(&mut self, plan: &Plan) -> Result<ConnectionIndex, Error> {
        self.install_with_record(plan, &[])
    }

    /// As [`Share::install`]. Where it is pinned, `record` describes the connection to a loader that takes over.
    ///
    /// # Errors
    /// As there; or the record is too long.
    pub fn install_with_record(&mut self, plan: &Plan, record: &[u8]) -> Result<ConnectionIndex, Error> {
        plan.check()?;
        let now = now();
        let index = self.free_index(now)?;
        // Before the flows: a process that finds them finds the record of the same connection.
        if let Err(error) = self.keep_record(index, record) {
            self.released.push_back((index, now));
            return Err(error);
        }
        self.cell(index).reset(plan.windows.as_ref(), self.in_kernel(now));
        let generation = self.generation();
        let (connection, mut placed) = (self.places.first + index, *plan);
        placed.directions.iter_mut().for_each(|direction| direction.next_hop += self.hops.first);
        let [original, reply] = [0, 1].map(|direction| FlowValue::new(&placed, direction, connection, generation));
        let inserted = self.insert(plan, 0, original).and_then(|()| {
            self.insert(plan, 1, reply).inspect_err(|_| {
                // It was inserted a moment ago.
                let _ = self.flows.remove(&original.0);
            })
        });
        if let Err(error) = inserted {
            self.released.push_back((index, now));
            return Err(error);
        }
        let windows = plan.windows.unwrap_or_default();
        self.installed[index as usize] = Some(Installed { keys: [original.0, reply.0], windows });
        Ok(ConnectionIndex(index))
    }

    /// Installs several connections, all or none.
    ///
    /// # Errors
    /// Those of [`Share::install`].
    pub fn install_many(&mut self, plans: &[Plan]) -> Result<Vec<ConnectionIndex>, Error> {
        let mut indices = Vec::with_capacity(plans.len());
        for plan in plans {
            match self.install(plan) {
                Ok(index) => indices.push(index),
                Err(error) => {
                    for index in indices {
                        self.remove(index)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(indices)
    }

    /// Removes a connection. Returns what was seen of it, as [`Share::take`] does; `None` if it is not installed.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove(&mut self, connection: ConnectionIndex) -> Result<Option<Activity>, Error> {
        let Some(installed) = self.installed(connection).copied() else { return Ok(None) };
        for key in &installed.keys {
            match self.flows.remove(key) {
                Err(error) if !is_errno(&error, libc::ENOENT) => {
                    return Err(Error::from_map(error, "removing a connection from the fast path"));
                }
                _ => {}
            }
        }
        let activity = self.take(connection);
        self.installed[connection.0 as usize] = None;
        self.released.push_back((connection.0, now()));
        Ok(activity)
    }

    /// What the program has seen of a connection, without a system call. `None` if it is not installed.
    ///
    /// Each number is read by itself: a packet in between may be in one and not yet in another.
    #[must_use]
    pub fn read(&self, connection: ConnectionIndex) -> Option<Activity> {
        let installed = self.installed(connection)?;
        let cell = self.cell(connection.0);
        Some(Activity {
            last_packet_ns: cell.last_packet_ns.load(Relaxed).wrapping_add(self.clock_offset_ns),
            packets: [0, 1].map(|direction: usize| cell.packets[direction].load(Relaxed)),
            bytes: [0, 1].map(|direction: usize| cell.bytes[direction].load(Relaxed)),
            windows: installed.keys[0].is_tcp().then(|| cell.windows(&installed.windows)),
        })
    }

    /// As [`Share::read`]; packets and bytes are those since the last call of this method.
    #[must_use]
    pub fn take(&self, connection: ConnectionIndex) -> Option<Activity> {
        let activity = self.read(connection)?;
        let cell = self.cell(connection.0);
        // The program adds to these by single instructions: no packet is lost in between, nor counted twice.
        let packets = [0, 1].map(|direction: usize| cell.packets[direction].swap(0, Relaxed));
        let bytes = [0, 1].map(|direction: usize| cell.bytes[direction].swap(0, Relaxed));
        Some(Activity { packets, bytes, ..activity })
    }

    /// The activity of all installed connections, without a system call.
    pub fn activities(&self) -> impl Iterator<Item = (ConnectionIndex, Activity)> + '_ {
        let indices = (0..self.installed.len() as u32).map(ConnectionIndex);
        indices.filter_map(|index| Some((index, self.read(index)?)))
    }

    /// The installed connections with their records, which are empty where none were given.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn records(&self) -> Result<Vec<(ConnectionIndex, Vec<u8>)>, Error> {
        let installed = (0..).zip(&self.installed).filter(|(_, installed)| installed.is_some());
        let record =
            |index: u32| self.records.get(&(self.places.first + index), 0).map(|entry| entry.record().to_vec());
        let records: Result<_, MapError> =
            installed.map(|(index, _)| Ok((ConnectionIndex(index), record(index)?))).collect();
        records.map_err(|error| Error::from_map(error, "reading the records of the fast path"))
    }

    /// Raises the windows of a connection to those of `windows`, after user space has passed segments of it. The program needs
    /// this: it would find that their acknowledgements acknowledge unsent data. Scales stay. Returns false if the
    /// connection is not installed.
    pub fn raise(&self, connection: ConnectionIndex, windows: &Windows) -> bool {
        let is_installed = self.installed(connection).is_some();
        if is_installed {
            self.cell(connection.0).raise(windows);
        }
        is_installed
    }

    /// A time of this process as the program's clock has it, in nanoseconds. Both differ in another time namespace.
    const fn in_kernel(&self, time: Instant) -> u64 {
        time.as_nanos().wrapping_sub(self.clock_offset_ns)
    }

    fn cell(&self, index: u32) -> &ConnectionCell {
        &self.connections[(self.places.first + index) as usize]
    }

    fn installed(&self, connection: ConnectionIndex) -> Option<&Installed> {
        self.installed.get(connection.0 as usize)?.as_ref()
    }

    fn keep_record(&mut self, index: u32, record: &[u8]) -> Result<(), Error> {
        if !self.keeps_records {
            return Ok(());
        }
        let entry = RecordEntry::new(record).ok_or_else(|| {
            Error::Misuse(format!("a record has at most {RECORD_BYTES_MAX} bytes, not {}", record.len()))
        })?;
        let kept = self.records.set(self.places.first + index, entry, 0);
        kept.map_err(|error| Error::from_map(error, "keeping a record of the fast path"))
    }

    /// An index that no connection has, and none had until a moment ago.
    fn free_index(&mut self, now: Instant) -> Result<u32, Error> {
        if let Some((index, removed_at)) = self.released.front().copied()
            && now.saturating_since(removed_at) >= INDEX_REST
        {
            self.released.pop_front();
            return Ok(index);
        }
        let installed = self.installed.len() as u32;
        if installed < self.places.count {
            self.installed.push(None);
            return Ok(installed);
        }
        Err(Error::Full { connections_max: self.places.count })
    }

    fn insert(&mut self, plan: &Plan, direction: usize, (key, value): (FlowKey, FlowValue)) -> Result<(), Error> {
        self.flows.insert(key, value, NO_EXIST).map_err(|error| {
            if is_errno(&error, libc::EEXIST) {
                return Error::Installed(plan.directions[direction].tuple.to_string());
            }
            Error::from_map(error, "installing a connection in the fast path")
        })
    }

    /// Finds the connections of the pinned maps, of which this share has all indices. One direction without the other is removed: its loader ended in between.
    pub(crate) fn find_installed(&mut self) -> Result<(), Error> {
        let explain = |error| Error::from_map(error, "reading the pinned connections of the fast path");
        let entries: Vec<_> = self.flows.iter().collect::<Result<_, _>>().map_err(explain)?;
        let mut found: BTreeMap<u32, [Option<(FlowKey, FlowValue)>; 2]> = BTreeMap::new();
        for (key, value) in entries {
            found.entry(value.connection).or_default()[usize::from(value.direction & 1)] = Some((key, value));
        }
        let end = found.last_key_value().map_or(0, |(last, _)| last + 1).min(self.places.count);
        self.installed = vec![None; end as usize];
        for (index, directions) in found {
            match directions {
                [Some((original, forward)), Some((reply, back))] if index < end => {
                    let side = |own: &FlowValue, other: &FlowValue| Side {
                        window_scale: own.window_scale(),
                        permits_sack: other.receiver_permits_sack(),
                        ..Side::default()
                    };
                    let windows = Windows { sides: [side(&forward, &back), side(&back, &forward)] };
                    self.installed[index as usize] = Some(Installed { keys: [original, reply], windows });
                }
                incomplete => {
                    for (key, _) in incomplete.into_iter().flatten() {
                        self.flows.remove(&key).map_err(explain)?;
                    }
                }
            }
        }
        let now = now();
        let free = (0..end).filter(|index| self.installed[*index as usize].is_none());
        self.released = free.map(|index| (index, now)).collect();
        Ok(())
    }
}

/// Whether the kernel answered with this error.
fn is_errno(error: &MapError, errno: i32) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.raw_os_error() == Some(errno))
}
