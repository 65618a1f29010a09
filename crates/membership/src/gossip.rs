//! Gossip as a source of records: \[SWIM\], as a value.
//!
//! Members probe each other in turn, and carry records with the probes. A member's identity is its record, so that a record that changes is
//! spread as a new identity at the same address. `foca` has the protocol; this module has the encoding, the timers, and the seeds.
//!
//! A member that SWIM declares dead is only reported as absent. Failure detection decides whether it stays a peer.
//!
//! A node that is known by a newer record than the one it sends, as its clock was ahead once, is sent the newer one: it supersedes it.

mod codec;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::num::{NonZeroU8, NonZeroUsize};
use core::time::Duration;

use flow::random::SplitMix64;
use flow::{Instant, NodeId};
use foca::{Foca, NoCustomBroadcast, OwnedNotification, PeriodicParams, Runtime, Timer};

use crate::record::{MEMBERS_MAX, Member, Settings, version_above};

use codec::RecordCodec;

/// The largest datagram, without what authenticates it.
pub const DATAGRAM_BYTES_MAX: usize = 1400;
/// Datagrams that wait to be polled; when there are more, the oldest is dropped.
const DATAGRAMS_WAITING_MAX: usize = 256;
/// Timers that run at a time: some for each member. When there are more, the latest is dropped.
const TIMERS_MAX: usize = 16 * MEMBERS_MAX;
/// Events that wait to be polled; when there are more, the oldest is dropped.
const EVENTS_WAITING_MAX: usize = 4 * MEMBERS_MAX;
/// This node announces itself to seeds so often while no member answers ...
const SEEDS_INTERVAL_ALONE: Duration = Duration::from_secs(1);
/// ... and so often otherwise, as far as they are no members: two clusters that came into being during a partition find each other.
const SEEDS_INTERVAL: Duration = Duration::from_secs(10);

/// What gossip reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GossipEvent {
    /// A member's record. With this node's number it is one that others know, and newer than this node's or of another address.
    Recorded(Member),
    /// Gossip no longer has a live record of the member.
    Absent(NodeId),
    /// Settings that a member publishes.
    Settings(Settings),
    /// This node was declared dead, and is not: its record has this version from now on.
    Renewed(u64),
}

/// Why a datagram was not taken. It came from a node that has the cluster's key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a datagram of gossip cannot be used: {0}")]
pub struct GossipError(alloc::string::String);

/// A member as SWIM identifies it: by its address, and by the version of its record.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Identity {
    address: SocketAddr,
    /// `None`: a seed, of which only the address is known.
    record: Option<(Member, Settings)>,
}

impl Identity {
    fn version(&self) -> u64 {
        self.record.as_ref().map_or(0, |(member, _)| member.version)
    }

    fn id(&self) -> Option<NodeId> {
        self.record.as_ref().map(|(member, _)| member.id)
    }
}

impl foca::Identity for Identity {
    type Addr = SocketAddr;

    fn renew(&self) -> Option<Self> {
        let (member, settings) = self.record.clone()?;
        let member = Member { version: version_above(member.version), ..member };
        Some(Self { address: self.address, record: Some((member, settings)) })
    }

    fn addr(&self) -> SocketAddr {
        self.address
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        match (&self.record, &adversary.record) {
            (Some((ours, settings)), Some((theirs, others))) => {
                (ours.version, ours.id.0, settings) > (theirs.version, theirs.id.0, others)
            }
            (ours, _) => ours.is_some(),
        }
    }
}

/// A random number generator of the kind that foca takes.
struct Generator(SplitMix64);

impl rand::RngCore for Generator {
    fn next_u32(&mut self) -> u32 {
        (self.0.next() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.next().to_be_bytes()[..chunk.len()]);
        }
    }
}

/// What foca wants done.
#[derive(Default)]
struct Outputs {
    now: Instant,
    datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    timers: Vec<(Instant, Timer<Identity>)>,
    notifications: VecDeque<OwnedNotification<Identity>>,
}

impl Runtime<Identity> for &mut Outputs {
    fn notify(&mut self, notification: foca::Notification<'_, Identity>) {
        if self.notifications.len() == EVENTS_WAITING_MAX {
            self.notifications.pop_front();
        }
        self.notifications.push_back(notification.to_owned());
    }

    fn send_to(&mut self, to: Identity, data: &[u8]) {
        if self.datagrams.len() == DATAGRAMS_WAITING_MAX {
            self.datagrams.pop_front();
        }
        self.datagrams.push_back((to.address, data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Identity>, after: Duration) {
        if self.timers.len() < TIMERS_MAX {
            self.timers.push((self.now + after, event));
        }
    }
}

/// Gossip of one node with others.
pub struct Gossip {
    foca: Foca<Identity, RecordCodec, Generator, NoCustomBroadcast>,
    outputs: Outputs,
    seeds: Vec<SocketAddr>,
    /// When this node announces itself to the seeds next.
    seeds_at: Instant,
    events: VecDeque<GossipEvent>,
}

impl Gossip {
    /// Gossip of the node with this record, which others reach at `address`. It begins with `seeds`, which need not answer. `seed`: at
    /// random.
    #[must_use]
    pub fn new(
        address: SocketAddr,
        own: Member,
        settings: Settings,
        seeds: Vec<SocketAddr>,
        seed: u64,
        now: Instant,
    ) -> Self {
        let identity = Identity { address, record: Some((own, settings)) };
        let generator = Generator(SplitMix64::new(seed));
        let foca = Foca::new(identity, config(), generator, RecordCodec);
        let outputs = Outputs { now, ..Outputs::default() };
        Self { foca, outputs, seeds, seeds_at: now, events: VecDeque::new() }
    }

    /// This node's record, or the settings that it knows, have changed.
    pub fn set_own(&mut self, now: Instant, own: Member, settings: Settings) {
        self.outputs.now = now;
        let identity = Identity { record: Some((own, settings)), ..self.foca.identity().clone() };
        if *self.foca.identity() != identity {
            // It fails if the record does not fit a datagram, which its limits exclude.
            let _ = self.foca.change_identity(identity, &mut self.outputs);
            self.announce_to_members();
        }
    }

    /// An authentic datagram.
    ///
    /// # Errors
    /// It cannot be used; nothing has changed.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) -> Result<(), GossipError> {
        self.outputs.now = now;
        if let Some(newer) = codec::superseding(datagram) {
            let newer = newer.map_err(|error| GossipError(alloc::format!("{error}")))?;
            return self.handle_superseding(newer);
        }
        let result = self.foca.handle_data(datagram, &mut self.outputs);
        self.collect();
        match result {
            Ok(()) => {
                self.answer_older(datagram);
                Ok(())
            }
            // This node is among its own seeds under another address.
            Err(foca::Error::DataFromOurselves) => Ok(()),
            Err(error) => Err(GossipError(alloc::format!("{error}"))),
        }
    }

    /// A member knows a record with this node's number that is newer than the one this node sent.
    fn handle_superseding(&mut self, newer: Identity) -> Result<(), GossipError> {
        let own = self.foca.identity().id();
        if let Some((member, _)) = newer.record.filter(|(member, _)| Some(member.id) == own) {
            self.push(GossipEvent::Recorded(member));
        }
        Ok(())
    }

    /// The sender of a datagram is sent the newest record that is known of its number, if it sent an older one.
    fn answer_older(&mut self, datagram: &[u8]) {
        let Some(sender) = codec::sender(datagram) else { return };
        let known = self.foca.iter_membership_state().map(foca::Member::id);
        let of_sender = known.filter(|known| known.id() == sender.id() && known.version() > sender.version());
        let newest = of_sender.max_by_key(|known| known.version());
        if let Some(answer) = newest.and_then(codec::supersede) {
            (&mut self.outputs).send_to(sender, &answer);
        }
    }

    /// Does what is due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.outputs.now = now;
        let mut due = Vec::new();
        self.outputs.timers.retain(|(at, timer)| {
            let is_due = *at <= now;
            if is_due {
                due.push((*at, timer.clone()));
            }
            !is_due
        });
        // In their order; of one time, in the order that foca requires.
        due.sort_by(|(at, timer), (other_at, other)| at.cmp(other_at).then_with(|| timer.cmp(other)));
        for (_, timer) in due {
            // A timer of a probe that is over by now is an error without consequence.
            let _ = self.foca.handle_timer(timer, &mut self.outputs);
        }
        if self.seeds_at <= now {
            self.announce_to_seeds();
            let is_alone = self.members() == 0;
            self.seeds_at = now + if is_alone { SEEDS_INTERVAL_ALONE } else { SEEDS_INTERVAL };
        }
        self.collect();
    }

    /// When [`Gossip::handle_timeout`] has something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.outputs.timers.iter().map(|(at, _)| *at).fold(self.seeds_at, Instant::min)
    }

    /// The next datagram, and where it goes.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.outputs.datagrams.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<GossipEvent> {
        self.events.pop_front()
    }

    /// Other members that gossip holds to be alive.
    #[must_use]
    pub fn members(&self) -> usize {
        self.foca.iter_members().count()
    }

    fn announce_to_seeds(&mut self) {
        let known: Vec<SocketAddr> = self.foca.iter_members().map(|member| member.id().address).collect();
        let seeds: Vec<SocketAddr> = self.seeds.iter().filter(|seed| !known.contains(seed)).copied().collect();
        for address in seeds {
            let _ = self.foca.announce(Identity { address, record: None }, &mut self.outputs);
        }
    }

    /// Has all members know a new record at once: there are few of them.
    fn announce_to_members(&mut self) {
        let known: Vec<Identity> = self.foca.iter_members().map(|member| member.id().clone()).collect();
        for member in known {
            let _ = self.foca.announce(member, &mut self.outputs);
        }
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(notification) = self.outputs.notifications.pop_front() {
            match notification {
                OwnedNotification::MemberUp(identity) | OwnedNotification::Rename(_, identity) => {
                    self.report(&identity)
                }
                OwnedNotification::MemberDown(identity) => {
                    let id = identity.id();
                    let is_elsewhere = self.foca.iter_members().any(|member| member.id().id() == id);
                    if let Some(id) = id.filter(|_| !is_elsewhere) {
                        self.push(GossipEvent::Absent(id));
                    }
                }
                OwnedNotification::Rejoin(identity) => self.push(GossipEvent::Renewed(identity.version())),
                OwnedNotification::Active | OwnedNotification::Idle | OwnedNotification::Defunct => {}
            }
        }
    }

    fn report(&mut self, identity: &Identity) {
        let Some((member, settings)) = identity.record.clone() else { return };
        let is_alive = self.foca.iter_members().any(|alive| alive.id() == identity);
        if *self.foca.identity() != *identity && is_alive {
            self.push(GossipEvent::Recorded(member));
            self.push(GossipEvent::Settings(settings));
        }
    }

    fn push(&mut self, event: GossipEvent) {
        if self.events.len() == EVENTS_WAITING_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

/// Times for nodes of one site: a member that crashed is found absent after some seconds.
fn config() -> foca::Config {
    const fn at_least_one(number: usize) -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(number - 1)
    }
    let every = |seconds, members| {
        Some(PeriodicParams { frequency: Duration::from_secs(seconds), num_members: at_least_one(members) })
    };
    foca::Config {
        probe_period: Duration::from_secs(1),
        probe_rtt: Duration::from_millis(400),
        num_indirect_probes: at_least_one(3),
        max_transmissions: NonZeroU8::MIN.saturating_add(9),
        suspect_to_down_after: Duration::from_secs(4),
        remove_down_after: Duration::from_secs(3600),
        max_packet_size: at_least_one(DATAGRAM_BYTES_MAX),
        notify_down_members: true,
        periodic_announce: every(10, 1),
        periodic_announce_to_down_members: every(15, 2),
        periodic_gossip: Some(PeriodicParams { frequency: Duration::from_millis(200), num_members: at_least_one(3) }),
    }
}

#[cfg(test)]
mod tests;
