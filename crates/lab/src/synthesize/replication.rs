//! `mainstay synthesize replication`.

use std::time::Duration;

use analysis::synthesis::ReplicationTraffic;
use analysis::synthesis::replication::presets::PRESETS;
use analysis::synthesis::replication::{Arrivals, Behaviour, Made, ReplicationConfig};
use flow::Instant;

use super::traffic::Traffic;
use crate::args::SynthesizeReplicationArgs;
use console::{Table, count, scaled};

impl Traffic for ReplicationTraffic {
    type Made = Made;

    fn next(&mut self) -> Option<(Instant, &[u8])> {
        Self::next(self)
    }

    fn span(&self) -> (Instant, Instant) {
        Self::span(self)
    }

    fn made(&self) -> Made {
        Self::made(self).summary()
    }

    fn describe(made: &Made) -> String {
        let mut text = format!(
            "{} connections in {} frames, {} over {:.1} s; at most {} at a time\n",
            count(made.connections),
            count(made.frames),
            scaled(made.bytes as f64, "B"),
            made.seconds,
            count(made.open_max)
        );
        if made.left_out > 0 {
            text += &format!("{} connections were left out: too many were open\n", count(made.left_out));
        }
        let mut table = Table::of("COMPONENT|>CONNECTIONS|>SHARE %|>ASKED %");
        for component in &made.components {
            let share = component.connections as f64 * 100.0 / made.connections.max(1) as f64;
            let cells =
                [count(component.connections), format!("{share:.1}"), format!("{:.1}", component.share * 100.0)];
            table.row(std::iter::once(component.name.clone()).chain(cells));
        }
        text + &table.render()
    }
}

/// The preset, changed as it is asked for.
pub(super) fn config(args: &SynthesizeReplicationArgs) -> ReplicationConfig {
    let mut config = args.preset.config();
    if let Some(rate) = args.connections_per_second {
        // As many hosts for each connection as the preset has, but not fewer.
        let grown = f64::from(config.clients) * (rate / config.connections_per_second).max(1.0);
        (config.clients, config.connections_per_second) = ((grown as u32).min(CLIENTS_GROWN_MAX), rate);
    }
    config.duration = args.seconds.map_or(config.duration, Duration::from_secs_f64);
    config.persistent = args.persistent.unwrap_or(config.persistent);
    config.runs_out |= args.run_out;
    config.clients = args.clients.unwrap_or(config.clients);
    config.servers = args.servers.unwrap_or(config.servers);
    config.ipv6_share = args.ipv6.unwrap_or(config.ipv6_share);
    if let Some(ms) = args.round_trip_ms {
        config.round_trip = Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(Duration::MAX);
    }
    if let Some(peak) = args.burst_peak {
        let burst = Duration::try_from_secs_f64(args.burst_ms / 1000.0).unwrap_or(Duration::MAX);
        config.arrivals = Arrivals::Bursty { peak, burst };
    }
    if let Some(share) = args.udp {
        config.set_udp_share(share);
    }
    if let Some(share) = args.one_way {
        config.set_one_way_share(share);
    }
    for component in &mut config.components {
        if let (Some(together), false) = (args.together, component.sweeps) {
            component.together = together;
        }
        if let (Some(asked), Behaviour::Tcp { lifetime, .. } | Behaviour::Udp { lifetime, .. }) =
            (&args.lifetimes, &mut component.behaviour)
        {
            *lifetime = asked.clone();
        }
    }
    config
}

/// Clients that a rate above the preset's brings with it, at most: each costs two bytes.
const CLIENTS_GROWN_MAX: u32 = 1 << 22;

/// What presets there are.
pub(super) fn describe_presets() -> String {
    let mut table = Table::of("PRESET|>A SECOND|>SECONDS|WHAT");
    for preset in &PRESETS {
        let config = preset.config();
        let cells =
            [count(config.connections_per_second as u64), count(config.duration.as_secs()), preset.about.to_owned()];
        table.row(std::iter::once(preset.name.to_owned()).chain(cells));
    }
    table.render()
}
