//! A sender and a receiver over a network that loses, doubles, delays and turns round.

mod bytes;
mod harness;
mod hostile;
mod properties;
mod rules;
mod scenarios;
