//! The session with a peer, in either protocol.

use alloc::vec::Vec;
use core::time::Duration;

use flow::netfilter::{Entry, Expectation};
use flow::{Instant, NodeId};
use replication::conntrackd::{self, FtfwEvent, FtfwSession};
use replication::{Holding, Link, Resync, Session, SessionEvent};

use super::config::SyncRole;
use super::connections::{ConnectionChange, Connections};
use super::conntrackd_store::ConntrackdStore;
use super::error::SyncError;
use super::event::SyncEvent;
use super::status::SyncPeerStatus;
use super::store::{NativeStore, holding};

/// Conntrackd never reports the end of a resynchronisation. Connections that it has not sent within this time do not
/// exist.
const RESYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// A change of a connection, with data that its slot no longer holds.
pub(super) struct ChangeDetails<'a> {
    pub(super) changes: ConnectionChange,
    /// The encoded name of the ended connection.
    pub(super) attributes: &'a [u8],
    /// The whole ended connection, where a session needs it.
    pub(super) entry: Option<Entry>,
    pub(super) expectation: Option<Expectation>,
}

/// The session with a peer.
#[allow(clippy::large_enum_variant, reason = "there is one for each peer, and it never moves")]
pub(super) enum SyncSession {
    /// By the native protocol.
    Native { session: Session, resync: Resync },
    /// As conntrackd does.
    Conntrackd {
        session: FtfwSession,
        resync: Resync,
        /// When its resynchronisation counts as complete.
        sweep_at: Option<Instant>,
    },
}

impl SyncSession {
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Native { session, .. } => session.is_open(),
            Self::Conntrackd { session, .. } => session.is_open(),
        }
    }

    pub(super) fn distribute(&mut self, id: NodeId, details: &ChangeDetails<'_>, connections: &Connections) {
        match self {
            Self::Native { session, .. } => match details.changes {
                ConnectionChange::Changed(handle) => session.mark_changed(handle),
                ConnectionChange::ReplicaChanged(handle) => {
                    session.note_copy(handle, |key| holding(connections, key, id, handle))
                }
                ConnectionChange::TakenOver(handle) => {
                    session.note_copy(handle, |_| Holding::Own);
                    session.mark_changed(handle);
                }
                ConnectionChange::Ended { handle, had_other_owner: true, .. } => {
                    session.mark_deleted_unconditionally(handle, details.attributes);
                }
                ConnectionChange::Ended { handle, .. } => session.mark_deleted(handle, details.attributes),
                ConnectionChange::NeverReplicated(handle) => session.forget(handle),
                ConnectionChange::Refused(to) if to == id => session.replicate_end(details.attributes),
                ConnectionChange::Refused(_)
                | ConnectionChange::ExpectationChanged(_)
                | ConnectionChange::ExpectationEnded(_) => {}
            },
            Self::Conntrackd { session, .. } => distribute_to_conntrackd(session, details),
        }
    }

    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        connections: &mut Connections,
        datagram: &[u8],
    ) -> Result<(), SyncError> {
        match self {
            Self::Native { session, resync } => {
                Ok(session.handle_datagram(now, datagram, &mut NativeStore { connections, resync })?)
            }
            Self::Conntrackd { session, resync, .. } => {
                Ok(session.handle_datagram(now, datagram, &mut ConntrackdStore { connections, resync })?)
            }
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, connections: &mut Connections, buffer: &mut Vec<u8>) -> bool {
        match self {
            Self::Native { session, resync } => {
                session.poll_transmit(now, &mut NativeStore { connections, resync }, buffer)
            }
            Self::Conntrackd { session, resync, .. } => {
                session.poll_transmit(now, &mut ConntrackdStore { connections, resync }, buffer)
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, id: NodeId, connections: &mut Connections) {
        match self {
            Self::Native { session, resync } => {
                session.handle_timeout(now);
                // Unknown ends are not kept: a peer that was away removes such connections in its full
                // resynchronisation, or its kernel ends them.
                while session.drop_unsent_end() {}
                if resync.step(|round, from, slots| connections.sweep(id, round, from, slots)) {
                    session.request_resync();
                }
            }
            Self::Conntrackd { session, resync, sweep_at } => {
                session.handle_timeout(now);
                if sweep_at.is_some_and(|at| at <= now) {
                    *sweep_at = None;
                    resync.complete();
                }
                // This protocol compares no copies: the peer sends all that it has again.
                if resync.lacks_room() && connections.has_ample_room() {
                    session.request_resync();
                    resync.start();
                    *sweep_at = Some(now + RESYNC_TIMEOUT);
                }
                // Connections of an abandoned resynchronisation distribute its mark as well: they stay until the next one.
                let _ = resync.step(|round, from, slots| connections.sweep(id, round, from, slots));
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let (session, resync, sweep_at) = match self {
            Self::Native { session, resync } => (session.poll_timeout(), resync, None),
            Self::Conntrackd { session, resync, sweep_at } => (session.poll_timeout(), resync, *sweep_at),
        };
        let sweep = resync.is_sweeping().then_some(Instant::ZERO);
        [session, sweep, sweep_at].into_iter().flatten().min()
    }

    pub(super) fn collect_events(&mut self, now: Instant, id: NodeId, connections: &mut Connections) -> bool {
        match self {
            Self::Native { session, resync } => collect_native(session, resync, now, id, connections),
            Self::Conntrackd { session, resync, sweep_at } => {
                let mut is_lost = false;
                while let Some(event) = session.poll_event() {
                    let event = match event {
                        FtfwEvent::PeerUp | FtfwEvent::PeerRestarted => {
                            // Requests a full resynchronisation.
                            resync.start();
                            *sweep_at = Some(now + RESYNC_TIMEOUT);
                            connections.alive.set(id, true);
                            if event == FtfwEvent::PeerUp {
                                SyncEvent::PeerUp(id)
                            } else {
                                SyncEvent::PeerRestarted(id)
                            }
                        }
                        FtfwEvent::PeerSilent => {
                            connections.alive.set(id, false);
                            *sweep_at = None;
                            is_lost = true;
                            SyncEvent::PeerSilent(id)
                        }
                        FtfwEvent::SentAll => SyncEvent::Synchronised(id),
                        FtfwEvent::ResyncRequested => continue,
                    };
                    connections.events.push(now, event);
                }
                is_lost
            }
        }
    }

    /// Fills in the session's part of the status.
    pub(super) fn fill_status(&self, peer: SyncPeerStatus) -> SyncPeerStatus {
        match self {
            Self::Native { session, resync } => {
                let status = session.status();
                SyncPeerStatus {
                    is_up: status.link == Link::Open,
                    last_received_at: status.last_received_at,
                    is_complete: status.received_all && !resync.lacks_room(),
                    lacks_room: resync.lacks_room(),
                    session: Some(status),
                    ..peer
                }
            }
            Self::Conntrackd { session, resync, .. } => {
                let status = session.status();
                SyncPeerStatus {
                    is_up: status.link == conntrackd::Link::Open,
                    last_received_at: status.last_received_at,
                    is_complete: status.received_all && !resync.lacks_room(),
                    lacks_room: resync.lacks_room(),
                    conntrackd: Some(status),
                    ..peer
                }
            }
        }
    }
}

fn distribute_to_conntrackd(session: &mut FtfwSession, details: &ChangeDetails<'_>) {
    match (details.changes, &details.entry, &details.expectation) {
        (ConnectionChange::Changed(handle) | ConnectionChange::TakenOver(handle), ..) => session.mark_changed(handle),
        (ConnectionChange::ReplicaChanged(handle) | ConnectionChange::NeverReplicated(handle), ..) => {
            session.forget(handle)
        }
        (ConnectionChange::Ended { handle, had_other_owner: true }, Some(entry), _) => {
            session.mark_deleted_unconditionally(handle, entry);
        }
        (ConnectionChange::Ended { handle, .. }, Some(entry), _) => session.mark_deleted(handle, entry),
        (ConnectionChange::ExpectationChanged(handle), ..) => session.mark_expectation_changed(handle),
        (ConnectionChange::ExpectationEnded(handle), _, Some(expectation)) => {
            session.mark_expectation_deleted(handle, expectation);
        }
        (ConnectionChange::Ended { .. } | ConnectionChange::ExpectationEnded(_) | ConnectionChange::Refused(_), ..) => {
        }
    }
}

fn collect_native(
    session: &mut Session,
    resync: &mut Resync,
    now: Instant,
    id: NodeId,
    connections: &mut Connections,
) -> bool {
    resync.note_agreed(session.agreed_at());
    let mut is_lost = false;
    while let Some(event) = session.poll_event() {
        let event = match event {
            SessionEvent::PeerUp => {
                connections.alive.set(id, true);
                SyncEvent::PeerUp(id)
            }
            SessionEvent::PeerSilent | SessionEvent::PeerLeft => {
                connections.alive.set(id, false);
                resync.unsettle();
                is_lost = true;
                if event == SessionEvent::PeerLeft {
                    // The peer's daemon stops: after a restart it only finds entries in its kernel.
                    connections.restarted.set(id, connections.role == SyncRole::Primary);
                    SyncEvent::PeerLeft(id)
                } else {
                    SyncEvent::PeerSilent(id)
                }
            }
            SessionEvent::PeerRestarted => {
                connections.restarted.set(id, connections.role == SyncRole::Primary);
                SyncEvent::PeerRestarted(id)
            }
            SessionEvent::Renumbered => continue,
            SessionEvent::ResyncStarted => SyncEvent::ResyncStarted(id),
            SessionEvent::ResyncCompleted => SyncEvent::ResyncCompleted(id),
            SessionEvent::Synchronised => SyncEvent::Synchronised(id),
            SessionEvent::Diverged { connections } => SyncEvent::ReplicasDiffer { peer: id, connections },
            SessionEvent::Agreed { repaired } => SyncEvent::ReplicasAgree { peer: id, repaired },
        };
        connections.events.push(now, event);
    }
    is_lost
}
