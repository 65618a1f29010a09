//! Events of connections.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::filter::{EventFilter, Program};
use super::message::decode_events;
use super::numbers::group;
use super::ring::{Batch, DATAGRAMS_MAX, Ring};
use super::socket::Socket;
use super::{Cause, Event};
use crate::IoError;
use crate::system::attach_filter;

/// The default receive buffer of a socket, in bytes.
pub const RECEIVE_BUFFER_BYTES: usize = 2 << 20;

/// The options of an event socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventOptions {
    /// Subscribe to new connections.
    pub began: bool,
    /// Subscribe to changed connections.
    pub changed: bool,
    /// Subscribe to ended connections.
    pub ended: bool,
    /// Subscribe to expectations: created and deleted ones.
    pub expectations: bool,
    /// The requested receive buffer, in bytes. When it is full, events are lost, which [`Received::overrun`] reports.
    pub receive_buffer_bytes: usize,
    /// The events that the kernel filters out.
    pub filter: EventFilter,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self {
            began: true,
            changed: true,
            ended: true,
            expectations: true,
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
            filter: EventFilter::default(),
        }
    }
}

/// The result of one call of [`EventSocket::receive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Messages received, including malformed ones.
    pub messages: usize,
    /// Malformed messages.
    pub malformed: usize,
    /// Events were lost because the receive buffer was full (`ENOBUFS`): only the table shows the changes. It is
    /// reported once, when the buffer is empty again. Until then the kernel may drop further events silently, so a dump
    /// must begin afterwards to be complete.
    pub overrun: bool,
    /// Whether the queue is empty.
    pub is_drained: bool,
}

/// A non-blocking socket for the events of a namespace's connections.
#[derive(Debug)]
pub struct EventSocket {
    socket: Socket,
    ring: Ring,
    filter: EventFilter,
    /// Also in the kernel's filter; checked here in case the kernel rejected the filter.
    ignored_programs: Vec<u32>,
    /// Events were lost, and the loss is not yet reported.
    has_lost: bool,
}

impl EventSocket {
    /// Subscribes in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel lacks netfilter, or permission is missing.
    pub fn open(options: &EventOptions) -> Result<Self, IoError> {
        let mut socket = Self {
            socket: Socket::open()?,
            ring: Ring::new(),
            filter: EventFilter::default(),
            ignored_programs: Vec::new(),
            has_lost: false,
        };
        socket.set_receive_buffer(options.receive_buffer_bytes)?;
        // The filter comes before the first event.
        socket.set_filter(&options.filter)?;
        let groups = [
            (options.began, group::NEW),
            (options.changed, group::UPDATE),
            (options.ended, group::DESTROY),
            (options.expectations, group::EXPECTATION_NEW),
            (options.expectations, group::EXPECTATION_DESTROY),
        ];
        for (_, group) in groups.into_iter().filter(|(wanted, _)| *wanted) {
            socket.socket.join(group)?;
        }
        Ok(socket)
    }

    /// Filters out events that the requests of the program with this netlink port cause (see
    /// [`super::TableSocket::port`]). The kernel drops them before they use the buffer.
    pub fn ignore_program(&mut self, port: u32) {
        if !self.ignored_programs.contains(&port) {
            self.ignored_programs.push(port);
            // If the kernel rejects the filter, `receive` does the same at a higher cost.
            let _ = self.attach();
        }
    }

    /// Replaces the filter; ignored programs stay ignored. Pending events have passed the old one.
    ///
    /// # Errors
    /// The kernel rejects the filter's program, which is a defect of this one or a lack of memory.
    pub fn set_filter(&mut self, filter: &EventFilter) -> Result<(), IoError> {
        self.filter.clone_from(filter);
        self.attach().map_err(|error| IoError::from_io(error, "attaching a filter to the socket of events"))
    }

    fn attach(&self) -> io::Result<()> {
        let mut program = Program::new(&self.filter, &self.ignored_programs);
        attach_filter(self.socket.as_fd(), program.instructions_mut())
    }

    /// Receives pending messages, at most `messages_max`, and calls `handle` with each event. Malformed messages are
    /// counted.
    ///
    /// # Errors
    /// Only for defects of the program: lost events are reported in the result instead.
    pub fn receive(&mut self, messages_max: usize, handle: &mut dyn FnMut(Cause, Event)) -> Result<Received, IoError> {
        let mut received = Received::default();
        while received.messages < messages_max && !received.is_drained {
            let wanted = (messages_max - received.messages).min(DATAGRAMS_MAX);
            match self.ring.receive(self.socket.as_fd(), wanted) {
                Ok(batch) => {
                    received.messages += batch.count();
                    received.malformed += hand_over(&batch, &self.ignored_programs, handle);
                    // Fewer messages than requested: the queue is empty, or an error follows, which makes the socket
                    // readable again.
                    received.is_drained = batch.count() < wanted;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => received.is_drained = true,
                    // Messages from before the loss are still pending.
                    Some(libc::ENOBUFS) => self.has_lost = true,
                    Some(libc::EINTR) => {}
                    _ => return Err(IoError::from_io(error, "receiving events of connection tracking")),
                },
            }
        }
        if received.is_drained {
            received.overrun = std::mem::take(&mut self.has_lost);
        }
        Ok(received)
    }

    /// Sets the receive buffer to `bytes`: beyond the system's limit with `CAP_NET_ADMIN`, up to it
    /// (`net.core.rmem_max`) otherwise. Returns the actual size, about twice the requested one, as the kernel includes
    /// its overhead (socket(7)).
    ///
    /// # Errors
    /// Only for defects of the program.
    pub fn set_receive_buffer(&mut self, bytes: usize) -> Result<usize, IoError> {
        self.socket.set_receive_buffer(bytes)
    }

    /// The socket's netlink port.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.socket.port()
    }
}

/// Calls `handle` with each event of a batch. Returns how many messages were malformed.
fn hand_over(batch: &Batch<'_>, ignored: &[u32], handle: &mut dyn FnMut(Cause, Event)) -> usize {
    let mut malformed = 0;
    for datagram in batch.datagrams() {
        let Some(datagram) = datagram else {
            malformed += 1;
            continue;
        };
        malformed += decode_events(datagram, &mut |cause, event| match cause {
            Cause::Program(port) if ignored.contains(&port) => {}
            _ => handle(cause, event),
        });
    }
    malformed
}

impl AsFd for EventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
