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
    /// It finds a peer dead that probes service paths slowly, because it polls the peer itself. It takes updates over them.
    pub slow_paths: bool,
    /// The version and the run of the values that its functions share; `None`: they share none.
    pub shared_values: Option<(u8, u64)>,
}

impl Capabilities {
    /// Appends them to a heartbeat.
    pub fn encode(self, heartbeat: &mut Vec<u8>) {
        if let Some(version) = self.state_service {
            tlv::put(heartbeat, attribute::STATE_SERVICE, &[version]);
        }
        if self.slow_paths {
            tlv::put(heartbeat, attribute::SLOW_PATHS, &[1]);
        }
        if let Some((version, run)) = self.shared_values {
            tlv::put(heartbeat, attribute::SHARED_VALUES, [&[version][..], &run.to_be_bytes()].concat().as_slice());
        }
        self.division.encode(heartbeat);
    }

    /// Reads them from a sound heartbeat. A node of a release without state service announces none.
    #[must_use]
    pub fn decode(heartbeat: &[u8]) -> Self {
        let find = |wanted: u16| tlv::read(heartbeat).flatten().find(|(kind, _)| *kind == wanted);
        let octet = |wanted: u16| find(wanted).and_then(|(_, value)| value.first().copied());
        Self {
            division: Division::decode(heartbeat),
            state_service: octet(attribute::STATE_SERVICE),
            slow_paths: octet(attribute::SLOW_PATHS).is_some_and(|value| value != 0),
            shared_values: find(attribute::SHARED_VALUES).and_then(|(_, value)| {
                let (version, run) = value.split_first()?;
                Some((*version, u64::from_be_bytes(run.try_into().ok()?)))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_they_were_announced_and_are_absent_in_heartbeats_of_former_releases() {
        for (state_service, slow_paths, shared_values) in [(None, false, None), (Some(0xb1), true, Some((0xa1, 7)))] {
            let division = Division { workers: 2, version: 1 };
            let announced = Capabilities { division, state_service, slow_paths, shared_values };
            let mut heartbeat = Vec::new();
            tlv::put(&mut heartbeat, attribute::NODE, &[1]);
            let former = Capabilities::decode(&heartbeat);
            assert_eq!((former.state_service, former.slow_paths, former.shared_values), (None, false, None));
            announced.encode(&mut heartbeat);
            assert_eq!(Capabilities::decode(&heartbeat), announced);
        }
    }
}
