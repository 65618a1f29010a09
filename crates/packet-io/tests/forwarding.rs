//! The kernel's own TCP through a forwarder in user space.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Forwarder, Network, SERVER};
use flow::PortId;
use packet_io::af_packet::AfPacketIo;
use packet_io::netlink::Netlink;
use packet_io::poller::{Poller, Token};
use packet_io::{PacketIo, PortCounters};

/// Bytes sent each way over a connection.
const TRANSFER_BYTES: usize = 8 << 20;
/// The longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The MTU of the cables, in bytes.
const MTU_BYTES: usize = 1500;

/// The byte that stands at `position` of a transfer.
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

/// Forwards until told to stop; returns what it has seen.
fn forward(mut io: AfPacketIo, mut forwarder: Forwarder, stop: &AtomicBool) -> ([usize; 2], [PortCounters; 2]) {
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

/// Sends the pattern both ways, one after the other, over a fresh connection.
fn transfer(network: &Network, server: SocketAddr, listener: &TcpListener) {
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

/// Runs `work` while the gateway forwards.
fn while_forwarding(network: &Network, work: impl FnOnce()) -> ([usize; 2], [PortCounters; 2]) {
    let (io, forwarder) = network.open_gateway();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let gateway = scope.spawn(|| forward(io, forwarder, &stop));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        let seen = gateway.join().unwrap();
        done.map_or_else(|panic| std::panic::resume_unwind(panic), |()| seen)
    })
}

#[test]
fn tcp_passes_unchanged_and_in_frames_of_many_segments() {
    let Some(network) = Network::new() else { return };
    let (largest_bytes, counters) = while_forwarding(&network, || {
        for address in SERVER {
            let listener = network.server.run(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
            transfer(&network, listener.local_addr().unwrap(), &listener);
        }
    });
    for (version, largest_bytes) in ["IPv4", "IPv6"].into_iter().zip(largest_bytes) {
        assert!(largest_bytes > 4 * MTU_BYTES, "{version} came in frames of at most {largest_bytes} bytes");
    }
    for counters in counters {
        assert!(counters.received_bytes > 2 * TRANSFER_BYTES as u64);
        assert_eq!(counters.transmit_failures.total() + counters.undecided + counters.received_oversized, 0);
    }
}

#[test]
fn a_port_that_goes_down_and_comes_back_is_survived() {
    let Some(network) = Network::new() else { return };
    let switch = |up| network.gateway.run(|| Netlink::open().unwrap().set_up("port1", up).unwrap()).unwrap();
    let (_, counters) = while_forwarding(&network, || {
        let listener = network.server.run(|| TcpListener::bind((SERVER[0], 0)).unwrap()).unwrap();
        transfer(&network, listener.local_addr().unwrap(), &listener);
        switch(false);
        switch(true);
        transfer(&network, listener.local_addr().unwrap(), &listener);
    });
    assert_eq!(counters[1].went_down, 1);
}

#[test]
fn an_interface_that_is_deleted_and_made_again_is_taken_up() {
    let Some(network) = Network::new() else { return };
    let (mut io, _) = network.open_gateway();
    let in_gateway = |work: &(dyn Fn(&mut Netlink) + Sync)| {
        network.gateway.run(|| work(&mut Netlink::open().unwrap())).unwrap();
    };
    in_gateway(&|netlink| netlink.delete("port1").unwrap());
    io.poll(&mut |_| {}).unwrap();
    let mut bytes = [0; 60];
    let frame = flow::Frame::new(&mut bytes, 0, 60, PortId(1)).unwrap();
    assert!(io.transmit(PortId(1), &frame).is_err());

    in_gateway(&|netlink| {
        netlink.create_bridge("port1").unwrap();
        netlink.set_up("port1", true).unwrap();
    });
    let begin = Instant::now();
    while io.transmit(PortId(1), &frame).is_err() {
        assert!(begin.elapsed() < PATIENCE, "the port did not come back: {:?}", io.counters(PortId(1)));
        io.poll(&mut |_| {}).unwrap();
    }
    assert_eq!(io.counters(PortId(1)).went_down, 1);
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let Some(network) = Network::new() else { return };
    let configs = [packet_io::af_packet::PortConfig::new("nowhere0")];
    let error = network.gateway.run(|| AfPacketIo::open(&configs).err().unwrap()).unwrap();
    assert!(error.to_string().contains("there is no interface \"nowhere0\""), "{error}");
}
