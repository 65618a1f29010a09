//! The translation as a file.

use std::fmt::Write;
use std::net::SocketAddr;

use super::translate::{PeerAddressing, Translation};

/// Ports of the native protocol: the usual one, and another where a conntrackd has it.
const NATIVE_PORTS: [u16; 2] = [3781, 3782];

/// The configuration, with what the operator has to know as comments. `file` is what was translated.
pub(super) fn toml(translation: &Translation, file: &str) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "# Translated from {} by mainstay sync import. Every key: docs/reference/sync-configuration.md\n# Check it: mainstay sync --config FILE --check",
        file.escape_debug()
    );
    if !translation.remarks.is_empty() {
        text.push_str("#\n# What is not as it was, by lines of that file:\n");
    }
    for remark in &translation.remarks {
        let _ = writeln!(text, "# {}: {}: {}", remark.line, remark.subject, remark.text);
    }
    let own_id = u8::from(matches!(translation.way, Some(PeerAddressing::Unicast { local, peer }) if peer < local));
    let _ = writeln!(
        text,
        "\n[node]\nid = {own_id}{}\ncontrol_socket = {}\nmetrics = \"127.0.0.1:9465\"",
        if matches!(translation.way, Some(PeerAddressing::Unicast { .. })) {
            "                                    # the node of the lower address is 0"
        } else {
            "                                    # give the other node 1"
        },
        quoted(config::sync::CONTROL_SOCKET_DEFAULT),
    );
    section(&mut text, "[kernel]", &translation.kernel);
    text.push_str("\n[cluster]\nmode = \"primary-backup\"\nrole = \"backup\"                           # until keepalived calls `mainstay sync primary`\n");
    filter(&mut text, translation);
    peers(&mut text, translation, own_id);
    text
}

fn section(text: &mut String, name: &str, keys: &[(&'static str, String)]) {
    if !keys.is_empty() {
        let _ = writeln!(text, "\n{name}");
    }
    for (key, value) in keys {
        let _ = writeln!(text, "{key} = {value}");
    }
}

fn filter(text: &mut String, translation: &Translation) {
    let filter = &translation.filter;
    let keys: Vec<(&'static str, String)> = [
        ("tcp_states", &filter.tcp_states),
        ("protocols", &filter.protocols.iter().map(|name| (*name).to_owned()).collect()),
        ("addresses", &filter.addresses),
    ]
    .into_iter()
    .filter(|(_, values)| !values.is_empty())
    .map(|(key, values)| (key, list(values)))
    .collect();
    section(text, "[filter]", &keys);
    if !filter.ignored_addresses.is_empty() {
        section(text, "[[filter.ignore]]", &[("addresses", list(&filter.ignored_addresses))]);
    }
    for protocol in &filter.ignored_protocols {
        section(text, "[[filter.ignore]]", &[("protocol", quoted(protocol))]);
    }
}

fn peers(text: &mut String, translation: &Translation, own_id: u8) {
    let peer_id = 1 - own_id;
    let Some(way) = &translation.way else {
        text.push_str(
            "\n# The link is missing, see above:\n# [conntrackd]\n# local = \"10.99.0.1:3780\"\n# peer = \"10.99.0.2:3780\"\n\
             # peer_id = 1\n",
        );
        return;
    };
    if translation.is_ftfw {
        conntrackd(text, translation, way, peer_id);
    }
    native(text, translation, way, peer_id);
}

fn conntrackd(text: &mut String, translation: &Translation, way: &PeerAddressing, peer_id: u8) {
    let (local, key, address) = match way {
        PeerAddressing::Unicast { local, peer } => (local, "peer", peer),
        PeerAddressing::Multicast { local, group } => (local, "multicast", group),
    };
    let mut keys = vec![("local", quoted(&local.to_string())), (key, quoted(&address.to_string()))];
    keys.extend(translation.interface.as_ref().map(|name| ("interface", quoted(name))));
    keys.push(("peer_id", peer_id.to_string()));
    keys.extend(translation.conntrackd.iter().cloned());
    text.push_str("\n# As long as the other node runs conntrackd.");
    section(text, "[conntrackd]", &keys);
}

/// Where both nodes run Mainstay. Written out where that is the only way, else for later.
fn native(text: &mut String, translation: &Translation, way: &PeerAddressing, peer_id: u8) {
    let (PeerAddressing::Unicast { local, .. } | PeerAddressing::Multicast { local, .. }) = way;
    let port = if local.port() == NATIVE_PORTS[0] { NATIVE_PORTS[1] } else { NATIVE_PORTS[0] };
    let own = SocketAddr::new(local.ip(), port);
    let peer = match way {
        PeerAddressing::Unicast { peer, .. } => Some(SocketAddr::new(peer.ip(), port)),
        PeerAddressing::Multicast { .. } => None,
    };
    let lines = [
        "[replication]".to_owned(),
        format!("local = {}", quoted(&own.to_string())),
        "[[replication.peer]]".to_owned(),
        format!("id = {peer_id}"),
        format!(
            "address = {}",
            peer.map_or_else(|| "\"the other node's address:3781\"".to_owned(), |peer| quoted(&peer.to_string()))
        ),
        "[replication.security]                    # make the key: mainstay key --output /etc/mainstay/cluster.key"
            .to_owned(),
        "pre_shared_keys = [\"/etc/mainstay/cluster.key\"]".to_owned(),
    ];
    // A group does not identify the other node: the operator must.
    let is_in_force = !translation.is_ftfw && peer.is_some();
    if is_in_force {
        text.push('\n');
    } else if translation.is_ftfw {
        text.push_str("\n# Once both nodes run mainstay sync, this takes the place of [conntrackd] (docs/sync.md):\n");
    } else {
        text.push_str("\n# Fill in where the other node is:\n");
    }
    for line in lines {
        let _ = writeln!(text, "{}{line}", if is_in_force { "" } else { "# " });
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list(values: &[String]) -> String {
    format!("[{}]", values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", "))
}
