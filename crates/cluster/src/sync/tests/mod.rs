//! Scenarios with two nodes and a model of the kernel.

mod failures;
mod kernel;
mod pair;
mod scenarios;
mod sharing;
mod storm;
