//! Two sessions over a network that loses, doubles, delays and turns round.

mod anti_entropy;
mod harness;
mod hostile;
mod model;
mod properties;
mod scenarios;
