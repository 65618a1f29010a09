//! Two sites with two nodes each: a tunnel between the nodes that hold the sites' addresses, and mirrors at those that stand by.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use flow::Segmentation;
use flow::random::SplitMix64;
use proptest::prelude::*;
use redundancy::FlowPosition;

use super::*;
use crate::Tunnel;
use crate::{Outgoing, TunnelCounters};

const HEADER_BYTES: usize = 40;
const SEGMENT_BYTES: usize = 1448;
const SITE_LATENCY: Duration = Duration::from_millis(25);
const LAN_LATENCY: Duration = Duration::from_micros(200);

/// What the two networks lose, in thousandths, and how mirrors are fed.
#[derive(Clone, Copy, Debug)]
struct Setting {
    site_path_lost: u64,
    lan_lost: u64,
    mirror: Option<MirrorConfig>,
}

const FAIR: Setting =
    Setting { site_path_lost: 0, lan_lost: 0, mirror: Some(MirrorConfig { bits_per_second: 200_000_000 }) };
const WITHOUT: Setting = Setting { mirror: None, ..FAIR };

enum Parcel {
    /// From the node that is the end to the other site's.
    Sites { to: usize, bytes: Vec<u8> },
    /// From a node of the site to its peer.
    Lan { site: usize, to: usize, bytes: Vec<u8> },
}

struct World {
    now: Instant,
    random: SplitMix64,
    setting: Setting,
    sites: [[Tunnel; 2]; 2],
    /// Which node of each site is the tunnel's end.
    active: [usize; 2],
    in_flight: BTreeMap<(Instant, u64), Parcel>,
    parcels: u64,
    sent: [Vec<Vec<u8>>; 2],
    arrived: [usize; 2],
    lan_bytes: u64,
    flows: u64,
}

fn config(setting: &Setting) -> TunnelConfig {
    TunnelConfig { cache_bytes: 1 << 20, mirror: setting.mirror, ..TunnelConfig::default() }
}

impl World {
    fn new(seed: u64, setting: Setting) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut node = || Tunnel::new(config(&setting), random.next());
        let sites = [[node(), node()], [node(), node()]];
        let mut world = Self {
            now: Instant::from_millis(1),
            random,
            setting,
            sites,
            active: [0, 0],
            in_flight: BTreeMap::new(),
            parcels: 0,
            sent: [Vec::new(), Vec::new()],
            arrived: [0, 0],
            lan_bytes: 0,
            flows: 0,
        };
        for site in &mut world.sites {
            site[0].set_active(world.now, true);
        }
        world.run_until_open();
        world
    }

    fn end(&self, site: usize) -> &Tunnel {
        &self.sites[site][self.active[site]]
    }

    fn standby(&self, site: usize) -> &Tunnel {
        &self.sites[site][1 - self.active[site]]
    }

    fn mirror(&self, site: usize) -> MirrorStatus {
        *self.standby(site).status(self.now).mirror.expect("it mirrors")
    }

    fn counters(&self, site: usize) -> TunnelCounters {
        self.end(site).status(self.now).counters
    }

    fn is_open(&self) -> bool {
        (0..2).all(|site| self.end(site).bypass(self.now).is_none())
    }

    fn run_until_open(&mut self) {
        for _ in 0..6000 {
            if self.is_open() {
                // What each end holds has reached the other.
                return self.run(120);
            }
            self.run(1);
        }
        panic!("the tunnel does not open: {:?}", self.setting);
    }

    /// Until nothing is lacking in the mirrors, of what was sent so far.
    fn run_until_mirrored(&mut self) {
        // Where the streams stand has reached the mirrors.
        self.run(1000);
        for _ in 0..600 {
            self.run(100);
            let is_whole = |[held, of_use]: [u64; 2]| held == of_use;
            let mirrors = [self.mirror(0), self.mirror(1)];
            if mirrors.iter().all(|it| it.leader.is_some() && is_whole(it.sent_bytes) && is_whole(it.received_bytes)) {
                return;
            }
        }
        panic!("mirrors do not become whole: {:?} {:?}", self.mirror(0), self.mirror(1));
    }

    /// The node that is the site's end dies, and the one that stood by is the end. Another one stands by in its place.
    fn fail_over(&mut self, site: usize) {
        let dead = self.active[site];
        self.sites[site][dead] = Tunnel::new(config(&self.setting), self.random.next());
        self.active[site] = 1 - dead;
        self.sites[site][1 - dead].set_active(self.now, true);
    }

    /// The two nodes exchange their parts, both alive.
    fn hand_over(&mut self, site: usize) {
        let former = self.active[site];
        self.sites[site][former].set_active(self.now, false);
        self.active[site] = 1 - former;
        self.sites[site][1 - former].set_active(self.now, true);
    }

    fn carry(&mut self, parcel: Parcel) {
        let (lost, latency) = match &parcel {
            Parcel::Sites { .. } => (self.setting.site_path_lost, SITE_LATENCY),
            Parcel::Lan { bytes, .. } => {
                self.lan_bytes += bytes.len() as u64;
                (self.setting.lan_lost, LAN_LATENCY)
            }
        };
        if self.random.next() % 1000 >= lost {
            self.parcels += 1;
            self.in_flight.insert((self.now + latency, self.parcels), parcel);
        }
    }

    fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now = self.now + Duration::from_millis(1);
            while let Some(entry) = self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now) {
                match entry.remove() {
                    Parcel::Sites { to, bytes } => {
                        let _ = self.sites[to][self.active[to]].handle_datagram(self.now, &bytes);
                    }
                    Parcel::Lan { site, to, bytes } => {
                        let from = NodeId(1 - to as u8);
                        self.sites[site][to].handle_mirror(self.now, from, &bytes).expect("it was written here");
                    }
                }
            }
            for (site, node) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                self.serve(site, node);
            }
        }
    }

    fn serve(&mut self, site: usize, node: usize) {
        let (now, mut out) = (self.now, Vec::new());
        // As a node does: while something is due at once it is done, and that has an end.
        let mut turns = 0;
        while self.sites[site][node].poll_timeout().is_some_and(|at| at <= now) && turns < 4 {
            self.sites[site][node].handle_timeout(now);
            turns += 1;
        }
        while self.sites[site][node].poll_transmit(now, &mut out) {
            self.carry(Parcel::Sites { to: 1 - site, bytes: out.clone() });
        }
        while self.sites[site][node].poll_mirror(now, NodeId(1 - node as u8), &mut out) {
            self.carry(Parcel::Lan { site, to: 1 - node, bytes: out.clone() });
        }
        while let Some(packet) = self.sites[site][node].poll_packet() {
            let number = u64::from_be_bytes(*packet.bytes.first_chunk().expect("a whole packet")) as usize;
            assert_eq!(self.sent[1 - site][number], packet.bytes, "byte by byte");
            self.arrived[site] += 1;
        }
    }

    fn send(&mut self, from: usize, at: FlowPosition, payload: &[u8]) {
        let mut bytes = (self.sent[from].len() as u64).to_be_bytes().to_vec();
        bytes.resize(HEADER_BYTES, 0x45);
        bytes.extend_from_slice(payload);
        let end = &mut self.sites[from][self.active[from]];
        if end.admit(self.now, bytes.len()).is_ok() {
            self.sent[from].push(bytes.clone());
            let segmentation = Segmentation::default();
            let packet = Outgoing { bytes: &bytes, header_bytes: HEADER_BYTES, at: Some(at), segmentation };
            let _ = end.handle_packet(self.now, &packet);
        }
    }

    /// Sends an object as a connection of its own. Returns the share of its bytes that the codec saved.
    fn transfer(&mut self, from: usize, object: &[u8]) -> f64 {
        self.flows += 1;
        let flow = flow::random::mix(self.flows);
        self.send(from, FlowPosition { flow, sequence: 0 }, b"");
        let before = self.counters(from).encoder;
        for (place, segment) in object.chunks(SEGMENT_BYTES).enumerate() {
            self.send(from, FlowPosition { flow, sequence: (SEGMENT_BYTES * place) as u32 }, segment);
            self.run(1);
        }
        self.run(100);
        let after = self.counters(from).encoder;
        1.0 - (after.bytes_out - before.bytes_out) as f64 / (after.bytes_in - before.bytes_in).max(1) as f64
    }

    fn object(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.random.next() as u8).collect()
    }
}

#[test]
fn whichever_end_moves_what_was_saved_before_is_saved_after_it_and_without_a_mirror_it_is_not() {
    for site in 0..2 {
        let share = |setting| {
            let mut world = World::new(1 + site as u64, setting);
            let object = world.object(400_000);
            world.transfer(0, &object);
            let before = world.transfer(0, &object);
            world.fail_over(site);
            world.run_until_open();
            (before, world.transfer(0, &object), world)
        };
        let (before, after, world) = share(FAIR);
        assert!(before > 0.97 && after > 0.97, "site {site}: {before} before, {after} after");
        let counters = world.end(site).status(world.now).mirror.expect("it mirrors").counters;
        assert_eq!(counters.caches_taken_over, 2);
        let (before, after, _) = share(WITHOUT);
        assert!(before > 0.97 && after < 0.03, "site {site}: {before} before, {after} after");
    }
}

#[test]
fn a_mirror_costs_between_the_nodes_what_the_tunnel_costs_between_the_sites() {
    let mut world = World::new(3, FAIR);
    let object = world.object(400_000);
    world.transfer(0, &object);
    let before = (world.lan_bytes, world.counters(0).bytes_out, world.now);
    for _ in 0..5 {
        world.transfer(0, &object);
    }
    let seconds = world.now.saturating_since(before.2).as_secs_f64();
    // There is a mirror at either site, each with keep-alives and two streams.
    let [lan, between_sites] = [world.lan_bytes - before.0, world.counters(0).bytes_out - before.1];
    let beside = (seconds * 2.0 * 4000.0) as u64;
    assert!(
        lan < between_sites + beside,
        "{lan} bytes between the nodes, {between_sites} between the sites in {seconds} s"
    );
}

#[test]
fn nothing_is_sent_without_followers() {
    let mut world = World::new(4, FAIR);
    for site in 0..2 {
        let standby = 1 - world.active[site];
        world.sites[site][standby] = Tunnel::new(config(&WITHOUT), 9);
    }
    world.run(3000);
    assert_eq!(world.end(0).status(world.now).mirror.expect("it would").followers, 0);
    let before = world.lan_bytes;
    let object = world.object(100_000);
    world.transfer(0, &object);
    assert_eq!(world.lan_bytes, before);
}

#[test]
fn a_node_that_comes_late_is_given_what_it_lacks_within_a_share_of_the_rate() {
    let mut world = World::new(5, Setting { mirror: Some(MirrorConfig { bits_per_second: 8_000_000 }), ..FAIR });
    let object = world.object(600_000);
    world.transfer(0, &object);
    // The other site's mirror may still be behind.
    world.run_until_mirrored();
    let standby = 1 - world.active[0];
    world.sites[0][standby] = Tunnel::new(config(&world.setting), 77);
    let before = world.lan_bytes;
    world.run(2000);
    let rate = (world.lan_bytes - before) as f64 / 2.0;
    // A quarter of a megabyte a second, and the messages beside it.
    assert!(rate > 200_000.0 && rate < 320_000.0, "{rate} bytes a second");
    world.run_until_mirrored();
    world.fail_over(0);
    world.run_until_open();
    let after = world.transfer(0, &object);
    assert!(after > 0.97, "{after}");
}

#[test]
fn a_mirror_that_cannot_keep_up_lacks_something_and_stays_exact() {
    let mut world = World::new(6, Setting { mirror: Some(MirrorConfig { bits_per_second: 2_000_000 }), ..FAIR });
    let object = world.object(700_000);
    world.transfer(0, &object);
    let counters = world.end(0).status(world.now).mirror.expect("it mirrors").counters;
    assert!(counters.blocks_left_out > 0, "new content at 11 Mbit/s: {counters:?}");
    world.fail_over(0);
    world.run_until_open();
    let after = world.transfer(0, &object);
    assert!(after > 0.1 && after < 0.9, "a part of it: {after}");
    assert!(world.transfer(0, &object) > 0.97);
}

#[test]
fn mirrors_become_whole_though_the_network_between_the_nodes_loses() {
    let mut world = World::new(7, Setting { lan_lost: 100, site_path_lost: 10, ..FAIR });
    let object = world.object(500_000);
    for from in [0, 1] {
        world.transfer(from, &object);
        world.transfer(from, &object[..200_000]);
    }
    world.run_until_mirrored();
    world.setting.site_path_lost = 0;
    for site in [0, 1] {
        world.fail_over(site);
        world.run_until_open();
        for from in [0, 1] {
            let after = world.transfer(from, &object);
            assert!(after > 0.97, "from site {from} after site {site} moved: {after}");
        }
        world.run_until_mirrored();
    }
}

#[test]
fn caches_go_from_node_to_node_as_often_as_the_address_does() {
    let mut world = World::new(8, FAIR);
    let object = world.object(300_000);
    world.transfer(0, &object);
    world.transfer(1, &object);
    for turn in 0..6 {
        world.run_until_mirrored();
        if turn % 2 == 0 {
            world.hand_over(turn % 4 / 2)
        } else {
            world.fail_over(turn % 4 / 2)
        }
        world.run_until_open();
        for from in [0, 1] {
            let after = world.transfer(from, &object);
            assert!(after > 0.97, "turn {turn}, from site {from}: {after}");
        }
    }
}

#[test]
fn a_path_that_was_silent_for_long_costs_no_cache() {
    let mut world = World::new(9, WITHOUT);
    let object = world.object(300_000);
    world.transfer(0, &object);
    world.setting.site_path_lost = 1000;
    world.run(8000);
    assert!(!world.is_open());
    world.setting.site_path_lost = 0;
    world.run_until_open();
    let after = world.transfer(0, &object);
    assert!(after > 0.97, "{after}");
}

#[test]
fn a_mirror_with_a_smaller_cache_follows_nothing_and_takes_over_all_the_same() {
    let mut world = World::new(10, FAIR);
    let standby = 1 - world.active[0];
    let small = TunnelConfig { cache_bytes: 1 << 17, ..config(&FAIR) };
    world.sites[0][standby] = Tunnel::new(small, 5);
    let object = world.object(100_000);
    world.transfer(0, &object);
    assert_eq!(world.mirror(0).sent_bytes, [0, 0]);
    world.fail_over(0);
    world.run_until_open();
    world.transfer(0, &object);
    assert!(world.transfer(0, &object) > 0.97, "with the smaller of the two caches");
}

#[test]
fn a_status_has_the_share_of_the_caches_that_is_held() {
    let mut world = World::new(11, FAIR);
    let object = world.object(200_000);
    world.transfer(0, &object);
    world.run_until_mirrored();
    let [sender, receiver] = [world.mirror(0), world.mirror(1)];
    assert!(sender.sent_bytes[0] >= 200_000 && receiver.received_bytes[0] >= 200_000, "{sender:?} {receiver:?}");
    assert_eq!((sender.leader, sender.blocks_missed), (Some(NodeId(0)), 0));
    assert!(sender.counters.blocks_received > 130 && sender.memory_bytes > 2 << 20, "{sender:?}");
}

#[test]
fn a_status_shows_at_once_that_a_full_mirror_lacks_what_was_left_out() {
    let mut world = World::new(12, Setting { mirror: Some(MirrorConfig { bits_per_second: 4_000_000 }), ..FAIR });
    let filling = world.object(1_200_000);
    world.transfer(0, &filling);
    world.run_until_mirrored();
    let object = world.object(500_000);
    world.transfer(0, &object);
    assert!(world.end(0).status(world.now).mirror.expect("it mirrors").counters.blocks_left_out > 0);
    let [held, to_hold] = world.mirror(0).sent_bytes;
    assert!(to_hold - held > 100_000, "{held} of {to_hold} bytes");
    world.run_until_mirrored();
    world.fail_over(0);
    world.run_until_open();
    let after = world.transfer(0, &object);
    assert!(after > 0.97, "{after}");
}

#[test]
fn what_went_plain_last_survives_a_failover_of_both_ends_once_the_mirrors_are_whole() {
    let mut world = World::new(13, FAIR);
    // Less than a run of blocks without a number.
    let object = world.object(10_000);
    world.transfer(0, &object);
    world.run_until_mirrored();
    world.fail_over(0);
    world.fail_over(1);
    world.run_until_open();
    let after = world.transfer(0, &object);
    assert!(after > 0.95, "{after}");
}

/// Nodes of both sites die and change places while the networks lose, then the mirrors become whole, and both ends die at once.
/// Returns what the first transfer from either site saves then of an object that was sent before.
fn saved_after(seed: u64, lost: (u64, u64), slow: bool, troubles: &[(usize, usize)]) -> [f64; 2] {
    let bits_per_second = if slow { 3_000_000 } else { 200_000_000 };
    let mirror = Some(MirrorConfig { bits_per_second });
    let mut world = World::new(seed, Setting { site_path_lost: lost.0, lan_lost: lost.1, mirror });
    let object = world.object(200_000);
    for &(segments, trouble) in troubles {
        let from = segments % 2;
        let fresh = world.object(segments * 700);
        world.transfer(from, &fresh);
        world.transfer(from, &object[..segments * SEGMENT_BYTES]);
        match trouble {
            0 | 1 => world.fail_over(trouble),
            2 | 3 => world.hand_over(trouble - 2),
            4 => {
                world.fail_over(0);
                world.fail_over(1);
            }
            _ => world.run(400),
        }
        world.run(segments as u64 * 5);
    }
    (world.setting.site_path_lost, world.setting.lan_lost) = (0, 0);
    world.run(4000);
    world.run_until_open();
    world.transfer(0, &object);
    world.transfer(1, &object);
    world.run_until_mirrored();
    world.fail_over(0);
    world.fail_over(1);
    world.run_until_open();
    [0, 1].map(|from| world.transfer(from, &object))
}

#[test]
fn failovers_within_seconds_over_a_slow_link_that_loses_cost_nothing_once_the_mirrors_are_whole() {
    let troubles = [(107, 5), (85, 3), (103, 4), (10, 3), (91, 3)];
    let after = saved_after(2_635_769_341, (43, 278), true, &troubles);
    assert!(after.iter().all(|saved| *saved > 0.97), "{after:?}");
}

/// What befalls the nodes, after so many segments from either site.
fn troubles() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((1..120_usize, 0..6_usize), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes out is what went in (the world checks each packet), whichever nodes die and whatever is lost; and once
    /// the mirrors are whole again, the death of both ends at once costs nothing: the first transfer after it is saved.
    #[test]
    fn packets_stay_exact_whichever_nodes_die_and_when(
        seed in any::<u32>(),
        lost in (0..80_u64, 0..300_u64),
        slow in any::<bool>(),
        troubles in troubles(),
    ) {
        let after = saved_after(seed.into(), lost, slow, &troubles);
        prop_assert!(after.iter().all(|saved| *saved > 0.97), "{:?}", after);
    }
}
