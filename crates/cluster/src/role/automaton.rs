//! The rules of the choice, around the table of transitions.

mod deciding;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId};

use super::state::{Duty, Input, State, transition};
use super::{GroupConfig, Heartbeat};

/// Peers that a node can have.
pub const PEERS_MAX: usize = 255;
/// How long a node that took the addresses knowing nothing keeps them although another holds them rightfully, until that one
/// has received the connections which began meanwhile.
pub(super) const YIELDS_WITHIN: Duration = Duration::from_millis(200);
/// Events that wait to be polled; when there are more, the oldest goes.
pub const EVENTS_PENDING_MAX: usize = 16;

/// How a node takes part in the choice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// Its priority: the highest wins.
    pub priority: u8,
    /// The other nodes.
    pub peers: Vec<NodeId>,
    /// Whether to take the addresses from a working node of lower priority, once synchronised.
    pub preempt: bool,
    /// How long to listen after the start: about three times the failure detector's detection time.
    pub startup_hold: Duration,
    /// How often to send heartbeats to the peers.
    pub heartbeat_interval: Duration,
    /// How long a peer's last heartbeat counts, and how long the best node is waited for.
    pub heartbeat_timeout: Duration,
    /// How long a leaving node holds the addresses when no node takes them.
    pub handover_limit: Duration,
    /// How long a node must reach more than the active one before it takes the addresses from it: two nodes seldom notice the
    /// failure of something that both use in the same millisecond.
    pub reach_hold: Duration,
    /// One run of this node's process, random: heartbeats carry it, so that late ones of an earlier run are known.
    pub incarnation: u32,
    /// Said in heartbeats: a number that nodes have in common if they are configured alike.
    pub configuration: Option<u64>,
    /// The groups of shared addresses, of which each is chosen for by itself, with its own priority and preemption. Empty:
    /// there is one, with those above.
    pub groups: Vec<GroupConfig>,
}

impl Config {
    /// A node with priority 100, no preemption, and times that go with a detection time of 100 ms.
    #[must_use]
    pub const fn new(node: NodeId, peers: Vec<NodeId>) -> Self {
        Self {
            node,
            priority: 100,
            peers,
            preempt: false,
            startup_hold: Duration::from_millis(300),
            heartbeat_interval: Duration::from_millis(20),
            heartbeat_timeout: Duration::from_millis(200),
            handover_limit: Duration::from_secs(5),
            reach_hold: Duration::from_millis(100),
            incarnation: 0,
            configuration: None,
            groups: Vec::new(),
        }
    }
}

/// What the automaton's owner is to do, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Make the state of the connections usable, then call [`RoleAutomaton::handle_state_usable`].
    BecomeActive {
        /// The number of this take-over: one more than the highest received.
        term: u64,
    },
    /// Hold the shared addresses from now on, and announce them to the neighbours.
    AnnounceAddresses {
        /// The number of the take-over.
        term: u64,
    },
    /// Stop answering for the shared addresses and forwarding.
    BecomeStandby,
}

/// When a peer is said to be down, this node sends so many times as many heartbeats for a while. The peer's own failure detection
/// expires in this time if the peer still receives, as a detector that is not up sends once a second (RFC 5880 section 6.8.3): on a link
/// that loses a third of what it carries, some of the heartbeats must arrive in the few tens of milliseconds that are left.
const HASTENED_BY: u32 = 4;

/// A heartbeat or a message of the failure detector names a node that is not a peer: a mistake of configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("node {} is not among this node's peers; make the lists of nodes equal on all nodes", .0.0)]
pub struct UnknownPeer(pub NodeId);

#[derive(Clone, Debug)]
struct Peer {
    node: NodeId,
    /// Since when the failure detector reports it up.
    up_since: Option<Instant>,
    /// Its last heartbeat since it was last reported down.
    last_heartbeat: Option<(Instant, Heartbeat)>,
    /// No heartbeat that counts has been received since this node last paused.
    is_awaited: bool,
}

impl Peer {
    /// One of which nothing was received.
    const fn unknown(node: NodeId) -> Self {
        Self { node, up_since: None, last_heartbeat: None, is_awaited: false }
    }
}

/// Chooses, together with those of the other nodes, who holds the shared addresses.
#[derive(Clone, Debug)]
pub struct RoleAutomaton {
    config: Config,
    pub(super) state: State,
    /// When the state was entered.
    pub(super) since: Instant,
    synchronised: bool,
    /// The tunnel's caches are still being copied to this node: it does not preempt for its priority.
    is_filling: bool,
    /// The weights of all that is tracked and not reached, added up.
    unreached: u16,
    /// Must not take the addresses over.
    passive: bool,
    /// After a pause: until then, peers that have not answered since are waited for.
    answers_awaited_until: Option<Instant>,
    /// Peers have acknowledged all that they need of this node's connections.
    has_replicated: bool,
    /// Since when another active node has outranked this one.
    outranked_since: Option<Instant>,
    /// Since when this node could serve and reaches more than each node that holds the addresses.
    outreaches_since: Option<Instant>,
    pub(super) term: u64,
    /// With which number this node holds the addresses, or is about to: that of its take-over, or 0 as long as it took them
    /// without knowledge, and no node is standby to it.
    claim: u64,
    /// A heartbeat of some peer was received since the start.
    has_received: bool,
    /// This node received all connections at some time.
    informed: bool,
    /// Another worker decides, and passes the state.
    pub(super) follows: bool,
    peers: Vec<Peer>,
    /// Since when no peer with a current heartbeat holds the addresses.
    vacant_since: Option<Instant>,
    /// When the rules were last applied.
    decided_at: Instant,
    heartbeat_at: Instant,
    /// Until then heartbeats follow each other faster.
    hastened_until: Instant,
    events: VecDeque<Event>,
}

impl RoleAutomaton {
    /// An automaton that begins to listen now.
    ///
    /// # Panics
    /// With more than [`PEERS_MAX`] peers, or with the node among its own peers.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        assert!(config.peers.len() <= PEERS_MAX && !config.peers.contains(&config.node));
        let peers = config.peers.iter().map(|&node| Peer::unknown(node)).collect();
        Self {
            config,
            state: State::Init,
            since: now,
            synchronised: false,
            is_filling: false,
            unreached: 0,
            passive: false,
            answers_awaited_until: None,
            has_replicated: true,
            outranked_since: None,
            outreaches_since: None,
            term: 0,
            claim: 0,
            has_received: false,
            informed: true,
            follows: false,
            peers,
            vacant_since: None,
            decided_at: now,
            heartbeat_at: now,
            hastened_until: now,
            events: VecDeque::new(),
        }
    }

    /// The failure detector reports the peer up.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn handle_peer_up(&mut self, now: Instant, node: NodeId) -> Result<(), UnknownPeer> {
        self.peer_mut(node)?.up_since = Some(now);
        self.heartbeat_at = now;
        self.decide(now);
        Ok(())
    }

    /// The failure detector reports the peer down. Its former heartbeats count no more.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn handle_peer_down(&mut self, now: Instant, node: NodeId) -> Result<(), UnknownPeer> {
        let peer = self.peer_mut(node)?;
        (peer.up_since, peer.last_heartbeat, peer.is_awaited) = (None, None, false);
        // The peer may receive this node's packets all the same, and receives no failure detection of it for a while.
        self.hastened_until = now + self.config.heartbeat_timeout;
        self.heartbeat_at = now;
        self.decide(now);
        Ok(())
    }

    /// The failure detector reports that the peer no longer receives this node's packets. The peer lives, as its packet shows,
    /// and its heartbeat goes on counting for its time: a node whose packets do not arrive takes nothing from it.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn handle_peer_deaf(&mut self, now: Instant, node: NodeId) -> Result<(), UnknownPeer> {
        self.peer_mut(node)?.up_since = None;
        self.decide(now);
        Ok(())
    }

    /// A heartbeat of a peer.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn handle_heartbeat(&mut self, now: Instant, heartbeat: &Heartbeat) -> Result<(), UnknownPeer> {
        let peer = self.peer_mut(heartbeat.node)?;
        let held = peer.last_heartbeat.is_some_and(|(_, before)| before.state.holds_addresses());
        peer.last_heartbeat = Some((now, *heartbeat));
        peer.is_awaited = false;
        let took_over_unheard = heartbeat.term > self.term;
        self.term = self.term.max(heartbeat.term);
        self.has_received = true;
        let follows = matches!(heartbeat.state, State::Init | State::Standby);
        if self.state == State::Active && self.claim == 0 && follows {
            // Somebody follows: from here on a node that takes the addresses knowing nothing claims less.
            self.claim = self.term;
            // The follower must know that number before the link can be cut: it is to take over with a higher one.
            self.heartbeat_at = now;
        }
        self.decide(now);
        let yielded = !heartbeat.state.holds_addresses() && (held || took_over_unheard);
        if yielded && self.state == State::Active {
            // Its announcements may have come after this node's: the neighbours must receive this node's again.
            self.push_event(Event::AnnounceAddresses { term: self.term });
        }
        Ok(())
    }

    /// This node did not run for `absence`, which is noted before anything else. What waits to be read is as old as the pause.
    /// So this node takes nothing until each peer has answered (see [`Roles::admits`](super::Roles::admits)), the failure
    /// detector reports it down, or a time is over; the heartbeats from before the pause count as long. All of that once until
    /// a heartbeat counts: a node that pauses again and again still notices that nothing arrives. Returns until when peers are
    /// waited for; `None`: the pause is too short to matter.
    pub fn handle_absence(&mut self, now: Instant, absence: Duration) -> Option<Instant> {
        if absence * 2 < self.config.heartbeat_timeout {
            return None;
        }
        if self.peers.iter().any(|peer| !peer.is_awaited) {
            self.answers_awaited_until = Some(now + self.config.heartbeat_timeout);
            // The peers can answer only what they receive.
            self.heartbeat_at = now;
        }
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_awaited) {
            peer.is_awaited = true;
            if let Some((at, _)) = &mut peer.last_heartbeat {
                *at = now;
            }
        }
        self.answers_awaited_until
    }

    /// Whether this node has a replica of every connection that it is to back up.
    pub fn set_synchronised(&mut self, now: Instant, synchronised: bool) {
        if self.synchronised != synchronised {
            self.synchronised = synchronised;
            self.heartbeat_at = now;
            self.decide(now);
        }
    }

    /// Whether this node is still being given copies beside the connections, of the tunnel's caches: so long it takes the addresses
    /// from no healthy node for its priority. In all else it changes nothing.
    pub fn set_filling(&mut self, now: Instant, is_filling: bool) {
        if self.is_filling != is_filling {
            self.is_filling = is_filling;
            self.decide(now);
        }
    }

    /// The weights of all tracked ports and next hops that this node does not reach, added up. Peers receive it at once.
    pub fn set_unreached(&mut self, now: Instant, unreached: u16) {
        if self.unreached != unreached {
            self.unreached = unreached;
            self.heartbeat_at = now;
            self.decide(now);
        }
    }

    /// The weights set by [`RoleAutomaton::set_unreached`].
    #[must_use]
    pub const fn unreached(&self) -> u16 {
        self.unreached
    }

    /// Whether this node must not take the addresses over, whatever its peers' heartbeats. It keeps addresses that it holds.
    pub fn set_passive(&mut self, now: Instant, passive: bool) {
        if self.passive != passive {
            self.passive = passive;
            self.heartbeat_at = now;
            self.decide(now);
        }
    }

    /// Whether this node could take the addresses from a node that serves without losing a connection.
    #[must_use]
    pub const fn could_serve(&self) -> bool {
        self.synchronised && self.informed && !self.passive
    }

    /// Whether it must not.
    #[must_use]
    pub const fn is_passive(&self) -> bool {
        self.passive
    }

    /// Whether this node received all connections at some time since it started, or has no peer that could send them. Unlike
    /// [`RoleAutomaton::set_synchronised`], that does not change when a peer goes away.
    pub fn set_informed(&mut self, now: Instant, informed: bool) {
        if self.informed != informed {
            self.informed = informed;
            self.decide(now);
        }
    }

    /// Whether this node holds the addresses but was away for so long that a peer may have taken them: until that peer has
    /// answered, or the wait for its answer is over.
    #[must_use]
    pub fn is_unconfirmed(&self, now: Instant) -> bool {
        let may_have_taken = |peer: &Peer| peer.is_awaited && peer.last_heartbeat.is_some();
        self.state == State::Active
            && self.answers_awaited_until.is_some_and(|until| now < until)
            && self.peers.iter().any(may_have_taken)
    }

    /// Whether peers have acknowledged all that they need of this node's connections. Asked for while [`Self::is_outranked`].
    pub fn set_replicated(&mut self, now: Instant, has_replicated: bool) {
        if self.has_replicated != has_replicated {
            self.has_replicated = has_replicated;
            self.decide(now);
        }
    }

    /// Whether this node holds the addresses and is about to yield them to another that holds them rightfully.
    #[must_use]
    pub const fn is_outranked(&self) -> bool {
        self.outranked_since.is_some()
    }

    /// Whether a heartbeat of the peer was received less than `age` ago.
    #[must_use]
    pub fn was_received_within(&self, now: Instant, node: NodeId, age: Duration) -> bool {
        let last_heartbeat = self.peers.iter().find(|peer| peer.node == node).and_then(|peer| peer.last_heartbeat);
        last_heartbeat.is_some_and(|(at, _)| now < at + age)
    }

    /// What [`Event::BecomeActive`] asked for is done. Without effect when the node has meanwhile given way.
    pub fn handle_state_usable(&mut self, now: Instant) {
        self.apply(now, Input::StateUsable);
        self.decide(now);
    }

    /// An operator wants the node to hand over and take no part any more.
    pub fn leave(&mut self, now: Instant) {
        self.apply(now, Input::Leave);
        self.decide(now);
    }

    /// An operator wants the node back.
    pub fn rejoin(&mut self, now: Instant) {
        self.apply(now, Input::Rejoin);
        self.decide(now);
    }

    /// Another configuration replaces that of the start, but for the node and its peers: see [`RoleAutomaton::set_peers`]. A heartbeat follows at
    /// once.
    pub fn reconfigure(&mut self, now: Instant, config: Config) {
        let (node, peers) = (self.config.node, core::mem::take(&mut self.config.peers));
        self.config = Config { node, peers, ..config };
        self.heartbeat_at = now;
        self.decide(now);
    }

    /// The peers from now on. What is known of those that stay, stays.
    ///
    /// # Panics
    /// With more than [`PEERS_MAX`] peers, or with the node among its own peers.
    pub fn set_peers(&mut self, now: Instant, peers: &[NodeId]) {
        assert!(peers.len() <= PEERS_MAX && !peers.contains(&self.config.node));
        self.peers.retain(|peer| peers.contains(&peer.node));
        let added: Vec<_> = peers.iter().filter(|id| self.peers.iter().all(|peer| peer.node != **id)).collect();
        self.peers.extend(added.into_iter().map(|id| Peer::unknown(*id)));
        self.config.peers = peers.to_vec();
        self.heartbeat_at = now;
        self.decide(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.decide(now);
    }

    /// When [`RoleAutomaton::handle_timeout`] or [`RoleAutomaton::poll_heartbeat`] next has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.follows {
            return None;
        }
        let state_limit = match self.state {
            State::Init => Some(self.since + self.config.startup_hold),
            State::Leaving => Some(self.since + self.config.handover_limit),
            State::Standby => self.standby_deadline(),
            State::Active => self.yields_until(),
            State::TakingOver | State::Left => None,
        };
        let heartbeat = (!self.peers.is_empty()).then_some(self.heartbeat_at);
        state_limit.into_iter().chain(heartbeat).min()
    }

    /// The heartbeat that is due to every peer now.
    pub fn poll_heartbeat(&mut self, now: Instant) -> Option<Heartbeat> {
        self.is_heartbeat_due(now).then(|| self.next_heartbeat(now))
    }

    /// Whether [`RoleAutomaton::poll_heartbeat`] has one now.
    pub(super) fn is_heartbeat_due(&self, now: Instant) -> bool {
        !self.peers.is_empty() && self.heartbeat_at <= now
    }

    /// A heartbeat, due or not: the next one is due an interval later.
    pub(super) fn next_heartbeat(&mut self, now: Instant) -> Heartbeat {
        let hastened_by = if now < self.hastened_until { HASTENED_BY } else { 1 };
        self.heartbeat_at = now + self.config.heartbeat_interval / hastened_by;
        self.own_heartbeat()
    }

    /// What is to be done.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// This node's state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The number of the latest take-over that this node knows of.
    #[must_use]
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// The number that nodes have in common if they are configured alike.
    #[must_use]
    pub const fn configuration(&self) -> Option<u64> {
        self.config.configuration
    }

    /// What a peer last said, while it counts.
    #[must_use]
    pub fn peer(&self, now: Instant, node: NodeId) -> Option<Heartbeat> {
        self.peers.iter().find(|peer| peer.node == node).and_then(|peer| self.fresh(now, peer))
    }

    fn peer_mut(&mut self, node: NodeId) -> Result<&mut Peer, UnknownPeer> {
        self.peers.iter_mut().find(|peer| peer.node == node).ok_or(UnknownPeer(node))
    }

    /// This node's priority.
    pub(super) const fn priority(&self) -> u8 {
        self.config.priority
    }

    const fn own_heartbeat(&self) -> Heartbeat {
        Heartbeat {
            node: self.config.node,
            state: self.state,
            priority: self.config.priority,
            synchronised: self.synchronised,
            // A node that holds the addresses names its take-over.
            term: if matches!(self.state, State::TakingOver | State::Active | State::Leaving) {
                self.claim
            } else {
                self.term
            },
            configuration: self.config.configuration,
            unreached: self.unreached,
            passive: self.passive,
        }
    }

    fn apply(&mut self, now: Instant, input: Input) {
        if self.follows {
            return;
        }
        let Some((next, duty)) = transition(self.state, input) else { return };
        self.state = next;
        self.since = now;
        self.heartbeat_at = now;
        match duty {
            Duty::Nothing => {}
            Duty::MakeStateUsable => {
                self.term += 1;
                self.claim = if self.has_received && self.informed { self.term } else { 0 };
                self.push_event(Event::BecomeActive { term: self.term });
            }
            Duty::Announce => self.push_event(Event::AnnounceAddresses { term: self.term }),
            Duty::StandBy => self.push_event(Event::BecomeStandby),
        }
    }

    fn push_event(&mut self, event: Event) {
        if self.events.len() == EVENTS_PENDING_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
