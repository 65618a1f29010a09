//! Established connections as something below the node forwards them: what it needs, and what it has seen.
//!
//! A [`Plan`] describes a connection whose packets need nothing but translation and the check of their windows. The
//! program that forwards them returns the [`Activity`] of the connection.

mod activity;
mod hook;
mod plan;

pub use activity::{Activity, Side, Windows};
pub use hook::Hook;
pub use plan::{DirectionPlan, NextHop, Plan, PlanError, is_settled};
