//! The thread that asks the categorisation server, over one connection, apart from the data path.
//!
//! ```text
//!   worker: look-up of a host that is not cached ─► question ─► thread ─► HTTP ─► server
//!   worker: packets that wait are handled  ◄─── order ◄─── cache ◄───────────────┘
//! ```
//!
//! Requests leave from the host's own addresses, by the kernel's routes, as the checks of backends do.

mod requests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use api::EventKind;
use control::ControlSender;
use control::orders::Order;
use packet_io::clock;

use super::balancing::Balancing;
use crate::category_server::CategoryServer;
use crate::error::ProcessError;
use requests::Requests;

/// The thread that asks. It ends with this value, and sleeps while there is nothing to ask.
pub(super) struct Categorisation {
    balancing: Arc<Balancing>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Categorisation {
    /// Asks the server in force. Answers are reported to the workers by `sender`.
    pub(super) fn start(balancing: Arc<Balancing>, sender: ControlSender) -> Result<Self, ProcessError> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let mut asker = Asker { balancing: Arc::clone(&balancing), sender, requests: Requests::default() };
        let stops = Arc::clone(&is_stopping);
        let thread = thread::Builder::new().name("categories".to_owned()).spawn(move || asker.run(&stops));
        Ok(Self { balancing, is_stopping, thread: Some(thread.map_err(ProcessError::GatewayThread)?) })
    }
}

impl Drop for Categorisation {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.balancing.wake_categorisation();
        // A panic of the thread has been reported on standard error.
        self.thread.take().map(JoinHandle::join);
    }
}

struct Asker {
    balancing: Arc<Balancing>,
    sender: ControlSender,
    requests: Requests,
}

impl Asker {
    fn run(&mut self, is_stopping: &AtomicBool) {
        while let Some(server) = self.balancing.await_categories(is_stopping) {
            if let Some((request, targets)) = server.await_request() {
                self.ask(&server, &request, targets);
            }
        }
    }

    /// Sends a request, enters the answers, and has the workers handle what waits for them.
    fn ask(&mut self, server: &Arc<CategoryServer>, request: &str, targets: usize) {
        let result = self.requests.exchange(server, request);
        let now = clock::now();
        let entered = result.and_then(|body| Ok(server.lock().handle_response(now, &body)?));
        match entered {
            Ok(false) => {}
            Ok(true) => self.note(EventKind::CategoriesAvailable, server.address.to_string()),
            Err(failure) => {
                self.requests = Requests::default();
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
}
