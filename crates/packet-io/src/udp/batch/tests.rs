//! Batches of datagrams between sockets on loopback.

use super::super::UdpOptions;
use super::super::tests::{open, receive};
use super::*;
use crate::namespace::Namespace;
use crate::netlink::Netlink;

/// Fills a batch with datagrams to addresses, each named by its content.
fn batch_of(datagrams: &[(Vec<u8>, SocketAddr)]) -> DatagramBatch {
    let mut batch = DatagramBatch::default();
    for (datagram, to) in datagrams {
        batch.buffer().clone_from(datagram);
        batch.push(*to);
    }
    batch
}

/// A datagram whose bytes show its number and its length.
fn numbered(number: usize, length_bytes: usize) -> Vec<u8> {
    (0..length_bytes).map(|at| (number * 31 + at) as u8).collect()
}

/// The next datagram, whole.
fn receive_whole(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let received = receive(socket, &mut buffer);
    assert!(!received.truncated);
    buffer[..received.length_bytes].to_vec()
}

#[test]
fn datagrams_of_a_batch_arrive_whole_and_in_the_order_of_each_peer() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let sender = open(address, &UdpOptions::default());
        let peers = [open(address, &UdpOptions::default()), open(address, &UdpOptions::default())];
        // Equal lengths, a shorter one that ends a message, longer ones, an empty one; the peers alternate.
        let lengths = [100, 1200, 1200, 1200, 700, 700, 1300, 0, 0, 5, 1200, 1200];
        let datagrams: Vec<_> = (0..BATCH_DATAGRAMS_MAX)
            .map(|number| {
                let to = peers[number % 2].local_address().unwrap();
                (numbered(number, lengths[number / 2 % lengths.len()]), to)
            })
            .collect();
        let mut batch = batch_of(&datagrams);
        assert!(batch.is_full());
        assert!(batch.messages.len() < datagrams.len(), "messages hold several datagrams");
        let sent = sender.send_batch(&mut batch).unwrap();
        assert_eq!(sent, BatchSent { queued: datagrams.len(), lost: 0 });
        for (number, (datagram, _)) in datagrams.iter().enumerate() {
            assert_eq!(receive_whole(&peers[number % 2]), *datagram, "datagram {number} to {address}");
        }
        assert!(!batch.refuses_segments, "the loopback interface takes segmented messages");
        assert_eq!(sender.send_batch(&mut batch).unwrap(), BatchSent::default(), "the batch is empty afterwards");
    }
}

#[test]
fn the_first_datagrams_of_a_batch_leave_first() {
    let [first, second]: [SocketAddr; 2] = ["192.0.2.1:1".parse().unwrap(), "192.0.2.2:1".parse().unwrap()];
    let heartbeats = [(numbered(0, 40), first), (numbered(1, 40), second)];
    let updates = (2..12).map(|number| (numbered(number, 1400), [first, second][number % 2]));
    let batch = batch_of(&heartbeats.into_iter().chain(updates).collect::<Vec<_>>());
    let order: Vec<_> = batch.messages.iter().map(|message| (message.to, message.datagrams.len())).collect();
    assert_eq!(order, [(first, 1), (second, 1), (first, 5), (second, 5)]);
}

#[test]
fn a_segmented_message_stays_within_an_ip_packet() {
    let to = "192.0.2.1:1".parse().unwrap();
    let batch = batch_of(&vec![(numbered(0, 9000), to); 16]);
    assert!(batch.messages.iter().all(|message| message.bytes <= MESSAGE_MAX_BYTES), "{:?}", batch.messages);
    assert_eq!(batch.messages.iter().map(|message| message.datagrams.len()).sum::<usize>(), 16);
}

#[test]
fn an_unreachable_peer_does_not_keep_datagrams_to_others_back() {
    let Some(()) = crate::namespace::for_tests() else { return };
    let namespace = Namespace::new().unwrap();
    let (sender, peer) = namespace
        .run(|| {
            Netlink::open().unwrap().set_up("lo", true).unwrap();
            (open("0.0.0.0:0", &UdpOptions::default()), open("127.0.0.1:0", &UdpOptions::default()))
        })
        .unwrap();
    let unreachable = "192.0.2.1:3780".parse().unwrap();
    let reachable = peer.local_address().unwrap();
    let datagrams: Vec<_> =
        (0..20).map(|number| (numbered(number, 500), if number % 2 == 0 { unreachable } else { reachable })).collect();
    let sent = sender.send_batch(&mut batch_of(&datagrams)).unwrap();
    assert_eq!(sent, BatchSent { queued: 10, lost: 10 });
    for (datagram, _) in datagrams.iter().filter(|(_, to)| *to == reachable) {
        assert_eq!(receive_whole(&peer), *datagram);
    }
}

#[test]
fn datagrams_are_sent_singly_where_the_kernel_refuses_to_segment_a_message() {
    let Some(()) = crate::namespace::for_tests() else { return };
    let namespace = Namespace::new().unwrap();
    let (sender, peer) = namespace
        .run(|| {
            let mut netlink = Netlink::open().unwrap();
            netlink.set_up("lo", true).unwrap();
            netlink.set_mtu("lo", 1280).unwrap();
            (open("127.0.0.1:0", &UdpOptions::default()), open("127.0.0.1:0", &UdpOptions::default()))
        })
        .unwrap();
    let to = peer.local_address().unwrap();
    // Each is larger than a packet of the link: the kernel cuts no message into fragmented datagrams.
    let datagrams: Vec<_> = (0..10).map(|number| (numbered(number, 2000), to)).collect();
    let mut batch = batch_of(&datagrams);
    assert_eq!(batch.messages.len(), 1);
    for _ in 0..2 {
        assert_eq!(sender.send_batch(&mut batch).unwrap(), BatchSent { queued: 10, lost: 0 });
        for (datagram, _) in &datagrams {
            assert_eq!(receive_whole(&peer), *datagram);
        }
        assert!(batch.refuses_segments);
        for (datagram, to) in &datagrams {
            batch.buffer().clone_from(datagram);
            batch.push(*to);
        }
        assert_eq!(batch.messages.len(), 10, "none is segmented from now on");
    }
}

#[test]
fn a_datagram_too_large_for_udp_is_an_error_of_its_batch() {
    let socket = open("127.0.0.1:0", &UdpOptions::default());
    let to = socket.local_address().unwrap();
    let error = socket.send_batch(&mut batch_of(&[(numbered(0, 70_000), to), (numbered(1, 10), to)])).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EMSGSIZE));
}
