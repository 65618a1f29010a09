//! Segments of connections that do not exist, sent through the node that has taken over: what a filter mistakes for known.
//!
//! Each is an acknowledgement out of nowhere, marked by its sequence number, which no translation changes. Half come from the
//! client, which has connections with the server, and half from hosts that have none. Who listens at the server sees
//! which passed.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use flow::wire::build::{Envelope, Tcp};
use flow::wire::{MacAddress, Parsed, Transport, ip_protocol, parse, tcp_flags};
use flow::{Disposition, Frame, PacketBatch, PortId, Tuple};
use packet_io::af_packet::{AfPacketIo, PortConfig, TRANSMIT_HEADROOM_BYTES};
use packet_io::netlink::Netlink;
use packet_io::{IoError, PacketIo};

use crate::testbed::topology::{BRIDGE, CLIENT, INTERFACES, SERVER, SERVER_PORTS, Topology};

/// Probes sent.
pub const PROBES: u32 = 4000;
/// The sequence number of the first.
const MARK: u32 = 0x4d41_0000;
/// Probes sent at once.
const BURST: usize = 32;
/// Time between bursts.
const PAUSE: Duration = Duration::from_millis(2);
/// When nothing has arrived for so long, nothing more comes.
const QUIET: Duration = Duration::from_millis(200);
/// Hosts that have no connections: the last byte of their addresses, of the client's network.
const STRANGERS: std::ops::Range<u8> = 100..200;
/// Ports that probes come from go round in steps of this prime, so that a source meets many of its own.
const PORT_STEP: u32 = 7919;

/// What came of the probes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Probed {
    /// Sent.
    pub sent: u32,
    /// Those that reached the server.
    pub passed: u32,
}

/// Sends probes by way of `node`, which must hold the addresses. `is_real` returns whether a connection exists, by its
/// tuple.
///
/// # Errors
/// An interface cannot be used.
pub fn probe(topology: &Topology, node: usize, is_real: impl Fn(&Tuple) -> bool) -> Result<Probed, IoError> {
    let mac = |name: &str| -> Result<MacAddress, IoError> { Ok(MacAddress(Netlink::open()?.interface(name)?.mac)) };
    let to = topology.nodes[node].run(|| mac(INTERFACES[0]))??;
    let from = topology.client.run(|| mac(BRIDGE))??;
    let open = || AfPacketIo::open(&[PortConfig::new(BRIDGE)]);
    let mut server = topology.server.run(open)??;
    let mut client = topology.client.run(open)??;
    let envelope = Envelope { source: from, destination: to, ..Envelope::default() };
    let mut passed = HashSet::new();
    let mut sent = 0;
    let tuples: Vec<(u32, Tuple)> =
        (0..PROBES).map(|number| (number, tuple(number))).filter(|(_, tuple)| !is_real(tuple)).collect();
    for burst in tuples.chunks(BURST) {
        let mut frames: Vec<Vec<u8>> = burst.iter().map(|probe| frame(&envelope, probe)).collect();
        sent += send(&mut client, &mut frames);
        listen(&mut server, &mut passed)?;
        thread::sleep(PAUSE);
    }
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < QUIET {
        let before = passed.len();
        listen(&mut server, &mut passed)?;
        if passed.len() > before {
            quiet_since = Instant::now();
        }
        thread::sleep(PAUSE);
    }
    Ok(Probed { sent, passed: u32::try_from(passed.len()).unwrap_or(u32::MAX) })
}

/// The tuple of a probe.
fn tuple(number: u32) -> Tuple {
    let IpAddr::V4(client) = CLIENT[0] else { unreachable!("the first address is IPv4") };
    let [a, b, c, _] = client.octets();
    let strangers = u32::from(STRANGERS.end - STRANGERS.start);
    let source = if number.is_multiple_of(2) {
        client
    } else {
        Ipv4Addr::new(a, b, c, STRANGERS.start + u8::try_from(number / 2 % strangers).unwrap_or_default())
    };
    let port = 1024 + u16::try_from(number * PORT_STEP % 64_000).unwrap_or_default();
    let server = SocketAddr::new(SERVER[0], SERVER_PORTS[number as usize % SERVER_PORTS.len()]);
    Tuple::new(ip_protocol::TCP, SocketAddr::new(source.into(), port), server)
}

fn frame(envelope: &Envelope<'_>, &(number, tuple): &(u32, Tuple)) -> Vec<u8> {
    let segment = Tcp { flags: tcp_flags::ACK, sequence: MARK + number, acknowledgement: 1, ..Tcp::default() };
    let frame = envelope.tcp(&tuple, segment, &[]);
    [&[0; TRANSMIT_HEADROOM_BYTES][..], &frame].concat()
}

fn send(client: &mut AfPacketIo, frames: &mut [Vec<u8>]) -> u32 {
    let mut batch = PacketBatch::new();
    batch.extend(frames.iter_mut().filter_map(|buffer| {
        let length_bytes = buffer.len() - TRANSMIT_HEADROOM_BYTES;
        let mut frame = Frame::new(buffer, TRANSMIT_HEADROOM_BYTES, length_bytes, PortId(0))?;
        frame.disposition = Disposition::Transmit(PortId(0));
        Some(frame)
    }));
    u32::try_from(client.transmit_batch(PortId(0), &mut batch)).unwrap_or_default()
}

/// Notes which probes have arrived.
fn listen(server: &mut AfPacketIo, passed: &mut HashSet<u32>) -> Result<(), IoError> {
    let mut look = |batch: &mut PacketBatch<'_>| {
        for frame in batch.iter_mut() {
            frame.disposition = Disposition::Consumed;
            passed.extend(number_of(frame));
        }
    };
    while server.poll(&mut look)? > 0 {}
    Ok(())
}

/// The number of the probe that a frame is.
fn number_of(frame: &Frame<'_>) -> Option<u32> {
    let Ok(Parsed::Ip(headers)) = parse(frame) else { return None };
    let Transport::Tcp(segment) = headers.transport else { return None };
    let number = segment.sequence.checked_sub(MARK)?;
    let is_probe = segment.flags == tcp_flags::ACK && segment.acknowledgement == 1 && number < PROBES;
    is_probe.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_all_different_and_recognised_by_their_mark() {
        let tuples: HashSet<Tuple> = (0..PROBES).map(tuple).collect();
        assert_eq!(tuples.len(), PROBES as usize);
        let of_client = tuples.iter().filter(|tuple| tuple.source_ip() == CLIENT[0]).count();
        assert_eq!(of_client, PROBES as usize / 2);
        for number in [0, 1, PROBES - 1] {
            let mut bytes = frame(&Envelope::default(), &(number, tuple(number)));
            let length_bytes = bytes.len() - TRANSMIT_HEADROOM_BYTES;
            let frame = Frame::new(&mut bytes, TRANSMIT_HEADROOM_BYTES, length_bytes, PortId(0)).unwrap();
            assert_eq!(number_of(&frame), Some(number));
        }
    }
}
