//! `[url_filter]`. The files of the lists are read when the gateway starts or reloads, not here.

use network_functions::port_range::PortRange;
use network_functions::url_filter::lists::ListFormat;
use network_functions::url_filter::rules::{
    Action, DnsAction, ListConfig, RULES_MAX, RuleConfig, UNCATEGORISED, UNDECIDED, Undecided, category_id,
};
use network_functions::url_filter::store::LISTS_MAX;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake, Text};
use super::super::raw::{RawUrlFilter, RawUrlList, RawUrlRule};
use super::super::validated::{Function, UrlFilter, UrlList};
use super::super::value;
use super::common::{absolute_path, choice, flag};
use super::firewall::port_ranges;
use super::{named, parsed_list};

pub(super) fn url_filter(
    raw: Option<&Spanned<RawUrlFilter>>,
    chain: &[Function],
    diagnostics: &mut Diagnostics<'_>,
) -> UrlFilter {
    describe(diagnostics);
    let Some(section) = raw else { return UrlFilter::default() };
    let raw = section.get_ref();
    check_place(section, chain, diagnostics);
    check_count("[[url_filter.list]]", &raw.list, LISTS_MAX, "join lists of a category", diagnostics);
    check_count("[[url_filter.rule]]", &raw.rule, RULES_MAX, "merge rules by listing prefixes and ports", diagnostics);
    let mut lists: Vec<UrlList> = Vec::new();
    for written in raw.list.iter().take(LISTS_MAX) {
        let Some(list) = list(written.get_ref(), diagnostics) else { continue };
        let twin = lists.iter().find(|other| {
            other.config.category != list.config.category
                && category_id(&other.config.category) == category_id(&list.config.category)
        });
        if let Some(twin) = twin {
            let problem =
                format!("the category has the same identifier in connections' states as {:?}", twin.config.category);
            let mistake = Mistake::new(problem, "give the category another name");
            diagnostics.error(written.get_ref().category.span(), "url_filter.list.category", mistake);
        }
        lists.push(list);
    }
    let mut rules: Vec<RuleConfig> = Vec::new();
    for written in raw.rule.iter().take(RULES_MAX) {
        let rule = rule(written, &raw.list, diagnostics);
        if rules.iter().any(|other| other.name == rule.name) {
            let mistake = Mistake::new("another rule has this name", "give the rule another name");
            diagnostics.error(written.get_ref().name.span(), "url_filter.rule.name", mistake);
        }
        rules.push(rule);
    }
    UrlFilter { lists, rules }
}

/// The defaults and ranges of keys, for a file without lists and rules.
fn describe(diagnostics: &mut Diagnostics<'_>) {
    choice("url_filter.list.format", None, &ListFormat::ALL, diagnostics);
    choice("url_filter.rule.action", None, &Action::ALL, diagnostics);
    choice("url_filter.rule.undecided", None, &Undecided::ALL, diagnostics);
    choice("url_filter.rule.dns", None, &DnsAction::ALL, diagnostics);
}

fn check_count<T>(subject: &str, written: &[Spanned<T>], max: usize, remedy: &str, diagnostics: &mut Diagnostics<'_>) {
    if let Some(beyond) = written.get(max) {
        diagnostics.error(beyond.span(), subject, Mistake::new(format!("there are more than {max}"), remedy));
    }
}

fn list(raw: &RawUrlList, diagnostics: &mut Diagnostics<'_>) -> Option<UrlList> {
    let category = named("url_filter.list.category", &raw.category, diagnostics);
    if [UNCATEGORISED, UNDECIDED].contains(&category.as_str()) {
        let mistake = Mistake::new(format!("{category:?} has a meaning of its own"), "give the category another name");
        diagnostics.error(raw.category.span(), "url_filter.list.category", mistake);
    }
    let format = choice("url_filter.list.format", raw.format.as_ref(), &ListFormat::ALL, diagnostics);
    let path = absolute_path("url_filter.list.path", &raw.path, diagnostics)?;
    Some(UrlList { path, config: ListConfig { category, format } })
}

fn rule(written: &Spanned<RawUrlRule>, lists: &[Spanned<RawUrlList>], diagnostics: &mut Diagnostics<'_>) -> RuleConfig {
    let raw = written.get_ref();
    let prefixes = |key: &str, list: &[Text], diagnostics: &mut Diagnostics<'_>| {
        parsed_list(key, list, |text| value::network(text), diagnostics)
    };
    if raw.block.is_empty() && raw.undecided.is_none() {
        let mistake = Mistake::new("the rule blocks nothing", "list categories in block, or remove the rule");
        diagnostics.warning(raw.name.span(), "url_filter.rule.block", mistake);
    }
    let ports = port_ranges("url_filter.rule.ports", &raw.ports, diagnostics);
    RuleConfig {
        name: named("url_filter.rule.name", &raw.name, diagnostics),
        sources: prefixes("url_filter.rule.source", &raw.source, diagnostics),
        destinations: prefixes("url_filter.rule.destination", &raw.destination, diagnostics),
        ports: ports.iter().filter_map(|range| PortRange::new(*range.start(), *range.end())).collect(),
        block: categories("url_filter.rule.block", &raw.block, lists, diagnostics),
        allow: categories("url_filter.rule.allow", &raw.allow, lists, diagnostics),
        action: choice("url_filter.rule.action", raw.action.as_ref(), &Action::ALL, diagnostics),
        undecided: choice("url_filter.rule.undecided", raw.undecided.as_ref(), &Undecided::ALL, diagnostics),
        dns: choice("url_filter.rule.dns", raw.dns.as_ref(), &DnsAction::ALL, diagnostics),
        log: flag("url_filter.rule.log", raw.log, false, diagnostics),
    }
}

/// Categories of a rule, each of which a list has.
fn categories(
    subject: &str,
    written: &[Text],
    lists: &[Spanned<RawUrlList>],
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<String> {
    let has_list = |name: &String| lists.iter().any(|list| list.get_ref().category.get_ref() == name);
    for text in written.iter().filter(|text| text.get_ref() != UNCATEGORISED && !has_list(text.get_ref())) {
        let mistake = Mistake::new(
            format!("no list has the category {:?}", text.get_ref()),
            "add a [[url_filter.list]] with it, or remove it from the rule",
        );
        diagnostics.error(text.span(), subject, mistake);
    }
    written.iter().map(|text| text.get_ref().clone()).collect()
}

/// The filter stands before all functions that translate or renumber: its answers go to clients as they are.
fn check_place(section: &Spanned<RawUrlFilter>, chain: &[Function], diagnostics: &mut Diagnostics<'_>) {
    let place = |function| chain.iter().position(|other| *other == function);
    let Some(own) = place(Function::UrlFilter) else { return };
    let changing = [Function::SynProxy, Function::LoadBalancer, Function::Nat, Function::Ftp];
    if changing.into_iter().filter_map(place).any(|other| other < own) {
        let mistake = Mistake::new(
            "a function that changes packets stands before url_filter in the chain",
            "write it behind \"firewall\" and before \"syn_proxy\", \"load_balancer\", \"nat\" and \"ftp\"",
        );
        diagnostics.error(section.span(), "chain", mistake);
    }
}
