//! Events as messages.

use super::attributes::{Header, Writer, messages};
use super::entry::Purpose;
use super::numbers::{CONNECTIONS, DELETE, EXPECTATIONS, NETFILTER_HEADER_BYTES, NEW, NLM_F_CREATE, NLM_F_EXCL};
use super::{Cause, Event, entry, expectation, tuple};

/// Calls `handle` with each event of a datagram from the kernel. Returns the number of malformed messages.
pub fn decode_events(datagram: &[u8], handle: &mut dyn FnMut(Cause, Event)) -> usize {
    let mut malformed = 0;
    let complete = messages(datagram, |header, rest| match decode(header, rest) {
        Some(event) => handle(cause(header), event),
        None => malformed += 1,
    });
    malformed + usize::from(complete.is_none())
}

const fn cause(header: Header) -> Cause {
    match header.port {
        0 => Cause::Packets,
        port => Cause::Program(port),
    }
}

fn decode(header: Header, rest: &[u8]) -> Option<Event> {
    let attributes = rest.get(NETFILTER_HEADER_BYTES..)?;
    Some(match (header.subsystem, header.kind) {
        // New and changed connections have the same type; only the flags differ.
        (CONNECTIONS, NEW) if header.flags & NLM_F_CREATE != 0 => Event::Began(entry::decode(attributes)?),
        (CONNECTIONS, NEW) => Event::Changed(entry::decode(attributes)?),
        (CONNECTIONS, DELETE) => Event::Ended(entry::decode(attributes)?),
        (EXPECTATIONS, NEW) => Event::Expected(expectation::decode(attributes)?),
        (EXPECTATIONS, DELETE) => Event::ExpectationEnded(expectation::decode(attributes)?),
        _ => return None,
    })
}

/// Appends the kernel's message for the event to `buffer`, whose length must be a multiple of four: for tests and
/// measurements without a kernel.
pub fn encode_event(cause: Cause, event: &Event, buffer: &mut Vec<u8>) {
    let port = match cause {
        Cause::Packets => 0,
        Cause::Program(port) => port,
    };
    let (subsystem, kind, flags) = match event {
        Event::Began(_) => (CONNECTIONS, NEW, NLM_F_CREATE | NLM_F_EXCL),
        Event::Changed(_) => (CONNECTIONS, NEW, 0),
        Event::Ended(_) => (CONNECTIONS, DELETE, 0),
        Event::Expected(_) => (EXPECTATIONS, NEW, NLM_F_CREATE | NLM_F_EXCL),
        Event::ExpectationEnded(_) => (EXPECTATIONS, DELETE, 0),
    };
    let header = Header { subsystem, kind, flags, sequence: 0, port };
    match event {
        Event::Began(entry) | Event::Changed(entry) | Event::Ended(entry) => {
            let mut writer = Writer::begin(buffer, header, tuple::family(&entry.original));
            entry::encode(&mut writer, entry, Purpose::Describe);
            writer.end();
        }
        Event::Expected(entry) | Event::ExpectationEnded(entry) => {
            let mut writer = Writer::begin(buffer, header, tuple::family(&entry.expected));
            expectation::encode(&mut writer, entry);
            writer.end();
        }
    }
}
