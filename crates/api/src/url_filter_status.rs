//! Lists and rules of a URL filter.

use serde::{Deserialize, Serialize};

/// The URL filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UrlFilterStatus {
    /// Entries of all lists.
    pub entries: u64,
    /// Lines and records of lists that are well-formed, and list nothing: names of the machine itself, and records that are no policies.
    pub skipped: u64,
    /// Memory of the lists, in bytes.
    pub memory_bytes: u64,
    /// Categories.
    pub categories: Vec<UrlCategoryStatus>,
    /// Rules in their order.
    pub rules: Vec<UrlRuleStatus>,
}

/// A category of the URL filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UrlCategoryStatus {
    /// Name of the category.
    pub name: String,
    /// Entries of its lists.
    pub entries: u64,
}

/// A rule of the URL filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UrlRuleStatus {
    /// Name of the rule.
    pub name: String,
    /// Decisions that were made, by category and outcome.
    pub decisions: Vec<UrlDecisions>,
    /// Answers in the place of servers, by kind.
    pub answers: Vec<UrlAnswers>,
}

/// Decisions of a rule that are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UrlDecisions {
    /// Category that decided: `uncategorised` for hosts that no list has, `undecided` for connections that show no host.
    pub category: String,
    /// `allowed`, `blocked`, or `logged` (it would be blocked, if the rule did not only log).
    pub outcome: String,
    /// Number of connections, questions, and further requests of a connection.
    pub count: u64,
}

/// Answers of a rule that are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UrlAnswers {
    /// `page`, `reset` (of a client), or `nxdomain` (a DNS response that the name does not exist).
    pub kind: String,
    /// Number of answers; repetitions count.
    pub count: u64,
}
