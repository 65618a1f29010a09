//! Edges as their users see them: frames and the state of nodes in, frames and events out.

mod distribution;
mod fast_path;
mod fluid;
mod harness;
mod rate_control;
mod recovery;
mod recovery_model;
mod simulation;
