//! Mainstay's pipeline in the kernel's place: no functions, and an edge that sends everything on.

use std::time::Duration;

use cluster::forwarding::Admission;
use cluster::pipeline::{Edge, Pipeline};
use flow::connection::flags;
use flow::conntrack::{ProtocolState, Timeouts, Tracker, TrackerConfig};
use flow::wire::{MacAddress, Packet};
use flow::{Direction, Disposition, DropReason, Frame, HashKey, Instant, NodeId, PacketBatch, PortId};
use network_functions::chain::ChainBuilder;

use crate::comparison::Options;
use crate::observation::{Connection, Lifetime, Observation};
use crate::segment::{Segment, tuple};

/// Far more than any run has.
const CONNECTIONS_MAX: u32 = 200_000;
const MACS: (MacAddress, MacAddress) = (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));

/// Takes every packet and sends it by the other port.
struct Onward;

impl Edge for Onward {
    fn handle_arp(&mut self, _: Instant, _: &mut Frame<'_>, _: u16) -> Disposition {
        Disposition::Consumed
    }

    fn admit(&mut self, _: Instant, _: &Packet<'_, '_>) -> Admission {
        Admission::Transit
    }

    fn handle_local(&mut self, _: Instant, _: &mut Packet<'_, '_>) -> Disposition {
        Disposition::Consumed
    }

    fn forward(&mut self, _: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        Disposition::Transmit(PortId(1 - packet.frame.ingress.0))
    }
}

/// The observation of a segment, and what only this side knows of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) observation: Observation,
    /// Why it was dropped, if it was.
    pub(crate) reason: Option<DropReason>,
    /// The connection before the segment, and the direction in which the segment goes on it.
    pub(crate) before: Option<(ProtocolState, Direction)>,
    /// The connection behind it.
    pub(crate) after: Option<ProtocolState>,
}

/// The pipeline, and the time that it is given.
pub(crate) struct Gateway {
    pipeline: Pipeline,
    now: Instant,
}

impl Gateway {
    pub(crate) fn new(options: Options) -> Self {
        let of = |lifetime: Lifetime| Duration::from_secs(lifetime.seconds());
        let timeouts = Timeouts {
            tcp_syn_sent: of(Lifetime::SynSent),
            tcp_syn_recv: of(Lifetime::SynRecv),
            tcp_established: of(Lifetime::Established),
            tcp_fin_wait: of(Lifetime::FinWait),
            tcp_close_wait: of(Lifetime::CloseWait),
            tcp_last_ack: of(Lifetime::LastAck),
            tcp_time_wait: of(Lifetime::TimeWait),
            tcp_close: of(Lifetime::Close),
            tcp_syn_sent2: of(Lifetime::SynSent2),
            tcp_retransmission: of(Lifetime::Retransmission),
            tcp_unacknowledged: of(Lifetime::Unacknowledged),
            ..Timeouts::default()
        };
        let tracker = Tracker::new(TrackerConfig {
            timeouts,
            loose: options.loose,
            liberal: options.liberal,
            ..TrackerConfig::default()
        });
        let chain = ChainBuilder::new().build().expect("no functions always go together");
        let pipeline = Pipeline::new(NodeId(0), CONNECTIONS_MAX, HashKey([1, 2]), tracker, chain);
        Self { pipeline, now: Instant::from_millis(1000) }
    }

    /// Hands in one segment of an exchange.
    pub(crate) fn handle(&mut self, exchange: u32, segment: &Segment) -> Outcome {
        self.now = self.now + Duration::from_micros(20);
        let before = self.record(exchange, segment.direction).map(|(record, direction)| (record.protocol, direction));
        let begun = self.pipeline.counters().begun;

        let mut bytes = segment.frame(exchange, MACS, 0);
        let length_bytes = bytes.len();
        let ingress = PortId(segment.direction.index() as u8);
        let mut batch = PacketBatch::new();
        batch.push(Frame::new(&mut bytes, 0, length_bytes, ingress).expect("it is all of its buffer"));
        self.pipeline.handle_packets(self.now, &mut batch, &mut Onward);
        let disposition = batch[0].disposition;
        let changes = self.pipeline.take_changes();
        self.pipeline.return_changes(changes);

        let reason = match disposition {
            Disposition::Drop(reason) => Some(reason),
            _ => None,
        };
        let observation = if reason.is_some() {
            Observation::Invalid
        } else if self.pipeline.counters().begun > begun {
            Observation::Passed(Connection::Began)
        } else {
            Observation::Passed(self.connection(exchange, segment.direction))
        };
        let after = self.record(exchange, segment.direction).map(|(record, _)| record.protocol);
        Outcome { observation, reason, before, after }
    }

    /// The connection of an exchange, and which way the segments of a direction go on it.
    fn record(&self, exchange: u32, direction: Direction) -> Option<(&flow::Connection, Direction)> {
        let table = self.pipeline.table();
        let tuple = tuple(exchange, direction);
        let (slot, direction) = table.lookup(table.hash(&tuple), &tuple)?;
        Some((table.get(slot)?, direction))
    }

    fn connection(&self, exchange: u32, direction: Direction) -> Connection {
        let Some((connection, direction)) = self.record(exchange, direction) else { return Connection::Ended };
        let rest = connection.expires_at().saturating_since(self.now);
        Connection::GoesOn {
            is_reply: direction == Direction::Reply,
            is_replied: connection.flags & flags::REPLIED != 0,
            is_assured: connection.flags & flags::ASSURED != 0,
            lifetime: Lifetime::of_rest(rest.as_secs()),
        }
    }
}
