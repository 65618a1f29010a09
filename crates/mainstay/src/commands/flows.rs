//! `mainstay flows`: the connections of a running gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::status::bytes;
use super::{CommandError, follow};
use crate::cli::FlowsArgs;
use api::{BothWays, Ends, Flow, PacketPath};
use console::{Table, count};
use control::client::Client;

/// Asks the gateway for connections and prints them.
///
/// # Errors
/// The gateway does not answer, or the output cannot be written.
pub fn run(args: &FlowsArgs) -> Result<(), CommandError> {
    /// What `--json` prints.
    #[derive(Serialize)]
    struct Flows<'a> {
        flows: &'a [Flow],
        truncated: bool,
    }
    if args.follow {
        return follow::run(args);
    }
    if args.count {
        return count_flows(args);
    }
    let mut flows = Vec::new();
    let truncated = Client::open(args.socket.target())?.flows(args.filter(), args.limit, |flow| flows.push(flow))?;
    Ok(console::print_as(args.json, &Flows { flows: &flows, truncated }, || describe(&flows, truncated))?)
}

/// How many flows there are of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FlowCount {
    /// Protocol.
    pub protocol: String,
    /// State; empty for protocols without states.
    pub state: String,
    /// `master` or `backup`.
    pub role: String,
    /// How many.
    pub flows: u64,
}

/// Counts all flows; none is kept, however many there are.
fn count_flows(args: &FlowsArgs) -> Result<(), CommandError> {
    /// What `--json` prints.
    #[derive(Serialize)]
    struct Counts<'a> {
        counts: &'a [FlowCount],
        flows: u64,
    }
    let mut kinds = BTreeMap::new();
    Client::open(args.socket.target())?.flows(args.filter(), u64::MAX, |flow| tally(&mut kinds, flow))?;
    let counts = counts(kinds);
    let flows = counts.iter().map(|count| count.flows).sum();
    Ok(console::print_as(args.json, &Counts { counts: &counts, flows }, || describe_counts(&counts))?)
}

/// How many of these flows there are of each kind, the most frequent first.
#[must_use]
pub fn count_kinds(flows: impl IntoIterator<Item = Flow>) -> Vec<FlowCount> {
    let mut kinds = Kinds::new();
    flows.into_iter().for_each(|flow| tally(&mut kinds, flow));
    counts(kinds)
}

/// Flows by protocol, state and role.
type Kinds = BTreeMap<(String, String, String), u64>;

fn tally(kinds: &mut Kinds, flow: Flow) {
    *kinds.entry((flow.protocol, flow.state, flow.role)).or_default() += 1;
}

/// The most frequent kinds first.
fn counts(kinds: Kinds) -> Vec<FlowCount> {
    let count = |((protocol, state, role), flows)| FlowCount { protocol, state, role, flows };
    let mut counts: Vec<FlowCount> = kinds.into_iter().map(count).collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.flows));
    counts
}

/// Counts as people read them.
#[must_use]
pub fn describe_counts(counts: &[FlowCount]) -> String {
    let mut table = Table::of("PROTO|STATE|ROLE|>FLOWS");
    for kind in counts {
        table.row([kind.protocol.clone(), kind.state.clone(), kind.role.clone(), count(kind.flows)]);
    }
    let all: u64 = counts.iter().map(|count| count.flows).sum();
    table.render() + &format!("\n{}\n", console::counted(usize::try_from(all).unwrap_or(usize::MAX), "flow"))
}

/// Flows as people read them.
#[must_use]
pub fn describe(flows: &[Flow], truncated: bool) -> String {
    let headings = "PROTO|STATE|ROLE|SOURCE|DESTINATION|TRANSLATED|>PACKETS|>BYTES|>AGE|>EXPIRES";
    let has_paths = flows.iter().any(|flow| flow.path.is_some());
    let mut table = if has_paths { Table::of(&format!("{headings}|PATH")) } else { Table::of(headings) };
    for flow in flows {
        let expires = Duration::try_from_secs_f64(flow.expires_s).unwrap_or_default();
        table.row([
            flow.protocol.clone(),
            flow.state.clone(),
            flow.role.clone(),
            flow.original.source.clone(),
            flow.original.destination.clone(),
            remarks(flow),
            known(flow, &|| both_ways(flow.packets, count)),
            known(flow, &|| both_ways(flow.bytes, bytes)),
            known(flow, &|| console::duration(Duration::try_from_secs_f64(flow.age_s).unwrap_or_default())),
            console::duration(expires),
            path(flow),
        ]);
    }
    let mut text = table.render();
    let shown = count(flows.len() as u64);
    let summary = if truncated {
        format!("\nthe first {shown} shown; there are more: raise --limit or add conditions\n")
    } else {
        format!("\n{}\n", console::counted(flows.len(), "flow"))
    };
    text.push_str(&summary);
    text
}

/// The class of a connection, what becomes of its packets, and which connection announced it.
fn remarks(flow: &Flow) -> String {
    let translated = flow.translated.as_ref().map(|ends| translation(&flow.original, ends));
    let announced = flow.related_to.as_ref().map(|master| format!("for {} > {}", master.source, master.destination));
    let class = flow.class.clone().filter(|class| class != "unknown");
    class.into_iter().chain(translated).chain(announced).collect::<Vec<_>>().join(", ")
}

/// What forwards a connection's packets, and why that is not the kernel.
fn path(flow: &Flow) -> String {
    let path = flow.path.map_or("", PacketPath::describe);
    if let Some(hook) = &flow.hook {
        return format!("{path} ({hook})");
    }
    flow.gateway_reason.map_or_else(|| path.to_owned(), |reason| format!("{path}: {}", reason.describe()))
}

/// What a translation changed: `from` the source, `to` the destination.
fn translation(before: &Ends, after: &Ends) -> String {
    let mut parts = Vec::new();
    if before.source != after.source {
        parts.push(format!("from {}", after.source));
    }
    if before.destination != after.destination {
        parts.push(format!("to {}", after.destination));
    }
    parts.join(" ")
}

/// What is counted of a connection, where it is.
fn known(flow: &Flow, cell: &dyn Fn() -> String) -> String {
    if flow.uncounted { "–".to_owned() } else { cell() }
}

fn both_ways(ways: BothWays, show: fn(u64) -> String) -> String {
    format!("{} / {}", show(ways.original), show(ways.reply))
}
