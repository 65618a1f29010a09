//! `mainstay sync` on two machines with kernels of their own.

#[path = "../common/mod.rs"]
mod common;

mod filters;
mod operating;
mod recovery;
mod replication;
mod roles;
mod troubles;
