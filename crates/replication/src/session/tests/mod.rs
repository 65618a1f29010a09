//! Two sessions over a network that loses, doubles, delays and turns round.

mod agreement;
mod harness;
mod hostile;
mod model;
mod properties;
mod scenarios;
