//! Control experiments: what the routers do without replication, so that what survives with it means something.

use std::time::{Duration, Instant};

use lab::demo::kernel::network::Path;
use lab::testbed::traffic::Kind;

use super::traffic::Traffic;
use super::{LEFT, RIGHT, routers, wait_for};

/// What the routers need beside the kernel.
const PROGRAMS: [(&str, &str); 1] = [("nft", "nftables")];
/// How long a connection may try after the addresses have moved: several retransmissions.
const TRIES_FOR: Duration = Duration::from_secs(3);

#[test]
fn without_replication_no_tcp_connection_outlives_its_router_and_new_ones_pass_the_other() {
    let Some((_turn, mut routers)) = routers(&PROGRAMS) else { return };
    routers.take_addresses(LEFT).unwrap();
    let traffic = Traffic::mixed(&routers);
    traffic.all_go_on(&routers);

    routers.kill(LEFT).unwrap();
    routers.take_addresses(RIGHT).unwrap();
    let moved_at = Instant::now();
    traffic.wake_silent();
    wait_for("connections to have tried", &routers, || moved_at.elapsed() >= TRIES_FOR);
    let outcomes = traffic.finish();
    for path in Path::ALL {
        let of_path = || outcomes.iter().filter(|(taken, _)| *taken == path).map(|(_, outcome)| outcome);
        let tcp = of_path().filter(|outcome| outcome.kind != Kind::Udp);
        let survived = tcp.clone().filter(|outcome| outcome.survived(moved_at)).count();
        assert_eq!(survived, 0, "{path:?}: of {}", tcp.count());
        // Datagrams need no state that a router could not make anew.
        let mut datagrams = of_path().filter(|outcome| outcome.kind == Kind::Udp);
        assert!(datagrams.all(|outcome| outcome.survived(moved_at)), "{path:?}");
    }
    let afterwards = Traffic::mixed(&routers);
    afterwards.all_go_on(&routers);
    afterwards.finish_whole();
}

#[test]
fn without_a_failure_all_connections_go_on_in_every_way() {
    let Some((_turn, routers)) = routers(&PROGRAMS) else { return };
    routers.take_addresses(LEFT).unwrap();
    assert!(routers.holds_addresses(LEFT) && !routers.holds_addresses(RIGHT));
    let traffic = Traffic::mixed(&routers);
    traffic.all_go_on(&routers);
    traffic.finish_whole();
}
