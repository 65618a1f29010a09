//! The cost of a representation of connections on the link between the nodes, and its exactness.
//!
//! The exact table is that of the node that is killed, read from its control API right before; what was made of it is read
//! from the other node once all connections have spoken again.

use serde::Serialize;

use super::probes::Probed;
use crate::testbed::exact_table::ExactTable;
use crate::testbed::meter::Reading;
use config::compact::promise;
use config::validated::Representation;

/// The states of established connections, as they are listed.
const ESTABLISHED: [&str; 2] = ["ESTABLISHED", "REPLIED"];

/// What replication cost, and how exact it was.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ReplicationReport {
    /// How connections were replicated.
    pub representation: &'static str,
    /// What that promises.
    pub promise: &'static str,
    /// No established connection breaks. Not promised where the representation is experimental.
    pub promised: bool,
    /// Connections in the table of the node that was killed.
    pub connections_replicated: usize,
    /// Frames that replicated connections, from before the first connection until the kill.
    pub replication_frames: u64,
    /// Their bytes, from the link header on; encrypted, and with acknowledgements and keep-alives.
    pub replication_bytes: u64,
    /// The same for each connection.
    pub replication_bytes_per_connection: f64,
    /// Established connections that the other node did not have in the end, although they were spoken on.
    pub false_misses: usize,
    /// Established connections that the other node had in another state in the end.
    pub inaccurate_states: usize,
    /// Segments of connections that did not exist, sent through the other node.
    pub probes: u32,
    /// Those that it let pass.
    pub false_hits: u32,
}

impl ReplicationReport {
    /// A report of what this representation cost.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    pub fn new(representation: Representation, exact: &ExactTable, cost: Reading) -> Self {
        let connections_replicated = exact.states.len();
        Self {
            representation: representation.name(),
            promise: promise_of(representation),
            promised: !representation.is_experimental(),
            connections_replicated,
            replication_frames: cost.frames,
            replication_bytes: cost.bytes,
            replication_bytes_per_connection: cost.bytes as f64 / connections_replicated.max(1) as f64,
            ..Self::default()
        }
    }

    /// With what the other node had of the exact table, and what it let pass beside it.
    #[must_use]
    pub fn compared(self, exact: &ExactTable, there: &ExactTable, probed: Probed) -> Self {
        let mut compared = Self { probes: probed.sent, false_hits: probed.passed, ..self };
        for (connection, state) in exact.states.iter().filter(|(_, state)| ESTABLISHED.contains(&state.as_str())) {
            match there.states.get(connection) {
                None => compared.false_misses += 1,
                Some(other) => compared.inaccurate_states += usize::from(other != state),
            }
        }
        compared
    }
}

fn promise_of(representation: Representation) -> &'static str {
    match representation {
        Representation::PreciseSelective | Representation::PreciseEager => {
            "every established connection goes on in its state, and nothing else"
        }
        Representation::None => "nothing",
        Representation::Compact(filter) => promise(filter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Tuple;
    use flow::wire::ip_protocol;
    use replication::compact;

    fn table(connections: &[(&str, &str)]) -> ExactTable {
        let states = connections.iter().map(|(source, state)| {
            (("tcp".to_owned(), (*source).to_owned(), "198.51.100.10:7000".to_owned()), (*state).to_owned())
        });
        ExactTable { states: states.collect() }
    }

    #[test]
    fn what_is_missing_and_what_is_in_another_state_counts_once_it_was_established() {
        let exact = table(&[
            ("10.1.0.10:1", "ESTABLISHED"),
            ("10.1.0.10:2", "ESTABLISHED"),
            ("10.1.0.10:3", "ESTABLISHED"),
            ("10.1.0.10:4", "SYN_SENT"),
        ]);
        let there = table(&[("10.1.0.10:1", "ESTABLISHED"), ("10.1.0.10:2", "CLOSE"), ("10.1.0.10:9", "ESTABLISHED")]);
        let filter = Representation::Compact(compact::Representation::FlowDigest);
        let report = ReplicationReport::new(filter, &exact, Reading { frames: 3, bytes: 400 });
        let report = report.compared(&exact, &there, Probed { sent: 100, passed: 1 });
        assert_eq!((report.connections_replicated, report.false_misses, report.inaccurate_states), (4, 1, 1));
        assert_eq!((report.probes, report.false_hits), (100, 1));
        assert!((report.replication_bytes_per_connection - 100.0).abs() < 1e-9);
        assert_eq!(report.representation, "flow-digest");
        assert!(report.promise.contains("membership") && !report.promised);
    }

    #[test]
    fn a_connection_is_found_by_its_tuple() {
        let exact = table(&[("10.1.0.10:1", "ESTABLISHED")]);
        let of = |source: &str| {
            let server = "198.51.100.10:7000".parse().unwrap();
            exact.has(&Tuple::new(ip_protocol::TCP, source.parse().unwrap(), server))
        };
        assert!(of("10.1.0.10:1") && !of("10.1.0.10:2"));
    }
}
