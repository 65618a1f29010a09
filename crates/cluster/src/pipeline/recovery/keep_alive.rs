//! Keep-alives: segments without payload, numbered one before what they acknowledge (RFC 1122 section 4.2.3.6), that ask an end
//! point whether it has a connection.

use flow::connection::flags;
use flow::conntrack::{ProtocolState, TcpState, UdpState, peer_flags};
use flow::wire::{Packet, ip_protocol, tcp_flags};
use flow::{Connection, Direction, Instant, Segmentation, Tuple};
use network_functions::function::Verdict;
use network_functions::restoration::Restored;

use super::super::connections::Connections;

/// Has the functions translate a packet as one of the connection that they make of this tuple, which is in no table.
pub(super) fn translate(
    connections: &mut Connections,
    now: Instant,
    packet: &mut Packet<'_, '_>,
    original: Tuple,
    restored: &Restored,
    direction: Direction,
) -> Verdict {
    let Connections { node, functions, relations, .. } = connections;
    let (protocol, status_flags) = assumed_state(original.protocol);
    let mut passing = Connection::new(original, *node, protocol, now);
    (passing.reply, passing.functions, passing.flags) =
        (restored.reply, restored.functions, status_flags | flags::REPLICA);
    let mut runtime = functions.output.runtime(now, *node, &mut relations.expectations);
    functions.chain.process(&mut runtime, &mut passing, packet, direction).verdict
}

/// Makes a segment a keep-alive: without its payload and its FIN, and numbered one before it. False if that cannot be.
pub(super) fn make_keep_alive(packet: &mut Packet<'_, '_>, sequence: u32, acknowledgement: u32) -> bool {
    let payload_bytes = packet.payload().len();
    if !packet.replace_payload(0..payload_bytes, &[]) {
        return false;
    }
    packet.frame.segmentation = Segmentation::default();
    packet.clear_tcp_flags(tcp_flags::FIN);
    packet.renumber_tcp(sequence.wrapping_sub(1), acknowledgement, |edge| edge);
    true
}

/// What is assumed of a connection of which no more is known than that it is there: that both sides have agreed to talk.
pub(super) fn assumed_state(protocol: u8) -> (ProtocolState, u8) {
    let mut state = ProtocolState::default();
    match protocol {
        ip_protocol::TCP => {
            state.state = TcpState::Established as u8;
            // The window scales are unknown, so windows cannot be reckoned.
            state.peers.iter_mut().for_each(|peer| peer.flags = peer_flags::SACK_PERMITTED | peer_flags::LIBERAL);
            (state, flags::REPLIED | flags::ASSURED)
        }
        ip_protocol::UDP => {
            state.state = UdpState::Replied as u8;
            (state, flags::REPLIED)
        }
        _ => (state, flags::REPLIED),
    }
}
