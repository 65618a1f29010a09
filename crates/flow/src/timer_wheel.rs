//! A hierarchical timer wheel.
