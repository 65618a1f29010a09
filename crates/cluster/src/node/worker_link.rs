//! Several workers, each a [`Node`](super::Node) with a share of the connections, as one node of the cluster.
//!
//! Nothing is shared between them: they exchange [`WorkerMessage`]s, which the caller carries in the order in which they were
//! polled. A message may be lost; then the next one makes good what matters.
//!
//! | message | from | to | content |
//! |---|---|---|---|
//! | [`WorkerMessage::LeadView`] | lead | others | roles and peers, whenever they change |
//! | [`WorkerMessage::Report`] | others | lead | for which take-overs their connections are usable, and whether they have all replicas |
//! | [`WorkerMessage::Neighbour`] | lead | others | what ARP and neighbour discovery taught it |
//! | [`WorkerMessage::Redirect`] | any | any | replies of whose connections come to the receiver |
//! | [`WorkerMessage::Announcement`] | any | any | connections that are expected, or have come as expected |
//!
//! ```text
//!   lead                        others
//!    │ chosen: taking over
//!    │── LeadView ───────────────►│ forwards from now on
//!    │◄──────────────── Report ───│
//!    │ all usable: active
//!    │── announces the addresses
//! ```

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use flow::{BATCH_FRAMES_MAX, Instant, NodeId, WorkerId};

use super::event::{Events, NodeEvent};
use super::paths::ServiceRoute;
use super::peer::Peer;
use super::peers::Peers;
use crate::forwarding::{Forwarder, Learning};
use crate::group::{GROUPS_MAX, GroupId};
use crate::pipeline::{Announcement, Pipeline, Place, Redirect};
use crate::role::{Division, Roles, State};

/// How long the lead waits for the other workers before it announces the addresses. A worker that is late then drops its
/// packets a little longer; better than a node that never takes over.
pub const USABLE_WITHIN: Duration = Duration::from_millis(100);
/// Messages that wait to be polled; when there are more, the newest is dropped and counted.
pub const WORKER_MESSAGES_WAITING_MAX: usize = 65_536;

const _: () = assert!(BATCH_FRAMES_MAX < WORKER_MESSAGES_WAITING_MAX);

/// A message from one worker to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerMessage {
    /// What the lead knows of the node.
    LeadView(LeadView),
    /// How a worker stands.
    Report(WorkerReport),
    /// A neighbour.
    Neighbour(Learning),
    /// Whose replies come where.
    Redirect(Redirect),
    /// Connections that are expected.
    Announcement(Announcement),
}

/// What the lead knows of the node: the whole of it, so that a later view stands for all earlier ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeadView {
    /// State and latest take-over of each group.
    groups: Vec<(State, u64)>,
    peers: Vec<PeerView>,
    /// The node is about to leave, has left, or is about to yield: nothing is deferred, and everything is to be acknowledged.
    pub(super) is_leaving: bool,
    /// A peer may forward packets of this node's connections.
    pub(super) is_forwarded_elsewhere: bool,
}

/// What the lead knows of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PeerView {
    id: NodeId,
    is_up: bool,
    is_forwarding: bool,
    drained_at: Option<Instant>,
    down_since: Option<Instant>,
    refused: Option<Division>,
    has_state_service: Option<bool>,
    service_route: Option<ServiceRoute>,
}

/// How a worker stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerReport {
    /// The take-over of each group for which its connections are usable; 0 while it is standby.
    usable_terms: [u64; GROUPS_MAX],
    /// It has a replica of every connection that it is to back up.
    is_synchronised: bool,
    /// It is about to leave, and its peers have acknowledged all that they would need.
    has_replicated_all: bool,
    /// It is leaving, and other nodes own the connections that it had.
    has_handed_over: bool,
}

impl PeerView {
    fn of(peer: &Peer) -> Self {
        Self {
            id: peer.id,
            is_up: peer.is_up(),
            is_forwarding: peer.is_forwarding,
            drained_at: peer.drained_at,
            down_since: peer.orphaned_at,
            refused: peer.refused,
            has_state_service: peer.has_state_service,
            service_route: peer.service_route(),
        }
    }
}

impl LeadView {
    /// What the lead knows of the peers counts here. Whether one of them is lost that was not before.
    pub(super) fn apply_to_peers(&self, peers: &mut Peers) -> bool {
        let mut is_any_lost = false;
        for view in &self.peers {
            let Some(peer) = peers.get_mut(view.id) else { continue };
            is_any_lost |= view.down_since.is_some() && peer.orphaned_at != view.down_since;
            (peer.is_up_by_lead, peer.orphaned_at, peer.refused) = (view.is_up, view.down_since, view.refused);
            (peer.is_forwarding, peer.drained_at) = (view.is_forwarding, view.drained_at);
            peer.has_state_service = view.has_state_service;
            peer.paths.set_route(view.service_route);
        }
        is_any_lost
    }
}

/// The link of one worker to the others.
#[derive(Debug, Default)]
pub(super) struct WorkerLink {
    waiting: VecDeque<(WorkerId, WorkerMessage)>,
    lost: u64,
    /// The lead's: the last report of each other worker.
    reports: Vec<WorkerReport>,
    /// The lead's: its last view.
    published: Option<LeadView>,
    /// The lead's: a take-over of each group that waits for the others, and until when.
    awaited: [Option<(u64, Instant)>; GROUPS_MAX],
    /// This worker's last report.
    reported: Option<WorkerReport>,
    usable_terms: [u64; GROUPS_MAX],
}

/// Messages.
impl WorkerLink {
    /// Of a lead worker with `others` other workers.
    pub(super) fn leading(others: usize) -> Self {
        Self { reports: vec![WorkerReport::default(); others], ..Self::default() }
    }

    /// The next message, and its receiver.
    pub(super) fn poll(&mut self) -> Option<(WorkerId, WorkerMessage)> {
        self.waiting.pop_front()
    }

    /// Messages that found no room.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Collects what pipeline and forwarder have for other workers.
    pub(super) fn collect(&mut self, pipeline: &mut Pipeline, forwarder: &mut Forwarder) {
        while let Some((to, redirect)) = pipeline.poll_redirect() {
            self.push(to, WorkerMessage::Redirect(redirect));
        }
        while let Some((to, announcement)) = pipeline.poll_announcement() {
            self.push(to, WorkerMessage::Announcement(announcement));
        }
        while let Some(learning) = forwarder.poll_learning() {
            self.push_to_all(pipeline.place(), &WorkerMessage::Neighbour(learning));
        }
    }

    /// Publishes the lead's view, if it has changed.
    pub(super) fn publish(
        &mut self,
        place: Place,
        roles: &Roles,
        peers: &[Peer],
        is_leaving: bool,
        is_forwarded_elsewhere: bool,
    ) {
        let groups = || roles.groups().map(|group| (roles.state(group), roles.term(group)));
        let views = || peers.iter().map(PeerView::of);
        let is_published = self.published.as_ref().is_some_and(|view| {
            view.groups.iter().copied().eq(groups())
                && view.peers.iter().copied().eq(views())
                && (view.is_leaving, view.is_forwarded_elsewhere) == (is_leaving, is_forwarded_elsewhere)
        });
        if !is_published {
            let (groups, peers) = (groups().collect(), views().collect());
            let view = LeadView { groups, peers, is_leaving, is_forwarded_elsewhere };
            self.published = Some(view.clone());
            self.push_to_all(place, &WorkerMessage::LeadView(view));
        }
    }

    /// Reports to the lead, if something has changed.
    pub(super) fn report(&mut self, is_synchronised: bool, has_replicated_all: bool, has_handed_over: bool) {
        let usable_terms = self.usable_terms;
        let report = WorkerReport { usable_terms, is_synchronised, has_replicated_all, has_handed_over };
        if self.reported != Some(report) {
            self.reported = Some(report);
            self.push(WorkerId::LEAD, WorkerMessage::Report(report));
        }
    }

    fn push(&mut self, to: WorkerId, message: WorkerMessage) {
        if self.waiting.len() < WORKER_MESSAGES_WAITING_MAX {
            self.waiting.push_back((to, message));
        } else {
            self.lost += 1;
        }
    }

    fn push_to_all(&mut self, place: Place, message: &WorkerMessage) {
        place.others().for_each(|to| self.push(to, message.clone()));
    }
}

/// Take-overs, which wait until the connections of all workers are usable.
impl WorkerLink {
    /// The roles are as the lead has them: this worker's connections are usable for the take-overs that it knows of.
    pub(super) fn follow_roles(&mut self, now: Instant, view: &LeadView, roles: &mut Roles) {
        for (group, (state, term)) in roles.groups().zip(&view.groups) {
            roles.follow(now, group, *state, *term);
            self.usable_terms[group.index()] = if state.forwards() { *term } else { 0 };
        }
    }

    /// Another worker has reported. False: there is no such worker.
    pub(super) fn note_report(&mut self, from: WorkerId, report: WorkerReport) -> bool {
        let known = from.index().checked_sub(1).and_then(|index| self.reports.get_mut(index));
        known.map(|known| *known = report).is_some()
    }

    /// All other workers have their replicas.
    pub(super) fn are_synchronised(&self) -> bool {
        self.reports.iter().all(|report| report.is_synchronised)
    }

    /// The peers of all other workers have acknowledged all that they would need.
    pub(super) fn have_replicated_all(&self) -> bool {
        self.reports.iter().all(|report| report.has_replicated_all)
    }

    /// Other nodes own the connections that all other workers had.
    pub(super) fn have_handed_over(&self) -> bool {
        self.reports.iter().all(|report| report.has_handed_over)
    }

    /// A take-over of the group began. True if other workers must make their connections usable first.
    pub(super) fn awaits_others(&mut self, now: Instant, group: GroupId, term: u64) -> bool {
        let must_wait = self.reports.iter().any(|report| report.usable_terms[group.index()] != term);
        self.awaited[group.index()] = must_wait.then_some((term, now + USABLE_WITHIN));
        must_wait
    }

    /// The take-over of the group that waits for the others is off.
    pub(super) const fn cancel(&mut self, group: GroupId) {
        self.awaited[group.index()] = None;
    }

    /// The next group whose take-over goes on: all workers are ready for it, or one has been waited for too long.
    pub(super) fn poll_usable(&mut self, now: Instant, roles: &Roles, events: &mut Events) -> Option<GroupId> {
        for group in roles.groups() {
            let Some((term, until)) = self.awaited[group.index()] else { continue };
            let is_late = |report: &WorkerReport| report.usable_terms[group.index()] != term;
            let late = (1..).map(WorkerId).zip(&self.reports).find(|(_, report)| is_late(report));
            if let Some((worker, _)) = late {
                if now < until {
                    continue;
                }
                events.push(now, NodeEvent::WorkerLate(worker));
            }
            self.awaited[group.index()] = None;
            return Some(group);
        }
        None
    }

    /// When the others are waited for no longer.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.awaited.iter().flatten().map(|(_, until)| *until).min()
    }
}
