//! The queue of future events: the run's clock.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use flow::{Instant, PortId};

/// An event.
#[derive(Debug)]
pub(crate) enum Event {
    /// A frame reaches a host.
    HostFrame { host: usize, bytes: Vec<u8> },
    /// A host's timeout.
    HostTimer { host: usize },
    /// A client begins a transfer.
    Begin { transfer: usize },
    /// A frame reaches a node's port.
    NodeFrame { node: usize, port: PortId, bytes: Vec<u8> },
    /// A node processes pending frames.
    NodeServe { node: usize },
    /// A node's timeout.
    NodeTimer { node: usize },
    /// A datagram of the other node reaches a node.
    Datagram { node: usize, is_detection: bool, bytes: Vec<u8> },
    /// A fault of the scenario.
    Fault { index: usize },
    /// The queue of a link whose limit was removed is empty.
    Drained,
    /// From here on there are no faults.
    Calm,
}

struct Entry {
    at: Instant,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest event is the greatest; of simultaneous ones the first added.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Events ordered by time; simultaneous ones in the order of insertion.
#[derive(Default)]
pub(crate) struct Schedule {
    heap: BinaryHeap<Entry>,
    added: u64,
}

impl Schedule {
    pub(crate) fn add(&mut self, at: Instant, event: Event) {
        self.added += 1;
        self.heap.push(Entry { at, order: self.added, event });
    }

    pub(crate) fn next(&mut self) -> Option<(Instant, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_and_then_by_insertion() {
        let mut schedule = Schedule::default();
        for (ms, index) in [(5, 0), (1, 1), (5, 2), (0, 3)] {
            schedule.add(Instant::from_millis(ms), Event::Fault { index });
        }
        let order: Vec<_> = std::iter::from_fn(|| schedule.next())
            .map(|(_, event)| if let Event::Fault { index } = event { index } else { unreachable!() })
            .collect();
        assert_eq!(order, [3, 1, 0, 2]);
    }
}
