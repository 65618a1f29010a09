//! The rules of the SYN proxy, for operators; and the time, which cookies depend on.

use api::{EventKind, SynProxyHandshakes, SynProxyRejection, SynProxyStatus};
use flow::Instant;
use network_functions::syn_proxy::{Mode, RuleView, SynProxyRules};

use super::Reporting;
use crate::credentials;

/// The rules as operators see them.
pub(super) fn statuses(rules: &SynProxyRules, now: Instant) -> Vec<SynProxyStatus> {
    rules.rules().iter().map(|rule| status(rule.view(now))).collect()
}

fn status(view: RuleView) -> SynProxyStatus {
    let rejected = [("invalid", view.invalid), ("expired", view.expired), ("reset", view.resets)];
    let handshakes = [
        ("opened", view.opened),
        ("refused", view.refused),
        ("unanswered", view.unanswered),
        ("mismatched", view.mismatched),
    ];
    SynProxyStatus {
        name: view.name,
        mode: match view.mode {
            Mode::Off => "off",
            Mode::Auto(_) => "auto",
            Mode::Always => "always",
        }
        .to_owned(),
        active: view.is_active,
        activations: view.activations,
        syns_per_s: view.syns_per_s,
        half_open: view.half_open,
        answered: view.answered,
        accepted: view.accepted,
        rejected: rejected.map(|(reason, segments)| SynProxyRejection { reason: reason.to_owned(), segments }).into(),
        handshakes: handshakes
            .map(|(outcome, handshakes)| SynProxyHandshakes { outcome: outcome.to_owned(), handshakes })
            .into(),
    }
}

impl Reporting {
    /// Notes which rules have become active or inactive, and gives the proxy and the quotas the time. The lead worker does so every second.
    pub(super) fn watch_syn_proxy(&mut self, now: Instant) {
        let shared = self.balancing.shared();
        let (rules, unix_time) = (shared.syn_proxy, credentials::unix_time());
        rules.set_unix_time(now, unix_time);
        shared.rate_limit.set_unix_time(now, unix_time);
        for rule in rules.rules() {
            let view = rule.view(now);
            if !matches!(view.mode, Mode::Auto(_)) {
                continue;
            }
            let was_active = self.active_rules.contains(&view.name);
            if view.is_active && !was_active {
                let detail = format!("rule {}: {} SYNs/s, {} half-open", view.name, view.syns_per_s, view.half_open);
                self.note(now, EventKind::SynProxyActive, &detail);
                self.active_rules.insert(view.name);
            } else if !view.is_active && was_active {
                let detail =
                    format!("rule {}: {} SYNs answered, {} cookies accepted", view.name, view.answered, view.accepted);
                self.note(now, EventKind::SynProxyInactive, &detail);
                self.active_rules.remove(&view.name);
            }
        }
    }
}
