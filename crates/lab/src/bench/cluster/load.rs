//! Small requests through the cluster, one after the other on many connections, each with the time until its answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use packet_io::namespace::Namespace;

use super::super::BenchError;
use crate::testbed::traffic::server::Server;
use crate::testbed::traffic::stream::Stream;
use crate::testbed::traffic::{Kind, Preamble, REQUEST_BYTES};

/// How long a connection may take to be opened, or an answer to come.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long connections are given after a failure until they count as broken: several retransmissions of TCP.
const SURVIVES_WITHIN: Duration = Duration::from_secs(2);

/// A server that echoes requests. Dropping it ends it.
pub(super) struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Echo {
    pub(super) fn start(namespace: &Namespace, addresses: &[SocketAddr]) -> Result<Self, BenchError> {
        let server = namespace.run(|| Server::bind(addresses))?.map_err(BenchError::Socket)?;
        let stop = Arc::new(AtomicBool::new(false));
        let its_stop = Arc::clone(&stop);
        Ok(Self { stop, thread: Some(thread::spawn(move || server.run(&its_stop))) })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A server that failed has been noticed by the client.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A connection and the bytes that are sent and expected on it.
struct Connection {
    socket: TcpStream,
    sent: Stream,
    expected: Stream,
}

impl Connection {
    fn open(server: SocketAddr, seed: u64) -> io::Result<Self> {
        let mut socket = TcpStream::connect_timeout(&server, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(&Preamble { kind: Kind::Ticks, seed, bytes_per_s: 0 }.to_bytes())?;
        Ok(Self { socket, sent: Stream::new(seed), expected: Stream::new(seed) })
    }

    fn ask(&mut self) -> io::Result<()> {
        let mut request = [0; REQUEST_BYTES];
        self.sent.fill(&mut request);
        self.sent.advance(REQUEST_BYTES);
        self.socket.write_all(&request)
    }

    fn await_answer(&mut self) -> io::Result<()> {
        let mut answer = [0; REQUEST_BYTES];
        self.socket.read_exact(&mut answer)?;
        self.expected
            .check(&answer)
            .map_err(|offset| io::Error::new(ErrorKind::InvalidData, format!("wrong byte at {offset}")))
    }
}

/// The connections of a client.
pub(super) struct Load(Vec<Connection>);

impl Load {
    /// Opens so many connections from the namespace, and makes a request on each.
    pub(super) fn open(namespace: &Namespace, servers: &[SocketAddr], count: u16) -> Result<Self, BenchError> {
        let opened = namespace.run(|| {
            let servers = servers.iter().cycle().zip(1..=u64::from(count));
            servers.map(|(server, seed)| Connection::open(*server, seed)).collect::<io::Result<Vec<_>>>()
        })?;
        let mut load = Self(opened.map_err(BenchError::Socket)?);
        load.requests(Duration::ZERO)?;
        Ok(load)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.len()
    }

    /// Makes requests on all connections in turn, for so long but at least once on each; returns the latencies in microseconds.
    pub(super) fn requests(&mut self, lasting: Duration) -> Result<Latencies, BenchError> {
        let (began, mut latencies) = (Instant::now(), Vec::new());
        loop {
            for connection in &mut self.0 {
                let asked_at = Instant::now();
                connection.ask().and_then(|()| connection.await_answer()).map_err(BenchError::Socket)?;
                latencies.push(asked_at.elapsed().as_secs_f64() * 1e6);
            }
            if began.elapsed() >= lasting || self.0.is_empty() {
                return Ok(Latencies::new(latencies));
            }
        }
    }

    /// Makes a request on all connections at once, and gives up those without an answer; returns how many.
    pub(super) fn give_up_broken(&mut self) -> usize {
        let (before, deadline) = (self.0.len(), Instant::now() + SURVIVES_WITHIN);
        self.0.retain_mut(|connection| connection.ask().is_ok());
        self.0.retain_mut(|connection| {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let answered =
                connection.socket.set_read_timeout(Some(left)).and_then(|()| connection.await_answer()).is_ok();
            answered && connection.socket.set_read_timeout(Some(PATIENCE)).is_ok()
        });
        before - self.0.len()
    }
}

/// Times from requests to answers, in microseconds, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Latencies(Vec<f64>);

impl Latencies {
    pub(super) fn new(mut latencies_us: Vec<f64>) -> Self {
        latencies_us.sort_by(f64::total_cmp);
        Self(latencies_us)
    }

    /// How many requests were made.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The latency that this share of the requests did not exceed; `None` without requests.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let place = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(place.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_latencies_that_were_measured() {
        let latencies = Latencies::new((1..=200).rev().map(f64::from).collect());
        assert_eq!((latencies.quantile(0.5), latencies.quantile(0.99)), (Some(100.0), Some(198.0)));
        assert_eq!(Latencies::default().quantile(0.5), None);
    }

    #[test]
    fn connections_whose_server_is_gone_are_given_up() {
        let Ok(namespace) = Namespace::current() else { return };
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = std::net::TcpListener::bind(address).unwrap();
        let server = listener.local_addr().unwrap();
        drop(listener);
        let echo = Echo::start(&namespace, &[server]).unwrap();
        let mut load = Load::open(&namespace, &[server], 3).unwrap();
        assert!(load.requests(Duration::from_millis(10)).unwrap().quantile(0.5) > Some(0.0));
        assert_eq!((load.give_up_broken(), load.len()), (0, 3));
        drop(echo);
        assert_eq!((load.give_up_broken(), load.len()), (3, 0));
    }
}
