//! Lists and rules of the URL filter, for operators.

use api::{UrlAnswers, UrlCategoryStatus, UrlDecisions, UrlFilterStatus, UrlRuleStatus};
use network_functions::url_filter::rules::{RuleView, UrlFilterRules};

/// The filter as operators see it; `None` without rules.
pub(super) fn status(rules: &UrlFilterRules) -> Option<UrlFilterStatus> {
    let views = rules.views();
    let category =
        |(name, entries): (&str, usize)| UrlCategoryStatus { name: name.to_owned(), entries: entries as u64 };
    (!views.is_empty()).then(|| UrlFilterStatus {
        entries: rules.entries() as u64,
        skipped: rules.skipped() as u64,
        memory_bytes: rules.memory_bytes() as u64,
        categories: rules.categories().map(category).collect(),
        rules: views.into_iter().map(rule).collect(),
    })
}

fn rule(view: RuleView) -> UrlRuleStatus {
    let decisions = view.decisions.into_iter().map(|(category, outcome, count)| UrlDecisions {
        category,
        outcome: outcome.label().to_owned(),
        count,
    });
    let answers = view.answers.into_iter().map(|(answer, count)| UrlAnswers { kind: answer.label().to_owned(), count });
    UrlRuleStatus { name: view.name, decisions: decisions.collect(), answers: answers.collect() }
}
