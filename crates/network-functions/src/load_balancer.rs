//! The load balancer: connections to a service are spread over its backends (TRIPOD, section III and table II).
//!
//! A connection's backend is chosen when it begins. The choice is contained in the connection's tuples and in its state,
//! which every node with the connection has. So it stays on its backend through a failover, a reload, and changes of the
//! backends.
//!
//! ```text
//!   client ──► service address ──► backend               mode nat: the destination is translated
//!   client ──► service address ──► source ──► backend    mode full-nat: the source as well
//!   client ──► service address ══ tunnel ══► backend     mode direct_return: nothing, and the backend answers the client directly
//! ```
//!
//! **Choice.** A [Maglev](maglev) table, equal on all nodes that are configured alike and whose checks agree; or the
//! backend with the fewest connections in the node's table, which includes replicas of the other nodes' connections.
//!
//! **Inputs.** The health of backends comes from outside ([`Services::handle_health`]). It decides about new connections.
//! About existing ones it decides only where the service is configured so ([`OnFailure::End`], [`NetworkFunction::may_continue`]).
//!
//! **A slow start** gives a backend that returns or is added a growing part of its weight ([`Services::handle_timeout`]). Connections
//! that exist do not change.
//!
//! **QUIC.** A packet of a new tuple goes to the backend that its connection identifier names, where that is configured
//! ([`QuicConfig`]): a client that changes its address keeps its backend, on every node.
//!
//! **Removed backends** keep their connections to the connections' end. Flows of datagrams (UDP) have none, so they end at the reload, and
//! the next datagram goes to another backend.
//!
//! **Drained backends** have the weight 0: they get no new connections, and those that they have go on.
//!
//! **Refusal.** A connection to a service of which no backend takes connections is dropped ([`DropReason::NoBackend`]). The
//! pipeline informs the client by an ICMP error.
//!
//! **Limits.** Expected connections ([`crate::expectation`]) follow their master connection and are not balanced.

mod config;
pub mod maglev;
mod quic;
mod services;
mod slow_start;
mod state;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use flow::wire::{Packet, TunnelEnd};
use flow::{Direction, DropReason, Tuple};

use crate::function::{Context, NetworkFunction, Stray, TranslatedTuples, Verdict};
use crate::nat::{SourcePorts, translate_packet};
use crate::restoration::{Restoring, Unrestorable};
pub use config::{
    Affinity, BACKENDS_MAX, BackendConfig, Mode, OnFailure, SERVICES_MAX, SOURCES_MAX, Scheduler, ServiceConfig,
    ServiceError, WEIGHT_MAX,
};
pub use quic::{ID_AND_NONCE_BYTES_MAX, NONCE_BYTES, QUIC_CONFIG_MAX, QuicConfig, SERVER_ID_BYTES_MAX};
pub use services::{Backend, BackendView, Service, Services, backend_id, service_id};
pub use slow_start::SHARES;
pub use state::BalancerState;

/// The name of the function.
pub const NAME: &str = "load_balancer";

/// Names of the counters behind those of the services.
const COUNTER_NAMES: [&str; 4] = ["no_backend", "ports_exhausted", "tuples_in_use", "quic_routed"];

/// Indices of the counters behind those of the services.
#[derive(Clone, Copy)]
enum Counter {
    NoBackend,
    PortsExhausted,
    TuplesInUse,
    QuicRouted,
}

/// The load balancer of one worker; see the [module](self).
pub struct LoadBalancer {
    services: Arc<Services>,
    ports: SourcePorts,
}

impl LoadBalancer {
    /// A load balancer for these services, which all workers share. Full NAT chooses source ports from `ports`.
    #[must_use]
    pub const fn new(services: Arc<Services>, ports: SourcePorts) -> Self {
        Self { services, ports }
    }

    fn count(&self, context: &mut Context<'_>, counter: Counter) {
        context.count(self.services.services().len() + counter as usize);
    }

    /// The tuple with which a connection to `service` leaves to `backend`.
    fn translate(
        &self,
        incoming: &Tuple,
        service: &Service,
        backend: &Backend,
        context: &mut Context<'_>,
    ) -> Result<Tuple, DropReason> {
        let destination_port = backend.port.unwrap_or(incoming.destination_port);
        let outgoing = Tuple { destination: backend.address, destination_port, ..*incoming };
        if service.sources.is_empty() {
            if context.tuples.is_used(&outgoing.inverse()) {
                self.count(context, Counter::TuplesInUse);
                return Err(DropReason::TupleInUse);
            }
            return Ok(outgoing);
        }
        let translated = self.ports.translate(&outgoing, &service.sources, context.tuples, |tuple| {
            // The port of a service on the same address is no source of another connection.
            self.services.find(&tuple.inverse()).is_some()
        });
        translated.ok_or_else(|| {
            self.count(context, Counter::PortsExhausted);
            DropReason::NatPortsExhausted
        })
    }
}

impl NetworkFunction for LoadBalancer {
    type State = BalancerState;
    const TRANSLATES: bool = true;
    const ONLY_TRANSLATES: bool = true;
    const PACKETS_USE_STATE: bool = false;
    const COUNTS_CONNECTIONS: bool = true;
    const USES_TUNNELS: bool = true;

    fn name(&self) -> &'static str {
        NAME
    }

    /// `service/NAME/connections` of each service, then `no_backend`, `ports_exhausted`, `tuples_in_use` and
    /// `quic_routed`.
    fn counter_names(&self) -> Vec<String> {
        self.services.counter_names().chain(COUNTER_NAMES.map(|name| name.to_string())).collect()
    }

    fn on_init(&self, context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<BalancerState, DropReason> {
        let incoming = context.outgoing();
        if context.expected.is_some() {
            return Ok(BalancerState::default());
        }
        let Some(service) = self.services.find(&incoming) else { return Ok(BalancerState::default()) };
        let named = service.named(packet);
        if named.is_some() {
            self.count(context, Counter::QuicRouted);
        }
        let Some(backend) = named.or_else(|| service.choose(&incoming, context.taking)) else {
            self.count(context, Counter::NoBackend);
            return Err(DropReason::NoBackend);
        };
        if service.encapsulation.is_some() {
            context.is_tunnelled = true;
        } else {
            context.reply = self.translate(&incoming, service, backend, context)?.inverse();
        }
        context.count(self.services.position(service));
        if let Some(taking) = context.taking {
            backend.note_begun(taking);
        }
        Ok(BalancerState { service: service.id, backend: backend.id })
    }

    #[inline]
    fn on_packet(
        &self,
        _state: &mut BalancerState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Verdict {
        translate_packet(context, packet, direction)
    }

    /// The backend has not failed, or its service keeps connections. A flow of datagrams continues only while it would be balanced, and its
    /// backend is one of the service's.
    fn may_continue(&self, state: &BalancerState, tuples: &TranslatedTuples) -> Result<(), DropReason> {
        if state.is_balanced() && self.services.has_ended(state.service, state.backend) {
            return Err(DropReason::BackendFailed);
        }
        let is_replaced = || {
            let service = self.services.find(&tuples.original).map_or(0, |service| service.id);
            let is_other = tuples.is_untouched && service != state.service;
            is_other || (state.is_balanced() && !self.services.has_backend(state.service, state.backend))
        };
        if tuples.is_of_datagrams() && is_replaced() { Err(DropReason::TranslationReplaced) } else { Ok(()) }
    }

    fn classify_stray(&self, packet: &Packet<'_, '_>) -> Stray {
        if self.services.find(&packet.headers.tuple).is_some() { Stray::Served } else { Stray::Unknown }
    }

    fn tunnel(&self, state: &BalancerState) -> Result<Option<TunnelEnd>, DropReason> {
        if !state.is_balanced() {
            return Ok(None);
        }
        self.services.tunnel(state.service, state.backend).map(Some).ok_or(DropReason::TunnelUnknown)
    }

    fn on_enter(&self, state: &BalancerState, _original: &Tuple, _reply: &Tuple) {
        if state.is_balanced() {
            self.services.count(state.service, state.backend, true);
        }
    }

    fn on_leave(&self, state: &BalancerState, _original: &Tuple, _reply: &Tuple) {
        if state.is_balanced() {
            self.services.count(state.service, state.backend, false);
        }
    }

    /// Except for balanced connections, whose backend depends on what was up when they began.
    fn restorable(&self) -> Result<(), Unrestorable> {
        Ok(())
    }

    fn is_restorable(&self, state: &BalancerState) -> bool {
        !state.is_balanced()
    }

    fn restore(&self, restoring: &mut Restoring) -> Option<BalancerState> {
        self.services.find(&restoring.outgoing()).is_none().then(BalancerState::default)
    }
}
