//! `[classifier]`, its rules and marks, and rules of the firewall by class.

use network_functions::class::Class;
use network_functions::classifier::ClassifierConfig;

use super::super::validated::Function;
use super::{GOOD, check, said};

const CLASSES: &str = r#"[classifier]
packets_max = 4
[[classifier.rule]]
class = "video"
names = ["Films.example", "live.example."]
[[classifier.rule]]
class = "transfer"
protocol = "tcp"
ports = [9100, "9200-9203"]
[[classifier.mark]]
class = "voice"
dscp = 46
"#;

/// The small configuration with a classifier in its chain and these sections.
fn with_classes(sections: &str) -> String {
    let chain = GOOD.replace("chain = [\"firewall\", \"nat\"]", "chain = [\"classifier\", \"firewall\", \"nat\"]");
    chain.replace("[replication]\n", &format!("{sections}[replication]\n"))
}

#[test]
fn rules_and_marks_are_read() {
    let checked = check(&with_classes(CLASSES)).unwrap().config;
    assert_eq!(checked.chain, [Function::Classifier, Function::Firewall, Function::Nat]);
    let config = checked.classifier;
    assert_eq!((config.packets_max, config.has_built_in), (4, true));
    assert_eq!(config.rules[0].names, ["films.example", "live.example"]);
    assert_eq!(config.rules[1].ports.iter().map(|range| range.count()).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(config.dscp[Class::Voice.index()], Some(46));
}

#[test]
fn an_empty_section_has_the_defaults() {
    let checked = check(&with_classes("[classifier]\n")).unwrap().config;
    assert_eq!(checked.classifier, ClassifierConfig::default());
}

#[test]
fn mistakes_are_reported_with_a_remedy() {
    let with = |from: &str, to: &str| said(&with_classes(&CLASSES.replace(from, to)));
    for (from, to, expected) in [
        ("class = \"video\"", "class = \"films\"", "\"films\" is not known"),
        ("\"Films.example\"", "\"*.example\"", "is no domain"),
        ("protocol = \"tcp\"", "protocol = \"icmp\"", "the protocol has no ports"),
        ("dscp = 46", "dscp = 64", "64 is out of range"),
        ("packets_max = 4", "packets_max = 0", "out of range"),
        ("names = [\"Films.example\", \"live.example.\"]\n", "", "no names and no ports"),
    ] {
        let text = with(from, to);
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn rules_by_class_need_a_classifier_before_the_firewall() {
    let rule = "[[firewall.rule]]\nname = \"films\"\nclass = [\"video\"]\naction = \"drop\"\n[replication]\n";
    let without = GOOD.replace("[replication]\n", rule);
    assert!(said(&without).contains("no classifier comes before the firewall"), "{}", said(&without));
    let with = with_classes("[classifier]\n").replace("[replication]\n", rule);
    let rules = check(&with).unwrap().config.firewall;
    assert!(rules.iter().any(|rule| rule.conditions.classes == [Class::Video]), "{rules:?}");
    let behind = with.replace("[\"classifier\", \"firewall\"", "[\"firewall\", \"classifier\"");
    assert!(said(&behind).contains("no classifier comes before the firewall"));
}
