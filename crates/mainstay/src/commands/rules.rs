//! `mainstay rules`: the firewall's rules at work.

use network_functions::firewall;
use serde::Serialize;

use super::{CommandError, gateways_only};
use crate::cli::RulesArgs;
use api::metrics::{Metric, Sample};
use console::{Table, count};
use control::client::Client;

/// What is shown in place of a rule's name for connections that no rule matched.
const NO_RULE: &str = "(none matched)";

/// A rule, and what it decided.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RuleCount {
    /// Its name; `None` for connections that no rule matched.
    pub rule: Option<String>,
    /// What it does.
    pub action: String,
    /// First packets of connections that it decided on.
    pub packets: u64,
}

/// Asks the gateway and prints its rules in their order.
///
/// # Errors
/// The gateway does not answer, or the output cannot be written.
pub fn run(args: &RulesArgs) -> Result<(), CommandError> {
    /// What `--json` prints.
    #[derive(Serialize)]
    struct Rules<'a> {
        rules: &'a [RuleCount],
    }
    let mut client = Client::open(args.socket.target())?;
    gateways_only(&mut client, "nft list ruleset shows the rules")?;
    let rules = rules_of(&client.counters()?);
    Ok(console::print_as(args.json, &Rules { rules: &rules }, || describe(&rules))?)
}

/// The rules among a gateway's counters.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts travel as floating point")]
pub fn rules_of(samples: &[Sample]) -> Vec<RuleCount> {
    let label = |sample: &Sample, name: &str| sample.labels.get(name).cloned().unwrap_or_default();
    let named = samples.iter().filter(|sample| sample.name == Metric::FirewallRulePackets.name());
    let named = named.map(|sample| RuleCount {
        rule: Some(label(sample, "rule")),
        action: label(sample, "action"),
        packets: sample.value as u64,
    });
    let is_default = |sample: &&Sample| {
        sample.name == Metric::FunctionEvents.name()
            && label(sample, "function") == firewall::NAME
            && label(sample, "event") == firewall::DEFAULT_COUNTER_NAME
    };
    let default = samples.iter().find(is_default).map(|sample| RuleCount {
        rule: None,
        action: firewall::Action::Drop.label().to_owned(),
        packets: sample.value as u64,
    });
    named.chain(default).collect()
}

/// The rules as people read them.
#[must_use]
pub fn describe(rules: &[RuleCount]) -> String {
    let mut table = Table::of("RULE|ACTION|>MATCHED|>DENIED");
    let drop = firewall::Action::Drop.label();
    for rule in rules {
        let denied = if rule.action == drop { rule.packets } else { 0 };
        let name = rule.rule.clone().unwrap_or_else(|| NO_RULE.to_owned());
        table.row([name, rule.action.clone(), count(rule.packets), count(denied)]);
    }
    if table.is_empty() { "there is no firewall in the chain\n".to_owned() } else { table.render() }
}
