//! `mainstay flows`: the connections of a running gateway.

use std::time::Duration;

use serde::Serialize;

use super::CommandError;
use super::status::bytes;
use crate::cli::FlowsArgs;
use crate::control::client::Client;
use crate::control::types::{BothWays, Ends, Flow};
use crate::output::{self, Align, Table, count};

/// Asks the gateway and prints what it says.
///
/// # Errors
/// The gateway does not answer, or the output cannot be written.
pub fn run(args: &FlowsArgs) -> Result<(), CommandError> {
    /// What `--json` prints.
    #[derive(Serialize)]
    struct Flows {
        flows: Vec<Flow>,
        truncated: bool,
    }
    let mut flows = Vec::new();
    let truncated = Client::connect(&args.socket.socket)?.flows(args.filter(), args.limit, |flow| flows.push(flow))?;
    if args.json {
        return Ok(output::print_json(&Flows { flows, truncated })?);
    }
    Ok(output::print(&describe(&flows, truncated))?)
}

/// Flows as people read them.
#[must_use]
pub fn describe(flows: &[Flow], truncated: bool) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("PROTO", Left),
        ("STATE", Left),
        ("ROLE", Left),
        ("SOURCE", Left),
        ("DESTINATION", Left),
        ("TRANSLATED", Left),
        ("PACKETS", Right),
        ("BYTES", Right),
        ("AGE", Right),
        ("EXPIRES", Right),
    ]);
    for flow in flows {
        let expires = Duration::try_from_secs_f64(flow.expires_s).unwrap_or_default();
        table.row([
            flow.protocol.clone(),
            flow.state.clone(),
            flow.role.clone(),
            flow.original.source.clone(),
            flow.original.destination.clone(),
            remarks(flow),
            both_ways(flow.packets, count),
            both_ways(flow.bytes, bytes),
            output::duration(Duration::try_from_secs_f64(flow.age_s).unwrap_or_default()),
            output::duration(expires),
        ]);
    }
    let mut text = table.render();
    let shown = count(flows.len() as u64);
    let summary = if truncated {
        format!("\nthe first {shown} shown; there are more: raise --limit or add conditions\n")
    } else {
        format!("\n{}\n", output::counted(flows.len(), "flow"))
    };
    text.push_str(&summary);
    text
}

/// What becomes of a connection's packets, and which connection announced it.
fn remarks(flow: &Flow) -> String {
    let translated = flow.translated.as_ref().map(|ends| translation(&flow.original, ends));
    let announced = flow.related_to.as_ref().map(|master| format!("for {} > {}", master.source, master.destination));
    translated.into_iter().chain(announced).collect::<Vec<_>>().join(", ")
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

fn both_ways(ways: BothWays, show: fn(u64) -> String) -> String {
    format!("{} / {}", show(ways.original), show(ways.reply))
}
