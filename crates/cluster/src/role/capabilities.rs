//! What a node announces of itself behind its heartbeats, so that peers send it only what it understands.

use alloc::vec::Vec;

use flow::wire::tlv;

use super::Division;
use super::heartbeat::attribute;

/// What a node can do, as its heartbeats announce it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// How it divides its packets among workers.
    pub division: Division,
    /// The version of the messages of its state service; `None`: it has none.
    pub state_service: Option<u8>,
}

impl Capabilities {
    /// Appends them to a heartbeat.
    pub fn encode(self, heartbeat: &mut Vec<u8>) {
        if let Some(version) = self.state_service {
            tlv::put(heartbeat, attribute::STATE_SERVICE, &[version]);
        }
        self.division.encode(heartbeat);
    }

    /// Reads them from a sound heartbeat. A node of a release without state service announces none.
    #[must_use]
    pub fn decode(heartbeat: &[u8]) -> Self {
        let found = tlv::read(heartbeat).flatten().find(|(kind, _)| *kind == attribute::STATE_SERVICE);
        let state_service = found.and_then(|(_, value)| value.first().copied());
        Self { division: Division::decode(heartbeat), state_service }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_service_is_read_as_it_was_announced_and_is_absent_in_heartbeats_of_former_releases() {
        for state_service in [None, Some(0xb1)] {
            let announced = Capabilities { division: Division { workers: 2, version: 1 }, state_service };
            let mut heartbeat = Vec::new();
            tlv::put(&mut heartbeat, attribute::NODE, &[1]);
            assert_eq!(Capabilities::decode(&heartbeat).state_service, None);
            announced.encode(&mut heartbeat);
            assert_eq!(Capabilities::decode(&heartbeat), announced);
        }
    }
}
