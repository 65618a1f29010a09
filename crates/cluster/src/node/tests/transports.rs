//! Replication by other transports than the native protocol: what each of them saves, and what it does not.

use std::string::ToString;
use std::time::Duration;
use std::vec::Vec;

use flow::NodeId;
use replication::{Link, Transport};

use super::cluster::{CLIENT, Cluster, Options, segment, syn, syn_ack};
use super::{ACK, exchange};
use crate::node::{NodeError, StreamInput};

impl Cluster {
    /// Carries what the streams between the nodes take, which come and go with the nodes. True when there is nothing more.
    pub(super) fn carry_streams(&mut self) -> bool {
        if self.options().transport != Transport::Tcp {
            return true;
        }
        let both_live = self.lives(0) && self.lives(1);
        if self.has_stream != both_live {
            self.has_stream = both_live;
            let input = if both_live { StreamInput::Connected } else { StreamInput::Disconnected };
            (0..2).filter(|id| self.lives(*id)).collect::<Vec<u8>>().into_iter().for_each(|id| self.tell(id, input));
        }
        let mut is_quiet = true;
        if both_live && !self.is_replication_cut {
            for from in 0..2_u8 {
                let (now, to) = (self.now, NodeId(1 - from));
                let bytes = self.node_mut(from).poll_stream(now, to).to_vec();
                self.node_mut(from).handle_stream_taken(to, bytes.len());
                is_quiet &= bytes.is_empty();
                self.tell(to.0, StreamInput::Bytes(&bytes));
            }
        }
        is_quiet
    }

    fn tell(&mut self, id: u8, input: StreamInput<'_>) {
        let now = self.now;
        self.node_mut(id).handle_stream(now, NodeId(1 - id), input).expect("the streams are sound");
    }
}

fn with(transport: Transport) -> Options {
    Options { transport, ..Options::default() }
}

fn takes_over(cluster: &mut Cluster) {
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
}

#[test]
fn a_connection_goes_on_through_the_other_node_whatever_told_of_it() {
    for (name, transport) in Transport::ALL {
        let mut cluster = Cluster::start(with(transport));
        let seen_port = cluster.connect(40_000);
        exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
        assert_eq!(cluster.connections(1), 1, "{name}: the standby has a copy");
        takes_over(&mut cluster);
        exchange(&mut cluster, 40_000, seen_port, 1_000_009, 2_000_007);
    }
}

#[test]
fn a_node_that_comes_back_is_told_everything_whatever_tells_it() {
    for (name, transport) in Transport::ALL {
        let mut cluster = Cluster::start(with(transport));
        let seen_port = cluster.connect(40_000);
        cluster.kill(1);
        cluster.run(Duration::from_secs(2));
        cluster.restart(1);
        cluster.run_until("node 1 to know everything", |cluster| cluster.is_settled() && cluster.connections(1) == 1);
        takes_over(&mut cluster);
        exchange(&mut cluster, 40_000, seen_port, 1001, 5001);
        assert_eq!(cluster.connections(1), 1, "{name}");
    }
}

/// The messages of the handshake are lost on their way, and the link is sound again before the node dies.
#[test]
fn what_is_lost_once_is_made_good_by_the_native_protocol_and_not_by_plain_datagrams() {
    for (transport, survives) in [(Transport::Native, true), (Transport::Udp, false)] {
        let mut cluster = Cluster::start(with(transport));
        cluster.is_replication_cut = true;
        cluster.connect(40_000);
        cluster.is_replication_cut = false;
        cluster.run(Duration::from_millis(500));
        takes_over(&mut cluster);
        cluster.client_sends(40_000, segment(ACK, 1001, 5001), b"question");
        assert_eq!(cluster.server_receives().is_some(), survives, "{transport:?}");
    }
}

#[test]
fn a_first_reply_does_not_wait_where_nobody_acknowledges() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let options = Options { hold_first_reply: Duration::from_millis(250), ..with(transport) };
        let mut cluster = Cluster::start(options);
        cluster.is_replication_cut = true;
        cluster.client_sends(40_000, syn(), b"");
        let seen = cluster.server_receives().expect("the SYN passes").tuple;
        cluster.server_sends(seen.source_port, syn_ack(), b"");
        let answer = cluster.client_receives().expect("the SYN/ACK passes at once");
        assert_eq!(answer.tuple.destination_ip(), CLIENT);
    }
}

#[test]
fn a_datagram_has_no_place_where_streams_are_spoken() {
    let mut cluster = Cluster::start(with(Transport::Tcp));
    let now = cluster.now;
    let refused = cluster.node_mut(0).handle_replication(now, NodeId(1), &[0xf1; 40]).unwrap_err();
    assert!(matches!(&refused, NodeError::Replication(_)) && refused.to_string().contains("replication.transport"));
    let status = cluster.node(0).status(now);
    assert_eq!(status.peers[0].session.map(|session| session.link), Some(Link::Open));
}
