//! A real keepalived with the configuration of `examples/keepalived`: it moves the addresses, runs the hooks, and no connection
//! is reset.

use std::sync::MutexGuard;

use api::NodeRole;
use lab::demo::kernel::routers::Routers;

use super::traffic::Traffic;
use super::{LEFT, RIGHT, routers, wait_for};

/// What the routers need beside the kernel.
const PROGRAMS: [(&str, &str); 2] = [("nft", "nftables"), ("keepalived", "keepalived")];
/// The example leaves the addresses where they are when the preferred node comes back; with this it takes them again.
const PREEMPT: (&str, &str) = ("    nopreempt\n", "");

/// Both routers with their programs, synchronised, the left one master. Nothing, with a message, where the machine lacks
/// what they need.
fn pair(options: &[(&str, &str)]) -> Option<(MutexGuard<'static, ()>, Routers)> {
    let (turn, mut routers) = routers(&PROGRAMS)?;
    for number in [LEFT, RIGHT] {
        routers.start_sync(number).unwrap();
    }
    wait_for("both to know each other", &routers, || routers.are_ready());
    // Whichever has the addresses first keeps them.
    routers.start_keepalived(LEFT, options).unwrap();
    wait_until_master(&mut routers, LEFT);
    routers.start_keepalived(RIGHT, options).unwrap();
    wait_for("the other to stand by", &routers, || routers.keepalived_log(RIGHT).contains("Entering BACKUP STATE"));
    Some((turn, routers))
}

fn role(routers: &Routers, number: usize) -> NodeRole {
    routers.readiness(number).role
}

/// Waits until a router has all addresses, and its `mainstay sync` has the order and has found the state usable.
fn wait_until_master(routers: &mut Routers, number: usize) {
    wait_for("the addresses to move", routers, || routers.holds_addresses(number));
    wait_for("the hook to be run", routers, || role(routers, number) == NodeRole::Primary);
    assert!(routers.readiness(number).usable, "{:?}", routers.readiness(number));
    routers.check_running().unwrap();
}

/// Starts a dead router's programs anew.
fn restart(routers: &mut Routers, number: usize, options: &[(&str, &str)]) {
    routers.revive(number).unwrap();
    routers.start_sync(number).unwrap();
    routers.start_keepalived(number, options).unwrap();
}

#[test]
fn no_connection_breaks_when_the_master_dies_nor_when_the_node_that_came_back_is_needed() {
    let Some((_turn, mut routers)) = pair(&[]) else { return };
    let traffic = Traffic::mixed(&routers);
    traffic.all_go_on(&routers);

    routers.kill(LEFT).unwrap();
    wait_until_master(&mut routers, RIGHT);
    traffic.all_go_on(&routers);

    // It has lost its table, and receives it. Preferred though it is, it leaves the addresses where they are.
    restart(&mut routers, LEFT, &[]);
    wait_for("the left router to know everything again", &routers, || routers.are_ready());
    wait_for("its keepalived to stand by", &routers, || role(&routers, LEFT) == NodeRole::Backup);
    assert!(routers.holds_addresses(RIGHT) && !routers.holds_addresses(LEFT), "{}", routers.logs());
    traffic.all_go_on(&routers);

    routers.kill(RIGHT).unwrap();
    wait_until_master(&mut routers, LEFT);
    traffic.all_go_on(&routers);
    traffic.finish_whole();
}

#[test]
fn a_preferred_node_takes_the_addresses_back_only_when_it_has_the_state() {
    let Some((_turn, mut routers)) = pair(&[PREEMPT]) else { return };
    let traffic = Traffic::mixed(&routers);
    traffic.all_go_on(&routers);
    routers.kill(LEFT).unwrap();
    wait_until_master(&mut routers, RIGHT);
    traffic.all_go_on(&routers);

    // Its keepalived runs and its daemon does not: it receives its peer's higher priority, and leaves it active.
    routers.revive(LEFT).unwrap();
    routers.start_keepalived(LEFT, &[PREEMPT]).unwrap();
    wait_for("the left keepalived to look", &routers, || {
        let log = routers.keepalived_log(LEFT);
        log.contains("VRRP_Script(state_usable) failed") && log.contains("priority from 150 to 90")
    });
    traffic.all_go_on(&routers);
    assert!(routers.holds_addresses(RIGHT) && !routers.holds_addresses(LEFT), "{}", routers.logs());

    routers.start_sync(LEFT).unwrap();
    wait_until_master(&mut routers, LEFT);
    wait_for("the other to stand by", &routers, || role(&routers, RIGHT) == NodeRole::Backup);
    assert!(!routers.holds_addresses(RIGHT));
    traffic.all_go_on(&routers);
    traffic.finish_whole();
}

#[test]
fn a_node_that_loses_an_interface_gives_the_addresses_away_and_is_at_fault_until_it_is_back() {
    let Some((_turn, mut routers)) = pair(&[]) else { return };
    let traffic = Traffic::mixed(&routers);
    traffic.all_go_on(&routers);

    routers.set_interface(LEFT, "outside", false).unwrap();
    wait_until_master(&mut routers, RIGHT);
    wait_for("the fault to be known", &routers, || role(&routers, LEFT) == NodeRole::Fault);
    assert!(!routers.holds_addresses(LEFT));
    let right = routers.readiness(RIGHT);
    assert!(right.not_safe_reasons.iter().any(|why| why.contains("fault")), "{right:?}");
    traffic.all_go_on(&routers);

    routers.set_interface(LEFT, "outside", true).unwrap();
    wait_for("it to stand by", &routers, || role(&routers, LEFT) == NodeRole::Backup && routers.are_ready());
    traffic.all_go_on(&routers);
    traffic.finish_whole();
}

#[test]
fn a_keepalived_that_is_stopped_hands_over_and_the_daemon_beside_it_stands_by() {
    let Some((_turn, mut routers)) = pair(&[]) else { return };
    let traffic = Traffic::mixed(&routers);
    traffic.all_go_on(&routers);

    routers.stop_keepalived(LEFT);
    wait_until_master(&mut routers, RIGHT);
    wait_for("the daemon to have the order", &routers, || role(&routers, LEFT) == NodeRole::Backup);
    traffic.all_go_on(&routers);

    routers.start_keepalived(LEFT, &[]).unwrap();
    routers.stop_keepalived(RIGHT);
    wait_until_master(&mut routers, LEFT);
    traffic.all_go_on(&routers);
    traffic.finish_whole();
}
