//! A node that replicates the Linux kernel's connections, as a value: the kernel's events, datagrams and time go in, requests
//! to the kernel, datagrams and events come out.
//!
//! ```text
//!            handle_kernel_event ──► mirror ──► sessions ──► poll_transmit
//!   kernel   handle_dump_entry          │ ▲                                  peers
//!            poll_kernel_requests ◄─────┘ └──── sessions ◄── handle_datagram
//! ```
//!
//! The same value runs in the daemon and in tests. The node whose kernel sees a connection's packets is its owner;
//! other nodes' kernels get replicas. Versions decide between owners, as between gateways.
//!
//! The caller passes input first (`handle_*`). It then calls [`SyncNode::poll_kernel_requests`] until it returns false
//! (executing each batch, and reporting refusals), [`SyncNode::poll_transmit`] until it returns none, and
//! [`SyncNode::handle_timeout`] at [`SyncNode::poll_timeout`]. Nothing is replicated before the kernel's table was read
//! once: [`SyncNode::poll_dump`] is true at the start.
//!
//! It knows no netlink, socket or clock, forwards nothing and sees no packet. It does not choose its role: the operator
//! or the manager of the addresses does ([`SyncNode::set_role`]).
//!
//! ```
//! use conntrack_sync::*;
//! use flow::netfilter::{Discriminator, Entry, Status, Tuple};
//! use flow::{HashKey, Instant, NodeId};
//! use replication::SessionConfig;
//!
//! let node = |number: u8, role| SyncNode::new(SyncConfig {
//!     node: NodeId(number),
//!     connections_max: 1000,
//!     hash_key: HashKey([1, 2]),
//!     seed: number.into(),
//!     injection: Injection::Direct,
//!     mode: Mode::PrimaryBackup,
//!     role,
//!     filter: SyncFilter::default(),
//!     expectations: true,
//!     deferral: None,
//!     timeout_floor: TIMEOUT_FLOOR_DEFAULT,
//!     heartbeat_interval: HEARTBEAT_INTERVAL_DEFAULT,
//!     peers: vec![SyncPeerConfig { id: NodeId(1 - number), profile: PeerProfile::Native(SessionConfig::default()) }],
//!     security: None,
//! }, Instant::ZERO);
//! let mut nodes = [node(0, SyncRole::Primary)?, node(1, SyncRole::Backup)?];
//! for node in &mut nodes {
//!     assert!(node.poll_dump(Instant::ZERO));
//!     node.handle_dump_ended(Instant::ZERO, DumpResult::Complete); // no connections yet
//! }
//! // The kernel of node 0 has a new connection.
//! let discriminator = Discriminator::Ports { source: 1024, destination: 53 };
//! let (source, destination) = ([10, 0, 0, 1].into(), [192, 0, 2, 1].into());
//! let tuple = Tuple { source, destination, protocol: 17, discriminator };
//! let status = Some(Status::CONFIRMED.union(Status::SEEN_REPLY).union(Status::ASSURED));
//! let entry = Entry { id: Some(7), status, timeout_s: Some(120), ..Entry::new(tuple, tuple.inverse()) };
//! nodes[0].handle_kernel_event(Instant::ZERO, Origin::Packets, KernelEvent::Began(&entry));
//!
//! let (mut datagram, mut batch, mut requests) = (Vec::new(), Vec::new(), Vec::new());
//! for millis in 0..1000 {
//!     let now = Instant::from_millis(millis);
//!     for from in 0..2 {
//!         nodes[from].handle_timeout(now);
//!         while let Some(to) = nodes[from].poll_transmit(now, &mut datagram) {
//!             nodes[usize::from(to.0)].handle_datagram(now, NodeId(from as u8), &datagram)?;
//!         }
//!     }
//!     while nodes[1].poll_kernel_requests(now, &mut batch) {
//!         requests.append(&mut batch);
//!         nodes[1].handle_requests_done(now);
//!     }
//! }
//! assert_eq!(requests.len(), 1, "node 1's kernel gets a replica");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod connections;
mod conntrackd_store;
mod coverage;
mod error;
mod event;
mod filter;
mod mirror;
mod node;
mod peer;
mod readiness;
mod request;
mod session;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod unreplicated;

pub use config::{
    ConfigError, HEARTBEAT_INTERVAL_DEFAULT, Injection, Mode, PeerProfile, SYNC_PEERS_MAX, SyncConfig, SyncPeerConfig,
    SyncRole, TIMEOUT_FLOOR_DEFAULT, TIMEOUT_FLOOR_MIN,
};
pub use connections::dump_state::DumpResult;
pub use connections::injection::KERNEL_REQUESTS_MAX;
pub use connections::kernel::{KernelEvent, Origin};
pub use connections::refresh::{REFRESH_AHEAD, REFRESH_PERIOD};
pub use coverage::{CONNECTIONS_MANY, FilterCoverage};
pub use error::SyncError;
pub use event::{SYNC_EVENTS_MAX, SyncEvent};
pub use filter::{IgnoreRule, NonTcpStart, SyncFilter, TcpStates};
pub use node::SyncNode;
pub use readiness::{Obstacle, Readiness};
pub use request::{InjectionCounters, KernelAction, KernelRefusal, KernelRequest, RequestToken};
pub use status::{SyncCounters, SyncFlow, SyncFlows, SyncPeerStatus, SyncStatus};
pub use unreplicated::{Unreplicated, UnreplicatedReason};
