//! Network functions, and the chain that runs them.
//!
//! A function ([`function::NetworkFunction`]) is a policy and a fixed-size state per connection. It keeps nothing
//! between packets but what it writes into that state, which is therefore all that another node needs to go on.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod function;
