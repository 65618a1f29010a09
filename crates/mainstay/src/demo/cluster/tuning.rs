//! What experiments vary of the nodes' configuration; the demo varies none of it.

use std::net::IpAddr;

use packet_io::netlink::Prefix;
use replication::Transport;

/// What experiments vary of the nodes' configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    /// What carries the changes of connections.
    pub transport: Transport,
    /// A connection's first reply waits for the standby to have the connection.
    pub holds_first_reply: bool,
    /// What nodes tell each other is not encrypted.
    pub is_plain: bool,
    /// A route beside the networks of the ports: where to, and by way of whom.
    pub route: Option<(Prefix, IpAddr)>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { transport: Transport::Native, holds_first_reply: true, is_plain: false, route: None }
    }
}

impl Tuning {
    /// What belongs into the configuration's `[replication]`.
    pub(super) fn replication(&self, hold_first_reply: &str) -> String {
        let hold = if self.holds_first_reply { hold_first_reply } else { "0ms" };
        format!("transport = \"{}\"\nhold_first_reply = \"{hold}\"\n", self.transport.name())
    }

    /// Sections of its own.
    pub(super) fn sections(&self) -> String {
        self.route.map_or_else(String::new, |(to, via)| format!("[[route]]\nto = \"{to}\"\nvia = \"{via}\"\n\n"))
    }
}
