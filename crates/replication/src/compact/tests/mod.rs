//! A sender and a receiver over a network that loses, doubles, delays and turns round.

mod harness;
mod scenarios;
