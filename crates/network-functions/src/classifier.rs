//! The traffic classifier: which of nine classes a connection belongs to (\[MLCBF\] section 3.2).
//!
//! ```text
//!   first packet ─► class by port ─┬─► payload shows more ─► class by name or protocol ─► settled
//!                                  ├─► payload contradicts ► unknown ───────────────────► settled
//!                                  └─► limit of packets ───► class by port ─────────────► settled
//! ```
//!
//! **Evidence.** In order of weight: the server's name (TLS, HTTP/1, QUIC), the protocol by its first bytes ([`crate::inspect`]), the media type
//! of an HTTP/1 response, the destination port. TLS, HTTP and QUIC carry everything: without a known name they confirm the class of
//! the port, or make an unknown one [`Class::Web`]. A port of the Web with other payload proves nothing: the connection is then
//! [`Class::Unknown`], as the paper's state "port 80" becomes "WWW" or something else.
//!
//! **Bounds.** At most [`ClassifierConfig::packets_max`] packets with payload of a connection are inspected, of a client's stream at most
//! [`ASSEMBLY_BYTES_MAX`](crate::inspect::assembly::ASSEMBLY_BYTES_MAX) bytes, of a server's the first segment. A settled connection needs no
//! packets any more, and may go on by a plan or in the kernel, unless its class is marked.
//!
//! **Failover.** Class, whether it is settled and the stream's beginning are the state ([`ClassState`]). Each change of these is
//! replicated: in most connections one, as they settle. The number of inspected packets is not; another node inspects as many again at
//! most.
//!
//! **Rules.** Functions behind the classifier in the chain may decide by class ([`Context::class`]). When the class of a connection
//! changes, the chain re-evaluates it by them. A connection that is denied then stays in the table, and its packets are dropped: otherwise
//! its next packet would begin it anew, under the class of its port.

mod config;
mod deciding;
mod state;
mod tables;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use flow::wire::{Packet, Transport, ip_protocol, tcp_flags};
use flow::{Direction, DropReason, Tuple};

use crate::class::Class;
use crate::function::{Context, NetworkFunction, Verdict, state_attribute};
use crate::inspect::assembly::StreamKey;
use crate::restoration::{Restoring, Unrestorable};
pub use config::{
    CLASS_NAMES_MAX, CLASS_RULES_MAX, ClassRule, ClassifierConfig, ClassifierError, DSCP_MAX, PACKETS_MAX_DEFAULT,
    PACKETS_MAX_LIMIT,
};
use deciding::Decision;
pub use state::ClassState;
use state::flags;
use tables::{Names, Ports};

/// The name of the function.
pub const NAME: &str = "classifier";

/// The counters, in their order.
#[derive(Clone, Copy)]
enum Counter {
    ByName,
    ByProtocol,
    ByPort,
    Contradicted,
}

const COUNTER_NAMES: [&str; 4] = ["settled_by_name", "settled_by_protocol", "settled_by_port", "port_contradicted"];

/// The classifier; see the [module](self).
#[derive(Debug)]
pub struct Classifier {
    names: Names,
    ports: Ports,
    packets_max: u8,
    /// The DSCP that packets of each class get.
    dscp: [Option<u8>; Class::COUNT],
}

impl Classifier {
    /// A classifier with the built-in names and ports, unless they are turned off, below those of `config`.
    ///
    /// # Errors
    /// [`ClassifierError`].
    pub fn new(config: &ClassifierConfig) -> Result<Self, ClassifierError> {
        config.validate()?;
        Ok(Self {
            names: Names::new(config)?,
            ports: Ports::new(config),
            packets_max: config.packets_max,
            dscp: config.dscp,
        })
    }

    /// The class of a connection by its tuple.
    fn class_by_port(&self, original: &Tuple) -> Class {
        self.ports.class(original.protocol, original.destination_port)
    }

    /// Whether a connection has a payload that is inspected.
    const fn is_inspected(protocol: u8) -> bool {
        matches!(protocol, ip_protocol::TCP | ip_protocol::UDP)
    }

    /// The state of a connection of which only the tuple is known.
    fn state_by_port(&self, original: &Tuple) -> ClassState {
        let mut state = ClassState::new(self.class_by_port(original));
        state.set(flags::BY_PORT | flags::SETTLED);
        state
    }

    /// Inspects a packet of a connection that is not settled.
    fn inspect(
        &self,
        state: &mut ClassState,
        context: &mut Context<'_>,
        packet: &Packet<'_, '_>,
        direction: Direction,
    ) {
        if !state.was_begun() {
            // It is older than the classifier in the chain.
            *state = self.state_by_port(&context.original);
            return;
        }
        let payload = packet.payload();
        if let Transport::Tcp(segment) = &packet.headers.transport
            && segment.has(tcp_flags::SYN)
        {
            if direction == Direction::Original {
                state.begin_stream(segment.sequence);
            }
            return;
        }
        if payload.is_empty() {
            return;
        }
        state.inspected = state.inspected.saturating_add(1);
        let decision = match (&packet.headers.transport, direction) {
            (Transport::Tcp(segment), Direction::Original) => {
                deciding::client_segment(state, context, segment.sequence, payload)
            }
            (Transport::Tcp(_), Direction::Reply) => deciding::server_segment(state, payload),
            (Transport::Udp, Direction::Original) => deciding::client_datagram(context, payload),
            (Transport::Udp, Direction::Reply) => deciding::datagram(payload),
            _ => Decision::Nothing,
        };
        self.apply(state, context, decision);
        if state.is_settled() {
            context.assemblies.remove(&StreamKey::new(state_attribute::CLASSIFIER, &context.original));
        }
    }

    fn apply(&self, state: &mut ClassState, context: &mut Context<'_>, decision: Decision) {
        match decision {
            Decision::Carrier { name, may_settle } => {
                if let Some(class) = name.and_then(|name| self.names.class(&name)) {
                    self.settle(state, context, class, Counter::ByName);
                } else {
                    state.confirm_carrier();
                    if may_settle {
                        let class = state.class();
                        self.settle(state, context, class, Counter::ByProtocol);
                    }
                }
            }
            Decision::Class(class) => self.settle(state, context, class, Counter::ByProtocol),
            Decision::Nothing if state.has(flags::CLIENT_READ | flags::REPLY_READ) => self.conclude(state, context),
            Decision::Nothing => {}
        }
        if !state.is_settled() && state.inspected >= self.packets_max {
            self.conclude(state, context);
        }
    }

    /// Settles by what is known, which is not the payload.
    fn conclude(&self, state: &mut ClassState, context: &mut Context<'_>) {
        let is_contradicted = state.has(flags::BY_PORT) && state.class() == Class::Web && !state.has(flags::CARRIER);
        let (class, counter) = match (is_contradicted, state.has(flags::CARRIER)) {
            (true, _) => (Class::Unknown, Counter::Contradicted),
            (false, true) => (state.class(), Counter::ByProtocol),
            (false, false) => (state.class(), Counter::ByPort),
        };
        self.settle(state, context, class, counter);
    }

    fn settle(&self, state: &mut ClassState, context: &mut Context<'_>, class: Class, counter: Counter) {
        state.set_class(class, class == self.class_by_port(&context.original));
        state.set(flags::SETTLED);
        context.count(counter as usize);
    }
}

impl NetworkFunction for Classifier {
    type State = ClassState;
    const CLASSIFIES: bool = true;

    fn name(&self) -> &'static str {
        NAME
    }

    /// See the table in `docs/classifier.md`.
    fn counter_names(&self) -> Vec<String> {
        COUNTER_NAMES.map(|name| name.to_string()).into()
    }

    fn on_init(&self, context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<ClassState, DropReason> {
        let mut state = ClassState::new(self.class_by_port(&context.original));
        state.set(flags::BY_PORT);
        if context.expected.is_some() {
            // Helpers expect the data connections of file transfers.
            state.set_class(Class::Transfer, false);
            state.set(flags::SETTLED);
        } else if !Self::is_inspected(context.original.protocol) {
            state.set(flags::SETTLED);
        } else if let Transport::Tcp(segment) = &packet.headers.transport
            && !segment.has(tcp_flags::SYN)
        {
            // Picked up in the middle: its beginning, which shows the class, has passed.
            state.set(flags::SETTLED);
        }
        context.class = state.class();
        Ok(state)
    }

    #[inline]
    fn on_packet(
        &self,
        state: &mut ClassState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Verdict {
        if !state.is_settled() {
            self.inspect(state, context, packet, direction);
            context.class = state.class();
        }
        if state.has(flags::DENIED) {
            return Verdict::Drop(DropReason::FirewallDenied);
        }
        if let Some(dscp) = self.dscp[state.class().index()] {
            packet.set_dscp(dscp);
        }
        Verdict::Forward
    }

    fn needs_packets(&self, state: &ClassState) -> bool {
        !state.is_settled() || state.has(flags::DENIED) || self.dscp[state.class().index()].is_some()
    }

    fn is_replicated_change(&self, before: &ClassState, after: &ClassState) -> bool {
        before.replicated() != after.replicated()
    }

    fn set_denied(&self, state: &mut ClassState, is_denied: bool) {
        if is_denied { state.set(flags::DENIED) } else { state.clear(flags::DENIED) }
    }

    fn is_refused(&self, state: &ClassState) -> bool {
        state.has(flags::DENIED)
    }

    /// Except for connections whose payload said more than their port.
    fn restorable(&self) -> Result<(), Unrestorable> {
        Ok(())
    }

    fn is_restorable(&self, state: &ClassState) -> bool {
        state.has(flags::BY_PORT) && !state.has(flags::DENIED)
    }

    /// Also those, once they are settled.
    fn is_restorable_by_class(&self, state: &ClassState) -> bool {
        state.is_settled() && !state.has(flags::DENIED)
    }

    fn restore(&self, restoring: &mut Restoring) -> Option<ClassState> {
        let mut state = self.state_by_port(&restoring.original);
        if let Some(class) = restoring.known_class {
            state.set_class(class, class == state.class());
        }
        restoring.class = state.class();
        Some(state)
    }
}
