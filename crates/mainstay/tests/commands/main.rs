//! Commands and processes in namespaces of their own. These tests may run beside each other.

mod backends;
#[path = "../common/mod.rs"]
mod common;
mod gateway_refuses;
mod interop_conntrackd;
mod large_packets;
mod looking;
mod operations;
mod program;
mod quick_start;
mod service;
mod study_redundancy;
mod study_replication;
mod sync;
