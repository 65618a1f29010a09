//! `mainstay bench setup-rate`: short TCP connections through a pair of gateways, with replication and without.
//!
//! A few clients at once each connect, ask, get an answer and close, over and over. With replication the standby knows of
//! each connection before its first answer goes on.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::report::Report;
use super::{CONNECTED_WITHIN, Gateways, NetworkError, server};
use crate::bench::rounds::Rounds;
use crate::cli::BenchNetworkArgs;
use crate::commands::CommandError;
use crate::demo::gain_namespaces;
use crate::demo::topology::Topology;
use crate::demo::watch::Watch;
use crate::output::Progress;

/// Clients at once, and as many servers.
const CLIENTS: usize = 8;
/// Every round is with another port of the server, so that no port of the client is still waiting from the last.
const PORT_FIRST: u16 = 5300;
/// Closed connections wait for two minutes in the gateways' tables.
const CONNECTIONS_MAX: usize = 1 << 20;
const REQUEST_BYTES: usize = 64;
/// A connection that is silent for so long is given up: one lost packet is repeated well before.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, or connections fail.
pub fn run(args: &BenchNetworkArgs) -> Result<(), CommandError> {
    let report = measure(args)?;
    Ok(report.print(args.json)?)
}

fn measure(args: &BenchNetworkArgs) -> Result<Report, NetworkError> {
    gain_namespaces()?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    progress.show("building networks");
    let replicated = Gateways::start(&watch, true, CONNECTIONS_MAX)?;
    let alone = Gateways::start(&watch, false, CONNECTIONS_MAX)?;
    let duration = Duration::from_secs_f64(args.seconds);
    let (mut with, mut without) = (Rounds::default(), Rounds::default());
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        let address = server(PORT_FIRST + round as u16);
        with.push(connections_per_s(&replicated.topology, address, duration, &watch)?);
        without.push(connections_per_s(&alone.topology, address, duration, &watch)?);
    }
    Ok(Report::new(
        "per_s",
        "short TCP connections a second",
        [
            ("replication_on", "mainstay, every connection known to the standby", &with),
            ("replication_off", "mainstay without replication", &without),
        ],
        args,
    ))
}

#[allow(clippy::cast_precision_loss, reason = "figures are shown with three digits")]
fn connections_per_s(
    topology: &Topology,
    address: SocketAddr,
    duration: Duration,
    watch: &Watch,
) -> Result<f64, NetworkError> {
    let listener = topology.server.run(|| TcpListener::bind(address))?.map_err(NetworkError::server)?;
    let listener = Arc::new(listener);
    let is_over = Arc::new(AtomicBool::new(false));
    let servers: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (listener, is_over) = (Arc::clone(&listener), Arc::clone(&is_over));
            thread::spawn(move || serve(&listener, &is_over))
        })
        .collect();
    let began = Instant::now();
    let end = began + duration;
    let results: Vec<io::Result<u64>> = thread::scope(|scope| {
        let ask = || topology.client.run(|| ask_until(address, end)).map_err(io::Error::other)?;
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().filter_map(|client| client.join().ok()).collect()
    });
    let spent = began.elapsed();
    is_over.store(true, Ordering::Relaxed);
    // Servers that wait for a connection are given one each that says nothing; any of them may take any.
    let _wakes: Vec<_> = (0..CLIENTS)
        .map(|_| topology.server.run(|| TcpStream::connect_timeout(&address, CONNECTED_WITHIN)))
        .collect::<Result<_, _>>()?;
    for server in servers {
        let _ = server.join();
    }
    // An interruption is heeded between rounds.
    watch.pass_until(Instant::now())?;
    let total = results.into_iter().sum::<io::Result<u64>>().map_err(NetworkError::client)?;
    if total == 0 { Err(NetworkError::Nothing("the gateway")) } else { Ok(total as f64 / spent.as_secs_f64()) }
}

/// Opens connection after connection until `end`. Returns how many were answered.
fn ask_until(address: SocketAddr, end: Instant) -> io::Result<u64> {
    let mut answered = 0;
    let mut answer = [0; REQUEST_BYTES];
    while Instant::now() < end {
        let mut stream = TcpStream::connect_timeout(&address, CONNECTED_WITHIN)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.write_all(&[0x5a; REQUEST_BYTES])?;
        stream.read_exact(&mut answer)?;
        answered += 1;
    }
    Ok(answered)
}

fn serve(listener: &TcpListener, is_over: &AtomicBool) {
    let mut request = [0; REQUEST_BYTES];
    while let Ok((mut stream, _)) = listener.accept() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // A client that fails says so itself.
        let _ = stream.set_read_timeout(Some(SILENCE_MAX));
        let _ = stream.read_exact(&mut request).and_then(|()| stream.write_all(&request));
        // The client closes first.
        let _ = stream.read(&mut request);
    }
}
