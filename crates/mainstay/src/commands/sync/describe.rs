//! The status of a node that replicates the kernel's connections, as people read it.

use std::fmt::Write;

use api::{Status, SyncStatus};
use console::{Table, count, scaled};

/// What stands above the tables of peers.
#[must_use]
pub fn describe(status: &Status, sync: &SyncStatus) -> String {
    let SyncStatus { readiness, kernel, .. } = sync;
    let usable = if readiness.usable { "usable".to_owned() } else { readiness.not_usable_reasons.join("; ") };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "Failover     {}\n\
         State        {usable}; {}, injection {}\n\
         Connections  {} known ({} own, {} copies of which {} are in the kernel) of {}\n\
         Kernel       {} connections{}, {} waiting to be changed\n\
         Events       {} read, {} malformed; {} overruns, {} connections made good; buffer {}\n\
         Requests     {} made, {} of announced connections, {} refused; {} copies injected again; {} dumps\n",
        sync.failover,
        sync.mode,
        sync.injection,
        count(status.connections.count),
        count(kernel.own),
        count(kernel.copies),
        count(kernel.injected),
        count(status.connections.max),
        count(kernel.connections),
        if kernel.connections_max == 0 { String::new() } else { format!(" of {}", count(kernel.connections_max)) },
        count(kernel.waiting),
        count(kernel.events),
        count(kernel.events_malformed),
        count(kernel.overruns),
        count(kernel.repaired),
        bytes(kernel.receive_buffer_bytes),
        count(kernel.requests),
        count(kernel.expectation_requests),
        count(kernel.refused.iter().map(|refused| refused.requests).sum()),
        count(kernel.reinjected),
        count(kernel.dumps),
    );
    for trouble in &sync.troubles {
        let _ = writeln!(text, "Trouble      {trouble}");
    }
    text
}

#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, "B")
}

/// Requests that the kernel refused, by why.
#[must_use]
pub fn refused_table(sync: &SyncStatus) -> Table {
    let mut table = Table::of("KERNEL REFUSED|>REQUESTS");
    for refused in sync.kernel.refused.iter().filter(|refused| refused.requests > 0) {
        table.row([refused.reason.clone(), count(refused.requests)]);
    }
    table
}
