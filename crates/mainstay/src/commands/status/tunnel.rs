//! The tunnel to another site, for people.

use api::RedundancyStatus;
use api::mirror::{MirroredCache, RedundancyMirror};
use api::redundancy::RedundancySent;
use console::{count, counted, scaled};

/// The tunnel in two lines, for people.
pub(super) fn describe(status: &RedundancyStatus) -> String {
    let RedundancyStatus { sent, received, .. } = status;
    let state = match &status.bypass {
        None => "open".to_owned(),
        Some(reason) => format!("gone past ({})", reason.replace('_', " ")),
    };
    let mirror = status.mirror.as_ref().map(describe_mirror).unwrap_or_default();
    let bytes = |bytes: u64| scaled(bytes as f64, "B");
    format!(
        "Tunnel       {state} · {} of packets sent in {} of datagrams ({}) · {} datagrams sent again, {} given up\n             \
         from the other site {} datagrams lost for good · {} packets waited for bytes, {} abandoned\n{mirror}",
        bytes(sent.packet_bytes),
        bytes(sent.datagram_bytes),
        savings(sent),
        count(sent.datagrams_retransmitted),
        count(sent.datagrams_given_up),
        count(received.datagrams_lost),
        count(received.misses),
        count(received.abandoned),
    )
}

/// What encoding saved. Where it saved nothing, the datagrams have more bytes than the packets by the tunnel's own traffic.
fn savings(sent: &RedundancySent) -> String {
    match u64::try_from(sent.saved_bytes) {
        _ if sent.packet_bytes == 0 => "nothing to save yet".to_owned(),
        Ok(saved) => format!("{:.1} % saved", 100.0 * saved as f64 / sent.packet_bytes as f64),
        Err(_) => format!("nothing saved, {} more", scaled(sent.saved_bytes.unsigned_abs() as f64, "B")),
    }
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
