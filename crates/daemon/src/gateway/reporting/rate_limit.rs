//! The rules of the rate limits, for operators.

use api::{RateLimitQuota, RateLimitSource, RateLimitStatus, RateLimited};
use flow::Direction;
use network_functions::rate_limit::{Action, LimitView, Offender, Per, RateLimitRules, Unit};

/// The limits of all rules as operators see them.
pub(super) fn statuses(rules: &RateLimitRules) -> Vec<RateLimitStatus> {
    let limits = rules.views().flat_map(|rule| {
        let numbered = rule.limits.into_iter().zip(1..);
        numbered.map(move |(limit, number)| status(&rule.name, number, &limit))
    });
    limits.collect()
}

fn status(rule: &str, number: u32, limit: &LimitView) -> RateLimitStatus {
    let config = &limit.config;
    let per = match config.per {
        Per::Rule => "rule",
        Per::Source => "source",
        Per::Class => "class",
        Per::Connection => "connection",
    };
    let direction = match config.direction {
        None => "both",
        Some(Direction::Original) => "original",
        Some(Direction::Reply) => "reply",
    };
    let action = match config.action {
        Action::Drop => "drop",
        Action::Mark(_) => "mark",
    };
    RateLimitStatus {
        rule: rule.to_owned(),
        limit: number,
        per: per.to_owned(),
        direction: direction.to_owned(),
        action: action.to_owned(),
        packets_per_s: config.packets.map(|rate| rate.per_s),
        bytes_per_s: config.bytes.map(|rate| rate.per_s),
        connections_per_s: config.connections.map(|rate| rate.per_s),
        quota: config.quota.map(|quota| RateLimitQuota {
            unit: match quota.unit {
                Unit::Bytes => "bytes",
                Unit::Packets => "packets",
            }
            .to_owned(),
            amount: quota.amount,
            period_s: quota.period.as_secs(),
            used: limit.used_of_quota,
        }),
        beyond: RateLimited { packets: limit.packets, bytes: limit.bytes, connections: limit.connections },
        sources: limit.sources,
        sources_max: (config.per == Per::Source).then_some(config.sources_max),
        sources_evicted: limit.sources_evicted,
        exceeded_by: limit.offenders.iter().flatten().map(exceeded_by).collect(),
    }
}

fn exceeded_by(offender: &Offender) -> RateLimitSource {
    RateLimitSource { source: offender.source.to_string(), beyond: offender.times }
}
