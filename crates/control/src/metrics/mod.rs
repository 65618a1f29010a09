//! The page that Prometheus reads: its values, its text, and the server that offers it.

pub mod exposition;
pub mod samples;
pub mod server;

pub use exposition::render;
pub use samples::{add_latencies, add_status};
pub use server::{MetricsError, MetricsServer};

#[cfg(test)]
mod tests;
