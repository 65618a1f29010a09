//! What replication costs on its link: frames of the nodes' replication port, counted as they arrive at a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flow::wire::{Parsed, ip_protocol, parse};
use flow::{Disposition, Frame};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::{IoError, PacketIo};

use super::topology::{INTERFACES, Topology};

/// How long is waited until it is looked again when nothing has come: the sockets hold far more.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// What has come so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// Frames.
    pub frames: u64,
    /// Their bytes, from the link header on.
    pub bytes: u64,
}

#[derive(Default)]
struct Counted {
    frames: AtomicU64,
    bytes: AtomicU64,
    has_ended: AtomicBool,
}

/// A meter on the replication link. Dropping it ends its thread.
pub struct Meter {
    counted: Arc<Counted>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    /// Counts the datagrams between the nodes from now on, those to or from `port`.
    ///
    /// # Errors
    /// The link cannot be listened to.
    pub fn start(topology: &Topology, port: u16) -> Result<Self, IoError> {
        let listen = |node: &packet_io::namespace::Namespace| -> Result<AfPacketIo, IoError> {
            node.run(|| AfPacketIo::open(&[PortConfig::new(INTERFACES[2])]))?
        };
        let mut ends = topology.nodes.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
        let counted = Arc::new(Counted::default());
        let thread = thread::spawn({
            let counted = Arc::clone(&counted);
            move || {
                while !counted.has_ended.load(Ordering::Relaxed) {
                    // A link whose node is dead has nothing to count; what fails now works the next time or never.
                    let came: usize = ends.iter_mut().map(|end| look(end, port, &counted).unwrap_or_default()).sum();
                    if came == 0 {
                        thread::sleep(POLL_INTERVAL);
                    }
                }
            }
        });
        Ok(Self { counted, thread: Some(thread) })
    }

    /// What has come so far.
    #[must_use]
    pub fn read(&self) -> Reading {
        Reading {
            frames: self.counted.frames.load(Ordering::Relaxed),
            bytes: self.counted.bytes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.counted.has_ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has no error beside those of reading.
            let _ = thread.join();
        }
    }
}

fn look(end: &mut AfPacketIo, port: u16, counted: &Counted) -> Result<usize, IoError> {
    end.poll(&mut |batch| {
        for frame in batch.iter_mut() {
            frame.disposition = Disposition::Consumed;
            if is_of(frame, port) {
                counted.frames.fetch_add(1, Ordering::Relaxed);
                counted.bytes.fetch_add(frame.bytes().len() as u64, Ordering::Relaxed);
            }
        }
    })
}

fn is_of(frame: &Frame<'_>, port: u16) -> bool {
    let Ok(Parsed::Ip(headers)) = parse(frame) else { return false };
    let tuple = headers.tuple;
    tuple.protocol == ip_protocol::UDP && (tuple.source_port == port || tuple.destination_port == port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::wire::build;
    use flow::{PortId, Tuple};

    #[test]
    fn only_datagrams_of_the_replication_port_count() {
        let is_counted = |from: u16, to: u16| {
            let tuple = Tuple::v4(ip_protocol::UDP, ([10, 99, 0, 1].into(), from), ([10, 99, 0, 2].into(), to));
            let mut bytes = build::udp(&tuple, b"message");
            let length_bytes = bytes.len();
            is_of(&Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap(), 3781)
        };
        assert!(is_counted(3781, 3781) && is_counted(5000, 3781) && is_counted(3781, 5000));
        assert!(!is_counted(49152, 3784), "failure detection");
    }
}
