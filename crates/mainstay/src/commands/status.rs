//! `mainstay status`: how a running gateway is.

mod all;
mod class;
mod edge;
mod filter;
mod membership;
mod rate_limit;
mod reach;
mod service;
mod syn_proxy;
mod text;
mod tunnel;
mod url_filter;

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use self::text::{COLUMNS_MAX, ago};
use super::CommandError;
use super::latency;
use super::sync::describe::refused_table;
use crate::cli::StatusArgs;
use api::{LazyStatus, NodeRole, PathState, PeerStatus, SessionState, SplitBrain, Status};
use console::{Table, count, counted, scaled, wrap, yes_no};
use control::client::Client;

/// Asks the gateway for its status and prints it.
///
/// # Errors
/// The gateway does not answer, or the output cannot be written.
pub fn run(args: &StatusArgs) -> Result<(), CommandError> {
    /// What `--latency --json` prints.
    #[derive(Serialize)]
    struct Latencies<'a> {
        latencies: &'a [latency::LatencyLine],
    }
    if args.events {
        return super::events::run(args.socket.target(), args.json);
    }
    let mut client = Client::open(args.socket.target())?;
    if args.latency {
        let latencies = latency::latencies(&client.counters()?);
        console::print_as(args.json, &Latencies { latencies: &latencies }, || latency::describe(&latencies))?;
        return Ok(());
    }
    let status = client.status()?;
    if args.all {
        let members = all::members(&status, &args.socket.target());
        return Ok(console::print_as(args.json, &members, || all::describe(&members))?);
    }
    console::print_as(args.json, &status, || describe(&status))?;
    Ok(())
}

/// Where the text behind a line's first word begins.
const INDENT: usize = 13;

fn seconds(seconds: f64) -> String {
    console::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// A rate without its fraction.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, rates are positive")]
fn whole(rate: f64) -> String {
    count(rate.round() as u64)
}

/// The status as people read it.
#[must_use]
pub fn describe(status: &Status) -> String {
    let Status { node, connections, rates, takeover, .. } = status;
    let mut text = String::new();
    let share = connections.count.saturating_mul(100).checked_div(connections.max).unwrap_or_default();
    let master = connections.master.map_or_else(String::new, |master| format!(", master of {}", count(master)));
    let unanswered = match connections.unanswered {
        0 => String::new(),
        unanswered => format!(", {} not replicated yet", count(unanswered)),
    };
    let ready =
        if takeover.ready { "ready".to_owned() } else { format!("not ready: {}", takeover.obstacles.join("; ")) };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "{} (node {})  {} for {} · up {} · mainstay {}\n\n",
        node.name,
        node.id,
        node.role,
        ago(status.monotonic_now_ns, node.role_since_ns),
        seconds(status.uptime_s),
        status.program_version,
    );
    if let Some(sync) = &status.sync {
        text.push_str(&super::sync::describe::describe(status, sync));
        add_tables(
            &mut text,
            [peer_table(status), anti_entropy_table(status), channel_table(status), refused_table(sync)],
        );
        return text;
    }
    if let Some(edge) = &status.edge {
        text.push_str(&edge::describe(status, edge));
        text.push_str(&fast_path(status));
        add_tables(&mut text, [edge::node_table(status, edge), port_table(status), drop_table(status)]);
        return text;
    }
    let _ = write!(
        text,
        "{}Take-over    {ready}\n\
         Connections  {} of {} ({share} %){master}{unanswered}\n\
         Throughput   {} · {} packets/s · {} new connections/s\n\
         {}{}{}{}",
        node.passive.as_ref().map_or_else(String::new, |reason| format!("Passive      {reason}\n")),
        count(connections.count),
        count(connections.max),
        scaled(rates.bits_per_s, "bit/s"),
        whole(rates.packets_per_s),
        whole(rates.connections_per_s),
        fast_path(status),
        lazy(status),
        state_service(status),
        configuration(status),
    );
    text.push_str(&membership::describe(status));
    text.push_str(&paths(status));
    text.push_str(&keys(status));
    if let Some(filter) = &status.filter {
        text.push_str(&filter::describe(filter));
    }
    if let Some(redundancy) = &status.redundancy {
        text.push_str(&tunnel::describe(redundancy));
    }
    let tables = [
        group_table(status),
        class::class_table(status),
        service::backend_table(status),
        url_filter::rule_table(status),
        url_filter::server_table(status),
        rate_limit::limit_table(status),
        syn_proxy::rule_table(status),
        membership::member_table(status),
        peer_table(status),
        anti_entropy_table(status),
        filter::peer_table(status),
        channel_table(status),
        worker_table(status),
        port_table(status),
        reach::next_hop_table(status),
        drop_table(status),
    ];
    add_tables(&mut text, tables);
    text
}

/// What the kernel forwards by itself, where it does so.
fn fast_path(status: &Status) -> String {
    let Some(path) = &status.fast_path else { return String::new() };
    let state = if path.forwarding { "on" } else { "off" };
    let full = if path.full == 0 { String::new() } else { format!(" · {} found no place", count(path.full)) };
    let reason =
        path.hook_reason.iter().map(|reason| format!("             not at XDP: {reason}\n")).collect::<String>();
    let (hook, connections, packets) = (&path.hook, count(path.connections), count(path.packets));
    format!("Fast path    {state} at {hook} · {connections} connections · {packets} packets{full}\n{reason}")
}

/// The tables that have rows, each after an empty line. The text before them is broken into lines that fit, too.
fn add_tables(text: &mut String, tables: impl IntoIterator<Item = Table>) {
    *text = wrap(text, COLUMNS_MAX, INDENT);
    for table in tables.into_iter().filter(|table| !table.is_empty()) {
        text.push('\n');
        text.push_str(&table.render_within(COLUMNS_MAX));
    }
}

/// Peers that are reachable over service ports alone, silent peers and split brains, where there are any.
fn paths(status: &Status) -> String {
    let mut text = String::new();
    for peer in &status.peers {
        let (up, lost): (Vec<_>, Vec<_>) = peer.paths.iter().partition(|path| path.state == PathState::Up);
        let up: Vec<&str> = up.iter().map(|path| path.path.as_str()).collect();
        let lost = lost.iter().find(|path| path.path == "replication");
        if let Some(lost) = lost.filter(|_| !up.is_empty()) {
            let since =
                lost.since_ns.map_or_else(String::new, |at| format!(" {} ago", ago(status.monotonic_now_ns, at)));
            let _ = writeln!(
                text,
                "Degraded     replication link to node {} lost{since}: detection continues over {} {}; {}",
                peer.id,
                if up.len() == 1 { "port" } else { "ports" },
                up.join(", "),
                uncovered(peer)
            );
        }
        let _ = match peer.split_brain {
            // What a dead peer and a cut-off one have in common is all that this node can know.
            SplitBrain::Suspected => writeln!(
                text,
                "Silent       node {} on all paths, without a hand-over: dead, or cut off and active too",
                peer.id
            ),
            SplitBrain::Confirmed => writeln!(
                text,
                "Split brain  node {} holds the same addresses as this node: check the links between the nodes",
                peer.id
            ),
            _ => Ok(()),
        };
    }
    text
}

/// Peers with which no channel is established because one of the two nodes has the wrong credentials. Each of them reports it.
fn keys(status: &Status) -> String {
    let cause = |reason: &str| match reason {
        "unknown_key" => Some("uses a key that this node does not have: give both the same file in pre_shared_keys"),
        "forged" => Some("does not have the key that it names: compare the files, and node.id of both nodes"),
        "certificate" => Some("shows a certificate that is refused: `mainstay events` has the reason"),
        "unprotected" => Some("sends plain text: give both nodes the same mode in [replication.security]"),
        "incompatible" => Some("authenticates in another way, or runs another release"),
        _ => None,
    };
    let without = status.peers.iter().filter(|peer| peer.channel.secured_by == "establishing");
    let lines = without.flat_map(|peer| {
        let refused = peer.channel.refused.iter().filter_map(|refused| cause(&refused.reason));
        refused.map(|cause| format!("Keys         node {} {cause}\n", peer.id))
    });
    lines.collect()
}

/// What a failover to a peer now would lose whose replication link is down.
fn uncovered(peer: &PeerStatus) -> String {
    match (peer.uncovered, peer.session) {
        (0, SessionState::Open) => "connections go over them, and a failover now would lose none".to_owned(),
        (0, _) => "connections are not replicated".to_owned(),
        (lost, _) => {
            let noun = if lost == 1 { "connection" } else { "connections" };
            format!("a failover now would lose {} {noun} that began since", count(lost))
        }
    }
}

/// The state of deferral, if it is configured.
fn lazy(status: &Status) -> String {
    let Some(lazy) = &status.lazy else { return String::new() };
    let LazyStatus { threshold_ms, level, levels, utilisation, deferred, never_replicated, replicated_late, .. } =
        *lazy;
    let threshold = match threshold_ms {
        0.0 => "nothing is deferred".to_owned(),
        threshold_ms => format!("replicated from {threshold_ms:.0} ms on"),
    };
    let busy = utilisation.map_or_else(String::new, |share| format!(", {:.0} % busy", share * 100.0));
    let degraded = if levels == 0 { String::new() } else { format!(" (level {level} of {levels}{busy})") };
    format!(
        "Lazy         {threshold}{degraded} · {} deferred, which a failover now would lose · {} never replicated · {} replicated late\n",
        count(deferred),
        count(never_replicated),
        count(replicated_late),
    )
}

/// Connections that are looked up at peers, where there is a state service.
fn state_service(status: &Status) -> String {
    let Some(service) = &status.state_service else { return String::new() };
    format!(
        "Lookup       {} of {} indexes · {} pulled, {} handed over · {} queries · {} · {} dropped\n",
        service.indexes,
        service.peers,
        count(service.pulled),
        count(service.handed_over),
        count(service.queries),
        counted(service.false_positives as usize, "false positive"),
        count(service.dropped_packets()),
    )
}

/// The fingerprint of the node's configuration, and which peers have another.
fn configuration(status: &Status) -> String {
    if status.configuration.is_empty() {
        return String::new();
    }
    let differs = |peer: &&PeerStatus| peer.configuration.as_ref().is_some_and(|other| *other != status.configuration);
    let others: Vec<String> = status.peers.iter().filter(differs).map(|peer| format!("node {}", peer.id)).collect();
    let alike = status.peers.iter().any(|peer| peer.configuration.as_ref() == Some(&status.configuration));
    let remark = match others.len() {
        0 if alike => ", alike on all nodes that answer".to_owned(),
        0 => String::new(),
        _ => format!(": another on {}; change the file there too and reload it", others.join(", ")),
    };
    format!("Config       {}{remark}\n", status.configuration)
}

fn group_table(status: &Status) -> Table {
    let mut table = Table::of("GROUP|ROLE|>FOR|>PRIORITY|HELD BY");
    for group in &status.node.groups {
        let here = (group.role == NodeRole::Active).then_some("this node".to_owned());
        let peers = status.peers.iter().filter(|peer| peer.holds.contains(&group.name));
        let active: Vec<String> = here.into_iter().chain(peers.map(|peer| format!("node {}", peer.id))).collect();
        table.row([
            group.name.clone(),
            group.role.to_string(),
            ago(status.monotonic_now_ns, group.role_since_ns),
            group.priority.to_string(),
            if active.is_empty() { "no known node".to_owned() } else { active.join(", ") },
        ]);
    }
    table
}

fn peer_table(status: &Status) -> Table {
    let mut table =
        Table::of("PEER|ADDRESS|ROLE|DETECTOR|SESSION|SYNCED|>LAG|>RTT|>QUEUED|>IN FLIGHT|>RESENT|>LOST|>RECEIVED");
    for peer in &status.peers {
        table.row(peer_row(peer, status.monotonic_now_ns));
    }
    table
}

fn peer_row(peer: &PeerStatus, now_ns: u64) -> [String; 13] {
    [
        peer.id.to_string(),
        peer.address.clone(),
        peer.role.to_string(),
        peer.detector.to_string(),
        peer.session.to_string(),
        yes_no(peer.synchronised).to_owned(),
        seconds(peer.lag_ms / 1e3),
        peer.rtt_ms.map_or_else(|| "-".to_owned(), |rtt| seconds(rtt / 1e3)),
        count(peer.queued),
        count(peer.in_flight),
        count(peer.resent),
        count(peer.lost),
        peer.last_received_ns.map_or_else(|| "never".to_owned(), |at_ns| format!("{} ago", ago(now_ns, at_ns))),
    ]
}

/// How this node's replicas compare with what its peers sent.
fn anti_entropy_table(status: &Status) -> Table {
    let mut table = Table::of(">REPLICAS OF|AGREE AS OF|>DIVERGENT|>FOUND|>REPAIRED|>EXTRA REMOVED");
    for PeerStatus { id, anti_entropy, .. } in status.peers.iter().filter(|peer| peer.session != SessionState::Off) {
        table.row([
            id.to_string(),
            anti_entropy
                .agreed_ns
                .map_or_else(|| "never compared".to_owned(), |at| format!("{} ago", ago(status.monotonic_now_ns, at))),
            count(anti_entropy.divergent),
            count(anti_entropy.found),
            count(anti_entropy.repaired),
            count(anti_entropy.extra_removed),
        ]);
    }
    table
}

fn channel_table(status: &Status) -> Table {
    let mut table = Table::of("PEER|ENCRYPTED BY|>KEYS FOR|>HANDSHAKES|REFUSED");
    for peer in &status.peers {
        let channel = &peer.channel;
        let by = match channel.secured_by.as_str() {
            "plain" => "nothing: plain text",
            "establishing" => "nothing yet, and nothing is sent",
            by => by,
        };
        let refused: Vec<String> =
            channel.refused.iter().map(|it| format!("{} {}", count(it.datagrams), it.reason)).collect();
        table.row([
            peer.id.to_string(),
            by.to_owned(),
            channel.keys_since_ns.map_or_else(|| "-".to_owned(), |since| ago(status.monotonic_now_ns, since)),
            count(channel.handshakes),
            if refused.is_empty() { "-".to_owned() } else { refused.join(", ") },
        ]);
    }
    table
}

fn worker_table(status: &Status) -> Table {
    let mut table = Table::of(">WORKER|>LOAD|>CONNECTIONS|>FORWARDED|>HANDED OVER|>TAKEN|>REDIRECTS");
    for worker in &status.workers {
        table.row([
            worker.number.to_string(),
            format!("{:.0} %", worker.load * 100.0),
            count(worker.connections),
            count(worker.forwarded),
            count(worker.handed_over),
            count(worker.taken),
            count(worker.redirects),
        ]);
    }
    table
}

fn port_table(status: &Status) -> Table {
    let mut table = Table::of("PORT|INTERFACE|LINK|>RECEIVED|>|>SENT|>|>MISSED");
    for port in &status.ports {
        table.row([
            port.name.clone(),
            port.interface.clone(),
            reach::link(port, status.monotonic_now_ns),
            count(port.received_packets),
            bytes(port.received_bytes),
            count(port.sent_packets),
            bytes(port.sent_bytes),
            count(port.missed_packets),
        ]);
    }
    table
}

/// A number of bytes, with a decimal prefix.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, "B")
}

fn drop_table(status: &Status) -> Table {
    let mut table = Table::of("DROPPED|>PACKETS");
    let mut drops = status.drops.clone();
    drops.sort_by_key(|drop| std::cmp::Reverse(drop.packets));
    for drop in drops {
        table.row([drop.reason, count(drop.packets)]);
    }
    table
}
