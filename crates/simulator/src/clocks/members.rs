//! Gateways that publish their records in a store like etcd, start with whatever their clocks show, end, and move to other addresses. An operator
//! writes settings, some of them with a version that no other exceeds, and takes them back.
//!
//! Guarantee: when all run undisturbed, each knows the others by the records that they publish, and all have the operator's settings.

use std::collections::BTreeMap;
use std::time::Duration;

use flow::Instant;
use membership::{Member, MemberState, Settings, VERSION_END};

use super::gateway::{self, COUNT, FORGET_AFTER, Gateway};
use super::wall::WallClocks;
use crate::Sabotage;
use crate::random::Random;
use crate::report::{Outcome, Problem};
use crate::scenario::Scenario;

const TURN: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_secs(5);
/// When nothing has been disturbed for so long, all is as it should be.
const SETTLED_AFTER: Duration = Duration::from_secs(40);
/// Ends and starts in thousand turns of a gateway.
const DISTURBED_PER_MILLE: u32 = 60;
/// Settings in thousand turns.
const SETTINGS_PER_MILLE: u32 = 20;

const _: () = assert!(SETTLED_AFTER.as_nanos() > FORGET_AFTER.as_nanos() + LEASE.as_nanos());

/// What etcd has.
#[derive(Default)]
struct Store {
    /// Records, and the ends of their leases.
    records: BTreeMap<u8, (Member, Instant)>,
    settings: Option<Settings>,
}

struct Cluster<'a> {
    clocks: &'a WallClocks,
    random: Random,
    sabotage: Option<Sabotage>,
    now: Instant,
    store: Store,
    gateways: [Option<Gateway>; COUNT],
    /// The numbers of the hosts that the gateways run on.
    hosts: [u8; COUNT],
    /// What they keep in their state files.
    files: [Vec<Member>; COUNT],
    starts: u64,
}

pub(super) fn check(scenario: &Scenario, clocks: &WallClocks, sabotage: Option<Sabotage>, outcome: &mut Outcome) {
    let mut cluster = Cluster {
        clocks,
        random: Random::new(scenario.seed ^ 0x3e3_be75),
        sabotage,
        now: Instant::ZERO,
        store: Store::default(),
        gateways: [const { None }; COUNT],
        hosts: [0, 1, 2],
        files: Default::default(),
        starts: 0,
    };
    while cluster.now < scenario.calm_at {
        cluster.disturb();
        cluster.turn();
    }
    for id in 0..COUNT {
        cluster.start(id);
    }
    cluster.write_settings(Settings { version: 7, backups: Some(2), ..Settings::default() });
    let settled_at = cluster.now + SETTLED_AFTER;
    while cluster.now < settled_at {
        cluster.turn();
    }
    outcome.clocks.gateways_started += cluster.starts;
    cluster.verify(outcome);
}

impl Cluster<'_> {
    /// What happens to gateways and settings before a turn.
    fn disturb(&mut self) {
        for id in 0..COUNT {
            if !self.random.chance(DISTURBED_PER_MILLE) {
                continue;
            }
            let unix_time = self.clocks.unix_time(id, self.now);
            match &mut self.gateways[id] {
                None => self.start(id),
                Some(_) if self.random.chance(300) => self.gateways[id] = None,
                Some(gateway) => {
                    let state = self.random.pick(&[MemberState::Left, MemberState::Left, MemberState::Draining]);
                    gateway.own.set_state(unix_time, state);
                    self.turn_of(id);
                    if state == MemberState::Left {
                        self.gateways[id] = None;
                    }
                }
            }
        }
        if self.random.chance(SETTINGS_PER_MILLE) {
            let version = self.random.pick(&[1, 1_000_000, VERSION_END - 1]);
            self.store.settings = Some(Settings { version, backups: Some(1), ..Settings::default() });
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
        let mut gateway = Gateway::start(id, self.hosts[id], self.clocks.unix_time(id, self.now), self.sabotage);
        for known in &self.files[id] {
            gateway.membership.restore(self.now, known.clone()).expect("its number is one of the cluster");
        }
        self.gateways[id] = Some(gateway);
    }

    /// The operator deletes the settings, sees that the gateways know it, and writes others.
    fn write_settings(&mut self, settings: Settings) {
        self.store.settings = None;
        self.turn();
        self.store.settings = Some(settings);
    }

    fn turn(&mut self) {
        self.now = self.now + TURN;
        let now = self.now;
        self.store.records.retain(|_, (_, ends_at)| *ends_at > now);
        for id in 0..COUNT {
            self.turn_of(id);
        }
    }

    /// A gateway reads the list, and writes its own record where that is not what the store has.
    fn turn_of(&mut self, id: usize) {
        let now = self.now;
        let is_up = gateway::is_up_for(self.gateways.each_ref().map(Option::as_ref), id);
        let Some(gateway) = &mut self.gateways[id] else { return };
        let mut others: Vec<Member> = self.store.records.values().map(|(member, _)| member.clone()).collect();
        let recorded = others.iter().position(|it| it.id == gateway.own.member().id).map(|at| others.remove(at));
        if let Some(recorded) = &recorded {
            gateway.handle_own_record(now, recorded);
        }
        gateway.membership.handle_all_records(now, others, |_| {});
        gateway.handle_settings(now, self.store.settings);
        gateway.apply_changes(now, is_up);
        self.files[id] = gateway.membership.peers().map(|(member, _)| member.clone()).collect();
        if !gateway.own.has_twin() {
            self.store.records.insert(id as u8, (gateway.own.member().clone(), now + LEASE));
        }
    }

    fn verify(&self, outcome: &mut Outcome) {
        gateway::verify(self.gateways.each_ref().map(Option::as_ref), true, self.now, outcome);
        for gateway in self.gateways.iter().flatten() {
            let settings = gateway.membership.settings();
            if Some(settings) != self.store.settings {
                outcome.problem(self.now, Problem::SettingsLost, format!("{settings} are in force"));
            }
        }
    }
}
