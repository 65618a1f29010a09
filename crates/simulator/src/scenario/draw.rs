//! Draws faults at random: their start, duration and target.

use super::{Capacity, Channels, Dialect, Episode, Family, Fault, FaultSet, Step, Who};
use crate::random::Random;

/// The maximum number of episodes in a run, without additional cut links.
const EPISODES_MAX: u64 = 3;
/// The time between two episodes: enough for a restarted node to resynchronise.
const PAUSE_MS: (u64, u64) = (3800, 6000);
/// The maximum number of up and down times of a flapping link.
const FLAPS_MAX: u64 = 60;
/// The distances that wall clocks are set by, in seconds: from one to a month.
const WALL_CLOCK_STEPS_S: [(u64, u64); 4] = [(1, 59), (60, 3_599), (3_600, 86_399), (86_400, 30 * 86_400)];
/// The maximum number of times that a wall clock is set, after the beginning.
const WALL_CLOCK_STEPS_MAX: u64 = 3;
/// The inside hosts come first.
const HOSTS: u64 = 4;

/// The faults of a run, ordered by start.
pub(super) fn episodes(random: &mut Random, set: FaultSet) -> Vec<Episode> {
    let mut episodes = Vec::new();
    let mut at_ms = random.between(1500, 4500);
    for _ in 0..random.between(1, EPISODES_MAX) {
        let family = pick(random, set);
        let episode = Episode { family, at_ms, steps: steps(random, family) };
        // Faults may overlap, but never in the default set, where each failure must be survived.
        let overlaps = set != FaultSet::DEFAULT && random.chance(150);
        at_ms = if overlaps { at_ms + random.between(0, 1500) } else { episode.ends_at_ms() + draw(random, PAUSE_MS) };
        episodes.push(episode);
    }
    if set.contains(Family::HostLink) && random.chance(300) {
        let at_ms = random.between(1500, 6000);
        episodes.push(Episode { family: Family::HostLink, at_ms, steps: steps(random, Family::HostLink) });
    }
    episodes.sort_by_key(|episode| episode.at_ms);
    episodes
}

/// The errors of the nodes' wall clocks at the beginning, and what they are set by until `until_ms`.
pub(super) fn wall_clocks(random: &mut Random, until_ms: u64) -> Episode {
    let mut steps = Vec::new();
    for who in [Who::Node0, Who::Node1] {
        let is_wrong = random.chance(600);
        let sets = random.between(u64::from(!is_wrong), WALL_CLOCK_STEPS_MAX);
        for number in u64::from(!is_wrong)..=sets {
            // The first one is the error at the beginning.
            let after_ms = if number == 0 { 0 } else { random.between(1, until_ms.max(1)) };
            let range = random.pick(&WALL_CLOCK_STEPS_S);
            let by_s = draw(random, range) as i64;
            let by_s = if random.chance(500) { by_s } else { -by_s };
            steps.push(step(after_ms, Fault::WallClock { who, by_s }));
        }
    }
    Episode { family: Family::WallClock, at_ms: 0, steps }
}

fn pick(random: &mut Random, set: FaultSet) -> Family {
    // Only nodes that encrypt send updates over service paths, and they do only under faults that spare single channels.
    let spares_channels =
        set.iter().all(|family| FaultSet::DEFAULT.contains(family) || family == Family::ReplicationLink);
    let families = || set.iter().filter(|family| spares_channels || *family != Family::ReplicationLink);
    let mut ticket = random.between(1, families().map(Family::weight).sum::<u64>().max(1));
    families()
        .find(|family| {
            let is_drawn = ticket <= family.weight();
            ticket = ticket.saturating_sub(family.weight());
            is_drawn
        })
        .unwrap_or(Family::Kill)
}

const fn draw(random: &mut Random, (low, high): (u64, u64)) -> u64 {
    random.between(low, high)
}

const fn step(after_ms: u64, fault: Fault) -> Step {
    Step { after_ms, fault }
}

fn one_node(random: &mut Random) -> Who {
    random.pick(&[Who::Node0, Who::Node1])
}

fn steps(random: &mut Random, family: Family) -> Vec<Step> {
    match family {
        Family::Kill => death(random, Who::Active),
        Family::KillStandby => death(random, Who::Standby),
        Family::Leave => {
            // It may restart at once, before the other node has seen a packet of most of the connections.
            vec![step(0, Fault::Leave(Who::Active)), step(random.between(10, 1500), Fault::Restart(Who::Both))]
        }
        Family::Partition => silence(Who::Both, Channels::ALL, random.between(50, 1500)),
        Family::HostLink => {
            let host = random.between(0, HOSTS - 1) as usize;
            let link = |is_down| Fault::HostLink { host, is_down };
            vec![step(0, link(true)), step(random.between(50, 800), link(false))]
        }
        Family::NodeLink => {
            let (who, which) = (random.pick(&[Who::Active, Who::Node0, Who::Node1]), random.between(1, 3));
            ports_down((who, which), false, random.between(50, 800))
        }
        Family::OneWay => {
            let channels = random.pick(&[Channels::ALL, Channels::REPLICATION_LINK]);
            silence(one_node(random), channels, random.between(100, 6000))
        }
        Family::Heartbeats => channel(random, Channels { heartbeats: true, ..Channels::default() }),
        Family::Replication => channel(random, Channels { replication: true, ..Channels::default() }),
        Family::Detection => channel(random, Channels { detection: true, ..Channels::default() }),
        Family::ControlPort => channel(random, Channels { detection: false, ..Channels::REPLICATION_LINK }),
        Family::Flapping => flapping(random),
        Family::SlowNode => {
            let (who, lag_ms) = (one_node(random), random.between(10, 500));
            let lag = |lag_ms| Fault::Lag { who, lag_ms };
            vec![step(0, lag(lag_ms)), step(random.between(1000, 6000), lag(0))]
        }
        Family::SlowLink => {
            let (bytes_per_second, queue_bytes) = (random.between(8_000, 100_000), random.between(4_000, 64_000));
            let rate = |bytes_per_second| Fault::Rate { bytes_per_second, queue_bytes };
            vec![step(0, rate(bytes_per_second)), step(random.between(1000, 6000), rate(0))]
        }
        Family::PauseActive => pause(random, Who::Active),
        Family::PauseStandby => pause(random, Who::Standby),
        Family::ClockJump => {
            let (short_ms, long_ms) = (random.between(100, 5_000), random.between(5_000, 600_000));
            let by_ms = random.pick(&[short_ms, long_ms]);
            vec![step(0, Fault::Jump { who: random.pick(&[Who::Active, Who::Standby]), by_ms })]
        }
        Family::ClockSpeed => {
            let speed = |who, per_mille| step(0, Fault::Speed { who, per_mille });
            vec![speed(Who::Node0, random.between(900, 1100)), speed(Who::Node1, random.between(900, 1100))]
        }
        Family::OtherVersion => other_version(random),
        Family::NewerPeer => newer_peer(random),
        Family::LongPartition => long_partition(random),
        Family::SmallMemory => small_memory(random),
        Family::NeededEmpty => needed_empty(random),
        Family::BothDead => both_dead(random),
        Family::RollingRestart => rolling_restart(random),
        Family::PortDown => {
            let who = random.pick(&[Who::Active, Who::Active, Who::Node0, Who::Node1, Who::Both]);
            let which = random.between(1, 3);
            ports_down((who, which), true, random.between(50, 8000))
        }
        Family::NextHop => {
            let (who, which) = (random.pick(&[Who::Active, Who::Active, Who::Standby]), random.between(1, 2));
            ports_down((who, which), false, random.between(1000, 8000))
        }
        Family::AddressClaim => {
            let host = random.between(0, HOSTS - 1) as usize;
            let every_ms = random.between(20, 1000);
            let claims = random.between(1, 8);
            (0..claims).map(|claim| step(claim * every_ms, Fault::Claim { host })).collect()
        }
        Family::ReplicationLink => replication_link(random),
        // Beside the others: see [`wall_clocks`], and the module `leaving`.
        Family::WallClock | Family::LeaveReturn => Vec::new(),
        Family::LeavePause => {
            let paused_at = random.between(0, 300);
            let over_at = paused_at + random.between(50, 7000);
            vec![
                step(0, Fault::Leave(Who::Active)),
                step(paused_at, Fault::Pause(one_node(random))),
                step(over_at, Fault::Continue(Who::Both)),
                step(over_at + random.between(10, 1500), Fault::Restart(Who::Both)),
            ]
        }
    }
}

/// The ports of a node lose their link for a time; bit 0 of `which`: the inside port, bit 1: the outside port.
fn ports_down((who, which): (Who, u64), carrier: bool, for_ms: u64) -> Vec<Step> {
    let links = |who, which, is_down| Fault::NodeLink {
        who,
        inside: which & 1 != 0,
        outside: which & 2 != 0,
        is_down,
        carrier,
    };
    vec![step(0, links(who, which, true)), step(for_ms, links(Who::Both, 3, false))]
}

fn death(random: &mut Random, who: Who) -> Vec<Step> {
    vec![step(0, Fault::Kill(who)), step(random.between(200, 2000), Fault::Restart(Who::Both))]
}

fn silence(who: Who, channels: Channels, for_ms: u64) -> Vec<Step> {
    let silenced = |who, is_lost| Fault::Silence { who, channels, is_lost };
    vec![step(0, silenced(who, true)), step(for_ms, silenced(Who::Both, false))]
}

/// One or two channels are lost while others pass. Half of the time a node dies meanwhile and restarts.
fn channel(random: &mut Random, channels: Channels) -> Vec<Step> {
    let who = random.pick(&[Who::Both, Who::Both, Who::Node0, Who::Node1]);
    let mut steps = silence(who, channels, random.between(1000, 8000));
    if random.chance(500) {
        let dead_at = random.between(300, 3000);
        steps.push(step(dead_at, Fault::Kill(random.pick(&[Who::Active, Who::Standby]))));
        steps.push(step(dead_at + random.between(200, 2000), Fault::Restart(Who::Both)));
    }
    steps
}

fn flapping(random: &mut Random) -> Vec<Step> {
    let period_ms = random.pick(&[20, 100, 500, 2000]);
    let who = random.pick(&[Who::Both, Who::Both, Who::Node0, Who::Node1]);
    let flaps = random.between(3, (8000 / period_ms).clamp(3, FLAPS_MAX));
    let channels = random.pick(&[Channels::ALL, Channels::REPLICATION_LINK]);
    let mut at_ms = 0;
    let mut steps = Vec::new();
    for _ in 0..flaps {
        for is_lost in [true, false] {
            steps.push(step(at_ms, Fault::Silence { who, channels, is_lost }));
            at_ms += random.between(period_ms / 4, period_ms);
        }
    }
    steps
}

/// From an unnoticeable pause to seconds.
fn pause(random: &mut Random, who: Who) -> Vec<Step> {
    let lengths =
        [random.between(20, 100), random.between(100, 500), random.between(500, 3000), random.between(3000, 8000)];
    vec![step(0, Fault::Pause(who)), step(random.pick(&lengths), Fault::Continue(Who::Both))]
}

/// A node is replaced by another release with another protocol version. Usually the other node follows, or the first
/// one is rolled back.
fn other_version(random: &mut Random) -> Vec<Step> {
    let who = one_node(random);
    let dialect = Dialect::Version(random.pick(&[0, 2, 3]));
    let mut steps = replaced(random, 0, who, dialect);
    if random.chance(700) {
        let at_ms = random.between(3000, 6000);
        steps.extend(replaced(random, at_ms, who, Dialect::Same));
    }
    steps
}

/// A node is replaced by a newer release, and both must take over.
fn newer_peer(random: &mut Random) -> Vec<Step> {
    let who = one_node(random);
    let mut steps = replaced(random, 0, who, Dialect::Newer);
    let needed_at = random.between(6000, 7000);
    steps.push(step(needed_at, Fault::Kill(Who::Active)));
    steps.push(step(needed_at + random.between(200, 2000), Fault::Restart(Who::Both)));
    steps
}

fn replaced(random: &mut Random, at_ms: u64, who: Who, dialect: Dialect) -> Vec<Step> {
    vec![
        step(at_ms, Fault::SetDialect { who, dialect }),
        step(at_ms, Fault::Kill(who)),
        step(at_ms + random.between(200, 1500), Fault::Restart(Who::Both)),
    ]
}

/// Either all datagrams between the nodes are lost, or only updates of connections.
fn long_partition(random: &mut Random) -> Vec<Step> {
    let replication = Channels { replication: true, ..Channels::default() };
    silence(
        Who::Both,
        random.pick(&[Channels::ALL, Channels::REPLICATION_LINK, replication]),
        random.between(60_000, 150_000),
    )
}

/// The replication link fails while the service paths are up. Connections begin, the active node fails, and its successor has to
/// resynchronise over the service paths.
fn replication_link(random: &mut Random) -> Vec<Step> {
    let dead_at = random.between(1500, 4000);
    let back_at = dead_at + random.between(200, 2000);
    let mut steps = silence(Who::Both, Channels::REPLICATION_LINK, back_at + random.between(0, 6000));
    steps.extend([step(dead_at, Fault::Kill(Who::Active)), step(back_at, Fault::Restart(Who::Both))]);
    steps
}

/// A node is replaced by one with less capacity, which must take over later.
fn small_memory(random: &mut Random) -> Vec<Step> {
    let who = one_node(random);
    let room = Capacity {
        connections_max: random.pick(&[12, 24, 48, 1024]),
        changes_queued_max: random.between(1, 16) as u32,
        deletions_max: random.between(1, 8) as u32,
        in_flight_messages_max: random.between(8, 64) as u16,
    };
    let needed_at = random.between(6000, 7000);
    vec![
        step(0, Fault::Room { who, room }),
        step(0, Fault::Kill(who)),
        step(random.between(200, 1500), Fault::Restart(Who::Both)),
        step(needed_at, Fault::Kill(Who::Active)),
        step(needed_at + random.between(200, 2000), Fault::Restart(Who::Both)),
    ]
}

fn needed_empty(random: &mut Random) -> Vec<Step> {
    let mut steps = death(random, Who::Active);
    let needed_at = steps[1].after_ms + random.between(0, 300);
    steps.push(step(needed_at, Fault::Kill(Who::Active)));
    steps.push(step(needed_at + random.between(200, 2000), Fault::Restart(Who::Both)));
    steps
}

fn both_dead(random: &mut Random) -> Vec<Step> {
    let second_at = random.between(20, 1000);
    let back_at = second_at + random.between(100, 2000);
    vec![
        step(0, Fault::Kill(one_node(random))),
        step(second_at, Fault::Kill(Who::Both)),
        step(back_at, Fault::Restart(one_node(random))),
        step(back_at + random.between(0, 2000), Fault::Restart(Who::Both)),
    ]
}

fn rolling_restart(random: &mut Random) -> Vec<Step> {
    let (first_back, second_at) = (random.between(50, 1500), random.between(4500, 6000));
    let in_order = random.chance(700);
    let ends = |who| if in_order { Fault::Leave(who) } else { Fault::Kill(who) };
    vec![
        step(0, ends(Who::Active)),
        step(first_back, Fault::Restart(Who::Both)),
        step(second_at, ends(Who::Active)),
        step(second_at + random.between(50, 1500), Fault::Restart(Who::Both)),
    ]
}
