//! Packets through the node's pipeline and through an edge, a ring at a time.

use config::edge::RecoveryPolicy;
use flow::wire::tcp_flags;
use flow::{Direction, IpFamily};
use network_functions::chain::Chain;

use super::operation::{Made, Operation};
use crate::bench::BenchError;
use crate::bench::edge::subject::{MeasuredEdge, SHORT_FRAME_BYTES};
use crate::bench::pipeline::gateway::Gateway;
use crate::bench::pipeline::replicated::Replicated;
use crate::bench::pipeline::setting::{self, FIREWALL_RULES};
use crate::bench::pipeline::traffic::{Flow, RING_FRAMES, Ring, Traffic};

/// Connections in the tables: the number of instructions does not depend on it.
const CONNECTIONS: u32 = 2048;
/// Rings that pass before, so that the way of every connection is planned in both directions.
const RINGS_BEFORE: u64 = 32;
const RING_PACKETS: u64 = RING_FRAMES as u64;

/// Data packets of established connections.
struct Established {
    gateway: Gateway,
    traffic: Traffic,
    ring: Ring,
}

impl Established {
    fn operation(mut gateway: Gateway, family: IpFamily) -> Made {
        let (mut traffic, mut ring) = (Traffic::new(family, CONNECTIONS), Ring::new());
        gateway.establish(&mut traffic, &mut ring)?;
        gateway.pass(&mut traffic, &mut ring, RINGS_BEFORE * RING_PACKETS)?;
        Ok(Some(Box::new(Self { gateway, traffic, ring })))
    }

    /// Each packet passes the chain.
    fn through(chain: Chain) -> Made {
        Self::operation(Gateway::with_chain(CONNECTIONS, chain).without_plans(), IpFamily::V4)
    }
}

impl Operation for Established {
    fn times(&self) -> u64 {
        RING_PACKETS
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        self.traffic.fill(&mut self.ring, RING_PACKETS);
        Ok(())
    }

    fn run(&mut self) -> Result<(), BenchError> {
        self.gateway.handle(&mut self.ring).map(|_| ())
    }
}

/// Data packets each of which has its connection sent to a peer.
struct EachReplicated {
    gateway: Gateway,
    traffic: Traffic,
    ring: Ring,
    replicated: Replicated,
    /// The connections of the packets in the ring.
    numbers: Vec<u32>,
    /// Datagrams to the peer that it has not answered.
    sent: usize,
}

impl Operation for EachReplicated {
    fn times(&self) -> u64 {
        RING_PACKETS
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        self.replicated.receive_answers(self.gateway.now, &self.gateway.pipeline, self.sent);
        self.numbers = self.traffic.fill(&mut self.ring, RING_PACKETS);
        Ok(())
    }

    fn run(&mut self) -> Result<(), BenchError> {
        let mut batches = self.ring.batches();
        self.sent = self.replicated.handle(&mut self.gateway, &mut batches, &self.numbers);
        Ok(())
    }
}

/// The part of a short connection that is measured.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// The client's SYN.
    First,
    /// The server's RST.
    Last,
}

/// Connections that begin and are refused.
struct Short {
    gateway: Gateway,
    ring: Ring,
    /// Those that have begun.
    flows: Vec<Flow>,
    begun: u32,
    part: Part,
}

impl Short {
    fn operation(part: Part) -> Made {
        let gateway = Gateway::new(CONNECTIONS, FIREWALL_RULES);
        Ok(Some(Box::new(Self { gateway, ring: Ring::new(), flows: Vec::new(), begun: 0, part })))
    }

    fn push_first(&mut self) {
        let numbers = self.begun..self.begun + RING_FRAMES as u32;
        self.begun = numbers.end;
        self.flows = numbers.map(|number| Flow::new(IpFamily::V4, number)).collect();
        Flow::push_all(&mut self.flows, &mut self.ring, Direction::Original, tcp_flags::SYN);
    }

    /// To be called when the first packets are in the ring as they left.
    fn push_last(&mut self) {
        Flow::set_all_outgoing(&mut self.flows, &mut self.ring);
        Flow::push_all(&mut self.flows, &mut self.ring, Direction::Reply, tcp_flags::RST | tcp_flags::ACK);
    }
}

impl Operation for Short {
    fn times(&self) -> u64 {
        RING_PACKETS
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        match self.part {
            Part::First => {
                if !self.flows.is_empty() {
                    self.push_last();
                    self.gateway.handle(&mut self.ring)?;
                }
                self.push_first();
            }
            Part::Last => {
                self.push_first();
                self.gateway.handle(&mut self.ring)?;
                self.push_last();
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), BenchError> {
        self.gateway.handle(&mut self.ring).map(|_| ())
    }
}

/// Data packets through an edge that holds unacknowledged segments.
struct AtEdge {
    edge: MeasuredEdge,
    traffic: Traffic,
    ring: Ring,
}

impl Operation for AtEdge {
    fn times(&self) -> u64 {
        RING_PACKETS
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        self.traffic.fill(&mut self.ring, RING_PACKETS);
        Ok(())
    }

    fn run(&mut self) -> Result<(), BenchError> {
        self.edge.handle(&mut self.ring).map(|_| ())
    }
}

pub(super) fn planned() -> Made {
    Established::operation(Gateway::new(CONNECTIONS, FIREWALL_RULES), IpFamily::V4)
}

/// Through firewall and source NAT, which rewrites addresses, ports and checksums.
pub(super) fn established() -> Made {
    Established::through(setting::chain(FIREWALL_RULES))
}

pub(super) fn established_ipv6() -> Made {
    Established::operation(Gateway::new(CONNECTIONS, FIREWALL_RULES).without_plans(), IpFamily::V6)
}

pub(super) fn balanced() -> Made {
    Established::through(setting::balanced_chain(FIREWALL_RULES))
}

pub(super) fn chain_of_five() -> Made {
    Established::through(setting::chain_of_five(FIREWALL_RULES))
}

pub(super) fn first() -> Made {
    Short::operation(Part::First)
}

pub(super) fn last() -> Made {
    Short::operation(Part::Last)
}

pub(super) fn replicated() -> Made {
    let (mut traffic, mut ring) = (Traffic::new(IpFamily::V4, CONNECTIONS), Ring::new());
    let mut gateway = Gateway::new(CONNECTIONS, FIREWALL_RULES);
    gateway.establish(&mut traffic, &mut ring)?;
    let mut replicated = Replicated::new(&mut gateway, &traffic)?;
    replicated.pass(&mut gateway, &mut traffic, &mut ring, RINGS_BEFORE * RING_PACKETS)?;
    Ok(Some(Box::new(EachReplicated { gateway, traffic, ring, replicated, numbers: Vec::new(), sent: 0 })))
}

pub(super) fn edge() -> Made {
    let (mut traffic, mut ring) = (Traffic::new(IpFamily::V4, CONNECTIONS), Ring::of_frames(SHORT_FRAME_BYTES));
    let mut edge = MeasuredEdge::new(CONNECTIONS, RecoveryPolicy::Always);
    edge.establish(&mut traffic, &mut ring)?;
    Ok(Some(Box::new(AtEdge { edge, traffic, ring })))
}
