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
    /// Server that is asked about hosts in no list, with `[url_filter.server]`. Older releases leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<UrlServerStatus>,
}

/// A categorisation server, and the cache of its answers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UrlServerStatus {
    /// Address and port of the server.
    pub address: String,
    /// The last request succeeded, or there was none.
    pub available: bool,
    /// Questions that wait for a request, or for its response.
    pub questions: u64,
    /// Answers in the cache.
    pub entries: u64,
    /// Answers that fit the cache.
    pub entries_max: u64,
    /// Memory of the cache, in bytes.
    pub memory_bytes: u64,
    /// Look-ups that the cache could answer.
    pub hits: u64,
    /// Look-ups that the cache could not answer.
    pub misses: u64,
    /// Questions that were sent.
    pub asked: u64,
    /// Of `asked`, questions about answers that were used and old.
    pub refreshed: u64,
    /// Answers to `refreshed` that differ from those in the cache: false positives of the cache's filter, and changes at the server.
    pub contradicted: u64,
    /// Answers with a category that is not configured.
    pub unknown_categories: u64,
    /// Look-ups that `on_failure` decided.
    pub unanswered: u64,
    /// Of `unanswered`, look-ups that found no room for a question.
    pub no_room: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Answers that were removed because their lifetime was over.
    pub expired: u64,
    /// Answers that were removed to make room.
    pub evicted: u64,
    /// Answers that other nodes have sent.
    #[serde(default)]
    pub received: u64,
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
    /// Category that decided: `uncategorised` for hosts in none, `undecided` for connections that show no host, `unanswered` for hosts about which
    /// the server has given no answer.
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

/// What a URL filter decides about a host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UrlLookup {
    /// The host, with a path or without, as it was asked about.
    pub target: String,
    /// Categories whose lists have it.
    pub listed: Vec<String>,
    /// Rules in their order.
    pub verdicts: Vec<UrlVerdict>,
}

/// What a rule decides about a host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UrlVerdict {
    /// Name of the rule.
    pub rule: String,
    /// `allowed`, `blocked` or `logged`; `asked` while the categorisation server has not answered.
    pub outcome: String,
    /// Category that decides; not there while the server has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
}
