//! Listening to what happens to connections.

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

/// The receive buffer of a socket unless configured otherwise, in bytes.
pub const RECEIVE_BUFFER_BYTES: usize = 2 << 20;

/// What to listen to, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventOptions {
    /// Connections that are new in the table.
    pub began: bool,
    /// Connections of which something has changed.
    pub changed: bool,
    /// Connections that left the table.
    pub ended: bool,
    /// Expectations, both ways.
    pub expectations: bool,
    /// What is asked for as receive buffer, in bytes. Events that find it full are lost, which [`Received::overrun`] tells.
    pub receive_buffer_bytes: usize,
    /// What the kernel is to keep away.
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

/// What one call of [`EventSocket::receive`] brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Messages that came, whether or not they were understood.
    pub messages: usize,
    /// Those that were not what they should be.
    pub malformed: usize,
    /// Events were lost, as the receive buffer was full (`ENOBUFS`): only the table itself says which. It is said once, when
    /// the buffer is empty again: until then the kernel throws away further events without a word, so that a dump that began
    /// earlier could miss something for good. One that begins now does not.
    pub overrun: bool,
    /// Nothing waits any more.
    pub is_drained: bool,
}

/// A socket that hears what happens to the connections of a namespace. It never waits.
#[derive(Debug)]
pub struct EventSocket {
    socket: Socket,
    ring: Ring,
    filter: EventFilter,
    /// Also in the filter; asked again here, in case that the kernel did not take the program.
    ignored_programs: Vec<u32>,
    /// Events were lost, which is still to be said.
    has_lost: bool,
}

impl EventSocket {
    /// Listens in the calling thread's namespace from now on.
    ///
    /// # Errors
    /// The kernel has no netfilter, or the process may not.
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

    /// From now on events that the requests of the program with this netlink port cause (see
    /// [`super::TableSocket::port`]) do not arrive. The kernel throws them away before they take up room.
    pub fn ignore_program(&mut self, port: u32) {
        if !self.ignored_programs.contains(&port) {
            self.ignored_programs.push(port);
            // Should the kernel not take the program, `receive` does the same, at a higher price.
            let _ = self.attach();
        }
    }

    /// Replaces the filter; programs to ignore stay ignored. Events that wait already have passed the old one.
    ///
    /// # Errors
    /// The kernel does not take the filter's program, which is a defect of this one or of memory.
    pub fn set_filter(&mut self, filter: &EventFilter) -> Result<(), IoError> {
        self.filter.clone_from(filter);
        self.attach().map_err(|error| IoError::from_io(error, "attaching a filter to the socket of events"))
    }

    fn attach(&self) -> io::Result<()> {
        let mut program = Program::new(&self.filter, &self.ignored_programs);
        attach_filter(self.socket.as_fd(), program.instructions_mut())
    }

    /// Takes what waits, at most `messages_max` messages, and calls `handle`
    /// with each event. What is no event is counted.
    ///
    /// # Errors
    /// Only for defects of the program: that events were lost is no error, but said in the result.
    pub fn receive(&mut self, messages_max: usize, handle: &mut dyn FnMut(Cause, Event)) -> Result<Received, IoError> {
        let mut received = Received::default();
        while received.messages < messages_max && !received.is_drained {
            let wanted = (messages_max - received.messages).min(DATAGRAMS_MAX);
            match self.ring.receive(self.socket.as_fd(), wanted) {
                Ok(batch) => {
                    received.messages += batch.count();
                    received.malformed += hand_over(&batch, &self.ignored_programs, handle);
                    // Less than asked for came: nothing more waits, or an error, which makes the socket readable again.
                    received.is_drained = batch.count() < wanted;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => received.is_drained = true,
                    // What came before the loss still waits.
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

    /// Asks for a receive buffer of `bytes`: beyond the system's limit where the process may (`CAP_NET_ADMIN`), up to it
    /// (`net.core.rmem_max`) otherwise. Returns its size now, which is about twice what was asked for, as the kernel counts
    /// what it needs for itself, too (socket(7)).
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
