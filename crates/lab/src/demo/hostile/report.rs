//! What came of the attacks.

use serde::Serialize;

use console::Table;

/// What came of all attacks.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HostileReport {
    /// The program's version.
    pub program_version: &'static str,
    /// One for each attack.
    pub rows: Vec<AttackReport>,
    /// Attacks that this machine cannot play.
    pub left_out: Vec<LeftOut>,
}

/// What came of one attack.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AttackReport {
    /// The attack.
    pub attack: &'static str,
    /// What it is against.
    pub target: &'static str,
    /// Whether the promise was kept.
    pub held: bool,
    /// What was measured.
    pub observed: String,
    /// What the running processes report about it: drops by reason, events, refusals.
    pub operator_sees: String,
}

/// An attack that was not played.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeftOut {
    /// The attack.
    pub attack: &'static str,
    /// Why it cannot be played here.
    pub reason: String,
}

/// What an attack had come to.
pub(super) enum Played {
    Observed(Observed),
    /// It cannot be played on this machine.
    LeftOut(String),
}

/// What was found out of an attack.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Observed {
    pub(super) held: bool,
    pub(super) observed: String,
    pub(super) operator_sees: String,
}

impl Observed {
    pub(super) fn broken(observed: String) -> Self {
        Self { held: false, observed, operator_sees: String::new() }
    }

    /// The promise is kept only if there are no such faults either.
    pub(super) fn with_faults(mut self, faults: &[String]) -> Self {
        if !faults.is_empty() {
            self.held = false;
            self.observed = format!("{}; {}", self.observed, faults.join("; "));
        }
        self
    }
}

impl HostileReport {
    pub(super) fn new() -> Self {
        Self { program_version: env!("CARGO_PKG_VERSION"), rows: Vec::new(), left_out: Vec::new() }
    }

    /// Enters what came of an attack on a target.
    pub(super) fn enter(&mut self, [attack, target]: [&'static str; 2], observed: Observed) {
        let Observed { held, observed, operator_sees } = observed;
        // What nobody can see is not held.
        let held = held && !operator_sees.is_empty();
        self.rows.push(AttackReport { attack, target, held, observed, operator_sees });
    }

    pub(super) fn leave_out(&mut self, attack: &'static str, reason: String) {
        self.left_out.push(LeftOut { attack, reason });
    }

    /// Names of the attacks that were not held.
    #[must_use]
    pub fn broken_rows(&self) -> Vec<&'static str> {
        self.rows.iter().filter(|row| !row.held).map(|row| row.attack).collect()
    }

    /// As people read it.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut table = Table::of("ATTACK|TARGET|HELD|OBSERVED|OPERATOR SEES");
        for row in &self.rows {
            let held = if row.held { "yes" } else { "NO" };
            table.row([
                row.attack.to_owned(),
                row.target.to_owned(),
                held.to_owned(),
                row.observed.clone(),
                row.operator_sees.clone(),
            ]);
        }
        let mut text = table.render();
        for LeftOut { attack, reason } in &self.left_out {
            text.push_str(&format!("\nleft out: {attack}: {reason}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(held: bool, operator_sees: &str) -> Observed {
        Observed { held, observed: "200 packets".into(), operator_sees: operator_sees.into() }
    }

    #[test]
    fn an_attack_with_a_fault_or_that_nobody_can_see_is_not_held() {
        let mut report = HostileReport::new();
        report.enter(["first", "a host"], observed(true, "invalid_reset 200"));
        report.enter(["unseen", "a host"], observed(true, ""));
        report.enter(["faulty", "a host"], observed(true, "drops").with_faults(&["a connection broke".to_owned()]));
        report.leave_out("later", "there is no clock".to_owned());
        assert_eq!(report.broken_rows(), ["unseen", "faulty"]);
        let text = report.describe();
        assert!(text.contains("invalid_reset") && text.contains("NO") && text.contains("left out"), "{text}");
    }
}
