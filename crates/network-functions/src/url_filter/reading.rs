//! Segments of a client until its request is decided, and until the server has acknowledged it.
//!
//! The server must read what the filter has read. So a segment is forwarded only if every server takes it, and takes the same bytes from it:
//!
//! | segment of the client | what is done |
//! |---|---|
//! | with urgent data (RFC 9293 section 3.8.5) | the mark is removed: the bytes are read in their place |
//! | with options beside timestamps and selective acknowledgements | they are replaced by no-operations: a server drops a signature that was not negotiated |
//! | a copy with other bytes than before, also ahead of a gap | dropped |
//! | without an acknowledgement of what the server has sent, or with an older timestamp | dropped; see [`Acceptance`] |
//! | with a lower time to live than the SYN, with options of IP or extension headers | dropped |
//! | a fragment | it is undecided |
//! | a further SYN | forwarded without data; what the server acknowledges is the beginning |
//!
//! Dropped segments are repeated by their sender, if it means what it sends.

use flow::wire::tcp::{SegmentOptions, option};
use flow::wire::{Packet, TcpSegment, tcp_flags};
use flow::{Direction, DropReason};

use super::{Asked, NoHost, Phase, UrlFilter, UrlState, asked, stream};
use crate::function::{Context, Verdict};
use crate::inspect::Inspected;
use crate::inspect::acceptance::Acceptance;
use crate::inspect::assembly::{ASSEMBLY_BYTES_MAX, Comparison, Held, StreamKey, Unheld, within};

const IPV4_HEADER_BYTES: u16 = 20;
const IPV6_HEADER_BYTES: u16 = 40;

impl UrlFilter {
    /// A segment of a connection whose request is awaited.
    pub(super) fn handle_reading(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        segment: &TcpSegment,
        direction: Direction,
    ) -> Verdict {
        let is_syn = segment.has(tcp_flags::SYN);
        match direction {
            Direction::Original if is_syn && segment.payload_bytes > 0 => Verdict::Drop(DropReason::UrlFiltered),
            Direction::Original if is_syn => {
                remove_marks(packet);
                if !state.is_answered() {
                    let ttl = packet.headers.ttl.max(state.ttl());
                    *state = UrlState::reading(segment.sequence.wrapping_add(1), ttl);
                }
                Verdict::Forward
            }
            Direction::Original => self.read(state, context, packet, segment),
            Direction::Reply if is_syn => {
                note_answer(state, context, packet, segment);
                Verdict::Forward
            }
            Direction::Reply if segment.payload_bytes > 0 && !self.reads_questions(context) => {
                self.conclude(state, context, packet, direction, NoHost::Undecided)
            }
            Direction::Reply if segment.has(tcp_flags::ACK) && self.lacks(context, segment) => {
                self.conclude(state, context, packet, direction, NoHost::Undecided)
            }
            Direction::Reply => {
                let stream = stream(context);
                if (segment.payload_bytes > 0 || segment.has(tcp_flags::FIN))
                    && let Some(start) = context.assemblies.start(&stream)
                {
                    context.assemblies.acceptance(&stream, start).note_sent(segment.end());
                }
                Verdict::Forward
            }
        }
    }

    /// A segment of the client whose first bytes are awaited.
    fn read(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        segment: &TcpSegment,
    ) -> Verdict {
        remove_marks(packet);
        if packet.headers.is_fragment {
            return self.conclude(state, context, packet, Direction::Original, NoHost::Undecided);
        }
        let stream = stream(context);
        let held_start = context.assemblies.start(&stream);
        let start = held_start.unwrap_or_else(|| {
            let offset = state.offset(segment.sequence) as u32;
            // Modulo 2^24: those of a keep-alive lie before the first byte.
            let is_before = offset >= 1 << 23;
            segment.sequence.wrapping_sub(if is_before { offset | 0xff << 24 } else { offset })
        });
        let (offset, payload) = within(start, segment.sequence, packet.payload());
        if payload.is_empty() {
            return Verdict::Forward;
        }
        let timestamp = SegmentOptions::read(packet.tcp_header()).timestamps.map(|(value, _)| value);
        let is_taken = segment.has(tcp_flags::ACK)
            && packet.headers.ttl >= state.ttl()
            && has_plain_network_header(packet)
            && context.assemblies.acceptance(&stream, start).accepts(segment.acknowledgement, timestamp);
        if !is_taken {
            return Verdict::Drop(DropReason::UrlUnreadable);
        }
        let reads_questions = self.reads_questions(context);
        let read = match context.assemblies.insert(&stream, start, offset, payload) {
            Ok(_) if reads_questions => return self.read_questions(state, context, packet, segment),
            Ok(Held { prefix, progress }) => match asked(prefix, progress) {
                Inspected::Partial if prefix.len() >= ASSEMBLY_BYTES_MAX => progress.given_up(prefix).map(|()| None),
                read => read,
            },
            Err(Unheld::TooMany) if reads_questions => Inspected::Other,
            Err(Unheld::TooMany) => given_up(context, &stream),
            Err(Unheld::Differs) => return Verdict::Drop(DropReason::UrlCopyDiffers),
            // The handshake was at another node, and so was what is missing.
            Err(Unheld::Ahead) if held_start.is_none() => Inspected::Other,
            Err(Unheld::Ahead) => return Verdict::Drop(DropReason::UrlUnreadable),
        };
        match read {
            Inspected::Partial => Verdict::Forward,
            Inspected::Found(Some(asked)) => self.decide(state, context, packet, asked),
            Inspected::Found(None) | Inspected::Other => {
                self.conclude(state, context, packet, Direction::Original, NoHost::Undecided)
            }
            Inspected::Malformed => self.conclude(state, context, packet, Direction::Original, NoHost::Malformed),
        }
    }

    /// Whether the server has acknowledged more than the request's bytes that are held.
    fn lacks(&self, context: &Context<'_>, segment: &TcpSegment) -> bool {
        context.assemblies.lacks(&stream(context), segment.acknowledgement) && !self.reads_questions(context)
    }

    /// A segment of an allowed connection, of whose request the server may lack a part: copies must have the bytes that were read.
    pub(super) fn confirm(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        segment: &TcpSegment,
        direction: Direction,
    ) -> Verdict {
        let stream = stream(context);
        let is_confirming = state.phase() == Phase::Confirming;
        if direction == Direction::Reply {
            let is_confirmed =
                segment.has(tcp_flags::ACK) && context.assemblies.confirm(&stream, segment.acknowledgement);
            if is_confirmed && is_confirming {
                *state = state.confirmed();
            }
            return Verdict::Forward;
        }
        match context.assemblies.compare(&stream, segment.sequence, packet.payload()) {
            // A watched connection has been confirmed.
            Comparison::NotHeld if !is_confirming || packet.payload().is_empty() => Verdict::Forward,
            // What was held had to make room.
            Comparison::NotHeld => self.conclude(state, context, packet, direction, NoHost::Undecided),
            Comparison::Differs => Verdict::Drop(DropReason::UrlCopyDiffers),
            Comparison::Same if packet.headers.is_fragment => Verdict::Drop(DropReason::UrlUnreadable),
            Comparison::Same => {
                remove_marks(packet);
                Verdict::Forward
            }
        }
    }
}

/// What a stream is of which no more is read.
fn given_up(context: &Context<'_>, stream: &StreamKey) -> Inspected<Option<Asked>> {
    let progress = context.assemblies.progress(stream);
    progress.map_or(Inspected::Other, |it| it.given_up(context.assemblies.prefix(stream))).map(|()| None)
}

/// The server has answered the SYN: from here on it is known which segments it takes.
fn note_answer(state: &mut UrlState, context: &mut Context<'_>, packet: &Packet<'_, '_>, segment: &TcpSegment) {
    if !segment.has(tcp_flags::ACK) {
        return;
    }
    let (stream, start) = (stream(context), segment.acknowledgement);
    if !context.assemblies.holds(&stream, start) {
        let echoed = SegmentOptions::read(packet.tcp_header()).timestamps.map(|(_, echo)| echo);
        *context.assemblies.acceptance(&stream, start) = Acceptance::new(segment.sequence.wrapping_add(1), echoed);
    }
    *state = state.answered(start);
}

/// Removes what has a server read a segment otherwise, or not at all: the mark of urgent data, and options that no server needs.
fn remove_marks(packet: &mut Packet<'_, '_>) {
    let is_syn =
        matches!(&packet.headers.transport, flow::wire::Transport::Tcp(segment) if segment.has(tcp_flags::SYN));
    packet.clear_tcp_flags(tcp_flags::URG);
    packet.remove_tcp_options(|kind| match kind {
        option::NOP | option::TIMESTAMPS | option::SACK => true,
        option::MAXIMUM_SEGMENT | option::WINDOW_SCALE | option::SACK_PERMITTED => is_syn,
        _ => false,
    });
}

/// Whether a packet has neither options of IPv4 nor extension headers, with which a host may discard it (RFC 8200 section 4.2).
const fn has_plain_network_header(packet: &Packet<'_, '_>) -> bool {
    let headers = &packet.headers;
    let plain_bytes = if headers.tuple.version == 4 { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
    headers.l4_offset - headers.l3_offset == plain_bytes
}
