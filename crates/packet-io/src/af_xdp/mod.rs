//! Real interfaces through `AF_XDP` sockets (Documentation/networking/af_xdp.rst): frames bypass the kernel.
//!
//! A program of six instructions in the driver passes every frame of the interface to a socket, one for each queue. All
//! queues of all ports share one memory, so a forwarded frame moves as a number from one ring to another, without a
//! copy. It needs Linux 5.10.
//!
//! Limits:
//! * Segmentation and checksum offload are unavailable. Frames are [`flow::Checksum::Unverified`] and never exceed the
//! MTU; bulk TCP over virtual links is faster with [`crate::af_packet`].
//! * Checksums must be complete on the wire. On a virtual cable (veth), switch off the transmit checksum offload of the
//! *other* end ([`crate::interface::set_offload`]); otherwise ping works and TCP does not.
//! * The kernel sees none of the frames: the node uses such an interface exclusively, for local addresses, too.
//! * VLAN tags that the hardware strips are lost: switch stripping off where frames are tagged.

mod attached;
mod busy;
mod memory;
mod program;
mod ring;
mod socket;

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use flow::wire::checksum::complete_partial;
use flow::{BATCH_FRAMES_MAX, Checksum, Disposition, Frame, Instant, PacketBatch, PortId, SegmentationKind};

use crate::{IoError, PacketIo, PortCounters, TransmitFailure, clock};

pub use attached::{AttachedPort, Fallback, PortConfig};
pub use memory::MTU_BYTES_MAX;
pub use program::{AttachMode, Attachment};

use memory::{LINK_BYTES_MAX, Memory, chunk_bytes_for};
use socket::{Binding, CHUNKS_PER_QUEUE, Queue};

/// The maximum number of ports of a node: a port's number is a byte.
pub const PORTS_MAX: usize = 256;
/// The maximum number of queues of all ports together: with chunks of a page, half a gigabyte of memory.
pub const QUEUES_MAX: usize = 32;
/// The interval of checks whether interfaces are up.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A port: the interface, its opened queues, and its counters.
struct Port {
    attached: Arc<AttachedPort>,
    queues: Range<usize>,
    frame_bytes_max: usize,
    is_down: bool,
    counters: PortCounters,
}

/// The result of processing a frame, kept after the batch has returned the memory.
struct Settled {
    address: u64,
    length_bytes: usize,
    disposition: Disposition,
    checksum: Checksum,
    is_segmented: bool,
}

/// Real interfaces as a node's ports, each queue with a separate socket.
///
/// An interface that goes down is detected and reused when it is up. A deleted one loses its sockets permanently: the
/// port stays down until the ports are opened again.
pub struct AfXdpIo {
    // Before the memory, so that the sockets are closed before it is unmapped.
    queues: Vec<Queue>,
    /// The port of each queue.
    ports_of_queues: Vec<usize>,
    memory: Memory,
    ports: Vec<Port>,
    copy_fallback: Option<Fallback>,
    look_at: Instant,
}

impl AfXdpIo {
    /// Opens the ports, numbered in the order given, with all their queues.
    ///
    /// # Errors
    /// An interface cannot be opened (see [`AttachedPort::attach`]), a queue belongs to another program, there are more
    /// than [`PORTS_MAX`] ports or [`QUEUES_MAX`] queues, or memory is short.
    pub fn open(configs: &[PortConfig]) -> Result<Self, IoError> {
        let attached = configs.iter().map(AttachedPort::attach).collect::<Result<Vec<_>, _>>()?;
        let shares: Vec<_> = attached.into_iter().map(|port| (Arc::clone(&port), 0..port.queues())).collect();
        Self::open_shares(&shares)
    }

    /// Opens the named queues of each port, for a worker that shares the ports with others. Ports are numbered in the
    /// given order; a port with an empty share can neither receive nor send.
    ///
    /// # Errors
    /// As [`AfXdpIo::open`].
    pub fn open_shares(shares: &[(Arc<AttachedPort>, Range<u32>)]) -> Result<Self, IoError> {
        let count: usize = shares.iter().map(|(_, queues)| queues.len()).sum();
        if shares.len() > PORTS_MAX || count > QUEUES_MAX {
            return Err(IoError::Misuse(format!(
                "{} ports with {count} queues are too many: at most {PORTS_MAX} with {QUEUES_MAX} (ethtool -L lowers the \
                 number of queues)",
                shares.len()
            )));
        }
        let allow_zero_copy = shares.iter().all(|(port, _)| port.config.allow_zero_copy);
        let is_generic = shares.iter().any(|(port, _)| port.attachment.mode() == AttachMode::Generic);
        let copy = !allow_zero_copy || is_generic;
        let opened = Self::open_sharing(shares, count, copy);
        let mut io = match opened {
            // The first queue supports zero-copy, and another does not: all must use the same mode.
            Err((_, error)) if !copy && matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {
                let mut io = Self::open_sharing(shares, count, true).map_err(|failed| explain(shares, failed))?;
                io.copy_fallback = Some(Fallback::Copy(Some(error)));
                io
            }
            opened => opened.map_err(|failed| explain(shares, failed))?,
        };
        if allow_zero_copy && io.copy_fallback.is_none() && !io.queues.iter().all(Queue::is_zero_copy) {
            io.copy_fallback = Some(Fallback::Copy(None));
        }
        Ok(io)
    }

    /// An error of the named port and queue.
    fn open_sharing(
        shares: &[(Arc<AttachedPort>, Range<u32>)],
        count: usize,
        copy: bool,
    ) -> Result<Self, (String, io::Error)> {
        let mtu_bytes = shares.iter().map(|(port, _)| port.mtu_bytes).max().unwrap_or_default();
        let chunk_bytes = chunk_bytes_for(mtu_bytes).expect("no attached port has a larger MTU");
        let memory = Memory::new(chunk_bytes, count.max(1) * CHUNKS_PER_QUEUE);
        let mut memory = memory.map_err(|error| ("making memory for frames".into(), error))?;
        let (mut queues, mut ports_of_queues, mut ports) = (Vec::<Queue>::new(), Vec::new(), Vec::new());
        for (number, (attached, range)) in shares.iter().enumerate() {
            let first = queues.len();
            for queue in range.clone() {
                let binding = queues.first().map_or(Binding::First { copy }, |first| Binding::Sharing(first.socket()));
                let opened = Queue::open(&mut memory, attached.index, queue, binding);
                let opened = opened.and_then(|opened| {
                    attached.attachment.redirect(queue, opened.socket())?;
                    Ok(opened)
                });
                let name = || format!("opening an AF_XDP socket on queue {queue} of {}", attached.config.interface);
                queues.push(opened.map_err(|error| (name(), error))?);
                ports_of_queues.push(number);
            }
            ports.push(Port {
                attached: Arc::clone(attached),
                queues: first..queues.len(),
                frame_bytes_max: attached.mtu_bytes as usize + LINK_BYTES_MAX,
                is_down: false,
                counters: PortCounters::default(),
            });
        }
        Ok(Self { queues, ports_of_queues, memory, ports, copy_fallback: None, look_at: Instant::ZERO })
    }

    /// The unavailable features of `port`, with reasons.
    pub fn fallbacks(&self, port: PortId) -> impl Iterator<Item = &Fallback> {
        let port = self.ports.get(usize::from(port.0));
        let generic = port.and_then(|port| port.attached.attachment.fallback());
        generic.into_iter().chain(port.and(self.copy_fallback.as_ref()))
    }

    /// The mode of the program of `port`; `None` for an unknown port.
    #[must_use]
    pub fn attach_mode(&self, port: PortId) -> Option<AttachMode> {
        self.ports.get(usize::from(port.0)).map(|port| port.attached.attachment.mode())
    }

    /// Whether `port` uses zero-copy.
    #[must_use]
    pub fn is_zero_copy(&self, port: PortId) -> bool {
        let port = self.ports.get(usize::from(port.0));
        port.is_some_and(|port| self.queues[port.queues.clone()].iter().all(Queue::is_zero_copy))
    }

    /// Checks periodically which interfaces are up.
    fn check_interfaces(&mut self) {
        let now = clock::now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_INTERVAL;
        for port in &mut self.ports {
            let is_down = !port.attached.is_up();
            note_down(port, is_down);
        }
        // Frames that the kernel did not accept earlier.
        self.flush();
    }

    /// Receives a batch from a queue, has it processed, and queues the frames to be sent.
    fn serve(&mut self, number: usize, process: &mut dyn FnMut(&mut PacketBatch<'_>)) -> usize {
        let mut descriptors = ArrayVec::<libc::xdp_desc, BATCH_FRAMES_MAX>::new();
        while !descriptors.is_full()
            && let Some(descriptor) = self.queues[number].pop_received()
        {
            descriptors.push(descriptor);
        }
        if descriptors.is_empty() {
            return 0;
        }
        let ingress = self.ports_of_queues[number];
        let counters = &mut self.ports[ingress].counters;
        counters.received_frames += descriptors.len() as u64;
        counters.received_bytes += descriptors.iter().map(|descriptor| u64::from(descriptor.len)).sum::<u64>();
        let settled = self.process(&descriptors, ingress, process);
        let queue_of_port = number - self.ports[ingress].queues.start;
        for frame in settled {
            let is_sent = match frame.disposition {
                Disposition::Transmit(egress) => match self.enqueue(egress, queue_of_port, &frame) {
                    Err(TransmitFailure::NoSuchPort) => {
                        self.ports[ingress].counters.transmit_failures.count(TransmitFailure::NoSuchPort);
                        false
                    }
                    outcome => outcome.is_ok(),
                },
                Disposition::Undecided => {
                    self.ports[ingress].counters.undecided += 1;
                    false
                }
                Disposition::Drop(_) | Disposition::Consumed => false,
            };
            if !is_sent {
                self.memory.give_back(frame.address);
            }
        }
        self.queues[number].refill(&mut self.memory);
        descriptors.len()
    }

    fn process(
        &mut self,
        descriptors: &[libc::xdp_desc],
        ingress: usize,
        process: &mut dyn FnMut(&mut PacketBatch<'_>),
    ) -> ArrayVec<Settled, BATCH_FRAMES_MAX> {
        let ingress = PortId(u8::try_from(ingress).expect("at most PORTS_MAX ports are opened"));
        let chunk_mask = self.memory.chunk_bytes() as u64 - 1;
        let mut batch = self.memory.lend(descriptors, ingress);
        process(&mut batch);
        let settle = |(frame, descriptor): (&mut Frame<'_>, &libc::xdp_desc)| {
            let (disposition, checksum) = (frame.disposition, frame.checksum);
            let is_segmented = frame.segmentation.kind != SegmentationKind::None;
            if let (Disposition::Transmit(_), Checksum::Partial { start, offset }) = (disposition, checksum) {
                // No hardware computes checksums here. A field beyond the frame is detected when it is put on a ring.
                let _ = complete_partial(frame.bytes_mut(), start, offset);
            }
            let (_, start, length_bytes) = frame.buffer_parts();
            let address = (descriptor.addr & !chunk_mask) + start as u64;
            Settled { address, length_bytes, disposition, checksum, is_segmented }
        };
        batch.iter_mut().zip(descriptors).map(settle).collect()
    }

    /// Puts a frame on a ring of `egress`. Failures are counted, except for an unknown port.
    fn enqueue(&mut self, egress: PortId, queue_of_port: usize, frame: &Settled) -> Result<(), TransmitFailure> {
        let port = self.ports.get_mut(usize::from(egress.0)).ok_or(TransmitFailure::NoSuchPort)?;
        let outcome = if port.is_down || port.queues.is_empty() {
            Err(TransmitFailure::Down)
        } else if frame.is_segmented || frame.length_bytes > port.frame_bytes_max {
            Err(TransmitFailure::TooLarge)
        } else if is_beyond(frame.checksum, frame.length_bytes) {
            Err(TransmitFailure::Invalid)
        } else {
            let queue = &mut self.queues[port.queues.start + queue_of_port % port.queues.len()];
            let pushed = queue.push(&mut self.memory, frame.address, frame.length_bytes as u32);
            if pushed { Ok(()) } else { Err(TransmitFailure::QueueFull) }
        };
        match outcome {
            Ok(()) => {
                port.counters.sent_frames += 1;
                port.counters.sent_bytes += frame.length_bytes as u64;
            }
            Err(cause) => port.counters.transmit_failures.count(cause),
        }
        outcome
    }

    /// Sends a frame from other memory. Failures are counted, except for an unknown port.
    fn copy_and_enqueue(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), TransmitFailure> {
        let opened = self.ports.get_mut(usize::from(port.0)).ok_or(TransmitFailure::NoSuchPort)?;
        let bytes = frame.bytes();
        self.queues[opened.queues.clone()].iter_mut().for_each(|queue| queue.reap(&mut self.memory));
        let is_too_large = bytes.len() > opened.frame_bytes_max;
        let chunk = if is_too_large { Err(TransmitFailure::TooLarge) } else { Ok(self.memory.take()) };
        let chunk = chunk.and_then(|chunk| chunk.ok_or(TransmitFailure::QueueFull)).inspect_err(|cause| {
            opened.counters.transmit_failures.count(*cause);
        })?;
        let (address, written) = self.memory.write(chunk, bytes);
        if let Checksum::Partial { start, offset } = frame.checksum {
            // A field beyond the frame is detected when it is put on a ring.
            let _ = complete_partial(written, start, offset);
        }
        let settled = Settled {
            address,
            length_bytes: bytes.len(),
            disposition: Disposition::Transmit(port),
            checksum: frame.checksum,
            is_segmented: frame.segmentation.kind != SegmentationKind::None,
        };
        let outcome = self.enqueue(port, 0, &settled);
        match outcome {
            Ok(()) => self.flush(),
            Err(_) => self.memory.give_back(chunk),
        }
        outcome
    }

    /// Makes the kernel send the frames on the rings.
    fn flush(&mut self) {
        for (queue, number) in self.queues.iter_mut().zip(&self.ports_of_queues) {
            if queue.flush().is_err() {
                note_down(&mut self.ports[*number], true);
            }
        }
    }
}

/// Whether the checksum to be completed lies beyond the frame.
fn is_beyond(checksum: Checksum, length_bytes: usize) -> bool {
    match checksum {
        Checksum::Partial { start, offset } => usize::from(start) + usize::from(offset) + 2 > length_bytes,
        _ => false,
    }
}

fn note_down(port: &mut Port, is_down: bool) {
    port.counters.went_down += u64::from(is_down && !port.is_down);
    port.is_down = is_down;
}

fn explain(shares: &[(Arc<AttachedPort>, Range<u32>)], (operation, error): (String, io::Error)) -> IoError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => IoError::NotPermitted { operation, capability: "CAP_NET_RAW" },
        Some(libc::EBUSY) => {
            IoError::Misuse(format!("{operation}: another program has the queue; stop it, or use another backend"))
        }
        Some(libc::ENOBUFS) => IoError::Misuse(format!(
            "{operation}: too little memory may be locked for {}; raise the limit (ulimit -l) or give CAP_IPC_LOCK",
            if shares.len() == 1 { "one port".into() } else { format!("{} ports", shares.len()) }
        )),
        _ => IoError::from_io(error, operation),
    }
}

impl PacketIo for AfXdpIo {
    fn poll(&mut self, process: &mut dyn FnMut(&mut PacketBatch<'_>)) -> Result<usize, IoError> {
        self.check_interfaces();
        let mut total = 0;
        for number in 0..self.queues.len() {
            self.queues[number].reap(&mut self.memory);
            let received = self.serve(number, process);
            if received > 0 {
                total += received;
                self.flush();
            }
        }
        Ok(total)
    }

    fn transmit(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), IoError> {
        self.copy_and_enqueue(port, frame).map_err(|cause| IoError::Transmit { port, cause })
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.queues.iter().map(Queue::socket).collect()
    }

    fn counters(&self, port: PortId) -> PortCounters {
        let Some(opened) = self.ports.get(usize::from(port.0)) else { return PortCounters::default() };
        let mut counters = opened.counters;
        for queue in &self.queues[opened.queues.clone()] {
            let statistics = queue.statistics();
            let starved = statistics.rx_fill_ring_empty_descs;
            counters.receive_queue_full += statistics.rx_ring_full + starved;
            // Other drops in the kernel's counter are frames longer than a chunk.
            counters.received_oversized += statistics.rx_dropped.saturating_sub(starved);
            counters.transmit_failures.invalid += statistics.tx_invalid_descs;
        }
        counters
    }
}
