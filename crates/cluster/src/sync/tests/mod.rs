//! Scenarios with two nodes and a model of the kernel.

mod kernel;
mod pair;
mod scenarios;
