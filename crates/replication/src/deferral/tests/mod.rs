//! Lazy insertion, and the controller by the figures of the paper.

mod controller;
mod insertion;
mod properties;
