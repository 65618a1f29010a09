//! The speed of frames between two namespaces: through the kernel, and through packet sockets and one thread.
//!
//! `cargo bench -p packet-io --bench forwarding` prints TCP throughput and the forwarder's processor time for each
//! small UDP datagram.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Network, SERVER};
use flow::PortId;
use packet_io::PacketIo;
use packet_io::poller::{Poller, Token};
use packet_io::sysctl;
use packet_io::usage::thread_cpu_time;

/// The duration of each measurement.
const DURATION: Duration = Duration::from_secs(2);
/// Rounds, all of whose figures are printed: the machine is noisy.
const ROUNDS: usize = 3;
/// Payload of a small datagram, in bytes.
const DATAGRAM_BYTES: usize = 18;

/// The counters of the forwarding thread.
struct Forwarded {
    frames: u64,
    bytes: u64,
    cpu: Duration,
    kernel_drops: u64,
}

fn forward(network: &Network, stop: &AtomicBool) -> Forwarded {
    let (mut io, mut forwarder) = network.open_gateway();
    let poller = Poller::new().unwrap();
    for descriptor in io.descriptors() {
        poller.add(descriptor.as_fd(), Token(0)).unwrap();
    }
    let (mut events, mut frames) = (Vec::new(), 0);
    let begin = thread_cpu_time();
    while !stop.load(Ordering::Relaxed) {
        match io.poll(&mut |batch| forwarder.process(batch)).unwrap() {
            0 => poller.wait(&mut events, Some(Duration::from_millis(10))).unwrap(),
            count => frames += count as u64,
        }
    }
    let cpu = thread_cpu_time() - begin;
    let counters = [io.counters(PortId(0)), io.counters(PortId(1))];
    Forwarded {
        frames,
        bytes: counters.iter().map(|counters| counters.received_bytes).sum(),
        cpu,
        kernel_drops: counters.iter().map(|counters| counters.receive_queue_full).sum(),
    }
}

/// Runs `work` beside the forwarder.
fn beside_forwarder<T>(network: &Network, work: impl FnOnce() -> T) -> (T, Forwarded) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let forwarder = scope.spawn(|| forward(network, &stop));
        let result = work();
        stop.store(true, Ordering::Relaxed);
        (result, forwarder.join().unwrap())
    })
}

/// Bulk TCP from client to server, in Gbit/s of payload.
fn tcp_gbit_per_second(network: &Network, server: IpAddr) -> f64 {
    let listener = network.server.run(|| TcpListener::bind((server, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut buffer, mut bytes, begin) = (vec![0; 1 << 18], 0_u64, Instant::now());
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                bytes += count as u64;
            }
            bytes as f64 * 8e-9 / begin.elapsed().as_secs_f64()
        });
        let patience = Duration::from_secs(10);
        let mut stream = network.client.run(|| TcpStream::connect_timeout(&address, patience).unwrap()).unwrap();
        let (buffer, begin) = (vec![1; 1 << 18], Instant::now());
        while begin.elapsed() < DURATION {
            stream.write_all(&buffer).unwrap();
        }
        drop(stream);
        receiver.join().unwrap()
    })
}

/// Sends small datagrams as fast as one thread can.
fn send_datagrams(network: &Network) -> u64 {
    let sink = network.server.run(|| UdpSocket::bind((SERVER[0], 0)).unwrap()).unwrap();
    let address: SocketAddr = sink.local_addr().unwrap();
    let socket = network.client.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    let (begin, mut sent) = (Instant::now(), 0);
    while begin.elapsed() < DURATION {
        for _ in 0..64 {
            sent += u64::from(socket.send_to(&[0; DATAGRAM_BYTES], address).is_ok());
        }
    }
    sent
}

fn forward_in_kernel(network: &Network) {
    let switch_on = || {
        sysctl::write("net/ipv4/ip_forward", "1").unwrap();
        sysctl::write("net/ipv6/conf/all/forwarding", "1").unwrap();
    };
    network.gateway.run(switch_on).unwrap();
}

fn main() {
    let (Some(by_kernel), Some(by_socket)) = (Network::new(), Network::new()) else { return };
    forward_in_kernel(&by_kernel);
    for round in 1..=ROUNDS {
        for (version, server) in ["IPv4", "IPv6"].into_iter().zip(SERVER) {
            let kernel = tcp_gbit_per_second(&by_kernel, server);
            let (socket, forwarded) = beside_forwarder(&by_socket, || tcp_gbit_per_second(&by_socket, server));
            println!(
                "round {round}, TCP over {version}: kernel {kernel:.1} Gbit/s, packet sockets {socket:.1} Gbit/s \
                 ({:.0} %), {:.2} s of forwarder a gigabyte, {} frames, {} dropped",
                100.0 * socket / kernel,
                forwarded.cpu.as_secs_f64() * 1e9 / forwarded.bytes as f64,
                forwarded.frames,
                forwarded.kernel_drops
            );
        }
        let (sent, forwarded) = beside_forwarder(&by_socket, || send_datagrams(&by_socket));
        println!(
            "round {round}, UDP of {DATAGRAM_BYTES} bytes: {sent} sent, {} forwarded, {} dropped, {:.2} µs of forwarder each",
            forwarded.frames,
            forwarded.kernel_drops,
            forwarded.cpu.as_secs_f64() * 1e6 / forwarded.frames.max(1) as f64
        );
    }
}
