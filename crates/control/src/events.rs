//! What happened lately: a bounded memory of events.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use flow::Instant;

use api::{Event, EventKind};

/// Events remembered; the oldest goes first.
pub const EVENTS_MAX: usize = 256;

/// The last [`EVENTS_MAX`] events of a node.
///
/// Events that a stranger can cause are merged if their texts differ only in words with digits, such as addresses. So none of them
/// displaces what else happened.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    events: VecDeque<Merged>,
    next_number: u64,
}

/// An event, with those that it was merged with.
#[derive(Clone, Debug)]
struct Merged {
    /// The last of them.
    event: Event,
    count: u64,
    /// The time of the first of them by the wall clock.
    first_time: String,
}

impl Merged {
    /// The event as operators see it.
    fn shown(&self) -> Event {
        let Self { event, count, first_time } = self;
        let mut event = event.clone();
        if *count > 1 {
            event.detail = format!("{} ({} times since {first_time})", event.detail, console::count(*count));
        }
        event
    }
}

/// A text without its words that have digits, other than the numbers of nodes: what remains is the same for all sources.
#[must_use]
pub fn without_numbers(text: &str) -> String {
    let mut is_after_node = false;
    let words = text.split(' ').map(|word| {
        let is_replaced = word.contains(|character: char| character.is_ascii_digit()) && !is_after_node;
        is_after_node = word == "node";
        if is_replaced { "#" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

impl EventLog {
    /// Remembers an event.
    pub fn push(&mut self, now: Instant, kind: EventKind, detail: impl Into<String>) {
        self.push_counted(now, kind, detail, 1);
    }

    /// Remembers an event that stands for `count` like it.
    pub fn push_counted(&mut self, now: Instant, kind: EventKind, detail: impl Into<String>, count: u64) {
        let detail = detail.into();
        let former = self.take_like(kind, &detail);
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        let (number, monotonic_ns) = (self.next_number, now.as_nanos());
        self.next_number += 1;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = console::rfc3339(since_1970);
        let (before, first_time) = former.map_or_else(|| (0, time.clone()), |former| (former.count, former.first_time));
        let event = Event { number, monotonic_ns, time, kind, detail };
        self.events.push_back(Merged { event, count: before.saturating_add(count), first_time });
    }

    /// Takes out the event with which this one is merged.
    fn take_like(&mut self, kind: EventKind, detail: &str) -> Option<Merged> {
        if !kind.can_be_caused_by_strangers() {
            return None;
        }
        let topic = without_numbers(detail);
        let is_like = |known: &Merged| known.event.kind == kind && without_numbers(&known.event.detail) == topic;
        let place = self.events.iter().position(is_like)?;
        self.events.remove(place)
    }

    /// The events remembered, oldest first.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Event> {
        self.events.iter().map(Merged::shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_ten_thousand_strangers_are_one_event_and_displace_no_other() {
        let mut log = EventLog::default();
        log.push(Instant::ZERO, EventKind::Started, "");
        log.push(Instant::ZERO, EventKind::BecameActive, "take-over 1");
        for number in 0..10_000_u32 {
            let detail =
                format!("datagrams from 10.0.{}.{}:4000, which is no peer's address", number / 256, number % 256);
            log.push_counted(Instant::from_millis(number.into()), EventKind::Warning, detail, 3);
        }
        let conflict = |mac: u8| format!("{mac:02x}:00:00:00:00:01 claims 10.0.0.1 on port inside");
        (0..=255).for_each(|mac| log.push(Instant::ZERO, EventKind::AddressConflict, conflict(mac)));
        let events = log.to_vec();
        let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
        let expected = [EventKind::Started, EventKind::BecameActive, EventKind::Warning, EventKind::AddressConflict];
        assert_eq!(kinds, expected);
        let detail = &events[2].detail;
        assert!(detail.starts_with("datagrams from 10.0.39.15:4000, which"), "the last source: {detail}");
        assert!(detail.contains(" (30 000 times since 20"), "their number, and the first time: {detail}");
        assert!(events[3].detail.contains(" (256 times since 20"), "{}", events[3].detail);
        assert_eq!(events[2].monotonic_ns, Instant::from_millis(9999).as_nanos());
    }

    #[test]
    fn warnings_of_several_nodes_and_events_that_only_nodes_cause_stay_apart() {
        let mut log = EventLog::default();
        for node in 1..=3 {
            log.push(Instant::ZERO, EventKind::Warning, format!("from node {node}: role state 7 is unknown"));
            log.push(Instant::ZERO, EventKind::BecameActive, format!("take-over {node}"));
        }
        assert_eq!(log.to_vec().len(), 6);
    }
}
