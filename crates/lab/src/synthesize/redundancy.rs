//! `mainstay synthesize redundancy`.

use std::time::Duration;

use analysis::synthesis::redundancy::Made;
use analysis::synthesis::{RedundancyConfig, RedundancyTraffic};
use flow::Instant;

use super::traffic::Traffic;
use crate::args::SynthesizeRedundancyArgs;
use console::{Table, count, scaled};

impl Traffic for RedundancyTraffic {
    type Made = Made;

    fn next(&mut self) -> Option<(Instant, &[u8])> {
        Self::next(self)
    }

    fn span(&self) -> (Instant, Instant) {
        Self::span(self)
    }

    fn made(&self) -> Made {
        Self::made(self)
    }

    fn describe(made: &Made) -> String {
        let text = format!(
            "{} of payload in {} frames over {:.1} s: {:.1} % was sent before, in {} runs of {:.0} bytes on average\n",
            scaled(made.payload_bytes as f64, "B"),
            count(made.frames),
            made.seconds,
            made.redundancy * 100.0,
            count(made.repeats),
            made.match_bytes
        );
        let mut table = Table::of("ORIGIN|>BYTES|>SHARE %");
        for origin in &made.origins {
            let cells = [scaled(origin.bytes as f64, "B"), format!("{:.1}", origin.share * 100.0)];
            table.row(std::iter::once(origin.origin.to_owned()).chain(cells));
        }
        text + &table.render()
    }
}

/// What is asked for.
pub(super) fn config(args: &SynthesizeRedundancyArgs) -> RedundancyConfig {
    let base = RedundancyConfig::default();
    RedundancyConfig {
        redundancy: args.redundancy,
        match_bytes: args.matches.clone().unwrap_or(base.match_bytes),
        origins: args.origins,
        popularity: args.popularity,
        distance_bytes: (args.distance_megabytes as usize) << 20,
        encrypted_share: args.encrypted,
        text_share: args.text,
        bits_per_second: args.mbit_per_second * 1e6,
        duration: Duration::from_secs_f64(args.seconds),
        connections: args.connections,
        clients: args.clients,
        servers: args.servers,
        ..base
    }
}
