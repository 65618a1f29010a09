//! Frames of the node's own making, sent together.

use cluster::node::{Node, Transmit};
use flow::{BATCH_FRAMES_MAX, Checksum, Disposition, Frame, Instant, PacketBatch, PortId, Segmentation};
use packet_io::PacketIo;

/// A frame that the node gave out, in a buffer that is used again.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    port: PortId,
    checksum: Checksum,
    segmentation: Segmentation,
}

impl Outgoing {
    fn frame(&mut self) -> Option<Frame<'_>> {
        let length_bytes = self.bytes.len();
        let mut frame = Frame::new(&mut self.bytes, 0, length_bytes, self.port)?;
        (frame.checksum, frame.segmentation) = (self.checksum, self.segmentation);
        frame.disposition = Disposition::Transmit(self.port);
        Some(frame)
    }
}

/// Sends what a node gives out. First replies that waited are set free many at a time.
#[derive(Default)]
pub(super) struct FrameSender {
    frames: Vec<Outgoing>,
}

impl FrameSender {
    /// Sends all that the node has now. A failure is counted by the port; the protocols retransmit what is missing.
    pub(super) fn send_all(&mut self, now: Instant, node: &mut Node, ports: &mut dyn PacketIo) {
        loop {
            let filled = self.fill(now, node);
            let mut batch: PacketBatch<'_> = self.frames[..filled].iter_mut().filter_map(Outgoing::frame).collect();
            match &mut batch[..] {
                [] => {}
                [only] => {
                    if let Disposition::Transmit(port) = only.disposition {
                        let _ = ports.transmit(port, only);
                    }
                }
                _ => ports.transmit_batch(&mut batch),
            }
            if filled < BATCH_FRAMES_MAX {
                return;
            }
        }
    }

    /// Takes frames from the node, at most a batch.
    fn fill(&mut self, now: Instant, node: &mut Node) -> usize {
        for number in 0..BATCH_FRAMES_MAX {
            if number == self.frames.len() {
                self.frames.push(Outgoing::default());
            }
            let outgoing = &mut self.frames[number];
            match node.poll_frame(now, &mut outgoing.bytes) {
                Some(Transmit::Port { port, checksum, segmentation }) => {
                    (outgoing.port, outgoing.checksum, outgoing.segmentation) = (port, checksum, segmentation);
                }
                _ => return number,
            }
        }
        BATCH_FRAMES_MAX
    }
}
