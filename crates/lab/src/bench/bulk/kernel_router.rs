//! The kernel in the node's place: its addresses, forwarding, and the same rules in nftables.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::{IoError, sysctl};
use serde::Serialize;

use crate::testbed::topology::{INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS};

/// What the kernel does beside forwarding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::bench) enum KernelRules {
    /// Stateful rules and masquerading, by nftables.
    Nftables,
    /// Nothing.
    None {
        /// Why not.
        reason: String,
    },
}

impl KernelRules {
    /// Makes the kernel of the namespace a router with rules, as far as there is an `nft` that
    /// the kernel listens to.
    pub(in crate::bench) fn install(node: &Namespace) -> Result<Self, IoError> {
        node.run(forward)??;
        let load = load_rules(node, &rules());
        Ok(load.map_or_else(|reason| Self::None { reason }, |()| Self::Nftables))
    }
}

/// Makes the kernel of the namespace a router without rules.
pub(in crate::bench) fn forward_only(node: &Namespace) -> Result<(), IoError> {
    node.run(forward)?
}

fn forward() -> Result<(), IoError> {
    let mut netlink = Netlink::open()?;
    for (interface, addresses) in [(INTERFACES[0], INSIDE), (INTERFACES[1], OUTSIDE)] {
        for (address, bits) in addresses.into_iter().zip(PREFIX_BITS) {
            netlink.add_address(interface, Prefix::new(address, bits))?;
        }
    }
    sysctl::write("net/ipv4/ip_forward", "1")?;
    sysctl::write("net/ipv6/conf/all/forwarding", "1")
}

/// Connections may be opened from inside only, and leave with the outside address: what the node is configured to do.
pub(in crate::bench) fn rules() -> String {
    let [inside, outside, _] = INTERFACES;
    format!(
        "table inet gateway {{
            chain forward {{
                type filter hook forward priority filter; policy drop;
                ct state established,related accept
                ct state invalid drop
                iifname \"{inside}\" accept
            }}
            chain postrouting {{
                type nat hook postrouting priority srcnat;
                oifname \"{outside}\" masquerade
            }}
        }}"
    )
}

/// Gives rules to the `nft` of a namespace. Returns what is wrong where that does not work.
pub(crate) fn load_rules(node: &Namespace, rules: &str) -> Result<(), String> {
    feed(node, "nft", &["-f", "-"], rules)
}

/// Runs a program in a namespace and gives it `input`. Returns what is wrong where that does not work.
pub(in crate::bench) fn feed(node: &Namespace, program: &str, arguments: &[&str], input: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = node.spawn_command(command).map_err(|error| match error {
        IoError::System { source, .. } if source.kind() == ErrorKind::NotFound => format!("{program} is not installed"),
        error => error.to_string(),
    })?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    written.map_err(|error| format!("{program}: {error}"))
}
