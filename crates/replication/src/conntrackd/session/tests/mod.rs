//! Two sessions against each other, and a session against a model of conntrackd.

mod conntrackd;
mod harness;
mod hostile;
mod properties;
mod scenarios;
