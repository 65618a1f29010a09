//! `mainstay sync`: the kernel's connection tracking, replicated.

pub mod import;
