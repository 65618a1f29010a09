//! What the fuzz targets do with the fuzzer's bytes: a module each, whose `run` takes them. None of them may panic, and
//! each asserts what must hold of whatever it was given. `docs/testing.md` describes how to run them.

pub mod attributes;
pub mod capture;
pub mod channel;
pub mod compact;
pub mod configuration;
pub mod conntrackd;
pub mod control_request;
pub mod ctnetlink;
pub mod edge;
pub mod edge_link;
pub mod failure_detection;
pub mod filters;
pub mod frame;
pub mod heartbeat;
pub mod inspect;
pub mod membership;
pub mod node;
pub mod redundancy;
pub mod session;
pub mod state_service;
pub mod syn_proxy;
pub mod trace;
pub mod tunnel;
pub mod tunnel_datagram;
pub mod tunnel_record;
pub mod url_filter;
