//! `mainstay sync --check`: whether a configuration is right and what this host can do of it, without running it.

use std::path::Path;
use std::process::{Command, Stdio};

use packet_io::ctnetlink::{EventOptions, EventSocket, Support, support};
use packet_io::netlink::Netlink;
use packet_io::sysctl;
use serde::Serialize;

use super::super::CommandError;
use crate::config::sync::{self, SyncConfig};
use crate::control::Credentials;
use crate::gateway::credentials;
use crate::output::{self, counted};

/// What `--json` prints.
#[derive(Serialize)]
struct Host {
    /// Connections that the kernel tracks.
    connections: Option<u64>,
    /// And at most.
    connections_max: Option<u64>,
    /// `net.netfilter.nf_conntrack_events`.
    events: Option<u64>,
    /// What is missing, or looks doubtful, a sentence each with its remedy.
    findings: Vec<String>,
    /// Nothing is replicated before the first of them is put right.
    is_fatal: bool,
}

/// Says what is doubtful on standard error and, when nothing is wrong, so on standard output, with what this host can do. A right
/// configuration is one on any host: what this one lacks is told and is no failure.
///
/// # Errors
/// The configuration cannot be read or is wrong.
pub(super) fn run(path: &Path, json: bool) -> Result<(), CommandError> {
    let checked = sync::load(path)?;
    for warning in &checked.warnings {
        eprintln!("{warning}");
    }
    let config = &checked.config;
    let native = config.replication.as_ref().map(|native| &native.replication);
    if let Some(security) = native.and_then(|replication| replication.security.as_ref())
        && let Err(error) = credentials::load(security)
    {
        // They are this host's, as interfaces are.
        eprintln!("warning: {error}");
    }
    if let Some(access) = &config.control {
        Credentials::load(access)?;
    }
    let host = look(config);
    if json {
        return Ok(output::print_json(&host)?);
    }
    let peers = native.map_or(0, |replication| replication.peers.len()) + usize::from(config.conntrackd.is_some());
    let mut text = format!(
        "{}: right. Node {}: {}, {}{}.\n",
        path.display(),
        config.node.id.0,
        counted(peers, "peer"),
        counted(config.filter.ignore.len(), "filter"),
        if config.conntrackd.is_some() { "; a conntrackd is spoken with" } else { "" },
    );
    if host.findings.is_empty() {
        text.push_str("This host has all that it takes.\n");
    }
    for finding in &host.findings {
        text.push_str(&format!("{finding}\n"));
    }
    Ok(output::print(&text)?)
}

fn look(config: &SyncConfig) -> Host {
    let support = support();
    let mut findings: Vec<String> = support.lacks.iter().map(ToString::to_string).collect();
    findings.extend(room(config, &support));
    findings.extend(addresses(config));
    findings.extend(buffer(config));
    findings.extend(masquerading());
    Host {
        connections: support.connections,
        connections_max: support.connections_max,
        events: support.events,
        is_fatal: support.lacks.iter().any(packet_io::ctnetlink::Lack::is_fatal),
        findings,
    }
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
         the other one has that address, too. Translate to a shared address (snat to …)"
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
