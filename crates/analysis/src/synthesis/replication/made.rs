//! What was made, to compare a study's result with it.

use std::time::Duration;

use flow::Instant;
use serde::Serialize;

use super::{Behaviour, ReplicationConfig};
use crate::trace::connections::statistics::Lifetimes;

/// A component of what was made.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MadeComponent {
    /// Its name.
    pub name: String,
    /// Its share of the connections that was asked for.
    pub share: f64,
    /// Its connections.
    pub connections: u64,
}

/// What was made up to now.
#[derive(Clone, Debug, Serialize)]
pub struct Made {
    /// Frames.
    pub frames: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Seconds from the first frame to the last.
    pub seconds: f64,
    /// Sessions: connections that begin together count as one.
    pub sessions: u64,
    /// Connections.
    pub connections: u64,
    /// Of these, the connections without an answer.
    pub one_way: u64,
    /// Of these, UDP.
    pub udp: u64,
    /// Of these, IPv6.
    pub ipv6: u64,
    /// By component of the mixture.
    pub components: Vec<MadeComponent>,
    /// The most that were open at a time.
    pub open_max: u64,
    /// Connections that were left out because as many were open as is possible.
    pub left_out: u64,
    /// How long connections last that are answered, in seconds: the mean, and what 10, 50, 90 and 99 % do not exceed. With those
    /// that the traffic's end cut short as they would have been.
    pub lifetime_s: MadeLifetimes,
    #[serde(skip)]
    open: u64,
    #[serde(skip)]
    lifetimes: Lifetimes,
    #[serde(skip)]
    first_at: Option<Instant>,
}

/// Lifetimes in a few numbers, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct MadeLifetimes {
    /// Their mean.
    pub mean: f64,
    /// What 10 % do not exceed.
    pub p10: f64,
    /// What half of them do not exceed.
    pub p50: f64,
    /// What 90 % do not exceed.
    pub p90: f64,
    /// What 99 % do not exceed.
    pub p99: f64,
}

impl Made {
    pub(super) fn new(config: &ReplicationConfig) -> Self {
        let components = config.components.iter();
        let components =
            components.map(|one| MadeComponent { name: one.name.clone(), share: one.share, connections: 0 }).collect();
        Self {
            frames: 0,
            bytes: 0,
            seconds: 0.0,
            sessions: 0,
            connections: 0,
            one_way: 0,
            udp: 0,
            ipv6: 0,
            components,
            open_max: 0,
            left_out: 0,
            lifetime_s: MadeLifetimes::default(),
            open: 0,
            lifetimes: Lifetimes::default(),
            first_at: None,
        }
    }

    pub(super) fn note_frame(&mut self, at: Instant, frame_bytes: usize) {
        self.frames += 1;
        self.bytes += frame_bytes as u64;
        self.seconds = at.saturating_since(*self.first_at.get_or_insert(at)).as_secs_f64();
    }

    pub(super) fn note_connection(
        &mut self,
        component: usize,
        behaviour: &Behaviour,
        is_ipv6: bool,
        lifetime: Duration,
    ) {
        self.connections += 1;
        self.components[component].connections += 1;
        self.one_way += u64::from(behaviour.is_one_way());
        self.udp += u64::from(behaviour.is_udp());
        self.ipv6 += u64::from(is_ipv6);
        self.open += 1;
        self.open_max = self.open_max.max(self.open);
        if !behaviour.is_one_way() {
            self.lifetimes.add(lifetime);
        }
    }

    pub(super) const fn note_end(&mut self) {
        self.open -= 1;
    }

    /// The same, with the lifetimes summed up.
    #[must_use]
    pub fn summary(&self) -> Self {
        let of = &self.lifetimes;
        let lifetime_s = MadeLifetimes {
            mean: of.mean_s(),
            p10: of.quantile_s(0.1),
            p50: of.quantile_s(0.5),
            p90: of.quantile_s(0.9),
            p99: of.quantile_s(0.99),
        };
        Self { lifetime_s, ..self.clone() }
    }
}
