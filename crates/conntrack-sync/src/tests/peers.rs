//! Peers of other kinds: with an encrypted channel, and with conntrackd's protocol.

use alloc::sync::Arc;
use core::time::Duration;

use flow::NodeId;
use replication::conntrackd::FtfwConfig;
use replication::secure::{Credentials, PreSharedKey, Rotation, Security, Seed};

use super::pair::{Options, Pair};
use crate::*;

#[test]
fn only_updates_through_the_encrypted_channel_are_applied() {
    let mut pair = Pair::ready(Options {
        config: |config| {
            let keys = std::vec![PreSharedKey::new([5; 32])];
            config.security = Some(Security {
                credentials: Arc::new(Credentials::new(keys, None).unwrap()),
                rotation: Rotation::default(),
                seed: Seed::new([config.node.0; 32]),
                unix_time: Duration::from_secs(1_800_000_000),
            });
        },
        ..Options::default()
    });
    assert!(pair.hosts[0].events.contains(&SyncEvent::ChannelSecured(NodeId(1))));
    pair.connect(0, 1);
    pair.settle();
    pair.assert_kernels_agree();
    assert_eq!(pair.hosts[1].kernel.len(), 1);
    let heartbeat = [0, 1, 0, 5, 1, 0, 0, 0];
    let now = pair.now;
    assert!(matches!(pair.hosts[0].node.handle_datagram(now, NodeId(1), &heartbeat), Err(SyncError::Channel(_))));
}

#[test]
fn encrypted_datagrams_to_an_unencrypted_node_are_reported() {
    let mut pair = Pair::ready(Options::default());
    let now = pair.now;
    let stranger = NodeId(9);
    assert_eq!(pair.hosts[0].node.handle_datagram(now, stranger, &[0; 8]), Err(SyncError::UnknownPeer(stranger)));
}

/// Both use conntrackd's protocol; the daemon's tests use a real conntrackd.
#[test]
fn connections_are_replicated_in_conntrackds_format() {
    let mut pair = Pair::start(Options {
        config: |config| {
            let profile = PeerProfile::Conntrackd { config: FtfwConfig::default(), time_of_day_s: 1_800_000_000 };
            config.peers = std::vec![SyncPeerConfig { id: NodeId(1 - config.node.0), profile }];
        },
        ..Options::default()
    });
    pair.connect(0, 1);
    pair.until("it has arrived", |pair| pair.hosts[1].kernel.len() == 1);
    pair.assert_kernels_agree();
    pair.packet(0, 1, flow::netfilter::TcpState::FinWait);
    pair.until("it was updated", |pair| pair.state(1, 1) == Some(flow::netfilter::TcpState::FinWait));
    pair.hosts[1].node.set_role(pair.now, SyncRole::Primary);
    pair.hosts[0].node.set_role(pair.now, SyncRole::Backup);
    pair.run(Duration::from_millis(50));
    pair.packet(1, 1, flow::netfilter::TcpState::LastAck);
    pair.until("it is the other's now", |pair| pair.state(0, 1) == Some(flow::netfilter::TcpState::LastAck));
    pair.hosts[1].kernel.delete(super::pair::tuple(1));
    pair.until("it has ended", |pair| pair.hosts[0].kernel.len() == 0);
}
