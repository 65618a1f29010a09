//! What an operator would use instead of one gateway: Linux's own forwarding with nftables.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use packet_io::netlink::{Netlink, Prefix};
use packet_io::{IoError, sysctl};

use crate::demo::topology::{CLIENT, INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS, Topology};

/// The same policy as the gateways': connections may begin inside, and leave under the outside address.
const RULES: &str = "table inet gateway {
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    iifname \"inside\" accept
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    oifname \"outside\" masquerade
  }
}
";

/// The network of the demo with the kernel of node a forwarding.
pub(super) struct KernelGateway {
    pub(super) topology: Topology,
    /// With connection tracking, filter and masquerading; else it merely forwards.
    pub(super) has_rules: bool,
}

impl KernelGateway {
    pub(super) fn build() -> Result<Self, IoError> {
        let topology = Topology::build()?;
        let [node, _] = &topology.nodes;
        node.run(|| -> Result<(), IoError> {
            let mut netlink = Netlink::open()?;
            for (interface, addresses) in [(INTERFACES[0], INSIDE), (INTERFACES[1], OUTSIDE)] {
                netlink.add_address(interface, Prefix::new(addresses[0], PREFIX_BITS[0]))?;
            }
            sysctl::write("net/ipv4/ip_forward", "1")
        })??;
        let has_rules = load_rules(&topology)?;
        if !has_rules {
            // Without translation the server must know the way back.
            let client = Prefix::new(CLIENT[0], 32);
            topology.server.run(|| Netlink::open()?.add_route(client, OUTSIDE[0]))??;
        }
        Ok(Self { topology, has_rules })
    }
}

/// Whether there is an `nft` and it took the rules.
fn load_rules(topology: &Topology) -> Result<bool, IoError> {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut nft) = topology.nodes[0].spawn_command(command) else { return Ok(false) };
    let written: io::Result<()> = nft.stdin.take().map_or(Ok(()), |mut input| input.write_all(RULES.as_bytes()));
    let ended = nft.wait();
    Ok(written.is_ok() && ended.is_ok_and(|status| status.success()))
}
