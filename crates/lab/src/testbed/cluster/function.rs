//! The function that the nodes have beside firewall and source NAT.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
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
    /// All that checks packets of hosts: URL filter, rate limits, SYN proxy. Metrics and the control API are open to other hosts.
    Guards,
}

/// TCP and UDP ports of the servers behind the guards.
pub mod guarded {
    /// Requests to one category alone pass; what shows no host is blocked.
    pub const STRICT: [u16; 2] = [80, 443];
    /// Requests to one category are blocked.
    pub const LENIENT: u16 = 8080;
    /// The SYN proxy answers in place of the server.
    pub const PROXIED: u16 = 7100;
    /// Each source has a quota of datagrams in an hour.
    pub const QUOTA: u16 = 7300;
    /// That quota.
    pub const QUOTA_PACKETS: usize = 64;
    /// The host that is blocked.
    pub const BLOCKED_HOST: &str = "blocked.example";
    /// The host that passes.
    pub const GOOD_HOST: &str = "good.example";
    /// Port of the metrics.
    pub const METRICS: u16 = 9464;
    /// Port of the control API.
    pub const CONTROL: u16 = 3790;
    /// The operator's token.
    pub const TOKEN: &str = "operators-token-of-the-demo-0123456789";
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
            Self::Guards => "URL filter, rate limits, SYN proxy",
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
            Self::None | Self::SynProxy | Self::Classifier | Self::UrlFilter | Self::Guards => &[],
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
            Self::None | Self::Guards => 0,
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
            Self::Guards => "chain = [\"firewall\", \"url_filter\", \"rate_limit\", \"syn_proxy\", \"nat\"]\n\n",
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
            Self::Guards => guards(folder),
        }
    }

    /// What belongs into the configuration's `[node]`.
    pub(super) fn node(self) -> String {
        if self == Self::Guards { format!("metrics = \"0.0.0.0:{}\"\n", guarded::METRICS) } else { String::new() }
    }

    /// Writes the files that its sections name.
    pub(super) fn write_files(self, folder: &Path) -> std::io::Result<()> {
        if matches!(self, Self::UrlFilter | Self::Guards) {
            std::fs::write(list(folder), BLOCKED)?;
        }
        if self == Self::Guards {
            std::fs::write(good_list(folder), format!("{}\n", guarded::GOOD_HOST))?;
            let tokens = format!("operator operate {}\n", guarded::TOKEN);
            write_secret(&tokens_file(folder), &tokens)?;
            write_secret(&token_file(folder), guarded::TOKEN)?;
        }
        Ok(())
    }
}

/// Writes a file that its owner alone may read.
fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}

fn good_list(folder: &Path) -> std::path::PathBuf {
    folder.join("good.txt")
}

fn tokens_file(folder: &Path) -> std::path::PathBuf {
    folder.join("tokens")
}

/// The file with the operator's token.
pub(super) fn token_file(folder: &Path) -> std::path::PathBuf {
    folder.join("token")
}

/// The sections of all guards.
fn guards(folder: &Path) -> String {
    use guarded::{CONTROL, LENIENT, PROXIED, QUOTA, QUOTA_PACKETS, STRICT};
    format!(
        "[[url_filter.list]]\ncategory = \"blocked\"\npath = {:?}\n\n\
         [[url_filter.list]]\ncategory = \"good\"\npath = {:?}\n\n\
         [[url_filter.rule]]\nname = \"strict\"\nports = {STRICT:?}\nblock = [\"blocked\", \"uncategorised\"]\nundecided = \"block\"\n\
         dns = \"nxdomain\"\nquic = true\n\n\
         [[url_filter.rule]]\nname = \"lenient\"\nports = [{LENIENT}]\nblock = [\"blocked\"]\n\n\
         [[rate_limit.rule]]\nname = \"quota\"\nprotocol = \"udp\"\ndestination_ports = [{QUOTA}]\n\
         [[rate_limit.rule.limit]]\nper = \"source\"\nquota_packets = {QUOTA_PACKETS}\nperiod = \"1h\"\n\n\
         [[syn_proxy.rule]]\nname = \"servers\"\nports = [{PROXIED}]\nmode = \"always\"\n\n\
         [control]\nlisten = \"0.0.0.0:{CONTROL}\"\ntokens = {:?}\nplain = true\n\n",
        list(folder),
        good_list(folder),
        tokens_file(folder),
    )
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
