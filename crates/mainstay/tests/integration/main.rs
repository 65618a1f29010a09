//! The program as operators meet it: real processes, real kernels, real traffic. One program of tests, because each links the whole product.

#[path = "../common/mod.rs"]
mod common;

mod backends;
mod classifier;
mod datagrams;
mod direct_return;
mod gateway_refuses;
mod large_packets;
mod load_balancer;
mod looking;
mod mapping;
mod operations;
mod program;
mod quic_routing;
mod quick_start;
mod router_advertisements;
mod service;
mod sources;
mod study_redundancy;
mod study_replication;
mod sync;
mod worst_packet;
mod writing_a_function;
