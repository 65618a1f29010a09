//! `mainstay flows --follow`: connections of a running gateway as they begin, change and end.

use std::fmt::Write;
use std::time::Duration;

use super::CommandError;
use super::status::bytes;
use super::trace::{json_line, missed, time_of_day};
use crate::cli::FlowsArgs;
use api::{FlowEvent, Line, Query};
use console::count;
use control::client::Client;

/// Asks the gateway and prints line after line.
///
/// # Errors
/// The gateway does not answer, or the output cannot be written.
pub fn run(args: &FlowsArgs) -> Result<(), CommandError> {
    let query = Query::Follow { filter: args.filter(), count: args.limit, seconds: args.seconds };
    let mut result = Ok(());
    Client::open(args.socket.target())?.stream(query, args.seconds, |line| {
        let text = match &line {
            _ if args.json => json_line(&line),
            Line::FlowEvent(event) => describe(event),
            Line::Missed { worker, count } => missed(*worker, *count),
            _ => String::new(),
        };
        if result.is_ok() {
            result = console::print_more(&text);
        }
    })?;
    Ok(result?)
}

/// Something that happened to a connection as people read it.
#[must_use]
pub fn describe(event: &FlowEvent) -> String {
    let FlowEvent { unix_ns, change, flow } = event;
    let mut text = format!("{}  {:<10}  {}", time_of_day(*unix_ns), change.replace('_', " "), flow.protocol);
    // Writing to a string cannot fail.
    let _ = write!(text, " {} → {}", flow.original.source, flow.original.destination);
    if let Some(translated) = &flow.translated {
        let _ = write!(text, " as {} → {}", translated.source, translated.destination);
    }
    if !flow.state.is_empty() {
        let _ = write!(text, "  {}", flow.state);
    }
    if change == "ended" {
        let packets = flow.packets.original + flow.packets.reply;
        let sum = flow.bytes.original + flow.bytes.reply;
        let age = Duration::try_from_secs_f64(flow.age_s).unwrap_or_default();
        let _ = write!(text, "  after {}, {} packets, {}", console::duration(age), count(packets), bytes(sum));
    }
    text.push('\n');
    text
}
