//! `Filter` of conntrackd.conf(5).

use super::parse::Statement;
use super::translate::Translation;
use config::value::{PROTOCOLS, parse_prefix};

/// What is replicated, as `[filter]` writes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FilterText {
    /// `filter.protocols`.
    pub protocols: Vec<&'static str>,
    /// `filter.addresses`.
    pub addresses: Vec<String>,
    /// `filter.tcp_states`.
    pub tcp_states: Vec<String>,
    /// Addresses of `[[filter.ignore]]`.
    pub ignored_addresses: Vec<String>,
    /// A `[[filter.ignore]]` each.
    pub ignored_protocols: Vec<&'static str>,
}

/// TCP's states: what conntrackd calls them, and what `mainstay sync` does.
const STATES: [(&str, &str); 9] = [
    ("SYN_SENT", "syn_sent"),
    ("SYN_RECV", "syn_recv"),
    ("ESTABLISHED", "established"),
    ("FIN_WAIT", "fin_wait"),
    ("CLOSE_WAIT", "close_wait"),
    ("LAST_ACK", "last_ack"),
    ("TIME_WAIT", "time_wait"),
    ("CLOSED", "close"),
    ("LISTEN", "syn_sent2"),
];

/// What a filter's set does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Accept,
    Ignore,
}

pub(super) fn translate(statement: &Statement, translation: &mut Translation) {
    let is_in_kernel = statement.words.iter().any(|word| word.eq_ignore_ascii_case("Kernelspace"));
    if is_in_kernel && statement.block.iter().any(|set| set.name().eq_ignore_ascii_case("Address")) {
        translation.remark(
            statement,
            "from Kernelspace conntrackd looks at the addresses of the first packet; here the two end points count, whatever \
             they are translated to. Take out of filter.ignore what a published address leads to, if it is listed",
        );
    }
    for set in &statement.block {
        let policy = match set.value() {
            value if value.eq_ignore_ascii_case("Accept") => Policy::Accept,
            value if value.eq_ignore_ascii_case("Ignore") => Policy::Ignore,
            _ => {
                translation.remark(set, "it is neither Accept nor Ignore, and left out: add it to [filter] by hand");
                continue;
            }
        };
        match set.name() {
            name if name.eq_ignore_ascii_case("Protocol") => protocols(set, policy, translation),
            name if name.eq_ignore_ascii_case("Address") => addresses(set, policy, translation),
            name if name.eq_ignore_ascii_case("State") => states(set, policy, translation),
            _ => translation.remark(set, "this set of conditions is not known, and is left out: see [filter]"),
        }
    }
}

/// All words of a section, whether they stand on a line each or together.
fn words(set: &Statement) -> impl Iterator<Item = (&Statement, &str)> {
    set.block.iter().flat_map(|line| line.words.iter().map(move |word| (line, word.as_str())))
}

fn protocols(set: &Statement, policy: Policy, translation: &mut Translation) {
    let mut found = Vec::new();
    for (line, word) in words(set) {
        let wanted = if word.eq_ignore_ascii_case("IPv6-ICMP") { "icmpv6" } else { word };
        match PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)) {
            Some((name, _)) => found.push(*name),
            None if word.eq_ignore_ascii_case("DCCP") => {
                let text = "current kernels do not track DCCP any more: it is left out";
                translation.remark(line, text);
            }
            None => translation.remark(line, "this protocol is not known: add its number to [filter] by hand"),
        }
    }
    match policy {
        Policy::Accept => translation.filter.protocols.extend(found),
        Policy::Ignore => translation.filter.ignored_protocols.extend(found),
    }
}

fn addresses(set: &Statement, policy: Policy, translation: &mut Translation) {
    let mut found = Vec::new();
    for line in &set.block {
        let Ok(prefix) = parse_prefix(line.value()) else {
            translation
                .remark(line, "this is not an address or a network, and is left out: add it to [filter] by hand");
            continue;
        };
        let network = prefix.trunc();
        if network != prefix {
            translation.remark(line, "bits beyond the prefix length have no meaning, and are left out");
        }
        let is_host = network.prefix_len() == network.max_prefix_len();
        found.push(if is_host { network.addr().to_string() } else { network.to_string() });
    }
    match policy {
        Policy::Accept => translation.filter.addresses.extend(found),
        Policy::Ignore => translation.filter.ignored_addresses.extend(found),
    }
}

fn states(set: &Statement, policy: Policy, translation: &mut Translation) {
    let mut found = Vec::new();
    for line in &set.block {
        // The line ends with `for TCP`.
        for word in line.words.iter().take_while(|word| !word.eq_ignore_ascii_case("for")) {
            match STATES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
                Some((_, name)) => found.push(*name),
                None => translation.remark(line, "this state is not known, and is left out: see filter.tcp_states"),
            }
        }
    }
    let is_replicated = |name: &str| (policy == Policy::Accept) == found.contains(&name);
    let replicated = STATES.iter().map(|(_, name)| *name).filter(|name| is_replicated(name));
    translation.filter.tcp_states = replicated.map(str::to_owned).collect();
    if has_handshake_states(&translation.filter.tcp_states) {
        super::translate::set(&mut translation.kernel, "events", "\"all\"".to_owned());
    }
    if translation.filter.tcp_states.is_empty() {
        translation.remark(set, "no state of TCP would be replicated: filter.tcp_states keeps its default");
    }
}

/// Whether connections are replicated before they are established. The kernel has to make events of that.
fn has_handshake_states(states: &[String]) -> bool {
    ["syn_sent", "syn_recv", "syn_sent2"].iter().any(|name| states.iter().any(|state| state == name))
}
