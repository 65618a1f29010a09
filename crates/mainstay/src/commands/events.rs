//! `mainstay events`: what happened at a running gateway lately.

use serde::Serialize;

use super::CommandError;
use api::Event;
use console::Table;
use control::client::Client;
use control::target::Target;

/// Asks the gateway and prints its events, the oldest first.
///
/// # Errors
/// The gateway does not answer, or the output cannot be written.
pub fn run(target: Target, json: bool) -> Result<(), CommandError> {
    /// What `--json` prints.
    #[derive(Serialize)]
    struct Events<'a> {
        events: &'a [Event],
    }
    let events = Client::open(target)?.events()?;
    Ok(console::print_as(json, &Events { events: &events }, || describe(&events))?)
}

/// Events as people read them: times in seconds of the monotonic clock.
#[must_use]
pub fn describe(events: &[Event]) -> String {
    let mut table = Table::of(">NUMBER|TIME|>MONOTONIC|EVENT|DETAIL");
    for event in events {
        let (whole, micros) = (event.monotonic_ns / 1_000_000_000, event.monotonic_ns / 1000 % 1_000_000);
        table.row([
            event.number.to_string(),
            event.time.clone(),
            format!("{whole}.{micros:06}"),
            event.kind.describe().to_owned(),
            event.detail.clone(),
        ]);
    }
    table.render()
}
