//! A packet's way through the node: in from a port, another worker, the tunnel, or a place where it was held, and out.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use flow::{BATCH_FRAMES_MAX, Instant, OwnedFrame, PacketBatch, Tuple};

use super::Node;
use super::event::NodeEvent;
use super::outbox::Transmit;
use super::peer::Peer;
use super::ports::Ports;
use crate::forwarding::OutFrame;
use crate::pipeline::{FastPathProgram, HandedFrame, Origin, PacketPath, Released};

impl Node {
    /// Handles a batch of packets to completion: each frame's disposition is decided when this returns. Poll the
    /// datagrams for the peers *before* sending the frames: then the backup knows of a connection before its packets
    /// are on the wire.
    pub fn handle_packets(&mut self, now: Instant, batch: &mut PacketBatch<'_>) {
        let began_at_ns = self.pipeline.observation_mut().latency.begin_batch();
        self.service_gap.note_packets(now, &mut self.roles, &mut self.replication.peers);
        // After a stall, connections may go on at a peer that took the addresses: none begins here until the peer has answered.
        self.pipeline.set_begins(!self.roles.is_unconfirmed(now));
        self.handle_batch(now, batch, Origin::PORT);
        self.serve_tunnel(now);
        if let Some(began_at_ns) = began_at_ns {
            self.pipeline.observation_mut().latency.end_batch(began_at_ns, batch.len());
        }
    }

    /// As [`Node::handle_packets`], for frames that another worker handed over.
    pub fn handle_handed_over(&mut self, now: Instant, batch: &mut PacketBatch<'_>) {
        self.pipeline.count_taken(batch.len());
        self.handle_batch(now, batch, Origin::STEERED);
    }

    /// The next frame for another worker. To be polled after every call that handles packets or time, until there is none.
    pub fn poll_handed_over(&mut self) -> Option<HandedFrame> {
        self.pipeline.poll_handed_over()
    }

    /// As [`Node::poll_transmit`], only frames for the node's own ports.
    pub fn poll_frame(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let ours = self.capabilities();
        let worker = self.place().worker;
        let path_frame = self.replication.peers.poll_path_frame(now, (ours, worker), &mut self.forwarder, buffer);
        let path_frame = path_frame.or_else(|| self.poll_path_update(now, buffer));
        let own_frame = path_frame.or_else(|| self.poll_edge_frame(now, buffer));
        match own_frame.or_else(|| self.forwarder.poll_transmit(now, buffer)) {
            Some(out) => {
                Some(Transmit::Port { port: out.port, checksum: out.checksum, segmentation: out.segmentation })
            }
            None => self.outbox.poll(buffer),
        }
    }

    /// The next frame over a service path with updates for a peer whose replication path is down.
    fn poll_path_update(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<OutFrame> {
        let (claims_all, worker) = (self.claims_all(), self.place().worker);
        let Self { replication, pipeline, forwarder, .. } = self;
        let bytes_max = |port| forwarder.path_datagram_bytes_max(port);
        let (id, route) = replication.poll_path_update(now, pipeline, claims_all, bytes_max, buffer)?;
        let mut datagram = core::mem::take(buffer);
        let frame = replication.peers.seal_into_frame(now, (id, route), &mut datagram, worker, forwarder, buffer);
        // A datagram that finds no way is lost, as the network may lose it.
        frame.or_else(|| self.poll_path_update(now, buffer))
    }

    /// The pipeline handles the batch; what it changed is replicated, and what it set free is reinjected.
    fn handle_batch(&mut self, now: Instant, batch: &mut PacketBatch<'_>, origin: Origin) {
        self.pipeline.set_live_owners(self.replication.peers.live_owners());
        self.run_pipeline(now, batch, origin, true);
        self.take_path_frames(now);
        self.finish_batch(now);
        if let Some(fragments) = self.pipeline.take_released_fragments() {
            self.reinject(now, fragments, Origin::STEERED);
        }
    }

    /// Lends the pipeline its ports for a batch. `holds`: first replies may be held, which they may not be twice.
    fn run_pipeline(&mut self, now: Instant, batch: &mut PacketBatch<'_>, origin: Origin, holds: bool) {
        let mut ports = Ports {
            forwarder: &mut self.forwarder,
            replication: &self.replication,
            held: holds.then_some(&mut self.held),
            hold_max: self.replication.hold_first_reply,
            tunnel: self.tunnel.as_deref_mut(),
        };
        self.pipeline.handle_batch(now, batch, origin, &mut ports);
    }

    fn finish_batch(&mut self, now: Instant) {
        self.replication.replicate_changes(now, &mut self.pipeline);
        self.install_in_fast_path(now);
        if self.awaiting_first_packet.is_some_and(|before| self.pipeline.counters().taken_over > before) {
            self.awaiting_first_packet = None;
            self.events.push(now, NodeEvent::FirstPacketAfterTakeOver);
        }
    }

    /// Installs connections in the fast path whose backups have them.
    fn install_in_fast_path(&mut self, now: Instant) {
        let Self { pipeline, replication, forwarder, .. } = self;
        pipeline.install_in_fast_path(now, forwarder, |slot| replication.is_backed_up(slot));
    }

    /// The path of a connection's packets, by its original tuple. `None`: there is no fast path, or no such connection.
    #[must_use]
    pub fn packet_path(&self, now: Instant, original: &Tuple) -> Option<PacketPath> {
        self.pipeline.packet_path(now, original, &self.forwarder, |slot| self.replication.is_backed_up(slot))
    }

    /// Hands frames that were held to the pipeline once more, with the fragments that they set free; they leave by the outbox.
    pub(super) fn reinject(&mut self, now: Instant, frames: Vec<OwnedFrame>, origin: Origin) {
        let mut next = Some((frames, origin));
        while let Some((mut frames, origin)) = next {
            for part in frames.chunks_mut(BATCH_FRAMES_MAX) {
                let mut batch: PacketBatch<'_> = part.iter_mut().map(OwnedFrame::frame).collect();
                self.run_pipeline(now, &mut batch, origin, false);
                self.outbox.post(&batch, &mut self.pipeline);
            }
            next = self.pipeline.take_released_fragments().map(|fragments| (fragments, Origin::STEERED));
        }
        self.finish_batch(now);
    }

    /// Reinjects first replies whose connection the backups have acknowledged, or whose time is over.
    pub(super) fn reinject_replies(&mut self, now: Instant) {
        if !self.held.is_empty() {
            let replication = &self.replication;
            let replies = self.held.release(now, |slot| replication.is_backed_up(slot));
            self.reinject(now, replies, Origin::STEERED);
        }
    }

    /// Reinjects packets whose connections a peer has replicated, or that have waited long enough for that.
    pub(super) fn reinject_waiting(&mut self, now: Instant) {
        for Released { origin, frame } in self.pipeline.take_released(now) {
            self.reinject(now, vec![frame], origin);
        }
    }

    /// An answer has come that a function waits for: the category of a host. Packets that wait for one are handled once more.
    pub fn handle_answer(&mut self, now: Instant) {
        self.pipeline.note_answered();
        self.reinject_waiting(now);
    }

    /// Something below the node forwards packets of established connections from now on, while the node is alive and active:
    /// see [`Node::beat_fast_path`]. What an earlier process left below goes on; its connections are taken over, and re-evaluated
    /// when the node is active: that process may have had other rules.
    pub fn set_fast_path(&mut self, now: Instant, program: Box<dyn FastPathProgram + Send>) {
        self.pipeline.set_fast_path(now, program);
        if !self.pipeline.table().is_empty() {
            self.reevaluation.require(true, &self.roles, &mut self.pipeline);
        }
    }

    /// The node is alive and has looked at what it received: to be called in each turn of the loop that drives it. The fast path
    /// stops when this was not called for long.
    pub fn beat_fast_path(&mut self, now: Instant) {
        let is_alone = self.is_alone();
        self.pipeline.set_fast_path_groups(self.roles.forwarded(), is_alone);
        self.pipeline.beat_fast_path(now, is_alone);
    }

    /// Whether something below the node forwards established connections for a while after it has ended: no peer is there to.
    #[must_use]
    pub fn is_outlasted_by_fast_path(&self) -> bool {
        self.is_alone() && self.pipeline.fast_path_outlasts_node()
    }

    /// No peer is alive.
    pub(super) fn is_alone(&self) -> bool {
        !self.replication.peers.iter().any(Peer::is_up)
    }

    /// Does what the tunnel has to do: what came out of it is handled, and its datagrams are sent.
    pub(super) fn serve_tunnel(&mut self, now: Instant) {
        // Meanwhile it is not among the ports: what comes out of a tunnel does not go into it again.
        let Some(mut tunnel) = self.tunnel.take() else { return };
        if let Some(egress) = tunnel.handle_timeout(now, &self.forwarder) {
            loop {
                let mut frames = tunnel.poll_frames(egress);
                if frames.is_empty() {
                    break;
                }
                let mut batch: PacketBatch<'_> = frames.iter_mut().map(OwnedFrame::frame).collect();
                self.run_pipeline(now, &mut batch, Origin::PORT, true);
                self.outbox.post(&batch, &mut self.pipeline);
                self.finish_batch(now);
                if let Some(fragments) = self.pipeline.take_released_fragments() {
                    self.reinject(now, fragments, Origin::STEERED);
                }
            }
            tunnel.send_datagrams(now, egress, &mut self.forwarder, &mut self.outbox, &mut self.pipeline);
        }
        self.tunnel = Some(tunnel);
    }
}
