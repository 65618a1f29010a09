//! The function that the nodes have beside firewall and source NAT.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use super::super::topology::{INSIDE, OUTSIDE, SECOND_SERVER, SERVER, SERVER_PORTS};
use api::Status;

/// A name that no connection of the demo asks for.
const BLOCKED: &str = "blocked.example\n";

/// A function beside firewall and source NAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Function {
    /// There is none.
    #[default]
    None,
    /// A SYN proxy answers in place of all servers.
    SynProxy,
    /// Connections are classified.
    Classifier,
    /// Connections are held against a list of names.
    UrlFilter,
    /// Connections to the shared outside addresses go to two servers by Maglev.
    BalancerNat,
    /// As before, with the source translated, too.
    BalancerFullNat,
    /// As the first, to the server with the fewest connections.
    BalancerLeastConnections,
    /// Connections to the shared inside addresses reach two servers in tunnels, and they answer directly.
    BalancerDirectReturn,
}

impl Function {
    /// Those that there are.
    pub const ALL: [Self; 7] = [
        Self::BalancerNat,
        Self::BalancerFullNat,
        Self::BalancerDirectReturn,
        Self::BalancerLeastConnections,
        Self::SynProxy,
        Self::Classifier,
        Self::UrlFilter,
    ];

    /// What reports call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "firewall and NAT",
            Self::SynProxy => "SYN proxy",
            Self::Classifier => "classifier",
            Self::UrlFilter => "URL filter",
            Self::BalancerNat => "load balancer, NAT",
            Self::BalancerFullNat => "load balancer, full NAT",
            Self::BalancerDirectReturn => "load balancer, direct return",
            Self::BalancerLeastConnections => "load balancer, least connections",
        }
    }

    /// Whether clients connect to shared addresses.
    #[must_use]
    pub const fn is_balancer(self) -> bool {
        !self.services().is_empty()
    }

    /// The shared addresses that clients connect to; none, if they connect to the servers'.
    #[must_use]
    pub const fn services(self) -> &'static [IpAddr] {
        match self {
            Self::BalancerNat | Self::BalancerFullNat | Self::BalancerLeastConnections => &OUTSIDE,
            Self::BalancerDirectReturn => &INSIDE,
            Self::None | Self::SynProxy | Self::Classifier | Self::UrlFilter => &[],
        }
    }

    /// Whether source NAT translates clients beside it.
    pub(super) const fn translates_clients(self) -> bool {
        !matches!(self, Self::BalancerDirectReturn)
    }

    /// What it did on this node: handshakes, connections or decisions.
    #[must_use]
    pub fn handled(self, status: &Status) -> u64 {
        match self {
            Self::None => 0,
            Self::SynProxy => status.syn_proxy.iter().map(|rule| rule.accepted).sum(),
            Self::Classifier => status.classes.iter().map(|class| class.connections).sum(),
            Self::UrlFilter => {
                let rules = status.url_filter.iter().flat_map(|filter| &filter.rules);
                rules.flat_map(|rule| &rule.decisions).map(|decisions| decisions.count).sum()
            }
            Self::BalancerNat | Self::BalancerFullNat | Self::BalancerLeastConnections | Self::BalancerDirectReturn => {
                let backends = status.services.iter().flat_map(|service| &service.backends);
                backends.map(|backend| backend.begun).sum()
            }
        }
    }

    /// The chain of functions.
    pub(super) const fn chain(self) -> &'static str {
        match self {
            Self::None => "chain = [\"firewall\", \"nat\"]\n\n",
            Self::SynProxy => "chain = [\"firewall\", \"syn_proxy\", \"nat\"]\n\n",
            Self::Classifier => "chain = [\"classifier\", \"firewall\", \"nat\"]\n\n",
            Self::UrlFilter => "chain = [\"firewall\", \"url_filter\", \"nat\"]\n\n",
            Self::BalancerNat | Self::BalancerFullNat | Self::BalancerLeastConnections => {
                "chain = [\"firewall\", \"load_balancer\", \"nat\"]\n\n"
            }
            Self::BalancerDirectReturn => "chain = [\"firewall\", \"load_balancer\"]\n\n",
        }
    }

    /// Its sections. A list of names is in the folder of the nodes' files.
    pub(super) fn sections(self, folder: &Path) -> String {
        match self {
            Self::None => String::new(),
            Self::SynProxy => "[[syn_proxy.rule]]\nname = \"servers\"\nmode = \"always\"\n\n".into(),
            Self::Classifier => {
                "[classifier]\n\n[[classifier.rule]]\nclass = \"transfer\"\nprotocol = \"tcp\"\nports = \
                 [\"7000-7003\"]\n\n[[classifier.mark]]\nclass = \"transfer\"\ndscp = 1\n\n"
                    .into()
            }
            Self::UrlFilter => format!(
                "[[url_filter.list]]\ncategory = \"blocked\"\npath = {:?}\n\n\
                 [[url_filter.rule]]\nname = \"all\"\nblock = [\"blocked\"]\n\n",
                list(folder)
            ),
            Self::BalancerNat => services(&OUTSIDE, ""),
            Self::BalancerFullNat => services(&OUTSIDE, "mode = \"full-nat\"\n"),
            Self::BalancerLeastConnections => services(&OUTSIDE, "scheduler = \"least-connections\"\n"),
            Self::BalancerDirectReturn => services(&INSIDE, "mode = \"direct_return\"\nencapsulation = \"gue\"\n"),
        }
    }

    /// Writes the files that its sections name.
    pub(super) fn write_files(self, folder: &Path) -> std::io::Result<()> {
        if self == Self::UrlFilter { std::fs::write(list(folder), BLOCKED) } else { Ok(()) }
    }
}

fn list(folder: &Path) -> std::path::PathBuf {
    folder.join("blocked.txt")
}

/// A service of each family and protocol with two servers.
fn services(addresses: &[IpAddr], how: &str) -> String {
    let mut text = String::new();
    let (first, last) = (SERVER_PORTS[0], SERVER_PORTS[SERVER_PORTS.len() - 1]);
    for (family, address) in addresses.iter().enumerate() {
        let source = if how.contains("full-nat") { format!("source = [\"{address}\"]\n") } else { String::new() };
        for protocol in ["tcp", "udp"] {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "[[service]]\nname = \"{protocol}-{family}\"\naddress = \"{address}\"\nprotocol = \"{protocol}\"\n\
                 ports = [\"{first}-{last}\"]\n{how}{source}\n"
            );
            let servers: [IpAddr; 2] = [SERVER[family], SECOND_SERVER[family]];
            for server in servers {
                let _ = write!(text, "[[service.backend]]\naddress = \"{server}\"\n\n");
            }
        }
    }
    text
}
