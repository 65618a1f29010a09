//! A connection that fetches objects, one after the other.

use flow::wire::tcp_flags::{ACK, FIN, PSH, SYN};

use super::super::endpoints::{Ends, Sequences, Side};
use super::pieces::{Copy, Found};

/// Data packets that are acknowledged at once.
const PACKETS_PER_ACK: u8 = 2;
/// Hosts are numbered through, servers behind clients.
const FIRST_SERVER: u64 = 1 << 32;

/// What a connection carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Text,
    Binary,
    Encrypted,
}

/// What its next frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Request,
    Data,
    Other,
}

/// A piece whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum NextPiece {
    /// One that was sent before.
    Repeat(Found),
    /// So many bytes that were not.
    Fresh(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Syn,
    SynAck,
    HandshakeAck,
    Request,
    Data,
    DataAck,
    Fin,
    FinBack,
    LastAck,
}

pub(super) struct Connection {
    flow: u64,
    pub(super) ends: Ends,
    pub(super) kind: Kind,
    sequences: Sequences,
    step: Step,
    /// Objects that are still to be fetched, the present one included.
    objects: u32,
    /// Bytes of the present object that are still to be sent; with its header once that was sent.
    pub(super) object_bytes: u32,
    is_at_beginning: bool,
    /// The piece that did not fit its packet.
    pub(super) carried: Option<NextPiece>,
    unacknowledged: u8,
}

impl Connection {
    pub(super) fn new(
        flow: u64,
        ends: Ends,
        kind: Kind,
        objects: u32,
        object_bytes: u32,
        (client, server): (u32, u32),
    ) -> Self {
        Self {
            flow,
            ends,
            kind,
            sequences: Sequences::new(client, server),
            step: Step::Syn,
            objects,
            object_bytes,
            is_at_beginning: true,
            carried: None,
            unacknowledged: 0,
        }
    }

    pub(super) fn turn(&self) -> Turn {
        match self.step {
            Step::Request => Turn::Request,
            Step::Data => Turn::Data,
            _ => Turn::Other,
        }
    }

    /// The next data packet is the first of its object.
    pub(super) const fn is_at_beginning(&self) -> bool {
        self.is_at_beginning
    }

    /// The connection goes on with another object of unknown size.
    pub(super) fn wants_object(&self) -> bool {
        self.step == Step::Request && self.object_bytes == 0
    }

    pub(super) fn begin_object(&mut self, bytes: u32) {
        (self.object_bytes, self.is_at_beginning) = (bytes, true);
    }

    /// Where a piece is that the connection carries.
    pub(super) fn copy(&self, is_request: bool) -> Copy {
        let (client, server) = (u64::from(self.ends.client), FIRST_SERVER + u64::from(self.ends.server));
        let (source, destination) = if is_request { (client, server) } else { (server, client) };
        Copy { flow: self.flow, source, destination }
    }

    /// Writes the next frame, with the payload that its turn asks for. True: it was the last.
    pub(super) fn send(&mut self, payload: &[u8], frame: &mut Vec<u8>) -> bool {
        let (side, flags) = match self.step {
            Step::Syn => (Side::Client, SYN),
            Step::SynAck => (Side::Server, SYN | ACK),
            Step::HandshakeAck | Step::DataAck | Step::LastAck => (Side::Client, ACK),
            Step::Request => (Side::Client, ACK | PSH),
            Step::Data => (Side::Server, ACK | PSH),
            Step::Fin => (Side::Client, FIN | ACK),
            Step::FinBack => (Side::Server, FIN | ACK),
        };
        *frame = self.sequences.segment(&self.ends, side, flags, payload);
        let is_over = self.step == Step::LastAck;
        self.step = self.step_after(payload.len() as u32);
        is_over
    }

    fn step_after(&mut self, payload_bytes: u32) -> Step {
        match self.step {
            Step::Syn => Step::SynAck,
            Step::SynAck => Step::HandshakeAck,
            Step::HandshakeAck => Step::Request,
            Step::Request => Step::Data,
            Step::Data => {
                self.is_at_beginning = false;
                self.object_bytes = self.object_bytes.saturating_sub(payload_bytes);
                self.unacknowledged += 1;
                let goes_on = self.object_bytes > 0 && self.unacknowledged < PACKETS_PER_ACK;
                if goes_on { Step::Data } else { Step::DataAck }
            }
            Step::DataAck => {
                self.unacknowledged = 0;
                if self.object_bytes > 0 {
                    return Step::Data;
                }
                self.objects -= 1;
                if self.objects > 0 { Step::Request } else { Step::Fin }
            }
            Step::Fin => Step::FinBack,
            Step::FinBack | Step::LastAck => Step::LastAck,
        }
    }
}
