//! The connections of a node as its control API shows them, for comparison with those of another.

use std::collections::HashMap;

use api::Flow;
use flow::Tuple;
use flow::wire::ip_protocol;

/// The connections of a node: protocol and both ends as the client knows them, and their states.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExactTable {
    pub(crate) states: HashMap<(String, String, String), String>,
}

impl ExactTable {
    /// Enters a connection.
    pub fn enter(&mut self, flow: Flow) {
        self.states.insert((flow.protocol, flow.original.source, flow.original.destination), flow.state);
    }

    /// Whether there is a TCP connection with this tuple.
    #[must_use]
    pub fn has(&self, tuple: &Tuple) -> bool {
        let protocol = config::value::protocol_name(ip_protocol::TCP);
        let ends = (tuple.source_addr().to_string(), tuple.destination_addr().to_string());
        self.states.contains_key(&(protocol, ends.0, ends.1))
    }
}
