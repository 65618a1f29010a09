//! A host that sends any frames by its interface, past its own stack, and sees the frames that come to it.

use cluster::failure_detector::{ControlPacket, Diagnostic, State};
use cluster::forwarding::{PATH_ETHER_TYPE, PATH_MAC, PathId};
use flow::wire::build::Envelope;
use flow::wire::sctp::crc32c_of;
use flow::wire::{Headers, MacAddress, Parsed, parse};
use flow::{Frame, PortId};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::namespace::Namespace;
use packet_io::{IoError, PacketIo};

use super::topology::{INTERFACES, link_address};

/// The number of the first edge.
const EDGE: u8 = 200;
/// Kinds of frames between nodes and edges.
const DETECTION: u8 = 1;
const FROM_EDGE: u8 = 2;
const TO_EDGE: u8 = 3;

/// A host that sends any frames.
pub struct Stranger {
    io: AfPacketIo,
    /// The link address of its interface.
    pub source: MacAddress,
    /// The link address that its frames go to.
    pub next_hop: MacAddress,
}

impl Stranger {
    /// One at an interface of a host, whose frames go to `next_hop`.
    ///
    /// # Errors
    /// The interface cannot be opened.
    pub fn open(host: &Namespace, interface: &str, next_hop: MacAddress) -> Result<Self, IoError> {
        let io = host.run(|| AfPacketIo::open(&[PortConfig::new(interface)]))??;
        Ok(Self { io, source: link_address(host, interface)?, next_hop })
    }

    /// The envelope of an ordinary packet to the next hop.
    #[must_use]
    pub fn envelope(&self) -> Envelope<'static> {
        Envelope { source: self.source, destination: self.next_hop, ..Envelope::default() }
    }

    /// Sends a frame as it is. A full queue loses it, as a full link does.
    pub fn send(&mut self, frame: &[u8]) {
        let mut bytes = frame.to_vec();
        let length_bytes = bytes.len();
        if let Some(frame) = Frame::new(&mut bytes, 0, length_bytes, PortId(0)) {
            let _ = self.io.transmit(PortId(0), &frame);
        }
    }

    /// Shows all frames that have come to the interface since.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn see(&mut self, look: &mut dyn FnMut(&[u8], &Headers)) -> Result<(), IoError> {
        let mut seen = |batch: &mut flow::PacketBatch<'_>| {
            for frame in batch.iter() {
                if let Ok(Parsed::Ip(headers)) = parse(frame) {
                    look(frame.bytes(), &headers);
                }
            }
        };
        while self.io.poll(&mut seen)? > 0 {}
        Ok(())
    }
}

/// One frame of each kind by which a stranger could move flows or roles of two nodes and their edges (`docs/protocol.md`): failure detection in the
/// names of both, and in the name of an edge.
#[must_use]
pub fn forged_control_frames() -> Vec<Vec<u8>> {
    let [as_edge, as_node] =
        [&[0_u8, 0, 0, 0, 0, 0, 0, 3][..], &[0_u8; 16]].map(|state| [state, &down(State::Down)].concat());
    let mut frames = Vec::new();
    for node in [0, 1] {
        frames.push(control_frame(FROM_EDGE, [EDGE, node], PathId(0), &as_edge));
        frames.push(control_frame(TO_EDGE, [node, EDGE], PathId(0), &as_node));
        for port in &INTERFACES[..2] {
            let path = PathId::of_name(port);
            let datagram = [down(State::AdminDown), path.0.to_be_bytes().to_vec()].concat();
            frames.push(control_frame(DETECTION, [1 - node, node], path, &datagram));
        }
    }
    frames
}

/// A packet of failure detection that names no session: "I am down".
fn down(state: State) -> Vec<u8> {
    let mut packet = Vec::new();
    let packet_of_stranger = ControlPacket {
        diagnostic: Diagnostic::None,
        state,
        poll: false,
        is_final: false,
        authentication_present: false,
        demand: false,
        detect_multiplier: 3,
        my_discriminator: 77,
        your_discriminator: 0,
        desired_min_tx_us: 1000,
        required_min_rx_us: 1000,
        required_min_echo_rx_us: 0,
    };
    packet_of_stranger.encode(&mut packet);
    packet
}

/// A frame as `docs/protocol.md` describes it.
fn control_frame(kind: u8, [from, to]: [u8; 2], path: PathId, datagram: &[u8]) -> Vec<u8> {
    let mut header = vec![b'M', b'S', 1, kind, from, to];
    header.extend_from_slice(&(datagram.len() as u16).to_be_bytes());
    header.extend_from_slice(&path.0.to_be_bytes());
    let parts = [crc32c_of(&header), crc32c_of(datagram)].map(u32::to_be_bytes);
    header.extend_from_slice(&crc32c_of(parts.as_flattened()).to_be_bytes());
    let source = [2, 0, 0, 0, 0x66, 0x66];
    [&PATH_MAC.0[..], &source, &PATH_ETHER_TYPE.to_be_bytes(), &header, datagram].concat()
}
