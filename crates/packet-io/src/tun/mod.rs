//! Tunnel devices, for a node that the host's kernel routes packets through (Documentation/networking/tuntap.rst).
//!
//! The kernel routes packets for the node into the device, and packets from the node out of it; the kernel keeps
//! managing interfaces, their neighbours and their queues. Packets carry a virtio-net header, so 64 KB of TCP segments
//! pass as one packet without checksum computation, as with [`crate::af_packet`].
//!
//! Such a device carries IP packets without a link header, but the node processes frames. So this module emulates a
//! link of two stations: the node is [`NODE_MAC`], the kernel is [`KERNEL_MAC`] for every address. The node's neighbour
//! requests on this link are answered here, and its announcements are discarded.

mod device;
mod neighbour;
mod raw;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use flow::wire::MacAddress;
use flow::wire::ethernet::{ETHERNET_HEADER_BYTES, ether_type};
use flow::{BATCH_FRAMES_MAX, Checksum, Disposition, Frame, PacketBatch, PortId, Segmentation};

use crate::virtio::{self, HEADER_BYTES};
use crate::{IoError, PacketIo, PortCounters, TransmitFailure};

use device::Device;
use neighbour::{NeighbourAction, answer};

pub use device::DeviceKind;
pub use raw::{MESSAGE_BYTES_MAX, RawTunnel, wire_length_bytes};

/// The node's link address on such a port.
pub const NODE_MAC: MacAddress = MacAddress([0x02, 0x74, 0x75, 0x6e, 0, 1]);
/// The kernel's.
pub const KERNEL_MAC: MacAddress = MacAddress([0x02, 0x74, 0x75, 0x6e, 0, 2]);

/// The maximum number of ports of a node: a port's number is a byte.
pub const PORTS_MAX: usize = 256;
/// The maximum number of pending replies to the node's neighbour requests. Beyond it the newest is dropped: the node
/// retries.
const ANSWERS_MAX: usize = 256;
/// Bytes before a received packet: headroom for a tunnel header, and for the link header that is added.
const HEADROOM_BYTES: usize = 128;
/// The largest packet: 64 KB of segments and their headers.
const PACKET_BYTES_MAX: usize = 70_000;
/// A frame's buffer. Not a multiple of the page, so that the headers of a batch do not all fall on the same cache sets.
const BUFFER_BYTES: usize = 70_208;
/// The packet size that ends a batch, which is then sent while still in the cache.
const LARGE_PACKET_BYTES: usize = 8192;

const _: () = assert!(HEADROOM_BYTES + PACKET_BYTES_MAX <= BUFFER_BYTES);
const _: () = assert!(HEADROOM_BYTES >= ETHERNET_HEADER_BYTES && ETHERNET_HEADER_BYTES >= HEADER_BYTES);

/// How to open a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// The device's name. A missing device is created, and deleted with the process.
    pub interface: String,
    /// Let the kernel pass runs of segments as one packet and leave checksums incomplete. Disable it where the node's
    /// other ports cannot send such packets.
    pub offload: bool,
}

impl PortConfig {
    /// The device `interface`, with offloads.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into(), offload: true }
    }
}

struct Port {
    device: Device,
    /// Replies to the node's neighbour requests.
    answers: VecDeque<Vec<u8>>,
    is_down: bool,
    counters: PortCounters,
}

impl Port {
    /// Wakes the caller's poller for replies, for which no device becomes readable.
    fn wake_for_replies(&mut self) {
        self.device.wake_if(!self.answers.is_empty());
    }
}

/// Tunnel devices as a node's ports.
///
/// A device that is switched off is detected when it is used, and works again when it is switched on.
pub struct TunIo {
    ports: Vec<Port>,
    buffers: Vec<u8>,
}

impl TunIo {
    /// Opens the devices, numbered in the order given, creates missing ones, and switches them on.
    ///
    /// # Errors
    /// Permission is missing, the kernel lacks tunnel devices, a name belongs to another kind of interface or to a
    /// device that another program has open, or there are more than [`PORTS_MAX`].
    pub fn open(configs: &[PortConfig]) -> Result<Self, IoError> {
        if configs.len() > PORTS_MAX {
            return Err(IoError::Misuse(format!("{} ports are too many: at most {PORTS_MAX}", configs.len())));
        }
        let open = |config: &PortConfig| {
            let device = Device::open(&config.interface, DeviceKind::Ip, config.offload)?;
            Ok(Port { device, answers: VecDeque::new(), is_down: false, counters: PortCounters::default() })
        };
        let ports = configs.iter().map(open).collect::<Result<Vec<_>, IoError>>()?;
        // Memory is used only as packets of that size arrive: zeroed allocations of this size are fresh mappings.
        Ok(Self { ports, buffers: vec![0; BUFFER_BYTES * BATCH_FRAMES_MAX] })
    }

    /// Receives up to a batch from the device. Pending replies come first.
    fn receive<'a>(port: &mut Port, buffers: &'a mut [u8], ingress: PortId) -> PacketBatch<'a> {
        let mut batch = PacketBatch::new();
        for buffer in buffers.chunks_exact_mut(BUFFER_BYTES) {
            let frame = match port.answers.pop_front() {
                Some(answer) => {
                    buffer[HEADROOM_BYTES..HEADROOM_BYTES + answer.len()].copy_from_slice(&answer);
                    Frame::new(buffer, HEADROOM_BYTES, answer.len(), ingress)
                }
                None => match Self::receive_packet(port, buffer, ingress) {
                    Ok(Some(frame)) => Some(frame),
                    // Unsupported packets have been counted; others may be queued behind.
                    Ok(None) => continue,
                    Err(()) => break,
                },
            };
            let Some(frame) = frame else { continue };
            let is_large = frame.bytes().len() >= LARGE_PACKET_BYTES;
            batch.push(frame);
            if is_large {
                break;
            }
        }
        batch
    }

    /// Receives one packet and adds a link header. `None` for an unsupported one; an error when none is pending.
    fn receive_packet<'a>(port: &mut Port, buffer: &'a mut [u8], ingress: PortId) -> Result<Option<Frame<'a>>, ()> {
        let message = &mut buffer[HEADROOM_BYTES - HEADER_BYTES..HEADROOM_BYTES + PACKET_BYTES_MAX];
        let length_bytes = match port.device.read(message) {
            Ok(length_bytes) => length_bytes,
            Err(error) => {
                note_down(port, device::is_down_error(&error));
                return Err(());
            }
        };
        note_down(port, false);
        let Some(packet_bytes) = length_bytes.checked_sub(HEADER_BYTES) else { return Ok(None) };
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&message[..HEADER_BYTES]);
        let start = HEADROOM_BYTES - ETHERNET_HEADER_BYTES;
        let kind = match buffer[HEADROOM_BYTES] >> 4 {
            4 => ether_type::IPV4,
            6 => ether_type::IPV6,
            _ => return Ok(None),
        };
        let offload = virtio::parse(header, ETHERNET_HEADER_BYTES as u16);
        let Some((checksum, segmentation)) = offload else {
            port.counters.received_unsupported_offload += 1;
            return Ok(None);
        };
        buffer[start..start + 6].copy_from_slice(&NODE_MAC.0);
        buffer[start + 6..start + 12].copy_from_slice(&KERNEL_MAC.0);
        buffer[start + 12..HEADROOM_BYTES].copy_from_slice(&kind.to_be_bytes());
        let frame = Frame::new(buffer, start, ETHERNET_HEADER_BYTES + packet_bytes, ingress);
        Ok(frame.map(|mut frame| {
            (frame.checksum, frame.segmentation) = (checksum, segmentation);
            port.counters.received_frames += 1;
            port.counters.received_bytes += frame.bytes().len() as u64;
            frame
        }))
    }
}

fn note_down(port: &mut Port, is_down: bool) {
    port.counters.went_down += u64::from(is_down && !port.is_down);
    port.is_down = is_down;
}

/// Removes the link header, answers link-local requests, and passes the packet to the kernel. Failures are counted.
fn send(port: &mut Port, frame: &Frame<'_>) -> Result<(), TransmitFailure> {
    let bytes = frame.bytes();
    match answer(bytes) {
        NeighbourAction::Forward => {}
        NeighbourAction::Discard => return Ok(()),
        NeighbourAction::Reply(answer) => {
            if port.answers.len() < ANSWERS_MAX {
                port.answers.push_back(answer);
            }
            return Ok(());
        }
    }
    let outcome = send_packet(port, bytes, frame.checksum, frame.segmentation);
    match outcome {
        Ok(()) => {
            port.counters.sent_frames += 1;
            port.counters.sent_bytes += bytes.len() as u64;
        }
        Err(cause) => port.counters.transmit_failures.count(cause),
    }
    outcome
}

fn send_packet(
    port: &mut Port,
    frame: &[u8],
    checksum: Checksum,
    segmentation: Segmentation,
) -> Result<(), TransmitFailure> {
    let (link, packet) = frame.split_at_checked(ETHERNET_HEADER_BYTES).ok_or(TransmitFailure::Invalid)?;
    // A VLAN tag, for example, has no representation on such a device.
    let is_ip = [ether_type::IPV4, ether_type::IPV6].iter().any(|kind| link[12..] == kind.to_be_bytes());
    let checksum = match checksum {
        Checksum::Partial { start, offset } => {
            let start = start.checked_sub(ETHERNET_HEADER_BYTES as u16).ok_or(TransmitFailure::Invalid)?;
            Checksum::Partial { start, offset }
        }
        other => other,
    };
    if !is_ip {
        return Err(TransmitFailure::Invalid);
    }
    let header_bytes = segmentation.header_bytes.saturating_sub(ETHERNET_HEADER_BYTES as u16);
    let header = virtio::emit(checksum, Segmentation { header_bytes, ..segmentation }, packet);
    port.device.write(&header, packet).map_err(|error| {
        let is_down = device::is_down_error(&error);
        note_down(port, is_down);
        if is_down {
            return TransmitFailure::Down;
        }
        TransmitFailure::from_errno(error.raw_os_error().unwrap_or(libc::EIO))
    })
}

impl PacketIo for TunIo {
    fn poll(&mut self, process: &mut dyn FnMut(&mut PacketBatch<'_>)) -> Result<usize, IoError> {
        let Self { ports, buffers } = self;
        let mut total = 0;
        for number in 0..ports.len() {
            let ingress = PortId(u8::try_from(number).expect("at most PORTS_MAX ports are opened"));
            let mut batch = Self::receive(&mut ports[number], buffers, ingress);
            if batch.is_empty() {
                continue;
            }
            total += batch.len();
            process(&mut batch);
            for frame in &batch {
                match frame.disposition {
                    Disposition::Transmit(egress) => match ports.get_mut(usize::from(egress.0)) {
                        // The port has counted a failure; the caller needs no error.
                        Some(port) => drop(send(port, frame)),
                        None => ports[number].counters.transmit_failures.count(TransmitFailure::NoSuchPort),
                    },
                    Disposition::Undecided => ports[number].counters.undecided += 1,
                    Disposition::Drop(_) | Disposition::Consumed => {}
                }
            }
        }
        ports.iter_mut().for_each(Port::wake_for_replies);
        Ok(total)
    }

    fn transmit(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), IoError> {
        let opened = self.ports.get_mut(usize::from(port.0));
        let sent = opened.map_or(Err(TransmitFailure::NoSuchPort), |opened| {
            let sent = send(opened, frame);
            opened.wake_for_replies();
            sent
        });
        sent.map_err(|cause| IoError::Transmit { port, cause })
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.ports.iter().flat_map(|port| [port.device.as_fd(), port.device.waker()]).collect()
    }

    fn counters(&self, port: PortId) -> PortCounters {
        self.ports.get(usize::from(port.0)).map_or_else(PortCounters::default, |port| port.counters)
    }
}
