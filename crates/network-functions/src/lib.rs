//! Network functions, and the chain that runs them.
//!
//! A function ([`function::NetworkFunction`]) is a policy and a fixed-size state per connection. Between packets it
//! keeps only that state, which is therefore all that another node needs to continue.
//!
//! [`classifier`], [`firewall`], [`rate_limit`], [`nat`], [`ftp`], [`load_balancer`], [`syn_proxy`] and [`url_filter`] are functions; [`chain`] runs functions in order. The crate knows neither the
//! connection table nor the protocols' automata: it receives a connection and a packet.
//!
//! # Writing a function
//!
//! A quota: each connection may carry a number of bytes, then no more. This is all that its author writes; the chain
//! makes the count continue on another node after a take-over. `examples/byte_quota` of the crate `mainstay` runs it on two nodes, and
//! `docs/writing-a-function.md` explains it.
//!
//! ```
//! use network_functions::prelude::*;
//!
//! flow_state! {
//!     struct Used: state_attribute::PRIVATE_FIRST {
//!         1 => bytes: u64,
//!     }
//! }
//!
//! struct Quota {
//!     bytes_max: u64,
//! }
//!
//! impl NetworkFunction for Quota {
//!     type State = Used;
//!
//!     fn name(&self) -> &'static str {
//!         "quota"
//!     }
//!
//!     fn on_init(&self, _: &mut Context<'_>, _: &Packet<'_, '_>) -> Result<Used, DropReason> {
//!         Ok(Used::default())
//!     }
//!
//!     fn on_packet(&self, used: &mut Used, _: &mut Context<'_>, packet: &mut Packet<'_, '_>, _: Direction) -> Verdict {
//!         used.bytes += u64::from(packet.headers.l3_bytes);
//!         if used.bytes > self.bytes_max { Verdict::Drop(DropReason::QuotaExceeded) } else { Verdict::Forward }
//!     }
//! }
//!
//! # use flow::conntrack::ProtocolState;
//! # use flow::wire::Headers;
//! # use flow::{Connection, Frame, NodeId, PortId};
//! # use network_functions::chain::Runtime;
//! # use network_functions::expectation::Expectations;
//! # use network_functions::log::Log;
//! # let tuple = Tuple {
//! #     source: [1; 16], destination: [2; 16], source_port: 5, destination_port: 6, protocol: 17, version: 6, discriminator: 0,
//! # };
//! # let send = |chain: &Chain, connection: &mut Connection| {
//! #     let mut bytes = [0; 1000 + 14];
//! #     let mut frame = Frame::new(&mut bytes, 0, 1000 + 14, PortId(0)).unwrap();
//! #     let mut headers = Headers {
//! #         tuple, transport: Transport::Udp, l3_offset: 14, l4_offset: 54, payload_offset: 62, l3_bytes: 1000, ttl: 64,
//! #         is_fragment: false,
//! #     };
//! #     let mut packet = Packet { frame: &mut frame, headers: &mut headers };
//! #     let (mut counters, mut log, mut expected) = (chain.new_counters(), Log::default(), Expectations::default());
//! #     let mut assemblies = Default::default();
//! #     let mut runtime = Runtime {
//! #         now: Instant::ZERO, node: NodeId(0), counters: &mut counters, log: &mut log,
//! #         assemblies: &mut assemblies, expectations: &mut expected,
//! #         handshake: network_functions::function::HandshakeExchange::NONE,
//! #     };
//! #     chain.process(&mut runtime, connection, &mut packet, Direction::Original).verdict
//! # };
//! # let connection = || Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
//! // One node forwards two packets of 1000 bytes …
//! let chain = ChainBuilder::new().push(Quota { bytes_max: 3000 }).build()?;
//! let mut here = connection();
//! assert_eq!(send(&chain, &mut here), Verdict::Forward);
//! assert_eq!(send(&chain, &mut here), Verdict::Forward);
//!
//! // … and replicates to another, which forwards the third and drops the next.
//! let mut attributes = Vec::new();
//! chain.encode_states(&here, &mut attributes);
//! let mut there = connection();
//! chain.decode_states(&mut there, &attributes)?;
//! assert_eq!(send(&chain, &mut there), Verdict::Forward);
//! assert_eq!(send(&chain, &mut there), Verdict::Drop(DropReason::QuotaExceeded));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Writing a helper
//!
//! A helper is a function that reads the end points' payload and permits the connections that they announce (FTP; SIP
//! and H.323 would be others). It additionally uses:
//!
//! * [`function::Context::expect`] announces a connection: its first packet's incoming tuple, with wildcards, and its
//!   outgoing tuple. Firewall and NAT then treat it like its master connection, and the expectation is replicated with
//!   that connection.
//! * [`Packet::replace_payload`](flow::wire::Packet::replace_payload) changes the payload, where addresses are translated.
//! * Over TCP a change of length shifts all later numbers: the function rewrites numbers with
//!   [`Packet::renumber_tcp`](flow::wire::Packet::renumber_tcp) and offers the inverses in
//!   [`Renumbering`](function::Renumbering), for connection tracking and for quotations in ICMP errors. [`ftp`] stores
//!   the shift in 16 bytes a direction. Over UDP none of this is needed.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
// The output of `flow_state!` names the crate, also within it.
extern crate self as network_functions;
#[cfg(test)]
extern crate std;

#[doc(hidden)]
pub use zerocopy;

pub mod address;
pub mod chain;
pub mod class;
pub mod classifier;
pub mod expectation;
pub mod firewall;
pub mod flow_state;
pub mod ftp;
pub mod function;
pub mod inspect;
pub mod load_balancer;
pub mod log;
pub mod nat;
pub mod port_range;
pub mod prelude;
pub mod rate_limit;
pub mod restoration;
pub mod rule_set;
pub mod shared_values;
pub mod syn_cookie;
pub mod syn_proxy;
#[cfg(test)]
mod testing;
pub mod tuple_filter;
mod unix_clock;
pub mod url_filter;
