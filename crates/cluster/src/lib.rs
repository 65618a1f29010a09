//! What makes nodes a cluster: who is alive, who holds the addresses, and how packets leave a node.
//!
//! - [`failure_detector`]: Bidirectional Forwarding Detection (RFC 5880) between two nodes, or a node and a router.
//! - [`role`]: which of the nodes holds the shared addresses, and the heartbeat by which they agree.
//! - [`edge_link`]: between a node and the edges beside the cluster.
//! - [`forwarding`]: routes, neighbours (ARP and Neighbour Discovery), address announcements, ICMP.
//!
//! They know nothing of each other: their owner carries events from one to the next. They know no clock,
//! socket, thread or unseeded randomness: time, packets and seeds come in, packets and events are polled out.
//!
//! ```
//! use cluster::failure_detector::{Config, Event, Session};
//! use flow::Instant;
//!
//! let mut near = Session::new(Config::default(), 1, 7);
//! let mut far = Session::new(Config::default(), 2, 8);
//! let mut packet = Vec::new();
//! for ms in 0..500 {
//!     let now = Instant::from_millis(ms);
//!     while near.poll_transmit(now, &mut packet) {
//!         far.handle_packet(now, &packet, 255).unwrap();
//!     }
//!     while far.poll_transmit(now, &mut packet) {
//!         near.handle_packet(now, &packet, 255).unwrap();
//!     }
//! }
//! assert_eq!(near.poll_event(), Some(Event::Up));
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod edge_link;
pub mod failure_detector;
pub mod forwarding;
pub mod node;
pub mod observation;
pub mod pipeline;
pub mod role;

mod group;

pub use group::{GROUPS_MAX, GroupId, GroupSet};
