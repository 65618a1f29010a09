//! Connections that a function refuses after they began: the function answers the client (see [`network_functions::url_filter`]), the node
//! resets the server.

use flow::table::Slot;
use flow::wire::build::Tcp;
use flow::wire::{Headers, TcpSegment, Transport, tcp_flags};
use flow::{Direction, Instant};

use super::connections::{Connections, record};
use super::edge::Edge;
use super::handshakes::post;

impl Connections {
    /// The connection of a packet with these headers was refused: its server is reset. Where the client was sent the end of the stream in the
    /// server's place, connection tracking sees it, so that the record has the short timeout of a closing connection.
    #[cold]
    pub(super) fn refuse<E: Edge>(&mut self, now: Instant, headers: &Headers, slot: Slot, edge: &mut E) {
        let Some(refused) = self.functions.output.refused.take() else { return };
        let connection = record(&self.table, slot);
        let reset = Tcp { flags: tcp_flags::RST, sequence: refused.reset_sequence, window: 0, ..Tcp::default() };
        post(&connection.translated(Direction::Original), reset, |packet| edge.post(now, packet));
        if let Some(sent) = refused.last_sent {
            // Also for a client that was reset: a reset would end the record at once, and a client that has not received it would go on.
            let segment = TcpSegment {
                sequence: self.as_server_numbers(headers, slot, sent.sequence),
                payload_bytes: sent.payload_bytes,
                acknowledgement: sent.acknowledgement,
                sack_end: sent.acknowledgement,
                flags: tcp_flags::FIN | tcp_flags::ACK,
                window: u16::MAX,
                ..TcpSegment::default()
            };
            self.track_own(now, &Headers { transport: Transport::Tcp(segment), ..*headers }, slot, Direction::Reply);
        }
    }

    /// A sequence number that the client was sent, as its server would number it: that is how connection tracking knows it.
    fn as_server_numbers(&self, headers: &Headers, slot: Slot, sequence: u32) -> u32 {
        let chain = &self.functions.chain;
        if !chain.renumbers() {
            return sequence;
        }
        let acknowledgement = TcpSegment {
            acknowledgement: sequence,
            sack_end: sequence,
            flags: tcp_flags::ACK,
            ..TcpSegment::default()
        };
        let headers = Headers { transport: Transport::Tcp(acknowledgement), ..*headers };
        match chain.as_sent(record(&self.table, slot), &headers, Direction::Original).map(|headers| headers.transport) {
            Some(Transport::Tcp(segment)) => segment.acknowledgement,
            _ => sequence,
        }
    }
}
