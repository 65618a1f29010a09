//! The edge switch that stands on either side of a cluster of stateful nodes.
//!
//! ```text
//!   hosts ── network port ─► ┌──────┐ ── port of node 0 ─► ┌────────┐ ─► ┌──────┐
//!                            │ edge │ ── port of node 1 ─► │ cluster│ ─► │ edge │ ◄── network port ── hosts
//!            near side       └──────┘ ── port of node 2 ─► └────────┘ ─► └──────┘    far side of the left edge
//! ```
//!
//! An [`Edge`] does four things:
//!
//! - It distributes flows to nodes: [`flow::ecmp`] in two stages, and an [`Affinity`] that keeps the packets of a connection together.
//! - It recovers locally what a failed node lost: it holds the lowest unacknowledged segment of each TCP connection, and resends it
//!   when another node has taken the connection over ([`RecoveryConfig`]).
//! - It controls rates after a failover by the advertised window ([`RateControlConfig`]).
//! - It has settled flows forwarded below it, for example by the kernel ([`FastPathOrder`]).
//!
//! Frames to a group pass it as they pass a switch, so that nodes answer ARP and Neighbour Discovery and receive each other.
//!
//! Packets *enter* the cluster from the near side and *leave* it towards the near side. Whether nodes are alive, and when a take-over
//! is complete, are inputs. The crate knows no clock, socket or failure detector, and it changes nothing of a packet but its
//! destination link address and the window field.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod distribution;
mod edge;
mod event;
mod fast_path;
mod flows;
mod heavy_hitters;
mod link_control;
mod local_recovery;
mod rate_control;
mod tcp;

pub use config::{CachePolicy, Capacity, ConfigError, EdgeConfig, NodePort, RateControlConfig, RecoveryConfig};
pub use edge::{Edge, Transmit};
pub use event::{EVENTS_PENDING_MAX, EdgeCounters, EdgeEvent, EdgeStatus};
pub use fast_path::{FastPathCounters, FastPathOrder, NodeForwarding, SettledFlow};
pub use flow::{AddressOf, Affinity, NODES_MAX, NodeSet};
pub use flows::{CONNECTIONS_MAX, EdgeFlow, FlowCounters, IdleTimeouts};
pub use local_recovery::{RecoveryCounters, Resent};
pub use rate_control::{RatePhase, RateStatus};
