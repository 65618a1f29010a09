//! Network functions, and the chain that runs them.
//!
//! A function ([`function::NetworkFunction`]) is a policy and a fixed-size state per connection. It keeps nothing
//! between packets but what it writes into that state, which is therefore all that another node needs to go on.
//!
//! [`firewall`] and [`nat`] are functions; [`chain`] runs functions in order. The room knows neither the connection
//! table nor the protocols' automata: it is handed a connection and a packet.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod chain;
pub mod firewall;
pub mod function;
pub mod nat;
pub mod port_range;
pub mod rule_set;
#[cfg(test)]
mod testing;
