//! `mainstay sync` on two machines with kernels of their own.

mod filters;
mod operating;
mod recovery;
mod replication;
mod roles;
mod troubles;
