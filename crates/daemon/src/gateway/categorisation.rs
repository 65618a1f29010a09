//! The thread that asks the categorisation server, over one connection, apart from the data path.
//!
//! ```text
//!   worker: look-up of a host that is not cached ─► question ─► thread ─► HTTP ─► server
//!   worker: packets that wait are handled  ◄─── order ◄─── cache ◄───────────────┘
//! ```
//!
//! Requests leave from the host's own addresses, by the kernel's routes, as the checks of backends do.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as SystemInstant};

use api::EventKind;
use control::ControlSender;
use control::orders::Order;
use network_functions::url_filter::server::protocol::{self, RESPONSE_BYTES_MAX, ResponseError};
use packet_io::clock;

use super::balancing::Balancing;
use crate::category_server::{CategoryServer, PAUSE_MAX};
use crate::error::ProcessError;

/// The thread that asks. It ends with this value.
pub(super) struct Categorisation {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Categorisation {
    /// Asks the server in force. Answers are reported to the workers by `sender`.
    pub(super) fn start(balancing: Arc<Balancing>, sender: ControlSender) -> Result<Self, ProcessError> {
        let (stop, stopped) = channel();
        let mut asker = Asker { balancing, sender, connection: None };
        let thread = thread::Builder::new().name("categories".to_owned()).spawn(move || asker.run(&stopped));
        Ok(Self { stop: Some(stop), thread: Some(thread.map_err(ProcessError::GatewayThread)?) })
    }
}

impl Drop for Categorisation {
    fn drop(&mut self) {
        self.stop = None;
        // A panic of the thread has been reported on standard error.
        self.thread.take().map(JoinHandle::join);
    }
}

struct Asker {
    balancing: Arc<Balancing>,
    sender: ControlSender,
    /// The connection to the server at this address, while it takes further requests.
    connection: Option<(SocketAddr, TcpStream)>,
}

impl Asker {
    fn run(&mut self, stopped: &Receiver<()>) {
        let mut pause = Duration::ZERO;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let Some(server) = self.balancing.categories() else {
                self.connection = None;
                pause = PAUSE_MAX;
                continue;
            };
            pause = Duration::ZERO;
            if let Some((request, targets)) = server.await_request() {
                self.ask(&server, &request, targets);
            }
        }
    }

    /// Sends a request, enters the answers, and has the workers handle what waits for them.
    fn ask(&mut self, server: &CategoryServer, request: &str, targets: usize) {
        let result = self.exchange(server, request);
        let now = clock::now();
        let entered = result.and_then(|body| Ok(server.lock().handle_response(now, &body)?));
        match entered {
            Ok(false) => {}
            Ok(true) => self.note(EventKind::CategoriesAvailable, server.address.to_string()),
            Err(failure) => {
                self.connection = None;
                tracing::debug!("{} was asked about {targets} hosts: {failure}", server.address);
                if server.lock().handle_failure(now) {
                    self.note(EventKind::CategoriesUnavailable, format!("{}: {failure}", server.address));
                }
            }
        }
        for worker in 0..self.sender.workers() {
            // A packet that is not handled now is handled when its time is over.
            let _ = self.sender.order_of(worker, Order::HandleAnswer);
        }
    }

    fn note(&self, kind: EventKind, detail: String) {
        // A data path that does not answer has other troubles.
        let _ = self.sender.order(Order::Note(kind, detail));
    }

    /// The body of the response. A server may have closed a connection that was idle: then a new one is tried at once.
    fn exchange(&mut self, server: &CategoryServer, request: &str) -> Result<Vec<u8>, Failure> {
        let deadline = SystemInstant::now() + server.config.config.timeout;
        let idle = self.connection.take().filter(|(address, _)| *address == server.address);
        if let Some((_, stream)) = idle
            && let Ok(body) = self.request_over(stream, server.address, request, deadline)
        {
            return Ok(body);
        }
        let stream = TcpStream::connect_timeout(&server.address, remaining(deadline)?)?;
        stream.set_nodelay(true)?;
        self.request_over(stream, server.address, request, deadline)
    }

    fn request_over(
        &mut self,
        mut stream: TcpStream,
        address: SocketAddr,
        request: &str,
        deadline: SystemInstant,
    ) -> Result<Vec<u8>, Failure> {
        stream.set_write_timeout(Some(remaining(deadline)?))?;
        stream.write_all(request.as_bytes())?;
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            stream.set_read_timeout(Some(remaining(deadline)?))?;
            match stream.read(&mut buffer) {
                Ok(0) => return Err(Failure::Closed),
                Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            if let Some(response) = protocol::response(&received)? {
                let body = response.body.to_vec();
                if response.keeps_open {
                    self.connection = Some((address, stream));
                }
                return Ok(body);
            }
            if received.len() > RESPONSE_BYTES_MAX {
                return Err(ResponseError::TooLong.into());
            }
        }
    }
}

/// The time that is left, which is more than none.
fn remaining(deadline: SystemInstant) -> Result<Duration, Failure> {
    let left = deadline.saturating_duration_since(SystemInstant::now());
    if left.is_zero() { Err(Failure::TimedOut) } else { Ok(left) }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no response within url_filter.server.timeout")]
    TimedOut,
    #[error("the server closed the connection without a response")]
    Closed,
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error("{0}")]
    System(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::System(error),
        }
    }
}
