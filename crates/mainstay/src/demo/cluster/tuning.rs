//! What experiments vary of the nodes' configuration; the demo varies none of it.

use std::net::IpAddr;
use std::time::Duration;

use packet_io::netlink::Prefix;
use replication::Transport;
use replication::lazy::{Config as Lazy, Dynamic};

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
    /// How long connections are put off before they are told; `None`: not at all.
    pub lazy: Option<Lazy>,
    /// What a connection of UDP without an answer stays for.
    pub udp_timeout: Option<Duration>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            transport: Transport::Native,
            holds_first_reply: true,
            is_plain: false,
            route: None,
            lazy: None,
            udp_timeout: None,
        }
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
        let route = self.route.map(|(to, via)| format!("[[route]]\nto = \"{to}\"\nvia = \"{via}\"\n\n"));
        let timeout = self.udp_timeout.map(|timeout| format!("[timeouts]\nudp = \"{}ms\"\n\n", timeout.as_millis()));
        let lazy = self.lazy.as_ref().map(lazy_section);
        route.into_iter().chain(timeout).chain(lazy).collect()
    }
}

fn lazy_section(lazy: &Lazy) -> String {
    match lazy {
        Lazy::Fixed(threshold) => format!("[replication.lazy]\nthreshold = \"{}ms\"\n\n", threshold.as_millis()),
        Lazy::Dynamic(Dynamic { interval, .. }) => {
            format!("[replication.lazy]\nthreshold = \"dynamic\"\ninterval = \"{}ms\"\n\n", interval.as_millis())
        }
    }
}
