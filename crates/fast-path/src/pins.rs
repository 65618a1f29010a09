//! The maps and the programs in the kernel: made from the object, or taken over from a directory of bpffs where they are
//! pinned.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use aya::maps::{Map, MapData};
use aya::{EbpfLoader, VerifierLogLevel};
use flow::fast_path::Hook;

use crate::Error;
use crate::outcome::Outcome;
use crate::programs::{Programs, remove_pin};
use crate::shapes::{ConnectionCell, ControlCell, FlowKey, FlowValue, NextHopEntry, PORTS_MAX, PortEntry, RecordEntry};

/// The compiled programs, which `cargo run -p xtask -- bpf` makes of `bpf/fast_path.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../object/fast_path.o");
/// The pin of the program for tc, which is made last: with it, all others are there.
const TC_PIN: &str = "program";
/// The pin of the program for XDP.
const XDP_PIN: &str = "program-xdp";

/// The maps.
pub(crate) struct Maps {
    pub(crate) flows: MapData,
    pub(crate) connections: MapData,
    pub(crate) next_hops: MapData,
    pub(crate) records: MapData,
    pub(crate) control: MapData,
    pub(crate) counters: MapData,
    pub(crate) ports: MapData,
}

/// Another handle of a map.
pub(crate) fn handle(map: &MapData) -> Result<MapData, Error> {
    let operation = "opening the maps of the fast path";
    let descriptor = map.fd().as_fd().try_clone_to_owned().map_err(|error| Error::from_io(error, operation))?;
    MapData::from_fd(descriptor).map_err(|error| Error::from_map(error, operation))
}

/// How many entries the maps have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    pub(crate) connections: u32,
    pub(crate) next_hops: u32,
    /// As many as connections where they are pinned.
    pub(crate) records: u32,
}

/// A map: its name, and the bytes of keys and values and the number of entries that it must have.
type Shape = (&'static str, usize, usize, u32);

impl Sizes {
    /// The smallest.
    const ONE: Self = Self { connections: 1, next_hops: 1, records: 1 };

    /// The maps in the order of [`Maps::all`].
    const fn shapes(self) -> [Shape; 7] {
        [
            ("flows", size_of::<FlowKey>(), size_of::<FlowValue>(), self.connections * 2),
            ("connections", 4, size_of::<ConnectionCell>(), self.connections),
            ("next_hops", 4, size_of::<NextHopEntry>(), self.next_hops),
            ("records", 4, size_of::<RecordEntry>(), self.records),
            ("control", 4, size_of::<ControlCell>(), 1),
            ("counters", 4, 8, Outcome::ALL.len() as u32),
            ("ports", 4, size_of::<PortEntry>(), PORTS_MAX),
        ]
    }
}

/// Loads the programs with their maps into the kernel: that for tc, and for the hook XDP that for XDP, too.
pub(crate) fn load(sizes: Sizes, hook: Hook) -> Result<(Maps, Programs), Error> {
    load_object(OBJECT, sizes, hook)
}

fn load_object(object: &[u8], sizes: Sizes, hook: Hook) -> Result<(Maps, Programs), Error> {
    let shapes = sizes.shapes();
    let mut loader = EbpfLoader::new();
    // The log is written only if the verifier refuses, and then lists every step.
    loader.verifier_log_level(VerifierLogLevel::VERBOSE | VerifierLogLevel::STATS);
    for (name, _, _, entries) in &shapes[..4] {
        loader.set_max_entries(name, *entries);
    }
    let mut ebpf = loader.load(object).map_err(|error| Error::from_ebpf(error, "making the maps of the fast path"))?;
    let mut take = |(name, ..): &Shape| {
        let missing = || Error::Misuse(format!("the object of the fast path has no map {name}"));
        match ebpf.take_map(name) {
            Some(Map::HashMap(map) | Map::Array(map) | Map::PerCpuArray(map)) => Ok(map),
            _ => Err(missing()),
        }
    };
    let [flows, connections, next_hops, records, control, counters, ports] = &shapes;
    let maps = Maps {
        flows: take(flows)?,
        connections: take(connections)?,
        next_hops: take(next_hops)?,
        records: take(records)?,
        control: take(control)?,
        counters: take(counters)?,
        ports: take(ports)?,
    };
    maps.check(sizes, Path::new("the object of the fast path"))?;
    let mut programs = Programs::Own(ebpf);
    programs.load(Hook::Tc)?;
    if hook == Hook::Xdp {
        programs.load(Hook::Xdp)?;
    }
    Ok((maps, programs))
}

impl Maps {
    const fn all(&self) -> [&MapData; 7] {
        let Self { flows, connections, next_hops, records, control, counters, ports } = self;
        [flows, connections, next_hops, records, control, counters, ports]
    }

    /// Checks that the maps have the shapes that this crate reads and writes.
    fn check(&self, sizes: Sizes, path: &Path) -> Result<(), Error> {
        for ((name, key_bytes, value_bytes, entries), map) in sizes.shapes().into_iter().zip(self.all()) {
            let info = map.info().map_err(|error| Error::from_map(error, format!("asking about the map {name}")))?;
            let found = (info.key_size() as usize, info.value_size() as usize, info.max_entries());
            if found != (key_bytes, value_bytes, entries) {
                let detail = format!(
                    "the map {name} has {} entries of {} and {} bytes instead of {entries} of {key_bytes} and {value_bytes}",
                    found.2, found.0, found.1
                );
                return Err(Error::Pins { path: path.into(), detail });
            }
        }
        Ok(())
    }
}

/// A directory of bpffs with the pins of one fast path.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    directory: PathBuf,
}

impl Pins {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.into() }
    }

    /// The pin of the link to an interface at a hook.
    pub(crate) fn link(&self, hook: Hook, ifindex: u32) -> PathBuf {
        self.directory.join(match hook {
            Hook::Tc => format!("link-{ifindex}"),
            Hook::Xdp => format!("link-xdp-{ifindex}"),
        })
    }

    /// Takes over what is pinned. `None`: nothing is, or its pinning was not finished.
    pub(crate) fn take_over(&self, sizes: Sizes, hook: Hook) -> Result<Option<(Maps, Programs)>, Error> {
        let [tc, xdp] = [TC_PIN, XDP_PIN].map(|name| self.directory.join(name));
        if !tc.exists() {
            return Ok(None);
        }
        let xdp = (hook == Hook::Xdp).then_some(xdp);
        if xdp.as_ref().is_some_and(|pin| !pin.exists()) {
            return Err(self.other("the program for XDP is missing"));
        }
        let programs = Programs::from_pins(&tc, xdp.as_deref());
        let programs = programs.map_err(|error| Error::from_program(error, taking_over(&tc)))?;
        self.check_version(hook, &programs)?;
        let open = |name: &str| {
            let path = self.directory.join(name);
            MapData::from_pin(&path).map_err(|error| Error::from_map(error, taking_over(&path)))
        };
        let [flows, connections, next_hops, records, control, counters, ports] =
            sizes.shapes().map(|(name, ..)| open(name));
        let maps = Maps {
            flows: flows?,
            connections: connections?,
            next_hops: next_hops?,
            records: records?,
            control: control?,
            counters: counters?,
            ports: ports?,
        };
        maps.check(sizes, &self.directory)?;
        Ok(Some((maps, programs)))
    }

    fn other(&self, detail: &str) -> Error {
        Error::Pins { path: self.directory.clone(), detail: detail.to_owned() }
    }

    /// Checks that the pinned programs are this crate's: the kernel's digests of their instructions are the same.
    fn check_version(&self, hook: Hook, pinned: &Programs) -> Result<(), Error> {
        let (_maps, own) = load(Sizes::ONE, hook)?;
        for hook in hooks(hook) {
            if own.tag(*hook)? != pinned.tag(*hook)? {
                return Err(self.other("its program is of another version"));
            }
        }
        Ok(())
    }

    /// Pins maps and programs, the program for tc last.
    pub(crate) fn pin(&self, maps: &Maps, programs: &mut Programs, hook: Hook) -> Result<(), Error> {
        fs::create_dir_all(&self.directory).map_err(|error| Error::from_io(error, pinning(&self.directory)))?;
        self.remove()?;
        let names = Sizes::ONE.shapes().map(|(name, ..)| name);
        for (name, map) in names.into_iter().zip(maps.all()) {
            let path = self.directory.join(name);
            map.pin(&path).map_err(|error| Error::from_pin(error, pinning(&path)))?;
        }
        for hook in hooks(hook) {
            let path = self.directory.join(if *hook == Hook::Tc { TC_PIN } else { XDP_PIN });
            programs.pin(*hook, &path, &pinning(&path))?;
        }
        Ok(())
    }

    /// Removes all pins, that of the program for tc first. Links that only their pins hold are detached.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let mut paths = vec![self.directory.join(TC_PIN)];
        let entries = fs::read_dir(&self.directory)
            .map_err(|error| Error::from_io(error, format!("removing {}", self.directory.display())))?;
        paths.extend(entries.flatten().map(|entry| entry.path()));
        paths.iter().try_for_each(|path| remove_pin(path))
    }
}

/// The hooks whose programs are loaded where this one is asked for, that for tc last.
const fn hooks(hook: Hook) -> &'static [Hook] {
    match hook {
        Hook::Tc => &[Hook::Tc],
        Hook::Xdp => &[Hook::Xdp, Hook::Tc],
    }
}

fn taking_over(path: &Path) -> String {
    format!("taking over {}", path.display())
}

fn pinning(path: &Path) -> String {
    format!("pinning {} (the directory must be on a mounted bpffs, as /sys/fs/bpf is)", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object whose last program, that for XDP, has no exit.
    fn endless_object() -> Vec<u8> {
        const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
        const MOVE: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];
        let mut object = OBJECT.to_vec();
        let last = object.chunks_exact_mut(8).rfind(|instruction| **instruction == EXIT);
        last.expect("programs end").copy_from_slice(&MOVE);
        object
    }

    #[test]
    fn the_verifiers_log_of_the_program_for_xdp_is_in_the_error() {
        let object = endless_object();
        if let Err(error) = load(Sizes::ONE, Hook::Xdp) {
            // As in a container.
            assert!(matches!(error, Error::NotPermitted { .. } | Error::Unsupported { .. }), "{error}");
            return;
        }
        load_object(&object, Sizes::ONE, Hook::Tc).expect("the program for tc is whole");
        let Err(Error::Verifier { log, .. }) = load_object(&object, Sizes::ONE, Hook::Xdp) else {
            panic!("the verifier accepts a program without an exit")
        };
        // The reason, and how many steps there were.
        assert!(log.contains("infinite loop") && log.contains("processed"), "{log}");
    }
}
