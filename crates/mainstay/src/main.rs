//! The one binary.
pub mod demo;
fn main() {}
