//! Changes of the table.

use std::os::fd::{AsFd, BorrowedFd};

use arrayvec::ArrayVec;
use flow::netfilter::{Entry, Expectation, Status, Tuple};

use super::attributes::{Header, Writer, messages};
use super::entry::Purpose;
use super::numbers::{
    CONNECTIONS, DELETE, EXPECTATIONS, GET, NETFILTER_HEADER_BYTES, NETLINK_HEADER_BYTES, NEW, NLM_F_ACK, NLM_F_CREATE,
    NLM_F_EXCL, NLM_F_REQUEST, NLMSG_ERROR, connection,
};
use super::socket::{Socket, explain};
use super::{entry, expectation, tuple};
use crate::IoError;

/// The maximum number of requests in one system call. All may be refused, and the replies must fit the receive buffer.
pub const REQUESTS_MAX: usize = 64;
/// The receive buffer for replies, in bytes.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;
/// The longest reply to any request but a dump, in bytes.
const ANSWER_BYTES_MAX: usize = 8192;

const CHANGING: &str = "changing the table of connections";

/// A change to the kernel's table.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Creates a connection with all stated fields; the timeout is mandatory. The translation is the difference between
    /// the reply tuple and the original's inverse. The kernel accepts TCP's window scales only if both sides' flags
    /// have `WINDOW_SCALE`, labels only if a rule of the namespace uses labels, and a helper only if it is loaded.
    Create(&'a Entry),
    /// Changes the stated fields of a connection, identified by its original tuple and that one's zone: status,
    /// timeout, protocol state, mark, labels, sequence adjustment and SYN proxy. The kernel does not permit changes of
    /// the other fields (translation, helper, master), which are not sent.
    Update(&'a Entry),
    /// Deletes a connection, identified by its original tuple, zone and, if stated, the kernel's identifier.
    Delete(&'a Entry),
    /// Creates an expectation. Its master must exist.
    CreateExpectation(&'a Expectation),
    /// Deletes an expectation, identified by the expected tuple and the zone.
    DeleteExpectation(&'a Expectation),
}

/// Why the kernel refused a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum RequestError {
    /// A connection with either tuple, original or translated, exists.
    #[error("a connection with one of its tuples is in the table already")]
    Exists,
    /// The connection to change or delete, or the master, does not exist.
    #[error("the entry or its master connection is not in the table")]
    Missing,
    /// The table is full.
    #[error("the table is full: raise net.netfilter.nf_conntrack_max")]
    Full,
    /// The kernel lacks a required feature (a helper, labels), or forbids the change.
    #[error("the kernel does not support it, or a module is missing")]
    Unsupported,
    /// Permission is missing.
    #[error("it is not permitted: run as root, or give the program CAP_NET_ADMIN")]
    NotPermitted,
    /// The kernel considers the request invalid.
    #[error("the kernel considers it invalid")]
    Invalid,
    /// Another error of the system.
    #[error("the kernel refused it: {}", std::io::Error::from_raw_os_error(*.0))]
    Other(i32),
}

impl RequestError {
    /// Converts an error number of a request.
    #[must_use]
    pub const fn from_errno(errno: i32) -> Self {
        match errno {
            libc::EEXIST => Self::Exists,
            libc::ENOENT => Self::Missing,
            libc::ENOMEM | libc::ENFILE | libc::ENOSPC | libc::EMFILE => Self::Full,
            libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT => Self::Unsupported,
            libc::EPERM | libc::EACCES => Self::NotPermitted,
            libc::EINVAL | libc::ERANGE => Self::Invalid,
            errno => Self::Other(errno),
        }
    }
}

/// A socket that changes the table of a namespace. The kernel processes requests within the system call and replies to
/// those that it refuses: no call blocks.
#[derive(Debug)]
pub struct TableSocket {
    socket: Socket,
    sequence: u32,
    requests: Vec<u8>,
    answer: Vec<u8>,
}

impl TableSocket {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel lacks netfilter, or permission is missing.
    pub fn open() -> Result<Self, IoError> {
        let socket = Socket::open()?;
        socket.set_receive_buffer(RECEIVE_BUFFER_BYTES)?;
        Ok(Self { socket, sequence: 0, requests: Vec::new(), answer: vec![0; ANSWER_BYTES_MAX] })
    }

    /// The netlink port, which events name as the cause for this socket's requests.
    #[must_use]
    pub const fn port(&self) -> u32 {
        self.socket.port()
    }

    /// Executes the requests in order, many in one system call. `failed` receives the index and the error of each
    /// refused request; the others are done on return.
    ///
    /// # Errors
    /// Only if the socket becomes unusable: by lack of memory, or a defect of the program. It is then unknown which
    /// requests were executed.
    pub fn execute<'a>(
        &mut self,
        requests: impl IntoIterator<Item = Request<'a>>,
        failed: &mut dyn FnMut(usize, RequestError),
    ) -> Result<(), IoError> {
        let mut batch = ArrayVec::<_, REQUESTS_MAX>::new();
        let mut first = 0;
        for request in requests {
            batch.push(request);
            if batch.is_full() {
                self.execute_batch(&batch, &mut |place, refusal| failed(first + place, refusal))?;
                first += batch.len();
                batch.clear();
            }
        }
        if batch.is_empty() {
            Ok(())
        } else {
            self.execute_batch(&batch, &mut |place, refusal| failed(first + place, refusal))
        }
    }

    fn execute_batch(
        &mut self,
        batch: &[Request<'_>],
        failed: &mut dyn FnMut(usize, RequestError),
    ) -> Result<(), IoError> {
        let first = self.sequence;
        self.requests.clear();
        for request in batch {
            encode(*request, Purpose::Update, self.sequence, &mut self.requests);
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.socket.send(&self.requests).map_err(|error| explain(error, CHANGING))?;
        let mut refused = ArrayVec::<_, REQUESTS_MAX>::new();
        self.receive(CHANGING, &mut |header, rest| {
            let place = header.sequence.wrapping_sub(first) as usize;
            if let (Some(errno @ 1..), true) = (errno(header, rest), place < batch.len()) {
                // Each request has at most one reply.
                let _ = refused.try_push((place, errno));
            }
        })?;
        for (place, errno) in refused {
            let refusal = match (batch[place], errno) {
                (Request::Update(entry), libc::EBUSY | libc::EPERM) => self.retry_update(entry)?,
                // No rule of the namespace uses labels.
                (Request::Update(_), libc::ENOSPC) => Some(RequestError::Unsupported),
                _ => Some(RequestError::from_errno(errno)),
            };
            if let Some(refusal) = refusal {
                failed(place, refusal);
            }
        }
        Ok(())
    }

    /// Retries an update that was refused because it clears a permanent status bit (for example a seen reply) or changes a
    /// fixed timeout: adjusts it to the kernel's entry.
    fn retry_update(&mut self, entry: &Entry) -> Result<Option<RequestError>, IoError> {
        /// Status bits that an update can set but not clear.
        const LASTING: Status = Status::SEEN_REPLY.union(Status::ASSURED).union(Status::EXPECTED);
        let present = match self.get(&entry.original, entry.zone_of_original()) {
            Ok(Some(present)) => present.status.unwrap_or_default(),
            Ok(None) => return Ok(Some(RequestError::Missing)),
            Err(IoError::NotPermitted { .. }) => return Ok(Some(RequestError::NotPermitted)),
            Err(error) => return Err(error),
        };
        let mut entry = entry.clone();
        let lasting = Status(present.0 & LASTING.0);
        entry.status = entry.status.map(|status| status.without(Status::EXPECTED).union(lasting));
        if present.contains(Status::FIXED_TIMEOUT) {
            entry.timeout_s = None;
        }
        let header = self.next_header(CONNECTIONS, NEW, 0);
        encode(Request::Update(&entry), Purpose::RetryUpdate, header.sequence, &mut self.requests);
        self.socket.send(&self.requests).map_err(|error| explain(error, CHANGING))?;
        let mut refusal = None;
        self.receive(CHANGING, &mut |answer, rest| {
            if let (Some(errno @ 1..), true) = (errno(answer, rest), answer.sequence == header.sequence) {
                refusal = Some(match errno {
                    libc::ENOSPC => RequestError::Unsupported,
                    errno => RequestError::from_errno(errno),
                });
            }
        })?;
        Ok(refusal)
    }

    /// Reads all pending replies.
    fn receive(&mut self, operation: &str, handle: &mut dyn FnMut(Header, &[u8])) -> Result<(), IoError> {
        loop {
            let received = self.socket.receive(&mut self.answer).map_err(|error| explain(error, operation))?;
            let Some(length_bytes) = received else { return Ok(()) };
            messages(&self.answer[..length_bytes], &mut *handle).ok_or_else(|| IoError::UnexpectedAnswer {
                operation: operation.into(),
                detail: format!("{length_bytes} bytes that are no messages"),
            })?;
        }
    }

    /// The current connection with the tuple, original or reply, and that tuple's zone; `None` if there is none.
    ///
    /// # Errors
    /// Permission is missing.
    pub fn get(&mut self, of: &Tuple, zone: u16) -> Result<Option<Entry>, IoError> {
        const OPERATION: &str = "asking for a connection";
        let header = self.next_header(CONNECTIONS, GET, 0);
        let mut writer = Writer::begin(&mut self.requests, header, tuple::family(of));
        tuple::encode(&mut writer, connection::TUPLE_ORIGINAL, of);
        if zone != 0 {
            writer.put_u16(connection::ZONE, zone);
        }
        writer.end();
        self.socket.send(&self.requests).map_err(|error| explain(error, OPERATION))?;
        let (mut found, mut refused) = (None, None);
        self.receive(OPERATION, &mut |answer, rest| {
            if answer.sequence == header.sequence {
                refused = refused.or(errno(answer, rest));
                if (answer.subsystem, answer.kind) == (CONNECTIONS, NEW) {
                    found = rest.get(NETFILTER_HEADER_BYTES..).and_then(entry::decode);
                }
            }
        })?;
        match refused {
            // An impossible tuple has no connection, either.
            None | Some(0 | libc::ENOENT | libc::EINVAL) => Ok(found),
            Some(errno) => Err(explain(std::io::Error::from_raw_os_error(errno), OPERATION)),
        }
    }

    /// Deletes all connections of the namespace.
    ///
    /// # Errors
    /// Permission is missing.
    pub fn flush(&mut self) -> Result<(), IoError> {
        self.request_simple(CONNECTIONS, "deleting all connections")
    }

    /// Deletes all expectations of the namespace.
    ///
    /// # Errors
    /// Permission is missing.
    pub fn flush_expectations(&mut self) -> Result<(), IoError> {
        self.request_simple(EXPECTATIONS, "deleting all expectations")
    }

    /// Deletes all entries of a subsystem.
    fn request_simple(&mut self, subsystem: u8, operation: &str) -> Result<(), IoError> {
        let header = self.next_header(subsystem, DELETE, NLM_F_ACK);
        Writer::begin(&mut self.requests, header, libc::AF_UNSPEC).end();
        self.socket.send(&self.requests).map_err(|error| explain(error, operation))?;
        let mut answered = None;
        self.receive(operation, &mut |answer, rest| {
            if answer.sequence == header.sequence {
                answered = answered.or(errno(answer, rest));
            }
        })?;
        match answered {
            Some(0) => Ok(()),
            Some(errno) => Err(explain(std::io::Error::from_raw_os_error(errno), operation)),
            None => Err(IoError::UnexpectedAnswer { operation: operation.into(), detail: "there was none".into() }),
        }
    }

    fn next_header(&mut self, subsystem: u8, kind: u8, flags: u16) -> Header {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        self.requests.clear();
        Header { subsystem, kind, flags: NLM_F_REQUEST | flags, sequence, port: 0 }
    }
}

impl AsFd for TableSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The error number of a message, if it has one: 0 acknowledges.
pub(super) fn errno(header: Header, rest: &[u8]) -> Option<i32> {
    let is_error = header.message_type() == NLMSG_ERROR;
    let code = rest.first_chunk().copied().map(i32::from_ne_bytes)?;
    is_error.then_some(code.saturating_neg())
}

/// Appends a request's message; `update` selects the encoding of updates.
fn encode(request: Request<'_>, update: Purpose, sequence: u32, buffer: &mut Vec<u8>) {
    let (subsystem, kind, flags) = match request {
        Request::Create(_) => (CONNECTIONS, NEW, NLM_F_CREATE | NLM_F_EXCL),
        Request::Update(_) => (CONNECTIONS, NEW, 0),
        Request::Delete(_) => (CONNECTIONS, DELETE, 0),
        Request::CreateExpectation(_) => (EXPECTATIONS, NEW, NLM_F_CREATE | NLM_F_EXCL),
        Request::DeleteExpectation(_) => (EXPECTATIONS, DELETE, 0),
    };
    let header = Header { subsystem, kind, flags: NLM_F_REQUEST | flags, sequence, port: 0 };
    debug_assert_eq!(buffer.len() % 4, 0);
    let family = match request {
        Request::Create(entry) | Request::Update(entry) | Request::Delete(entry) => tuple::family(&entry.original),
        Request::CreateExpectation(entry) | Request::DeleteExpectation(entry) => tuple::family(&entry.expected),
    };
    let mut writer = Writer::begin(buffer, header, family);
    match request {
        Request::Create(entry) => entry::encode(&mut writer, entry, Purpose::Create),
        Request::Update(entry) => entry::encode(&mut writer, entry, update),
        Request::Delete(entry) => {
            tuple::encode(&mut writer, connection::TUPLE_ORIGINAL, &entry.original);
            if entry.zone_of_original() != 0 {
                writer.put_u16(connection::ZONE, entry.zone_of_original());
            }
            if let Some(id) = entry.id {
                writer.put_u32(connection::ID, id);
            }
        }
        Request::CreateExpectation(entry) => expectation::encode(&mut writer, entry),
        Request::DeleteExpectation(entry) => expectation::encode_name(&mut writer, entry),
    }
    writer.end();
}

const _: () = assert!(NETLINK_HEADER_BYTES.is_multiple_of(4), "messages begin at multiples of four");
