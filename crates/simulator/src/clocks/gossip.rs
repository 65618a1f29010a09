//! Gateways that find each other by gossip, start with whatever their clocks show, end, and move to other addresses.
//!
//! Guarantee: when all run undisturbed, each knows the others by the records that they publish.

use std::time::Duration;

use flow::Instant;
use membership::gossip::{Gossip, GossipEvent};
use membership::{MemberState, Settings};

use super::gateway::{self, COUNT, FORGET_AFTER, Gateway};
use super::wall::WallClocks;
use crate::Sabotage;
use crate::random::Random;
use crate::report::Outcome;
use crate::scenario::Scenario;

const TURN: Duration = Duration::from_millis(50);
/// When nothing has been disturbed for so long, all is as it should be: members that have gone are found dead after some seconds.
const SETTLED_AFTER: Duration = Duration::from_secs(60);
/// Ends and starts in thousand turns of a gateway.
const DISTURBED_PER_MILLE: u32 = 6;
/// Datagrams in a thousand that are lost.
const LOST_PER_MILLE: u32 = 50;
/// A gateway that leaves goes on for so long.
const LEAVE_FOR: Duration = Duration::from_millis(300);
const PORT: u16 = 3785;

const _: () = assert!(SETTLED_AFTER.as_nanos() > FORGET_AFTER.as_nanos());

/// A gateway that runs.
struct Gossiping {
    gateway: Gateway,
    gossip: Gossip,
    ends_at: Option<Instant>,
}

struct Cluster<'a> {
    clocks: &'a WallClocks,
    random: Random,
    sabotage: Option<Sabotage>,
    now: Instant,
    gateways: [Option<Gossiping>; COUNT],
    /// The numbers of the hosts that the gateways run on.
    hosts: [u8; COUNT],
    starts: u64,
}

pub(super) fn check(scenario: &Scenario, clocks: &WallClocks, sabotage: Option<Sabotage>, outcome: &mut Outcome) {
    let mut cluster = Cluster {
        clocks,
        random: Random::new(scenario.seed ^ 0x6055),
        sabotage,
        now: Instant::ZERO,
        gateways: [const { None }; COUNT],
        hosts: [0, 1, 2],
        starts: 0,
    };
    while cluster.now < scenario.calm_at {
        (0..COUNT).for_each(|id| cluster.disturb(id));
        cluster.turn();
    }
    let settled_at = cluster.now + SETTLED_AFTER;
    while cluster.now < settled_at {
        // Those that are leaving end first.
        (0..COUNT).for_each(|id| cluster.start(id));
        cluster.turn();
    }
    outcome.clocks.gateways_started += cluster.starts;
    gateway::verify(cluster.gateways(), false, cluster.now, outcome);
}

impl Cluster<'_> {
    fn disturb(&mut self, id: usize) {
        if !self.random.chance(DISTURBED_PER_MILLE) {
            return;
        }
        let unix_time = self.clocks.unix_time(id, self.now);
        match &mut self.gateways[id] {
            None => self.start(id),
            Some(_) if self.random.chance(300) => self.gateways[id] = None,
            Some(gateway) => {
                gateway.gateway.own.set_state(unix_time, MemberState::Left);
                gateway.ends_at = Some(self.now + LEAVE_FOR);
            }
        }
    }

    fn start(&mut self, id: usize) {
        if self.gateways[id].is_some() {
            return;
        }
        self.starts += 1;
        if self.random.chance(250) {
            self.hosts[id] += COUNT as u8;
        }
        let gateway = Gateway::start(id, self.hosts[id], self.clocks.unix_time(id, self.now), self.sabotage);
        let others = self.hosts.iter().filter(|host| **host != self.hosts[id]);
        let seeds = others.map(|host| gateway::end(*host, PORT)).collect();
        let (address, own) = (gateway::end(self.hosts[id], PORT), gateway.own.member().clone());
        let gossip = Gossip::new(address, own, Settings::default(), seeds, self.random.next(), self.now);
        self.gateways[id] = Some(Gossiping { gateway, gossip, ends_at: None });
    }

    fn gateways(&self) -> [Option<&Gateway>; COUNT] {
        self.gateways.each_ref().map(|it| it.as_ref().map(|it| &it.gateway))
    }

    fn turn(&mut self) {
        self.now = self.now + TURN;
        let now = self.now;
        let mut datagrams = Vec::new();
        for id in 0..COUNT {
            let is_up = gateway::is_up_for(self.gateways(), id);
            let Some(gateway) = &mut self.gateways[id] else { continue };
            gateway.turn(now, is_up);
            datagrams.extend(std::iter::from_fn(|| gateway.gossip.poll_transmit()));
            if gateway.ends_at.is_some_and(|at| at <= now) {
                self.gateways[id] = None;
            }
        }
        for (to, datagram) in datagrams {
            let at = self.hosts.iter().position(|host| gateway::end(*host, PORT) == to);
            let receiver = at.and_then(|id| self.gateways[id].as_mut());
            if let Some(receiver) = receiver.filter(|_| !self.random.chance(LOST_PER_MILLE)) {
                receiver.gossip.handle_datagram(now, &datagram).expect("all are of one release");
            }
        }
    }
}

impl Gossiping {
    fn turn(&mut self, now: Instant, is_up: [bool; COUNT]) {
        self.gossip.set_own(now, self.gateway.own.member().clone(), Settings::default());
        if self.gossip.poll_timeout() <= now {
            self.gossip.handle_timeout(now);
        }
        let gateway = &mut self.gateway;
        while let Some(event) = self.gossip.poll_event() {
            match event {
                GossipEvent::Recorded(member) if member.id == gateway.own.member().id => {
                    gateway.handle_own_record(now, &member);
                }
                // That a record is refused would be reported.
                GossipEvent::Recorded(member) => {
                    let _ = gateway.membership.handle_record(now, member);
                }
                GossipEvent::Absent(id) => gateway.membership.handle_absence(now, id),
                GossipEvent::Renewed(version) => gateway.own.raise_version(version),
                GossipEvent::Settings(_) => {}
            }
        }
        gateway.apply_changes(now, is_up);
    }
}
