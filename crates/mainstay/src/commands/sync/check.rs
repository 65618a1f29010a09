//! `mainstay sync --check`: whether the daemon would start with a configuration on this host, without running it.

use std::path::Path;
use std::process::{Command, Stdio};

use packet_io::ctnetlink::{EventOptions, EventSocket, Support, support};
use packet_io::netlink::Netlink;
use packet_io::sysctl;
use serde::Serialize;

use super::super::CommandError;
use super::super::probe::{self, Secrets, ServiceUser};
use super::super::problem::{self, Problem};
use crate::cli::CheckArgs;
use config::sync::validated::ConntrackdPeer;
use config::sync::{self, SyncConfig};
use console::counted;

/// What `--json` prints.
#[derive(Serialize)]
struct Host {
    /// Connections that the kernel tracks.
    connections: Option<u64>,
    /// And at most.
    connections_max: Option<u64>,
    /// `net.netfilter.nf_conntrack_events`.
    events: Option<u64>,
    /// Nothing is replicated before the first of them is put right.
    is_fatal: bool,
}

/// What `--json` prints of a file that can be used.
#[derive(Serialize)]
struct Checked {
    /// Whether the daemon would start on this host, as far as can be known without a start.
    usable: bool,
    problems: Vec<Problem>,
    #[serde(flatten)]
    host: Option<Host>,
}

/// Checks whether the daemon can start with a file on this host. Errors go to standard error. Warnings, and what the kernel
/// lacks, go to standard output: the daemon starts without it. With `--config-only` it looks at the file alone.
///
/// # Errors
/// The file cannot be read or is wrong, or a start on this host would fail.
pub(super) fn run(path: &Path, args: &CheckArgs) -> Result<(), CommandError> {
    let checked = match sync::load(path) {
        Ok(checked) => checked,
        Err(error) => return problem::refuse(error, path, args.json),
    };
    let config = &checked.config;
    let mut problems: Vec<Problem> = checked.warnings.iter().map(Problem::from).collect();
    let host = (!args.config_only).then(|| {
        let (host, found) = look(config);
        problems.extend(found.iter().map(|sentence| Problem::warning("host", sentence)));
        problems.extend(secrets(config, args.user.as_deref()));
        problems.extend(sockets(config));
        host
    });
    if args.json {
        let usable = !problems.iter().any(Problem::is_error);
        console::print_json(&Checked { usable, problems: problems.clone(), host })?;
    } else {
        console::print(&describe(path, config, &problems, host.is_some()))?;
    }
    problem::conclude(&problems)
}

/// What is wrong with the files of keys, tokens and certificates.
fn secrets(config: &SyncConfig, user: Option<&str>) -> Vec<Problem> {
    let user = user.map(ServiceUser::named);
    let mut secrets = Secrets::new(user.as_ref());
    let native = config.replication.as_ref().map(|native| &native.replication);
    secrets.security("[replication.security]", native.and_then(|replication| replication.security.as_ref()));
    secrets.control(config.control.as_ref());
    secrets.problems()
}

/// What a start binds.
fn sockets(config: &SyncConfig) -> Vec<Problem> {
    if let Some(taken) = probe::control_socket(&config.node.control_socket) {
        return vec![taken];
    }
    let native = config.replication.as_ref().map(|native| ("replication.local", native.replication.local));
    // Those that share a group share its port.
    let conntrackd =
        config.conntrackd.as_ref().filter(|conntrackd| matches!(conntrackd.peer, ConntrackdPeer::Unicast(_)));
    let conntrackd = conntrackd.map(|conntrackd| ("conntrackd.local", conntrackd.local));
    let peers = native.into_iter().chain(conntrackd).filter_map(|(key, address)| probe::udp_port(key, address));
    let operators = probe::operators_ports(config.node.metrics, config.control.as_ref().map(|access| access.listen));
    peers.chain(operators).collect()
}

/// What the file configures, and warnings, for people; errors are not among it.
fn describe(path: &Path, config: &SyncConfig, problems: &[Problem], is_of_host: bool) -> String {
    let native = config.replication.as_ref().map(|native| &native.replication);
    let peers = native.map_or(0, |replication| replication.peers.len()) + usize::from(config.conntrackd.is_some());
    let mut text = format!(
        "{}: right. Node {}: {}, {}{}.\n",
        path.display(),
        config.node.id.0,
        counted(peers, "peer"),
        counted(config.filter.ignore.len(), "filter"),
        if config.conntrackd.is_some() { "; one peer is conntrackd" } else { "" },
    );
    if is_of_host && problems.is_empty() {
        text.push_str("This host has all that it takes.\n");
    }
    for problem in problems.iter().filter(|problem| !problem.is_error()) {
        text.push_str(&format!("{problem}\n"));
    }
    text
}

/// What the kernel offers; and what is missing, or looks doubtful, a sentence each with its remedy.
fn look(config: &SyncConfig) -> (Host, Vec<String>) {
    let support = support();
    let mut problems: Vec<String> = support.lacks.iter().map(ToString::to_string).collect();
    problems.extend(room(config, &support));
    problems.extend(addresses(config));
    problems.extend(buffer(config));
    problems.extend(masquerading());
    let host = Host {
        connections: support.connections,
        connections_max: support.connections_max,
        events: support.events,
        is_fatal: support.lacks.iter().any(packet_io::ctnetlink::Lack::is_fatal),
    };
    (host, problems)
}

/// What the kernel may track has to be remembered.
fn room(config: &SyncConfig, support: &Support) -> Option<String> {
    let remembered = u64::from(config.kernel.connections_max);
    let max = support.connections_max.filter(|max| *max > remembered)?;
    Some(format!(
        "the kernel tracks up to {max} connections, of which kernel.connections_max = {remembered} are remembered: raise it"
    ))
}

/// The buffer for the kernel's events that this process may have: without `CAP_NET_ADMIN` the host's limit holds.
fn buffer(config: &SyncConfig) -> Option<String> {
    let wanted = config.kernel.receive_buffer_bytes_max;
    let options =
        EventOptions { began: false, changed: false, ended: false, expectations: false, ..EventOptions::default() };
    let had = EventSocket::open(&options).and_then(|mut socket| socket.set_receive_buffer(wanted)).ok()?;
    let limit = sysctl::read("net/core/rmem_max").unwrap_or_default();
    // The kernel doubles what it grants, for its own needs.
    (had / 2 < wanted).then(|| {
        format!(
            "the buffer for the kernel's events is limited to {limit} bytes, and kernel.receive_buffer_max is {wanted}: sysctl -w \
             net.core.rmem_max={wanted}, or run with CAP_NET_ADMIN"
        )
    })
}

/// Rules that translate to whatever address an interface has, which differs from node to node. Rules of nft and of both kinds of
/// iptables are looked through, as far as the programs are there and may be run.
fn masquerading() -> Option<String> {
    let listings: [(&str, &[&str]); 3] =
        [("nft", &["list", "ruleset"]), ("iptables-save", &[]), ("ip6tables-save", &[])];
    let is_found = listings.into_iter().any(|(program, arguments)| {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
        output.is_ok_and(|output| masquerades(&String::from_utf8_lossy(&output.stdout)))
    });
    is_found.then(|| {
        "a rule masquerades: connections are translated to an address of this node's interface, and do not survive the node unless \
         the peer has that address, too. Translate to a shared address (snat to …)"
            .to_owned()
    })
}

/// Whether a ruleset has a statement that masquerades; comments do not count.
fn masquerades(ruleset: &str) -> bool {
    let of_line = |line: &str| line.split(" comment ").next().unwrap_or_default().to_lowercase();
    ruleset.lines().map(str::trim).filter(|line| !line.starts_with('#')).any(|line| {
        of_line(line).split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == "masquerade")
    })
}

/// Own addresses that this host does not have.
fn addresses(config: &SyncConfig) -> Vec<String> {
    let native = config.replication.as_ref().map(|native| ("replication.local", native.replication.local));
    let conntrackd = config.conntrackd.as_ref().map(|conntrackd| ("conntrackd.local", conntrackd.local));
    let Ok(interfaces) = Netlink::open().and_then(|mut netlink| netlink.interfaces()) else { return Vec::new() };
    let is_here = |address: std::net::IpAddr| {
        address.is_loopback()
            || interfaces.iter().any(|interface| interface.addresses.iter().any(|own| own.address == address))
    };
    native
        .into_iter()
        .chain(conntrackd)
        .filter(|(_, local)| !is_here(local.ip()))
        .map(|(key, local)| format!("{key}: no interface has {}: add it to the link between the nodes", local.ip()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::masquerades;

    #[test]
    fn a_rule_that_masquerades_is_found_however_it_is_written_and_a_comment_is_not() {
        assert!(masquerades("table ip nat {\n  chain post {\n    oifname \"eth1\" masquerade\n  }\n}\n"));
        assert!(masquerades("oifname \"eth1\" counter packets 0 bytes 0 masquerade random"));
        assert!(masquerades("-A POSTROUTING -o eth1 -j MASQUERADE\n"));
        assert!(!masquerades("# no masquerade\noifname \"eth1\" snat to 192.0.2.10 comment \"was masquerade\"\n"));
        assert!(!masquerades("chain masquerade_none {\n}\n"));
    }
}
