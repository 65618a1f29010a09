//! Real interfaces through packet sockets (packet(7)).
//!
//! Frames carry a virtio-net header (`PACKET_VNET_HDR`): a 64 KB run of TCP segments passes as one frame without
//! checksum computation, which determines throughput on virtual links.
//!
//! The kernel sees every frame, too. The interfaces of a gateway should therefore have `ip_forward` off, or no
//! addresses.

mod fanout;
mod port;
mod ring;

use std::cell::Cell;
use std::os::fd::BorrowedFd;

use flow::{Disposition, Frame, PacketBatch, PortId};

use crate::{IoError, PacketIo, PortCounters, TransmitFailure};

pub use fanout::Fanout;
use port::Port;
use ring::{ReceiveRing, TransmitRing};

/// The maximum number of ports of a node: a port's number is a byte.
pub const PORTS_MAX: usize = 256;
/// Default size of a socket's buffers, in bytes: about 50 frames of 64 KB, or some thousands of small ones. With larger
/// buffers, waiting frames leave the cache before they are received (`mainstay bench bulk`).
pub const SOCKET_BUFFER_BYTES: i32 = 4 << 20;
/// The maximum number of transient receive errors skipped in one call, so that a flood of unusable frames does not
/// delay the rest.
const RECEIVE_RETRIES_MAX: usize = 64;

/// Bytes before a frame that [`AfPacketIo::transmit_batch`] needs for its own header.
pub const TRANSMIT_HEADROOM_BYTES: usize = crate::virtio::HEADER_BYTES;

/// How to open a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// The interface's name, in the namespace of the opening thread.
    pub interface: String,
    /// Receive frames for other link addresses than the interface's own, too.
    pub promiscuous: bool,
    /// Send past the interface's queueing discipline (`PACKET_QDISC_BYPASS`): slightly cheaper, but without shaping and
    /// queueing.
    pub bypass_queueing: bool,
    /// Size of the socket's receive and send buffers, in bytes. Frames beyond it are dropped and counted.
    pub socket_buffer_bytes: i32,
    /// Share the interface's frames with other sockets; `None`: receive all of them.
    pub fanout: Option<Fanout>,
    /// Receive only frames of these EtherTypes, the most frequent first, and only those that programs at the interface's ingress
    /// (tcx, clsact) have let pass. The kernel takes off VLAN tags before; frames with a VLAN's number and frames for other link
    /// addresses are not received. Empty: receive every frame as it is on the wire, before those programs.
    pub ether_types: Vec<u16>,
    /// With `ether_types`: also receive frames for other link addresses. Frames with a VLAN's number look like these. So a program at the
    /// interface's ingress must mark them with [`TAGGED_MARK`], by which they are not received.
    pub any_host: bool,
}

/// The mark of a frame that had a VLAN tag: see [`PortConfig::any_host`].
pub const TAGGED_MARK: u32 = 0x6d56_7461;

impl PortConfig {
    /// The interface `interface`, not promiscuous, with the interface's queueing and with buffers of
    /// [`SOCKET_BUFFER_BYTES`].
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            promiscuous: false,
            bypass_queueing: false,
            socket_buffer_bytes: SOCKET_BUFFER_BYTES,
            fanout: None,
            ether_types: Vec::new(),
            any_host: false,
        }
    }
}

/// Real interfaces as a node's ports.
///
/// An interface that is down or deleted is reopened when one of its name is back. Meanwhile it receives nothing, and
/// transmissions fail as [`TransmitFailure::Down`]. [`PacketIo::poll`] checks for it, so callers should poll regularly
/// even without a readable descriptor.
pub struct AfPacketIo {
    ports: Vec<Port>,
    /// Kernel drops read so far, by port: reading resets the kernel's count.
    kernel_drops: Vec<Cell<u64>>,
    receive: ReceiveRing,
    transmit: TransmitRing,
}

impl AfPacketIo {
    /// Opens the ports, numbered in the order given.
    ///
    /// # Errors
    /// An interface does not exist or is not Ethernet, permission is missing, or there are more than [`PORTS_MAX`].
    pub fn open(configs: &[PortConfig]) -> Result<Self, IoError> {
        if configs.len() > PORTS_MAX {
            return Err(IoError::Misuse(format!("{} ports are too many: at most {PORTS_MAX}", configs.len())));
        }
        let ports = configs.iter().map(Port::open).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            kernel_drops: vec![Cell::new(0); ports.len()],
            ports,
            receive: ReceiveRing::new(),
            transmit: TransmitRing::new(),
        })
    }

    /// Sends at once the frames of the batch with the disposition to leave on `port`; each needs
    /// [`TRANSMIT_HEADROOM_BYTES`] before it. Returns how many the kernel accepted; failures are counted.
    pub fn transmit_batch(&mut self, port: PortId, batch: &mut PacketBatch<'_>) -> u64 {
        let Some(opened) = self.ports.get_mut(usize::from(port.0)) else { return 0 };
        let mut counters = opened.counters;
        self.transmit.send(opened.socket(), port, batch, &mut counters);
        let sent = counters.sent_frames - opened.counters.sent_frames;
        opened.counters = counters;
        sent
    }

    /// Receives on a socket of a port, skipping unusable frames. 0 when no frame is pending.
    fn receive_on(&mut self, number: usize, socket: usize) -> usize {
        let port = &mut self.ports[number];
        for _ in 0..RECEIVE_RETRIES_MAX {
            match self.receive.receive(port.receiving_socket(socket)) {
                Ok(received) => return received,
                Err(error) if port.note_receive_error(&error) => {}
                Err(_) => return 0,
            }
        }
        0
    }
}

/// Sends each frame of the batch to its port, a port at a time.
fn settle(ports: &mut [Port], ring: &mut TransmitRing, ingress: usize, batch: &mut PacketBatch<'_>) {
    let mut served = [false; PORTS_MAX];
    for at in 0..batch.len() {
        match batch[at].disposition {
            Disposition::Transmit(egress) => {
                let number = usize::from(egress.0);
                let Some(port) = ports.get_mut(number) else {
                    ports[ingress].counters.transmit_failures.count(TransmitFailure::NoSuchPort);
                    continue;
                };
                if !std::mem::replace(&mut served[number], true) {
                    let mut counters = port.counters;
                    ring.send(port.socket(), egress, batch, &mut counters);
                    port.counters = counters;
                }
            }
            Disposition::Undecided => ports[ingress].counters.undecided += 1,
            Disposition::Drop(_) | Disposition::Consumed => {}
        }
    }
}

impl PacketIo for AfPacketIo {
    fn poll(&mut self, process: &mut dyn FnMut(&mut PacketBatch<'_>)) -> Result<usize, IoError> {
        let mut total = 0;
        for number in 0..self.ports.len() {
            self.ports[number].recover();
            for socket in 0..self.ports[number].sockets() {
                if !self.ports[number].is_due(socket) {
                    continue;
                }
                let received = self.receive_on(number, socket);
                self.ports[number].note_received(socket, received);
                if received == 0 {
                    continue;
                }
                total += received;
                let ingress = PortId(u8::try_from(number).expect("at most PORTS_MAX ports are opened"));
                let mut batch = self.receive.lend(received, ingress, &mut self.ports[number].counters);
                process(&mut batch);
                settle(&mut self.ports, &mut self.transmit, number, &mut batch);
            }
        }
        Ok(total)
    }

    fn transmit(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), IoError> {
        let Some(opened) = self.ports.get_mut(usize::from(port.0)) else {
            return Err(IoError::Transmit { port, cause: TransmitFailure::NoSuchPort });
        };
        let result = ring::send_one(opened.socket(), port, frame);
        match &result {
            Err(IoError::Transmit { cause, .. }) => opened.counters.transmit_failures.count(*cause),
            _ => {
                opened.counters.sent_frames += 1;
                opened.counters.sent_bytes += frame.bytes().len() as u64;
            }
        }
        result
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.ports.iter().map(Port::descriptor).collect()
    }

    fn counters(&self, port: PortId) -> PortCounters {
        let number = usize::from(port.0);
        let Some(opened) = self.ports.get(number) else { return PortCounters::default() };
        let drops = &self.kernel_drops[number];
        drops.set(drops.get() + opened.take_kernel_drops());
        PortCounters { receive_queue_full: drops.get(), ..opened.counters }
    }
}
