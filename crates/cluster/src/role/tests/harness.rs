//! Nodes that receive each other's heartbeats over links that can fail, a millisecond a step.

use super::*;

pub(super) const DETECTION: Duration = Duration::from_millis(100);
pub(super) const STATE_USABLE_AFTER: Duration = Duration::from_millis(2);
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(20);
/// How long two connected nodes may both hold the addresses: a heartbeat that crosses another.
pub(super) const BOTH_ACTIVE_MS_MAX: u64 = 5;

pub(super) struct Cluster {
    pub(super) now_ms: u64,
    pub(super) nodes: Vec<Node>,
    /// Milliseconds since when a pair of nodes is connected, or is not.
    pub(super) links: Vec<Link>,
}

pub(super) struct Node {
    pub(super) config: Config,
    pub(super) automaton: Option<RoleAutomaton>,
    pub(super) usable_at: Option<Instant>,
    pub(super) holds: bool,
    pub(super) events: Vec<Event>,
}

pub(super) struct Link {
    pub(super) ends: [usize; 2],
    pub(super) is_partitioned: bool,
    pub(super) changed_ms: u64,
    pub(super) detected_up: bool,
    pub(super) both_active_ms: u64,
}

impl Cluster {
    pub(super) fn new(configs: Vec<Config>) -> Self {
        let count = configs.len();
        let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| [one, other]));
        let link = |ends| Link { ends, is_partitioned: false, changed_ms: 0, detected_up: false, both_active_ms: 0 };
        let mut cluster = Self {
            now_ms: 0,
            links: pairs.map(link).collect(),
            nodes: configs
                .into_iter()
                .map(|config| Node { config, automaton: None, usable_at: None, holds: false, events: Vec::new() })
                .collect(),
        };
        for node in 0..count {
            cluster.start(node);
        }
        cluster
    }

    pub(super) fn of(count: u8, adjust: impl Fn(&mut Config)) -> Self {
        let config = |node| {
            let peers = (0..count).filter(|peer| *peer != node).map(NodeId).collect();
            let mut config = Config::new(NodeId(node), peers);
            adjust(&mut config);
            config
        };
        Self::new((0..count).map(config).collect())
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    pub(super) fn start(&mut self, node: usize) {
        let now = self.now();
        let mut automaton = RoleAutomaton::new(self.nodes[node].config.clone(), now);
        automaton.set_synchronised(now, true);
        self.nodes[node].automaton = Some(automaton);
        self.touch_links(node);
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].automaton = None;
        self.nodes[node].holds = false;
        self.nodes[node].usable_at = None;
        self.touch_links(node);
    }

    pub(super) fn touch_links(&mut self, node: usize) {
        let now_ms = self.now_ms;
        for link in self.links.iter_mut().filter(|link| link.ends.contains(&node)) {
            link.changed_ms = now_ms;
        }
    }

    pub(super) fn set_partitioned(&mut self, is_partitioned: bool) {
        let now_ms = self.now_ms;
        for link in self.links.iter_mut().filter(|link| link.is_partitioned != is_partitioned) {
            (link.is_partitioned, link.changed_ms) = (is_partitioned, now_ms);
        }
    }

    pub(super) fn automaton(&mut self, node: usize) -> &mut RoleAutomaton {
        self.nodes[node].automaton.as_mut().expect("the node runs")
    }

    pub(super) fn state(&self, node: usize) -> Option<State> {
        self.nodes[node].automaton.as_ref().map(RoleAutomaton::state)
    }

    pub(super) fn active_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].holds).collect()
    }

    pub(super) fn step(&mut self) {
        self.now_ms += 1;
        let now = self.now();
        self.detect_failures(now);
        for node in 0..self.nodes.len() {
            let Some(automaton) = self.nodes[node].automaton.as_mut() else { continue };
            automaton.handle_timeout(now);
            self.do_duties(now, node);
            if let Some(heartbeat) = self.automaton(node).poll_heartbeat(now) {
                self.deliver(now, node, &heartbeat);
            }
            let next = self.automaton(node).poll_timeout();
            assert!(next.is_none_or(|next| next > now), "nothing is left to do now");
        }
        for link in &mut self.links {
            let both = link.ends.iter().all(|end| self.nodes[*end].holds);
            // What was said during a cut is said again with the next heartbeat, an interval later.
            let whole_for = now.saturating_since(Instant::from_millis(link.changed_ms));
            let is_connected = !link.is_partitioned && link.detected_up && whole_for > HEARTBEAT_INTERVAL;
            let handover = link.ends.iter().any(|end| {
                self.nodes[*end].automaton.as_ref().is_some_and(|automaton| automaton.state() == State::Leaving)
            });
            link.both_active_ms = if both && is_connected && !handover { link.both_active_ms + 1 } else { 0 };
            assert!(link.both_active_ms <= BOTH_ACTIVE_MS_MAX, "nodes {:?} are both active", link.ends);
        }
    }

    pub(super) fn detect_failures(&mut self, now: Instant) {
        for link in &mut self.links {
            let [one, other] = link.ends;
            let alive = [one, other].map(|end| self.nodes[end].automaton.is_some());
            let works = !link.is_partitioned && alive == [true; 2];
            let since = now.saturating_since(Instant::from_millis(link.changed_ms));
            if link.detected_up == works || (!works && since < DETECTION) {
                continue;
            }
            link.detected_up = works;
            for (end, peer) in [(one, other), (other, one)] {
                let Some(automaton) = self.nodes[end].automaton.as_mut() else { continue };
                let peer = NodeId(u8::try_from(peer).unwrap());
                let result =
                    if works { automaton.handle_peer_up(now, peer) } else { automaton.handle_peer_down(now, peer) };
                result.unwrap();
            }
        }
    }

    pub(super) fn deliver(&mut self, now: Instant, from: usize, heartbeat: &Heartbeat) {
        for link in self.links.iter().filter(|link| !link.is_partitioned && link.ends.contains(&from)) {
            let to = link.ends[usize::from(link.ends[0] == from)];
            if let Some(automaton) = self.nodes[to].automaton.as_mut() {
                automaton.handle_heartbeat(now, heartbeat).unwrap();
            }
        }
    }

    pub(super) fn do_duties(&mut self, now: Instant, node: usize) {
        let node = &mut self.nodes[node];
        let automaton = node.automaton.as_mut().unwrap();
        if node.usable_at.is_some_and(|at| at <= now) {
            node.usable_at = None;
            automaton.handle_state_usable(now);
        }
        while let Some(event) = automaton.poll_event() {
            node.events.push(event);
            match event {
                Event::BecomeActive { .. } => node.usable_at = Some(now + STATE_USABLE_AFTER),
                Event::AnnounceAddresses { .. } => node.holds = true,
                Event::BecomeStandby => (node.holds, node.usable_at) = (false, None),
            }
        }
        assert_eq!(node.holds, automaton.state().holds_addresses(), "events and state agree");
    }

    pub(super) fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.step();
        }
    }

    pub(super) fn run_until(&mut self, limit_ms: u64, condition: impl Fn(&Self) -> bool) -> u64 {
        let start_ms = self.now_ms;
        while !condition(self) {
            assert!(self.now_ms < start_ms + limit_ms, "the condition did not come true within {limit_ms} ms");
            self.step();
        }
        self.now_ms - start_ms
    }
}
