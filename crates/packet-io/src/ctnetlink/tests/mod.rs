//! The codec against itself, and the module against the kernel.

mod codec;
mod events;
mod expectations;
mod measure;
mod overrun;
pub(super) mod samples;
mod table;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::namespace::{Namespace, NamespaceSupport, probe};

/// The time limit for the kernel's asynchronous work on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A namespace for a test, or `None` (with a message) where the machine forbids it.
fn namespace() -> Option<Namespace> {
    let support = probe();
    if support != NamespaceSupport::Available {
        crate::namespace::skip(format_args!("{support:?}"));
        return None;
    }
    Some(Namespace::new().unwrap())
}

/// Loads nftables rules in the namespace of the calling thread, which makes the kernel track there. Returns false (with
/// a message) without nft.
fn load_rules(rules: &str) -> bool {
    let started = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut nft) = started else {
        crate::namespace::skip("the program nft is not installed (package nftables)");
        return false;
    };
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    let output = nft.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// The output of conntrack(8) for the table, or `None` (with a message) where it is missing.
fn conntrack_list() -> Option<String> {
    match Command::new("conntrack").args(["-L", "-o", "extended,labels"]).output() {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(_) => {
            crate::namespace::skip("the program conntrack is not installed (package conntrack)");
            None
        }
    }
}

/// Executes one request.
fn execute(table: &mut TableSocket, request: Request<'_>) -> Result<(), RequestError> {
    let mut result = Ok(());
    table.execute([request], &mut |_, error| result = Err(error)).unwrap();
    result
}

/// The whole table.
fn dump(filter: DumpFilter) -> Vec<Entry> {
    let (mut entries, mut dump) = (Vec::new(), Dump::connections(filter).unwrap());
    while dump.receive(&mut |entry| entries.push(entry)).unwrap() == DumpProgress::More {}
    assert_eq!(dump.malformed(), 0);
    entries
}

/// All expectations.
fn dump_expectations() -> Vec<Expectation> {
    let (mut all, mut dump) = (Vec::new(), Dump::expectations().unwrap());
    while dump.receive(&mut |expectation| all.push(expectation)).unwrap() == DumpProgress::More {}
    all
}

/// Collects events until one satisfies `wanted`, which then is the last.
fn wait_for(socket: &mut EventSocket, wanted: impl Fn(&Event) -> bool) -> Vec<(Cause, Event)> {
    let (mut events, begin) = (Vec::new(), Instant::now());
    while !events.last().is_some_and(|(_, event)| wanted(event)) {
        assert!(begin.elapsed() < PATIENCE, "it did not arrive; these did: {events:#?}");
        let received = socket.receive(1, &mut |cause, event| events.push((cause, event))).unwrap();
        assert_eq!((received.malformed, received.overrun), (0, false));
        if received.messages == 0 {
            std::thread::yield_now();
        }
    }
    events
}
