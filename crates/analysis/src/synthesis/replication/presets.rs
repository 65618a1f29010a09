//! Traffic by name: the traces of MLCBF, as far as it describes them.
//!
//! The seed gives no mixture of its traces, but numbers from which one follows: how much of the replication each delay saves is
//! how many connections are shorter than that, entries that get stuck in SYN_SENT are connections without an answer, the
//! SYNs of a second (table II) are so many connections, and the entries at a backup (figure 12) give the lifetimes of
//! the others. What it does not state (packet sizes, hosts) is ordinary. Each preset names the figures that it is for.

use std::time::Duration;

use super::{Arrivals, Behaviour, Component, Ending, Exchanges, ReplicationConfig};
use crate::synthesis::{BEGINS_AT, Quantiles};

/// A preset.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, and which figures of the seed it is for.
    pub about: &'static str,
    make: fn() -> ReplicationConfig,
}

impl Preset {
    /// The traffic.
    #[must_use]
    pub fn config(&self) -> ReplicationConfig {
        (self.make)()
    }
}

/// All presets.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "mixed",
        about: "an access link of today: web, long sessions, DNS and QUIC, port scans (no figure of the seed)",
        make: mixed,
    },
    Preset {
        name: "ipls-1",
        about: "backbone of 2002, 9.9 % of the connections without an answer (MLCBF figures 9, 23 and 25)",
        make: ipls_1,
    },
    Preset {
        name: "ipls-3",
        about: "backbone of 2004, 39.2 % stuck in SYN_SENT, of these 87.1 % without an answer (MLCBF figures 8, 10, 12, 23 and 24)",
        make: ipls_3,
    },
    Preset {
        name: "auck-4",
        about: "campus of 2001 with longer connections (MLCBF figure 11 and section 4.1)",
        make: auck_4,
    },
    Preset {
        name: "flow-digest",
        about: "steady connections of 5 to 30 s with 2 s of setup; set the rate to 5000, 10000, 20000, 90000 (MLCBF figures 6 and 7)",
        make: flow_digest,
    },
    Preset {
        name: "classification",
        about: "10000 connections a second that last a second; set the rate to 2000 to 10000 and --persistent to a filter's load (MLCBF figure 18)",
        make: classification,
    },
    Preset {
        name: "short-connections",
        about: "a flood of connections of 10 to 50 ms beside long ones (MLCBF figure 26, dynamic lazy insertion)",
        make: short_connections,
    },
];

/// The preset of this name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    static ALL: [Preset; PRESETS.len()] = PRESETS;
    ALL.iter().find(|preset| preset.name == name)
}

/// The curve through points that are known to be right.
fn curve(points: &[(f64, f64)]) -> Quantiles {
    Quantiles::new("lifetimes", points).expect("the points of presets rise")
}

const WEB: Exchanges = Exchanges {
    at_least: 1,
    per_second: 1.5,
    most: 2000,
    request_bytes: 300,
    response_packets: 3,
    response_bytes: 900,
};
const BULK: Exchanges = Exchanges {
    at_least: 2,
    per_second: 4.0,
    most: 4000,
    request_bytes: 80,
    response_packets: 6,
    response_bytes: 1400,
};
const BRIEF: Exchanges =
    Exchanges { at_least: 1, per_second: 0.0, most: 1, request_bytes: 120, response_packets: 1, response_bytes: 400 };

fn tcp(name: &str, share: f64, lifetime: Quantiles, ending: Ending, exchanges: Exchanges) -> Component {
    Component {
        name: name.into(),
        share,
        behaviour: Behaviour::Tcp { lifetime, ending, exchanges },
        together: 1.0,
        sweeps: false,
        server_ports: vec![80, 443],
    }
}

/// Packets without an answer, or refused: a scan of ports, and strays, each tried so often at most.
fn unwanted(unanswered: f64, refused: f64, tries: u8) -> [Component; 2] {
    let scan = |name: &str, share, behaviour, together| Component {
        name: name.into(),
        share,
        behaviour,
        together,
        sweeps: true,
        server_ports: vec![1, 1024, 8000],
    };
    [
        scan("unanswered", unanswered, Behaviour::TcpUnanswered { tries }, 4.0),
        scan("port_scan", refused, Behaviour::TcpRefused, 64.0),
    ]
}

fn together(count: f64, component: Component) -> Component {
    Component { together: count, ..component }
}

fn base(connections_per_second: f64, components: Vec<Component>) -> ReplicationConfig {
    ReplicationConfig {
        connections_per_second,
        duration: Duration::from_secs(60),
        runs_out: false,
        arrivals: Arrivals::Poisson,
        components,
        clients: 8192,
        servers: 2048,
        server_popularity: 0.9,
        round_trip: Duration::from_millis(40),
        ipv6_share: 0.0,
        persistent: 0,
        begins_at: BEGINS_AT,
    }
}

/// Of the answered connections of IPLS-3 half are over after 320 ms, 74.4 % after 500 ms, 88.9 % after 2 s: so much of the flow
/// digest's replication these delays save (figure 10). From the 69 897 entries that are replicated from 2 s on (figure
/// 12) follows how long the others last.
fn ipls_3_lifetimes() -> Quantiles {
    curve(&[
        (0.0, 0.02),
        (0.063, 0.05),
        (0.5, 0.32),
        (0.744, 0.5),
        (0.889, 2.0),
        (0.93, 30.0),
        (0.96, 120.0),
        (1.0, 900.0),
    ])
}

fn ipls_3() -> ReplicationConfig {
    // 39.2 % of the entries recycled in SYN_SENT; of these 87.1 % had no answer, 11 % were a SYN and a RST.
    let (unanswered, refused) = (0.392 * 0.871, 0.392 * 0.129);
    let answered = 1.0 - unanswered - refused;
    let lifetimes = ipls_3_lifetimes;
    let [astray, scan] = unwanted(unanswered, refused, 2);
    // 5797 SYNs a second, of which half of those without an answer are second ones. 39 427 entries are of one-way connections, which
    // stay for 20 s: as many connections. Those that are over within 2 s leave 19 528 entries: a third are closed by one side as far
    // as this link sees, whose other direction takes another route.
    let mut config = base(
        4950.0,
        vec![
            together(3.0, tcp("closed", answered * 0.58, lifetimes(), Ending::Closed, WEB)),
            tcp("reset", answered * 0.07, lifetimes(), Ending::Reset, WEB),
            tcp("half_closed", answered * 0.30, lifetimes(), Ending::HalfClosed, WEB),
            tcp("abandoned", answered * 0.05, lifetimes(), Ending::Abandoned, WEB),
            astray,
            scan,
        ],
    );
    // Few pairs of hosts with many connections each: a tenth as many entries by host as by connection (figure 12).
    (config.clients, config.servers, config.server_popularity) = (1024, 512, 1.0);
    config.duration = Duration::from_secs(600);
    config
}

fn ipls_1() -> ReplicationConfig {
    let lifetimes =
        || curve(&[(0.0, 0.01), (0.16, 0.05), (0.45, 0.32), (0.62, 0.7), (0.76, 3.0), (0.86, 60.0), (1.0, 900.0)]);
    let [astray, scan] = unwanted(0.099 * 0.871, 0.099 * 0.129, 2);
    // 1199 SYNs a second, and 159 394 entries at most: a connection stays for 133 s on average.
    let mut config = base(
        1150.0,
        vec![
            together(2.5, tcp("closed", 0.901 * 0.5, lifetimes(), Ending::Closed, WEB)),
            tcp("reset", 0.901 * 0.08, lifetimes(), Ending::Reset, WEB),
            tcp("bulk", 0.901 * 0.02, lifetimes(), Ending::Closed, BULK),
            tcp("half_closed", 0.901 * 0.20, lifetimes(), Ending::HalfClosed, WEB),
            tcp("abandoned", 0.901 * 0.20, lifetimes(), Ending::Abandoned, WEB),
            astray,
            scan,
        ],
    );
    config.duration = Duration::from_secs(600);
    config
}

fn auck_4() -> ReplicationConfig {
    let lifetimes =
        || curve(&[(0.0, 0.02), (0.03, 0.05), (0.25, 0.4), (0.50, 1.2), (0.80, 8.0), (0.95, 60.0), (1.0, 1800.0)]);
    let [astray, scan] = unwanted(0.16, 0.02, 2);
    // 308 SYNs a second.
    let mut config = base(
        285.0,
        vec![
            together(2.0, tcp("closed", 0.82 * 0.88, lifetimes(), Ending::Closed, WEB)),
            tcp("bulk", 0.82 * 0.02, lifetimes(), Ending::Closed, BULK),
            tcp("abandoned", 0.82 * 0.10, lifetimes(), Ending::Abandoned, WEB),
            astray,
            scan,
        ],
    );
    config.round_trip = Duration::from_millis(150);
    config.duration = Duration::from_secs(3600);
    config
}

fn flow_digest() -> ReplicationConfig {
    // "active connection duration … 5 to 30 seconds", "the setup delay … is set as 2 seconds".
    let lifetimes = curve(&[(0.0, 5.0), (0.25, 11.25), (0.5, 17.5), (0.75, 23.75), (1.0, 30.0)]);
    let mut config = base(5000.0, vec![tcp("steady", 1.0, lifetimes, Ending::Closed, BRIEF)]);
    (config.clients, config.servers) = (65_536, 8192);
    config.round_trip = Duration::from_secs(2);
    config
}

fn classification() -> ReplicationConfig {
    let component =
        tcp("second", 1.0, Quantiles::constant(1.0), Ending::Closed, Exchanges { at_least: 2, most: 2, ..BRIEF });
    let mut config = base(10_000.0, vec![component]);
    config.duration = Duration::from_secs(180);
    config
}

fn short_connections() -> ReplicationConfig {
    let short = curve(&[(0.0, 0.010), (1.0, 0.050)]);
    let long = curve(&[(0.0, 10.0), (0.5, 60.0), (1.0, 300.0)]);
    let mut config = base(
        27_000.0,
        vec![tcp("short", 0.998, short, Ending::Closed, BRIEF), tcp("long", 0.002, long, Ending::Closed, BULK)],
    );
    (config.clients, config.round_trip) = (65_536, Duration::from_millis(5));
    config
}

fn mixed() -> ReplicationConfig {
    let web = curve(&[(0.0, 0.02), (0.3, 0.2), (0.6, 1.5), (0.85, 12.0), (0.97, 75.0), (1.0, 900.0)]);
    let sessions = curve(&[(0.0, 10.0), (0.5, 120.0), (1.0, 3600.0)]);
    let dns = curve(&[(0.0, 0.001), (0.5, 0.02), (0.95, 0.3), (1.0, 5.0)]);
    let quic = curve(&[(0.0, 0.05), (0.5, 4.0), (0.9, 40.0), (1.0, 600.0)]);
    let udp = |name: &str, share, lifetime, exchanges, port| Component {
        behaviour: Behaviour::Udp { lifetime, exchanges },
        server_ports: vec![port],
        ..tcp(name, share, Quantiles::constant(1.0), Ending::Closed, exchanges)
    };
    let [astray, scan] = unwanted(0.06, 0.04, 3);
    let mut config = base(
        1000.0,
        vec![
            together(4.0, tcp("web", 0.36, web.clone(), Ending::Closed, WEB)),
            tcp("web_reset", 0.05, web.clone(), Ending::Reset, WEB),
            tcp("web_abandoned", 0.04, web, Ending::Abandoned, WEB),
            tcp("sessions", 0.02, sessions, Ending::Closed, WEB),
            tcp("bulk", 0.01, curve(&[(0.0, 1.0), (0.5, 10.0), (1.0, 300.0)]), Ending::Closed, BULK),
            together(2.0, udp("dns", 0.30, dns, BRIEF, 53)),
            udp("quic", 0.10, quic, WEB, 443),
            Component {
                behaviour: Behaviour::UdpUnanswered { datagrams: 2 },
                ..tcp("udp_unanswered", 0.02, Quantiles::constant(1.0), Ending::Closed, BRIEF)
            },
            astray,
            scan,
        ],
    );
    config.ipv6_share = 0.35;
    config
}
