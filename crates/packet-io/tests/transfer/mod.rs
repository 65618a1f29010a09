//! The kernel's own TCP through a forwarder in user space, checked byte by byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flow::PortId;
use packet_io::poller::{Poller, Token};
use packet_io::{PacketIo, PortCounters};

use crate::common::{Forwarder, Network};

/// Bytes sent in each direction over a connection.
pub(crate) const TRANSFER_BYTES: usize = 8 << 20;
/// The time limit of every step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The byte at `position` of a transfer.
fn pattern(position: usize) -> u8 {
    (position.wrapping_mul(2_654_435_761) >> 11) as u8
}

fn send_pattern(stream: &mut TcpStream) {
    let bytes: Vec<u8> = (0..TRANSFER_BYTES).map(pattern).collect();
    stream.write_all(&bytes).unwrap();
}

fn expect_pattern(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = vec![0; TRANSFER_BYTES];
    stream.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().enumerate().all(|(position, byte)| *byte == pattern(position)), "bytes were changed");
}

/// Forwards until stopped; returns the byte counts.
fn forward(mut io: impl PacketIo, mut forwarder: Forwarder, stop: &AtomicBool) -> ([usize; 2], [PortCounters; 2]) {
    let poller = Poller::new().unwrap();
    for descriptor in io.descriptors() {
        poller.add(descriptor.as_fd(), Token(0)).unwrap();
    }
    let mut events = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if io.poll(&mut |batch| forwarder.process(batch)).unwrap() == 0 {
            poller.wait(&mut events, Some(Duration::from_millis(20))).unwrap();
        }
    }
    (forwarder.largest_bytes, [io.counters(PortId(0)), io.counters(PortId(1))])
}

/// Sends the pattern in both directions, one after the other, over a new connection.
pub(crate) fn transfer(network: &Network, server: SocketAddr, listener: &TcpListener) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            expect_pattern(&mut stream);
            send_pattern(&mut stream);
        });
        let mut stream = network.client.run(|| TcpStream::connect_timeout(&server, PATIENCE).unwrap()).unwrap();
        send_pattern(&mut stream);
        expect_pattern(&mut stream);
    });
}

/// Sends the pattern in both directions over a new connection to each of the server's addresses.
pub(crate) fn transfer_to(network: &Network, addresses: impl IntoIterator<Item = std::net::IpAddr>) {
    for address in addresses {
        let listener = network.server.run(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
        transfer(network, listener.local_addr().unwrap(), &listener);
    }
}

/// Runs `work` while `forwarder` forwards what `io` receives.
pub(crate) fn while_forwarding(
    (io, forwarder): (impl PacketIo + Send, Forwarder),
    work: impl FnOnce(),
) -> ([usize; 2], [PortCounters; 2]) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let gateway = scope.spawn(|| forward(io, forwarder, &stop));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        let seen = gateway.join().unwrap();
        done.map_or_else(|panic| std::panic::resume_unwind(panic), |()| seen)
    })
}
