//! What goes wrong is seen and named.

use api::{SyncOrder, SyncStatus};
use flow::netfilter::{Discriminator, Entry, ProtocolInfo, TcpInfo, TcpState, Tuple};
use packet_io::sysctl;

use crate::common::program::{mainstay, write_configuration};
use crate::common::sync::{SyncDaemon, SyncPair, established, inside, wait_until};

/// The largest table of a kernel that the test fills.
const FILLED_MAX: usize = 300_000;

fn sync(node: &SyncDaemon) -> SyncStatus {
    *node.client().status().expect("it answers").sync.expect("it is mainstay sync")
}

/// A connection that no other test has, from 10.8.0.0/13.
fn filler(number: u32) -> Entry {
    let [_, high, middle, low] = (number / 50_000 + (8 << 16)).to_be_bytes();
    let original = Tuple {
        source: std::net::Ipv4Addr::new(10, high, middle, low).into(),
        discriminator: Discriminator::Ports { source: 1024 + (number % 50_000) as u16, destination: 80 },
        ..established(1).original
    };
    // Not established, or a filter that leaves them all out would be what is wrong.
    let protocol_info = Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::SynRecv, sides: None }));
    Entry { original, reply: original.inverse(), protocol_info, ..established(1) }
}

#[test]
fn a_kernel_that_is_full_is_named_and_gets_the_connections_when_there_is_room() {
    let Some(pair) = SyncPair::new("full") else { return };
    let max = inside(&pair.machines[1], || sysctl::read("net/netfilter/nf_conntrack_max"));
    let max: usize = max.expect("connections are tracked").parse().expect("a number");
    if max == 0 || max > FILLED_MAX {
        packet_io::namespace::skip(format_args!(
            "this kernel tracks up to {max} connections, which are too many to be filled"
        ));
        return;
    }
    let [left, right] = pair.start_both("[[filter.ignore]]\naddresses = [\"10.8.0.0/13\"]\n");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    let fillers: Vec<Entry> = (0..(max - pair.table(1).count()) as u32).map(filler).collect();
    pair.table(1).create(&fillers);
    assert_eq!(pair.table(1).count(), max);

    let wanted: Vec<Entry> = (0..10).map(established).collect();
    pair.table(0).create(&wanted);
    wait_until("it is named", || {
        let sync = sync(&right);
        let is_named = sync.troubles.iter().any(|trouble| trouble.contains("nf_conntrack_max"))
            && sync.kernel.refused.iter().any(|refused| refused.reason == "full" && refused.requests > 0)
            && !sync.readiness.failover_safe;
        if is_named { Ok(()) } else { Err(format!("{sync:?}")) }
    });
    let readiness = right.order(SyncOrder::Nothing);
    assert!(!readiness.may_take_over, "the other node is the better one: {readiness:?}");
    let (is_ready, said) = right.hook("ready", "");
    assert!(!is_ready && said.contains("must not take over"), "{said}");

    pair.table(1).delete(&fillers[..1000]);
    pair.table(1).wait_for(&wanted[9], |_| true);
    right.wait_until_safe();
}

#[test]
fn more_than_is_remembered_is_named() {
    let Some(pair) = SyncPair::new("room") else { return };
    let [left, right] = pair.start_both("[kernel]\nconnections_max = 100\n");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    let entries: Vec<Entry> = (0..150).map(established).collect();
    pair.table(0).create(&entries);
    pair.table(1).wait_for_count(100);
    wait_until("it is named", || {
        let sync = sync(&left);
        let is_named = sync.troubles.iter().any(|trouble| trouble.contains("raise kernel.connections_max"));
        if is_named && sync.kernel.table_full > 0 { Ok(()) } else { Err(format!("{sync:?}")) }
    });
    drop(right);
}

#[test]
fn what_the_host_lacks_is_named_by_the_check() {
    let Some(pair) = SyncPair::new("check") else { return };
    inside(&pair.machines[0], || sysctl::write("net/netfilter/nf_conntrack_events", "0").expect("it can be set"));
    let path = write_configuration(&pair.folder, "left", &SyncPair::configuration(0, ""));
    let mut command = mainstay(&["sync", "--check", "--json", "--config"]);
    command.arg(&path).stdout(std::process::Stdio::piped());
    let child = pair.machines[0].spawn_command(command).expect("it starts");
    let output = child.wait_with_output().expect("it is a child");
    assert!(output.status.success(), "the file itself is right");
    let host: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    let problems = host["problems"].as_array().expect("a list");
    let is_it =
        |problem: &&serde_json::Value| problem.to_string().contains("sysctl -w net.netfilter.nf_conntrack_events=1");
    assert!(host["is_fatal"] == true && problems.iter().any(|problem| is_it(&problem)), "{host}");
}
