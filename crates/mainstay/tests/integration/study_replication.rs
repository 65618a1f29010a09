//! `mainstay synthesize replication` and `mainstay study replication` as an operator runs them: a pipe between them, files that are no
//! captures, captures that break off, and readers that do.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::program::{Folder, mainstay};
use serde_json::Value;

fn file(folder: &Folder, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a temporary file");
    path
}

/// A capture of some hundred connections.
fn capture(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.join(name);
    let made = synthesize("5").arg("--write").arg(&path).output().expect("it can be run");
    assert!(made.status.success(), "{}", said(&made));
    path
}

fn synthesize(seconds: &str) -> Command {
    mainstay(&[
        "synthesize",
        "replication",
        "--preset",
        "ipls-3",
        "--connections-per-second",
        "100",
        "--seconds",
        seconds,
    ])
}

fn study(captures: &[&Path]) -> Command {
    let mut command = mainstay(&["study", "replication", "--json", "--connections", "20000", "--thresholds", "0,500"]);
    command.args(captures);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).expect("one object of JSON")
}

fn piped(mut from: Child, to: &mut Command) -> Output {
    let pipe = from.stdout.take().expect("its output is a pipe");
    let output = to.stdin(Stdio::from(pipe)).output().expect("it can be run");
    assert!(from.wait().expect("it was started").success());
    output
}

#[test]
fn synthetic_traffic_is_studied_through_a_pipe_as_from_a_file() {
    let folder = Folder::new("pipe");
    let capture = capture(&folder, "made.pcap");
    let out = folder.join("report");
    let from = synthesize("5").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it can be run");
    let of_pipe = json(&piped(from, study(&[Path::new("-")]).arg("--out").arg(&out)));
    assert_eq!(of_pipe, json(&study(&[&capture]).output().expect("it can be run")));
    for method in ["precise-eager", "flow-digest", "multi-level-fa-symbols", "d-left", "counting-bloom"] {
        let found = &of_pipe["methods"][method];
        for figure in ["bytes", "messages", "reduction", "entries_at_backup", "false_positive", "false_negative"] {
            assert!(found[figure].is_number(), "{method}: {figure} in {found}");
        }
        assert!(found["inaccurate_state"].is_number() || method == "flow-digest", "{found}");
    }
    assert!(of_pipe["advice"]["sentences"].as_array().is_some_and(|sentences| !sentences.is_empty()), "{of_pipe}");
    let page = std::fs::read_to_string(out.join("replication.html")).expect("it is written");
    assert!(page.contains("Which one to choose") && !page.contains("<script") && !page.contains("NaN"));
    for table in ["methods", "thresholds", "lifetimes", "beside_the_paper"] {
        let parquet = std::fs::read(out.join(format!("{table}.parquet"))).expect("it is written");
        assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"), "{table}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut from = synthesize("600").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be run");
    let mut begin = [0; 1000];
    from.stdout.take().expect("its output is a pipe").read_exact(&mut begin).expect("there is more than that");
    let output = from.wait_with_output().expect("it was started");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("connections in") && !said(&output).contains("roken pipe"), "{}", said(&output));
    assert_eq!(u32::from_le_bytes([begin[0], begin[1], begin[2], begin[3]]), 0xa1b2_3c4d, "a capture begins there");
}

#[test]
fn what_is_no_capture_is_refused_with_what_to_do() {
    let folder = Folder::new("refused");
    let capture = std::fs::read(capture(&folder, "made.pcap")).expect("it was written");
    let refused = [
        (file(&folder, "empty.pcap", b""), "the file is empty"),
        (file(&folder, "packed.pcap.gz", b"\x1f\x8b\x08\0\0\0\0\0"), "zcat FILE"),
        (file(&folder, "packed.pcap.zst", b"\x28\xb5\x2f\xfd\0\0\0\0"), "zstdcat FILE"),
        (file(&folder, "script.sh", b"#!/bin/sh\nexit 0\n# and some more"), "not a capture"),
        (file(&folder, "header.pcap", &capture[..20]), "ends within a record"),
        (folder.to_path_buf(), "is a folder: name the captures that are in it"),
        (folder.join("nothing.pcap"), "No such file"),
    ];
    for (path, remedy) in refused {
        let output = study(&[&path]).output().expect("it can be run");
        assert!(!output.status.success() && output.stdout.is_empty(), "{}", path.display());
        assert!(said(&output).contains(remedy), "{}: {}", path.display(), said(&output));
        assert!(said(&output).contains(&path.display().to_string()), "{}", said(&output));
    }
}

#[test]
fn a_capture_that_breaks_off_is_named_with_the_place_and_studied_up_to_there() {
    let folder = Folder::new("broken");
    let capture = std::fs::read(capture(&folder, "made.pcap")).expect("it was written");
    let truncated = file(&folder, "truncated.pcap", &capture[..capture.len() / 2 + 5]);
    let output = study(&[&truncated]).output().expect("it can be run");
    assert!(json(&output)["traffic"]["connections"].as_u64().is_some_and(|count| count > 50), "{}", said(&output));
    assert!(said(&output).contains("truncated.pcap: read up to frame"), "{}", said(&output));
    assert!(said(&output).contains("what came before it is studied"), "{}", said(&output));
    let bare = file(&folder, "bare.pcap", &capture[..24]);
    let output = study(&[&bare]).output().expect("it can be run");
    assert_eq!(json(&output)["traffic"]["connections"], 0);
    assert!(said(&output).contains("the captures hold no connection"), "{}", said(&output));
}

#[test]
fn frames_with_wrong_checksums_are_named_with_the_option_that_believes_them() {
    let folder = Folder::new("checksums");
    let mut capture = std::fs::read(capture(&folder, "made.pcap")).expect("it was written");
    // The last bytes of all transport checksums: behind the file's header, each record's and its frame's up to the field.
    let mut record = 24;
    while record < capture.len() {
        let length = capture[record + 8..record + 12].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        capture[record + 16 + 14 + 20 + 16] ^= 0x55;
        record += 16 + length as usize;
    }
    let path = file(&folder, "broken.pcap", &capture);
    let verified = study(&[&path]).output().expect("it can be run");
    // One in 65 536 wrong checksums looks like one that was left to hardware.
    assert!(json(&verified)["traffic"]["connections"].as_u64().is_some_and(|count| count < 5), "{}", said(&verified));
    assert!(said(&verified).contains("--checksums believe"), "{}", said(&verified));
    let believed = study(&[&path]).args(["--checksums", "believe"]).output().expect("it can be run");
    assert!(json(&believed)["traffic"]["connections"].as_u64().is_some_and(|count| count > 200), "{}", said(&believed));
    assert_eq!(said(&believed), "");
}

#[test]
fn a_capture_of_which_nothing_can_be_studied_is_refused_with_the_option_that_would_help() {
    let folder = Folder::new("all-skipped");
    let mut capture = std::fs::read(capture(&folder, "made.pcap")).expect("it was written");
    // A file's header, and one record whose TCP checksum is wrong.
    let length = capture[24 + 8..24 + 12].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
    capture.truncate(24 + 16 + length);
    capture[24 + 16 + 14 + 20 + 16] ^= 0x55;
    capture[24 + 16 + 14 + 20 + 17] ^= 0x33;
    let wrong = file(&folder, "wrong.pcap", &capture);
    // The same between loopback addresses, with an IPv4 header that matches.
    let ip = 24 + 16 + 14;
    capture[ip + 12..ip + 20].copy_from_slice(&[127, 0, 0, 1, 127, 0, 0, 2]);
    capture[ip + 10..ip + 12].fill(0);
    let sum: u32 = capture[ip..ip + 20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    capture[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    let loopback = file(&folder, "loopback.pcap", &capture);
    for (path, option) in [(&wrong, "--checksums believe"), (&loopback, "--loopback")] {
        let replication = study(&[path]).output().expect("it can be run");
        let redundancy = mainstay(&["study", "redundancy"]).arg(path).output();
        for output in [replication, redundancy.expect("it can be run")] {
            assert!(!output.status.success() && output.stdout.is_empty(), "{}", said(&output));
            assert!(
                said(&output).contains("all 1 frames were skipped") && said(&output).contains(option),
                "{}",
                said(&output)
            );
        }
    }
}
