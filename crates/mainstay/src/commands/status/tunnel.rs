//! The tunnel to another site, for people.

use api::RedundancyStatus;
use api::mirror::{MirroredCache, RedundancyMirror};
use console::{count, counted, scaled};

/// The tunnel in two lines, for people.
pub(super) fn describe(status: &RedundancyStatus) -> String {
    let RedundancyStatus { sent, received, .. } = status;
    let state = match &status.bypass {
        None => "open".to_owned(),
        Some(reason) => format!("gone past ({})", reason.replace('_', " ")),
    };
    let mirror = status.mirror.as_ref().map(describe_mirror).unwrap_or_default();
    let share = if sent.packet_bytes == 0 { 0.0 } else { 100.0 * sent.saved_bytes as f64 / sent.packet_bytes as f64 };
    let bytes = |bytes: u64| scaled(bytes as f64, "B");
    format!(
        "Tunnel       {state} · {} of packets sent in {} of datagrams ({share:.1} % saved) · {} datagrams sent again, {} given up\n             \
         from the other site {} datagrams lost for good · {} packets waited for bytes, {} abandoned\n{mirror}",
        bytes(sent.packet_bytes),
        bytes(sent.datagram_bytes),
        count(sent.datagrams_retransmitted),
        count(sent.datagrams_given_up),
        count(received.datagrams_lost),
        count(received.misses),
        count(received.abandoned),
    )
}

/// A line for people.
fn describe_mirror(mirror: &RedundancyMirror) -> String {
    let bytes = |bytes: u64| scaled(bytes as f64, "B");
    let of = |cache: &MirroredCache| format!("{} of {}", bytes(cache.held_bytes), bytes(cache.bytes));
    match mirror.follows {
        Some(node) => format!(
            "             mirrors the caches of node {node}: {} sent, {} received\n",
            of(&mirror.sent),
            of(&mirror.received)
        ),
        None if mirror.followers > 0 => format!(
            "             caches mirrored by {}, {} sent, {} left out\n",
            counted(mirror.followers as usize, "node"),
            bytes(mirror.sent_bytes),
            counted(mirror.blocks_left_out as usize, "block")
        ),
        None => "             caches mirrored by no other node\n".to_owned(),
    }
}
