//! Nodes that gossip by datagrams which may be lost.

use std::collections::BTreeMap;
use std::format;
use std::vec;

use proptest::prelude::*;

use super::*;
use crate::record::MemberState;

/// Nodes that gossip over a network without delay, on a clock that the test moves. By their hosts, whose numbers are those of the nodes unless
/// a node has moved.
struct Network {
    now: Instant,
    records: BTreeMap<u8, Member>,
    nodes: BTreeMap<u8, Gossip>,
    /// What each node knows of the others.
    known: BTreeMap<u8, BTreeMap<u8, Member>>,
    settings: BTreeMap<u8, Settings>,
}

fn address(id: u8) -> SocketAddr {
    SocketAddr::from(([10, 99, 0, id], 3785))
}

fn member(id: u8, version: u64) -> Member {
    let text = format!("name=n{id} replication=10.99.0.{id}:3781 detection=10.99.0.{id}:3784 version={version}");
    Member::parse(NodeId(id), &text).unwrap()
}

impl Network {
    fn new() -> Self {
        let (records, nodes) = (BTreeMap::new(), BTreeMap::new());
        let (known, settings) = (BTreeMap::new(), BTreeMap::new());
        Self { now: Instant::ZERO + Duration::from_secs(100), records, nodes, known, settings }
    }

    fn start(&mut self, id: u8, version: u64) {
        self.start_at(id, member(id, version));
    }

    fn start_at(&mut self, host: u8, own: Member) {
        let seeds = vec![address(1), address(2)].into_iter().filter(|seed| *seed != address(host)).collect();
        let seed = u64::from(host) + own.version;
        let gossip = Gossip::new(address(host), own.clone(), Settings::default(), seeds, seed, self.now);
        self.records.insert(host, own);
        self.nodes.insert(host, gossip);
        self.known.insert(host, BTreeMap::new());
    }

    /// As a gateway does: its own record becomes newer than any other of its number.
    fn supersede(now: Instant, gossip: &mut Gossip, own: &mut Member, other: &Member) {
        if other.version >= own.version {
            own.version = version_above(other.version);
            gossip.set_own(now, own.clone(), Settings::default());
        }
    }

    fn kill(&mut self, id: u8) {
        self.nodes.remove(&id);
        self.known.remove(&id);
    }

    fn run(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while self.now < until {
            self.now = self.now + Duration::from_millis(10);
            let mut datagrams = Vec::new();
            for (id, node) in &mut self.nodes {
                if node.poll_timeout() <= self.now {
                    node.handle_timeout(self.now);
                }
                while let Some(datagram) = node.poll_transmit() {
                    datagrams.push(datagram);
                }
                let known = self.known.get_mut(id).unwrap();
                let own = self.records.get_mut(id).unwrap();
                while let Some(event) = node.poll_event() {
                    match event {
                        GossipEvent::Recorded(member) if member.id == own.id => {
                            Self::supersede(self.now, node, own, &member);
                        }
                        GossipEvent::Recorded(member) => drop(known.insert(member.id.0, member)),
                        GossipEvent::Absent(gone) => drop(known.remove(&gone.0)),
                        GossipEvent::Settings(settings) => {
                            let newest = self.settings.entry(*id).or_default();
                            *newest = settings.max(*newest);
                        }
                        GossipEvent::Renewed(version) => own.version = own.version.max(version),
                    }
                }
            }
            for (to, datagram) in datagrams {
                let receiver = self.nodes.iter_mut().find(|(id, _)| address(**id) == to);
                if let Some((_, node)) = receiver {
                    node.handle_datagram(self.now, &datagram).unwrap();
                }
            }
        }
    }

    fn knows(&self, id: u8) -> Vec<u8> {
        self.known[&id].keys().copied().collect()
    }
}

#[test]
fn nodes_find_each_other_leave_crash_and_come_back() {
    let mut network = Network::new();
    network.start(1, 1);
    network.start(2, 1);
    network.run(2);
    assert_eq!((network.knows(1), network.knows(2)), (vec![2], vec![1]));
    network.start(3, 1);
    network.run(3);
    for (id, others) in [(1, vec![2, 3]), (2, vec![1, 3]), (3, vec![1, 2])] {
        assert_eq!(network.knows(id), others, "node {id}");
    }

    // A record that changes reaches all.
    let left = Member { state: MemberState::Left, version: 2, ..member(3, 2) };
    network.nodes.get_mut(&3).unwrap().set_own(network.now, left.clone(), Settings::default());
    network.run(2);
    assert_eq!((&network.known[&1][&3], &network.known[&2][&3]), (&left, &left));

    // A crash is found.
    network.kill(3);
    network.kill(2);
    network.run(30);
    assert_eq!(network.knows(1), []);
    network.start(2, 10);
    network.run(5);
    assert_eq!((network.knows(1), network.knows(2)), (vec![2], vec![1]));
    assert_eq!(network.known[&1][&2].version, 10);
}

#[test]
fn a_node_whose_clock_was_ahead_once_is_known_wherever_it_starts() {
    const AHEAD: u64 = 86_400_000;
    for state in [MemberState::Active, MemberState::Left] {
        for (host, is_declared_dead) in [(3, false), (3, true), (4, false), (4, true)] {
            let mut network = Network::new();
            network.start(1, 1);
            network.start(2, 1);
            network.start(3, AHEAD);
            network.run(5);
            if state == MemberState::Left {
                let left = Member { state, ..member(3, AHEAD + 1) };
                network.nodes.get_mut(&3).unwrap().set_own(network.now, left, Settings::default());
                network.run(1);
            }
            network.kill(3);
            network.run(if is_declared_dead { 30 } else { 0 });
            let moved = Member { replication: address(host), ..member(3, 7) };
            network.start_at(host, moved.clone());
            network.run(10);
            for other in [1, 2] {
                let known = &network.known[&other][&3];
                assert!(known.version > AHEAD, "{state:?}, host {host}, dead {is_declared_dead}: {known}");
                assert_eq!((known.replication, known.state), (moved.replication, MemberState::Active));
            }
            assert_eq!(network.knows(host), [1, 2], "{state:?}, host {host}, dead {is_declared_dead}");
        }
    }
}

#[test]
fn settings_spread_with_records() {
    let mut network = Network::new();
    (1..=4).for_each(|id| network.start(id, 1));
    network.run(5);
    let settings = Settings { version: 5, backups: Some(2), edge_nodes: None, configuration: 0 };
    network.nodes.get_mut(&4).unwrap().set_own(network.now, member(4, 2), settings);
    network.run(3);
    for id in 1..=3 {
        assert_eq!(network.settings[&id], settings, "node {id}");
    }
}

#[test]
fn what_is_no_message_is_refused_without_harm() {
    let mut gossip = Gossip::new(address(1), member(1, 1), Settings::default(), Vec::new(), 1, Instant::ZERO);
    for bytes in [&b""[..], b"\x02", b"\x01\x63", &[0xff; 100], &[0; DATAGRAM_BYTES_MAX + 1]] {
        assert!(gossip.handle_datagram(Instant::ZERO, bytes).is_err());
    }
    assert_eq!(gossip.members(), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_taken_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), truncated in 0..200_usize) {
        let mut gossip = Gossip::new(address(1), member(1, 1), Settings::default(), vec![address(2)], 1, Instant::ZERO);
        let _ = gossip.handle_datagram(Instant::ZERO, &bytes);
        // One that is nearly right.
        let mut other = Gossip::new(address(2), member(2, 1), Settings::default(), vec![address(1)], 2, Instant::ZERO);
        other.handle_timeout(Instant::ZERO);
        let (_, mut datagram) = other.poll_transmit().unwrap();
        datagram.truncate(truncated);
        for (place, byte) in datagram.iter_mut().zip(&bytes) {
            if byte % 7 == 0 {
                *place ^= byte;
            }
        }
        let _ = gossip.handle_datagram(Instant::ZERO, &datagram);
        gossip.handle_timeout(Instant::ZERO + Duration::from_secs(1));
    }
}
