//! Redundancy elimination between two sites: repeated downloads over a thin link that loses packets, with the tunnel and
//! without, and the nodes of both of its ends killed half-way.
//!
//! `topology` makes the network, `gateways` runs two nodes at either site, `objects` writes files and later versions of
//! them, `transfers` downloads them over ordinary TCP and checks every byte, and `report` holds what came of it.

mod error;
mod gateways;
mod objects;
pub mod report;
mod topology;
mod transfers;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packet_io::namespace::Namespace;

use self::error::DOWNLOADED_WITHIN;
pub use self::error::TunnelError;
use self::gateways::{Gateways, Tunnels};
use self::objects::{OBJECTS, Objects};
use self::report::{Failover, Failovers, Measured, TunnelReport, describe, saved};
use self::topology::Topology;
use self::transfers::{Downloads, Outcome, Server};
use super::DemoError;
use crate::args::DemoArgs;
use crate::emulator::LinkReport;
use crate::emulator::channel::Settings;
use crate::testbed::cluster::Directory;
use crate::testbed::watch::Watch;

/// The link: 20 Mbit/s, 50 ms in each direction, 1 % loss. Its queue takes the data in flight of a round trip.
const RATE_BITS_PER_S: u64 = 20_000_000;
const DELAY: Duration = Duration::from_millis(50);
const LOSS: f64 = 0.01;
const QUEUE_PACKETS: usize = 170;
/// What the tunnel sends at: a little less than the link takes, so that nothing waits in the link's queue.
const TUNNEL_BITS_PER_S: u64 = 19_500_000;
/// Clients that download at the same time.
const CLIENTS: usize = OBJECTS;
/// Share of the bytes that have come when the encoder's node is killed.
const KILL_AT: f64 = 0.5;
/// How long the tunnel may take to be open again.
const REOPENED_WITHIN: Duration = Duration::from_secs(5);

/// Runs the demo and shows its result.
///
/// # Errors
/// It could not be run, or a download broke.
pub fn run(args: &DemoArgs, watch: &Watch) -> Result<(), DemoError> {
    let report = Demo { args, watch, progress: console::Progress::new() }.make_report()?;
    console::print_as(args.json, &report, || describe(&report))?;
    if report.is_success() {
        return Ok(());
    }
    let has_survived = report.survived_encoder_failover && report.survived_decoder_failover;
    let survived = if has_survived { "survived" } else { "not survived" };
    Err(TunnelError::Broken { failed: report.failed, corrupted: report.corrupted, survived }.into())
}

struct Demo<'a> {
    args: &'a DemoArgs,
    watch: &'a Watch,
    progress: console::Progress,
}

/// A network with nodes, a server and a place for clients.
struct Stage {
    topology: Topology,
    client: Arc<Namespace>,
    gateways: Gateways,
    congestion_control: String,
    _server: Server,
}

impl Demo<'_> {
    fn make_report(&self) -> Result<TunnelReport, TunnelError> {
        let directory = Directory::create()?;
        let written = |source| TunnelError::Cluster(directory.error(source));
        let object_bytes = usize::from(self.args.object_mib) << 20;
        let objects = Objects::write(Path::new(&directory.path), object_bytes, packet_io::random::number());
        let objects = Arc::new(objects.map_err(written)?);
        let settings = Settings {
            rate_bits_per_s: Some(RATE_BITS_PER_S),
            delay: DELAY,
            loss: LOSS,
            queue_packets: QUEUE_PACKETS,
            ..Settings::default()
        };
        let mut stage = self.stage("without tunnel", &objects, settings, Tunnels::None)?;
        let without = self.measure("without tunnel", &mut stage, &objects)?;
        drop(stage);
        let mut stage = self.stage("with tunnel", &objects, settings, Tunnels::Mirrored)?;
        let with = self.measure("with tunnel", &mut stage, &objects)?;
        let tunnels = [stage.gateways.tunnel(0), stage.gateways.tunnel(1)];
        let congestion_control = stage.congestion_control.clone();
        let encoder = self.fail_over("with tunnel", &mut stage, &objects, 0)?;
        let decoder = self.fail_over("with tunnel", &mut stage, &objects, 1)?;
        drop(stage);
        let mut stage = self.stage("without mirrors", &objects, settings, Tunnels::Alone)?;
        let alone = self.measure("without mirrors", &mut stage, &objects)?;
        let unmirrored = self.fail_over("without mirrors", &mut stage, &objects, 0)?;
        let failovers = Failovers { encoder, decoder, unmirrored };
        Ok(TunnelReport::new(
            (settings.to_string(), CLIENTS, congestion_control, self.args.object_mib),
            [&with, &without, &alone],
            failovers,
            tunnels,
        ))
    }

    fn stage(&self, name: &str, objects: &Objects, settings: Settings, tunnels: Tunnels) -> Result<Stage, TunnelError> {
        self.progress.show(&format!("{name}: building the network"));
        let topology = Topology::build(settings, packet_io::random::number())?;
        let congestion_control = topology.set_congestion_control(self.args.congestion_control.as_deref())?;
        let mut gateways = Gateways::start(&topology, tunnels, TUNNEL_BITS_PER_S)?;
        if self.args.keep_logs {
            let files = gateways.keep_files();
            self.progress.show("");
            eprintln!("{name}: configurations and logs are in {}", files.display());
        }
        self.progress.show(&format!("{name}: waiting for the nodes"));
        gateways.wait_until_ready(self.watch)?;
        let server = Server::start(&topology.sites[0].host, &objects.files)?;
        let client = Arc::clone(&topology.sites[1].host);
        Ok(Stage { topology, client, gateways, congestion_control, _server: server })
    }

    /// Downloads everything for the first time, and then the same and its edited versions.
    fn measure(&self, name: &str, stage: &mut Stage, objects: &Arc<Objects>) -> Result<Measured, TunnelError> {
        self.progress.show(&format!("{name}: downloading for the first time"));
        let first = self.download(stage, objects, |client| vec![client])?;
        stage.topology.link.reset()?;
        self.progress.show(&format!("{name}: downloading again"));
        let repeated = self.download(stage, objects, repeated)?;
        let report = stage.topology.link.report()?;
        Ok(Measured {
            first,
            repeated,
            link_bytes: link_bytes(&report),
            link_packets: report.forward.counters.received_packets + report.backward.counters.received_packets,
            lateness_p99_us: report.lateness.p99_us,
        })
    }

    fn download(
        &self,
        stage: &Stage,
        objects: &Arc<Objects>,
        files: impl Fn(usize) -> Vec<usize>,
    ) -> Result<Outcome, TunnelError> {
        let downloads = Downloads::start(&stage.client, objects, (0..CLIENTS).map(files).collect());
        self.wait_for(&downloads, || downloads.are_over())?;
        Ok(downloads.finish())
    }

    fn wait_for(&self, downloads: &Downloads, condition: impl Fn() -> bool) -> Result<(), TunnelError> {
        let deadline = Instant::now() + DOWNLOADED_WITHIN;
        let waited =
            self.watch.until(deadline, || -> Result<bool, TunnelError> { Ok(condition() || downloads.are_over()) })?;
        if waited == crate::testbed::watch::Waited::Met { Ok(()) } else { Err(TunnelError::TooSlow) }
    }

    /// The same once more; half-way through, the active node of a site dies.
    fn fail_over(
        &self,
        name: &str,
        stage: &mut Stage,
        objects: &Arc<Objects>,
        site: usize,
    ) -> Result<Failover, TunnelError> {
        let killed = ["encoder", "decoder"][site];
        self.progress.show(&format!("{name}: downloading while the {killed}'s node is killed"));
        let lists: Vec<Vec<usize>> = (0..CLIENTS).map(repeated).collect();
        let bytes: usize = lists.iter().flatten().map(|file| objects.bytes[*file]).sum();
        let kill_at = (bytes as f64 * KILL_AT) as u64;
        let downloads = Downloads::start(&stage.client, objects, lists);
        self.wait_for(&downloads, || downloads.received_bytes() >= kill_at)?;
        stage.topology.link.reset()?;
        let received_before = downloads.received_bytes();
        stage.gateways.kill_active(site)?;
        self.wait_for(&downloads, || downloads.are_over())?;
        let outcome = downloads.finish();
        let link_bytes = link_bytes(&stage.topology.link.report()?);
        let deadline = Instant::now() + REOPENED_WITHIN;
        let is_open = |gateways: &Gateways| gateways.tunnel(site).is_some_and(|tunnel| tunnel.bypass.is_none());
        let waited = self.watch.until(deadline, || -> Result<bool, TunnelError> { Ok(is_open(&stage.gateways)) })?;
        Ok(Failover {
            transfers: outcome.transfers,
            failed: outcome.failed,
            corrupted: outcome.corrupted,
            took_over: stage.gateways.has_active(site),
            longest_pause_ms: outcome.longest_pause.as_secs_f64() * 1e3,
            effective_mbit_per_s: outcome.mbit_per_s(),
            tunnel_reopened: waited == crate::testbed::watch::Waited::Met,
            saved_after: saved(link_bytes, outcome.bytes - received_before),
        })
    }
}

/// Bytes given to the link in both directions.
const fn link_bytes(report: &LinkReport) -> u64 {
    report.forward.counters.received_bytes + report.backward.counters.received_bytes
}

/// What a client downloads of what was transferred before: the same again, and the later version of what another had.
fn repeated(client: usize) -> Vec<usize> {
    vec![client, OBJECTS + (client + 1) % OBJECTS]
}
