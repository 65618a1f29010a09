//! What keepalived calls, and what it may rely on.

use std::time::Duration;

use api::{NodeRole, SyncOrder};
use flow::netfilter::Entry;
use packet_io::signal::{self, Signal};

use crate::common::program::{mainstay, write_configuration};
use crate::common::sync::{SyncPair, established, wait_until};

fn entries(count: u32) -> Vec<Entry> {
    (0..count).map(established).collect()
}

#[test]
fn the_other_node_goes_on_when_one_is_killed() {
    let Some(pair) = SyncPair::new("kill") else { return };
    let [left, right] = pair.start_both("");
    let (done, said) = left.hook("primary", "5s");
    assert!(done, "{said}");
    left.wait_until_safe();
    pair.table(0).create(&entries(1000));
    pair.table(1).wait_for_count(1000);
    assert!(right.hook("ready", "").0, "it may take over");
    left.kill();
    let (done, said) = right.hook("primary", "5s");
    assert!(done, "{said}");
    assert_eq!(pair.table(1).count(), 1000);
    wait_until("they are its own", || {
        let status = right.client().status().expect("it answers");
        let kernel = &status.sync.as_ref().expect("it is mainstay sync").kernel;
        let is_so = status.node.role == NodeRole::Primary && (kernel.own, kernel.copies) == (1000, 0);
        if is_so { Ok(()) } else { Err(format!("{status:?}")) }
    });
    wait_until("the silence is seen", || {
        let sync = right.client().status().expect("it answers").sync.expect("it is mainstay sync");
        let is_named = sync.failover.contains("node 0 is unreachable")
            && sync.troubles.iter().any(|trouble| trouble.contains("node 0 is unreachable"));
        if is_named { Ok(()) } else { Err(format!("{sync:?}")) }
    });
    assert!(right.hook("ready", "").0, "a silent peer does not keep it from carrying connections");

    // The one that returns receives a full sync, and stands by.
    let left = pair.start(0, &SyncPair::configuration(0, ""));
    left.wait_until_safe();
    right.wait_until_safe();
    let status = left.client().status().expect("it answers");
    assert_eq!(status.sync.expect("it is mainstay sync").kernel.copies, 1000);
    assert_eq!(pair.table(0).count(), 1000);
}

#[test]
fn an_external_cache_is_in_the_kernel_when_the_hook_returns() {
    const MANY: u32 = 5000;
    let Some(pair) = SyncPair::new("cache") else { return };
    let [left, right] = pair.start_both("[kernel]\ninjection = \"external-cache\"\n");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    pair.table(0).create(&entries(MANY));
    wait_until("the other node has received all", || {
        let sync = right.client().status().expect("it answers").sync.expect("it is mainstay sync");
        if sync.kernel.copies == u64::from(MANY) { Ok(()) } else { Err(format!("{:?}", sync.kernel)) }
    });
    assert_eq!(pair.table(1).count(), 0, "they are in memory only");
    left.kill();
    let (done, said) = right.hook("primary", "10s");
    assert!(done, "{said}");
    assert_eq!(pair.table(1).count(), MANY as usize);
}

#[test]
fn two_primaries_are_seen_named_and_counted() {
    let Some(pair) = SyncPair::new("split") else { return };
    let [left, right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    right.wait_until_safe();
    right.order(SyncOrder::Primary);
    for node in [&left, &right] {
        wait_until("both see it", || {
            let sync = node.client().status().expect("it answers").sync.expect("it is mainstay sync");
            let is_named = sync.split_brain && sync.troubles.iter().any(|trouble| trouble.contains("both primary"));
            if is_named && !sync.readiness.failover_safe { Ok(()) } else { Err(format!("{sync:?}")) }
        });
    }
    let samples = left.client().counters().expect("it answers");
    assert!(samples.iter().any(|sample| sample.name == "mainstay_sync_split_brain" && sample.value == 1.0));
    right.order(SyncOrder::Backup);
    left.wait_until_safe();
    let sync = left.client().status().expect("it answers").sync.expect("it is mainstay sync");
    assert!(!sync.split_brain && sync.failover == "a failover now would be safe", "{sync:?}");
}

#[test]
fn both_carry_connections_where_all_nodes_do() {
    let Some(pair) = SyncPair::new("multi") else { return };
    let [left, right] = pair.start_both("[cluster]\nmode = \"multi-primary\"\n");
    left.wait_until_safe();
    right.wait_until_safe();
    let all = entries(200);
    pair.table(0).create(&all[..100]);
    pair.table(1).create(&all[100..]);
    for side in [0, 1] {
        pair.table(side).wait_for_count(200);
    }
    let own = |node: &crate::common::sync::SyncDaemon| {
        node.client().status().expect("it answers").sync.expect("it is mainstay sync").kernel.own
    };
    assert_eq!((own(&left), own(&right)), (100, 100));
    left.kill();
    wait_until("the one that is left goes on with all", || match own(&right) {
        200 => Ok(()),
        own => Err(format!("{own}")),
    });
}

#[test]
fn a_hook_that_cannot_be_obeyed_fails_with_a_sentence() {
    let Some(pair) = SyncPair::new("hooks") else { return };
    let left = pair.start(0, &SyncPair::configuration(0, ""));
    // Nothing is received from the other node, which must not keep this one from carrying connections.
    let (done, said) = left.hook("primary", "2s");
    assert!(done, "{said}");
    assert!(left.hook("backup", "2s").0 && left.hook("fault", "2s").0);
    assert!(left.hook("ready", "").0, "the fault is keepalived's own, and must be able to end");
    // No command waits for ever for a daemon that makes no progress.
    signal::pause(left.id()).expect("it is ours");
    let (done, said) = left.hook("primary", "300ms");
    signal::resume(left.id()).expect("it is ours");
    assert!(!done && !said.is_empty(), "{said}");
    let mut command = mainstay(&["sync", "primary", "--timeout", "200ms", "--socket"]);
    command.arg(left.socket());
    left.terminate();
    let begun = std::time::Instant::now();
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no mainstay sync answers"), "{said}");
    assert!(begun.elapsed() >= Duration::from_millis(200), "it waits for a daemon that is about to start");
}

#[test]
fn a_signal_has_the_file_reloaded() {
    let Some(pair) = SyncPair::new("reload") else { return };
    let [left, _right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    let before = established(60_000);
    pair.table(0).create(std::slice::from_ref(&before));
    pair.table(1).wait_for(&before, |_| true);
    let more = "[[filter.ignore]]\naddresses = [\"10.1.0.1\"]\n";
    write_configuration(&pair.folder, "left", &SyncPair::configuration(0, more));
    left.signal(Signal::Reload);
    wait_until("it is in force", || {
        let events = left.client().events().expect("it answers");
        let is_it = |event: &&api::Event| event.detail.contains("[filter]");
        events.iter().find(is_it).map(drop).ok_or_else(|| format!("{events:?}"))
    });
    let (left_out, replicated) = (established(1), established(60_001));
    pair.table(0).create(&[left_out.clone(), replicated.clone()]);
    pair.table(1).wait_for(&replicated, |_| true);
    assert_eq!(pair.table(1).find(&left_out), None);

    let text = SyncPair::configuration(0, "[kernel]\ninjection = \"external-cache\"\n");
    write_configuration(&pair.folder, "left", &text);
    let report = left.client().reload(false).expect("it answers");
    assert!(!report.applied && report.needs_restart == ["kernel.injection"], "{report:?}");
}
