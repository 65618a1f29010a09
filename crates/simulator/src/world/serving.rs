//! Processes a node's input and timeouts in the daemon's order: failure detection, replication, packets, then timeouts.

use std::time::Duration;

use cluster::node::{Node, NodeError, NodeEvent, Transmit};
use flow::{Disposition, Frame, Instant, NodeId, PacketBatch, PortId};

use super::{World, view};
use crate::report::Problem;
use crate::schedule::Event;
use crate::trace::{describe, fingerprint};
use crate::{Sabotage, sabotage};

/// The maximum number of immediate timeouts of a node before it counts as spinning.
const TURNS_MAX: u32 = 200;
/// The TTL that a failure detector must see on its packets (RFC 5881 section 5).
const DETECTION_TTL: u8 = 255;
/// The time for which a node gathers frames after the first one.
const SERVICE_DELAY_NANOS_MAX: u64 = 30_000;
/// The maximum number of datagrams of a socket that the daemon processes in a row.
const DATAGRAMS_PER_TURN_MAX: usize = 256;

impl World<'_> {
    /// The time of a node's clock.
    pub(super) fn own_now(&self, node: usize) -> Instant {
        self.machines[node].clock.own(self.now)
    }

    pub(super) fn queue_for_node(&mut self, node: usize, port: PortId, bytes: Vec<u8>) {
        let machine = &mut self.machines[node];
        if machine.node.is_none() || machine.ports[usize::from(port.0)].is_down {
            return;
        }
        machine.inbox.put_frame(port, bytes);
        self.serve_soon(node);
    }

    pub(super) fn queue_datagram(&mut self, node: usize, is_detection: bool, bytes: Vec<u8>) {
        let machine = &mut self.machines[node];
        if machine.node.is_none() {
            return;
        }
        if machine.is_prompt() {
            self.deliver_datagram(node, is_detection, &bytes);
            self.settle(node);
        } else {
            machine.inbox.put_datagram(is_detection, bytes);
            self.serve_soon(node);
        }
    }

    /// Schedules a node to process its input, unless it is about to, or is paused.
    fn serve_soon(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if machine.is_serving || machine.is_paused {
            return;
        }
        machine.is_serving = true;
        let lag_nanos = u64::try_from(machine.lag.as_nanos()).unwrap_or(u64::MAX);
        let delay_nanos = match lag_nanos {
            0 => self.random.between(0, SERVICE_DELAY_NANOS_MAX),
            _ => self.random.between(lag_nanos / 4, lag_nanos),
        };
        self.schedule.add(self.now + Duration::from_nanos(delay_nanos), Event::NodeServe { node });
    }

    pub(super) fn handle_timer(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if machine.timer_at != Some(self.now) {
            return;
        }
        machine.timer_at = None;
        if machine.is_prompt() {
            self.settle(node);
        } else {
            self.serve_soon(node);
        }
    }

    /// Processes a node's input, a part at a time, and its timeouts.
    pub(super) fn serve(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        machine.is_serving = false;
        if machine.is_paused || machine.node.is_none() {
            return;
        }
        loop {
            self.take_datagrams(node);
            self.take_frames(node);
            self.settle(node);
            if self.machines[node].node.is_none() || self.machines[node].inbox.is_empty() {
                return;
            }
        }
    }

    fn take_datagrams(&mut self, node: usize) {
        for is_detection in [true, false] {
            for _ in 0..DATAGRAMS_PER_TURN_MAX {
                let inbox = &mut self.machines[node].inbox;
                let queue = if is_detection { &mut inbox.detection } else { &mut inbox.replication };
                let Some(bytes) = queue.pop_front() else { break };
                self.deliver_datagram(node, is_detection, &bytes);
            }
        }
    }

    /// Processes frames, a batch at a time, and sends the output: datagrams to the peer first.
    fn take_frames(&mut self, node: usize) {
        let now = self.own_now(node);
        let mut frames: Vec<_> = self.machines[node].inbox.frames.drain(..).collect();
        for part in frames.chunks_mut(flow::BATCH_FRAMES_MAX) {
            let Some(value) = &mut self.machines[node].node else { return };
            let mut batch = PacketBatch::new();
            for (port, bytes) in part.iter_mut() {
                let length_bytes = bytes.len();
                batch.extend(Frame::new(bytes, 0, length_bytes, *port));
            }
            value.handle_packets(now, &mut batch);
            let sent: Vec<_> = batch.iter().map(|frame| (frame.disposition, frame.bytes().to_vec())).collect();
            self.poll_node(node);
            for (disposition, bytes) in sent {
                let line = || format!("node {node} {disposition:?}: {}", describe(&bytes));
                self.trace.note(self.now, fingerprint(&bytes), line);
                if let Disposition::Transmit(port) = disposition {
                    self.send_from_node(node, port, bytes);
                }
            }
        }
    }

    fn deliver_datagram(&mut self, node: usize, is_detection: bool, bytes: &[u8]) {
        let now = self.own_now(node);
        let machine = &mut self.machines[node];
        let Some(value) = &mut machine.node else { return };
        let from = NodeId(1 - node as u8);
        let result = if is_detection {
            value.handle_detection(now, from, bytes, DETECTION_TTL)
        } else {
            self.checkers.before_datagram(node, value);
            let bytes = match self.options.sabotage {
                Some(Sabotage::AppliedOtherVersions) => crate::dialect::in_any_version(bytes),
                Some(Sabotage::RepeatedReports) => {
                    crate::dialect::in_changing_version(machine.interpreter.incoming(bytes), self.outcome.events)
                }
                _ => machine.interpreter.incoming(bytes),
            };
            value.handle_replication(now, from, &bytes)
        };
        self.trace.note(self.now, fingerprint(bytes), || {
            let channel = if is_detection { "detection" } else { "replication" };
            format!("node {node} gets {} bytes of {channel}: {result:?}", bytes.len())
        });
        if !is_detection {
            self.after_replication(node, now, &result);
        }
    }

    fn after_replication(&mut self, node: usize, now: Instant, result: &Result<(), NodeError>) {
        if self.options.sabotage == Some(Sabotage::StaleUpdates)
            && let Some(value) = &mut self.machines[node].node
        {
            sabotage::apply_stale_replica(node, value, &self.checkers.order, now);
        }
        if let Err(NodeError::Replication(replication::PeerError::Incompatible { .. })) = result {
            self.checkers.versions.refused(self.now, node, &mut self.outcome);
        }
        self.checkers.after_datagram(self.now, node, &self.machines[node].node, &mut self.outcome);
    }

    /// Processes a node's timeouts, sends its output, and sets its next timer.
    pub(super) fn settle(&mut self, node: usize) {
        let now = self.own_now(node);
        // Timeouts come before output, as in the daemon.
        if let Some(value) = &mut self.machines[node].node
            && value.poll_timeout().is_some_and(|at| at <= now)
        {
            value.handle_timeout(now);
        }
        self.poll_node(node);
        let mut turns = 0;
        loop {
            let Some(value) = &mut self.machines[node].node else { return };
            let due = value.poll_timeout();
            let Some(at) = due.filter(|at| *at <= now) else { break };
            value.handle_timeout(now);
            self.poll_node(node);
            turns += 1;
            if turns > TURNS_MAX {
                let problem = format!("node {node} requests a timeout at {at:?} repeatedly");
                self.outcome.problem(self.now, Problem::Spinning, problem);
                self.machines[node].node = None;
                return;
            }
        }
        let machine = &mut self.machines[node];
        if let Some(at) = machine.due().filter(|at| machine.timer_at.is_none_or(|set| *at < set)) {
            machine.timer_at = Some(at);
            self.schedule.add(at, Event::NodeTimer { node });
        }
        let view = view(self.scenario, &self.hosts, &self.machines);
        self.checkers.after_step(self.now, node, &view, &mut self.outcome);
        self.note_role(node);
    }

    /// Notifies the checkers when a node takes or releases the addresses.
    fn note_role(&mut self, node: usize) {
        let holds = self.machines[node].node.as_ref().is_some_and(Node::holds_addresses);
        if holds != self.machines[node].holds {
            self.machines[node].holds = holds;
            let view = view(self.scenario, &self.hosts, &self.machines);
            self.checkers.role_changed(self.now, node, holds, &view, &mut self.outcome);
        }
    }

    pub(super) fn poll_node(&mut self, node: usize) {
        let now = self.own_now(node);
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(value) = &mut self.machines[node].node
            && let Some(transmit) = value.poll_transmit(now, &mut buffer)
        {
            match transmit {
                Transmit::Port { port, .. } => {
                    let line = || format!("node {node} sends of its own: {}", describe(&buffer));
                    self.trace.note(self.now, fingerprint(&buffer), line);
                    self.send_from_node(node, port, buffer.clone());
                }
                Transmit::Replication(_) => self.send_datagram(node, false, &buffer),
                Transmit::Detection(_) => self.send_datagram(node, true, &buffer),
            }
        }
        self.buffer = buffer;
        while let Some((_, event)) = self.machines[node].node.as_mut().and_then(Node::poll_event) {
            self.outcome.count(event);
            if let NodeEvent::ReplicaIncomplete(_) = event {
                self.checkers.survival.ran_full(node);
            }
            self.trace
                .note(self.now, fingerprint(format!("{event:?}").as_bytes()), || format!("node {node}: {event:?}"));
        }
    }
}
