//! `mainstay bench replication`: what survives when the active of two gateways dies, by the transport that carries what
//! they tell each other.

pub mod conntrackd;
pub mod network;
pub mod pair;
