//! The daemons' configuration files, after conntrackd.conf(5).

use std::net::IpAddr;

use super::{DaemonPlan, Mode};
use crate::testbed::topology::{INTERFACES, SYNC};

/// The port of either daemon.
const PORT: u16 = 3780;
/// Buffers of the replication sockets, in bytes: large enough that nothing is lost in them.
const SOCKET_BUFFER_BYTES: u32 = 1 << 20;
/// The states that the shipped example names, to be taken out of their comments by who wants the daemon to work less.
const STATES: &str = "        State Accept {
            ESTABLISHED CLOSED TIME_WAIT CLOSE_WAIT for TCP
        }
";
/// Buckets and entries of the daemon's caches.
const CACHE_BUCKETS: u32 = 32_768;
const CACHE_ENTRIES: u32 = 1 << 20;

/// Files of a daemon.
pub(super) struct Files {
    pub(super) log: String,
    pub(super) lock: String,
    pub(super) control: String,
}

/// The configuration of the daemon of router `number`.
pub(super) fn configuration(number: usize, plan: &DaemonPlan, files: &Files) -> String {
    let (mode, transport) = match plan.mode {
        Mode::Ftfw => ("FTFW", "UDP"),
        Mode::Notrack => ("NOTRACK", "UDP"),
        Mode::Tcp => ("NOTRACK", "TCP"),
    };
    let disables_cache = if plan.has_external_cache { "no" } else { "yes" };
    let states = if plan.filters_states { STATES } else { "" };
    let (buffer_bytes, buffer_bytes_max) = (plan.event_buffer.bytes, plan.event_buffer.bytes_max);
    let Files { log, lock, control } = files;
    let (own, others, interface) = (SYNC[number], SYNC[1 - number], INTERFACES[2]);
    format!(
        "Sync {{
    Mode {mode} {{
        DisableExternalCache {disables_cache}
    }}
    {transport} {{
        IPv4_address {own}
        IPv4_Destination_Address {others}
        Port {PORT}
        Interface {interface}
        SndSocketBuffer {SOCKET_BUFFER_BYTES}
        RcvSocketBuffer {SOCKET_BUFFER_BYTES}
        Checksum on
    }}
}}
General {{
    Systemd no
    HashSize {CACHE_BUCKETS}
    HashLimit {CACHE_ENTRIES}
    LogFile {log}
    Syslog no
    LockFile {lock}
    UNIX {{
        Path {control}
    }}
    NetlinkBufferSize {buffer_bytes}
    NetlinkBufferSizeMaxGrowth {buffer_bytes_max}
    Filter From Kernelspace {{
        Protocol Accept {{
            TCP
            UDP
            ICMP
            IPv6-ICMP
        }}
        Address Ignore {{
{}        }}
{states}    }}
}}
",
        ignored_addresses()
    )
}

/// The routers' own addresses: connections to a router itself do not outlive it.
fn ignored_addresses() -> String {
    let loopback: [IpAddr; 2] = [[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()];
    let own = loopback.into_iter().chain(SYNC);
    own.map(|address| {
        let family = if address.is_ipv4() { 4 } else { 6 };
        format!("            IPv{family}_address {address}\n")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::topology::{CLIENT, INSIDE, OUTSIDE, SERVER};

    #[test]
    fn only_the_routers_own_connections_are_left_out() {
        let files = Files { log: "/run/log".into(), lock: "/run/lock".into(), control: "/run/control".into() };
        let text = configuration(1, &DaemonPlan::default(), &files);
        for line in
            ["Mode FTFW {", "IPv4_address 10.99.0.2", "IPv4_Destination_Address 10.99.0.1", "LockFile /run/lock"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
        // The shared addresses are at the ends of translated connections.
        for address in INSIDE.into_iter().chain(OUTSIDE).chain(CLIENT).chain(SERVER) {
            assert!(!text.contains(&address.to_string()), "{address} in {text}");
        }
        let direct = DaemonPlan { mode: Mode::Tcp, has_external_cache: false, ..DaemonPlan::default() };
        let text = configuration(0, &direct, &files);
        assert!(
            ["Mode NOTRACK {", "TCP {", "DisableExternalCache yes"].iter().all(|line| text.contains(line)),
            "{text}"
        );
    }
}
