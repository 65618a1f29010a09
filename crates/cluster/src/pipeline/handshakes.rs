//! The handshakes of a SYN proxy: SYNs are answered without a record, an accepted client's connection begins by a SYN to its server,
//! and the server's answer is acknowledged. See [`network_functions::syn_proxy`].
//!
//! ```text
//!   SYN of no connection ─► begin ─► chain.init: SynProxied ─► answer_handshake ─► back to its sender
//!   ACK of no connection ─► check_handshake ─► Pipeline::begin_proxied: the packet becomes the SYN to the server
//!   SYN/ACK of the server ─► tracker ─► chain: it becomes the client's ACK ─► follow: the server gets an ACK of its own
//! ```

use flow::conntrack::Change;
use flow::table::Slot;
use flow::wire::build::{self, Tcp};
use flow::wire::{Headers, Packet, Parsed, TcpSegment, Transport, parse, tcp_flags};
use flow::{Connection, Direction, Disposition, DropReason, Frame, Instant, PortId, Tuple};
use network_functions::function::{AcceptedClient, CloseReason, ServerAcknowledgement, ToServer, Verdict};
use network_functions::syn_proxy::server_handshake::{HandshakeDue, ServerHandshake, ServerHandshakes};
use network_functions::syn_proxy::{Phase, SynProxyState, first_syn, reset_to_client, syn_to_server};

use super::connections::{Connections, record, record_mut};
use super::edge::Edge;
use crate::forwarding::Forwarder;

/// Handshakes with servers that are served at one call.
const SERVED_MAX: usize = 256;

/// The handshakes that this worker has begun with servers.
#[derive(Default)]
pub(super) struct Handshakes {
    servers: ServerHandshakes,
}

impl Handshakes {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.servers.poll_timeout()
    }

    /// A packet of a connection was tracked and processed, with this verdict: if its server has answered a handshake, the server is
    /// sent its acknowledgement. A client's packet before that has its server asked once more, if this node does not see to it already.
    pub(super) fn follow<E: Edge>(
        &mut self,
        connections: &mut Connections,
        now: Instant,
        packet: &Packet<'_, '_>,
        (slot, direction): (Slot, Direction),
        verdict: Verdict,
        edge: &mut E,
    ) -> Verdict {
        match connections.functions.output.to_server.take() {
            Some(ToServer::Acknowledgement(acknowledgement)) => {
                self.servers.finish(&record(&connections.table, slot).original);
                connections.acknowledge_server(now, packet, slot, &acknowledgement, edge);
                return verdict;
            }
            Some(ToServer::ResetOlder(acknowledged)) => {
                connections.reset_older(now, slot, acknowledged, edge);
                return verdict;
            }
            None => {}
        }
        if direction == Direction::Reply || !matches!(verdict, Verdict::Drop(_)) {
            return verdict;
        }
        let connection = record(&connections.table, slot);
        if connections.awaiting_state(connection).is_none() {
            return verdict;
        }
        let (original, outgoing) = (connection.original, connection.translated(Direction::Original));
        if !self.servers.contains(&original)
            && let Some(Ok(client)) = connections.check_handshake(now, packet)
        {
            self.servers.begin(now, ServerHandshake { original, sequence: client.sequence });
            post(&outgoing, first_syn(&client), |packet| edge.post(now, packet));
        }
        Verdict::Drop(DropReason::SynProxyAwaiting)
    }

    /// A client's cookie was accepted, and its server was sent a SYN.
    pub(super) fn begin(&mut self, now: Instant, original: Tuple, client: &AcceptedClient) {
        // A former opening of the same tuple had another number.
        self.servers.finish(&original);
        self.servers.begin(now, ServerHandshake { original, sequence: client.sequence });
    }

    /// Sends SYNs again to servers that have not answered, and gives up those that do not at all: their clients are reset.
    pub(super) fn serve(&mut self, connections: &mut Connections, now: Instant, forwarder: &mut Forwarder) {
        for _ in 0..SERVED_MAX {
            let Some(due) = self.servers.poll_due(now) else { return };
            let (HandshakeDue::Resend(handshake) | HandshakeDue::GiveUp(handshake)) = due;
            let found = connections.lookup(&handshake.original);
            let Some((slot, state)) = found.and_then(|(slot, _)| Some((slot, connections.own_awaiting(slot)?))) else {
                self.servers.finish(&handshake.original);
                continue;
            };
            let connection = record(&connections.table, slot);
            if let HandshakeDue::Resend(_) = due {
                let syn = syn_to_server(&state, handshake.sequence, client_window(connection, false));
                let outgoing = connection.translated(Direction::Original);
                syn.into_iter().for_each(|syn| post(&outgoing, syn, |packet| forwarder.post(now, packet)));
            } else {
                let reset = reset_to_client(&state, handshake.sequence);
                post(&connection.translated(Direction::Reply), reset, |packet| forwarder.post(now, packet));
                if let Some(proxy) = connections.functions.chain.handshake_proxy() {
                    proxy.note_unanswered(state.rule_id());
                }
                connections.end(slot, CloseReason::Timeout);
            }
        }
    }
}

impl Connections {
    /// A function's view of a packet of no connection; `None`: no function answers handshakes, or the packet does not concern it.
    #[inline]
    pub(super) fn check_handshake(
        &self,
        now: Instant,
        packet: &Packet<'_, '_>,
    ) -> Option<Result<AcceptedClient, DropReason>> {
        if packet.headers.is_fragment {
            return None;
        }
        self.functions.chain.handshake_proxy()?.check(now, packet)
    }

    /// Whether [`Connections::check_handshake`] would find an accepted client. Nothing is counted.
    pub(super) fn would_accept(&self, now: Instant, packet: &Packet<'_, '_>) -> bool {
        let Transport::Tcp(segment) = packet.headers.transport else { return false };
        let kind = segment.flags & (tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST | tcp_flags::ACK);
        let proxy = self.functions.chain.handshake_proxy();
        let client = || proxy.and_then(|proxy| proxy.client(now, packet));
        kind == tcp_flags::ACK && !packet.headers.is_fragment && client().is_some()
    }

    /// Turns a SYN into its answer, which leaves by where it came in: no neighbour is resolved for a spoofed address.
    pub(super) fn answer_handshake(
        &self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
    ) -> Result<Disposition, DropReason> {
        let proxy = self.functions.chain.handshake_proxy().ok_or(DropReason::SynProxied)?;
        if proxy.answer(now, packet) {
            Ok(Disposition::Transmit(packet.frame.ingress))
        } else {
            Err(DropReason::SynProxied)
        }
    }

    /// The proxy's state of a connection whose server has not answered.
    pub(super) fn awaiting_state(&self, connection: &Connection) -> Option<SynProxyState> {
        let chain = &self.functions.chain;
        chain.handshake_proxy()?;
        chain.state_of::<SynProxyState>(connection).filter(|state| state.phase() == Phase::Awaiting)
    }

    /// The same, if the connection is this node's.
    fn own_awaiting(&self, slot: Slot) -> Option<SynProxyState> {
        let connection = record(&self.table, slot);
        self.awaiting_state(connection).filter(|_| connection.owner == self.node)
    }

    /// The server has answered: it is sent its acknowledgement, which the tracker sees as the client's.
    fn acknowledge_server<E: Edge>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, '_>,
        slot: Slot,
        acknowledgement: &ServerAcknowledgement,
        edge: &mut E,
    ) {
        let connection = record_mut(&mut self.table, slot);
        let segment = Tcp {
            flags: tcp_flags::ACK,
            sequence: acknowledgement.sequence,
            acknowledgement: acknowledgement.acknowledgement,
            window: client_window(connection, true),
            timestamps: acknowledgement.timestamps,
            ..Tcp::default()
        };
        post(&connection.translated(Direction::Original), segment, |packet| edge.post(now, packet));
        let transport = Transport::Tcp(TcpSegment {
            sequence: segment.sequence,
            acknowledgement: segment.acknowledgement,
            sack_end: segment.acknowledgement,
            flags: segment.flags,
            window: segment.window,
            ..TcpSegment::default()
        });
        self.track_own(now, &Headers { transport, ..*packet.headers }, slot, Direction::Original);
    }

    /// The server holds an older connection with the tuple of one whose SYN it was sent. It is sent what the client would send: a reset at
    /// the number that it acknowledges, and the SYN again.
    fn reset_older<E: Edge>(&self, now: Instant, slot: Slot, acknowledged: u32, edge: &mut E) {
        let connection = record(&self.table, slot);
        let client = &connection.protocol.peers[Direction::Original.index()];
        let is_known = client.window_max != 0;
        let Some(state) = self.awaiting_state(connection) else { return };
        if is_known && acknowledged == client.end {
            return;
        }
        let outgoing = connection.translated(Direction::Original);
        let reset = Tcp { flags: tcp_flags::RST, sequence: acknowledged, window: 0, ..Tcp::default() };
        post(&outgoing, reset, |packet| edge.post(now, packet));
        // Behind its SYN the client has sent nothing that tracking has seen.
        let syn = is_known
            .then(|| syn_to_server(&state, client.end.wrapping_sub(1), client_window(connection, false)))
            .flatten();
        syn.into_iter().for_each(|syn| post(&outgoing, syn, |packet| edge.post(now, packet)));
    }

    /// Has connection tracking see a segment that the node sends in the place of an end point.
    pub(super) fn track_own(&mut self, now: Instant, headers: &Headers, slot: Slot, direction: Direction) {
        let Self { table, tracker, .. } = &mut *self;
        let connection = record_mut(table, slot);
        let advance = tracker.advance(now, &mut connection.protocol, &mut connection.flags, direction, headers);
        if advance.change != Change::None {
            connection.bump_version();
        }
        if let Some(timeout) = advance.timeout {
            self.set_expiry(slot, now + timeout);
        }
    }
}

/// Resets a client whose cookie was accepted and whose connection cannot begin: it takes it for open, and an ICMP error would not end it.
pub(super) fn reset_accepted<E: Edge>(now: Instant, original: &Tuple, client: &AcceptedClient, edge: &mut E) {
    let reset = Tcp {
        flags: tcp_flags::RST | tcp_flags::ACK,
        sequence: client.cookie.sequence.wrapping_add(1),
        acknowledgement: client.sequence.wrapping_add(1),
        window: 0,
        ..Tcp::default()
    };
    post(&original.inverse(), reset, |packet| edge.post(now, packet));
}

/// The window of a client as a field of a segment that the node sends for it. That of a SYN is not scaled.
fn client_window(connection: &Connection, is_scaled: bool) -> u16 {
    let client = &connection.protocol.peers[Direction::Original.index()];
    let bytes = match client.window_max {
        // It is not known after a take-over.
        0 => u32::from(u16::MAX),
        bytes => bytes.min(u16::MAX.into()),
    };
    let shift = if is_scaled { u32::from(client.window_scale) } else { 0 };
    (bytes >> shift).max(1) as u16
}

/// Has a segment sent that the node makes itself.
pub(super) fn post(tuple: &Tuple, segment: Tcp<'_>, send: impl FnOnce(&mut Packet<'_, '_>)) {
    let mut bytes = build::tcp(tuple, segment, b"");
    let length_bytes = bytes.len();
    let Some(mut frame) = Frame::new(&mut bytes, 0, length_bytes, PortId(0)) else { return };
    let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { return };
    send(&mut Packet { frame: &mut frame, headers: &mut headers });
}
