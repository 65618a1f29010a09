//! What operators see of the rules: what each has decided, and what each would decide about a host.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use flow::Instant;

use super::path::NormalPath;
use super::rules::{Action, Answer, Counts, Decided, Decision, Rule, UrlFilterRules};
use crate::inspect::HostName;

/// What is known of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// Decisions that have been made: category, what was decided, how often.
    pub decisions: Vec<(String, Decided, u64)>,
    /// Answers in the place of servers.
    pub answers: Vec<(Answer, u64)>,
}

/// What a rule decides about a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostVerdict {
    /// The rule's name.
    pub rule: String,
    /// What it decides, and the category that decides. `None`: a server has been asked, and has not answered yet.
    pub decided: Option<(Decided, String)>,
}

/// What is known of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostView {
    /// The categories whose lists have it.
    pub listed: Vec<String>,
    /// What each rule decides about a connection that matches it.
    pub verdicts: Vec<HostVerdict>,
}

impl UrlFilterRules {
    /// What is known of each rule, in their order.
    #[must_use]
    pub fn views(&self) -> Vec<RuleView> {
        self.rules.iter().map(|rule| self.view(rule)).collect()
    }

    fn view(&self, rule: &Rule) -> RuleView {
        let counted = |counts: &Counts, index: usize| counts[index].load(Ordering::Relaxed);
        let of_categories = self.category_names().zip(&rule.decided);
        let decisions = of_categories.flat_map(|(name, counts)| {
            Decided::ALL.map(|decided| (name.to_string(), decided, counted(counts, decided as usize)))
        });
        RuleView {
            name: rule.config.name.clone(),
            decisions: decisions.filter(|(.., count)| *count > 0).collect(),
            answers: Answer::ALL.map(|answer| (answer, counted(&rule.answers, answer as usize))).into(),
        }
    }

    /// What is known of a host and, with `http://` in front or without, a path of it. Nothing is counted for the rules. A server is asked about a host that no
    /// list has, as by a client's request. `None`: the text begins with no host name.
    #[must_use]
    pub fn look_up(&self, now: Instant, target: &str) -> Option<HostView> {
        let target = target.split_once("://").map_or(target, |(_, rest)| rest);
        let (authority, path) = target.split_at(target.find('/').unwrap_or(target.len()));
        let host = HostName::of_authority(authority.as_bytes())?;
        let path = NormalPath::new(path.as_bytes());
        let verdict = |rule: &Rule| HostVerdict {
            rule: rule.config.name.clone(),
            decided: match self.decide(now, rule, &host, Some(&path)) {
                Decision::Wait(_) => None,
                Decision::Made(decision) => {
                    let decided = match (decision.is_blocked, rule.config.action) {
                        (false, _) => Decided::Allowed,
                        (true, Action::Log) => Decided::Logged,
                        (true, _) => Decided::Blocked,
                    };
                    Some((decided, self.category_name(decision.category).to_string()))
                }
            },
        };
        Some(HostView {
            listed: self.listed(&host, Some(&path)).map(ToString::to_string).collect(),
            verdicts: self.rules.iter().map(verdict).collect(),
        })
    }
}
