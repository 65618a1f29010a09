//! The one binary's library.
pub mod config;
