//! A packet that has been looked up: it goes on by its connection, begins one, or is dropped. Then it leaves the pipeline.

use core::net::SocketAddr;

use flow::connection::flags;
use flow::conntrack::{Change, Next, StrayResets, state_name};
use flow::table::Slot;
use flow::wire::{IcmpError, Packet, Transport, TunnelEnd};
use flow::{Connection, Direction, Disposition, DropReason, Instant, Tuple};
use network_functions::function::{AcceptedClient, CloseReason, Verdict};
use network_functions::syn_proxy::first_syn;

use super::Pipeline;
use super::arrival::{Arrival, wanted};
use super::change::TableChange;
use super::connections::{Connections, count, record, record_mut};
use super::edge::Edge;
use super::handshakes::{post, reset_accepted};
use super::peer_owned;
use super::recovery::RecoveryOutcome;
use crate::observation::{ConnectionChange, Observation, Step};

impl Pipeline {
    pub(super) fn handle_packet<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        found: Option<(Slot, Direction)>,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let Connections { table, observation, .. } = &mut self.connections;
        if observation.attends() {
            let found = found.map(|(slot, direction)| (record(table, slot), direction));
            observation.step(Step::looked_up(packet.headers, found));
        }
        let is_steering = arrival.origin.is_steering;
        let found = match found {
            None if !is_steering && self.recovery.is_active() => {
                match self.recovery.look_up_handed(&mut self.connections, arrival, packet, edge) {
                    RecoveryOutcome::Known(slot, direction) => Some((slot, direction)),
                    RecoveryOutcome::Dropped(reason) => return Err(reason),
                    _ => None,
                }
            }
            found => found,
        };
        let Connections { shard, observation, .. } = &mut self.connections;
        if found.is_none()
            && let Some(elsewhere) = shard.redirect(packet, &wanted(packet.headers), is_steering)
        {
            if observation.attends()
                && let Some(worker) = shard.last_handed_to().filter(|_| is_steering)
            {
                observation.step(Step::HandedOver(worker));
            }
            return elsewhere;
        }
        let found = match found {
            None if self.recovery.is_active() => {
                match self.recovery.look_up(&mut self.connections, arrival, packet, edge) {
                    RecoveryOutcome::Known(slot, direction) => Some((slot, direction)),
                    RecoveryOutcome::Unknown => None,
                    RecoveryOutcome::HandedOver => return Ok(Disposition::Consumed),
                    RecoveryOutcome::Dropped(reason) => return Err(reason),
                    RecoveryOutcome::KeepAlive(verdict) => {
                        let how = (verdict, None);
                        return send(arrival.now, packet, how, &mut self.connections.observation, edge);
                    }
                }
            }
            found => found,
        };
        if found.is_none()
            && self.connections.state_lookup.is_some()
            && let Some(elsewhere) = self.look_up_elsewhere(arrival, packet)
        {
            return elsewhere;
        }
        let sent = match (&packet.headers.transport, found) {
            (Transport::IcmpError(error), found) => {
                let error = *error;
                self.translate_icmp_error(arrival, packet, &error, found, edge)
            }
            (_, Some((slot, direction))) => self.handle_known(arrival, packet, slot, direction, edge),
            (_, None) => self.handle_unknown(arrival, packet, edge),
        };
        if sent == Err(DropReason::UrlAwaiting) && self.waiting.hold_for_answer(&mut self.connections, arrival, packet)
        {
            return Ok(Disposition::Consumed);
        }
        sent
    }

    fn handle_known<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let (connections, now) = (&mut self.connections, arrival.now);
        if let Some(reason) = self.reevaluation.ends(connections, now, slot) {
            connections.observe(Step::Disallowed);
            let has_ends = matches!(packet.headers.transport, Transport::Tcp(_) | Transport::Sctp(_));
            // A datagram begins the next flow at once.
            let begins = reason != DropReason::FirewallDenied && direction == Direction::Original && !has_ends;
            return if begins { self.handle_unknown(arrival, packet, edge) } else { Err(reason) };
        }
        connections.take_seen(slot);
        let Some((verdict, states_changed)) = connections.process_plain(now, packet, slot, direction) else {
            return self.handle_any_known(arrival, packet, slot, direction, edge);
        };
        if states_changed {
            connections.changes.push(TableChange::FunctionsChanged { slot });
        }
        let sent = send_known(connections, arrival, packet, (slot, direction), verdict, edge);
        if connections.plans.are_used() && is_transmitted(sent) {
            connections.plan(packet, slot, direction, edge);
        }
        connections.follow_in_fast_path(slot);
        sent
    }

    /// Handles what is not a plain segment of a connection that this node owns.
    fn handle_any_known<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        if let Some(reborn) = self.handle_rebirth(arrival, packet, (slot, direction), edge) {
            return reborn;
        }
        let (connections, now) = (&mut self.connections, arrival.now);
        let known = record(&connections.table, slot);
        let (previous_state, master) = (known.protocol.state, known.owner);
        let is_first_reply = direction == Direction::Reply && known.flags & (flags::REPLIED | flags::REPLICA) == 0;
        if is_first_reply && edge.holds_first_reply(now, slot, packet) {
            connections.observe(Step::HeldForBackup);
            return Ok(Disposition::Consumed);
        }
        let tracked = if connections.sharing.is_none() {
            Some(connections.advance(now, packet, slot, direction))
        } else {
            peer_owned::track(connections, &mut self.waiting, arrival, packet, (slot, direction), edge)
        };
        let Some((advance, mut taken_over)) = tracked else { return Ok(Disposition::Consumed) };
        if self.recovery.is_active() && advance.verdict.is_ok() {
            self.recovery.count_if_disowned(record(&connections.table, slot), packet.headers, direction);
        }
        if connections.observation.attends() {
            if taken_over {
                connections.observation.step(Step::TakenOver { from: master });
            }
            let step = Step::tracked(record(&connections.table, slot), previous_state, &advance);
            connections.observation.step(step);
        }
        if advance.next == Next::Reopen {
            if taken_over {
                connections.changes.push(TableChange::TakenOver { slot });
            }
            return self.reopen(arrival, packet, slot, None, edge);
        }
        if advance.verdict.is_ok() && connections.is_replaced(slot, previous_state, packet.headers) {
            if taken_over {
                connections.changes.push(TableChange::TakenOver { slot });
            }
            connections.end(slot, CloseReason::TcpClosed);
            return Err(DropReason::NoConnection);
        }
        let (verdict, states_changed) = match advance.verdict {
            Ok(()) => connections.process(now, packet, slot, direction),
            Err(reason) => (Verdict::Drop(reason), false),
        };
        let verdict = self.handshakes.follow(connections, now, packet, (slot, direction), verdict, edge);
        taken_over |= states_changed && connections.take_over_if_peer_owned(now, slot);
        let sent = send_known(connections, arrival, packet, (slot, direction), verdict, edge);
        if taken_over {
            // Also of one that ends: peers are not informed of the end of a connection that was never replicated.
            connections.changes.push(TableChange::TakenOver { slot });
        }
        if advance.next == Next::Close {
            connections.end(slot, CloseReason::TcpClosed);
        } else if taken_over {
            connections.follow(ConnectionChange::TakenOver, slot);
        } else if states_changed {
            connections.changes.push(TableChange::FunctionsChanged { slot });
        } else if advance.change != Change::None {
            connections.note_change(slot, advance.change, previous_state);
        }
        connections.follow_in_fast_path(slot);
        sent
    }

    pub(super) fn handle_unknown<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let checked = if self.begins { self.connections.check_handshake(arrival.now, packet) } else { None };
        let connections = &mut self.connections;
        if !matches!(checked, Some(Ok(_)))
            && connections.has_living_peer()
            && !connections.looks_up()
            && self.waiting.may_be_answer(connections, arrival, packet)
            && self.waiting.hold(connections, arrival, packet, DropReason::NoConnection)
        {
            return Ok(Disposition::Consumed);
        }
        if arrival.is_local && matches!(packet.headers.transport, Transport::IcmpQuery(_)) {
            if !edge.is_of_ingress(packet) {
                connections.check_rules(arrival.now, packet)?;
            }
            return Ok(edge.handle_local(arrival.now, packet));
        }
        if !self.begins {
            return Err(DropReason::NotActive);
        }
        if !connections.resets.is_empty()
            && !matches!(checked, Some(Ok(_)))
            && let Some(reset) = connections.resets.answer(arrival.now, packet)
        {
            reset.into_iter().for_each(|(to, reset)| post(&to, reset, |packet| edge.post(arrival.now, packet)));
            return Err(DropReason::BackendFailed);
        }
        if let Some(checked) = checked {
            return self.begin_proxied(arrival, packet, checked?, edge);
        }
        match begin(connections, arrival, packet, None) {
            Ok(slot) => send_first(connections, arrival, packet, slot, edge),
            Err(DropReason::SynProxied) => connections.answer_handshake(arrival.now, packet),
            Err(reason) => {
                match reason {
                    DropReason::NoConnection => self.answer_stray(arrival, packet, edge),
                    _ => edge.refuse_connection(arrival.now, packet, reason),
                }
                Err(reason)
            }
        }
    }

    /// Answers a TCP segment of no connection by a reset, where that is configured and no other node can have the connection.
    #[cold]
    fn answer_stray<E: Edge>(&mut self, arrival: &Arrival, packet: &Packet<'_, '_>, edge: &mut E) {
        let connections = &mut self.connections;
        let policy = connections.tracker.config().stray_resets;
        let may_be_elsewhere = self.recovery.is_active() || connections.has_living_peer() || connections.looks_up();
        if policy == StrayResets::Never || may_be_elsewhere || !edge.may_reset_strays(arrival.now) {
            return;
        }
        if !connections.functions.chain.may_reset_stray(packet, policy == StrayResets::Always) {
            return;
        }
        if let Some((to, reset)) = connections.resets.answer_stray(arrival.now, packet) {
            post(&to, reset, |packet| edge.post(arrival.now, packet));
        }
    }

    /// Translates an ICMP error back to what the quoted packet's sender knows, and sends it there (RFC 5508 section 4, RFC 4443
    /// section 2.4). `found` is the connection, and the direction in which the error goes on it: against the packet that it
    /// quotes.
    ///
    /// # Errors
    /// The quoted packet is of no connection.
    fn translate_icmp_error<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        error: &IcmpError,
        found: Option<(Slot, Direction)>,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let reason = DropReason::UnrelatedIcmpError;
        if found.is_none() && self.waiting.hold(&mut self.connections, arrival, packet, reason) {
            return Ok(Disposition::Consumed);
        }
        let (slot, direction) = found.ok_or(reason)?;
        let connection = self.connections.table.get(slot).ok_or(reason)?;
        let as_sent = *connection.tuple(direction.reverse());
        let tunnel = self.connections.tunnel(slot, direction)?;
        let outer = packet.headers.tuple;
        // A router on the path keeps its own address, unless it is on the side that the translation hides: the other side would
        // not accept a packet from an address there. Its error then gets, as the end host's does, the address that the end host
        // is known by (RFC 5508 section 4.2, and Linux).
        let is_hidden = error.inner.destination != as_sent.destination;
        let source = if is_hidden { as_sent.destination } else { outer.source };
        packet.rewrite_icmp_error(&as_sent, &source, &as_sent.source);
        let chain = &self.connections.functions.chain;
        if chain.renumbers() {
            packet.edit_quoted_tcp(|quoted| chain.restore_quoted(connection, quoted, direction.reverse()));
        }
        let sent = Ok(forward(arrival.now, packet, tunnel, &mut self.connections.observation, edge));
        if !is_transmitted(sent) {
            edge.note_not_sent(arrival.now, packet, &outer.into());
        }
        sent
    }

    /// Begins the connection of a client whose cookie was accepted: the packet becomes the SYN to the server.
    pub(super) fn begin_proxied<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        client: AcceptedClient,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let (now, original, ttl) = (arrival.now, packet.headers.tuple, packet.headers.ttl);
        if !packet.become_segment(&original, ttl, &first_syn(&client)) {
            return Err(DropReason::PayloadUnchangeable);
        }
        let connections = &mut self.connections;
        let begun = begin(connections, arrival, packet, Some(client));
        if let Err(DropReason::NoBackend | DropReason::NatPortsExhausted | DropReason::NatBlockExhausted) = begun {
            reset_accepted(now, &original, &client, edge);
        }
        let sent = send_first(connections, arrival, packet, begun?, edge);
        if sent.is_ok() {
            self.handshakes.begin(now, original, &client);
        }
        sent
    }
}

/// Forwards a packet of a connection; what stays behind is noted as it was received.
#[inline(always)]
fn send_known<E: Edge>(
    connections: &mut Connections,
    arrival: &Arrival,
    packet: &mut Packet<'_, '_>,
    (slot, direction): (Slot, Direction),
    verdict: Verdict,
    edge: &mut E,
) -> Result<Disposition, DropReason> {
    if connections.functions.output.refused.is_some() {
        connections.refuse(arrival.now, packet.headers, slot, edge);
    }
    let tunnel = connections.tunnel(slot, direction)?;
    let sent = send(arrival.now, packet, (verdict, tunnel), &mut connections.observation, edge);
    if let Ok(Disposition::Transmit(port)) = sent {
        if verdict == Verdict::Forward {
            record_mut(&mut connections.table, slot).note_egress(direction, port);
        }
    } else {
        let as_received = connections.as_received(slot, direction, packet);
        edge.note_not_sent(arrival.now, packet, &as_received);
    }
    sent
}

/// Enters the connection that a packet begins, if the rules and the limits allow it.
fn begin(
    connections: &mut Connections,
    arrival: &Arrival,
    packet: &Packet<'_, '_>,
    accepted: Option<AcceptedClient>,
) -> Result<Slot, DropReason> {
    let mut connection = prepare(connections, arrival, packet, accepted)?;
    count(&mut connection, packet, Direction::Original, &mut connections.functions.output.classes);
    connections.enter(arrival.now, connection, arrival.hash)
}

/// The record of the connection that a packet begins, if the rules and the limits allow it.
pub(super) fn prepare(
    connections: &mut Connections,
    arrival: &Arrival,
    packet: &Packet<'_, '_>,
    accepted: Option<AcceptedClient>,
) -> Result<Connection, DropReason> {
    let (now, tuple) = (arrival.now, packet.headers.tuple);
    let (protocol, timeout) = connections.tracker.begin(packet.headers)?;
    connections.observe(Step::Begins { state: state_name(tuple.protocol, &protocol) });
    connections.sources.check(now, &tuple)?;
    let mut connection = Connection::new(tuple, connections.node, protocol, now + timeout);
    connection.version = connections.first_version(&tuple);
    connections.init(now, &mut connection, packet, accepted)?;
    if connections.functions.chain.tunnel(&connection)?.is_some() {
        connections.tracker.see_one_side(now, tuple.protocol, &mut connection.protocol);
    } else if arrival.is_local && connection.reply.source == tuple.destination {
        return Err(DropReason::LocalUnhandled);
    }
    Ok(connection)
}

/// Sends the packet that has begun the connection in `slot`. A connection whose first packet is dropped is removed, unless that packet shows
/// that the connection is refused, or waits for an answer that decides it (a QUIC connection's first datagram names a host).
fn send_first<E: Edge>(
    connections: &mut Connections,
    arrival: &Arrival,
    packet: &mut Packet<'_, '_>,
    slot: Slot,
    edge: &mut E,
) -> Result<Disposition, DropReason> {
    let (now, tuple) = (arrival.now, packet.headers.tuple);
    let (verdict, _) = connections.process(now, packet, slot, Direction::Original);
    let tunnel = connections.tunnel(slot, Direction::Original);
    let sent = tunnel.and_then(|tunnel| send(now, packet, (verdict, tunnel), &mut connections.observation, edge));
    if !is_transmitted(sent) {
        edge.note_not_sent(now, packet, &tuple.into());
    }
    match sent {
        Err(reason) | Ok(Disposition::Drop(reason)) => {
            let is_kept = reason == DropReason::UrlAwaiting
                || connections.functions.chain.is_refused(record(&connections.table, slot));
            if is_kept {
                note_begun(connections, now, slot, &tuple);
            } else {
                connections.remove(slot);
            }
            Err(reason)
        }
        Ok(disposition) => {
            if let (Disposition::Transmit(port), Verdict::Forward) = (disposition, verdict) {
                record_mut(&mut connections.table, slot).note_egress(Direction::Original, port);
            }
            note_begun(connections, now, slot, &tuple);
            Ok(disposition)
        }
    }
}

/// The connection in `slot` has begun and stays.
fn note_begun(connections: &mut Connections, now: Instant, slot: Slot, tuple: &Tuple) {
    connections.sources.note_begun(now, tuple);
    connections.counters.begun += 1;
    connections.note_if_expected(now, slot, tuple);
    connections.changes.push(TableChange::Began { slot });
    connections.follow(ConnectionChange::Began, slot);
}

/// Applies the chain's verdict to a packet, which leaves in the tunnel if there is one.
#[inline(always)]
fn send<E: Edge>(
    now: Instant,
    packet: &mut Packet<'_, '_>,
    (verdict, tunnel): (Verdict, Option<TunnelEnd>),
    observation: &mut Observation,
    edge: &mut E,
) -> Result<Disposition, DropReason> {
    match verdict {
        Verdict::Forward => Ok(forward(now, packet, tunnel, observation, edge)),
        Verdict::SendBack => Ok(Disposition::Transmit(packet.frame.ingress)),
        Verdict::Queued => Ok(Disposition::Consumed),
        Verdict::Drop(reason) => Err(reason),
    }
}

/// Forwards a packet, already translated, in a tunnel if there is one.
#[inline]
pub(super) fn forward<E: Edge>(
    now: Instant,
    packet: &mut Packet<'_, '_>,
    tunnel: Option<TunnelEnd>,
    observation: &mut Observation,
    edge: &mut E,
) -> Disposition {
    if observation.attends() {
        let towards = tunnel.map_or(packet.headers.tuple, |end| {
            Tuple::new(0, SocketAddr::new(end.address, 0), SocketAddr::new(end.address, 0))
        });
        observation.step(Step::Routed(edge.routed_to(&towards)));
    }
    match &tunnel {
        None => edge.forward(now, packet),
        Some(end) => edge.forward_in_tunnel(now, packet, end),
    }
}

/// The packet leaves with its batch: no error is due.
#[inline(always)]
pub(super) const fn is_transmitted(sent: Result<Disposition, DropReason>) -> bool {
    matches!(sent, Ok(Disposition::Transmit(_)))
}
