//! What is counted of recoveries.

/// What is counted of recoveries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryCounters {
    /// Recoveries begun.
    pub begun: u64,
    /// Recoveries that ended because everything that was replicated had been restored.
    pub used_up: u64,
    /// Connections restored by a filter's answer.
    pub restored: u64,
    /// Connections restored by a filter's answer, or taken over, that an end point reset with its first word: false hits, as
    /// far as anybody sees them.
    pub disowned: u64,
    /// Packets of connections that no filter named.
    pub missed: u64,
    /// Answers of filters for connections that the rules would not let begin: false hits, or the rules are others.
    pub denied: u64,
    /// Answers of filters for connections whose translation is another's by now.
    pub conflicts: u64,
    /// Answers that may be to several connections, behind one outside port: dropped, and their sender repeats them.
    pub ambiguous: u64,
    /// Keep-alives to end points inside that an ambiguous answer may be for.
    pub asked: u64,
    /// End points that have answered such a keep-alive with a reset: it was not for them.
    pub denials: u64,
    /// Packets that were not asked for because their source had missed too often.
    pub unasked: u64,
    /// Packets that were not asked for because the work for all sources together was over its budget.
    pub over_budget: u64,
    /// Tuples that were made again or looked for because a packet might be an answer to them, and probes at four tuples each.
    pub tuples: u64,
    /// Connections begun in their middle by a segment from a trusted port.
    pub cold_started: u64,
    /// Segments from other ports that went on as keep-alives.
    pub probed: u64,
    /// Segments dropped until they come again.
    pub blocked: u64,
    /// Connections begun in their middle because a segment came again.
    pub unblocked: u64,
}

impl RecoveryCounters {
    /// All that count packets and connections, with the names by which operators know them.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 15] {
        // Every field is named, so that a new one cannot be forgotten.
        let Self {
            begun: _,
            used_up,
            restored,
            disowned,
            missed,
            denied,
            conflicts,
            ambiguous,
            asked,
            denials,
            unasked,
            over_budget,
            tuples: _,
            cold_started,
            probed,
            blocked,
            unblocked,
        } = *self;
        [
            ("used_up", used_up),
            ("restored", restored),
            ("disowned", disowned),
            ("missed", missed),
            ("denied", denied),
            ("conflicts", conflicts),
            ("ambiguous", ambiguous),
            ("asked", asked),
            ("denials", denials),
            ("unasked", unasked),
            ("over_budget", over_budget),
            ("cold_started", cold_started),
            ("probed", probed),
            ("blocked", blocked),
            ("unblocked", unblocked),
        ]
    }
}
