//! A port of the active node, or what lies behind it, fails while both nodes are well.

use packet_io::IoError;
use packet_io::netlink::Netlink;

use api::NextHopState;

use super::cluster::Cluster;
use super::traffic::Traffic;
use super::{turn, wait_for};

/// What both nodes track here: their ports, and the server as a next hop.
const TRACK: &str = "\n[reachability]\ntrack = [{ port = \"inside\" }, { port = \"outside\" }, { next_hop = \"198.51.100.10\" }, \
                     { next_hop = \"2001:db8:2::10\" }]\n";

/// Both nodes reach all that they track: the one that stands by probes without an address of its own.
fn ready(name: &str) -> Cluster {
    let mut cluster = Cluster::new(name);
    TRACK.clone_into(&mut cluster.added);
    cluster.start(0);
    cluster.start(1);
    cluster.wait_until_ready(0);
    wait_for(
        "both nodes to reach everything",
        || [0, 1].iter().all(|number| reaches_all(&cluster, *number)),
        || cluster.story(),
    );
    cluster
}

fn reaches_all(cluster: &Cluster, number: usize) -> bool {
    cluster.status(number).is_some_and(|status| {
        let (ports, hops) = (&status.ports, &status.next_hops);
        ports.iter().all(|port| port.up == Some(true))
            && hops.len() == 2
            && hops.iter().all(|hop| hop.state == NextHopState::Reached)
    })
}

fn logs(cluster: &Cluster, number: usize, wanted: &str) {
    wait_for(&format!("the log to have {wanted:?}"), || cluster.log(number).contains(wanted), || cluster.story());
}

fn succeeds(result: Result<Result<(), IoError>, IoError>) {
    result.and_then(|result| result).expect("the interface is there");
}

#[test]
fn port_down_on_the_active_node_moves_the_addresses_and_all_connections_go_on() {
    let Some(_turn) = turn() else { return };
    let cluster = ready("port");
    let traffic = Traffic::mixed(&cluster);
    traffic.all_go_on(&cluster);

    // Switched off by an operator.
    let a = &cluster.topology.nodes[0];
    succeeds(a.run(|| Netlink::open()?.set_up("outside", false)));
    cluster.wait_for_roles(["standby", "active"]);
    traffic.all_go_on(&cluster);
    logs(&cluster, 0, "port outside: node 1 reaches more and takes the addresses");
    assert_eq!(cluster.status(0).expect("it runs").ports[1].up, Some(false));

    // It is back, and the addresses stay where they are.
    succeeds(a.run(|| Netlink::open()?.set_up("outside", true)));
    wait_for("node a to reach everything", || reaches_all(&cluster, 0), || cluster.story());
    cluster.wait_until_ready(1);

    // The other end of the cable is switched off: no carrier.
    succeeds(cluster.topology.server.run(|| Netlink::open()?.set_up("to-b", false)));
    cluster.wait_for_roles(["active", "standby"]);
    traffic.all_go_on(&cluster);
    // Node a may have been back for less than the delay when it happened: then it took the addresses later.
    logs(&cluster, 1, "port outside: ");
    traffic.finish_whole();
}

#[test]
fn next_hop_that_the_active_node_alone_loses_moves_the_addresses_and_all_connections_go_on() {
    let Some(_turn) = turn() else { return };
    let cluster = ready("next-hop");
    let traffic = Traffic::mixed(&cluster);
    traffic.all_go_on(&cluster);

    // The cable leads to another switch now: its ends are up, and nothing answers.
    succeeds(cluster.topology.server.run(|| {
        let mut netlink = Netlink::open()?;
        netlink.create_bridge("elsewhere")?;
        netlink.attach_to_bridge("to-a", "elsewhere")
    }));
    cluster.wait_for_roles(["standby", "active"]);
    traffic.all_go_on(&cluster);
    logs(&cluster, 0, "198.51.100.10 on port outside: node 1 reaches more and takes the addresses");
    assert!(cluster.status(0).expect("it runs").ports.iter().all(|port| port.up == Some(true)));
    traffic.finish_whole();
}
