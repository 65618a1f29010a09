//! The cost of replicating a changed connection: marking it, and its share of encoding and filling datagrams.
//!
//! `cargo run --release -p replication --example encode_speed`
//!
//! Prints nanoseconds for each changed NATed TCP/IPv4 connection, and what the receiving node spends to take it over.

use std::time::Instant as Clock;

use flow::conntrack::ProtocolState;
use flow::wire::tlv::{self, TlvError};
use flow::{Connection, Instant, NodeId, Tuple};
use replication::representation::precise::{self, FunctionStates};
use replication::{ApplyError, Handle, Kind, Session, SessionConfig, Store};

const CONNECTIONS: u32 = 1 << 17;
const BATCH: u32 = 64;
const ROUNDS: u32 = 5;

struct Nat;

impl FunctionStates for Nat {
    fn encode(&self, connection: &Connection, out: &mut Vec<u8>) {
        tlv::put(out, 100, &connection.functions[..8]);
    }

    fn decode(&self, connection: &mut Connection, attributes: &[u8]) -> Result<(), TlvError> {
        for attribute in tlv::read(attributes) {
            if let (100, value) = attribute? {
                let value: [u8; 8] = value.try_into().map_err(|_| TlvError::ValueSize(100))?;
                connection.functions[..8].copy_from_slice(&value);
            }
        }
        Ok(())
    }
}

/// The connections of a node; as a receiver it decodes and counts, since the table is another room's.
struct Table {
    connections: Vec<Connection>,
    applied: u64,
}

impl Store for Table {
    fn encode(&mut self, now: Instant, handle: Handle, out: &mut Vec<u8>) -> bool {
        precise::encode(now, &self.connections[handle.0 as usize], &Nat, out);
        true
    }

    fn apply(&mut self, now: Instant, _: NodeId, _: Kind, attributes: &[u8]) -> Result<(), ApplyError> {
        let connection = precise::decode(now, attributes, &Nat)?;
        self.applied += u64::from(connection.version != 0);
        Ok(())
    }

    fn delete(&mut self, _: Instant, _: NodeId, _: &[u8]) -> Result<(), ApplyError> {
        Ok(())
    }

    fn find(&self, _: &[u8]) -> Option<Handle> {
        None
    }

    fn next_for_resync(&self, _: Handle) -> Option<Handle> {
        None
    }
}

fn connection(index: u32) -> Connection {
    let address = |value: u32| {
        let mut address = [0; 16];
        address[10..12].copy_from_slice(&[0xff, 0xff]);
        address[12..].copy_from_slice(&value.to_be_bytes());
        address
    };
    let original = Tuple {
        source: address(0x0a00_0000 | index),
        destination: address(0xc633_6401),
        source_port: 40_000,
        destination_port: 443,
        protocol: 6,
        version: 4,
        discriminator: 0,
    };
    let protocol = ProtocolState { state: 3, ..ProtocolState::default() };
    let mut connection = Connection::new(original, NodeId(0), protocol, Instant::from_millis(100_000));
    connection.reply.destination = address(0xcb00_7101);
    connection
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock; the library does not")]
fn clock() -> Clock {
    Clock::now()
}

#[derive(Default)]
struct Spent {
    sending_nanos: u128,
    receiving_nanos: u128,
}

/// Exchanges datagrams until neither session has any to send.
fn exchange(now: Instant, ends: &mut [(Session, Table); 2], buf: &mut Vec<u8>, spent: &mut Spent) {
    loop {
        let mut silent = true;
        for from in 0..2 {
            let [left, right] = &mut *ends;
            let (sender, receiver) = if from == 0 { (left, right) } else { (right, left) };
            loop {
                let start = clock();
                let filled = sender.0.poll_transmit(now, &mut sender.1, buf);
                let filled_at = clock();
                spent.sending_nanos += if from == 0 { (filled_at - start).as_nanos() } else { 0 };
                if !filled {
                    break;
                }
                silent = false;
                receiver.0.handle_datagram(now, buf, &mut receiver.1).expect("an honest peer");
                if from == 0 {
                    spent.receiving_nanos += filled_at.elapsed().as_nanos();
                } else {
                    spent.sending_nanos += filled_at.elapsed().as_nanos();
                }
            }
        }
        if silent {
            break;
        }
    }
}

fn main() {
    let config = SessionConfig { connections_max: CONNECTIONS, ..SessionConfig::default() };
    let mut ends = [0, 1].map(|node: u8| {
        let session = Session::new(config, NodeId(node), NodeId(1 - node), node.into()).expect("a sound configuration");
        (session, Table { connections: (0..CONNECTIONS).map(connection).collect(), applied: 0 })
    });
    let mut buf = Vec::with_capacity(2048);
    let mut now = Instant::from_millis(1);
    exchange(now, &mut ends, &mut buf, &mut Spent::default());
    for round in 0..ROUNDS {
        let mut spent = Spent::default();
        let before = ends[0].0.status();
        for batch in 0..CONNECTIONS / BATCH {
            now = now + std::time::Duration::from_micros(20);
            // Connections far from each other, as packets come in; a packet touches all of its record just before.
            let handles: [Handle; BATCH as usize] =
                std::array::from_fn(|index| Handle((batch * BATCH + index as u32).wrapping_mul(40_503) % CONNECTIONS));
            for handle in handles {
                let connection = &mut ends[0].1.connections[handle.0 as usize];
                connection.bump_version();
                connection.bytes[0] += 1500;
                connection.protocol.last_sequence ^= 1460;
                connection.functions[0] ^= 1;
            }
            let start = clock();
            for handle in handles {
                ends[0].0.mark_changed(handle);
            }
            spent.sending_nanos += start.elapsed().as_nanos();
            exchange(now, &mut ends, &mut buf, &mut spent);
        }
        let after = ends[0].0.status();
        let messages = after.messages_sent - before.messages_sent;
        println!(
            "round {round}: {messages} changes; sender {:.1} ns, receiver {:.1} ns, {:.1} bytes each; {:.1} to a datagram",
            spent.sending_nanos as f64 / messages as f64,
            spent.receiving_nanos as f64 / messages as f64,
            (after.bytes_sent - before.bytes_sent) as f64 / messages as f64,
            messages as f64 / (after.datagrams_sent - before.datagrams_sent) as f64,
        );
    }
    assert_eq!(ends[1].1.applied, ends[0].0.status().messages_sent - 1, "all but the end of the resynchronisation");
}
