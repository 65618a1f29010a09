//! What an operator sees of the comparison.

use flow::Instant;

/// How this node's copies of the peer's connections stand to what the peer told. Counters count since the session was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgreementStatus {
    /// When the copies were last found to be what the peer told, all of them; `None` if never: the peer may be of a release
    /// that does not compare.
    pub agreed_at: Option<Instant>,
    /// Connections on which the two are known to differ now.
    pub divergent: u32,
    /// Comparisons that the peer answered.
    pub rounds_compared: u64,
    /// Connections found to differ.
    pub divergent_found: u64,
    /// Missing and wrong copies that were told again.
    pub repaired: u64,
    /// Copies removed because their master had no such connection.
    pub ghosts_removed: u64,
    /// Copies that were not in the table as they had been entered: something changed them without a word.
    pub changed_silently: u64,
    /// Rounds asked for because too much differed to be put right one by one.
    pub rounds_asked: u64,
}
