//! What operators see, and how nodes know each other.

use std::fs;

use api::SyncOrder;

use crate::common::program::mainstay;
use crate::common::sync::{SyncPair, established, wait_until};

#[test]
fn the_traffic_between_nodes_with_a_key_is_encrypted() {
    let Some(pair) = SyncPair::new("secured") else { return };
    let key = pair.folder.make_key("cluster.key");
    let configuration = |side| {
        let security = format!("pre_shared_keys = [{key:?}]");
        SyncPair::configuration(side, "").replace("mode = \"plain\"", &security)
    };
    let [left, right] = [0, 1].map(|side| pair.start(side, &configuration(side)));
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    right.wait_until_safe();
    let entry = established(1);
    pair.table(0).create(std::slice::from_ref(&entry));
    pair.table(1).wait_for(&entry, |_| true);
    let status = right.client().status().expect("it answers");
    assert!(status.peers[0].channel.secured_by.starts_with("pre-shared key"), "{:?}", status.peers);

    // A node with another key receives nothing.
    drop(right);
    fs::remove_file(&key).expect("it is ours");
    pair.folder.make_key("cluster.key");
    let right = pair.start(1, &configuration(1));
    let other = established(2);
    pair.table(0).create(std::slice::from_ref(&other));
    wait_until("it is refused", || {
        let status = right.client().status().expect("it answers");
        let refused = &status.peers[0].channel.refused;
        if refused.is_empty() { Err(format!("{:?}", status.peers)) } else { Ok(()) }
    });
    assert_eq!(pair.table(1).find(&other), None);
}

#[test]
fn the_status_is_readable_and_has_a_line_on_whether_a_failover_would_be_safe() {
    let Some(pair) = SyncPair::new("status") else { return };
    let [left, right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    right.wait_until_safe();
    let shown = |arguments: &[&str]| {
        let output = mainstay(arguments).arg("--socket").arg(left.socket()).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = shown(&["status"]);
    assert!(text.starts_with("left (node 0)  primary for "), "{text}");
    assert!(text.contains("\nFailover     a failover now would be safe\n"), "{text}");
    assert!(text.contains("Events ") && text.contains("PEER") && text.contains("10.99.0.2:3781"), "{text}");
    pair.table(0).create(&[established(1)]);
    pair.table(1).wait_for(&established(1), |_| true);
    let flows = shown(&["flows"]);
    assert!(flows.contains("10.1.0.1:1025") && flows.contains("ESTABLISHED") && flows.contains("master"), "{flows}");
    let count = shown(&["flows", "--count", "--json"]);
    assert!(count.contains("\"flows\": 1") || count.contains("\"flows\":1"), "{count}");
    let samples = left.client().counters().expect("it answers");
    let value = |name: &str| samples.iter().find(|sample| sample.name == name).map(|sample| sample.value);
    assert_eq!(value("mainstay_takeover_ready"), Some(1.0));
    assert_eq!(value("mainstay_sync_primary"), Some(1.0));
    assert!(value("mainstay_sync_kernel_events_total").is_some_and(|events| events >= 1.0));
    assert!(left.client().drain(false).is_err(), "keepalived has the addresses");
}
