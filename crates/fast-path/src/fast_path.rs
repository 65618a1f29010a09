//! The loaded program, its maps and its attachments.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, PerCpuArray};
use aya::programs::links::FdLink;
use flow::fast_path::Hook;

use crate::Error;
use crate::outcome::{Counters, Outcome};
use crate::pins::{self, Maps, Pins, Sizes};
use crate::programs::{Link, Programs, attaching, remove_pin};
use crate::shapes::PortEntry;
use crate::share::{Indices, Share};
use crate::system::{interface_index, link_address};
use crate::test_run::{self, TestContext, TestRun};

/// How to load the programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The most connections that are installed at once. Each takes about 430 bytes of the kernel's memory, from the
    /// beginning.
    pub connections_max: u32,
    /// The number of next hops, with indices from 0.
    pub next_hops_max: u32,
    /// Packets are bridged: they keep all but their destination link address ([`NextHop::bridged`](flow::fast_path::NextHop::bridged)),
    /// and are forwarded whatever host they are for. Else they are routed.
    pub is_bridged: bool,
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
    /// 65,536 connections, 256 next hops, routed, heartbeats of one second, tc by tcx, no pins.
    fn default() -> Self {
        Self {
            connections_max: 65_536,
            next_hops_max: 256,
            is_bridged: false,
            heartbeat_age_max: Duration::from_secs(1),
            hook: Hook::Tc,
            allow_tcx: true,
            pin_directory: None,
        }
    }
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
///
/// It dereferences to its [`Share`] of the maps, which is all of them unless they were [divided](FastPath::divide).
pub struct FastPath {
    programs: Programs,
    hook: Hook,
    maps: Maps,
    share: Share,
    counters: PerCpuArray<MapData, u64>,
    /// By interface.
    ports: HashMap<MapData, u32, PortEntry>,
    pins: Option<Pins>,
    allow_tcx: bool,
    attachments: BTreeMap<u32, Attachment>,
}

impl Deref for FastPath {
    type Target = Share;

    fn deref(&self) -> &Share {
        &self.share
    }
}

impl DerefMut for FastPath {
    fn deref_mut(&mut self) -> &mut Share {
        &mut self.share
    }
}

impl fmt::Debug for FastPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, hook, pins, allow_tcx, attachments, .. } = self;
        formatter
            .debug_struct("FastPath")
            .field("programs", programs)
            .field("hook", hook)
            .field("pins", pins)
            .field("allow_tcx", allow_tcx)
            .field("attachments", attachments)
            .finish_non_exhaustive()
    }
}

impl FastPath {
    /// Loads the programs, switched off and attached to nothing; or takes over what is pinned, as it is.
    ///
    /// # Errors
    /// Permission or memory is missing, the kernel is too old, its verifier refuses the program ([`Error::Verifier`] has the end
    /// of its log), or the directory holds pins of another version or configuration.
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
        let age_max = u64::try_from(config.heartbeat_age_max.as_nanos()).unwrap_or(u64::MAX);
        let (places, hops) = (Indices { first: 0, count: connections_max }, Indices { first: 0, count: next_hops_max });
        let mut share = Share::new(&maps, places, hops, pins.is_some())?;
        share.set_heartbeat_age_max(age_max);
        share.set_bridged(config.is_bridged);
        if is_taken {
            share.find_installed()?;
        }
        let explain = |error| Error::from_map(error, "opening the maps of the fast path");
        Ok(Self {
            programs,
            hook,
            counters: Map::PerCpuArray(pins::handle(&maps.counters)?).try_into().map_err(explain)?,
            ports: Map::HashMap(pins::handle(&maps.ports)?).try_into().map_err(explain)?,
            maps,
            share,
            pins,
            allow_tcx: config.allow_tcx,
            attachments: BTreeMap::new(),
        })
    }

    /// Divides connections and next hops into equal shares, for threads of their own. This value keeps the first; the others
    /// are returned. Before anything is installed.
    ///
    /// # Errors
    /// There are fewer connections or next hops than shares, something is installed, pins are configured (a loader that
    /// takes over does not know the shares), or the kernel refuses.
    pub fn divide(&mut self, shares: u8) -> Result<Vec<Share>, Error> {
        let (parts, [places, hops]) = (u32::from(shares), self.share.indices());
        if parts == 0 || places.count < parts || hops.count < parts || !self.share.is_unused() || self.pins.is_some() {
            return Err(Error::Misuse(format!(
                "a fast path with connections or pins cannot be divided into {shares} shares"
            )));
        }
        let part = |number| (places.part(number, parts), hops.part(number, parts));
        let new = |number| {
            let (places, hops) = part(number);
            Share::new(&self.maps, places, hops, false)
        };
        let others = (1..parts).map(new).collect::<Result<Vec<_>, _>>()?;
        let (places, hops) = part(0);
        self.share.narrow(places, hops);
        Ok(others)
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
}
