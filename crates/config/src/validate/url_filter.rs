//! `[url_filter]`. The files of the lists are read when the gateway starts or reloads, not here.

use std::ops::RangeInclusive;
use std::time::Duration;

use network_functions::url_filter::lists::ListFormat;
use network_functions::url_filter::rules::{
    Action, DnsAction, ListConfig, RESERVED, RULES_MAX, RuleConfig, UNCATEGORISED, Undecided, category_id,
};
use network_functions::url_filter::server::cache::{CATEGORIES_MAX, ENTRIES_MAX};
use network_functions::url_filter::server::{OnFailure, OnUnknown, ServerConfig};
use network_functions::url_filter::store::LISTS_MAX;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake, Text};
use super::super::raw::{RawUrlFilter, RawUrlList, RawUrlRule, RawUrlServer};
use super::super::validated::{Function, UrlFilter, UrlList, UrlServer, UrlServerTls};
use super::super::value;
use super::common::{absolute_path, choice, flag, parsed, ranged, within};
use super::firewall::port_ranges;
use super::{named, parsed_list};

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(30);
const CACHE_ENTRIES_DEFAULT: u32 = 1 << 16;
const CACHE_ENTRIES: RangeInclusive<u32> = 1000..=ENTRIES_MAX as u32;
const CACHE_LIFETIME_DEFAULT: Duration = Duration::from_secs(3600);
const CACHE_LIFETIME: RangeInclusive<Duration> = Duration::from_secs(7)..=Duration::from_secs(7 * 86_400);

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
    let mut names: Vec<&Text> = Vec::new();
    let mut lists: Vec<UrlList> = Vec::new();
    for written in raw.list.iter().take(LISTS_MAX) {
        let Some(list) = list(written.get_ref(), diagnostics) else { continue };
        check_identifier("url_filter.list.category", &written.get_ref().category, &mut names, diagnostics);
        lists.push(list);
    }
    let server = raw.server.as_ref().and_then(|written| server(written.get_ref(), &mut names, diagnostics));
    let mut rules: Vec<RuleConfig> = Vec::new();
    for written in raw.rule.iter().take(RULES_MAX) {
        let rule = rule(written, &names, diagnostics);
        if rules.iter().any(|other| other.name == rule.name) {
            let mistake = Mistake::new("another rule has this name", "give the rule another name");
            diagnostics.error(written.get_ref().name.span(), "url_filter.rule.name", mistake);
        }
        rules.push(rule);
    }
    UrlFilter { lists, rules, server }
}

/// A category must be distinguished from the others in connections' states.
fn check_identifier<'t>(subject: &str, name: &'t Text, names: &mut Vec<&'t Text>, diagnostics: &mut Diagnostics<'_>) {
    let has_same = |other: &&&Text| {
        other.get_ref() != name.get_ref() && category_id(other.get_ref()) == category_id(name.get_ref())
    };
    if let Some(twin) = names.iter().find(has_same) {
        let problem = format!("the category has the same identifier in connections' states as {:?}", twin.get_ref());
        diagnostics.error(name.span(), subject, Mistake::new(problem, "give the category another name"));
    }
    names.push(name);
}

fn server<'t>(
    raw: &'t RawUrlServer,
    names: &mut Vec<&'t Text>,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<UrlServer> {
    let subject = "url_filter.server.categories";
    check_count(subject, &raw.categories, CATEGORIES_MAX, "leave out categories that no rule has", diagnostics);
    let mut categories: Vec<String> = Vec::new();
    for text in raw.categories.iter().take(CATEGORIES_MAX) {
        let name = category(subject, text, diagnostics);
        check_identifier(subject, text, names, diagnostics);
        if categories.contains(&name) {
            let mistake = Mistake::new(format!("{name:?} is there twice"), "remove one of them");
            diagnostics.error(text.span(), subject, mistake);
        }
        categories.push(name);
    }
    let config = ServerConfig {
        categories,
        on_unknown: choice("url_filter.server.on_unknown", raw.on_unknown.as_ref(), &OnUnknown::ALL, diagnostics),
        on_failure: choice("url_filter.server.on_failure", raw.on_failure.as_ref(), &OnFailure::ALL, diagnostics),
        timeout: timeout(raw.timeout.as_ref(), diagnostics),
        cache_entries: cache_entries(raw.cache_entries.as_ref(), diagnostics) as usize,
        cache_lifetime: cache_lifetime(raw.cache_lifetime.as_ref(), diagnostics),
    };
    let token = raw.token.as_ref().and_then(|path| absolute_path("url_filter.server.token", path, diagnostics));
    let address = parsed("url_filter.server.address", &raw.address, value::socket_address, diagnostics)?;
    let tls = server_tls(raw, diagnostics);
    Some(UrlServer { address, token, tls, config })
}

/// TLS to the server, if an authority is named.
fn server_tls(raw: &RawUrlServer, diagnostics: &mut Diagnostics<'_>) -> Option<UrlServerTls> {
    let RawUrlServer { authority, server_name, certificate, key, .. } = raw;
    for (name, text) in [("server_name", server_name), ("certificate", certificate), ("key", key)] {
        let Some(text) = text.as_ref().filter(|_| authority.is_none()) else { continue };
        let mistake = Mistake::new("requests are made without TLS", "write authority = \"/PATH\", or leave it out");
        diagnostics.error(text.span(), &format!("url_filter.server.{name}"), mistake);
    }
    if let (Some(text), None) | (None, Some(text)) = (certificate, key) {
        let mistake = Mistake::new("certificate and key go together", "name both files");
        diagnostics.error(text.span(), "url_filter.server.certificate", mistake);
    }
    let mut path = |name: &str, text: &Option<Text>| {
        let subject = format!("url_filter.server.{name}");
        text.as_ref().and_then(|text| absolute_path(&subject, text, diagnostics))
    };
    let authority = path("authority", authority)?;
    let identity = path("certificate", certificate).zip(path("key", key));
    let name = server_name.as_ref();
    let server_name =
        name.and_then(|text| parsed("url_filter.server.server_name", text, value::host_name, diagnostics));
    Some(UrlServerTls { authority, server_name, identity })
}

fn timeout(written: Option<&Text>, diagnostics: &mut Diagnostics<'_>) -> Duration {
    ranged("url_filter.server.timeout", written, TIMEOUT_DEFAULT, TIMEOUT, diagnostics)
}

fn cache_entries(written: Option<&Spanned<u32>>, diagnostics: &mut Diagnostics<'_>) -> u32 {
    within("url_filter.server.cache_entries", written, CACHE_ENTRIES_DEFAULT, CACHE_ENTRIES, diagnostics)
}

fn cache_lifetime(written: Option<&Text>, diagnostics: &mut Diagnostics<'_>) -> Duration {
    ranged("url_filter.server.cache_lifetime", written, CACHE_LIFETIME_DEFAULT, CACHE_LIFETIME, diagnostics)
}

/// The defaults and ranges of keys, for a file without lists and rules.
fn describe(diagnostics: &mut Diagnostics<'_>) {
    choice("url_filter.list.format", None, &ListFormat::ALL, diagnostics);
    choice("url_filter.rule.action", None, &Action::ALL, diagnostics);
    choice("url_filter.rule.undecided", None, &Undecided::ALL, diagnostics);
    choice("url_filter.rule.dns", None, &DnsAction::ALL, diagnostics);
    flag("url_filter.rule.quic", None, false, diagnostics);
    choice("url_filter.server.on_unknown", None, &OnUnknown::ALL, diagnostics);
    choice("url_filter.server.on_failure", None, &OnFailure::ALL, diagnostics);
    timeout(None, diagnostics);
    cache_entries(None, diagnostics);
    cache_lifetime(None, diagnostics);
}

fn check_count<T>(subject: &str, written: &[Spanned<T>], max: usize, remedy: &str, diagnostics: &mut Diagnostics<'_>) {
    if let Some(beyond) = written.get(max) {
        diagnostics.error(beyond.span(), subject, Mistake::new(format!("there are more than {max}"), remedy));
    }
}

fn list(raw: &RawUrlList, diagnostics: &mut Diagnostics<'_>) -> Option<UrlList> {
    let category = category("url_filter.list.category", &raw.category, diagnostics);
    let format = choice("url_filter.list.format", raw.format.as_ref(), &ListFormat::ALL, diagnostics);
    let path = absolute_path("url_filter.list.path", &raw.path, diagnostics)?;
    Some(UrlList { path, config: ListConfig { category, format } })
}

/// The name of a category.
fn category(subject: &str, text: &Text, diagnostics: &mut Diagnostics<'_>) -> String {
    let category = named(subject, text, diagnostics);
    if RESERVED.contains(&category.as_str()) {
        let mistake = Mistake::new(format!("{category:?} has a meaning of its own"), "give the category another name");
        diagnostics.error(text.span(), subject, mistake);
    }
    category
}

fn rule(written: &Spanned<RawUrlRule>, names: &[&Text], diagnostics: &mut Diagnostics<'_>) -> RuleConfig {
    let raw = written.get_ref();
    let prefixes = |key: &str, list: &[Text], diagnostics: &mut Diagnostics<'_>| {
        parsed_list(key, list, |text| value::network(text), diagnostics)
    };
    if raw.block.is_empty() && raw.undecided.is_none() {
        let mistake = Mistake::new("the rule blocks nothing", "list categories in block, or remove the rule");
        diagnostics.warning(raw.name.span(), "url_filter.rule.block", mistake);
    }
    RuleConfig {
        name: named("url_filter.rule.name", &raw.name, diagnostics),
        sources: prefixes("url_filter.rule.source", &raw.source, diagnostics),
        destinations: prefixes("url_filter.rule.destination", &raw.destination, diagnostics),
        ports: port_ranges("url_filter.rule.ports", &raw.ports, diagnostics),
        block: categories("url_filter.rule.block", &raw.block, names, diagnostics),
        allow: categories("url_filter.rule.allow", &raw.allow, names, diagnostics),
        action: choice("url_filter.rule.action", raw.action.as_ref(), &Action::ALL, diagnostics),
        undecided: choice("url_filter.rule.undecided", raw.undecided.as_ref(), &Undecided::ALL, diagnostics),
        dns: choice("url_filter.rule.dns", raw.dns.as_ref(), &DnsAction::ALL, diagnostics),
        quic: flag("url_filter.rule.quic", raw.quic, false, diagnostics),
        log: flag("url_filter.rule.log", raw.log, false, diagnostics),
    }
}

/// Categories of a rule, each of which a list or the server has.
fn categories(subject: &str, written: &[Text], names: &[&Text], diagnostics: &mut Diagnostics<'_>) -> Vec<String> {
    let is_known = |name: &String| names.iter().any(|known| known.get_ref() == name);
    for text in written.iter().filter(|text| text.get_ref() != UNCATEGORISED && !is_known(text.get_ref())) {
        let mistake = Mistake::new(
            format!("no list has the category {:?}", text.get_ref()),
            "add a [[url_filter.list]] with it, write it in url_filter.server.categories, or remove it from the rule",
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
