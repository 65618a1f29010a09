//! `[url_filter]`: lists of hosts, and rules by their categories.

use std::path::PathBuf;

use network_functions::url_filter::rules::{ListConfig, RuleConfig};

/// A list, and its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UrlList {
    /// The file.
    pub path: PathBuf,
    /// Its category and format.
    pub config: ListConfig,
}

/// Lists and rules of the URL filter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UrlFilter {
    /// The lists in their order.
    pub lists: Vec<UrlList>,
    /// The rules in their order. No two have the same name.
    pub rules: Vec<RuleConfig>,
}
