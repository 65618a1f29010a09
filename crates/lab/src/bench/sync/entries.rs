//! The kernel's own entries: made by the hundred thousand, and read back.

use std::collections::HashSet;
use std::net::SocketAddr;

use flow::netfilter::{Discriminator, Entry, ProtocolInfo, Status, TcpFlags, TcpInfo, TcpSide, TcpState, Tuple};
use packet_io::IoError;
use packet_io::ctnetlink::{Dump, DumpFilter, DumpProgress, Request, RequestError, TableSocket};
use packet_io::namespace::Namespace;

use crate::bench::BenchError;
use crate::testbed::topology::{CLIENT, OUTSIDE, SERVER};

/// The protocol of all of them.
const TCP: u8 = 6;
/// Ports on the client's side, and the first of them. With each of the server's ports all of them are used.
const CLIENT_PORTS: u32 = 50_000;
const FIRST_CLIENT_PORT: u16 = 10_000;
const FIRST_SERVER_PORT: u16 = 7000;
/// As the kernel gives an established TCP connection.
const TIMEOUT_S: u32 = 432_000;
/// Dumps are tried again so often that the kernel broke off.
const DUMPS_MAX: usize = 10;

/// An established connection of the client with the server, behind the shared address, different for each number.
fn established(number: u32) -> Entry {
    let client_port = FIRST_CLIENT_PORT + (number % CLIENT_PORTS) as u16;
    let server_port = FIRST_SERVER_PORT + (number / CLIENT_PORTS) as u16;
    let tuple = |source, destination, source_port, destination_port| Tuple {
        source,
        destination,
        protocol: TCP,
        discriminator: Discriminator::Ports { source: source_port, destination: destination_port },
    };
    let original = tuple(CLIENT[0], SERVER[0], client_port, server_port);
    let reply = tuple(SERVER[0], OUTSIDE[0], server_port, client_port);
    let side = TcpSide { window_scale: 7, flags: TcpFlags::WINDOW_SCALE.union(TcpFlags::BE_LIBERAL) };
    Entry {
        status: Some(Status::SEEN_REPLY.union(Status::ASSURED).union(Status::CONFIRMED)),
        timeout_s: Some(TIMEOUT_S),
        protocol_info: Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::Established, sides: Some([side; 2]) })),
        ..Entry::new(original, reply)
    }
}

/// Puts so many connections into the kernel of a namespace, from the one with this number on.
///
/// # Errors
/// The kernel refuses one.
pub(super) fn create(node: &Namespace, first: u32, count: u32) -> Result<(), BenchError> {
    let made: Vec<Entry> = (first..first + count).map(established).collect();
    let refused = node.run(|| -> Result<Option<(u64, RequestError)>, IoError> {
        let mut refused: Option<(u64, RequestError)> = None;
        TableSocket::open()?.execute(made.iter().map(Request::Create), &mut |_, reason| {
            refused = Some((refused.map_or(1, |(failed, _)| failed + 1), reason));
        })?;
        Ok(refused)
    })??;
    match refused {
        None => Ok(()),
        Some((failed, reason)) => {
            Err(BenchError::Failed { failed, connections: count.into(), reason: reason.to_string() })
        }
    }
}

/// The TCP connections that the kernel of a namespace tracks: how their packets are known, either way.
///
/// # Errors
/// The kernel does not answer.
pub(super) fn read(node: &Namespace) -> Result<HashSet<(Tuple, Tuple)>, BenchError> {
    read_where(node, |_| true)
}

/// As [`read`], of the connections that `is_wanted` chooses.
///
/// # Errors
/// As for [`read`].
pub(super) fn read_where(
    node: &Namespace,
    is_wanted: impl Fn(&Entry) -> bool + Sync,
) -> Result<HashSet<(Tuple, Tuple)>, BenchError> {
    let read = || -> Result<HashSet<(Tuple, Tuple)>, IoError> {
        let mut there = HashSet::new();
        for _ in 0..DUMPS_MAX {
            there.clear();
            let mut dump = Dump::connections(DumpFilter::default())?;
            let was_interrupted = loop {
                let progress = dump.receive(&mut |entry: Entry| {
                    if entry.original.protocol == TCP && is_wanted(&entry) {
                        there.insert((entry.original, entry.reply));
                    }
                })?;
                if let DumpProgress::Ended { was_interrupted } = progress {
                    break was_interrupted;
                }
            };
            if !was_interrupted {
                break;
            }
        }
        Ok(there)
    };
    Ok(node.run(read)??)
}

/// The TCP connections that the kernel of a namespace tracks, by their two ends as the client sees them, its own first.
///
/// # Errors
/// As for [`read`].
pub(super) fn read_ends(node: &Namespace) -> Result<HashSet<(SocketAddr, SocketAddr)>, BenchError> {
    let ends = |(original, _): (Tuple, Tuple)| {
        let (source, destination) = original.ports();
        (SocketAddr::new(original.source, source), SocketAddr::new(original.destination, destination))
    };
    Ok(read(node)?.into_iter().map(ends).collect())
}

/// Deletes every other of these connections from the kernel of a namespace, as fast as it goes. Those that have ended meanwhile are
/// gone all the same.
///
/// # Errors
/// The kernel does not do it.
pub(super) fn delete_half(node: &Namespace, there: &HashSet<(Tuple, Tuple)>) -> Result<(), BenchError> {
    let ended: Vec<Entry> = there.iter().step_by(2).map(|(original, reply)| Entry::new(*original, *reply)).collect();
    let delete = || TableSocket::open()?.execute(ended.iter().map(Request::Delete), &mut |_, _| {});
    Ok(node.run(delete)??)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn what_is_put_into_the_kernel_is_read_back() {
        let Some(()) = packet_io::namespace::for_tests() else { return };
        let node = Namespace::new().unwrap();
        create(&node, 49_990, 300).unwrap();
        let there = read(&node).unwrap();
        assert_eq!(there.len(), 300);
        assert!((49_990..50_290).map(established).all(|entry| there.contains(&(entry.original, entry.reply))));
        delete_half(&node, &there).unwrap();
        assert_eq!(read(&node).unwrap().len(), 150);
        create(&node, 50_290, 10).unwrap();
        let error = create(&node, 50_200, 100).unwrap_err().to_string();
        assert!(error.contains(" of 100 connections failed"), "{error}");
    }
}
