//! `[classifier]`.

use flow::wire::ip_protocol;
use network_functions::class::Class;
use network_functions::classifier::{
    CLASS_NAMES_MAX, CLASS_RULES_MAX, ClassRule, ClassifierConfig, DSCP_MAX, PACKETS_MAX_DEFAULT, PACKETS_MAX_LIMIT,
};
use network_functions::inspect::HostName;
use toml::Spanned;

use super::super::diagnostic::{Diagnostics, Mistake, Text};
use super::super::raw::{RawClassMark, RawClassRule, RawClassifier, RawConfig};
use super::super::validated::{Config, Function};
use super::super::value;
use super::common::{flag, one_of, parsed, quoted, within};
use super::firewall::port_ranges;

/// All classes, with their names.
pub(super) fn classes() -> [(&'static str, Class); Class::COUNT] {
    Class::ALL.map(|class| (class.label(), class))
}

pub(super) fn classifier(raw: Option<&Spanned<RawClassifier>>, diagnostics: &mut Diagnostics<'_>) -> ClassifierConfig {
    let absent = RawClassifier::default();
    let raw = raw.map_or(&absent, Spanned::get_ref);
    diagnostics.describe("classifier.rule.class", None, quoted(&classes()));
    diagnostics.describe("classifier.mark.class", None, quoted(&classes()));
    diagnostics.describe("classifier.mark.dscp", None, format!("0 to {DSCP_MAX}"));
    let mut config = ClassifierConfig {
        has_built_in: flag("classifier.built_in", raw.built_in, true, diagnostics),
        packets_max: within(
            "classifier.packets_max",
            raw.packets_max.as_ref(),
            PACKETS_MAX_DEFAULT,
            1..=PACKETS_MAX_LIMIT,
            diagnostics,
        ),
        ..ClassifierConfig::default()
    };
    check_counts(&raw.rule, diagnostics);
    config.rules = raw.rule.iter().take(CLASS_RULES_MAX).map(|written| rule(written.get_ref(), diagnostics)).collect();
    for written in &raw.mark {
        mark(&mut config, written.get_ref(), diagnostics);
    }
    config
}

fn check_counts(rules: &[Spanned<RawClassRule>], diagnostics: &mut Diagnostics<'_>) {
    if let Some(first_beyond) = rules.get(CLASS_RULES_MAX) {
        let mistake =
            Mistake::new(format!("there are more than {CLASS_RULES_MAX} rules"), "write one rule for each class");
        diagnostics.error(first_beyond.span(), "[[classifier.rule]]", mistake);
    }
    let mut names = 0;
    for rule in rules {
        names += rule.get_ref().names.len();
        if names > CLASS_NAMES_MAX {
            let mistake = Mistake::new(
                format!("the rules list more than {CLASS_NAMES_MAX} names"),
                "write domains in place of their hosts",
            );
            diagnostics.error(rule.span(), "[[classifier.rule]]", mistake);
            return;
        }
    }
}

fn rule(raw: &RawClassRule, diagnostics: &mut Diagnostics<'_>) -> ClassRule {
    let subject = "classifier rule";
    let class = one_of(subject, &raw.class, &classes(), diagnostics).unwrap_or_default();
    let names = raw.names.iter().filter_map(|name| parsed(subject, name, domain, diagnostics)).collect();
    let protocol = raw.protocol.as_ref().and_then(|text| {
        let checked = value::protocol(text.get_ref()).and_then(|protocol| {
            let has_ports = matches!(protocol, ip_protocol::TCP | ip_protocol::UDP | ip_protocol::SCTP);
            has_ports.then_some(protocol).ok_or_else(|| {
                Mistake::new("the protocol has no ports", "write protocol = \"tcp\", \"udp\" or \"sctp\"")
            })
        });
        checked.map_err(|mistake| diagnostics.error(text.span(), subject, mistake)).ok()
    });
    let ports = port_ranges(subject, &raw.ports, diagnostics);
    if raw.names.is_empty() && raw.ports.is_empty() {
        let mistake = Mistake::new("the rule lists no names and no ports", "add names or ports, or remove the rule");
        diagnostics.error(raw.class.span(), subject, mistake);
    }
    ClassRule { class, names, protocol, ports }
}

fn domain(text: &str) -> Result<String, Mistake> {
    HostName::new(text.as_bytes()).map(|name| name.to_string()).ok_or_else(|| {
        let remedy =
            "write a domain of letters, digits, hyphens and dots, as in \"example.org\"; it includes its hosts";
        Mistake::new(format!("{text:?} is no domain"), remedy)
    })
}

fn mark(config: &mut ClassifierConfig, raw: &RawClassMark, diagnostics: &mut Diagnostics<'_>) {
    let subject = "classifier mark";
    let Some(class) = one_of(subject, &raw.class, &classes(), diagnostics) else { return };
    let dscp = *raw.dscp.get_ref();
    if dscp > DSCP_MAX {
        let mistake =
            Mistake::new(format!("{dscp} is out of range"), format!("choose a code point from 0 to {DSCP_MAX}"));
        diagnostics.error(raw.dscp.span(), subject, mistake);
        return;
    }
    if config.dscp[class.index()].replace(dscp).is_some() {
        let mistake = Mistake::new(format!("the class {class} is marked twice"), "write one mark for each class");
        diagnostics.error(raw.class.span(), subject, mistake);
    }
}

/// A list of classes: those that a condition names.
pub(super) fn list(subject: &str, list: &[Text], diagnostics: &mut Diagnostics<'_>) -> Vec<Class> {
    list.iter().filter_map(|text| one_of(subject, text, &classes(), diagnostics)).collect()
}

/// Conditions on classes need a classifier before the function that has them.
pub(super) fn check_order(raw: &RawConfig, config: &Config, diagnostics: &mut Diagnostics<'_>) {
    let position = |function| config.chain.iter().position(|listed| *listed == function);
    let classifier = position(Function::Classifier);
    let is_before = |other| classifier.is_some_and(|at| position(other).is_none_or(|other| at < other));
    let rules = raw.firewall.iter().flat_map(|section| &section.get_ref().rule);
    let first = rules.filter_map(|rule| rule.get_ref().class.first()).next();
    if let Some(class) = first.filter(|_| !is_before(Function::Firewall)) {
        let mistake = Mistake::new(
            "the rule has a class, but no classifier comes before the firewall",
            "add [classifier], and list \"classifier\" before \"firewall\" in chain",
        );
        diagnostics.error(class.span(), "firewall.rule.class", mistake);
    }
}
