//! Traffic that a command writes.

use flow::Instant;
use serde::Serialize;

/// A stream of frames.
pub(super) trait Traffic {
    type Made: Serialize;

    fn next(&mut self) -> Option<(Instant, &[u8])>;
    /// From when to when it goes.
    fn span(&self) -> (Instant, Instant);
    fn made(&self) -> Self::Made;
    /// What was made, for people.
    fn describe(made: &Self::Made) -> String;
}
