//! Faults that a pair meets, made on purpose. The test is the manager: it moves the addresses and runs the hooks.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Command;
use std::sync::MutexGuard;

use api::SyncStatus;
use flow::netfilter::{Entry, TcpState, Tuple};
use lab::demo::kernel::routers::Routers;
use lab::testbed::topology::{CLIENT, INSIDE, OUTSIDE};
use packet_io::ctnetlink::{Dump, DumpFilter, DumpProgress};

use super::traffic::Traffic;
use super::{LEFT, RIGHT, routers, wait_for};

const PROGRAMS: [(&str, &str); 1] = [("nft", "nftables")];
/// Connections that come while something is wrong, and how many a second.
const CHURN: usize = 600;
const CHURN_PER_S: u64 = 300;
/// A buffer for events that hundreds of connections overrun, and that does not grow.
const SMALL_BUFFER: &str = "[kernel]\nreceive_buffer = \"8KiB\"\nreceive_buffer_max = \"8KiB\"\n";

/// Both routers, the left one primary and with the addresses.
fn pair(sections: &str) -> Option<(MutexGuard<'static, ()>, Routers)> {
    let (turn, mut routers) = routers(&PROGRAMS)?;
    for number in [LEFT, RIGHT] {
        routers.start_sync_with(number, sections).unwrap();
    }
    wait_for("both to know each other", &routers, || routers.are_ready());
    become_primary(&routers, LEFT);
    Some((turn, routers))
}

/// What a manager does with the survivor.
fn become_primary(routers: &Routers, number: usize) {
    routers.hook(number, "primary").unwrap();
    routers.take_addresses(number).unwrap();
}

fn sync_status(routers: &Routers, number: usize) -> SyncStatus {
    routers.status(number).and_then(|status| status.sync).map(|sync| *sync).unwrap_or_default()
}

/// The left router dies; the right one takes over, and everything goes on.
fn survive_the_left_one(mut routers: Routers, traffic: Traffic) {
    routers.kill(LEFT).unwrap();
    become_primary(&routers, RIGHT);
    traffic.all_go_on(&routers);
    traffic.finish_whole();
}

/// The client's TCP connections that stand in a router's kernel.
fn established(routers: &Routers, number: usize) -> BTreeSet<Tuple> {
    let read = || {
        let mut found = BTreeSet::new();
        let mut note = |entry: Entry| {
            let is_established = entry.tcp().is_some_and(|tcp| tcp.state == TcpState::Established);
            if is_established && CLIENT.contains(&entry.original.source) {
                found.insert(entry.original);
            }
        };
        let mut dump = Dump::connections(DumpFilter::default()).unwrap();
        while dump.receive(&mut note).unwrap() == DumpProgress::More {}
        found
    };
    routers.topology().nodes[number].run(read).unwrap()
}

#[test]
fn a_restarted_standby_receives_a_full_sync_before_it_may_take_over() {
    let Some((_turn, mut routers)) = pair("") else { return };
    let traffic = Traffic::mixed(&routers);
    traffic.all_go_on(&routers);
    routers.kill(RIGHT).unwrap();
    traffic.all_go_on(&routers);
    routers.revive(RIGHT).unwrap();
    assert!(established(&routers, RIGHT).is_empty(), "it has forgotten all");
    routers.start_sync(RIGHT).unwrap();
    wait_for("it to know everything", &routers, || routers.are_ready());
    survive_the_left_one(routers, traffic);
}

#[test]
fn a_daemon_that_was_killed_beside_its_router_finds_the_connections_in_the_kernel() {
    let Some((_turn, mut routers)) = pair("") else { return };
    routers.kill_sync(LEFT);
    // They begin while the daemon does not run.
    let traffic = Traffic::mixed(&routers);
    traffic.all_go_on(&routers);
    routers.start_sync(LEFT).unwrap();
    routers.hook(LEFT, "primary").unwrap();
    wait_for("the other to know everything", &routers, || routers.are_ready());
    survive_the_left_one(routers, traffic);
}

#[test]
fn changes_during_a_partition_are_replicated_when_it_heals() {
    let Some((_turn, routers)) = pair("") else { return };
    let traffic = Traffic::with_churn(&routers, CHURN, CHURN_PER_S);
    routers.set_dedicated_link(LEFT, false).unwrap();
    wait_for("it to be seen that a failover would not be safe", &routers, || {
        !routers.readiness(LEFT).failover_safe && !routers.readiness(LEFT).not_safe_reasons.is_empty()
    });
    traffic.await_churn(&routers, CHURN);
    traffic.all_go_on(&routers);
    routers.set_dedicated_link(LEFT, true).unwrap();
    wait_for("the other to know everything", &routers, || routers.are_ready() && routers.readiness(LEFT).failover_safe);
    survive_the_left_one(routers, traffic);
}

#[test]
fn a_paused_daemon_that_lost_events_recovers_their_changes() {
    let Some((_turn, routers)) = pair(SMALL_BUFFER) else { return };
    let traffic = Traffic::with_churn(&routers, CHURN, CHURN_PER_S);
    routers.pause_sync(LEFT, true).unwrap();
    traffic.await_churn(&routers, CHURN);
    traffic.all_go_on(&routers);
    routers.pause_sync(LEFT, false).unwrap();
    wait_for("the loss to be seen", &routers, || sync_status(&routers, LEFT).kernel.overruns > 0);
    wait_for("the other to know everything", &routers, || routers.are_ready() && routers.readiness(LEFT).failover_safe);
    let kernel = sync_status(&routers, LEFT).kernel;
    println!("{} overruns, {} connections repaired", kernel.overruns, kernel.repaired);
    assert!(kernel.repaired > 0, "{kernel:?}");
    survive_the_left_one(routers, traffic);
}

#[test]
fn two_primaries_know_of_each_other_when_they_meet_and_agree_when_one_yields() {
    let Some((_turn, routers)) = pair("") else { return };
    let traffic = Traffic::with_churn(&routers, CHURN, CHURN_PER_S);
    routers.set_dedicated_link(LEFT, false).unwrap();
    // A manager that has lost its head: the packets go on through the left one.
    routers.hook(RIGHT, "primary").unwrap();
    traffic.await_churn(&routers, CHURN);
    traffic.all_go_on(&routers);
    routers.set_dedicated_link(LEFT, true).unwrap();
    wait_for("both to see it", &routers, || {
        [LEFT, RIGHT].into_iter().all(|number| sync_status(&routers, number).split_brain)
    });
    assert!(!sync_status(&routers, LEFT).troubles.is_empty());

    routers.hook(RIGHT, "backup").unwrap();
    wait_for("the split to be over", &routers, || {
        [LEFT, RIGHT].into_iter().all(|number| !sync_status(&routers, number).split_brain) && routers.are_ready()
    });
    wait_for("the kernels to agree", &routers, || {
        let known = established(&routers, LEFT);
        known.len() > CHURN && known == established(&routers, RIGHT)
    });
    survive_the_left_one(routers, traffic);
}

/// What `mainstay sync import` makes of a conntrackd.conf whose `Address Ignore` has the shared addresses, as Debian's examples do.
fn imported_filter() -> String {
    let shared = INSIDE.iter().chain(&OUTSIDE).map(|address| match address {
        IpAddr::V4(address) => format!("IPv4_address {address}\n"),
        IpAddr::V6(address) => format!("IPv6_address {address}\n"),
    });
    let conf = format!(
        "Sync {{\nMode FTFW {{\n}}\nUDP {{\nIPv4_address 10.99.0.1\nIPv4_Destination_Address 10.99.0.2\nPort 3780\n\
         Interface sync\n}}\n}}\nGeneral {{\nFilter From Userspace {{\nAddress Ignore {{\n{}}}\n}}\n}}\n",
        shared.collect::<String>()
    );
    let path = std::env::temp_dir().join(format!("mainstay-import-{}.conf", std::process::id()));
    std::fs::write(&path, conf).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay")).args(["sync", "import"]).arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = String::from_utf8(output.stdout).unwrap();
    let rest = file.split_once("[[filter.ignore]]").expect("addresses are left out").1;
    format!("[[filter.ignore]]{}\n", rest.split_once("\n\n").expect("another section follows").0)
}

#[test]
fn connections_behind_nat_survive_with_an_imported_filter_that_lists_the_shared_addresses() {
    let filter = imported_filter();
    for address in INSIDE.iter().chain(&OUTSIDE) {
        assert!(filter.contains(&address.to_string()), "{filter}");
    }
    let Some((_turn, routers)) = pair(&filter) else { return };
    let traffic = Traffic::mixed(&routers);
    traffic.all_go_on(&routers);
    wait_for("all connections to be in the standby's kernel", &routers, || {
        established(&routers, LEFT) == established(&routers, RIGHT)
    });
    survive_the_left_one(routers, traffic);
}
