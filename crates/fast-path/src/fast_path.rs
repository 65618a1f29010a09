//! The loaded program, its maps, and the connections installed in them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::links::FdLink;
use flow::Instant;
use flow::fast_path::{Activity, Hook, NextHop, Plan, Side, Windows};

use crate::Error;
use crate::mapping::Mapping;
use crate::outcome::{Counters, Outcome};
use crate::pins::{self, Pins, Sizes};
use crate::programs::{Link, Programs, attaching, remove_pin};
use crate::shapes::{
    ConnectionCell, ControlCell, FlowKey, FlowValue, NextHopEntry, PortEntry, RECORD_BYTES_MAX, RecordEntry,
};
use crate::system::{clock_offset_ns, interface_index, link_address, now};
use crate::test_run::{self, TestContext, TestRun};

/// An index is not reused for so long after its removal: a processor may be about to write to its entry.
const INDEX_REST: Duration = Duration::from_millis(100);
/// An insertion fails if the key is there (`BPF_NOEXIST`).
const NO_EXIST: u64 = 1;

/// How to load the programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The most connections that are installed at once. Each takes about 430 bytes of the kernel's memory, from the
    /// beginning.
    pub connections_max: u32,
    /// The number of next hops, with indices from 0.
    pub next_hops_max: u32,
    /// The program forwards nothing once the last heartbeat is older than this.
    pub heartbeat_age_max: Duration,
    /// Where the program is attached.
    pub hook: Hook,
    /// At [`Hook::Tc`]: attach by tcx where the kernel has it, else by a clsact queueing discipline.
    pub allow_tcx: bool,
    /// Pin program, maps and links in this directory of bpffs, and take over what is pinned there. Without it, all ends with
    /// the process.
    pub pin_directory: Option<PathBuf>,
}

impl Default for Config {
    /// 65,536 connections, 256 next hops, heartbeats of one second, tc by tcx, no pins.
    fn default() -> Self {
        Self {
            connections_max: 65_536,
            next_hops_max: 256,
            heartbeat_age_max: Duration::from_secs(1),
            hook: Hook::Tc,
            allow_tcx: true,
            pin_directory: None,
        }
    }
}

/// An installed connection, until its removal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionIndex(pub u32);

/// What user space keeps of an installed connection.
#[derive(Clone, Copy, Debug)]
struct Installed {
    keys: [FlowKey; 2],
    /// As they were installed; after a take-over without the numbers, which are in the kernel.
    windows: Windows,
}

/// What keeps the program attached to an interface.
#[derive(Debug)]
enum Attachment {
    /// Until it is dropped.
    Own { _link: Link },
    /// Until the pin is removed.
    Pinned { _link: FdLink, pin: PathBuf },
}

/// The program in the kernel with its maps and attachments. Without [`Config::pin_directory`] all of it ends with the value.
pub struct FastPath {
    programs: Programs,
    hook: Hook,
    flows: HashMap<MapData, FlowKey, FlowValue>,
    next_hops: Array<MapData, NextHopEntry>,
    /// By index, where they are pinned.
    records: Array<MapData, RecordEntry>,
    counters: PerCpuArray<MapData, u64>,
    /// By interface.
    ports: HashMap<MapData, u32, PortEntry>,
    connections: Mapping<ConnectionCell>,
    control: Mapping<ControlCell>,
    /// By how much this process's clock is ahead of the program's, in two's complement.
    clock_offset_ns: u64,
    pins: Option<Pins>,
    allow_tcx: bool,
    attachments: BTreeMap<u32, Attachment>,
    /// By index.
    installed: Vec<Option<Installed>>,
    /// Indices that may be used again, with the times of their removal.
    released: VecDeque<(u32, Instant)>,
}

impl fmt::Debug for FastPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, hook, pins, allow_tcx, attachments, .. } = self;
        let installed = self.installed.iter().flatten().count();
        formatter
            .debug_struct("FastPath")
            .field("programs", programs)
            .field("hook", hook)
            .field("pins", pins)
            .field("allow_tcx", allow_tcx)
            .field("attachments", attachments)
            .field("installed", &installed)
            .finish_non_exhaustive()
    }
}

impl FastPath {
    /// Loads the programs, switched off and attached to nothing; or takes over what is pinned, as it is.
    ///
    /// # Errors
    /// Permission or memory is missing, the kernel is too old, its verifier refuses the program ([`Error::Verifier`] has its
    /// log), or the directory holds pins of another version or configuration.
    pub fn load(config: &Config) -> Result<Self, Error> {
        let Config { connections_max, next_hops_max, hook, .. } = *config;
        if connections_max == 0 || connections_max > u32::MAX / 2 || next_hops_max == 0 {
            return Err(Error::Misuse("a fast path has at least one connection and one next hop, at most 2^31".into()));
        }
        let records = if config.pin_directory.is_some() { connections_max } else { 1 };
        let sizes = Sizes { connections: connections_max, next_hops: next_hops_max, records };
        let pins = config.pin_directory.as_deref().map(Pins::new);
        let taken = pins.as_ref().map_or(Ok(None), |pins| pins.take_over(sizes, hook))?;
        let is_taken = taken.is_some();
        let (maps, mut programs) = match taken {
            Some(taken) => taken,
            None => pins::load(sizes, hook)?,
        };
        if let (Some(pins), false) = (&pins, is_taken) {
            pins.pin(&maps, &mut programs, hook)?;
        }
        let map = |error| Error::from_map(error, "opening the maps of the fast path");
        let mapped = |error| Error::from_io(error, "mapping the maps of the fast path");
        let mut new = Self {
            programs,
            hook,
            connections: Mapping::new(maps.connections.fd().as_fd(), connections_max).map_err(mapped)?,
            control: Mapping::new(maps.control.fd().as_fd(), 1).map_err(mapped)?,
            clock_offset_ns: clock_offset_ns(),
            flows: Map::HashMap(maps.flows).try_into().map_err(map)?,
            next_hops: Map::Array(maps.next_hops).try_into().map_err(map)?,
            records: Map::Array(maps.records).try_into().map_err(map)?,
            counters: Map::PerCpuArray(maps.counters).try_into().map_err(map)?,
            ports: Map::HashMap(maps.ports).try_into().map_err(map)?,
            pins,
            allow_tcx: config.allow_tcx,
            attachments: BTreeMap::new(),
            installed: Vec::new(),
            released: VecDeque::new(),
        };
        let age_max = u64::try_from(config.heartbeat_age_max.as_nanos()).unwrap_or(u64::MAX);
        new.control[0].heartbeat_age_max_ns.store(age_max, Relaxed);
        if is_taken {
            new.find_installed()?;
        }
        Ok(new)
    }

    /// The hook at which the program is attached.
    #[must_use]
    pub const fn hook(&self) -> Hook {
        self.hook
    }

    /// Attaches the program to an interface of the calling thread's namespace: to its ingress, before other programs there, or into its
    /// driver. A link that is pinned is taken over; one at the other hook is given up. An interface to which this value has attached the
    /// program already stays as it is, but at XDP its link address is read again: frames for another one go to user space.
    ///
    /// # Errors
    /// The interface does not exist, permission is missing, the driver refuses XDP ([`Error::Native`]), or a link by clsact is to be
    /// pinned, which only tcx allows.
    pub fn attach(&mut self, interface: &str) -> Result<(), Error> {
        let index = interface_index(interface)?;
        if self.hook == Hook::Xdp {
            self.set_link_address(index, link_address(interface)?)?;
        }
        if self.attachments.contains_key(&index) {
            return Ok(());
        }
        let Some(pins) = &self.pins else {
            let link = self.make_link(interface)?;
            self.attachments.insert(index, Attachment::Own { _link: link });
            return Ok(());
        };
        let other = if self.hook == Hook::Tc { Hook::Xdp } else { Hook::Tc };
        let (pin, other_pin) = (pins.link(self.hook, index), pins.link(other, index));
        let operation = attaching(interface);
        let taken = if pin.exists() { self.programs.take_over_link(self.hook, &pin, &operation)? } else { None };
        let link = match taken {
            Some(link) => link,
            None => {
                remove_pin(&pin)?;
                let link = self.make_link(interface)?.into_descriptor();
                let link = link.map_err(|error| Error::from_link(error, &operation))?;
                link.pin(&pin).map_err(|error| Error::from_pin(error, &operation))?.into()
            }
        };
        self.attachments.insert(index, Attachment::Pinned { _link: link, pin });
        // Of a process with another configuration.
        remove_pin(&other_pin)
    }

    /// Has the program for XDP know the link address of an interface: it leaves frames for any other. [`FastPath::attach`] does so.
    ///
    /// # Errors
    /// There are too many interfaces.
    pub fn set_link_address(&mut self, ifindex: u32, address: [u8; 6]) -> Result<(), Error> {
        let explain = |error| Error::from_map(error, "noting the link address of an interface");
        self.ports.insert(ifindex, PortEntry::new(address), 0).map_err(explain)
    }

    fn make_link(&mut self, interface: &str) -> Result<Link, Error> {
        match self.hook {
            Hook::Tc => self.programs.attach_tc(interface, self.allow_tcx, self.pins.is_some()),
            Hook::Xdp => self.programs.attach_xdp(interface),
        }
    }

    /// Detaches the program from an interface, by its index. Returns false if it was not attached there by this value.
    ///
    /// # Errors
    /// A pin cannot be removed.
    pub fn detach(&mut self, ifindex: u32) -> Result<bool, Error> {
        match self.attachments.remove(&ifindex) {
            None => Ok(false),
            Some(Attachment::Own { .. }) => Ok(true),
            Some(Attachment::Pinned { pin, .. }) => remove_pin(&pin).map(|()| true),
        }
    }

    /// Removes what an earlier process pinned in a directory, if there is such a directory: its program forwards nothing more as soon
    /// as the kernel has detached it, which it does by a work queue.
    ///
    /// # Errors
    /// A pin cannot be removed.
    pub fn remove_pins(directory: &Path) -> Result<(), Error> {
        if directory.exists() { Pins::new(directory).remove() } else { Ok(()) }
    }

    /// Switches the program on or off; off, all packets go to user space.
    pub fn set_enabled(&self, is_enabled: bool) {
        self.control[0].enabled.store(is_enabled.into(), Relaxed);
    }

    /// Gives the heartbeat; `now` is a time of [`crate::now`].
    pub fn beat(&self, now: Instant) {
        self.control[0].heartbeat_ns.store(self.in_kernel(now), Relaxed);
    }

    /// Until `until`, a time of [`crate::now`], the program forwards without heartbeats: for a planned restart of its loader.
    pub fn allow_without_heartbeat_until(&self, until: Instant) {
        self.control[0].allow_without_heartbeat_until_ns.store(self.in_kernel(until), Relaxed);
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
        let entry = hop.map_or_else(NextHopEntry::default, NextHopEntry::new);
        self.next_hops.set(index, entry, 0).map_err(|error| match error {
            MapError::OutOfBounds { max_entries, .. } => {
                Error::Misuse(format!("there is no next hop {index}: {max_entries} are configured"))
            }
            error => Error::from_map(error, "setting a next hop"),
        })
    }

    /// Installs a connection, in both directions or not at all.
    ///
    /// # Errors
    /// The plan is contradictory, a direction is installed already, or all places are taken.
    pub fn install(&mut self, plan: &Plan) -> Result<ConnectionIndex, Error> {
        self.install_with_record(plan, &[])
    }

    /// As [`FastPath::install`]. Where it is pinned, `record` describes the connection to a loader that takes over.
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
        self.connections[index as usize].reset(plan.windows.as_ref(), self.in_kernel(now));
        let generation = self.generation();
        let [original, reply] = [0, 1].map(|direction| FlowValue::new(plan, direction, index, generation));
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
    /// Those of [`FastPath::install`].
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

    /// Removes a connection. Returns what was seen of it, as [`FastPath::take`] does; `None` if it is not installed.
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
        let cell = &self.connections[connection.0 as usize];
        Some(Activity {
            last_packet_ns: cell.last_packet_ns.load(Relaxed).wrapping_add(self.clock_offset_ns),
            packets: [0, 1].map(|direction: usize| cell.packets[direction].load(Relaxed)),
            bytes: [0, 1].map(|direction: usize| cell.bytes[direction].load(Relaxed)),
            windows: installed.keys[0].is_tcp().then(|| cell.windows(&installed.windows)),
        })
    }

    /// As [`FastPath::read`]; packets and bytes are those since the last call of this method.
    #[must_use]
    pub fn take(&self, connection: ConnectionIndex) -> Option<Activity> {
        let activity = self.read(connection)?;
        let cell = &self.connections[connection.0 as usize];
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
        let record = |index: u32| self.records.get(&index, 0).map(|entry| entry.record().to_vec());
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
            self.connections[connection.0 as usize].raise(windows);
        }
        is_installed
    }

    /// Packets by outcome, of all processors.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn counters(&self) -> Result<Counters, Error> {
        let mut counters = Counters::default();
        for outcome in Outcome::ALL {
            let index = outcome as u32;
            let values = self.counters.get(&index, 0);
            let values = values.map_err(|error| Error::from_map(error, "reading counters of the fast path"))?;
            counters.0[index as usize] = values.iter().sum();
        }
        Ok(counters)
    }

    /// Runs the program on a frame that is not on any wire. It changes connections and counters as it would for a packet.
    ///
    /// # Errors
    /// The kernel refuses the frame (shorter than a link header, longer than a page) or the program's run.
    pub fn test_run(&self, frame: &[u8], context: TestContext) -> Result<TestRun, Error> {
        let operation = "running the program of the fast path on a frame";
        let program = self.programs.descriptor(self.hook)?;
        test_run::run(program, self.hook, frame, context).map_err(|error| Error::from_io(error, operation))
    }

    /// A time of this process as the program's clock has it, in nanoseconds. Both differ in another time namespace.
    const fn in_kernel(&self, time: Instant) -> u64 {
        time.as_nanos().wrapping_sub(self.clock_offset_ns)
    }

    fn installed(&self, connection: ConnectionIndex) -> Option<&Installed> {
        self.installed.get(connection.0 as usize)?.as_ref()
    }

    fn keep_record(&mut self, index: u32, record: &[u8]) -> Result<(), Error> {
        if self.pins.is_none() {
            return Ok(());
        }
        let entry = RecordEntry::new(record).ok_or_else(|| {
            Error::Misuse(format!("a record has at most {RECORD_BYTES_MAX} bytes, not {}", record.len()))
        })?;
        let kept = self.records.set(index, entry, 0);
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
        if self.installed.len() < self.connections.len() {
            self.installed.push(None);
            return Ok(self.installed.len() as u32 - 1);
        }
        Err(Error::Full { connections_max: self.connections.len() as u32 })
    }

    fn insert(&mut self, plan: &Plan, direction: usize, (key, value): (FlowKey, FlowValue)) -> Result<(), Error> {
        self.flows.insert(key, value, NO_EXIST).map_err(|error| {
            if is_errno(&error, libc::EEXIST) {
                return Error::Installed(plan.directions[direction].tuple.to_string());
            }
            Error::from_map(error, "installing a connection in the fast path")
        })
    }

    /// Finds the connections of the pinned maps. One direction without the other is removed: its loader ended in between.
    fn find_installed(&mut self) -> Result<(), Error> {
        let explain = |error| Error::from_map(error, "reading the pinned connections of the fast path");
        let entries: Vec<_> = self.flows.iter().collect::<Result<_, _>>().map_err(explain)?;
        let mut found: BTreeMap<u32, [Option<(FlowKey, FlowValue)>; 2]> = BTreeMap::new();
        for (key, value) in entries {
            found.entry(value.connection).or_default()[usize::from(value.direction & 1)] = Some((key, value));
        }
        let end = found.last_key_value().map_or(0, |(last, _)| last + 1).min(self.connections.len() as u32);
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
