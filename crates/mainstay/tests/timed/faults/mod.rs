//! Faults that a cluster meets, made on purpose, with real processes and real TCP in namespaces: what comes of each.
//!
//! Each test's name is what is promised; `docs/testing.md` has them as a table. The machine that runs them may be
//! busy, so they wait for conditions and assert no times.

mod churn;
mod cluster;
mod pauses;
mod peers;
mod ports;
mod shortage;
mod split;
mod traffic;

use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::program::{LOOK_EVERY, PATIENCE};

/// The turn of a test; nothing, said aloud, where the machine forbids namespaces.
fn turn() -> Option<MutexGuard<'static, ()>> {
    packet_io::namespace::for_tests()?;
    Some(crate::take_turn())
}

/// Waits until `condition` holds; fails with the text of `missing` if it does not in time.
fn wait_for(what: &str, condition: impl FnMut() -> bool, missing: impl Fn() -> String) {
    assert!(holds_within(PATIENCE, condition), "waited too long for {what}: {}", missing());
}

/// Whether `condition` holds within a time.
fn holds_within(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
    true
}
