//! Linux routers that the kernel makes: its own connection tracking, nftables, addresses that a manager moves, and a
//! daemon beside it that replicates its connections to another router. Shared by the measurements of conntrackd and of
//! its replacement.

pub mod conntrackd;
pub(crate) mod prepared;
pub mod router;
