//! Failovers, faults and measurements, one at a time: two would take each other's processors.

#[path = "../common/mod.rs"]
mod common;
mod demo;
mod demo_failures;
mod demo_hostile;
mod double_failure;
mod edge_fast_path;
mod edge_strangers;
mod edges;
mod fast_path_bench;
mod faults;
mod ftp;
mod handshakes;
mod kernel;
mod link;
mod many_nodes;
mod membership;
mod model_ns3;
mod rate_limit;
mod replication;
mod secured;
mod syn_proxy;
mod sync_bench;
mod two_groups;
mod url_decoys;
mod url_filter;
mod url_forms;
mod url_server;
mod workers;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for the turn of a test, which it has until the guard is dropped.
fn take_turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}
