//! The main job on one machine: real TCP through a real cluster, a node killed, and what survived.

pub mod traffic;
