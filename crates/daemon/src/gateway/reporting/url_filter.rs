//! Lists and rules of the URL filter, for operators.

use api::{
    UrlAnswers, UrlCategoryStatus, UrlDecisions, UrlFilterStatus, UrlLookup, UrlRuleStatus, UrlServerStatus, UrlVerdict,
};
use flow::Instant;
use network_functions::url_filter::server::{Counters, View};
use network_functions::url_filter::views::{HostVerdict, RuleView};

use crate::category_server::CategoryServer;
use crate::gateway::build::SharedFunctions;

/// The filter as operators see it; `None` without rules.
pub(super) fn status(shared: &SharedFunctions) -> Option<UrlFilterStatus> {
    let rules = &shared.url_filter;
    let views = rules.views();
    let category =
        |(name, entries): (&str, usize)| UrlCategoryStatus { name: name.to_owned(), entries: entries as u64 };
    (!views.is_empty()).then(|| UrlFilterStatus {
        entries: rules.entries() as u64,
        skipped: rules.skipped() as u64,
        memory_bytes: rules.memory_bytes() as u64,
        categories: rules.categories().map(category).collect(),
        rules: views.into_iter().map(rule).collect(),
        server: shared.categories.as_deref().map(server),
    })
}

/// What the filter decides about a host, with a path or without.
///
/// # Errors
/// There is no rule, or no host.
pub(super) fn look_up(shared: &SharedFunctions, now: Instant, target: &str) -> Result<UrlLookup, String> {
    let found = shared.url_filter.look_up(now, target);
    let found =
        found.ok_or_else(|| format!("{target:?} begins with no host name: give a host, or a host and a path"))?;
    if found.verdicts.is_empty() {
        return Err("the URL filter has no rule: add one with [[url_filter.rule]]".to_owned());
    }
    Ok(UrlLookup {
        target: target.to_owned(),
        listed: found.listed,
        verdicts: found.verdicts.into_iter().map(verdict).collect(),
    })
}

fn verdict(HostVerdict { rule, decided }: HostVerdict) -> UrlVerdict {
    match decided {
        Some((decided, category)) => UrlVerdict { rule, outcome: decided.label().to_owned(), category: Some(category) },
        None => UrlVerdict { rule, outcome: "asked".to_owned(), category: None },
    }
}

fn server(server: &CategoryServer) -> UrlServerStatus {
    let View { counters, entries, entries_max, memory_bytes, questions, is_down } = server.view();
    let Counters {
        hits,
        misses,
        asked,
        refreshed,
        contradicted,
        unknown_categories,
        unanswered,
        no_room,
        failures,
        expired,
        evicted,
        received,
    } = counters;
    UrlServerStatus {
        address: server.address.to_string(),
        available: !is_down,
        questions: questions as u64,
        entries: entries as u64,
        entries_max: entries_max as u64,
        memory_bytes: memory_bytes as u64,
        hits,
        misses,
        asked,
        refreshed,
        contradicted,
        unknown_categories,
        unanswered,
        no_room,
        failures,
        expired,
        evicted,
        received,
    }
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
