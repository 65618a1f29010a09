//! Reading the lines of a segment, and expecting the connections that they announce.

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

/// The code of a server that goes on encrypted (RFC 4217 section 4).
const ENCRYPTED_FROM_HERE: u16 = 234;
/// Ports below this are those of well-known services (RFC 6335).
const UNPRIVILEGED_PORTS_FIRST: u16 = 1024;

/// What a segment carries.
#[derive(Clone, Copy)]
pub(super) struct Said<'p> {
    pub(super) direction: Direction,
    /// The number of its first byte, as its sender writes it.
    pub(super) sequence: u32,
    pub(super) payload: &'p [u8],
}

/// Bytes of a payload that are to be replaced.
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) text: ArrayString<TEXT_BYTES_MAX>,
}

/// Where a line lies.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// From the beginning of the payload.
    at: usize,
    line: &'p [u8],
}

/// The part of a payload that was not read before.
struct Unread {
    from: usize,
    is_within_line: bool,
}

impl Said<'_> {
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.payload.len() as u32)
    }

    /// `None`: all of it was read before. What comes behind a gap, or on a connection whose beginning was not seen, may be
    /// the rest of a line: nothing is a line's beginning then but what follows the end of one.
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
    /// Refuses a segment that ends within a line which must be seen whole, a few times: its sender repeats it, and with the
    /// rest that it has by then as a rule. What follows is refused meanwhile, or the repetition would not hold the rest. What
    /// comes behind a gap is refused too: it is read when the gap is closed. It passes in the end, because there may be no
    /// gap for its sender: this node may have taken over from one that died before it told of what it read last.
    pub(super) fn refuse_part(
        &self,
        state: &mut FtpState,
        context: &mut Context<'_>,
        said: Said<'_>,
    ) -> Result<(), DropReason> {
        let Said { direction, sequence, payload } = said;
        // Where the connection was read to is not known on one that was picked up in its middle.
        let Some(next) = state.next(direction).filter(|_| !state.has(flags::ENCRYPTED)) else { return Ok(()) };
        let Some(unread) = said.unread(state) else { return Ok(()) };
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

    /// Reads what was not read before. The edit is to be made before the segment goes out; `state` knows of it already.
    pub(super) fn read(
        &self,
        state: &mut FtpState,
        context: &mut Context<'_>,
        said: Said<'_>,
    ) -> Result<Option<Edit>, DropReason> {
        let Some(unread) = said.unread(state).filter(|_| !state.has(flags::ENCRYPTED)) else { return Ok(None) };
        let end_of_line = |from: usize| {
            let bytes = said.payload[from..].iter().position(|byte| *byte == b'\n')?;
            Some(from + bytes + 1)
        };
        let mut at = unread.from;
        if unread.is_within_line {
            let Some(end) = end_of_line(at) else {
                state.set_read(said.direction, said.end(), true);
                return Ok(None);
            };
            at = end;
        }
        let mut edit = None;
        while let Some(end) = end_of_line(at) {
            let place = Place { at, line: &said.payload[at..end] };
            if let Some(announcement) = announced(state, said.direction, place.line).filter(|_| edit.is_none()) {
                edit = self.announce(state, context, said, place, &announcement)?;
            }
            at = end;
        }
        state.set_read(said.direction, said.end(), at < said.payload.len());
        Ok(edit)
    }

    /// Expects the connection that a line announces, and says how the announcement must read for the other side.
    fn announce(
        &self,
        state: &mut FtpState,
        context: &mut Context<'_>,
        said: Said<'_>,
        place: Place<'_>,
        announcement: &Announcement,
    ) -> Result<Option<Edit>, DropReason> {
        let Some(mut ends) = Ends::of(context, said.direction, announcement) else { return Ok(None) };
        if ends.is_foreign && !self.config.loose {
            self.refuse(context, Counter::AddressesRefused, announcement);
            return Ok(None);
        }
        if announcement.port < UNPRIVILEGED_PORTS_FIRST && !self.config.privileged_ports {
            self.refuse(context, Counter::PortsRefused, announcement);
            return Ok(None);
        }
        let way = &mut state.ways[said.direction.index()];
        if ends.is_translated && way.has_pending_line() {
            return Err(DropReason::PayloadUnchangeable);
        }
        context.forget_expected(FtpState::ATTRIBUTE);
        let port = self.expect(context, said.direction, &mut ends)?;
        context.count(match said.direction {
            Direction::Original => Counter::ActiveExpected as usize,
            Direction::Reply => Counter::PassiveExpected as usize,
        });
        let is_right = announcement.address.is_none_or(|address| tuple_bytes(address) == ends.tuple.destination);
        if !ends.is_translated || (is_right && port == announcement.port) {
            return Ok(None);
        }
        let text = announcement.with(from_tuple_bytes(ends.tuple.destination, ends.tuple.family()), port);
        let delta = text.len() as i8 - announcement.place.len() as i8;
        let position = said.sequence.wrapping_add(place.at as u32);
        way.note_change(position, place.line.len() as u8, delta, port);
        context.count(Counter::Rewritten as usize);
        Ok(Some(Edit { range: place.at + announcement.place.start..place.at + announcement.place.end, text }))
    }

    /// Expects the connection, under another port if need be; returns the port.
    fn expect(&self, context: &mut Context<'_>, direction: Direction, ends: &mut Ends) -> Result<u16, DropReason> {
        let own_port = ends.outgoing.destination_port;
        // A port on the translated address is one of this node's and worker's part, so that no other chooses it for the same
        // server.
        // What a client connects to is named by the client's address too, of which there is one control connection.
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
                // Another control connection between the same hosts announced the very same.
                Err(Refusal::Clash) if !ends.is_translated => return Ok(port),
                Err(Refusal::Clash) => {}
                Err(Refusal::Full) => break,
            }
        }
        Err(DropReason::ExpectationRefused)
    }

    /// An announcement of somebody else's address or of a service's port is not expected; the line passes as it is.
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

/// What a line announces, if it may now.
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

/// A changed line that its receiver has not acknowledged is changed into the same again.
pub(super) fn repeat_change(
    state: &FtpState,
    context: &Context<'_>,
    said: Said<'_>,
) -> Result<Option<Edit>, DropReason> {
    let way = &state.ways[said.direction.index()];
    let from = i64::from(way.position.wrapping_sub(said.sequence).cast_signed());
    let to = from + i64::from(way.length_bytes);
    if !way.has_pending_line() || to <= 0 || from >= said.payload.len() as i64 {
        return Ok(None);
    }
    let part = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let Some((from, line)) = part.and_then(|(from, to)| Some((from, said.payload.get(from..to)?))) else {
        return Err(DropReason::PartialLine);
    };
    let announcement = match said.direction {
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
    let seen = peers_tuple(context, said.direction);
    let text = announcement.with(from_tuple_bytes(seen.destination, seen.family()), way.port);
    let Range { start, end } = announcement.place;
    if text.len() as i64 - (end - start) as i64 != i64::from(way.delta) {
        // Not what was said there before.
        return Err(DropReason::PayloadUnchangeable);
    }
    Ok(Some(Edit { range: from + start..from + end, text }))
}

/// The tuple of packets that come from the other side: it says under which address that side knows the announcer.
const fn peers_tuple<'a>(context: &'a Context<'_>, direction: Direction) -> &'a Tuple {
    match direction {
        Direction::Original => &context.reply,
        Direction::Reply => &context.original,
    }
}

/// The ends of an announced connection.
struct Ends {
    /// Of its first packet as it comes in from the other side; the port is that of the announcement until one is chosen.
    tuple: Tuple,
    /// Of the same packet as it goes out to whoever announced it.
    outgoing: Tuple,
    /// The announcer listens elsewhere than where the other side finds it.
    is_translated: bool,
    /// The address announced is not that of the announcer.
    is_foreign: bool,
}

impl Ends {
    /// `None`: the address announced is of another family than the control connection.
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
        let is_foreign = announced != own.source && announced != peers.destination;
        let with =
            |destination| Tuple { destination, source_port: ANY_PORT, destination_port: announcement.port, ..*peers };
        // The other side leaves as the announcer knows it.
        let outgoing = Tuple { source: own.destination, ..with(if is_foreign { announced } else { own.source }) };
        Some(Self {
            tuple: with(if is_foreign { announced } else { peers.destination }),
            outgoing,
            is_translated: !is_foreign && own.source != peers.destination,
            is_foreign,
        })
    }
}
