//! `mainstay study redundancy` as an operator runs it: files, a pipe, and a kill in the middle.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::program::{Folder, mainstay};
use analysis::synthesis::redundancy::{RedundancyConfig, RedundancyTraffic};
use serde_json::Value;

/// A capture of traffic of which two fifths were sent before.
fn capture(folder: &Folder, name: &str, seed: u64) -> PathBuf {
    let path = folder.join(name);
    let config = RedundancyConfig {
        redundancy: 0.4,
        bits_per_second: 10e6,
        duration: Duration::from_secs(2),
        encrypted_share: 0.0,
        text_share: 0.0,
        ..RedundancyConfig::default()
    };
    let file = std::io::BufWriter::new(std::fs::File::create(&path).expect("a temporary file"));
    let mut writer = packet_io::pcap::PcapWriter::new(file).expect("it can be written");
    let mut traffic = RedundancyTraffic::new(config, seed).expect("it can be made");
    while let Some((at, frame)) = traffic.next() {
        writer.write(at, frame).expect("it can be written");
    }
    writer.finish().expect("it can be written");
    path
}

fn study() -> Command {
    mainstay(&["study", "redundancy", "--quick", "--cache-megabytes", "4", "--json"])
}

/// With so little memory that there are several turns.
fn study_in_turns() -> Command {
    let mut command = study();
    command.args(["--memory-megabytes", "256"]);
    command
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one object of JSON")
}

/// What a study keeps of the jobs that are finished.
fn state_of(folder: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(folder).expect("the study made it").flatten().map(|entry| entry.path());
    let mut states = entries.filter(|path| path.extension().is_some_and(|extension| extension == "state"));
    std::fs::read(states.next().expect("the study kept one")).expect("it can be read")
}

/// Bytes of a block, in which a shell measures what a file may have.
const BLOCK_BYTES: usize = 512;
/// The signal for a process that writes a file beyond its limit; its default is to end the program.
const SIGXFSZ: i32 = 25;

#[test]
fn a_study_that_is_killed_goes_on_and_finds_the_same_to_the_byte() {
    let folder = Folder::new("kill");
    let captures = [capture(&folder, "one.pcap", 1), capture(&folder, "other.pcap", 2)];
    let [whole, killed] = ["whole", "killed"].map(|name| folder.join(name));
    let arguments = |out: &Path| {
        let mut command = study_in_turns();
        command.args(["--jobs", "1"]).args(&captures).arg("--out").arg(out);
        command
    };
    let expected = json(&arguments(&whole).output().expect("it can be run"));

    // Killed while it writes: a timer would now and then come when the study is over.
    let state = state_of(&whole);
    let first_line_bytes = state.iter().position(|byte| *byte == b'\n').expect("a job was finished") + 1;
    let blocks = first_line_bytes / BLOCK_BYTES + 1;
    assert!(blocks * BLOCK_BYTES < state.len(), "what follows the first job is more than the rest of a block");
    let study = arguments(&killed);
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!("ulimit -c 0; ulimit -f {blocks}; exec \"$0\" \"$@\""));
    limited.arg(study.get_program()).args(study.get_args());
    let status = limited.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("there is a shell");
    assert_eq!(status.signal(), Some(SIGXFSZ), "it was in the middle of its work: {status}");
    assert_eq!(state_of(&killed).len(), blocks * BLOCK_BYTES, "and in the middle of a line");
    assert!(!killed.join("redundancy.json").exists());

    let output = arguments(&killed).output().expect("it can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("resuming from an earlier run"), "{said}");
    assert_eq!(json(&output), expected);
    let [whole, killed] = [whole, killed].map(|folder| std::fs::read(folder.join("redundancy.json")));
    assert_eq!(killed.expect("it is written"), whole.expect("it is written"));
}

#[test]
fn what_is_printed_has_what_an_operator_asks_for_and_the_page_needs_nothing_else() {
    let folder = Folder::new("page");
    let capture = capture(&folder, "office.pcap", 3);
    let out = folder.join("out");
    let outcome = json(&study().arg(&capture).arg("--out").arg(&out).output().expect("it can be run"));
    for key in ["saved", "optimal", "by_protocol", "origins", "match_lengths", "cache_sizes", "zipf_alpha"] {
        assert!(outcome.get(key).is_some(), "{key} is missing");
    }
    let saved = outcome["saved"]["samplebyte"]["max_match"].as_f64().expect("a share");
    let optimal = outcome["optimal"].as_f64().expect("a share");
    assert!(saved > 0.2 && saved <= optimal && optimal < 0.45, "{saved} of {optimal}");
    let page = std::fs::read_to_string(out.join("redundancy.html")).expect("it is written");
    assert!(page.contains("<svg") && !page.contains("<script") && page.contains("Redundancy elimination would save"));
    let parquet = std::fs::read(out.join("redundancy_methods.parquet")).expect("it is written");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

#[test]
fn a_pipe_is_studied_as_a_file_is() {
    let folder = Folder::new("pipe");
    let capture = capture(&folder, "office.pcap", 4);
    let of_file = json(&study().arg(&capture).output().expect("it can be run"));
    let input = std::fs::File::open(&capture).expect("it was written");
    let of_pipe = json(&study().arg("-").stdin(input).output().expect("it can be run"));
    for key in ["traffic", "saved", "optimal", "origins", "match_lengths"] {
        assert_eq!(of_pipe[key], of_file[key], "{key}");
    }
    let mut twice = study();
    let refused = twice.args(["-", "-"]).stdin(Stdio::null()).output().expect("it can be run");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("standard input"));
}
