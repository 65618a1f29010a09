//! What the statements of a conntrackd.conf mean to `mainstay sync`.

use std::net::{IpAddr, SocketAddr};

use super::filter::{self, FilterText};
use super::parse::Statement;

/// The port that conntrackd uses unless another is configured.
const PORT_DEFAULT: u16 = 3780;

/// What the operator has to know of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// The line of the statement.
    pub line: usize,
    /// The statement.
    pub subject: String,
    /// Its translation, and what to do.
    pub text: String,
}

/// The two nodes' way to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerAddressing {
    /// Both addresses are known.
    Unicast {
        /// This node's.
        local: SocketAddr,
        /// The peer's.
        peer: SocketAddr,
    },
    /// The other node is somewhere in the group.
    Multicast {
        /// This node's address on the link.
        local: SocketAddr,
        /// The group.
        group: SocketAddr,
    },
}

/// A conntrackd.conf, translated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Translation {
    /// The mode is one in which `mainstay sync` can replicate to a conntrackd.
    pub is_ftfw: bool,
    /// The way, if it could be made out.
    pub way: Option<PeerAddressing>,
    /// The link's interface.
    pub interface: Option<String>,
    /// Keys of `[conntrackd]`, with their values.
    pub conntrackd: Vec<(&'static str, String)>,
    /// Keys of `[kernel]`, with their values.
    pub kernel: Vec<(&'static str, String)>,
    /// `[filter]`.
    pub filter: FilterText,
    /// What the operator has to know.
    pub remarks: Vec<Remark>,
}

impl Translation {
    pub(super) fn remark(&mut self, statement: &Statement, text: impl Into<String>) {
        // A word may hold anything; neither a terminal nor a comment should suffer from it.
        let subject: String = statement.words.join(" ").escape_debug().collect();
        self.remarks.push(Remark { line: statement.line, subject, text: text.into() });
    }
}

/// What becomes of a statement.
enum Meaning {
    /// A number, for a key of `[kernel]`; within these bounds.
    Kernel(&'static str, u64, u64),
    /// A number, for a key of `[conntrackd]`; within these bounds.
    Conntrackd(&'static str, u64, u64),
    /// It needs no counterpart.
    Nothing,
    /// It is done otherwise, or not at all.
    Otherwise(&'static str),
}

const NOT_NEEDED_TIMEOUT: &str = "not needed: a peer's connections have the timeouts that the peer sends, and end when it \
                                  ends them";
const OF_THE_UNIT: &str = "the program's priority is its unit's (Nice= in mainstay-sync.service)";
const TO_STANDARD_ERROR: &str = "logs go to standard error, which systemd keeps: see node.log and node.log_format";

/// Statements that stand for themselves, by their names.
const MEANINGS: [(&str, Meaning); 25] = [
    ("ResendQueueSize", Meaning::Conntrackd("resend_queue_max", 1024, 1 << 24)),
    ("ACKWindowSize", Meaning::Conntrackd("ack_window_messages", 1, 1000)),
    ("CommitTimeout", Meaning::Otherwise(NOT_NEEDED_TIMEOUT)),
    ("PurgeTimeout", Meaning::Otherwise(NOT_NEEDED_TIMEOUT)),
    ("RefreshTime", Meaning::Otherwise("not needed: only lost updates are retransmitted")),
    ("CacheTimeout", Meaning::Otherwise(NOT_NEEDED_TIMEOUT)),
    ("StartupResync", Meaning::Otherwise("not needed: a node that starts always receives the whole table")),
    ("DisableInternalCache", Meaning::Otherwise("there is one table of connections, and it cannot be switched off")),
    ("HashSize", Meaning::Otherwise("not needed: tables grow by themselves up to kernel.connections_max")),
    ("HashLimit", Meaning::Kernel("connections_max", 1, 1 << 27)),
    ("NetlinkBufferSize", Meaning::Kernel("receive_buffer", 4096, 1 << 30)),
    ("NetlinkBufferSizeMaxGrowth", Meaning::Kernel("receive_buffer_max", 4096, 1 << 30)),
    ("EventIterationLimit", Meaning::Otherwise("not needed: work of each kind is bounded anyway")),
    (
        "NetlinkEventsReliable",
        Meaning::Otherwise(
            "not used: it makes packets wait. What was missed is found by comparison, see events lost in status",
        ),
    ),
    (
        "PollSecs",
        Meaning::Otherwise("not translated: connections are followed by the kernel's events, never by polling alone"),
    ),
    ("LogFile", Meaning::Otherwise(TO_STANDARD_ERROR)),
    ("Syslog", Meaning::Otherwise(TO_STANDARD_ERROR)),
    ("LockFile", Meaning::Otherwise("not needed: a second daemon is refused at the control socket")),
    ("Lockfile", Meaning::Nothing),
    ("Nice", Meaning::Otherwise(OF_THE_UNIT)),
    ("Scheduler", Meaning::Otherwise(OF_THE_UNIT)),
    ("Systemd", Meaning::Nothing),
    (
        "UNIX",
        Meaning::Otherwise(
            "scripts that use this socket (conntrackd -c, -n, …) use `mainstay sync primary` and its like",
        ),
    ),
    ("Stats", Meaning::Otherwise("not translated: counters are those of `mainstay status` and node.metrics")),
    ("Helper", Meaning::Otherwise("not translated: helpers are the kernel's; userspace helpers need conntrackd")),
];

/// The whole file; `None` when nothing is replicated by it.
pub(super) fn translate(file: &[Statement]) -> Option<Translation> {
    let sync = file.iter().rfind(|statement| statement.is("Sync"))?;
    let mut translation = Translation::default();
    options(sync, &mut translation);
    mode(sync, &mut translation);
    way(sync, &mut translation);
    for statement in file {
        if statement.is("General") {
            general(statement, &mut translation);
        } else if !statement.is("Sync") {
            plain(statement, &mut translation);
        }
    }
    let size = |key| translation.kernel.iter().find(|(name, _)| *name == key).and_then(|(_, value)| value.parse().ok());
    let (first, largest): (Option<u64>, Option<u64>) = (size("receive_buffer"), size("receive_buffer_max"));
    // Ours begins with more than conntrackd may grow to.
    if largest.is_some_and(|largest| largest < first.unwrap_or(2 << 20)) {
        translation.kernel.retain(|(name, _)| *name != "receive_buffer_max");
    }
    translation.remarks.sort_by_key(|remark| remark.line);
    Some(translation)
}

fn is_on(statement: &Statement) -> bool {
    ["on", "yes"].iter().any(|word| statement.value().eq_ignore_ascii_case(word))
}

/// A statement that stands for itself.
fn plain(statement: &Statement, translation: &mut Translation) {
    let known = MEANINGS.iter().find(|(name, _)| statement.is(name));
    let number = |least: u64, most: u64| statement.value().parse().ok().map(|number: u64| number.clamp(least, most));
    match known.map(|(_, meaning)| meaning) {
        Some(Meaning::Kernel(key, least, most)) => match number(*least, *most) {
            Some(number) => set(&mut translation.kernel, key, number.to_string()),
            None => translation.remark(statement, format!("this is not a number: kernel.{key} is left at its default")),
        },
        Some(Meaning::Conntrackd(key, least, most)) => match number(*least, *most) {
            Some(number) => set(&mut translation.conntrackd, key, number.to_string()),
            None => {
                translation.remark(statement, format!("this is not a number: conntrackd.{key} is left at its default"));
            }
        },
        Some(Meaning::Nothing) => {}
        Some(Meaning::Otherwise(text)) => translation.remark(statement, *text),
        None => translation.remark(statement, "not known, and left out: docs/sync.md lists all settings"),
    }
}

/// The last word on a key counts.
pub(super) fn set(keys: &mut Vec<(&'static str, String)>, key: &'static str, value: String) {
    keys.retain(|(name, _)| *name != key);
    keys.push((key, value));
}

fn mode(sync: &Statement, translation: &mut Translation) {
    let Some(mode) = sync.find("Mode") else {
        translation.remark(sync, "no Mode is named: conntrackd would not start with this");
        set(&mut translation.kernel, "injection", "\"direct\"".to_owned());
        return;
    };
    translation.is_ftfw = mode.value().eq_ignore_ascii_case("FTFW");
    if !translation.is_ftfw {
        translation.remark(
            mode,
            "of conntrackd's protocols only FTFW is spoken: either switch both conntrackd to Mode FTFW first and import that, or \
             move both nodes over at the same time, to [replication]",
        );
    }
    let cache = mode.find("DisableExternalCache");
    if !cache.is_some_and(is_on) {
        let text = "conntrackd kept the peer's connections in a cache until a failover; they go into this kernel at once \
                    instead, so that there is nothing to commit (injection = \"external-cache\" is the old way)";
        translation.remark(cache.unwrap_or(mode), text);
    }
    set(&mut translation.kernel, "injection", "\"direct\"".to_owned());
    for statement in mode.block.iter().filter(|statement| !statement.is("DisableExternalCache")) {
        plain(statement, translation);
    }
}

fn options(sync: &Statement, translation: &mut Translation) {
    let empty = Statement::default();
    let options = sync.find("Options").unwrap_or(&empty);
    let mut expectations = false;
    for statement in &options.block {
        if statement.is("TCPWindowTracking") {
            set(&mut translation.conntrackd, "window_tracking", is_on(statement).to_string());
        } else if statement.is("ExpectationSync") {
            expectations = is_on(statement) || !statement.block.is_empty();
            if !statement.block.is_empty() {
                translation.remark(
                    statement,
                    "announced connections of all helpers are replicated, not of the listed ones alone",
                );
            }
        } else {
            plain(statement, translation);
        }
    }
    set(&mut translation.kernel, "expectations", expectations.to_string());
}

fn general(general: &Statement, translation: &mut Translation) {
    for statement in &general.block {
        if statement.is("Filter") {
            filter::translate(statement, translation);
        } else if statement.is("NetlinkOverrunResync") {
            let text = "missed events are always repaired at once, by comparison with the kernel's table";
            translation.remark(statement, text);
        } else {
            plain(statement, translation);
        }
    }
}

/// The link between the nodes.
fn way(sync: &Statement, translation: &mut Translation) {
    let is_link = |statement: &&Statement| ["Multicast", "UDP", "TCP"].iter().any(|name| statement.is(name));
    let links: Vec<&Statement> = sync.block.iter().filter(is_link).collect();
    let is_default = |link: &&&Statement| link.value().eq_ignore_ascii_case("Default");
    let Some(link) = links.iter().find(is_default).or(links.first()).copied() else {
        translation.remark(sync, "no link (Multicast, UDP or TCP) is named: write [conntrackd] local and peer by hand");
        return;
    };
    for other in links.into_iter().filter(|other| !std::ptr::eq(*other, link)) {
        let text = "one link is used: put several together as a bond, which fails over without anybody's help";
        translation.remark(other, text);
    }
    for other in &sync.block {
        if !is_link(&other) && !["Mode", "Options"].iter().any(|name| other.is(name)) {
            plain(other, translation);
        }
    }
    if link.is("TCP") {
        translation.is_ftfw = false;
        translation.remark(
            link,
            "conntrackd's TCP is not supported: configure UDP at both conntrackds first, or move both nodes over together",
        );
    }
    translation.interface = link.find("Interface").map(|statement| statement.value().to_owned());
    if translation.interface.as_ref().is_some_and(|name| !is_interface(name)) {
        translation.interface = None;
        translation.remark(link, "the interface's name cannot be one, and is left out");
    }
    translation.way = addresses(link, translation);
    if translation.way.is_none() {
        translation.remark(link, "the addresses of the link could not be made out: write [conntrackd] by hand");
    }
    if let Some(checksum) = link.find("Checksum").filter(|checksum| !is_on(checksum)) {
        translation.remark(checksum, "datagrams always have checksums, and conntrackd takes those");
    }
    let known = [
        "IPv4_address",
        "IPv6_address",
        "IPv4_Destination_Address",
        "IPv6_Destination_Address",
        "IPv4_interface",
        "IPv6_interface",
        "Interface",
        "Port",
        "Group",
        "Checksum",
        "SndSocketBuffer",
        "RcvSocketBuffer",
    ];
    for statement in link.block.iter().filter(|statement| !known.iter().any(|name| statement.is(name))) {
        plain(statement, translation);
    }
}

fn is_interface(name: &str) -> bool {
    (1..=15).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

/// Both ends of the link.
fn addresses(link: &Statement, translation: &mut Translation) -> Option<PeerAddressing> {
    let address = |names: [&str; 2]| -> Option<IpAddr> {
        names.iter().find_map(|name| link.find(name)).and_then(|statement| statement.value().parse().ok())
    };
    let port_key = if link.is("Multicast") { "Group" } else { "Port" };
    let port = match link.find(port_key) {
        None => PORT_DEFAULT,
        Some(statement) => match statement.value().parse::<u16>().ok().filter(|port| *port > 0) {
            Some(port) => port,
            None => {
                translation.remark(statement, format!("this is not a port: {PORT_DEFAULT} is written instead"));
                PORT_DEFAULT
            }
        },
    };
    let at = |address| SocketAddr::new(address, port);
    let own = address(["IPv4_address", "IPv6_address"])?;
    if link.is("Multicast") {
        let local = address(["IPv4_interface", "IPv6_interface"])?;
        let is_sound = own.is_multicast() && !local.is_multicast() && own.is_ipv4() == local.is_ipv4();
        return (is_sound && translation.interface.is_some())
            .then(|| PeerAddressing::Multicast { local: at(local), group: at(own) });
    }
    let peer = address(["IPv4_Destination_Address", "IPv6_Destination_Address"])?;
    let is_sound = own != peer && own.is_ipv4() == peer.is_ipv4() && !own.is_multicast() && !peer.is_multicast();
    is_sound.then(|| PeerAddressing::Unicast { local: at(own), peer: at(peer) })
}
