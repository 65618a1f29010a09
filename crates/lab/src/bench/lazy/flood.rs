//! A flood of short connections: a question each, over UDP, from a tuple that was not used for long.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use packet_io::namespace::Namespace;

use crate::bench::BenchError;

/// Sockets, each of which sends from a port of its own. Their number has no divisor in common with that of the ports, so that
/// both going round together come by every pair.
const SOCKETS: usize = 17;
/// Ports that questions go to, one after the other. With [`SOCKETS`] these are the tuples that there are.
const PORTS: std::ops::Range<u16> = 10_000..60_000;
const QUESTION: [u8; 32] = [b'?'; 32];
/// The flood is sent in bursts with this much time between them.
const BURST_INTERVAL: Duration = Duration::from_millis(1);
/// Bursts that are made up for when the thread had no processor; what is beyond is left out.
const BURSTS_BEHIND_MAX: u32 = 20;

/// A flood that goes on until it is dropped.
pub(super) struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Begins `per_s` connections a second from `client` to `server`.
    pub(super) fn start(client: &Namespace, server: IpAddr, per_s: u32) -> Result<Self, BenchError> {
        let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let bind = || -> io::Result<Vec<UdpSocket>> {
            (0..SOCKETS).map(|_| UdpSocket::bind(SocketAddr::new(any, 0))).collect()
        };
        let sockets = client.run(bind)?.map_err(BenchError::Socket)?;
        for socket in &sockets {
            // A full queue is a question that is not asked: the flood does not wait.
            socket.set_nonblocking(true).map_err(BenchError::Socket)?;
        }
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (its_stop, its_sent) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = thread::spawn(move || run(&sockets, server, per_s, &its_stop, &its_sent));
        Ok(Self { stop, sent, thread: Some(thread) })
    }

    /// Connections begun so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(sockets: &[UdpSocket], server: IpAddr, per_s: u32, stop: &AtomicBool, sent: &AtomicU64) {
    let mut tuples = PORTS.cycle().zip(sockets.iter().cycle());
    let mut due = Instant::now();
    let mut due_packets = 0.0;
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now > due + BURST_INTERVAL * BURSTS_BEHIND_MAX {
            due = now;
        }
        due += BURST_INTERVAL;
        due_packets += f64::from(per_s) * BURST_INTERVAL.as_secs_f64();
        while due_packets >= 1.0 {
            due_packets -= 1.0;
            let Some((port, socket)) = tuples.next() else { return };
            // Errors of earlier questions are returned here: they are no errors of this one.
            if socket.send_to(&QUESTION, SocketAddr::new(server, port)).is_ok() {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_socket_and_port_has_its_turn() {
        let (ports, sockets) = (PORTS.len(), SOCKETS);
        let common =
            (1..=sockets).filter(|number| ports.is_multiple_of(*number) && sockets.is_multiple_of(*number)).max();
        assert_eq!(common, Some(1), "otherwise tuples come again before they have timed out");
    }
}
