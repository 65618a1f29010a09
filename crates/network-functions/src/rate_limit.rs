//! Rate limits: token buckets of sources, of classes and of rules, shared by all workers of a node.
//!
//! ```text
//!   first packet ─► first rule that matches ─► limits of new connections ──────► refused, or begun
//!   every packet ─► the connection's rule ───► limits of packets and bytes ────► dropped, marked, or forwarded
//! ```
//!
//! **Rules.** The first [`RuleConfig`] whose conditions a connection matches decides, by its addresses and ports as its client knows them
//! and by its class. A rule has [limits](LimitConfig), which apply in their order: a packet that a later limit drops has used tokens of
//! earlier ones. A rule without limits exempts connections from later rules.
//!
//! **Buckets.** A bucket is the time at which it will be full (the generic cell rate algorithm, ITU-T I.371). An amount passes while the
//! bucket is not empty, so a bucket may be overdrawn by one packet of each worker, and a burst smaller than a packet stops nothing for
//! ever. What is dropped or marked takes no tokens.
//!
//! **Sources** are prefixes. Their buckets lie in a table of fixed size ([`LimitConfig::sources_max`], 48 bytes each). A new source
//! evicts the one of its set of eight that is closest to full buckets, or has used least of its quota: the source that loses the least.
//!
//! **Quotas** are amounts in a period of the wall clock, of a connection, a source or a rule ([`Quota`]). They survive failover: what was
//! used is in the connections' replicated states, in steps of a 64th of the quota.
//!
//! **Fast path.** A connection needs its packets only if its rule limits packets or bytes ([`NetworkFunction::needs_packets`]).
//!
//! **Failover.** Buckets are not replicated: they are full on another node. Each node of a cluster limits what it forwards itself. A
//! connection's rule is found again by its tuple and class.

mod buckets;
mod offenders;
mod quota;
mod rules;
mod state;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use flow::wire::Packet;
use flow::{Direction, DropReason, Tuple};

use crate::class::Class;
use crate::function::{Context, NetworkFunction, ReevaluationOutcome, Verdict};
use crate::restoration::{Restoring, Unrestorable};
pub use buckets::{Rate, SOURCE_BYTES};
pub use offenders::{OFFENDERS_MAX, Offender};
use quota::Amount;
pub use quota::{QUOTA_MAX, QUOTA_STEPS, Quota, Unit};
pub use rules::{
    Action, LIMITS_PER_RULE_MAX, LimitConfig, LimitView, Per, RULES_MAX, RateLimitRules, RuleConfig, RuleView,
    RulesError, SOURCES_DEFAULT, SOURCES_MAX, SOURCES_MIN, SOURCES_TOTAL_MAX, rule_id,
};
pub use state::RateLimitState;

/// The name of the function.
pub const NAME: &str = "rate_limit";

/// The rate limits of one worker; see the [module](self).
pub struct RateLimit {
    rules: Arc<RateLimitRules>,
}

impl RateLimit {
    /// Limits by these rules, which all workers share.
    #[must_use]
    pub const fn new(rules: Arc<RateLimitRules>) -> Self {
        Self { rules }
    }

    /// Finds the rule of a connection that has none by these rules yet.
    fn assign(&self, state: &mut RateLimitState, original: &Tuple, class: Class) {
        state.assign(self.rules.generation(), self.rules.find(original, class));
    }
}

impl NetworkFunction for RateLimit {
    type State = RateLimitState;
    const COUNTS_CONNECTIONS: bool = true;

    fn name(&self) -> &'static str {
        NAME
    }

    fn on_init(&self, context: &mut Context<'_>, _packet: &Packet<'_, '_>) -> Result<RateLimitState, DropReason> {
        let mut state = RateLimitState::default();
        self.assign(&mut state, &context.original, context.class);
        if let Some(rule) = self.rules.by_id(state.rule()) {
            let at = self.rules.moment(context.now, &context.original, context.class);
            if !rule.limits.iter().all(|limit| limit.admits(&at, &mut state, context.taking)) {
                return Err(DropReason::RateLimited);
            }
        }
        Ok(state)
    }

    #[inline]
    fn on_packet(
        &self,
        state: &mut RateLimitState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Verdict {
        if state.generation() != self.rules.generation() {
            self.assign(state, &context.original, context.class);
        }
        let Some(rule) = self.rules.by_id(state.rule()) else { return Verdict::Forward };
        let at = self.rules.moment(context.now, &context.original, context.class);
        let amount = Amount { packets: packet.frame.packets(), bytes: packet.headers.l3_bytes.into() };
        for limit in rule.limits.iter().filter(|limit| limit.covers(direction)) {
            if limit.take(&at, state, amount) {
                continue;
            }
            match limit.config.action {
                Action::Drop if limit.config.quota.is_some() => return Verdict::Drop(DropReason::QuotaExceeded),
                Action::Drop => return Verdict::Drop(DropReason::RateLimited),
                Action::Mark(dscp) => packet.set_dscp(dscp),
            }
        }
        Verdict::Forward
    }

    fn needs_packets(&self, state: &RateLimitState) -> bool {
        if state.generation() != self.rules.generation() {
            return self.rules.need_packets();
        }
        self.rules.by_id(state.rule()).is_some_and(|rule| rule.needs_packets())
    }

    /// A further step of the quota is used up. All else follows from the connection's tuple and class on every node.
    fn is_replicated_change(&self, before: &RateLimitState, after: &RateLimitState) -> bool {
        if (before.period(), before.used()) == (after.period(), after.used()) {
            return false;
        }
        let quota = self.rules.by_id(after.rule()).and_then(|rule| rule.quota());
        quota.is_some_and(|quota| {
            before.period() != after.period() || quota.step(before.used()) != quota.step(after.used())
        })
    }

    fn decides_by_class(&self) -> bool {
        self.rules.have_classes()
    }

    /// Permits every connection. Its rule is found again, as its class may have changed.
    fn reevaluate(&self, state: &mut RateLimitState, _outgoing: &Tuple, _class: Class) -> ReevaluationOutcome {
        state.unassign();
        ReevaluationOutcome::Allowed
    }

    /// Another node may have counted more of a quota.
    fn on_enter(&self, state: &RateLimitState, original: &Tuple, _reply: &Tuple) {
        self.rules.merge(state, original);
    }

    /// Except for connections with a quota of which something is used.
    fn restorable(&self) -> Result<(), Unrestorable> {
        Ok(())
    }

    fn is_restorable(&self, state: &RateLimitState) -> bool {
        state.used() == 0
    }

    fn restore(&self, _restoring: &mut Restoring) -> Option<RateLimitState> {
        Some(RateLimitState::default())
    }
}
