//! A peer with another clock, and one with another protocol version.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;

use lab::testbed::topology::SYNC;

use super::cluster::{CONNECTIONS_MAX, Cluster};
use super::traffic::Traffic;
use super::{turn, wait_for};

const REPLICATION_PORT: u16 = 3781;
/// Eleven days: more than any node has been up that was not.
const OTHER_CLOCK: [&str; 6] = ["unshare", "--time", "--monotonic", "1000000", "--fork", "--kill-child"];

#[test]
fn nodes_whose_monotonic_clocks_have_nothing_in_common_work_together() {
    let Some(_turn) = turn() else { return };
    let [program, arguments @ ..] = OTHER_CLOCK;
    if !Command::new(program).args(arguments).arg("true").status().is_ok_and(|status| status.success()) {
        packet_io::namespace::skip("no time namespaces here");
        return;
    }
    let mut cluster = Cluster::new("clocks");
    cluster.start(0);
    cluster.start_with(1, CONNECTIONS_MAX, &OTHER_CLOCK);
    cluster.wait_until_ready(0);
    let [a, b] = [0, 1].map(|number| cluster.status(number).expect("it answers").monotonic_now_ns);
    assert!(b > a + 900_000_000_000_000, "node b's clock is not another: {a} and {b}");
    let traffic = Traffic::mixed(&cluster);
    traffic.all_go_on(&cluster);
    cluster.kill(0);
    wait_for("node b to be active", || cluster.role(1) == "active", || cluster.story());
    traffic.all_go_on(&cluster);
    cluster.start(0);
    cluster.wait_until_ready(1);
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}

/// What somebody else's program could send to the replication port.
fn strange_datagrams() -> Vec<Vec<u8>> {
    let of_version_2 = [&[0xf2, 1, 1, 0][..], &[7; 16]].concat();
    let truncated = vec![0xf1, 1, 1];
    let broken_message = [&[0xf1, 1, 1, 1][..], &[7; 16], &[0, 1, 0xff, 0xff, 1, 2, 3]].concat();
    let heartbeat_of_nonsense = [&[0, 77, 0, 6, 1, 2][..], &[0xff; 30]].concat();
    let of_a_stranger = [&[0xf1, 1, 99, 0][..], &[7; 16]].concat();
    vec![of_version_2, truncated, broken_message, heartbeat_of_nonsense, of_a_stranger, vec![0xff; 1400], vec![0]]
}

#[test]
fn a_peer_of_another_version_is_refused_said_once_and_harms_nobody() {
    let Some(_turn) = turn() else { return };
    let mut cluster = Cluster::new("version");
    cluster.start(0);
    wait_for("node a to be active", || cluster.role(0) == "active", || cluster.story());
    let traffic = Traffic::mixed(&cluster);
    let [to, from] = SYNC.map(|address| SocketAddr::new(address, REPLICATION_PORT));
    let socket = cluster.topology.nodes[1].run(|| UdpSocket::bind(from)).expect("the namespace is there");
    let socket = socket.expect("nobody else has the port");
    for _ in 0..50 {
        for datagram in strange_datagrams() {
            socket.send_to(&datagram, to).expect("the link is up");
        }
    }
    let warnings = || cluster.log(0).matches("protocol version 2").count();
    wait_for("node a to log what is wrong", || warnings() > 0, || cluster.story());
    traffic.all_go_on(&cluster);
    assert_eq!(warnings(), 1, "{}", cluster.log(0));
    assert_eq!(cluster.role(0), "active");
    drop(socket);

    // One with the right version is accepted all the same.
    cluster.start(1);
    cluster.wait_until_ready(0);
    traffic.all_go_on(&cluster);
    traffic.finish_whole();
}
