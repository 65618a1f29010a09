//! The load balancer's services while the gateway runs: shared by the workers, replaced by a reload, and checked.
//!
//! ```text
//!   reload ──► services ──► a load balancer in the chain of each worker
//!   checks ──► services.handle_health ──► new connections go elsewhere
//!          └─► order to each worker: connections that may not continue end
//! ```

mod checking;
mod command;
mod health;
mod probe;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use api::{BackendState, BackendStatus, CheckStatus, ServiceStatus};
use config::validated::Service;
use config::value;
use flow::Instant;
use network_functions::load_balancer::{self, SHARES, Scheduler, Services};
use rustls::ClientConfig;

use super::build::SharedFunctions;
use crate::category_server::CategoryServer;
pub(super) use checking::Checks;

/// The services in force, with how their backends are checked.
#[derive(Clone, Default)]
pub(super) struct InForce {
    pub(super) services: Arc<Services>,
    /// As configured, in the order of `services`.
    pub(super) configured: Arc<[Service]>,
    /// Of each service how its checks use TLS, if they do.
    pub(super) tls: Arc<[Option<Arc<ClientConfig>>]>,
}

impl InForce {
    fn of(shared: &SharedFunctions, configured: &[Service]) -> Self {
        let (services, tls) = (Arc::clone(&shared.services), Arc::clone(&shared.check_tls));
        Self { services, configured: configured.into(), tls }
    }
}

/// The services of a gateway, for all threads that need them.
pub(super) struct Balancing {
    in_force: Mutex<InForce>,
    /// With the rest of what functions of all workers share.
    shared: Mutex<SharedFunctions>,
    /// The last result of each checked backend, by the names of service and backend. There are no more than backends.
    results: Mutex<BTreeMap<(String, String), CheckStatus>>,
    /// `shared` was replaced, or the thread that asks for categories is to end.
    is_replaced: Condvar,
}

impl Balancing {
    /// Begins with these services.
    pub(super) fn new(shared: SharedFunctions, configured: &[Service]) -> Self {
        let in_force = Mutex::new(InForce::of(&shared, configured));
        Self { in_force, shared: Mutex::new(shared), results: Mutex::default(), is_replaced: Condvar::new() }
    }

    /// What functions of all workers share.
    pub(super) fn shared(&self) -> SharedFunctions {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The server that the URL filter asks for categories. Waits until there is one. `None` once `is_stopping` is set, which
    /// [`Balancing::wake_categorisation`] has it notice.
    pub(super) fn await_categories(&self, is_stopping: &AtomicBool) -> Option<Arc<CategoryServer>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_stopping.load(Ordering::Relaxed) {
            if let Some(server) = &shared.categories {
                return Some(Arc::clone(server));
            }
            shared = self.is_replaced.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// The thread that asks for categories looks around.
    pub(super) fn wake_categorisation(&self) {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_replaced.notify_all();
        shared.categories.iter().for_each(|server| server.wake());
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The services in force.
    pub(super) fn in_force(&self) -> InForce {
        self.lock().clone()
    }

    /// Puts other services in force, which the workers have already. What checks found meanwhile counts for them, too.
    pub(super) fn replace(&self, shared: SharedFunctions, configured: &[Service]) {
        shared.services.refresh();
        *self.lock() = InForce::of(&shared, configured);
        let before = {
            let mut current = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, shared)
        };
        self.is_replaced.notify_all();
        // A thread that waits for questions to the former server looks for the next one.
        before.categories.iter().for_each(|server| server.wake());
    }

    fn lock_results(&self) -> MutexGuard<'_, BTreeMap<(String, String), CheckStatus>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A check of a backend has this result; `None` for a reason: it succeeded.
    pub(super) fn note_check(&self, now: Instant, service: &str, backend: String, failure: Option<&str>) {
        let reason = failure.unwrap_or_default().to_owned();
        let status = CheckStatus { at_ns: now.as_nanos(), succeeded: failure.is_none(), reason };
        self.lock_results().insert((service.to_owned(), backend), status);
    }

    /// Results of backends that are not checked any more are forgotten.
    pub(super) fn retain_checks(&self, checked: impl Fn(&str, &str) -> bool) {
        self.lock_results().retain(|(service, backend), _| checked(service, backend));
    }

    /// The services as operators see them.
    pub(super) fn statuses(&self) -> Vec<ServiceStatus> {
        let InForce { services, configured, .. } = self.in_force();
        let results = self.lock_results();
        services.services().iter().zip(&*configured).map(|(service, known)| status(service, known, &results)).collect()
    }
}

fn status(
    service: &load_balancer::Service,
    Service { config, check }: &Service,
    results: &BTreeMap<(String, String), CheckStatus>,
) -> ServiceStatus {
    let ports: Vec<String> = config.ports.iter().map(ToString::to_string).collect();
    let backends = service.backends().iter().map(|backend| {
        let view = backend.view();
        let state = match (view.is_down, view.weight) {
            (true, _) => BackendState::Down,
            (false, 0) => BackendState::Drained,
            (false, _) if view.share < SHARES => BackendState::Starting,
            (false, _) => BackendState::Up,
        };
        BackendStatus {
            address: view.name(),
            state,
            weight: view.weight,
            share: f64::from(view.share) / f64::from(SHARES),
            connections: view.connections.into(),
            begun: view.begun,
            last_check: results.get(&(service.name().to_owned(), view.name())).cloned(),
        }
    });
    ServiceStatus {
        name: service.name().to_owned(),
        address: config.address.to_string(),
        protocol: value::protocol_name(config.protocol),
        ports: ports.join(","),
        scheduler: match config.scheduler {
            Scheduler::Maglev => "maglev",
            Scheduler::LeastConnections => "least-connections",
        }
        .to_owned(),
        checked: check.is_some(),
        refused: service.refused(),
        backends: backends.collect(),
    }
}
