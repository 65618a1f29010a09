//! A study that is interrupted goes on where it was, and finds the same.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mainstay-study-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn json(result: &RedundancyResult) -> String {
    serde_json::to_string_pretty(result).expect("figures are written")
}

/// Text and random bytes, some of them retransmit: something for every job to find.
fn mixed(_: &Site) -> Made {
    let mut made = Made::default();
    for number in 0..600 {
        let mut payload = random(number % 150, 700);
        payload.extend_from_slice(format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{:03}", number % 7).as_bytes());
        let client = format!("10.0.0.{}:4{:03}", 1 + number % 3, number % 11);
        made.tcp(number * 37, SERVER, &client, &payload);
    }
    made
}

#[test]
fn an_interrupted_study_goes_on_and_finds_the_same_to_the_byte() {
    let folder = Folder::new("goes-on");
    let sites = [site("one"), site("two")];
    // Little memory: many turns, so that there is something to go on from.
    let options = Options { memory_bytes: 64 << 20, ..options() };
    let whole = json(&study_with(&options, &sites, &mut State::in_memory(), mixed));

    let opened = AtomicUsize::new(0);
    let open = |site: &Site| {
        opened.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(MadeSource::new(mixed(site))) as Box<dyn Source>)
    };
    let stop = AtomicBool::new(false);
    let stops_in_the_middle = |progress: &Progress| {
        if progress.site == 1 && progress.jobs_finished > 0 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let watch = Watch { progress: &stops_in_the_middle, stop: &stop };
    let mut state = State::open(&folder.0, "of-this").expect("the folder is there");
    assert!(matches!(run(&sites, &options, &mut state, &open, &watch), Err(StudyError::Stopped)));
    drop(state);
    let opened_first = opened.swap(0, Ordering::Relaxed);

    // As a kill in the middle of writing leaves it.
    let path = State::path(&folder.0, "of-this");
    let mut file = OpenOptions::new().append(true).open(&path).expect("it is there");
    file.write_all(b"{\"site\":1,\"job\":\"ledger\",\"outco").expect("it can be written");
    drop(file);

    let watch = Watch { progress: &|_| {}, stop: &AtomicBool::new(false) };
    let mut state = State::open(&folder.0, "of-this").expect("the rest is whole");
    let resumed = state.resumed();
    assert!(resumed > 0, "something was finished before");
    let left_out = run(&sites, &options, &mut state, &open, &watch).expect("nothing stops it");
    assert!(opened.load(Ordering::Relaxed) > 0 && opened_first > 1);
    assert_eq!(json(&RedundancyResult::new(&sites, &options, &state, &left_out)), whole);
    drop(state);

    // And once it is whole, nothing is read retransmit.
    opened.store(0, Ordering::Relaxed);
    let mut state = State::open(&folder.0, "of-this").expect("it is whole");
    let left_out = run(&sites, &options, &mut state, &open, &watch).expect("nothing is to be done");
    assert_eq!(opened.load(Ordering::Relaxed), 0);
    assert_eq!(json(&RedundancyResult::new(&sites, &options, &state, &left_out)), whole);
}

#[test]
fn threads_and_turns_change_nothing_in_what_is_found() {
    let one = Options { threads: NonZeroUsize::MIN, ..options() };
    let three = Options { threads: NonZeroUsize::new(3).expect("three"), ..options() };
    let [one, three] = [one, three]
        .map(|options| json(&study_with(&options, &[site("one"), site("two")], &mut State::in_memory(), mixed)));
    assert_eq!(one, three);
}

#[test]
fn two_studies_do_not_write_one_state() {
    let folder = Folder::new("two");
    let first = State::open(&folder.0, "same").expect("the folder is there");
    assert!(matches!(State::open(&folder.0, "same"), Err(StudyError::InUse(_))));
    assert!(State::open(&folder.0, "other").is_ok());
    drop(first);
    assert!(State::open(&folder.0, "same").is_ok());
}

#[test]
fn other_captures_and_other_options_are_another_study() {
    let folder = Folder::new("digest");
    let path = folder.0.join("capture");
    let digest = |options: &Options| digest_of(&[Site::of(vec![path.clone()])], options).expect("it can be read");
    std::fs::write(&path, [1; 100]).expect("it can be written");
    let first = digest(&options());
    assert_eq!(first, digest(&Options { threads: NonZeroUsize::MIN, ..options() }), "threads change nothing");
    assert_ne!(first, digest(&Options { cache_bytes: 1 << 21, ..options() }));
    std::fs::write(&path, [2; 100]).expect("it can be written");
    assert_ne!(first, digest(&options()));
    assert!(digest_of(&[site("/nowhere")], &options()).is_err());
}
