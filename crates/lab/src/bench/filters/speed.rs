//! How fast the structures are, and how large.

use std::hint::black_box;

use packet_io::usage::thread_cpu_time;

use super::keys::key;
use super::subjects::{self, Fuse, SUBJECTS, Subjects, Visit};
use crate::args::BenchFiltersArgs;
use crate::bench::BenchError;
use crate::bench::rounds::{self, Rounds};
use console::Progress;

/// The part of the items that is removed, inserted and changed in a round.
const CHANGED_DIVISOR: usize = 16;
/// The part of the keys that are looked up before a round's lookups are timed: so many that they fetch a structure back into the caches
/// that others have pushed it out of.
const WARMING_DIVISOR: usize = 8;
/// Keys whose insertions are counted by the words that they change.
const COUNTED_KEYS: usize = 4096;
/// Keys that are not in FA(4,8), for the share of those that are found: so many that a few are expected to be.
const FALSE_POSITIVE_TESTS: u64 = 20_000_000;

/// The keys that all structures hold, and others that none of them does.
pub(super) struct Keys {
    /// In the order of their insertion.
    pub(super) held: Vec<u64>,
    /// The same in another order.
    hits: Vec<u64>,
    misses: Vec<u64>,
}

impl Keys {
    pub(super) fn new(items: u64) -> Self {
        let held: Vec<u64> = (0..items).map(key).collect();
        let mut hits = held.clone();
        shuffle(&mut hits);
        Self { held, hits, misses: (items..2 * items).map(key).collect() }
    }
}

/// Puts keys into an order that is the same at each run.
pub(super) fn shuffle(keys: &mut [u64]) {
    for index in (1..keys.len()).rev() {
        keys.swap(index, key(!(index as u64)) as usize % (index + 1));
    }
}

/// What is measured of one structure, in nanoseconds an operation.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) name: &'static str,
    pub(super) hit: Rounds,
    pub(super) miss: Rounds,
    pub(super) insert: Rounds,
    pub(super) modify: Rounds,
    pub(super) remove: Rounds,
    pub(super) bytes_per_item: f64,
    /// The share of keys found that are not in it.
    pub(super) false_positive: f64,
    /// Words that an insertion into the filled structure changes; nothing of one that does not count them.
    pub(super) words_per_insert: Option<f64>,
}

/// All that is measured.
#[derive(Default)]
pub(super) struct Speed {
    pub(super) subjects: [Figures; SUBJECTS],
    pub(super) fuse: Figures,
}

pub(super) fn measure(args: &BenchFiltersArgs, progress: &Progress, keys: &Keys) -> Result<Speed, BenchError> {
    let mut speed = Speed::default();
    let mut subjects = Subjects::new(args.items)?;
    progress.show("filling");
    subjects.each(|index, subject| fill(subject, keys, &mut speed.subjects[index]))?;
    subjects.first_available.stop_counting();
    subjects.with_auxiliary.stop_counting();
    subjects.least_load.stop_counting();
    subjects.d_left.stop_counting();
    subjects.counting_bloom.stop_counting();
    subjects.cuckoo.stop_counting();
    subjects.exact.stop_counting();
    speed.subjects[0].false_positive = false_positive(&subjects.first_available, args.items);

    let fuse = Fuse::new(&keys.held)?;
    speed.fuse.name = "binary_fuse8";
    speed.fuse.bytes_per_item = fuse.bytes() as f64 / keys.held.len() as f64;
    speed.fuse.false_positive = fuse.count(&keys.misses) as f64 / keys.misses.len() as f64;
    rounds::repeat(progress, "speed", args.rounds, |_| {
        black_box(fuse.count(&keys.misses[..keys.misses.len() / WARMING_DIVISOR]));
        speed.fuse.hit.push(nanos_each(&keys.hits, |keys| fuse.count(keys)).0);
        speed.fuse.miss.push(nanos_each(&keys.misses, |keys| fuse.count(keys)).0);
        subjects.each(|index, subject| pass(subject, keys, &mut speed.subjects[index]))
    })?;
    Ok(speed)
}

fn fill(subject: &mut dyn Visit, keys: &Keys, figures: &mut Figures) -> Result<(), BenchError> {
    let name = subject.name();
    figures.name = name;
    let items = keys.held.len();
    carried_out(name, "inserting", subject.insert_all(&keys.held, 1), items)?;
    figures.bytes_per_item = subject.bytes() as f64 / items as f64;
    figures.false_positive = subject.count(&keys.misses) as f64 / items as f64;
    // The last of them once more, into a structure that is as full as it is going to be. A few at a time: a word that
    // changes twice meanwhile is counted once.
    let last = &keys.held[items - COUNTED_KEYS.min(items / CHANGED_DIVISOR)..];
    carried_out(name, "removing", subject.remove_all(last), last.len())?;
    subject.words_changed();
    let mut words = Some(0);
    for keys in last.chunks(32) {
        carried_out(name, "inserting", subject.insert_all(keys, 1), keys.len())?;
        words = words.zip(subject.words_changed()).map(|(words, changed)| words + changed);
    }
    figures.words_per_insert = words.map(|words| words as f64 / last.len() as f64);
    Ok(())
}

fn pass(subject: &mut dyn Visit, keys: &Keys, figures: &mut Figures) -> Result<(), BenchError> {
    let name = subject.name();
    black_box(subject.count(&keys.misses[..keys.misses.len() / WARMING_DIVISOR]));
    let (nanos, hits) = nanos_each(&keys.hits, |keys| subject.count(keys));
    carried_out(name, "looking up", hits, keys.hits.len())?;
    figures.hit.push(nanos);
    figures.miss.push(nanos_each(&keys.misses, |keys| subject.count(keys)).0);
    let some = &keys.hits[..keys.hits.len() / CHANGED_DIVISOR];
    for (figures, what, operation) in [
        (&mut figures.modify, "changing", Operation::Modify),
        (&mut figures.remove, "removing", Operation::Remove),
        (&mut figures.insert, "inserting", Operation::Insert),
    ] {
        let (nanos, done) = nanos_each(some, |keys| match operation {
            Operation::Modify => subject.modify_all(keys, 2),
            Operation::Remove => subject.remove_all(keys),
            Operation::Insert => subject.insert_all(keys, 1),
        });
        carried_out(name, what, done, some.len())?;
        figures.push(nanos);
    }
    Ok(())
}

enum Operation {
    Modify,
    Remove,
    Insert,
}

/// What each of `keys` takes, and what came of all.
pub(super) fn nanos_each(keys: &[u64], work: impl FnOnce(&[u64]) -> u64) -> (f64, u64) {
    let began = thread_cpu_time();
    let done = black_box(work(black_box(keys)));
    let spent = thread_cpu_time().saturating_sub(began);
    (spent.as_secs_f64() * 1e9 / keys.len() as f64, done)
}

pub(super) fn carried_out(name: &str, what: &str, done: u64, expected: usize) -> Result<(), BenchError> {
    let expected = expected as u64;
    if done == expected {
        Ok(())
    } else {
        Err(BenchError::Filtered { what: format!("{name}, {what}"), done, expected })
    }
}

/// The share of keys found that are not there, of many more than there are items.
fn false_positive(subject: &impl subjects::Subject, items: u64) -> f64 {
    let others = 2 * items..2 * items + FALSE_POSITIVE_TESTS;
    let found = others.filter(|number| subject.contains(key(*number))).count();
    found as f64 / FALSE_POSITIVE_TESTS as f64
}
