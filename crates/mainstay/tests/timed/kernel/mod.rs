//! Two Linux routers with nftables, `mainstay sync` beside each, and the program that moves the addresses: real processes, real TCP and
//! UDP in namespaces, translated and not.
//!
//! Each test's name is what is promised; `docs/testing.md` has them as a table. The machine that runs them may be
//! busy, so they wait for conditions and assert no times.

mod control;
mod demo;
mod faults;
mod keepalived;
mod traffic;

use std::path::Path;
use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use lab::demo::kernel::available;
use lab::demo::kernel::routers::Routers;

/// How long anything may take that should come soon, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The routers: the one that has the addresses at first, and the other.
const LEFT: usize = 0;
const RIGHT: usize = 1;

/// The turn of a test.
fn turn() -> MutexGuard<'static, ()> {
    crate::take_turn()
}

/// The turn of a test, and its routers; nothing, said aloud, where the machine lacks what it needs.
fn routers(programs: &[(&str, &str)]) -> Option<(MutexGuard<'static, ()>, Routers)> {
    packet_io::namespace::for_tests()?;
    if let Err(reason) = available(programs) {
        packet_io::namespace::skip(format_args!("{reason}"));
        return None;
    }
    let turn = turn();
    let routers = Routers::build(Path::new(env!("CARGO_BIN_EXE_mainstay"))).expect("routers can be made");
    Some((turn, routers))
}

/// Waits until `condition` holds; fails with the ends of the routers' logs if it does not in time.
fn wait_for(what: &str, routers: &Routers, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long for {what}:\n{}", routers.logs());
        thread::sleep(LOOK_EVERY);
    }
}
