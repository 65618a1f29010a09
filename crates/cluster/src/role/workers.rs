//! How many workers a node has: sent beside its heartbeats, because a connection's replica must lie with the worker that its
//! packets will come to.

use alloc::vec::Vec;

use flow::Steering;
use flow::steering::STEERING_VERSION;
use flow::wire::tlv;

use super::heartbeat::attribute;

/// How a node divides its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Division {
    /// Among how many workers.
    pub workers: u8,
    /// By which function ([`STEERING_VERSION`]).
    pub version: u8,
}

impl Division {
    /// The division by `steering`.
    #[must_use]
    pub const fn of(steering: Steering) -> Self {
        Self { workers: steering.workers(), version: STEERING_VERSION }
    }

    /// Appends it to a heartbeat. A node with one worker appends nothing, as nodes did before there were several.
    pub fn encode(self, heartbeat: &mut Vec<u8>) {
        if self.workers != 1 {
            tlv::put(heartbeat, attribute::DIVISION, &[self.workers, self.version]);
        }
    }

    /// Reads it from a sound heartbeat. An attribute of another size has a meaning that this version cannot know.
    #[must_use]
    pub fn decode(heartbeat: &[u8]) -> Self {
        let alone = Self::of(Steering::ALONE);
        let found = tlv::read(heartbeat).flatten().find(|(kind, _)| *kind == attribute::DIVISION);
        found.map_or(alone, |(_, value)| match value {
            [workers, version] => Self { workers: *workers, version: *version },
            _ => Self { workers: 0, version: 0 },
        })
    }

    /// Whether two nodes with these divisions find each other's replicas. One worker is one worker by whatever function.
    #[must_use]
    pub const fn goes_with(self, other: Self) -> bool {
        self.workers == other.workers && (self.version == other.version || self.workers == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_division_is_read_as_it_was_said_and_one_worker_needs_no_word() {
        for workers in [1, 2, 32] {
            let division = Division::of(Steering::new(workers).unwrap());
            let mut heartbeat = Vec::new();
            tlv::put(&mut heartbeat, attribute::NODE, &[1]);
            let without = heartbeat.len();
            division.encode(&mut heartbeat);
            assert_eq!(Division::decode(&heartbeat), division);
            assert_eq!(heartbeat.len() == without, workers == 1);
        }
    }

    #[test]
    fn only_equal_divisions_go_together() {
        let two = Division { workers: 2, version: 1 };
        assert!(two.goes_with(two));
        assert!(!two.goes_with(Division { workers: 3, version: 1 }));
        assert!(!two.goes_with(Division { workers: 2, version: 2 }));
        assert!(Division { workers: 1, version: 1 }.goes_with(Division { workers: 1, version: 2 }));
        let mut from_a_later_version = Vec::new();
        tlv::put(&mut from_a_later_version, attribute::DIVISION, &[2, 1, 9]);
        assert!(!two.goes_with(Division::decode(&from_a_later_version)));
    }
}
