//! Sockets between peers on loopback.

use super::*;
use crate::namespace::Namespace;
use crate::netlink::{Netlink, Prefix};
use crate::poller::{Poller, Token};
use crate::sysctl;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn open(address: &str, options: &UdpOptions) -> UdpSocket {
    UdpSocket::bind(address.parse().unwrap(), options).unwrap()
}

/// Waits for a datagram.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Received {
    let poller = Poller::new().unwrap();
    poller.add(socket, Token(0)).unwrap();
    let mut ready = Vec::new();
    loop {
        if let Some(received) = socket.receive(buffer).unwrap() {
            return received;
        }
        poller.wait(&mut ready, Some(PATIENCE)).unwrap();
        assert!(!ready.is_empty(), "no datagram arrived");
    }
}

#[test]
fn a_datagram_is_received_with_its_sender_and_time_to_live() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let bfd = open(address, &UdpOptions { ttl: Some(TTL_MAX), ..UdpOptions::default() });
        let distant = open(address, &UdpOptions { ttl: Some(254), ..UdpOptions::default() });
        let receiver = open(address, &UdpOptions::default());
        let mut buffer = [0; 64];
        assert_eq!(receiver.receive(&mut buffer).unwrap(), None);
        for (sender, ttl) in [(&bfd, 255), (&distant, 254)] {
            assert_eq!(sender.send_to(b"hello", receiver.local_address().unwrap()).unwrap(), Sent::Queued);
            let received = receive(&receiver, &mut buffer);
            assert_eq!((&buffer[..received.length_bytes], received.ttl), (b"hello".as_slice(), Some(ttl)));
            assert_eq!(received.from, sender.local_address().unwrap());
        }
    }
}

#[test]
fn a_datagram_longer_than_the_buffer_is_marked() {
    let (sender, receiver) = (open("127.0.0.1:0", &UdpOptions::default()), open("127.0.0.1:0", &UdpOptions::default()));
    sender.send_to(&[7; 100], receiver.local_address().unwrap()).unwrap();
    let received = receive(&receiver, &mut [0; 10]);
    assert!(received.truncated && received.length_bytes == 10);
}

#[test]
fn an_unreachable_peer_is_no_error() {
    let (socket, peer) = (open("127.0.0.1:0", &UdpOptions::default()), open("127.0.0.1:0", &UdpOptions::default()));
    let away = open("127.0.0.1:0", &UdpOptions::default()).local_address().unwrap();
    for _ in 0..20 {
        socket.send_to(b"anybody?", away).unwrap();
        socket.receive(&mut [0; 10]).unwrap();
        assert_eq!(socket.send_to(b"you", peer.local_address().unwrap()).unwrap(), Sent::Queued);
        receive(&peer, &mut [0; 10]);
    }
}

#[test]
fn a_datagram_too_large_for_udp_is_an_error() {
    let socket = open("127.0.0.1:0", &UdpOptions::default());
    let error = socket.send_to(&vec![0; 70_000], socket.local_address().unwrap()).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EMSGSIZE));
}

#[test]
fn a_missing_interface_is_reported() {
    let options = UdpOptions { interface: Some("nowhere0".into()), ..UdpOptions::default() };
    let error = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap_err();
    assert!(error.to_string().contains("nowhere0"), "{error}");
}

/// Two sockets of a group, at either end of a cable.
fn group_at_both_ends(group: &str) -> [(Namespace, UdpSocket); 2] {
    let [left, right] = [Namespace::new().unwrap(), Namespace::new().unwrap()];
    left.run(|| Netlink::open().unwrap().create_veth("link0", "link0", &right).unwrap()).unwrap();
    let open = |namespace: Namespace, addresses: [&str; 2]| {
        let socket = namespace.run(|| {
            sysctl::quieten_ipv6().unwrap();
            let mut netlink = Netlink::open().unwrap();
            netlink.set_up("link0", true).unwrap();
            for (address, bits) in addresses.into_iter().zip([24, 64]) {
                netlink.add_address("link0", Prefix::new(address.parse::<std::net::IpAddr>().unwrap(), bits)).unwrap();
            }
            UdpSocket::bind_multicast(group.parse().unwrap(), "link0", &UdpOptions::default()).unwrap()
        });
        (namespace, socket.unwrap())
    };
    [open(left, ["10.9.0.1", "fd09::1"]), open(right, ["10.9.0.2", "fd09::2"])]
}

#[test]
fn members_of_a_group_receive_from_each_other_and_not_from_themselves() {
    let Some(()) = crate::namespace::for_tests() else { return };
    for group in ["225.0.0.50:3780", "[ff02::50]:3780", "[ff15::50]:3780"] {
        let [(_left, speaker), (_right, listener)] = group_at_both_ends(group);
        let (poller, mut ready) = (Poller::new().unwrap(), Vec::new());
        poller.add(&listener, Token(0)).unwrap();
        // A new cable drops frames in its first moments.
        let mut buffer = [0; 64];
        let received = (0..500).find_map(|_| {
            speaker.send_to(b"all", group.parse().unwrap()).unwrap();
            poller.wait(&mut ready, Some(Duration::from_millis(10))).unwrap();
            listener.receive(&mut buffer).unwrap()
        });
        let received = received.unwrap_or_else(|| panic!("nothing arrived through {group}"));
        assert_eq!(&buffer[..received.length_bytes], b"all");
        // For IPv6 the sender is identified by the address of the group's scope, possibly link-local.
        assert!(received.from.is_ipv6() || received.from.ip().to_string() == "10.9.0.1", "{received:?}");
        assert_eq!(speaker.receive(&mut buffer).unwrap(), None, "it receives its own datagrams");
    }
}

#[test]
fn an_invalid_group_or_interface_is_named() {
    let bind = |group: &str, interface| {
        UdpSocket::bind_multicast(group.parse().unwrap(), interface, &UdpOptions::default()).unwrap_err().to_string()
    };
    assert!(bind("10.0.0.1:3780", "lo").contains("224.0.0.0/4"));
    assert!(bind("[fd00::1]:3780", "lo").contains("ff00::/8"));
    assert!(bind("225.0.0.50:3780", "nowhere0").contains("nowhere0"));
}
