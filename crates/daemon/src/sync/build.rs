//! The node, from the configuration.

use std::time::Duration;

use conntrack_sync::{
    HEARTBEAT_INTERVAL_DEFAULT, Injection, Mode, PeerProfile, SyncConfig as NodeConfig, SyncNode, SyncPeerConfig,
    SyncRole, TIMEOUT_FLOOR_DEFAULT,
};
use flow::HashKey;
use packet_io::{clock, random};
use replication::conntrackd::FtfwConfig;

use super::admission::node_filter;
use crate::credentials;
use crate::error::ProcessError;
use crate::gateway::build;
use config::sync::validated::{self, Conntrackd, Native, SyncConfig};

/// A peer's connection has at least this long in this kernel.
pub const TIMEOUT_FLOOR: Duration = TIMEOUT_FLOOR_DEFAULT;

/// Makes the node.
pub(super) fn node(config: &SyncConfig) -> Result<SyncNode, ProcessError> {
    let native = config.replication.as_ref();
    let security = credentials::begin(native.and_then(|native| native.replication.security.as_ref()))?;
    let peers = native.into_iter().flat_map(native_peers).chain(config.conntrackd.as_ref().map(conntrackd_peer));
    let node = NodeConfig {
        node: config.node.id,
        connections_max: config.kernel.connections_max,
        hash_key: HashKey([random::number(), random::number()]),
        seed: random::number(),
        injection: match config.kernel.injection {
            validated::Injection::Direct => Injection::Direct,
            validated::Injection::ExternalCache => Injection::ExternalCache,
        },
        mode: match config.mode {
            validated::Mode::PrimaryBackup => Mode::PrimaryBackup,
            validated::Mode::MultiPrimary => Mode::MultiPrimary,
        },
        role: match config.role {
            validated::StartRole::Primary => SyncRole::Primary,
            validated::StartRole::Backup => SyncRole::Backup,
        },
        filter: node_filter(&config.filter, config.kernel.events),
        expectations: config.kernel.expectations,
        deferral: native.and_then(|native| match native.replication.lazy {
            Some(replication::deferral::Config::Fixed(threshold)) => Some(threshold),
            // The configuration refuses a threshold that follows the load.
            Some(replication::deferral::Config::Dynamic(_)) | None => None,
        }),
        timeout_floor: TIMEOUT_FLOOR,
        heartbeat_interval: HEARTBEAT_INTERVAL_DEFAULT,
        peers: peers.collect(),
        security,
    };
    Ok(SyncNode::new(node, clock::now())?)
}

/// Other nodes of Mainstay.
fn native_peers(native: &Native) -> impl Iterator<Item = SyncPeerConfig> {
    let session = build::session(&native.replication, native.batch_delay);
    native
        .replication
        .peers
        .iter()
        .map(move |peer| SyncPeerConfig { id: peer.id, profile: PeerProfile::Native(session) })
}

/// A conntrackd. Its numbers go on from those of the process before, as they begin with the time of day.
fn conntrackd_peer(conntrackd: &Conntrackd) -> SyncPeerConfig {
    let session = FtfwConfig {
        deletions_max: conntrackd.resend_queue_max,
        datagram_bytes_max: conntrackd.datagram_bytes_max.into(),
        ack_every_messages: conntrackd.ack_window_messages,
        peer_timeout: conntrackd.peer_timeout,
        batch_delay: conntrackd.batch_delay,
        replicates_window_scales: conntrackd.window_tracking,
        ..FtfwConfig::default()
    };
    // In 2106 the numbers begin anew, as conntrackd's do.
    let time_of_day_s = credentials::unix_time().as_secs() as u32;
    SyncPeerConfig { id: conntrackd.peer_id, profile: PeerProfile::Conntrackd { config: session, time_of_day_s } }
}
