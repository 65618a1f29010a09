//! Connections that are not replicated are counted and named, and a failover is not called safe then.

use std::boxed::Box;
use std::string::{String, ToString};
use std::vec::Vec;

use flow::NodeId;
use flow::netfilter::{Discriminator, Entry, Extra, Status, Tuple, ZoneDirection};
use replication::conntrackd::FtfwConfig;

use super::pair::{Options, Pair};
use crate::*;

/// A flow of datagrams to a name server, by its number.
pub(super) fn udp(number: u16, status: Status) -> Entry {
    let tuple = Tuple {
        source: [10, 0, 0, 7].into(),
        destination: [192, 0, 2, 53].into(),
        protocol: 17,
        discriminator: Discriminator::Ports { source: 40_000 + number, destination: 53 },
    };
    let status = Some(Status::CONFIRMED.union(status));
    Entry { id: Some(u32::from(number) + 1), status, timeout_s: Some(30), ..Entry::new(tuple, tuple.inverse()) }
}

/// The first host's kernel reports an event.
pub(super) fn event(pair: &mut Pair, event: KernelEvent<'_>) {
    let now = pair.now;
    pair.hosts[0].node.handle_kernel_event(now, Origin::Packets, event);
}

fn failover(pair: &Pair) -> String {
    pair.hosts[0].node.readiness(pair.now).to_string()
}

#[test]
fn udp_without_a_reply_is_counted_until_it_has_one_or_ends() {
    let mut pair = Pair::ready(Options::default());
    let waiting: Vec<Entry> = (0..4).map(|number| udp(number, Status::default())).collect();
    waiting.iter().for_each(|entry| event(&mut pair, KernelEvent::Began(entry)));
    let expected = "a failover now would not be safe: 4 connections are not replicated: 4 without a reply yet";
    assert_eq!(failover(&pair), expected);

    event(&mut pair, KernelEvent::Changed(&udp(0, Status::SEEN_REPLY)));
    event(&mut pair, KernelEvent::Ended(&waiting[1]));
    assert_eq!(pair.status(0).unreplicated, Unreplicated([2, 0, 0, 0]));

    let tuple = Tuple {
        source: [10, 0, 0, 1].into(),
        destination: [224, 0, 0, 18].into(),
        protocol: 112,
        discriminator: Discriminator::Nothing,
    };
    event(&mut pair, KernelEvent::Began(&Entry { id: Some(90), ..Entry::new(tuple, tuple.inverse()) }));
    assert_eq!(pair.status(0).unreplicated, Unreplicated([2, 0, 0, 0]), "nobody replies to a group's packets");

    pair.hosts[0].node.set_filter(SyncFilter::new(&[], TcpStates::ESTABLISHED_ON, NonTcpStart::FirstPacket));
    assert_eq!(pair.status(0).unreplicated.total(), 2, "they are replicated with their next change");
    for number in [0, 2, 3] {
        event(&mut pair, KernelEvent::Ended(&udp(number, Status::default())));
    }
    assert_eq!(pair.status(0).unreplicated.total(), 0);
}

#[test]
fn zones_of_one_direction_are_counted_beside_a_conntrackd_and_unreplied_udp_is_replicated() {
    let mut pair = Pair::ready(Options {
        config: |config| {
            let profile = PeerProfile::Conntrackd { config: FtfwConfig::default(), time_of_day_s: 1_800_000_000 };
            config.peers = std::vec![SyncPeerConfig { id: NodeId(1 - config.node.0), profile }];
            config.filter = SyncFilter::new(&[], TcpStates::ESTABLISHED_ON, NonTcpStart::FirstPacket);
        },
        ..Options::default()
    });
    let extra = Extra { zone_direction: Some(ZoneDirection::Original), ..Extra::default() };
    let zoned = |number| Entry { zone: 7, extra: Some(Box::new(extra.clone())), ..udp(number, Status::SEEN_REPLY) };
    (0..3).for_each(|number| event(&mut pair, KernelEvent::Began(&zoned(number))));
    event(&mut pair, KernelEvent::Began(&udp(8, Status::default())));
    pair.until("the unreplied one has arrived", |pair| {
        pair.hosts[1].kernel.get(udp(8, Status::default()).original).is_some()
    });
    let expected = "a failover now would not be safe: 3 connections are not replicated: 3 with a zone of one direction";
    pair.until("all else is acknowledged", |pair| failover(pair) == expected);
    assert_eq!(pair.hosts[1].kernel.len(), 1);
    (0..3).for_each(|number| event(&mut pair, KernelEvent::Ended(&zoned(number))));
    pair.until("a failover is safe", |pair| failover(pair) == "a failover now would be safe");
}
