//! Linux routers that the kernel makes: its own connection tracking, nftables, addresses that a manager moves, and a daemon
//! beside it that tells another router of its connections. What measurements of conntrackd, and of what stands in its place,
//! have in common.

pub mod conntrackd;
pub(crate) mod prepared;
pub mod router;
