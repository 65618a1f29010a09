//! `mainstay bench bulk`: TCP throughput through a gateway, beside the kernel forwarding the same path.
//!
//! One TCP stream with segmentation offload, as the kernels at both ends make it; the gateway translates the source and
//! tracks the connection in both cases.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::kernel::KernelGateway;
use super::report::Report;
use super::{CONNECTED_WITHIN, Gateways, NetworkError, server};
use crate::bench::rounds::Rounds;
use crate::cli::BenchNetworkArgs;
use crate::commands::CommandError;
use crate::demo::gain_namespaces;
use crate::demo::topology::Topology;
use crate::demo::watch::Watch;
use crate::output::Progress;

const PORT: u16 = 5201;
const BUFFER_BYTES: usize = 256 * 1024;
const CONNECTIONS_MAX: usize = 4096;

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, or nothing comes through.
pub fn run(args: &BenchNetworkArgs) -> Result<(), CommandError> {
    let report = measure(args)?;
    Ok(report.print(args.json)?)
}

fn measure(args: &BenchNetworkArgs) -> Result<Report, NetworkError> {
    gain_namespaces()?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    progress.show("building networks");
    let gateways = Gateways::start(&watch, false, CONNECTIONS_MAX)?;
    let kernel = KernelGateway::build()?;
    let duration = Duration::from_secs_f64(args.seconds);
    let (mut through_mainstay, mut through_kernel) = (Rounds::default(), Rounds::default());
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        through_mainstay.push(transfer(&gateways.topology, duration, &watch)?);
        through_kernel.push(transfer(&kernel.topology, duration, &watch)?);
    }
    let kernel_name = if kernel.has_rules {
        "kernel, nftables stateful with masquerading"
    } else {
        "kernel, plain forwarding (nftables is not to be had)"
    };
    Ok(Report::new(
        "gbit_per_s",
        "Gbit/s of one TCP stream",
        [
            ("mainstay", "mainstay, firewall and source NAT", &through_mainstay),
            ("kernel", kernel_name, &through_kernel),
        ],
        args,
    ))
}

/// Sends for `duration` from client to server. Returns Gbit/s of payload, as the server received it.
fn transfer(topology: &Topology, duration: Duration, watch: &Watch) -> Result<f64, NetworkError> {
    let listener = topology.server.run(|| TcpListener::bind(server(PORT)))?.map_err(NetworkError::server)?;
    let receiving = thread::spawn(move || receive(&listener));
    let connected = topology.client.run(|| TcpStream::connect_timeout(&server(PORT), CONNECTED_WITHIN))?;
    let stream = connected.map_err(NetworkError::client)?;
    let end = Instant::now() + duration;
    let sending = thread::spawn(move || send(stream, end));
    watch.pass_until(end)?;
    let sent = sending.join().map_err(|_| NetworkError::Nothing("the gateway"))?;
    sent.map_err(NetworkError::client)?;
    let received = receiving.join().map_err(|_| NetworkError::Nothing("the gateway"))?;
    received.map_err(NetworkError::server)
}

fn send(mut stream: TcpStream, end: Instant) -> std::io::Result<()> {
    let block = vec![0x5a; BUFFER_BYTES];
    while Instant::now() < end {
        stream.write_all(&block)?;
    }
    Ok(())
}

/// Receives one connection to its end. Returns Gbit/s.
#[allow(clippy::cast_precision_loss, reason = "figures are shown with three digits")]
fn receive(listener: &TcpListener) -> std::io::Result<f64> {
    let (mut stream, _) = listener.accept()?;
    let mut block = vec![0; BUFFER_BYTES];
    let began = Instant::now();
    let mut bytes = 0;
    loop {
        match stream.read(&mut block)? {
            0 => return Ok(bytes as f64 * 8.0 / 1e9 / began.elapsed().as_secs_f64()),
            count => bytes += count as u64,
        }
    }
}
