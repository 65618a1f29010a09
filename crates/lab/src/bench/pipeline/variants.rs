//! What a packet and a connection cost under other circumstances than the main measurement's: other numbers of connections
//! and of rules, IPv6, fragments.

use flow::IpFamily;

use super::fragments;
use super::gateway::Gateway;
use super::setting::FIREWALL_RULES;
use super::stage::{Stage, nanos_each};
use super::traffic::Traffic;
use crate::bench::BenchError;
use crate::bench::rounds::{self, Rounds};

/// Connections in the tables that show how a packet's cost grows with their number.
pub(super) const TABLE_SIZES: [u32; 3] = [1 << 16, 1_000_000, 8_000_000];
/// Rules of the firewalls that are compared.
pub(super) const RULES: [u16; 2] = [FIREWALL_RULES, 1000];
/// Connections that are there while others are opened and closed under few rules and under many.
const CONNECTIONS_UNDER_RULES: u32 = 1 << 16;
/// Connections that are opened and closed under them in a round.
const OPENED_PER_ROUND: u32 = 1 << 14;
/// Figures of a number of firewall rules.
#[derive(Default)]
pub(super) struct UnderRules {
    pub(super) packet: Rounds,
    pub(super) open: Rounds,
}

/// All of them, in nanoseconds.
#[derive(Default)]
pub(super) struct Variants {
    /// A packet, by [`TABLE_SIZES`]; nothing for those that were not asked for.
    pub(super) by_size: [Rounds; TABLE_SIZES.len()],
    pub(super) ipv6: Rounds,
    pub(super) fragment: Rounds,
    /// The share of the fragments that were sent on.
    pub(super) fragments_passed: f64,
    /// By [`RULES`].
    pub(super) under_rules: [UnderRules; RULES.len()],
}

impl Stage<'_> {
    /// Measures all variants.
    pub(super) fn measure(&mut self) -> Result<Variants, BenchError> {
        let mut variants = Variants { under_rules: self.under_rules()?, ..Variants::default() };
        (variants.fragment, variants.fragments_passed) = fragments::measure(self)?;
        variants.ipv6 = self.packets_among(IpFamily::V6, self.args.connections)?;
        for (size, figures) in TABLE_SIZES.into_iter().zip(&mut variants.by_size) {
            // That of the main measurement is known already.
            if size <= self.args.largest && size != self.args.connections {
                *figures = self.packets_among(IpFamily::V4, size)?;
            }
        }
        Ok(variants)
    }

    /// A packet of a random one of so many connections.
    fn packets_among(&mut self, family: IpFamily, connections: u32) -> Result<Rounds, BenchError> {
        self.progress.show(&format!("opening {connections} connections"));
        let mut traffic = Traffic::new(family, connections);
        let mut gateway = Gateway::new(connections, FIREWALL_RULES);
        gateway.establish(&mut traffic, self.ring)?;
        let mut figures = Rounds::default();
        let packets = self.packets();
        rounds::repeat(self.progress, &format!("{connections} connections"), self.args.rounds, |_| {
            figures.push(nanos_each(gateway.pass(&mut traffic, self.ring, packets)?, packets));
            Ok::<_, BenchError>(())
        })?;
        Ok(figures)
    }

    fn under_rules(&mut self) -> Result<[UnderRules; RULES.len()], BenchError> {
        let mut sides = Vec::new();
        for rules in RULES {
            let mut traffic = Traffic::new(IpFamily::V4, CONNECTIONS_UNDER_RULES);
            let mut gateway = Gateway::new(CONNECTIONS_UNDER_RULES + OPENED_PER_ROUND, rules);
            gateway.establish(&mut traffic, self.ring)?;
            sides.push((gateway, traffic));
        }
        let mut figures: [UnderRules; RULES.len()] = Default::default();
        let packets = self.packets();
        rounds::repeat(self.progress, "few rules and many", self.args.rounds, |round| {
            for side in rounds::turns(round, [0, 1]) {
                let (gateway, traffic) = &mut sides[side];
                let spent = gateway.pass(traffic, self.ring, packets)?;
                figures[side].packet.push(nanos_each(spent, packets));
                let [open_time, _] = gateway.open_and_close(CONNECTIONS_UNDER_RULES, OPENED_PER_ROUND, self.ring)?;
                figures[side].open.push(nanos_each(open_time, OPENED_PER_ROUND.into()));
            }
            Ok::<_, BenchError>(())
        })?;
        Ok(figures)
    }
}
