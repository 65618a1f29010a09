//! Reads the lines of a segment, and expects the announced connections.

use alloc::format;
use core::iter;
use core::ops::Range;

use arrayvec::ArrayString;
use flow::serial::is_before;
use flow::{Direction, DropReason, Tuple};

use super::line::{self, Announcement, Command, Reply, TEXT_BYTES_MAX};
use super::state::{FtpState, REFUSALS_MAX, flags};
use super::{Counter, Ftp, NAME};
use crate::address::{from_tuple_bytes, tuple_bytes};
use crate::expectation::{ANY_PORT, Expectation, Refusal};
use crate::function::{Context, FlowState};
use crate::log::LogEntry;
use crate::nat::ports::{self, PORT_PROBES_MAX};

/// The reply code after which a server continues encrypted (RFC 4217 section 4).
const ENCRYPTED_FROM_HERE: u16 = 234;
/// Ports below this are those of well-known services (RFC 6335).
const UNPRIVILEGED_PORTS_FIRST: u16 = 1024;

/// The data of a segment.
#[derive(Clone, Copy)]
pub(super) struct SegmentData<'p> {
    pub(super) direction: Direction,
    /// The sequence number of its first byte, in the sender's numbering.
    pub(super) sequence: u32,
    pub(super) payload: &'p [u8],
}

/// A replacement of payload bytes.
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) text: ArrayString<TEXT_BYTES_MAX>,
}

/// The position of a line.
#[derive(Clone, Copy)]
struct LinePosition<'p> {
    /// The offset in the payload.
    at: usize,
    line: &'p [u8],
}

/// The part of a payload that has not been read.
struct Unread {
    from: usize,
    is_within_line: bool,
}

impl SegmentData<'_> {
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.payload.len() as u32)
    }

    /// `None`: all of it has been read. After a gap, or on a connection whose beginning was not seen, the data may
    /// continue a line: then only the data behind a line's end begins a line.
    fn unread(&self, state: &FtpState) -> Option<Unread> {
        match state.next(self.direction) {
            Some(next) if !is_before(next, self.end()) => None,
            Some(next) if !is_before(next, self.sequence) => {
                let from = next.wrapping_sub(self.sequence) as usize;
                Some(Unread { from, is_within_line: state.is_within_line(self.direction) })
            }
            _ => Some(Unread { from: 0, is_within_line: true }),
        }
    }
}

impl Ftp {
    /// Refuses a segment that ends within a relevant line, a limited number of times. Its sender retransmits it,
    /// usually with the rest of the line. Later data is refused meanwhile, as otherwise the retransmission would not
    /// contain the rest; data behind a gap is refused too, until the gap is closed.
    ///
    /// In the end it passes, as its sender may see no gap: this node may have taken over from one that died before it
    /// replicated its read position.
    pub(super) fn refuse_part(
        &self,
        state: &mut FtpState,
        context: &mut Context<'_>,
        data: SegmentData<'_>,
    ) -> Result<(), DropReason> {
        let SegmentData { direction, sequence, payload } = data;
        // The read position is unknown for a connection that was picked up in the middle.
        let Some(next) = state.next(direction).filter(|_| !state.has(flags::ENCRYPTED)) else { return Ok(()) };
        let Some(unread) = data.unread(state) else { return Ok(()) };
        let may_refuse = state.refusals(direction) < REFUSALS_MAX;
        if is_before(next, sequence) {
            if state.is_awaiting(direction) {
                return Err(DropReason::PartialLine);
            }
            if !may_refuse {
                return Ok(());
            }
        } else {
            let rest = &payload[unread.from..];
            let part = match rest.iter().rposition(|byte| *byte == b'\n') {
                Some(at) => &rest[at + 1..],
                None if unread.is_within_line => return Ok(()),
                None => rest,
            };
            let may_matter = match direction {
                Direction::Original => line::may_become_command(part),
                Direction::Reply => state.has(flags::LISTEN_ASKED) && line::may_become_reply(part),
            };
            if part.is_empty() || !may_matter || !may_refuse {
                return Ok(());
            }
            state.note_awaited(direction);
        }
        state.note_refusal(direction);
        context.count(Counter::PartsRefused as usize);
        Err(DropReason::PartialLine)
    }

    /// Reads new data. The caller applies the edit before the segment leaves; `state` already includes it.
    pub(super) fn read(
        &self,
        state: &mut FtpState,
        context: &mut Context<'_>,
        data: SegmentData<'_>,
    ) -> Result<Option<Edit>, DropReason> {
        let Some(unread) = data.unread(state).filter(|_| !state.has(flags::ENCRYPTED)) else { return Ok(None) };
        let end_of_line = |from: usize| {
            let bytes = data.payload[from..].iter().position(|byte| *byte == b'\n')?;
            Some(from + bytes + 1)
        };
        let mut at = unread.from;
        if unread.is_within_line {
            let Some(end) = end_of_line(at) else {
                state.set_read(data.direction, data.end(), true);
                return Ok(None);
            };
            at = end;
        }
        let mut edit = None;
        while let Some(end) = end_of_line(at) {
            let place = LinePosition { at, line: &data.payload[at..end] };
            if let Some(announcement) = announced(state, data.direction, place.line).filter(|_| edit.is_none()) {
                edit = self.announce(state, context, data, place, &announcement)?;
            }
            at = end;
        }
        state.set_read(data.direction, data.end(), at < data.payload.len());
        Ok(edit)
    }

    /// Expects the connection that a line announces, and returns the announcement for the other side.
    fn announce(
        &self,
        state: &mut FtpState,
        context: &mut Context<'_>,
        data: SegmentData<'_>,
        place: LinePosition<'_>,
        announcement: &Announcement,
    ) -> Result<Option<Edit>, DropReason> {
        let Some(mut ends) = Ends::of(context, data.direction, announcement) else { return Ok(None) };
        if ends.is_third_party && !self.config.loose {
            self.refuse(context, Counter::AddressesRefused, announcement);
            return Ok(None);
        }
        if announcement.port < UNPRIVILEGED_PORTS_FIRST && !self.config.privileged_ports {
            self.refuse(context, Counter::PortsRefused, announcement);
            return Ok(None);
        }
        let side = &mut state.sides[data.direction.index()];
        if ends.is_translated && side.has_pending_line() {
            return Err(DropReason::PayloadUnchangeable);
        }
        context.remove_expected(FtpState::ATTRIBUTE);
        let port = self.expect(context, data.direction, &mut ends)?;
        context.count(match data.direction {
            Direction::Original => Counter::ActiveExpected as usize,
            Direction::Reply => Counter::PassiveExpected as usize,
        });
        let is_right = announcement.address.is_none_or(|address| tuple_bytes(address) == ends.tuple.destination);
        if !ends.is_translated || (is_right && port == announcement.port) {
            return Ok(None);
        }
        let text = announcement.with(from_tuple_bytes(ends.tuple.destination, ends.tuple.family()), port);
        let delta = text.len() as i8 - announcement.place.len() as i8;
        let position = data.sequence.wrapping_add(place.at as u32);
        side.note_change(position, place.line.len() as u8, delta, port);
        context.count(Counter::Rewritten as usize);
        Ok(Some(Edit { range: place.at + announcement.place.start..place.at + announcement.place.end, text }))
    }

    /// Expects the connection, with another port if necessary; returns the port.
    fn expect(&self, context: &mut Context<'_>, direction: Direction, ends: &mut Ends) -> Result<u16, DropReason> {
        let own_port = ends.outgoing.destination_port;
        // The port on the translated address is from this node's and worker's part, so no other one chooses it for the
        // same server.
        //
        // A client's target also contains the client's address, and that client has a single control connection here.
        let share = context.port_share();
        let is_own = self.ports.contains(own_port) && share.contains(own_port);
        let is_kept = !ends.is_translated || direction == Direction::Reply || is_own;
        let others = ports::candidates(self.ports, self.config.key.hash(&ends.outgoing));
        let others = others.filter(|port| share.contains(*port)).take(PORT_PROBES_MAX);
        for port in iter::once(own_port).filter(|_| is_kept).chain(others.filter(|_| ends.is_translated)) {
            ends.tuple.destination_port = port;
            let expectation = Expectation {
                tuple: ends.tuple,
                outgoing: ends.outgoing,
                function: FtpState::ATTRIBUTE,
                expires_at: context.now + self.config.timeout,
                is_permanent: false,
            };
            match context.expect(expectation) {
                Ok(()) => return Ok(port),
                // Another control connection between the same hosts announced the same end point.
                Err(Refusal::Clash) if !ends.is_translated => return Ok(port),
                Err(Refusal::Clash) => {}
                Err(Refusal::Full) => break,
            }
        }
        Err(DropReason::ExpectationRefused)
    }

    /// An announcement of another host's address or of a well-known port is not expected; the line passes unchanged.
    fn refuse(&self, context: &mut Context<'_>, counter: Counter, announcement: &Announcement) {
        context.count(counter as usize);
        let tuple = context.original;
        context.log.push_with(|| {
            let message = match announcement.address {
                Some(address) => format!("not expecting a data connection to {address} port {}", announcement.port),
                None => format!("not expecting a data connection to port {}", announcement.port),
            };
            LogEntry { function: NAME, message, tuple }
        });
    }
}

/// A line's announcement, if it is acceptable now.
fn announced(state: &mut FtpState, direction: Direction, text: &[u8]) -> Option<Announcement> {
    if state.has(flags::ENCRYPTED) {
        return None;
    }
    if direction == Direction::Original {
        return match line::command(text) {
            Command::Announces(announcement) => Some(announcement),
            Command::AsksToListen => {
                state.set(flags::LISTEN_ASKED, true);
                None
            }
            Command::Other => None,
        };
    }
    match line::reply(text, Some(state.reply_code).filter(|code| *code != 0)) {
        Reply::Begins(code) => {
            state.reply_code = code;
            None
        }
        Reply::Ends(code, announcement) => {
            state.reply_code = 0;
            state.set(flags::ENCRYPTED, code == ENCRYPTED_FROM_HERE);
            let announcement = announcement.filter(|_| state.has(flags::LISTEN_ASKED))?;
            state.set(flags::LISTEN_ASKED, false);
            Some(announcement)
        }
        Reply::Other => None,
    }
}

/// Changes an unacknowledged line again in the same way.
pub(super) fn repeat_change(
    state: &FtpState,
    context: &Context<'_>,
    data: SegmentData<'_>,
) -> Result<Option<Edit>, DropReason> {
    let side = &state.sides[data.direction.index()];
    let from = i64::from(side.position.wrapping_sub(data.sequence).cast_signed());
    let to = from + i64::from(side.length_bytes);
    if !side.has_pending_line() || to <= 0 || from >= data.payload.len() as i64 {
        return Ok(None);
    }
    let part = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let Some((from, line)) = part.and_then(|(from, to)| Some((from, data.payload.get(from..to)?))) else {
        return Err(DropReason::PartialLine);
    };
    let announcement = match data.direction {
        Direction::Original => match line::command(line) {
            Command::Announces(announcement) => Some(announcement),
            Command::AsksToListen | Command::Other => None,
        },
        Direction::Reply => match line::reply(line, None) {
            Reply::Ends(_, announcement) => announcement,
            Reply::Begins(_) | Reply::Other => None,
        },
    };
    let announcement = announcement.ok_or(DropReason::PayloadUnchangeable)?;
    let seen = peers_tuple(context, data.direction);
    let text = announcement.with(from_tuple_bytes(seen.destination, seen.family()), side.port);
    let Range { start, end } = announcement.place;
    if text.len() as i64 - (end - start) as i64 != i64::from(side.delta) {
        // The data differs from the original there.
        return Err(DropReason::PayloadUnchangeable);
    }
    Ok(Some(Edit { range: from + start..from + end, text }))
}

/// The tuple of packets from the other side, with the announcer's address as that side sees it.
const fn peers_tuple<'a>(context: &'a Context<'_>, direction: Direction) -> &'a Tuple {
    match direction {
        Direction::Original => &context.reply,
        Direction::Reply => &context.original,
    }
}

/// The end points of an announced connection.
struct Ends {
    /// The incoming tuple of its first packet from the other side; the port is that of the announcement until one is
    /// chosen.
    tuple: Tuple,
    /// The tuple of the same packet as it leaves for the announcer.
    outgoing: Tuple,
    /// The announcer's address differs between the two sides.
    is_translated: bool,
    /// The announced address is not the announcer's.
    is_third_party: bool,
}

impl Ends {
    /// `None`: the announced address has another family than the control connection.
    ///
    /// ```text
    ///   announcer ──own──►│ node │──known as──► other side        its answer:  other side ──► known as │ node │ ──► own
    /// ```
    fn of(context: &Context<'_>, direction: Direction, announcement: &Announcement) -> Option<Self> {
        let (own, peers) = match direction {
            Direction::Original => (&context.original, &context.reply),
            Direction::Reply => (&context.reply, &context.original),
        };
        let announced = match announcement.address {
            Some(address) if address.is_ipv4() != (own.version == 4) => return None,
            Some(address) => tuple_bytes(address),
            None => own.source,
        };
        let is_third_party = announced != own.source && announced != peers.destination;
        let with =
            |destination| Tuple { destination, source_port: ANY_PORT, destination_port: announcement.port, ..*peers };
        // The other side leaves with the address that the announcer uses.
        let outgoing = Tuple { source: own.destination, ..with(if is_third_party { announced } else { own.source }) };
        Some(Self {
            tuple: with(if is_third_party { announced } else { peers.destination }),
            outgoing,
            is_translated: !is_third_party && own.source != peers.destination,
            is_third_party,
        })
    }
}
