//! `mainstay bench load-balancer`: what a packet of a balanced connection costs a node, and how evenly and steadily the table chooses.
//!
//! The pipeline of [`bench pipeline`](super) with two chains, measured in turns: firewall and source NAT; firewall and load balancer. Both
//! have the same connections, firewall rules and frames. The services have a hundred backends each.
//!
//! Connections a second are those of a [network](crate::bench::balanced_connections) beside the kernel's load balancers.
//!
//! The table is examined by itself: the largest share of a backend over the mean, and the entries that change beyond a backend's own when
//! it leaves.

use std::time::Duration;

use flow::IpFamily;
use network_functions::address::tuple_bytes;
use network_functions::load_balancer::maglev::{self, Candidate, ENTRIES};
use packet_io::usage::thread_cpu_time;
use serde::Serialize;

use super::gateway::Gateway;
use super::setting::{BALANCED_BACKENDS, FIREWALL_RULES, balanced_chain, chain};
use super::stage::nanos_each;
use super::traffic::{Ring, Traffic};
use crate::args::BenchLoadBalancerArgs;
use crate::bench::BenchError;
use crate::bench::balanced_connections::{ConnectionRates, compare};
use crate::bench::rounds::{self, Rounds, median_table, rounded};
use crate::testbed;
use crate::testbed::watch::Watch;
use console::Progress;

/// What is reported.
#[derive(Serialize)]
struct Report {
    connections: u32,
    rounds: u32,
    /// Nanoseconds for a packet of a balanced connection, median of the rounds.
    ns_per_packet: f64,
    /// The same with firewall and NAT.
    ns_per_packet_nat: f64,
    /// Median of the rounds' ratios of the two.
    ratio: f64,
    #[serde(skip)]
    spans: [[f64; 2]; 2],
    backends: u16,
    /// The largest share of a backend over the mean.
    imbalance: f64,
    /// The largest share of entries, of all backends that could leave, that change beyond the backend's own.
    moved_share: f64,
    /// Milliseconds to compute the table.
    table_ms: f64,
    /// Connections a second in a network.
    connections_per_s: ConnectionRates,
}

impl Report {
    fn describe(&self) -> String {
        let rows = [
            ("firewall, load balancer", self.ns_per_packet, self.spans[0]),
            ("firewall, NAT", self.ns_per_packet_nat, self.spans[1]),
        ];
        format!(
            "One core, {} connections, {} rounds\n\n{}\nA packet of a balanced connection takes {} times what one with NAT takes.\n\n\
             Of {} backends the largest share is {} times the mean. When one leaves, {} % of the entries change beyond its own.\n\
             The table is computed in {} ms.\n\n{}",
            console::count(self.connections.into()),
            self.rounds,
            median_table("NANOSECONDS A PACKET", 1, rows),
            self.ratio,
            self.backends,
            self.imbalance,
            rounded(self.moved_share * 100.0, 2),
            self.table_ms,
            self.describe_rates(),
        )
    }

    fn describe_rates(&self) -> String {
        let mut table = console::Table::of("|>CONNECTIONS A SECOND|REASON");
        for (name, rate, reason) in self.connections_per_s.rows() {
            let rate = rate.map_or_else(|| "–".to_owned(), |rate| console::count(rate as u64));
            table.row([name.to_owned(), rate, reason.unwrap_or_default().to_owned()]);
        }
        table.render()
    }
}

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// Packets got lost, which is a defect, connections fail, or the result cannot be printed.
pub(crate) fn run(args: &BenchLoadBalancerArgs) -> Result<(), BenchError> {
    let rates = connection_rates(args)?;
    let report = Report { connections_per_s: rates, ..measure(args)? };
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// Nothing is measured where the system permits no networks.
fn connection_rates(args: &BenchLoadBalancerArgs) -> Result<ConnectionRates, BenchError> {
    if args.network_rounds == 0 {
        return Ok(ConnectionRates::unmeasured("no rounds in a network were asked for"));
    }
    match testbed::gain_namespaces() {
        Ok(()) => compare(args, &Watch::new()?, &Progress::new()),
        Err(error) => Ok(ConnectionRates::unmeasured(&error.to_string())),
    }
}

fn measure(args: &BenchLoadBalancerArgs) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let mut ring = Ring::new();
    progress.show("opening connections");
    let mut sides = Vec::new();
    for chain in [balanced_chain(FIREWALL_RULES), chain(FIREWALL_RULES)] {
        let mut traffic = Traffic::new(IpFamily::V4, args.connections);
        let mut gateway = Gateway::with_chain(args.connections, chain);
        gateway.establish(&mut traffic, &mut ring)?;
        sides.push((gateway, traffic, Rounds::default()));
    }
    rounds::repeat(&progress, "load balancer and NAT", args.rounds, |round| {
        for side in rounds::turns(round, [0, 1]) {
            let (gateway, traffic, figures) = &mut sides[side];
            let spent = gateway.pass(traffic, &mut ring, args.packets)?;
            figures.push(nanos_each(spent, args.packets));
        }
        Ok::<_, BenchError>(())
    })?;
    let [(_, _, balanced), (_, _, nat)] = &sides[..] else { unreachable!("there are two sides") };
    let table = Table::examine();
    Ok(Report {
        connections: args.connections,
        rounds: args.rounds,
        ns_per_packet: rounded(balanced.median(), 1),
        ns_per_packet_nat: rounded(nat.median(), 1),
        ratio: rounded(balanced.median_ratio(nat), 3),
        spans: [balanced.span(), nat.span()],
        backends: BALANCED_BACKENDS,
        imbalance: rounded(table.imbalance, 4),
        moved_share: rounded(table.moved_share, 4),
        table_ms: rounded(table.spent.as_secs_f64() * 1e3, 2),
        connections_per_s: ConnectionRates::default(),
    })
}

/// The properties of a table of equal backends.
struct Table {
    imbalance: f64,
    moved_share: f64,
    spent: Duration,
}

impl Table {
    fn examine() -> Self {
        let backend = |index: u16| Candidate {
            address: tuple_bytes([10, 200, 0, index as u8].into()),
            port: 443,
            weight: 1,
            index,
        };
        let backends: Vec<Candidate> = (0..BALANCED_BACKENDS).map(backend).collect();
        let began = thread_cpu_time();
        let table = maglev::table(&backends);
        let spent = thread_cpu_time().saturating_sub(began);
        let entries_of = |index: u16| table.iter().filter(|entry| **entry == index).count();
        let largest = (0..BALANCED_BACKENDS).map(entries_of).max().unwrap_or_default();
        let moved = |gone: u16| {
            let rest: Vec<_> = backends.iter().filter(|backend| backend.index != gone).copied().collect();
            let after = maglev::table(&rest);
            table.iter().zip(&after).filter(|(before, after)| **before != gone && before != after).count()
        };
        let most_moved = (0..BALANCED_BACKENDS).map(moved).max().unwrap_or_default();
        Self {
            imbalance: largest as f64 * f64::from(BALANCED_BACKENDS) / ENTRIES as f64,
            moved_share: most_moved as f64 / ENTRIES as f64,
            spent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_packets_pass_and_the_table_is_even() {
        let args = BenchLoadBalancerArgs {
            connections: 2000,
            packets: 5000,
            rounds: 2,
            network_rounds: 0,
            seconds: 1.0,
            in_flight: 1,
            json: true,
        };
        let report = measure(&args).expect("no packet is lost");
        assert!(report.ns_per_packet > 0.0 && report.ratio > 0.0);
        assert!(report.imbalance <= 1.05 && report.moved_share <= 0.02, "{} {}", report.imbalance, report.moved_share);
    }
}
