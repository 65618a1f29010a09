//! What experiments vary of the nodes' configuration; the demo varies none of it.

use std::net::IpAddr;

use packet_io::netlink::Prefix;
use replication::Transport;

use crate::config::validated::Representation;
use crate::demo::run::SPARE_CONNECTIONS;

/// The smallest filter.
const ENTRIES_MIN: usize = 64;

/// What experiments vary of the nodes' configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    /// What carries the changes of connections.
    pub transport: Transport,
    /// How connections are told. Where it is by a filter, first replies do not wait, and translations are computed.
    pub representation: Representation,
    /// A connection's first reply waits for the standby to have the connection.
    pub holds_first_reply: bool,
    /// What nodes tell each other is not encrypted.
    pub is_plain: bool,
    /// A route beside the networks of the ports: where to, and by way of whom.
    pub route: Option<(Prefix, IpAddr)>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            transport: Transport::Native,
            representation: Representation::default(),
            holds_first_reply: true,
            is_plain: false,
            route: None,
        }
    }
}

impl Tuning {
    /// What belongs into the configuration's `[replication]`.
    pub(super) fn replication(&self, hold_first_reply: &str, is_replicated: bool) -> String {
        let is_by_filter = is_replicated && self.representation.is_compact();
        let hold = if self.holds_first_reply && !is_by_filter { hold_first_reply } else { "0ms" };
        format!("transport = \"{}\"\nhold_first_reply = \"{hold}\"\n", self.transport.name())
    }

    /// What belongs into each source translation.
    pub(super) const fn mapping(&self) -> &'static str {
        if self.representation.is_compact() { "mapping = \"deterministic\"\n" } else { "" }
    }

    /// The filter, with no more room than is needed, so that it errs as often as one that an operator has sized well. What it
    /// does not know passes when it is said twice, and whoever asks it often is not kept from asking: the demo does.
    pub(super) fn filter(&self, connections_max: usize) -> String {
        if !self.representation.is_compact() {
            return String::new();
        }
        format!(
            "[replication.filter]\nentries_max = {}\n\n\
             [replication.recovery]\nlasts = \"60s\"\nblock = true\nmisses_per_source_max = 1000000\n\n",
            connections_max.saturating_sub(SPARE_CONNECTIONS).max(ENTRIES_MIN) * 5 / 4
        )
    }

    /// Sections of its own.
    pub(super) fn sections(&self) -> String {
        self.route.map_or_else(String::new, |(to, via)| format!("[[route]]\nto = \"{to}\"\nvia = \"{via}\"\n\n"))
    }
}
