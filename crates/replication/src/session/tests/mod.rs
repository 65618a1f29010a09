//! Two sessions over a network that loses, doubles, delays and turns round.

mod harness;
mod hostile;
mod model;
mod properties;
mod scenarios;
