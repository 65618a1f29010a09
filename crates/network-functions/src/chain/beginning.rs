//! How a connection begins, and the rehearsal of it.

use flow::wire::Packet;
use flow::{Connection, DropReason};

use super::{Call, CallOutcome, Chain, ChainCounters, Runtime, Unwatched, Watch};
use crate::class::Class;
use crate::function::{Context, Taking, TupleUse};

impl Chain {
    /// Begins a connection with `packet`: calls every function's `on_init` in chain order. On success `connection`
    /// holds their states and the chosen reply tuple; the first packet itself must still go through [`Chain::process`].
    ///
    /// `tuples` reports which reply tuples are in use; usually it is the table, before `connection` is inserted.
    ///
    /// # Errors
    /// A function refused the connection. `connection` is then unchanged; only counters, log, and what connections share have changed.
    pub fn init(
        &self,
        runtime: &mut Runtime<'_>,
        tuples: &dyn TupleUse,
        connection: &mut Connection,
        packet: &Packet<'_, '_>,
    ) -> Result<(), DropReason> {
        self.init_watched(runtime, tuples, connection, packet, &mut Unwatched)
    }

    /// As [`Chain::init`]; `watch` observes every call.
    ///
    /// # Errors
    /// As [`Chain::init`].
    #[inline]
    pub fn init_watched<W: Watch>(
        &self,
        runtime: &mut Runtime<'_>,
        tuples: &dyn TupleUse,
        connection: &mut Connection,
        packet: &Packet<'_, '_>,
        watch: &mut W,
    ) -> Result<(), DropReason> {
        self.call_init(runtime, (tuples, Some(Taking::granted())), connection, packet, watch)
    }

    /// Fills `connection` as [`Chain::init`] would now, and takes nothing of what connections share: the packet begins no connection yet.
    /// Counters and log of `runtime` change.
    ///
    /// # Errors
    /// A function would refuse the connection.
    pub fn rehearse(
        &self,
        runtime: &mut Runtime<'_>,
        tuples: &dyn TupleUse,
        connection: &mut Connection,
        packet: &Packet<'_, '_>,
    ) -> Result<(), DropReason> {
        self.call_init(runtime, (tuples, None), connection, packet, &mut Unwatched)
    }

    #[inline]
    fn call_init<W: Watch>(
        &self,
        runtime: &mut Runtime<'_>,
        (tuples, taking): (&dyn TupleUse, Option<Taking>),
        connection: &mut Connection,
        packet: &Packet<'_, '_>,
        watch: &mut W,
    ) -> Result<(), DropReason> {
        let mut states = self.default_states;
        let mut context = Context {
            now: runtime.now,
            node: runtime.node,
            ingress: packet.frame.ingress,
            original: connection.original,
            reply: connection.reply,
            tuples,
            class: Class::Unknown,
            counters: &mut [],
            log: runtime.log,
            assemblies: runtime.assemblies,
            expected: runtime.expectations.find(runtime.now, &connection.original).copied(),
            taking,
            handshake: runtime.handshake,
            expectations: runtime.expectations,
            is_tunnelled: false,
            has_expected: false,
        };
        let ChainCounters { values, functions } = &mut *runtime.counters;
        let mut counters = values.as_mut_slice();
        for ((function, link), counted) in self.links.iter().enumerate().zip(functions) {
            (context.counters, counters) = counters.split_at_mut(link.counters);
            watch.before_call(context.counters);
            let result = link.function.on_init(&mut states[link.state.clone()], &mut context, packet);
            watch.after_call(&Call { function, outcome: CallOutcome::Began(result), context: &context }, packet);
            counted.connections += 1;
            counted.connections_refused += u64::from(result.is_err());
            result?;
        }
        if context.is_tunnelled && context.reply != connection.original.inverse() {
            return Err(DropReason::TunnelTranslated);
        }
        connection.reply = context.reply;
        connection.functions = states;
        Ok(())
    }
}
