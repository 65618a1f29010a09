//! The session with a peer, whatever it speaks.

use alloc::vec::Vec;
use core::time::Duration;

use flow::netfilter::{Entry, Expectation};
use flow::{Instant, NodeId};
use replication::conntrackd::{self, FtfwEvent, FtfwSession};
use replication::{Holding, Link, Resync, Session, SessionEvent};

use super::config::SyncRole;
use super::connections::{Connections, Touched};
use super::error::SyncError;
use super::event::SyncEvent;
use super::foreign::ForeignTable;
use super::status::SyncPeerStatus;
use super::store::{NativeStore, holding};

/// A conntrackd never says when it has told everything. What it was asked for and has not told after so long, it does not have.
const TOLD_WITHIN: Duration = Duration::from_secs(120);

/// What became of a connection, with what its slot does not hold any more.
pub(super) struct Carried<'a> {
    pub(super) touched: Touched,
    /// The name of what ended.
    pub(super) attributes: &'a [u8],
    /// All of it, where somebody needs that.
    pub(super) entry: Option<Entry>,
    pub(super) expectation: Option<Expectation>,
}

/// The session with a peer.
#[allow(clippy::large_enum_variant, reason = "there is one for each peer, and it stays where it is")]
pub(super) enum SyncSession {
    /// By the native protocol.
    Native { session: Session, resync: Resync },
    /// As conntrackd does.
    Conntrackd {
        session: FtfwSession,
        resync: Resync,
        /// When it is to have told everything.
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

    pub(super) fn carry(&mut self, id: NodeId, carried: &Carried<'_>, connections: &Connections) {
        match self {
            Self::Native { session, .. } => match carried.touched {
                Touched::Changed(handle) => session.mark_changed(handle),
                Touched::Copied(handle) => session.note_copy(handle, |key| holding(connections, key, id, handle)),
                Touched::TakenOver(handle) => {
                    session.note_copy(handle, |_| Holding::Own);
                    session.mark_changed(handle);
                }
                Touched::Ended { handle, had_another_master: true, .. } => {
                    session.mark_deleted_anyway(handle, carried.attributes);
                }
                Touched::Ended { handle, .. } => session.mark_deleted(handle, carried.attributes),
                Touched::Forgotten(handle) => session.forget(handle),
                Touched::Refused(to) if to == id => session.tell_end(carried.attributes),
                Touched::Refused(_) | Touched::ExpectationChanged(_) | Touched::ExpectationEnded(_) => {}
            },
            Self::Conntrackd { session, .. } => carry_to_conntrackd(session, carried),
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
                Ok(session.handle_datagram(now, datagram, &mut ForeignTable { connections, resync })?)
            }
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, connections: &mut Connections, buffer: &mut Vec<u8>) -> bool {
        match self {
            Self::Native { session, resync } => {
                session.poll_transmit(now, &mut NativeStore { connections, resync }, buffer)
            }
            Self::Conntrackd { session, resync, .. } => {
                session.poll_transmit(now, &mut ForeignTable { connections, resync }, buffer)
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, id: NodeId, connections: &mut Connections) {
        match self {
            Self::Native { session, resync } => {
                session.handle_timeout(now);
                // Nobody remembers them: what a peer that was away still has goes when it is told everything, or the kernel
                // ends it.
                while session.drop_untold_end() {}
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
                // What was told in a round that was given up carries its mark as well: it stays until the next.
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
                            // It is asked for everything.
                            resync.start();
                            *sweep_at = Some(now + TOLD_WITHIN);
                            connections.living.set(id, true);
                            if event == FtfwEvent::PeerUp {
                                SyncEvent::PeerUp(id)
                            } else {
                                SyncEvent::PeerRestarted(id)
                            }
                        }
                        FtfwEvent::PeerSilent => {
                            connections.living.set(id, false);
                            *sweep_at = None;
                            is_lost = true;
                            SyncEvent::PeerSilent(id)
                        }
                        FtfwEvent::Told => SyncEvent::Synchronised(id),
                        FtfwEvent::ResyncRequested => continue,
                    };
                    connections.events.push(now, event);
                }
                is_lost
            }
        }
    }

    /// Fills in what the session knows.
    pub(super) fn fill_status(&self, peer: SyncPeerStatus) -> SyncPeerStatus {
        match self {
            Self::Native { session, resync } => {
                let status = session.status();
                SyncPeerStatus {
                    is_up: status.link == Link::Open,
                    last_heard: status.last_heard,
                    has_told_all: status.heard && !resync.lacks_room,
                    lacks_room: resync.lacks_room,
                    session: Some(status),
                    ..peer
                }
            }
            Self::Conntrackd { session, resync, .. } => {
                let status = session.status();
                SyncPeerStatus {
                    is_up: status.link == conntrackd::Link::Open,
                    last_heard: status.last_heard,
                    has_told_all: status.heard && !resync.lacks_room,
                    lacks_room: resync.lacks_room,
                    conntrackd: Some(status),
                    ..peer
                }
            }
        }
    }
}

fn carry_to_conntrackd(session: &mut FtfwSession, carried: &Carried<'_>) {
    match (carried.touched, &carried.entry, &carried.expectation) {
        (Touched::Changed(handle) | Touched::TakenOver(handle), ..) => session.mark_changed(handle),
        (Touched::Copied(handle) | Touched::Forgotten(handle), ..) => session.forget(handle),
        (Touched::Ended { handle, had_another_master: true }, Some(entry), _) => {
            session.mark_deleted_anyway(handle, entry);
        }
        (Touched::Ended { handle, .. }, Some(entry), _) => session.mark_deleted(handle, entry),
        (Touched::ExpectationChanged(handle), ..) => session.mark_expectation_changed(handle),
        (Touched::ExpectationEnded(handle), _, Some(expectation)) => {
            session.mark_expectation_deleted(handle, expectation);
        }
        (Touched::Ended { .. } | Touched::ExpectationEnded(_) | Touched::Refused(_), ..) => {}
    }
}

fn collect_native(
    session: &mut Session,
    resync: &mut Resync,
    now: Instant,
    id: NodeId,
    connections: &mut Connections,
) -> bool {
    let mut is_lost = false;
    while let Some(event) = session.poll_event() {
        let event = match event {
            SessionEvent::PeerUp => {
                connections.living.set(id, true);
                SyncEvent::PeerUp(id)
            }
            SessionEvent::PeerSilent | SessionEvent::PeerLeft => {
                connections.living.set(id, false);
                resync.unsettle();
                is_lost = true;
                if event == SessionEvent::PeerLeft {
                    // Its daemon ends: when it comes back it has merely found what its kernel has.
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
