//! What happened lately: a bounded memory of events.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use flow::Instant;

use api::{Event, EventKind};

/// Events remembered; the oldest goes first.
pub const EVENTS_MAX: usize = 256;

/// The last [`EVENTS_MAX`] events of a node.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    events: VecDeque<Event>,
    next_number: u64,
}

impl EventLog {
    /// Remembers an event.
    pub fn push(&mut self, now: Instant, kind: EventKind, detail: impl Into<String>) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        let (number, monotonic_ns) = (self.next_number, now.as_nanos());
        self.next_number += 1;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = console::rfc3339(since_1970);
        self.events.push_back(Event { number, monotonic_ns, time, kind, detail: detail.into() });
    }

    /// The events remembered, oldest first.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Event> {
        self.events.iter().cloned().collect()
    }
}
