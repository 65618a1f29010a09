//! Reads the whole table.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};

use flow::netfilter::{Entry, Expectation, Status};

use super::attributes::{Header, Writer, messages};
use super::numbers::{
    CONNECTIONS, EXPECTATIONS, GET, NETFILTER_HEADER_BYTES, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE,
    connection,
};
use super::request::errno;
use super::socket::{Socket, explain};
use super::{entry, expectation};
use crate::IoError;

/// The largest datagram of a dump, in bytes: the kernel fills the reader's buffer up to 32 KiB.
const PART_BYTES_MAX: usize = 32 << 10;

const OPERATION: &str = "reading the table of connections";

/// The connections to read. Kernels support different parts of it; the rest is applied here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DumpFilter {
    /// Only of this zone.
    pub zone: Option<u16>,
    /// Only connections whose mark has this value in the bits of the mask: value and mask.
    pub mark: Option<(u32, u32)>,
    /// Only connections with these status bits.
    pub status: Option<Status>,
}

impl DumpFilter {
    /// Whether a connection matches.
    #[must_use]
    pub fn admits(&self, entry: &Entry) -> bool {
        let of_zone = self.zone.is_none_or(|zone| zone == entry.zone);
        let marked = self.mark.is_none_or(|(value, mask)| entry.mark.unwrap_or_default() & mask == value & mask);
        of_zone && marked && self.status.is_none_or(|bits| entry.status.unwrap_or_default().contains(bits))
    }
}

/// The progress of a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpProgress {
    /// More parts follow.
    More,
    /// The dump is complete.
    Ended {
        /// The kernel resized the table meanwhile: entries may be missing or duplicate.
        was_interrupted: bool,
    },
}

/// The entries of a dump: connections or expectations.
pub trait Dumped: Sized {
    #[doc(hidden)]
    fn decode(attributes: &[u8]) -> Option<Self>;
    #[doc(hidden)]
    fn passes(&self, filter: &DumpFilter) -> bool;
}

impl Dumped for Entry {
    fn decode(attributes: &[u8]) -> Option<Self> {
        entry::decode(attributes)
    }

    fn passes(&self, filter: &DumpFilter) -> bool {
        filter.admits(self)
    }
}

impl Dumped for Expectation {
    fn decode(attributes: &[u8]) -> Option<Self> {
        expectation::decode(attributes)
    }

    fn passes(&self, _filter: &DumpFilter) -> bool {
        true
    }
}

/// A dump of the table in parts: the kernel produces the next part when the last is read, so the reader may do other
/// work between parts. No call blocks.
///
/// A connection that exists throughout the dump is reported at least once, and possibly twice.
#[derive(Debug)]
pub struct Dump<T = Entry> {
    socket: Socket,
    part: Vec<u8>,
    filter: DumpFilter,
    was_interrupted: bool,
    malformed: usize,
    of: PhantomData<T>,
}

impl Dump<Entry> {
    /// Begins to read the connections of the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel lacks connection tracking, or permission is missing.
    pub fn connections(filter: DumpFilter) -> Result<Self, IoError> {
        Self::begin(CONNECTIONS, filter)
    }
}

impl Dump<Expectation> {
    /// Begins to read the expectations of the calling thread's namespace.
    ///
    /// # Errors
    /// As for [`Dump::connections`].
    pub fn expectations() -> Result<Self, IoError> {
        Self::begin(EXPECTATIONS, DumpFilter::default())
    }
}

impl<T: Dumped> Dump<T> {
    fn begin(subsystem: u8, filter: DumpFilter) -> Result<Self, IoError> {
        let socket = Socket::open()?;
        let header = Header { subsystem, kind: GET, flags: NLM_F_REQUEST | NLM_F_DUMP, sequence: 0, port: 0 };
        let mut request = Vec::new();
        let mut writer = Writer::begin(&mut request, header, libc::AF_UNSPEC);
        if let Some((value, mask)) = filter.mark {
            writer.put_u32(connection::MARK, value);
            writer.put_u32(connection::MARK_MASK, mask);
        }
        if let Some(bits) = filter.status {
            writer.put_u32(connection::STATUS, bits.0);
            writer.put_u32(connection::STATUS_MASK, bits.0);
        }
        if let Some(zone) = filter.zone {
            writer.put_u16(connection::ZONE, zone);
        }
        writer.end();
        socket.send(&request).map_err(|error| explain(error, OPERATION))?;
        let part = vec![0; PART_BYTES_MAX];
        Ok(Self { socket, part, filter, was_interrupted: false, malformed: 0, of: PhantomData })
    }

    /// Receives the next part.
    ///
    /// # Errors
    /// The kernel lacks connection tracking, or permission is missing.
    pub fn receive(&mut self, handle: &mut dyn FnMut(T)) -> Result<DumpProgress, IoError> {
        let received = self.socket.receive(&mut self.part).map_err(|error| explain(error, OPERATION))?;
        let Some(length_bytes) = received else { return Ok(DumpProgress::More) };
        let (mut is_over, mut refused) = (false, None);
        let Self { filter, malformed, was_interrupted, .. } = self;
        let parsed = messages(&self.part[..length_bytes], |header, rest| {
            *was_interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
            if header.message_type() == NLMSG_DONE {
                is_over = true;
            } else if let Some(errno) = errno(header, rest) {
                refused = Some(errno);
            } else if let Some(entry) = rest.get(NETFILTER_HEADER_BYTES..).and_then(T::decode) {
                if entry.passes(filter) {
                    handle(entry);
                }
            } else {
                *malformed += 1;
            }
        });
        *malformed += usize::from(parsed.is_none());
        match refused {
            Some(errno @ 1..) => Err(explain(std::io::Error::from_raw_os_error(errno), OPERATION)),
            _ if is_over => Ok(DumpProgress::Ended { was_interrupted: self.was_interrupted }),
            _ => Ok(DumpProgress::More),
        }
    }

    /// The number of malformed messages so far.
    #[must_use]
    pub const fn malformed(&self) -> usize {
        self.malformed
    }
}

impl<T> AsFd for Dump<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
