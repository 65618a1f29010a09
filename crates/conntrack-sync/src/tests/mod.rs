//! Scenarios with two nodes and a model of the kernel.

mod deferral;
mod failures;
mod kernel;
mod pair;
mod peers;
mod scenarios;
mod sharing;
mod storm;
mod unreplicated;
