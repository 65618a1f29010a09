//! Tunnel devices, for a node that the host's kernel routes packets through (Documentation/networking/tuntap.rst).
//!
//! The kernel routes into the device whatever the node is to have, and out of it what the node sends; interfaces, their
//! neighbours and their queues stay the kernel's. Packets come and go with a virtio-net header, so that 64 KB of TCP
//! segments pass as one and are never summed, as with [`crate::af_packet`].
//!
//! Such a device carries IP packets without a link header, and the node knows only frames. So a link of two stations
//! is made up: the node is [`NODE_MAC`], the kernel [`KERNEL_MAC`] whatever address it is asked for. Whom the node asks
//! for on this link is answered here, what it announces goes nowhere, and neither the node nor the kernel is the wiser.

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
use neighbour::{Answer, answer};

pub use device::DeviceKind;
pub use raw::{MESSAGE_BYTES_MAX, RawTunnel, wire_length_bytes};

/// The node's link address on such a port.
pub const NODE_MAC: MacAddress = MacAddress([0x02, 0x74, 0x75, 0x6e, 0, 1]);
/// The kernel's.
pub const KERNEL_MAC: MacAddress = MacAddress([0x02, 0x74, 0x75, 0x6e, 0, 2]);

/// The most ports of a node: a port's number is a byte.
pub const PORTS_MAX: usize = 256;
/// Answers to the node's neighbour requests that wait to be received. When there are more, the newest is dropped: the node
/// asks again.
const ANSWERS_MAX: usize = 256;
/// Bytes before a received packet: room for a tunnel header, and for the link header that is put on.
const HEADROOM_BYTES: usize = 128;
/// The largest packet: 64 KB of segments and their headers.
const PACKET_BYTES_MAX: usize = 70_000;
/// A frame's buffer. Not a multiple of the page, so that the headers of a batch do not all fall on the same cache sets.
const BUFFER_BYTES: usize = 70_208;
/// Behind a packet of this size a batch ends: it is sent while it is still in the cache.
const LARGE_PACKET_BYTES: usize = 8192;

const _: () = assert!(HEADROOM_BYTES + PACKET_BYTES_MAX <= BUFFER_BYTES);
const _: () = assert!(HEADROOM_BYTES >= ETHERNET_HEADER_BYTES && ETHERNET_HEADER_BYTES >= HEADER_BYTES);

/// How to open a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// The device's name. It is made if it is not there, and then goes with the process.
    pub interface: String,
    /// Let the kernel hand over runs of segments as one packet and leave checksums undone. Not where the other ports of
    /// the node cannot send such packets.
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
    /// Frames that answer the node's requests for neighbours.
    answers: VecDeque<Vec<u8>>,
    is_down: bool,
    counters: PortCounters,
}

impl Port {
    /// Whoever waits for descriptors is told of answers, which no device tells of.
    fn wake_for_answers(&mut self) {
        self.device.wake_if(!self.answers.is_empty());
    }
}

/// Tunnel devices as a node's ports.
///
/// A device that is switched off is noticed when it is used, and works again when it is switched on.
pub struct TunIo {
    ports: Vec<Port>,
    buffers: Vec<u8>,
}

impl TunIo {
    /// Opens the devices, numbered in the order given, makes those that are not there, and switches them on.
    ///
    /// # Errors
    /// The process may not, the kernel has no tunnel devices, a name is that of another kind of interface or of a device
    /// that another program has open, or there are more than [`PORTS_MAX`].
    pub fn open(configs: &[PortConfig]) -> Result<Self, IoError> {
        if configs.len() > PORTS_MAX {
            return Err(IoError::Misuse(format!("{} ports are too many: at most {PORTS_MAX}", configs.len())));
        }
        let open = |config: &PortConfig| {
            let device = Device::open(&config.interface, DeviceKind::Ip, config.offload)?;
            Ok(Port { device, answers: VecDeque::new(), is_down: false, counters: PortCounters::default() })
        };
        let ports = configs.iter().map(open).collect::<Result<Vec<_>, IoError>>()?;
        // Memory is taken only as packets of that size come: zeroed allocations of this size are fresh mappings.
        Ok(Self { ports, buffers: vec![0; BUFFER_BYTES * BATCH_FRAMES_MAX] })
    }

    /// Receives from the device up to a batch. Answers to neighbour requests go before.
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
                    // What cannot be expressed has been counted; others may wait behind it.
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

    /// Receives one packet and puts a link header on it. `None` for one that the node cannot have; an error when there is
    /// nothing to receive.
    fn receive_packet<'a>(port: &mut Port, buffer: &'a mut [u8], ingress: PortId) -> Result<Option<Frame<'a>>, ()> {
        let message = &mut buffer[HEADROOM_BYTES - HEADER_BYTES..HEADROOM_BYTES + PACKET_BYTES_MAX];
        let length_bytes = match port.device.read(message) {
            Ok(length_bytes) => length_bytes,
            Err(error) => {
                note_down(port, device::says_down(&error));
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

/// Takes the link header off, answers what is for the link alone, and gives the kernel the packet. A failure has been
/// counted.
fn send(port: &mut Port, frame: &Frame<'_>) -> Result<(), TransmitFailure> {
    let bytes = frame.bytes();
    match answer(bytes) {
        Answer::None => {}
        Answer::Nothing => return Ok(()),
        Answer::Frame(answer) => {
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
    // A VLAN tag, say, has no place on such a device.
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
        let is_down = device::says_down(&error);
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
                        // A failure has been counted, and there is nobody to tell.
                        Some(port) => drop(send(port, frame)),
                        None => ports[number].counters.transmit_failures.count(TransmitFailure::NoSuchPort),
                    },
                    Disposition::Undecided => ports[number].counters.undecided += 1,
                    Disposition::Drop(_) | Disposition::Consumed => {}
                }
            }
        }
        ports.iter_mut().for_each(Port::wake_for_answers);
        Ok(total)
    }

    fn transmit(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), IoError> {
        let opened = self.ports.get_mut(usize::from(port.0));
        let sent = opened.map_or(Err(TransmitFailure::NoSuchPort), |opened| {
            let sent = send(opened, frame);
            opened.wake_for_answers();
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
