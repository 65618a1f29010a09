//! `mainstay sync` on two machines with kernels of their own.

#[path = "../common/mod.rs"]
mod common;

mod replication;
