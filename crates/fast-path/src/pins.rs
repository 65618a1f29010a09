//! The maps and the program in the kernel: made from the object, or taken over from a directory of bpffs where they are
//! pinned.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use aya::maps::{Map, MapData};
use aya::programs::{ProgramError, SchedClassifier};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};

use crate::Error;
use crate::outcome::Outcome;
use crate::shapes::{ConnectionCell, ControlCell, FlowKey, FlowValue, NextHopEntry, RecordEntry};

/// The compiled program, which `cargo run -p xtask -- bpf` makes of `bpf/fast_path.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../object/fast_path.o");
/// The program's name in the object, and that of its pin.
const PROGRAM: &str = "fast_path";
/// The pin that is made last: with it, all others are there.
const PROGRAM_PIN: &str = "program";

/// The maps.
pub(crate) struct Maps {
    pub(crate) flows: MapData,
    pub(crate) connections: MapData,
    pub(crate) next_hops: MapData,
    pub(crate) records: MapData,
    pub(crate) control: MapData,
    pub(crate) counters: MapData,
}

/// Another handle of a map.
pub(crate) fn handle(map: &MapData) -> Result<MapData, Error> {
    let operation = "opening the maps of the fast path";
    let descriptor = map.fd().as_fd().try_clone_to_owned().map_err(|error| Error::from_io(error, operation))?;
    MapData::from_fd(descriptor).map_err(|error| Error::from_map(error, operation))
}

/// The loaded program.
#[derive(Debug)]
pub(crate) enum Program {
    /// Of this process.
    Own(Ebpf),
    /// Pinned.
    Pinned(Box<SchedClassifier>),
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
    const fn shapes(self) -> [Shape; 6] {
        [
            ("flows", size_of::<FlowKey>(), size_of::<FlowValue>(), self.connections * 2),
            ("connections", 4, size_of::<ConnectionCell>(), self.connections),
            ("next_hops", 4, size_of::<NextHopEntry>(), self.next_hops),
            ("records", 4, size_of::<RecordEntry>(), self.records),
            ("control", 4, size_of::<ControlCell>(), 1),
            ("counters", 4, 8, Outcome::ALL.len() as u32),
        ]
    }
}

impl Program {
    /// The program's descriptor.
    pub(crate) fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        let missing = |error: ProgramError| Error::from_program(error, "finding the program in its object");
        let program: &SchedClassifier = match self {
            Self::Pinned(program) => program,
            Self::Own(ebpf) => {
                let program = ebpf.program(PROGRAM).ok_or(ProgramError::UnexpectedProgramType);
                program.and_then(TryInto::try_into).map_err(missing)?
            }
        };
        program.fd().map(AsFd::as_fd).map_err(missing)
    }

    pub(crate) fn classifier(&mut self) -> Result<&mut SchedClassifier, Error> {
        let missing = |error: ProgramError| Error::from_program(error, "finding the program in its object");
        match self {
            Self::Pinned(program) => Ok(program),
            Self::Own(ebpf) => {
                let program = ebpf.program_mut(PROGRAM).ok_or(ProgramError::UnexpectedProgramType);
                program.and_then(TryInto::try_into).map_err(missing)
            }
        }
    }
}

/// Loads the program with its maps into the kernel.
pub(crate) fn load(sizes: Sizes) -> Result<(Maps, Program), Error> {
    let shapes = sizes.shapes();
    let mut loader = EbpfLoader::new();
    // The log is written only if the verifier refuses, and then lists every step.
    loader.verifier_log_level(VerifierLogLevel::VERBOSE | VerifierLogLevel::STATS);
    for (name, _, _, entries) in &shapes[..4] {
        loader.set_max_entries(name, *entries);
    }
    let mut ebpf = loader.load(OBJECT).map_err(|error| Error::from_ebpf(error, "making the maps of the fast path"))?;
    let mut take = |(name, ..): &Shape| {
        let missing = || Error::Misuse(format!("the object of the fast path has no map {name}"));
        match ebpf.take_map(name) {
            Some(Map::HashMap(map) | Map::Array(map) | Map::PerCpuArray(map)) => Ok(map),
            _ => Err(missing()),
        }
    };
    let [flows, connections, next_hops, records, control, counters] = &shapes;
    let maps = Maps {
        flows: take(flows)?,
        connections: take(connections)?,
        next_hops: take(next_hops)?,
        records: take(records)?,
        control: take(control)?,
        counters: take(counters)?,
    };
    maps.check(sizes, Path::new("the object of the fast path"))?;
    let mut program = Program::Own(ebpf);
    program.classifier()?.load().map_err(|error| Error::from_program(error, "loading the program of the fast path"))?;
    Ok((maps, program))
}

impl Maps {
    const fn all(&self) -> [&MapData; 6] {
        [&self.flows, &self.connections, &self.next_hops, &self.records, &self.control, &self.counters]
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

    /// The pin of the link to an interface.
    pub(crate) fn link(&self, ifindex: u32) -> PathBuf {
        self.directory.join(format!("link-{ifindex}"))
    }

    /// Takes over what is pinned. `None`: nothing is, or its pinning was not finished.
    pub(crate) fn take_over(&self, sizes: Sizes) -> Result<Option<(Maps, Program)>, Error> {
        let path = self.directory.join(PROGRAM_PIN);
        if !path.exists() {
            return Ok(None);
        }
        let operation = |path: &Path| format!("taking over {}", path.display());
        let pinned = SchedClassifier::from_pin(&path).map_err(|error| Error::from_program(error, operation(&path)))?;
        self.check_version(&pinned)?;
        let open = |name: &str| {
            let path = self.directory.join(name);
            MapData::from_pin(&path).map_err(|error| Error::from_map(error, operation(&path)))
        };
        let [flows, connections, next_hops, records, control, counters] = sizes.shapes().map(|(name, ..)| open(name));
        let maps = Maps {
            flows: flows?,
            connections: connections?,
            next_hops: next_hops?,
            records: records?,
            control: control?,
            counters: counters?,
        };
        maps.check(sizes, &self.directory)?;
        Ok(Some((maps, Program::Pinned(Box::new(pinned)))))
    }

    /// Checks that the pinned program is this crate's: the kernel's digest of its instructions is the same.
    fn check_version(&self, pinned: &SchedClassifier) -> Result<(), Error> {
        let tag = |program: &SchedClassifier| {
            program.info().map(|info| info.tag()).map_err(|error| Error::from_program(error, "asking about a program"))
        };
        let (_maps, mut own) = load(Sizes::ONE)?;
        if tag(own.classifier()?)? != tag(pinned)? {
            let detail = "its program is of another version".to_owned();
            return Err(Error::Pins { path: self.directory.clone(), detail });
        }
        Ok(())
    }

    /// Pins maps and program, the program last.
    pub(crate) fn pin(&self, maps: &Maps, program: &mut Program) -> Result<(), Error> {
        let operation = |path: &Path| {
            format!("pinning {} (the directory must be on a mounted bpffs, as /sys/fs/bpf is)", path.display())
        };
        fs::create_dir_all(&self.directory).map_err(|error| Error::from_io(error, operation(&self.directory)))?;
        self.remove()?;
        let names = Sizes::ONE.shapes().map(|(name, ..)| name);
        for (name, map) in names.into_iter().zip(maps.all()) {
            let path = self.directory.join(name);
            map.pin(&path).map_err(|error| Error::from_pin(error, operation(&path)))?;
        }
        let path = self.directory.join(PROGRAM_PIN);
        program.classifier()?.pin(&path).map_err(|error| Error::from_pin(error, operation(&path)))
    }

    /// Removes all pins, the program's first. Links that only their pins hold are detached.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let explain = |error: io::Error, path: &Path| Error::from_io(error, format!("removing {}", path.display()));
        let mut paths = vec![self.directory.join(PROGRAM_PIN)];
        let entries = fs::read_dir(&self.directory).map_err(|error| explain(error, &self.directory))?;
        paths.extend(entries.flatten().map(|entry| entry.path()));
        for path in paths {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(explain(error, &path)),
                _ => {}
            }
        }
        Ok(())
    }
}
