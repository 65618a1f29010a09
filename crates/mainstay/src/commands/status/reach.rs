//! Ports' links and next hops in `mainstay status`.

use super::text::ago;
use api::{NextHopState, PortStatus, Status};
use console::Table;

/// A port's link in a few words: `up 5m, 10000 Mbit/s`.
pub(super) fn link(port: &PortStatus, now_ns: u64) -> String {
    let Some(up) = port.up else { return "-".to_owned() };
    let state = if up { "up" } else { "DOWN" };
    let since = port.since_ns.map_or_else(String::new, |since| format!(" {}", ago(now_ns, since)));
    let speed = port.speed_mbps.map_or_else(String::new, |speed| format!(", {speed} Mbit/s"));
    format!("{state}{since}{speed}")
}

/// The next hops that are tracked.
pub(super) fn next_hop_table(status: &Status) -> Table {
    let mut table = Table::of("NEXT HOP|PORT|STATE|>FOR");
    for hop in &status.next_hops {
        let state = if hop.state == NextHopState::Lost { "LOST" } else { hop.state.name() };
        table.row([
            hop.address.clone(),
            hop.port.clone(),
            state.to_owned(),
            ago(status.monotonic_now_ns, hop.since_ns),
        ]);
    }
    table
}
