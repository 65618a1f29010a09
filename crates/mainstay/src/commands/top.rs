//! `mainstay top`: what goes through a running gateway, from moment to moment.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::latency::{self, LatencyLine};
use super::{CommandError, gateways_only};
use crate::cli::{TopArgs, TopOrder};
use api::metrics::Sample;
use api::{BothWays, DetectorState, Flow, FlowFilterText, NodeRole, PacketPath, Rates, Status};
use console::{Table, count, scaled};
use control::client::Client;

/// Connections that are shown.
const TALKERS_MAX: usize = 15;
/// Moves to the upper left and clears from there on.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// A gateway's answer at one moment.
struct Moment {
    at: Instant,
    status: Status,
    samples: Vec<Sample>,
    flows: Vec<Flow>,
    /// There are more flows than were asked for.
    is_truncated: bool,
}

impl Moment {
    fn ask(client: &mut Client, args: &TopArgs) -> Result<Self, CommandError> {
        let mut flows = Vec::new();
        let is_truncated = client.flows(FlowFilterText::default(), args.limit, |flow| flows.push(flow))?;
        Ok(Self { at: Instant::now(), status: client.status()?, samples: client.counters()?, flows, is_truncated })
    }
}

/// A connection that carries much.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Talker {
    /// The protocol's name or number.
    pub protocol: String,
    /// Who began it.
    pub source: String,
    /// Whom it was begun with.
    pub destination: String,
    /// Where its automaton stands.
    pub state: String,
    /// Packets a second, both ways.
    pub packets_per_s: f64,
    /// Bits a second, both ways.
    pub bits_per_s: f64,
    /// What forwards its packets, where the node has a fast path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PacketPath>,
}

/// Packets dropped for a reason.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DropRate {
    /// The reason, as in metrics.
    pub reason: String,
    /// Since the gateway started.
    pub packets: u64,
    /// A second.
    pub packets_per_s: f64,
}

/// How a peer follows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PeerLine {
    /// Its number.
    pub id: u8,
    /// The failure detector's state.
    pub detector: DetectorState,
    /// It holds every connection.
    pub synchronised: bool,
    /// Age of the oldest change that it has not acknowledged, in milliseconds.
    pub lag_ms: f64,
}

/// What went on between two moments.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct View {
    /// The node's name.
    pub name: String,
    /// Its role.
    pub role: NodeRole,
    /// Seconds between the two moments.
    pub interval_s: f64,
    /// What goes through.
    pub rates: Rates,
    /// Connections held.
    pub connections: u64,
    /// Connections held at most.
    pub connections_max: u64,
    /// The connections that carry most.
    pub talkers: Vec<Talker>,
    /// Not all connections were looked at.
    pub truncated: bool,
    /// What is dropped.
    pub drops: Vec<DropRate>,
    /// How long the work takes, since the gateway started.
    pub latencies: Vec<LatencyLine>,
    /// The peers.
    pub peers: Vec<PeerLine>,
}

/// Shows one view after the other until the operator has seen enough.
///
/// # Errors
/// The gateway does not answer, or the output cannot be written.
pub fn run(args: &TopArgs) -> Result<(), CommandError> {
    let mut client = Client::open(args.socket.target())?;
    gateways_only(&mut client, "conntrack -L, with net.netfilter.nf_conntrack_acct=1, counts packets")?;
    let interval = Duration::from_secs_f64(args.interval_s);
    let keys = if args.once { None } else { Some(keys()?) };
    let is_terminal = io::stdout().is_terminal() && !args.json && !args.once;
    let mut order = args.by;
    let mut before = Moment::ask(&mut client, args)?;
    loop {
        if !wait(keys.as_ref(), interval, &mut order) {
            return Ok(());
        }
        let now = Moment::ask(&mut client, args)?;
        let view = view(&before, &now, order);
        if args.json {
            console::print_more(&(serde_json::to_string(&view).map_err(io::Error::from)? + "\n"))?;
        } else {
            console::print_more(&format!("{}{}", if is_terminal { CLEAR } else { "" }, describe(&view, is_terminal)))?;
        }
        if args.once {
            return Ok(());
        }
        before = now;
    }
}

/// What the operator types, line by line. Nothing comes any more when the input has ended.
fn keys() -> io::Result<Receiver<String>> {
    let (typed, keys) = sync_channel(1);
    let read = move || io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| typed.send(line));
    // It sleeps in its last read until the process ends.
    thread::Builder::new().name("keys".to_owned()).spawn(move || drop(read())).map(|_| keys)
}

/// Waits for the next view. False when the operator has seen enough.
fn wait(keys: Option<&Receiver<String>>, interval: Duration, order: &mut TopOrder) -> bool {
    let Some(keys) = keys else {
        thread::sleep(interval);
        return true;
    };
    match keys.recv_timeout(interval).as_deref().map(str::trim) {
        Ok("q") => return false,
        Ok("p") => *order = TopOrder::Packets,
        Ok("b") => *order = TopOrder::Bytes,
        Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => thread::sleep(interval),
    }
    true
}

fn sum(ways: BothWays) -> u64 {
    ways.original + ways.reply
}

/// What went on between `before` and `now`.
#[allow(clippy::cast_precision_loss, reason = "rates are read by people")]
fn view(before: &Moment, now: &Moment, order: TopOrder) -> View {
    let interval_s = now.at.saturating_duration_since(before.at).as_secs_f64().max(f64::MIN_POSITIVE);
    let per_s = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64 / interval_s;
    let status = &now.status;
    let drops = status.drops.iter().map(|drop| {
        let earlier = before.status.drops.iter().find(|earlier| earlier.reason == drop.reason);
        let packets_per_s = per_s(drop.packets, earlier.map_or(0, |earlier| earlier.packets));
        DropRate { reason: drop.reason.clone(), packets: drop.packets, packets_per_s }
    });
    let mut drops: Vec<_> = drops.collect();
    drops.sort_by(|a, b| b.packets_per_s.total_cmp(&a.packets_per_s).then(b.packets.cmp(&a.packets)));
    let peers = status.peers.iter().map(|peer| PeerLine {
        id: peer.id,
        detector: peer.detector,
        synchronised: peer.synchronised,
        lag_ms: peer.lag_ms,
    });
    View {
        name: status.node.name.clone(),
        role: status.node.role,
        interval_s,
        rates: status.rates.clone(),
        connections: status.connections.count,
        connections_max: status.connections.max,
        talkers: talkers(before, now, interval_s, order),
        truncated: now.is_truncated,
        drops,
        latencies: latency::latencies(&now.samples),
        peers: peers.collect(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "rates are read by people")]
fn talkers(before: &Moment, now: &Moment, interval_s: f64, order: TopOrder) -> Vec<Talker> {
    let name = |flow: &Flow| (flow.protocol.clone(), flow.original.source.clone(), flow.original.destination.clone());
    let known: HashMap<_, _> = before.flows.iter().map(|flow| (name(flow), flow)).collect();
    let talker = |flow: &Flow| {
        // Of one that is new all counts, and of one that took another's place under the same name.
        let earlier = known.get(&name(flow)).filter(|earlier| sum(earlier.packets) <= sum(flow.packets));
        if earlier.is_none() && flow.age_s > 2.0 * interval_s {
            // It was there and not looked at: nothing is known of it.
            return None;
        }
        let since = |count: fn(&Flow) -> u64| (count(flow) - earlier.map_or(0, |earlier| count(earlier))) as f64;
        Some(Talker {
            protocol: flow.protocol.clone(),
            source: flow.original.source.clone(),
            destination: flow.original.destination.clone(),
            state: flow.state.clone(),
            packets_per_s: since(|flow| sum(flow.packets)) / interval_s,
            bits_per_s: 8.0 * since(|flow| sum(flow.bytes)) / interval_s,
            path: flow.path,
        })
    };
    let mut talkers: Vec<_> = now.flows.iter().filter_map(talker).filter(|talker| talker.packets_per_s > 0.0).collect();
    talkers.sort_by(|a, b| match order {
        TopOrder::Packets => b.packets_per_s.total_cmp(&a.packets_per_s),
        TopOrder::Bytes => b.bits_per_s.total_cmp(&a.bits_per_s),
    });
    talkers.truncate(TALKERS_MAX);
    talkers
}

/// A view as people read it.
fn describe(view: &View, shows_keys: bool) -> String {
    let mut text = format!("{} ({})", view.name, view.role);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "   {}   {}   {} new connections/s   {} of {} connections\n",
        scaled(view.rates.packets_per_s, "packets/s"),
        scaled(view.rates.bits_per_s, "bit/s"),
        rounded(view.rates.connections_per_s),
        count(view.connections),
        count(view.connections_max)
    );
    let headings = "PROTO|SOURCE|DESTINATION|STATE|>PACKETS/S|>";
    let has_paths = view.talkers.iter().any(|talker| talker.path.is_some());
    let mut table = if has_paths { Table::of(&format!("{headings}|PATH")) } else { Table::of(headings) };
    for talker in &view.talkers {
        table.row([
            talker.protocol.clone(),
            talker.source.clone(),
            talker.destination.clone(),
            talker.state.clone(),
            rounded(talker.packets_per_s),
            scaled(talker.bits_per_s, "bit/s"),
            talker.path.map_or("", PacketPath::describe).to_owned(),
        ]);
    }
    text.push_str(&table.render());
    if view.truncated {
        text.push_str("not all connections were looked at: raise --limit\n");
    }
    let mut table = Table::of("DROPPED|>PACKETS/S|>SINCE START");
    for drop in &view.drops {
        table.row([drop.reason.clone(), rounded(drop.packets_per_s), count(drop.packets)]);
    }
    let _ = write!(text, "\n{}\n{}", table.render(), latency::describe(&view.latencies));
    for peer in &view.peers {
        let knows = if peer.synchronised { "has every connection" } else { "receives connections" };
        let _ = write!(text, "\nnode {}: {}, {knows}, {:.1} ms behind", peer.id, peer.detector, peer.lag_ms);
    }
    if shows_keys {
        text.push_str("\nq ends it, p and b order by packets and bytes (with Enter)");
    }
    text.push('\n');
    text
}

/// A rate without its fraction.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, rates are positive")]
fn rounded(rate: f64) -> String {
    count(rate.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{DropCount, Ends, PeerStatus};

    fn flow(source: &str, packets: u64, bytes: u64, age_s: f64) -> Flow {
        Flow {
            protocol: "tcp".into(),
            state: "ESTABLISHED".into(),
            role: "master".into(),
            owner: 0,
            original: Ends { source: source.into(), destination: "198.51.100.1:443".into() },
            translated: None,
            uncounted: false,
            packets: BothWays { original: packets, reply: 0 },
            bytes: BothWays { original: 0, reply: bytes },
            replied: true,
            assured: true,
            expires_s: 100.0,
            age_s,
            egress: None,
            version: 1,
            related_to: None,
            path: None,
            hook: None,
            gateway_reason: None,
            class: None,
        }
    }

    fn moment(at: Instant, flows: Vec<Flow>, dropped: u64) -> Moment {
        let mut status =
            Status { drops: vec![DropCount { reason: "no_route".into(), packets: dropped }], ..Status::default() };
        status.peers = vec![PeerStatus { id: 1, detector: DetectorState::Up, lag_ms: 1.5, ..PeerStatus::default() }];
        Moment { at, status, samples: Vec::new(), flows, is_truncated: false }
    }

    #[test]
    fn rates_are_what_came_between_two_moments() {
        let began = Instant::now();
        let before = moment(began, vec![flow("a", 100, 1_000_000, 60.0), flow("b", 100, 500, 60.0)], 10);
        let flows = vec![
            flow("a", 110, 3_000_000, 62.0),
            flow("b", 300, 900, 62.0),
            flow("new", 50, 400, 1.0),
            flow("old, not looked at before", 1_000_000, 9, 600.0),
        ];
        let now = moment(began + Duration::from_secs(2), flows, 30);
        let names = |view: &View| view.talkers.iter().map(|talker| talker.source.clone()).collect::<Vec<_>>();
        let by_packets = view(&before, &now, TopOrder::Packets);
        assert_eq!(names(&by_packets), ["b", "new", "a"]);
        assert!((by_packets.talkers[0].packets_per_s - 100.0).abs() < 1e-6, "{:?}", by_packets.talkers[0]);
        let by_bytes = view(&before, &now, TopOrder::Bytes);
        assert_eq!(names(&by_bytes)[0], "a");
        assert!((by_bytes.talkers[0].bits_per_s - 8_000_000.0).abs() < 1e-3, "{:?}", by_bytes.talkers[0]);
        assert!((by_bytes.drops[0].packets_per_s - 10.0).abs() < 1e-6 && by_bytes.drops[0].packets == 30);
        let text = describe(&by_bytes, true);
        assert!(!text.contains("PATH"), "{text}");
        let mut by_bytes = by_bytes;
        by_bytes.talkers[0].path = Some(PacketPath::Kernel);
        let with_paths = describe(&by_bytes, true);
        assert!(
            with_paths.lines().any(|line| line.starts_with("tcp    a ") && line.ends_with("kernel")),
            "{with_paths}"
        );
        assert!(text.contains("no_route") && text.contains("node 1: up") && text.contains("q ends it"), "{text}");
    }
}
