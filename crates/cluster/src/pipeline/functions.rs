//! The chain of functions, and what its functions count and log.

use alloc::vec::Vec;

use flow::wire::tlv::TlvError;
use flow::{Connection, Instant, NodeId};
use network_functions::chain::{Chain, ChainCounters, Runtime};
use network_functions::expectation::Expectations;
use network_functions::function::{HandshakeExchange, RefusedConnection, ToServer};
use network_functions::inspect::assembly::Assemblies;
use network_functions::log::Log;
use replication::representation::precise::FunctionStates;

use super::classes::ClassCounters;

/// What functions count and log.
pub(super) struct Output {
    pub(super) counters: ChainCounters,
    pub(super) log: Log,
    /// What the server of the last packet's connection is to be sent.
    pub(super) to_server: Option<ToServer>,
    /// The last packet's connection is refused.
    pub(super) refused: Option<RefusedConnection>,
    /// The last packet waits for an answer until then.
    pub(super) waits_until: Option<Instant>,
    /// Beginnings of streams that functions wait for the rest of.
    pub(super) assemblies: Assemblies,
    /// Packets and connections of each class.
    pub(super) classes: ClassCounters,
}

impl Output {
    pub(super) fn new(chain: &Chain) -> Self {
        Self {
            counters: chain.new_counters(),
            log: Log::default(),
            assemblies: Assemblies::default(),
            classes: ClassCounters::new(chain),
            to_server: None,
            refused: None,
            waits_until: None,
        }
    }

    /// What the chain is lent for a packet.
    pub(super) const fn runtime<'a>(
        &'a mut self,
        now: Instant,
        node: NodeId,
        expectations: &'a mut Expectations,
    ) -> Runtime<'a> {
        Runtime {
            now,
            node,
            counters: &mut self.counters,
            log: &mut self.log,
            assemblies: &mut self.assemblies,
            expectations,
            handshake: HandshakeExchange::NONE,
        }
    }
}

/// The chain with its output.
pub(super) struct Functions {
    pub(super) chain: Chain,
    /// [`Chain::packets_use_states`].
    pub(super) packets_use_states: bool,
    pub(super) output: Output,
}

impl Functions {
    pub(super) fn new(chain: Chain) -> Self {
        Self { packets_use_states: chain.packets_use_states(), output: Output::new(&chain), chain }
    }

    /// Takes a chain that [continues](Chain::continues) the one before. Counters go on under their names.
    pub(super) fn renew(&mut self, chain: Chain) {
        debug_assert!(chain.continues(&self.chain), "the records are laid out for the chain that was");
        self.output.counters = chain.continue_counters(&self.chain, &self.output.counters);
        self.packets_use_states = chain.packets_use_states();
        self.output.classes.follow(&chain);
        self.chain = chain;
    }

    /// Notes that a record has entered the table: of a connection that began here, or of a replica.
    #[inline]
    pub(super) fn note_entered(&mut self, connection: &Connection) {
        self.chain.note_entered(connection);
        self.output.classes.note_entered(connection);
    }

    /// Notes that a record has left the table, however its connection ended.
    #[inline]
    pub(super) fn note_left(&mut self, connection: &Connection) {
        self.chain.note_left(connection);
        self.output.classes.note_left(connection);
    }
}

/// The chain as the representation sees it.
pub struct ChainStates<'a>(pub &'a Chain);

impl FunctionStates for ChainStates<'_> {
    fn encode(&self, connection: &Connection, out: &mut Vec<u8>) {
        self.0.encode_states(connection, out);
    }

    fn decode(&self, connection: &mut Connection, attributes: &[u8]) -> Result<(), TlvError> {
        self.0.decode_states(connection, attributes)
    }
}
