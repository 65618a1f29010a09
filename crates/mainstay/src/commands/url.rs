//! `mainstay url`: what the URL filter of a running gateway decides about a host.

use super::CommandError;
use api::UrlLookup;
use console::Table;
use control::client::Client;
use control::target::Target;

/// Asks the gateway and prints its answer.
///
/// # Errors
/// The gateway has no answer, or the output cannot be written.
pub fn run(target: Target, host: &str, json: bool) -> Result<(), CommandError> {
    let found = Client::open(target)?.url(host)?;
    Ok(console::print_as(json, &found, || describe(&found))?)
}

/// The answer as people read it.
#[must_use]
pub fn describe(found: &UrlLookup) -> String {
    let listed = if found.listed.is_empty() { "no list".to_owned() } else { found.listed.join(", ") };
    let mut table = Table::of("RULE|DECIDES|CATEGORY");
    for verdict in &found.verdicts {
        let category = verdict.category.clone().unwrap_or_else(|| "-".to_owned());
        table.row([verdict.rule.clone(), verdict.outcome.clone(), category]);
    }
    format!("{} is in {listed}\n\n{}", found.target, table.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::UrlVerdict;

    #[test]
    fn each_rule_has_a_row_with_its_category() {
        let verdict = |rule: &str, outcome: &str, category: Option<&str>| UrlVerdict {
            rule: rule.to_owned(),
            outcome: outcome.to_owned(),
            category: category.map(str::to_owned),
        };
        let found = UrlLookup {
            target: "www.ads.example".to_owned(),
            listed: vec!["ads".to_owned(), "trackers".to_owned()],
            verdicts: vec![verdict("web", "blocked", Some("ads")), verdict("visitors", "asked", None)],
        };
        let text = describe(&found);
        assert!(text.starts_with("www.ads.example is in ads, trackers\n"), "{text}");
        let rows: Vec<Vec<&str>> = text.lines().skip(3).map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows, [["web", "blocked", "ads"], ["visitors", "asked", "-"]]);
        assert!(describe(&UrlLookup::default()).contains("no list"));
    }
}
