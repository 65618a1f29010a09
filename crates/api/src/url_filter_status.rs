//! Lists and rules of a URL filter.

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// The URL filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct UrlFilterStatus {
    /// Entries of all lists.
    pub entries: u64,
    /// Lines and records of lists that are well-formed, and list nothing: names of the machine itself, and records that are no policies.
    pub skipped: u64,
    /// Memory of the lists, in bytes.
    #[report(gauge("url_filter_memory_bytes"))]
    pub memory_bytes: u64,
    /// Categories.
    #[report(nested)]
    pub categories: Vec<UrlCategoryStatus>,
    /// Rules in their order.
    #[report(nested)]
    pub rules: Vec<UrlRuleStatus>,
    /// Server that is asked about hosts in no list, with `[url_filter.server]`. Older releases leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub server: Option<UrlServerStatus>,
}

/// A categorisation server, and the cache of its answers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct UrlServerStatus {
    /// Address and port of the server.
    pub address: String,
    /// The last request succeeded, or there was none.
    #[report(gauge(
        "url_filter_server_available",
        help = "1 while the last request to the categorisation server succeeded."
    ))]
    pub available: bool,
    /// Questions that wait for a request, or for its response.
    #[report(gauge("url_filter_server_questions"))]
    pub questions: u64,
    /// Answers in the cache.
    #[report(gauge("url_filter_server_cache_entries"))]
    pub entries: u64,
    /// Answers that fit the cache.
    pub entries_max: u64,
    /// Memory of the cache, in bytes.
    #[report(gauge("url_filter_server_cache_memory_bytes"))]
    pub memory_bytes: u64,
    /// Look-ups that the cache could answer.
    #[report(counter(
        "url_filter_server_lookups_total",
        outcome = "hit",
        help = "Look-ups of hosts in no list: a `hit` or a `miss` of the cache."
    ))]
    pub hits: u64,
    /// Look-ups that the cache could not answer.
    #[report(counter("url_filter_server_lookups_total", outcome = "miss"))]
    pub misses: u64,
    /// Questions that were sent.
    #[report(counter("url_filter_server_asked_total"))]
    pub asked: u64,
    /// Of `asked`, questions about answers that were used and old.
    #[report(counter("url_filter_server_refreshed_total"))]
    pub refreshed: u64,
    /// Answers to `refreshed` that differ from those in the cache: false positives of the cache's filter, and changes at the server.
    #[report(counter("url_filter_server_contradicted_total"))]
    pub contradicted: u64,
    /// Answers with a category that is not configured.
    #[report(counter("url_filter_server_unknown_categories_total"))]
    pub unknown_categories: u64,
    /// Look-ups that `on_failure` decided.
    #[report(counter("url_filter_server_unanswered_total"))]
    pub unanswered: u64,
    /// Of `unanswered`, look-ups that found no room for a question.
    #[report(counter("url_filter_server_no_room_total"))]
    pub no_room: u64,
    /// Requests that failed.
    #[report(counter("url_filter_server_failures_total"))]
    pub failures: u64,
    /// Answers that were removed because their lifetime was over.
    #[report(counter(
        "url_filter_server_removed_total",
        reason = "expired",
        help = "Answers that were removed from the cache: `expired`, or `evicted` to make room."
    ))]
    pub expired: u64,
    /// Answers that were removed to make room.
    #[report(counter("url_filter_server_removed_total", reason = "evicted"))]
    pub evicted: u64,
    /// Answers that other nodes have sent.
    #[serde(default)]
    #[report(counter("url_filter_server_received_total"))]
    pub received: u64,
}

/// A category of the URL filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(category = self.name))]
pub struct UrlCategoryStatus {
    /// Name of the category.
    pub name: String,
    /// Entries of its lists.
    #[report(gauge("url_filter_entries"))]
    pub entries: u64,
}

/// A rule of the URL filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(rule = self.name))]
pub struct UrlRuleStatus {
    /// Name of the rule.
    pub name: String,
    /// Decisions that were made, by category and outcome.
    #[report(nested)]
    pub decisions: Vec<UrlDecisions>,
    /// Answers in the place of servers, by kind.
    #[report(nested)]
    pub answers: Vec<UrlAnswers>,
}

/// Decisions of a rule that are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(category = self.category, outcome = self.outcome))]
pub struct UrlDecisions {
    /// Category that decided: `uncategorised` for hosts in none, `undecided` for connections that show no host, `unanswered` for hosts about which
    /// the server has given no answer.
    pub category: String,
    /// `allowed`, `blocked`, or `logged` (it would be blocked, if the rule did not only log).
    pub outcome: String,
    /// Number of connections, questions, and further requests of a connection.
    #[report(counter(
        "url_filter_decisions_total",
        help = "Connections, questions and further requests that the rule of the URL filter decided on: `allowed`, `blocked`, or `logged` (it only logs). The category is `uncategorised` for hosts in none, `undecided` for connections that show no host, and `unanswered` for hosts about which the server has given no answer."
    ))]
    pub count: u64,
}

/// Answers of a rule that are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(kind = self.kind))]
pub struct UrlAnswers {
    /// `page`, `reset` (of a client), or `nxdomain` (a DNS response that the name does not exist).
    pub kind: String,
    /// Number of answers; repetitions count.
    #[report(counter(
        "url_filter_answers_total",
        help = "Answers of the rule in the place of servers: a `page`, a `reset` of a client, or `nxdomain` (a DNS response that the name does not exist)."
    ))]
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
