//! The datagrams that are measured with. Each names its connection, so that it is known again after translation.
//!
//! ```text
//!   UDP header: source port, destination port │ payload: complements of both ports as the sender chose them
//! ```
//! A port and its complement add up to the same sum whatever the port is: all connections have one checksum.

use std::net::{IpAddr, SocketAddr};

use flow::Tuple;
use flow::wire::build::Envelope;
use flow::wire::{MacAddress, ip_protocol};

use crate::bench::port_pairs;

/// Payload of a datagram: the frame is as short as Ethernet has them, 60 bytes.
const PAYLOAD: [u8; 18] = [0x6d; 18];
/// Where the link addresses, the addresses and the ports are, from the start of the frame, in bytes.
const LINK_AT: usize = 0;
const PROTOCOL_AT: usize = 23;
const ADDRESSES_AT: usize = 26;
const PORTS_AT: usize = 34;
/// Where the complements of the ports are.
const COMPLEMENTS_AT: usize = PORTS_AT + 8;

/// Where datagrams go.
pub(super) struct Path {
    /// Link addresses of sender and next hop.
    pub(super) link: [MacAddress; 2],
    /// Address of the sender.
    pub(super) source: IpAddr,
    /// Address of the receiver.
    pub(super) destination: IpAddr,
}

/// A frame of the first connection.
pub(super) fn frame(path: &Path) -> Vec<u8> {
    let [source, destination] = path.link;
    let envelope = Envelope { source, destination, ..Envelope::default() };
    let ports = port_pairs::of(0);
    let (from, to) = (SocketAddr::new(path.source, ports[0]), SocketAddr::new(path.destination, ports[1]));
    let mut payload = PAYLOAD;
    payload[..4].copy_from_slice(&port_bytes(ports.map(|port| !port)));
    envelope.udp(&Tuple::new(ip_protocol::UDP, from, to), &payload)
}

/// Makes a frame as [`frame`] returns it one of this connection.
pub(super) fn set_connection(frame: &mut [u8], number: u32) {
    let ports = port_pairs::of(number);
    frame[PORTS_AT..PORTS_AT + 4].copy_from_slice(&port_bytes(ports));
    frame[COMPLEMENTS_AT..COMPLEMENTS_AT + 4].copy_from_slice(&port_bytes(ports.map(|port| !port)));
}

/// The connection of a frame, which may be translated; `None`: it is none of these datagrams.
pub(super) fn connection_of(frame: &[u8]) -> Option<u32> {
    let complements: [u8; 4] = frame.get(COMPLEMENTS_AT..)?.first_chunk().copied()?;
    let [a, b, c, d] = complements.map(|byte| !byte);
    let ports = [[a, b], [c, d]].map(u16::from_be_bytes);
    port_pairs::number_of(ports).filter(|_| frame[PROTOCOL_AT] == ip_protocol::UDP)
}

/// Makes a frame the answer to it: the ends are exchanged, which leaves the checksums as they are.
pub(super) fn turn_round(frame: &mut [u8]) {
    for (at, bytes) in [(LINK_AT, 6), (ADDRESSES_AT, 4), (PORTS_AT, 2)] {
        let (one, other) = frame[at..at + 2 * bytes].split_at_mut(bytes);
        one.swap_with_slice(other);
    }
}

fn port_bytes(ports: [u16; 2]) -> [u8; 4] {
    let [[a, b], [c, d]] = ports.map(u16::to_be_bytes);
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use flow::wire::{Parsed, parse};
    use flow::{Frame, PortId};

    use super::*;

    /// The tuple of a frame whose checksums are right.
    fn tuple(frame: &mut [u8]) -> Tuple {
        let length_bytes = frame.len();
        match parse(&Frame::new(frame, 0, length_bytes, PortId(0)).unwrap()) {
            Ok(Parsed::Ip(headers)) => headers.tuple,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_frame_names_its_connection_and_its_answer_comes_back() {
        let path = Path {
            link: [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])],
            source: [10, 1, 0, 10].into(),
            destination: [198, 51, 100, 10].into(),
        };
        let mut frame = frame(&path);
        assert_eq!(connection_of(&frame), Some(0));
        for number in [1, 16_383, 16_384, 999_999] {
            set_connection(&mut frame, number);
            let sent = tuple(&mut frame);
            assert_eq!([sent.source_port, sent.destination_port], port_pairs::of(number));
            let mut answer = frame.clone();
            turn_round(&mut answer);
            assert_eq!(tuple(&mut answer), sent.inverse());
            assert_eq!((connection_of(&frame), connection_of(&answer)), (Some(number), Some(number)));
        }
        assert_eq!(connection_of(&frame[..44]), None);
    }
}
