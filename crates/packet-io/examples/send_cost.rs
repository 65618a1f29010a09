//! What a datagram to a peer costs its sender: one at a time, and in batches.
//!
//! `cargo run --release -p packet-io --example send_cost`
//!
//! Prints nanoseconds of processor time for each datagram to two sockets on the loopback interface, which nobody reads meanwhile.
//! The time on loopback includes the delivery.

use std::net::SocketAddr;
use std::time::Duration;

use packet_io::IoError;
use packet_io::udp::{BATCH_DATAGRAMS_MAX, DatagramBatch, UdpOptions, UdpSocket};
use packet_io::usage::thread_cpu_time;

const DATAGRAM_BYTES: usize = 1400;
/// So few that they fit into the sockets' buffers.
const DATAGRAMS: usize = 1024;
const ROUNDS: usize = 40;

fn drain(peers: &[UdpSocket]) -> Result<usize, IoError> {
    let mut buffer = [0; 2048];
    let mut received = 0;
    for peer in peers {
        while peer.receive(&mut buffer)?.is_some() {
            received += 1;
        }
    }
    Ok(received)
}

/// The time that `send` takes for each datagram. All must arrive.
fn measure(peers: &[UdpSocket], mut send: impl FnMut(usize) -> Result<(), IoError>) -> Result<f64, IoError> {
    let (mut spent, mut received) = (Duration::ZERO, 0);
    for _ in 0..ROUNDS {
        let began = thread_cpu_time();
        for first in (0..DATAGRAMS).step_by(BATCH_DATAGRAMS_MAX) {
            send(first)?;
        }
        spent += thread_cpu_time().saturating_sub(began);
        received += drain(peers)?;
    }
    assert_eq!(received, ROUNDS * DATAGRAMS, "none is lost");
    Ok(spent.as_nanos() as f64 / received as f64)
}

fn main() -> Result<(), IoError> {
    let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let open = || UdpSocket::bind(address, &UdpOptions::default());
    let (sender, peers) = (open()?, [open()?, open()?]);
    let to = [peers[0].local_address()?, peers[1].local_address()?];
    let datagram = [0x5a; DATAGRAM_BYTES];
    let singly = |_| {
        for number in 0..BATCH_DATAGRAMS_MAX {
            sender.send_to(&datagram, to[number % 2])?;
        }
        Ok(())
    };
    let batched = |batch: &mut DatagramBatch, lengths: [usize; 2]| {
        for number in 0..BATCH_DATAGRAMS_MAX {
            batch.buffer().clear();
            batch.buffer().extend_from_slice(&datagram[..lengths[number / 2 % 2]]);
            batch.push(to[number % 2]);
        }
        sender.send_batch(batch).map(drop)
    };
    let (mut equal, mut unequal) = (DatagramBatch::default(), DatagramBatch::default());
    for _ in 0..3 {
        println!(
            "a datagram of {DATAGRAM_BYTES} bytes: singly {:.0} ns, in batches {:.0} ns, in batches of equal length {:.0} ns",
            measure(&peers, singly)?,
            // Growing and shrinking lengths, of which two make a message.
            measure(&peers, |_| batched(&mut unequal, [DATAGRAM_BYTES - 4, DATAGRAM_BYTES]))?,
            measure(&peers, |_| batched(&mut equal, [DATAGRAM_BYTES; 2]))?,
        );
    }
    Ok(())
}
