//! A gateway that keeps the state of its connections in a remote store, to compare with: it reads the record of each packet's connection in
//! a round trip, changes it, writes it and sends the packet, after \[STATELESS\].
//!
//! It does less than a gateway: it translates nothing and checks no sequence numbers. So the difference that is measured is that of
//! the round trip.

use std::io;
use std::time::Duration;

use flow::wire::{MacAddress, Parsed, Transport, parse, tcp_flags};
use flow::{Disposition, Frame, PacketBatch, PortId, Tuple};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::netlink::Netlink;
use packet_io::poller::{Poller, Token};
use packet_io::{IoError, PacketIo};

use super::super::BenchError;
use super::resp::Store;
use crate::args::StoreGatewayArgs;

/// A record is as long as that of a connection in a gateway.
const RECORD_BYTES: usize = 256;
/// Bytes of the two addresses of a link header.
const ADDRESSES_BYTES: usize = 12;
/// The longest wait for packets.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// What names a connection: its tuple, the same in both directions.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Key(Vec<u8>);

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Key {
    fn of(tuple: &Tuple) -> Self {
        let mut ends = [tuple.source_addr(), tuple.destination_addr()];
        ends.sort();
        let text = format!("{}|{}|{}", tuple.protocol, ends[0], ends[1]);
        Self(text.into_bytes())
    }
}

/// What is counted of a connection: packets and bytes, little-endian, at the beginning of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counted {
    packets: u64,
    bytes: u64,
}

impl Counted {
    fn read(record: &[u8]) -> Option<Self> {
        let (packets, rest) = record.split_first_chunk()?;
        let (bytes, _) = rest.split_first_chunk()?;
        Some(Self { packets: u64::from_le_bytes(*packets), bytes: u64::from_le_bytes(*bytes) })
    }

    fn with(self, frame: &Frame<'_>) -> Self {
        Self { packets: self.packets + 1, bytes: self.bytes + frame.bytes().len() as u64 }
    }

    fn record(self) -> Vec<u8> {
        let mut record = [self.packets.to_le_bytes(), self.bytes.to_le_bytes()].concat();
        record.resize(RECORD_BYTES, 0);
        record
    }
}

/// A packet's connection, and whether the packet may begin it. `None`: it is not forwarded.
fn connection(frame: &Frame<'_>) -> Option<(Key, bool)> {
    let Ok(Parsed::Ip(headers)) = parse(frame) else { return None };
    match headers.transport {
        Transport::Tcp(segment) => {
            let begins = segment.has(tcp_flags::SYN) && !segment.has(tcp_flags::ACK);
            Some((Key::of(&headers.tuple), begins))
        }
        _ => None,
    }
}

/// The two ports, and where their hosts are.
struct Links {
    own: [MacAddress; 2],
    hosts: [MacAddress; 2],
}

impl Links {
    /// Turns a frame that arrived at one port to the host behind the second, or the reverse.
    fn turn(&self, frame: &mut Frame<'_>) {
        let other = usize::from(frame.ingress.0 == 0);
        if let Some(addresses) = frame.bytes_mut().get_mut(..ADDRESSES_BYTES) {
            addresses[..6].copy_from_slice(&self.hosts[other].0);
            addresses[6..].copy_from_slice(&self.own[other].0);
            frame.disposition = Disposition::Transmit(PortId(other as u8));
        }
    }
}

/// Forwards until it is ended.
///
/// # Errors
/// The store or an interface cannot be used.
pub fn run(args: &StoreGatewayArgs) -> Result<(), BenchError> {
    let mut store = Store::connect(args.store).map_err(BenchError::Socket)?;
    let ports: Vec<PortConfig> = args.interfaces.iter().map(PortConfig::new).collect();
    let mut io = AfPacketIo::open(&ports)?;
    let mut netlink = Netlink::open()?;
    let own = args.interfaces.iter().map(|name| Ok(MacAddress(netlink.interface(name)?.mac)));
    let own: Vec<MacAddress> = own.collect::<Result<_, IoError>>()?;
    let hosts: Vec<MacAddress> = args.hosts.iter().filter_map(|text| link_address(text)).collect();
    let (Ok(own), Ok(hosts)) = (own.try_into(), hosts.try_into()) else {
        return Err(IoError::Misuse("write two interfaces and the link addresses of two hosts".into()).into());
    };
    let links = Links { own, hosts };
    let poller = Poller::new()?;
    for descriptor in io.descriptors() {
        poller.add(descriptor, Token(0))?;
    }
    let (mut ready, mut failure) = (Vec::new(), None);
    while failure.is_none() {
        poller.wait(&mut ready, Some(WAIT_MAX))?;
        io.poll(&mut |batch| {
            if failure.is_none() {
                failure = forward(&mut store, &links, batch).err();
            }
        })?;
    }
    failure.map_or(Ok(()), |error| Err(BenchError::Socket(error)))
}

/// Reads the records of a batch, changes and writes them, and turns the frames.
fn forward(store: &mut Store, links: &Links, batch: &mut PacketBatch<'_>) -> io::Result<()> {
    let mut waiting = Vec::new();
    for (place, frame) in batch.iter_mut().enumerate() {
        frame.disposition = Disposition::Consumed;
        waiting.extend(connection(frame).map(|(key, begins)| (place, key, begins)));
    }
    if waiting.is_empty() {
        return Ok(());
    }
    let keys: Vec<&Key> = waiting.iter().map(|(_, key, _)| key).collect();
    let records = store.get(&keys)?;
    let mut changed = Vec::new();
    for ((place, key, begins), record) in waiting.iter().zip(records) {
        let Some(frame) = batch.get_mut(*place) else { continue };
        let known = record.as_deref().and_then(Counted::read).or(begins.then(Counted::default));
        // Without a record there is no such connection: the packet is dropped.
        let Some(known) = known else { continue };
        changed.push((key, known.with(frame).record()));
        links.turn(frame);
    }
    store.set(&changed)
}

/// A link address as it is written, six numbers to the base 16.
fn link_address(text: &str) -> Option<MacAddress> {
    let bytes: Vec<u8> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect::<Option<_>>()?;
    bytes.try_into().ok().map(MacAddress)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use flow::wire::build::{self, Tcp};
    use flow::wire::ip_protocol;

    use super::*;

    fn tuple() -> Tuple {
        let ends: [SocketAddr; 2] = ["10.1.0.10:40000", "198.51.100.10:7000"].map(|end| end.parse().unwrap());
        Tuple::new(ip_protocol::TCP, ends[0], ends[1])
    }

    #[test]
    fn both_directions_have_one_key_and_only_a_syn_begins_a_connection() {
        let of = |tuple: &Tuple, flags| {
            let mut bytes = build::tcp(tuple, Tcp { flags, ..Tcp::default() }, b"");
            let length = bytes.len();
            connection(&Frame::new(&mut bytes, 0, length, PortId(0)).unwrap()).expect("a segment")
        };
        let (syn, begins) = of(&tuple(), tcp_flags::SYN);
        let (answer, answer_begins) = of(&tuple().inverse(), tcp_flags::SYN | tcp_flags::ACK);
        assert_eq!((syn, begins, answer_begins), (answer, true, false));
    }

    #[test]
    fn a_record_gives_back_what_was_counted_and_has_its_length() {
        let counted = Counted { packets: 3, bytes: 500 };
        assert_eq!(counted.record().len(), RECORD_BYTES);
        assert_eq!(Counted::read(&counted.record()), Some(counted));
        assert_eq!(Counted::read(b"short"), None);
    }

    #[test]
    fn a_frame_leaves_by_the_other_port_to_its_host() {
        let address = |last| MacAddress([2, 0, 0, 0, 0, last]);
        let links = Links { own: [address(1), address(2)], hosts: [address(3), address(4)] };
        let mut bytes = build::tcp(&tuple(), Tcp::default(), b"");
        let length = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length, PortId(0)).unwrap();
        links.turn(&mut frame);
        assert_eq!(frame.disposition, Disposition::Transmit(PortId(1)));
        assert_eq!(frame.bytes()[..12], [address(4).0, address(2).0].concat());
        assert_eq!(link_address(&address(4).to_string()), Some(address(4)));
    }
}
