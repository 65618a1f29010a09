//! Events that found no room, nodes that come and go.

use api::{EventKind, SyncOrder};
use flow::netfilter::Entry;

use crate::common::sync::{SyncPair, established, wait_until};

const MANY: u32 = 10_000;

#[test]
fn what_found_no_room_in_the_buffer_is_made_good_and_counted() {
    let Some(pair) = SyncPair::new("overrun") else { return };
    let small = "[kernel]\nreceive_buffer = \"8KiB\"\nreceive_buffer_max = \"8KiB\"\n";
    let [left, right] = pair.start_both(small);
    left.order(SyncOrder::Primary);
    left.wait_until_safe();

    let entries: Vec<Entry> = (0..MANY).map(established).collect();
    pair.table(0).create(&entries);
    pair.table(1).wait_for_count(MANY as usize);
    pair.table(0).delete(&entries[..MANY as usize / 2]);
    pair.table(1).wait_for_count(MANY as usize / 2);
    for gone in [&entries[0], &entries[MANY as usize / 2 - 1]] {
        pair.table(1).wait_until_gone(gone);
    }
    left.wait_until_safe();
    right.wait_until_safe();
    let status = left.client().status().expect("it answers");
    let kernel = status.sync.expect("it is mainstay sync").kernel;
    assert!(kernel.overruns > 0 && kernel.repaired > 0 && kernel.dumps > 1, "{kernel:?}");
    let events = left.client().events().expect("it answers");
    let has = |kind| events.iter().any(|event| event.kind == kind);
    assert!(has(EventKind::EventsLost) && has(EventKind::EventsRecovered), "{events:?}");
}

#[test]
fn the_buffer_grows_up_to_its_limit() {
    let Some(pair) = SyncPair::new("growth") else { return };
    let small = "[kernel]\nreceive_buffer = \"8KiB\"\nreceive_buffer_max = \"4MiB\"\n";
    let [left, _right] = pair.start_both(small);
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    let buffer = || left.client().status().expect("it answers").sync.expect("it has one").kernel.receive_buffer_bytes;
    let before = buffer();
    let entries: Vec<Entry> = (0..MANY).map(established).collect();
    pair.table(0).create(&entries);
    pair.table(1).wait_for_count(MANY as usize);
    assert!(buffer() > before && buffer() <= 8 << 20, "from {before} to {}", buffer());
}

#[test]
fn a_restarted_node_receives_what_happened_meanwhile() {
    let Some(pair) = SyncPair::new("restart") else { return };
    let [left, right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    let entries: Vec<Entry> = (0..100).map(established).collect();
    pair.table(0).create(&entries[..50]);
    pair.table(1).wait_for_count(50);
    right.terminate();
    wait_until("the close of the session is received", || {
        let events = left.client().events().expect("it answers");
        let is_close = |event: &&api::Event| event.detail.contains("closed its session");
        events.iter().find(is_close).map(drop).ok_or_else(|| format!("{events:?}"))
    });
    pair.table(0).create(&entries[50..]);
    pair.table(0).delete(&entries[..10]);
    let right = pair.start(1, &SyncPair::configuration(1, ""));
    pair.table(1).wait_for_count(90);
    right.wait_until_safe();
    pair.table(1).wait_until_gone(&entries[0]);
}
