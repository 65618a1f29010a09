//! Several workers, each a [`Node`] of its own with a share of the connections, as one node of the cluster.
//!
//! Nothing is shared between them: what one has to tell another is a [`Letter`], which whoever runs them carries, in the
//! order in which they were polled. A letter may be lost; then the next one makes good what matters.
//!
//! | letter | from | to | says |
//! |---|---|---|---|
//! | [`Letter::Standing`] | lead | others | roles and peers, whenever they change |
//! | [`Letter::Report`] | others | lead | which take-overs their connections are usable for, and whether they have all copies |
//! | [`Letter::Neighbour`] | lead | others | what ARP and neighbour discovery taught it |
//! | [`Letter::Redirect`] | any | any | replies of whose connections come to the receiver |
//! | [`Letter::Announcement`] | any | any | connections that are expected, or have come as expected |
//!
//! ```text
//!   lead                        others
//!    │ chosen: taking over
//!    │── Standing ───────────────►│ forwards from now on
//!    │◄──────────────── Report ───│
//!    │ all usable: active
//!    │── announces the addresses
//! ```

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use flow::{BATCH_FRAMES_MAX, Instant, NodeId, PacketBatch, WorkerId};

use super::surroundings::Surroundings;
use super::{ConfigError, Node, NodeConfig, NodeEvent};
use crate::forwarding::{Learning, Sharing};
use crate::group::{GROUPS_MAX, GroupId};
use crate::pipeline::{Announcement, HandedFrame, Place, Redirect};
use crate::role::{Division, Roles, State};

/// How long the lead waits for the other workers before it announces the addresses. A worker that is late then drops its
/// packets a little longer; better than a node that never takes over.
pub const USABLE_WITHIN: Duration = Duration::from_millis(100);
/// Letters that wait to be polled; when there are more, the newest is dropped and counted.
pub const LETTERS_WAITING_MAX: usize = 65_536;

const _: () = assert!(BATCH_FRAMES_MAX < LETTERS_WAITING_MAX);

/// What one worker tells another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Letter {
    /// How the node stands.
    Standing(Standing),
    /// How a worker stands.
    Report(Report),
    /// A neighbour.
    Neighbour(Learning),
    /// Whose replies come where.
    Redirect(Redirect),
    /// Connections that are expected.
    Announcement(Announcement),
}

/// How the node stands: the whole of it, so that a later one stands for all earlier ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// State and latest take-over of each group.
    groups: Vec<(State, u64)>,
    peers: Vec<PeerStanding>,
    /// It is about to leave, has left, or is about to yield: nothing is deferred, and everything is to be acknowledged.
    is_leaving: bool,
    /// A peer may forward packets of this node's connections.
    is_forwarded_elsewhere: bool,
}

/// What the lead knows of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PeerStanding {
    id: NodeId,
    is_up: bool,
    down_since: Option<Instant>,
    refused: Option<Division>,
}

/// How a worker stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The take-over of each group for which its connections are usable; 0 while it stands by.
    usable_terms: [u64; GROUPS_MAX],
    /// It has a copy of every connection that it is to back up.
    is_synchronised: bool,
    /// It is about to leave, and its peers have acknowledged all that they would need.
    has_replicated_all: bool,
}

/// What a worker remembers of the others.
#[derive(Debug, Default)]
pub(super) struct Others {
    letters: VecDeque<(WorkerId, Letter)>,
    letters_lost: u64,
    /// The lead's: what each other worker said last.
    reports: Vec<Report>,
    /// The lead's: what it said last.
    told: Option<Standing>,
    /// The lead's: a take-over of each group that waits for the others, and until when.
    awaited: [Option<(u64, Instant)>; GROUPS_MAX],
    /// What this worker said last.
    reported: Option<Report>,
    usable_terms: [u64; GROUPS_MAX],
}

impl Others {
    fn push(&mut self, to: WorkerId, letter: Letter) {
        if self.letters.len() < LETTERS_WAITING_MAX {
            self.letters.push_back((to, letter));
        } else {
            self.letters_lost += 1;
        }
    }

    /// All other workers have their copies.
    pub(super) fn are_synchronised(&self) -> bool {
        self.reports.iter().all(|report| report.is_synchronised)
    }

    /// The peers of all other workers have acknowledged all that they would need.
    pub(super) fn have_replicated_all(&self) -> bool {
        self.reports.iter().all(|report| report.has_replicated_all)
    }

    /// When the others are waited for no longer.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.awaited.iter().flatten().map(|(_, until)| *until).min()
    }
}

impl Node {
    /// One of several workers of a node. All of them are made from the same configuration, but for hash key and seed.
    ///
    /// # Errors
    /// The configuration of a part is unsound: which, and why.
    pub fn new_worker(config: NodeConfig, place: Place, now: Instant) -> Result<Self, ConfigError> {
        let role = config.role.clone();
        let mut node = Self::new(config, now)?;
        node.pipeline.set_place(place);
        node.replication
            .peers
            .iter_mut()
            .filter_map(|peer| peer.channel.as_mut())
            .for_each(|it| it.set_worker(place.worker));
        if place.is_alone() {
            return Ok(node);
        }
        if place.leads() {
            node.forwarder.set_sharing(Sharing::Tells);
            node.others.reports = vec![Report::default(); usize::from(place.steering.workers()) - 1];
        } else {
            node.forwarder.set_sharing(Sharing::IsTold);
            node.roles = Roles::following(role, now);
            node.passive.follow();
            node.replication.peers.iter_mut().for_each(|peer| peer.is_watched = false);
        }
        Ok(node)
    }

    /// Which of the node's workers this is.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.pipeline.place()
    }

    /// As [`Node::handle_packets`], for frames that another worker handed over.
    pub fn handle_handed_over(&mut self, now: Instant, batch: &mut PacketBatch<'_>) {
        self.pipeline.count_taken(batch.len());
        self.note_living();
        let mut surroundings = Surroundings {
            forwarder: &mut self.forwarder,
            peers: &self.replication.peers,
            held: Some(&mut self.held),
            hold_max: self.replication.hold_first_reply,
            site: self.site.as_deref_mut(),
        };
        self.pipeline.handle_steered(now, batch, &mut surroundings);
        self.take_path_frames(now);
        self.replicate_changes(now);
        self.note_first_packet(now);
        self.release_fragments(now);
    }

    /// The next frame for another worker. To be polled after every call that handles packets or time, until there is none.
    pub fn poll_handed_over(&mut self) -> Option<HandedFrame> {
        self.pipeline.poll_handed_over()
    }

    /// The next letter, and to whom. To be polled, and to be carried, before the packets leave that were handled last: then
    /// no reply overtakes the word of where it belongs.
    pub fn poll_letter(&mut self) -> Option<(WorkerId, Letter)> {
        if self.place().is_alone() {
            return None;
        }
        while let Some((to, redirect)) = self.pipeline.poll_redirect() {
            self.others.push(to, Letter::Redirect(redirect));
        }
        while let Some((to, announcement)) = self.pipeline.poll_announcement() {
            self.others.push(to, Letter::Announcement(announcement));
        }
        while let Some(learning) = self.forwarder.poll_learning() {
            self.tell_all(&Letter::Neighbour(learning));
        }
        if self.place().leads() {
            self.tell_standing();
        } else {
            self.report();
        }
        self.others.letters.pop_front()
    }

    /// A letter from another worker.
    pub fn handle_letter(&mut self, now: Instant, from: WorkerId, letter: Letter) {
        match letter {
            Letter::Standing(standing) => self.follow(now, &standing),
            Letter::Report(report) => self.note_report(now, from, report),
            Letter::Neighbour(learning) => self.forwarder.handle_learning(now, &learning),
            Letter::Redirect(redirect) => {
                self.pipeline.handle_redirect(from, redirect);
                self.release_waiting(now);
                self.replicate_changes(now);
            }
            Letter::Announcement(announcement) => {
                self.pipeline.handle_announcement(now, &announcement);
                self.replicate_changes(now);
            }
        }
    }

    /// Letters that found no room.
    #[must_use]
    pub const fn letters_lost(&self) -> u64 {
        self.others.letters_lost + self.pipeline.announcements_lost()
    }

    fn tell_all(&mut self, letter: &Letter) {
        for to in self.place().others() {
            self.others.push(to, letter.clone());
        }
    }

    fn tell_standing(&mut self) {
        let roles = &self.roles;
        let groups = || roles.groups().map(|group| (roles.state(group), roles.term(group)));
        let peers = || {
            self.replication.peers.iter().map(|peer| PeerStanding {
                id: peer.id,
                is_up: peer.is_up(),
                down_since: peer.orphaned_at,
                refused: peer.refused,
            })
        };
        let is_told = self
            .others
            .told
            .as_ref()
            .is_some_and(|told| told.groups.iter().copied().eq(groups()) && told.peers.iter().copied().eq(peers()));
        let is_leaving = self.is_leaving() || self.roles.is_outranked();
        let is_forwarded_elsewhere = self.announcing.is_forwarded_elsewhere;
        let flags = |told: &Standing| (told.is_leaving, told.is_forwarded_elsewhere);
        let flags_are_told = |told: &Standing| flags(told) == (is_leaving, is_forwarded_elsewhere);
        if !is_told || !self.others.told.as_ref().is_some_and(flags_are_told) {
            let (groups, peers) = (groups().collect(), peers().collect());
            let standing = Standing { groups, peers, is_leaving, is_forwarded_elsewhere };
            self.others.told = Some(standing.clone());
            self.tell_all(&Letter::Standing(standing));
        }
    }

    fn report(&mut self) {
        let is_synchronised = self.replication.peers.iter().all(super::Peer::is_synchronised_or_away);
        let has_replicated_all = self.is_leaving() && self.has_replicated_all();
        let report = Report { usable_terms: self.others.usable_terms, is_synchronised, has_replicated_all };
        if self.others.reported != Some(report) {
            self.others.reported = Some(report);
            self.others.push(WorkerId::LEAD, Letter::Report(report));
        }
    }

    /// What the lead says counts here.
    fn follow(&mut self, now: Instant, standing: &Standing) {
        self.follow_leaving(now, standing.is_leaving);
        self.note_forwarded_elsewhere(now, standing.is_forwarded_elsewhere);
        let is_anyone_lost = self.follow_peers(standing);
        let before = self.roles.forwarded();
        for (group, (state, term)) in self.roles.groups().zip(&standing.groups) {
            self.roles.follow(now, group, *state, *term);
            self.others.usable_terms[group.index()] = if state.forwards() { *term } else { 0 };
        }
        let after = self.roles.forwarded();
        self.forwarder.set_held(now, after);
        if !after.without(before).is_empty() {
            self.awaiting_first_packet = Some(self.pipeline.counters().taken_over);
            self.begin_recovery(now, true);
        } else if is_anyone_lost {
            self.begin_recovery(now, false);
        }
        if !before.without(after).is_empty() {
            self.replicate_deferred(now);
        }
        if before != after {
            self.judge_as_roles_are();
            self.stand_by(now);
        }
    }

    /// What the lead says of the peers counts here. Whether one of them is lost that was not before.
    fn follow_peers(&mut self, standing: &Standing) -> bool {
        let mut is_anyone_lost = false;
        for told in &standing.peers {
            let Some(peer) = self.replication.peers.get_mut(told.id) else { continue };
            is_anyone_lost |= told.down_since.is_some() && peer.orphaned_at != told.down_since;
            (peer.is_said_up, peer.orphaned_at, peer.refused) = (told.is_up, told.down_since, told.refused);
        }
        is_anyone_lost
    }

    fn note_report(&mut self, now: Instant, from: WorkerId, report: Report) {
        let Some(known) = from.index().checked_sub(1).and_then(|index| self.others.reports.get_mut(index)) else {
            return;
        };
        *known = report;
        self.go_on_when_usable(now);
        self.handle_session_events(now);
    }

    /// A take-over of the group began. True if other workers must make their connections usable first.
    pub(super) fn awaits_others(&mut self, now: Instant, group: GroupId, term: u64) -> bool {
        let must_wait = self.others.reports.iter().any(|report| report.usable_terms[group.index()] != term);
        self.others.awaited[group.index()] = must_wait.then_some((term, now + USABLE_WITHIN));
        must_wait
    }

    /// The take-over of the group that waits for the others is off.
    pub(super) const fn await_nobody(&mut self, group: GroupId) {
        self.others.awaited[group.index()] = None;
    }

    /// Goes on with the take-overs for which all workers are ready, or one has been waited for too long.
    pub(super) fn go_on_when_usable(&mut self, now: Instant) {
        for group in self.roles.groups() {
            let Some((term, until)) = self.others.awaited[group.index()] else { continue };
            let is_late = |report: &Report| report.usable_terms[group.index()] != term;
            let late = (1..).map(WorkerId).zip(&self.others.reports).find(|(_, report)| is_late(report));
            if let Some((worker, _)) = late {
                if now < until {
                    continue;
                }
                self.events.push(now, NodeEvent::WorkerLate(worker));
            }
            self.others.awaited[group.index()] = None;
            self.roles.handle_state_usable(now, group);
            self.handle_role_events(now);
        }
    }

    /// A heartbeat says how its sender divides its packets. Nodes that do it otherwise would look for copies where there are
    /// none: replication with them is refused until they do it alike.
    pub(super) fn note_division(&mut self, now: Instant, from: NodeId, theirs: Division) {
        let ours = Division::of(self.place().steering);
        let Some(peer) = self.replication.peers.get_mut(from) else { return };
        let refused = (!ours.goes_with(theirs)).then_some(theirs);
        if peer.refused != refused {
            peer.refused = refused;
            if refused.is_some() {
                self.events
                    .push(now, NodeEvent::WorkersDiffer { peer: from, theirs: theirs.workers, ours: ours.workers });
            }
        }
    }
}
