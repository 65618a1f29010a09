//! What filters leave out, and what is reported of it.

use std::net::Ipv4Addr;

use api::SyncOrder;
use flow::netfilter::{Discriminator, Entry, Tuple};

use crate::common::sync::{SyncPair, established, wait_until};

/// Connections of a busy node.
const CONNECTIONS: u32 = 200;
/// A shared address that clients are translated to, and a published one that leads to a server.
const SHARED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const PUBLISHED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 20);

/// A connection whose client appears as the shared address, by one port or another.
fn behind_source_nat(number: u32) -> Entry {
    let plain = established(number);
    Entry { reply: Tuple { destination: SHARED.into(), ..plain.reply }, ..plain }
}

/// A connection to a server behind the published address.
fn behind_destination_nat(number: u32) -> Entry {
    let plain = established(number);
    let (source, _) = plain.original.ports();
    let discriminator = Discriminator::Ports { source, destination: 8443 };
    Entry { original: Tuple { destination: PUBLISHED.into(), discriminator, ..plain.original }, ..plain }
}

#[test]
fn connections_behind_listed_shared_addresses_are_replicated_and_those_of_listed_end_points_are_not() {
    let Some(pair) = SyncPair::new("ends") else { return };
    let filter = format!("[[filter.ignore]]\naddresses = [\"{SHARED}\", \"{PUBLISHED}\", \"10.1.0.9\"]\n");
    let [left, _right] = pair.start_both(&filter);
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    let of_listed_client = {
        let plain = established(3);
        let original = Tuple { source: Ipv4Addr::new(10, 1, 0, 9).into(), ..plain.original };
        Entry { original, reply: original.inverse(), ..plain }
    };
    let (source_nat, destination_nat) = (behind_source_nat(1), behind_destination_nat(2));
    pair.table(0).create(&[of_listed_client.clone(), source_nat.clone(), destination_nat.clone()]);
    pair.table(1).wait_for(&source_nat, |found| found.reply == source_nat.reply);
    pair.table(1).wait_for(&destination_nat, |found| found.reply == destination_nat.reply);
    assert_eq!(pair.table(1).find(&of_listed_client), None, "what was created with the others has not come");
}

#[test]
fn a_filter_that_leaves_out_nearly_all_connections_is_named_and_a_failover_is_not_called_safe() {
    let Some(pair) = SyncPair::new("few") else { return };
    let [left, _right] = pair.start_both("[filter]\naddresses = [\"203.0.113.0/24\"]\n");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    pair.table(0).create(&(0..CONNECTIONS).map(established).collect::<Vec<_>>());
    wait_until("it is named", || {
        let status = left.client().status().map_err(|error| error.to_string())?;
        let sync = status.sync.expect("it is mainstay sync");
        let is_named = sync.troubles.iter().any(|trouble| trouble.contains("0 are replicated: [filter]"))
            && !sync.readiness.failover_safe
            && sync.failover.contains("would not be safe");
        is_named.then_some(()).ok_or_else(|| format!("{sync:?}"))
    });
    assert!(left.log().contains("of 200 established connections"), "{}", left.log());
    left.order(SyncOrder::Backup);
    let (is_ready, said) = left.hook("ready", "");
    assert!(!is_ready && said.contains("[filter]"), "{said}");
}
