//! Supervision, removal, limits, and pins: what is forwarded when, and by whom it can be taken over.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, Map, MapData};
use common::{Bpffs, Hosts, LOOPBACK, Network, PATIENCE, prepare, translated_plan};
use fast_path::{Config, DirectionPlan, Error, FastPath, Hook, NextHop, Outcome, Plan, Side, TestContext, Windows};
use flow::wire::{MacAddress, build, ip_protocol};
use flow::{Frame, PortId, Tuple};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::signal::die_with_parent;

/// Time between two looks at what is awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The hooks, each of which has a program.
const HOOKS: [Hook; 2] = [Hook::Tc, Hook::Xdp];

/// An untranslated connection of number `number` that comes in on the loopback interface.
fn plan(protocol: u8, number: u32) -> Plan {
    let [_, b, c, d] = number.to_be_bytes();
    let client = (std::net::Ipv4Addr::new(10, b, c, d), 4000);
    let tuple = Tuple::v4(protocol, client, (std::net::Ipv4Addr::new(192, 0, 2, 1), 53));
    let direction = |tuple| DirectionPlan { tuple, translated: tuple, ingress: LOOPBACK, next_hop: 0 };
    let side =
        Side { end: number, end_max: number + 1000, window_max: 1000, acknowledged_max: number, ..Side::default() };
    let windows = (protocol == ip_protocol::TCP).then_some(Windows { sides: [side; 2] });
    Plan {
        directions: [direction(tuple), direction(tuple.inverse())],
        windows,
        is_liberal: false,
        link_addresses: [None; 2],
    }
}

/// A datagram of a plan's original direction, as it comes in on the loopback interface.
fn datagram(plan: &Plan) -> Vec<u8> {
    let envelope = build::Envelope { destination: MacAddress([0; 6]), ..build::Envelope::default() };
    envelope.udp(&plan.directions[0].tuple, b"datagram")
}

fn set_next_hop(fast_path: &mut FastPath) {
    fast_path.set_next_hop(0, Some(&NextHop::new(9, [2; 6], [4; 6], 1500))).unwrap();
}

/// The outcome of a datagram of `plan`.
fn outcome(fast_path: &FastPath, plan: &Plan) -> Outcome {
    let before = fast_path.counters().unwrap();
    let run = fast_path.test_run(&datagram(plan), TestContext::default()).unwrap();
    let seen = fast_path.counters().unwrap() - before;
    let (outcome, _) = seen.iter().find(|(_, packets)| *packets == 1).unwrap();
    assert_eq!(run.is_redirected, outcome == Outcome::Forwarded);
    outcome
}

#[test]
fn nothing_is_forwarded_without_heartbeat_or_when_switched_off() {
    HOOKS.into_iter().for_each(assert_supervised);
}

fn assert_supervised(hook: Hook) {
    let age_max = Duration::from_millis(50);
    let config = Config { heartbeat_age_max: age_max, hook, ..Config::default() };
    let Some(mut fast_path) = common::load(&config) else { return };
    set_next_hop(&mut fast_path);
    let plan = plan(ip_protocol::UDP, 1);
    let index = fast_path.install(&plan).unwrap();
    fast_path.beat(fast_path::now() + PATIENCE);
    assert_eq!(outcome(&fast_path, &plan), Outcome::Forwarded);
    assert_eq!(fast_path.read(index).unwrap().packets, [1, 0]);
    assert_eq!(fast_path.read(index).unwrap().bytes, [28 + 8, 0]);

    let too_old = fast_path::now().as_nanos() - 2 * age_max.as_nanos() as u64;
    fast_path.beat(flow::Instant::from_nanos(too_old));
    assert_eq!(outcome(&fast_path, &plan), Outcome::Heartbeat);
    fast_path.allow_without_heartbeat_until(fast_path::now() + PATIENCE);
    assert_eq!(outcome(&fast_path, &plan), Outcome::Forwarded);
    fast_path.set_enabled(false);
    assert_eq!(outcome(&fast_path, &plan), Outcome::Disabled);
    assert_eq!(fast_path.read(index).unwrap().packets, [2, 0]);
}

/// A flow as the kernel has it: the key is a tuple, and the value begins with a seal.
type FlowWords = ([u8; 48], [u8; 64]);

#[test]
fn what_the_kernel_uses_for_another_entry_meanwhile_is_left() {
    HOOKS.into_iter().for_each(assert_sealed);
}

fn assert_sealed(hook: Hook) {
    let Some(bpffs) = Bpffs::mount() else { return };
    let config = Config { hook, pin_directory: Some(bpffs.path("seals")), ..Config::default() };
    let Some(mut fast_path) = common::load(&config) else { return };
    set_next_hop(&mut fast_path);
    let plans = [plan(ip_protocol::UDP, 1), plan(ip_protocol::UDP, 2)];
    for plan in &plans {
        fast_path.install(plan).unwrap();
    }
    fast_path.beat(fast_path::now() + PATIENCE);
    assert_eq!(outcome(&fast_path, &plans[0]), Outcome::Forwarded);

    let open = |name| MapData::from_pin(bpffs.path("seals").join(name)).expect("it is pinned");
    let mut flows = HashMap::<_, [u8; 48], [u8; 64]>::try_from(Map::HashMap(open("flows"))).expect("a hash map");
    let words: Vec<FlowWords> = flows.iter().collect::<Result<_, _>>().expect("they can be read");
    let [(key, value), (_, of_other)] = plans.each_ref().map(|plan| {
        let source = plan.directions[0].tuple.source;
        *words.iter().find(|(key, _)| key[..16] == source).expect("it is installed")
    });
    // The whole value of another flow, and the value with any other word.
    flows.insert(key, of_other, 0).expect("there is room");
    assert_eq!(outcome(&fast_path, &plans[0]), Outcome::Torn);
    for word in 1..8 {
        let mut changed = value;
        changed[word * 8] ^= 1;
        flows.insert(key, changed, 0).expect("there is room");
        assert_eq!(outcome(&fast_path, &plans[0]), Outcome::Torn, "word {word}");
    }
    flows.insert(key, value, 0).expect("there is room");
    assert_eq!(outcome(&fast_path, &plans[0]), Outcome::Forwarded);

    let mut next_hops = Array::<_, [u8; 32]>::try_from(Map::Array(open("next_hops"))).expect("an array");
    let hop = next_hops.get(&0, 0).expect("it can be read");
    let mut changed = hop;
    changed[16] ^= 1;
    next_hops.set(0, changed, 0).expect("it can be written");
    assert_eq!(outcome(&fast_path, &plans[0]), Outcome::Torn);
    next_hops.set(0, hop, 0).expect("it can be written");
    assert_eq!(outcome(&fast_path, &plans[0]), Outcome::Forwarded);
}

#[test]
fn another_generation_and_removed_connections_are_left() {
    HOOKS.into_iter().for_each(assert_invalidated);
}

fn assert_invalidated(hook: Hook) {
    let config = Config { heartbeat_age_max: PATIENCE, hook, ..Config::default() };
    let Some(mut fast_path) = common::load(&config) else { return };
    set_next_hop(&mut fast_path);
    let [old, new] = [1, 2].map(|number| plan(ip_protocol::UDP, number));
    let index = fast_path.install(&old).unwrap();
    let before = fast_path.read(index).unwrap();
    fast_path.set_generation(1);
    fast_path.install(&new).unwrap();
    assert_eq!(outcome(&fast_path, &old), Outcome::Generation);
    assert_eq!(outcome(&fast_path, &new), Outcome::Forwarded);

    assert_eq!(fast_path.remove(index).unwrap(), Some(before), "no packet was counted");
    assert_eq!(outcome(&fast_path, &old), Outcome::Miss);
    assert_eq!(fast_path.remove(index).unwrap(), None);
    assert_eq!(fast_path.activities().count(), 1);
}

#[test]
fn shares_have_connections_and_next_hops_of_their_own_and_one_generation() {
    let config = Config { connections_max: 5, next_hops_max: 2, heartbeat_age_max: PATIENCE, ..Config::default() };
    let Some(mut fast_path) = common::load(&config) else { return };
    let mut others = fast_path.divide(2).unwrap();
    let other = &mut others[0];
    assert_eq!((fast_path.connections_max(), other.connections_max()), (2, 2));
    set_next_hop(&mut fast_path);
    let [own, theirs] = [1, 2].map(|number| plan(ip_protocol::UDP, number));
    let indices = (fast_path.install(&own).unwrap(), other.install(&theirs).unwrap());
    assert_eq!(indices.0, indices.1, "indices are of the share");
    assert_eq!(outcome(&fast_path, &own), Outcome::Forwarded);
    assert_eq!(outcome(&fast_path, &theirs), Outcome::NextHop, "its share has set none");
    assert!(matches!(other.set_next_hop(1, None), Err(Error::Misuse(_))), "it has one");
    other.set_next_hop(0, Some(&NextHop::new(9, [2; 6], [4; 6], 1500))).unwrap();
    assert_eq!(outcome(&fast_path, &theirs), Outcome::Forwarded);
    assert_eq!((fast_path.read(indices.0).unwrap().packets, other.read(indices.1).unwrap().packets), ([1, 0], [1, 0]));
    assert!(matches!(other.install(&own), Err(Error::Installed(_))));

    other.install(&plan(ip_protocol::UDP, 3)).unwrap_err();
    assert_eq!(other.begin_generation(), 1);
    assert_eq!(fast_path.generation(), 1);
    assert_eq!(outcome(&fast_path, &own), Outcome::Generation);
    assert_eq!(other.remove(indices.1).unwrap().unwrap().packets, [1, 0]);
    assert_eq!(fast_path.activities().count(), 1);
    assert!(matches!(fast_path.divide(2), Err(Error::Misuse(_))), "something is installed");
}

#[test]
fn connections_are_installed_whole_or_not_at_all() {
    let config = Config { connections_max: 4, heartbeat_age_max: PATIENCE, ..Config::default() };
    let Some(mut fast_path) = common::load(&config) else { return };
    set_next_hop(&mut fast_path);
    let [first, second] = [1, 2].map(|number| plan(ip_protocol::UDP, number));
    let index = fast_path.install(&first).unwrap();
    // Its reply direction is there already, its original direction is not.
    let mut overlapping = second;
    overlapping.directions[1] = first.directions[1];
    assert!(matches!(fast_path.install(&overlapping), Err(Error::Installed(_))));
    assert_eq!(outcome(&fast_path, &second), Outcome::Miss);
    assert!(matches!(fast_path.install_many(&[second, first]), Err(Error::Installed(_))));
    assert_eq!(outcome(&fast_path, &second), Outcome::Miss);
    assert_eq!(fast_path.activities().map(|(index, _)| index).collect::<Vec<_>>(), [index]);

    // Indices rest before they are used again.
    let more = [3, 4].map(|number| plan(ip_protocol::UDP, number));
    assert!(matches!(fast_path.install_many(&more), Err(Error::Full { connections_max: 4 })));
    let began = Instant::now();
    let installed = loop {
        match fast_path.install_many(&more) {
            Err(Error::Full { .. }) if began.elapsed() < PATIENCE => thread::sleep(POLL_INTERVAL),
            result => break result.unwrap(),
        }
    };
    assert_eq!(installed.len(), 2);
    fast_path.install(&plan(ip_protocol::UDP, 5)).unwrap();
    assert!(matches!(fast_path.install(&plan(ip_protocol::UDP, 6)), Err(Error::Full { connections_max: 4 })));
}

#[test]
fn a_hundred_thousand_connections_are_installed_and_read() {
    const CONNECTIONS: u32 = 100_000;
    let Some(mut fast_path) = common::load(&Config { connections_max: CONNECTIONS, ..Config::default() }) else {
        return;
    };
    let plans: Vec<Plan> = (0..CONNECTIONS).map(|number| plan(ip_protocol::TCP, number)).collect();
    let begin = Instant::now();
    let indices = fast_path.install_many(&plans).unwrap();
    let installed = begin.elapsed();
    let begin = Instant::now();
    let read: Vec<_> = fast_path.activities().collect();
    println!("installed in {installed:?}, read in {:?}", begin.elapsed());
    assert_eq!(read.iter().map(|(index, _)| *index).collect::<Vec<_>>(), indices);
    for ((_, activity), plan) in read.iter().zip(&plans) {
        assert_eq!((activity.windows, activity.packets), (plan.windows, [0; 2]));
    }
    let raised = plans[7].windows.map(|mut windows| {
        windows.sides[1].end += 500;
        windows
    });
    assert!(fast_path.raise(indices[7], &raised.unwrap()));
    assert_eq!(fast_path.read(indices[7]).unwrap().windows, raised);
}

#[test]
fn interfaces_and_indices_that_do_not_exist_are_refused() {
    let Some(mut fast_path) = common::load(&Config { next_hops_max: 4, ..Config::default() }) else { return };
    assert!(matches!(fast_path.attach("no-such-one"), Err(Error::NoSuchInterface(_))));
    assert!(fast_path.set_next_hop(4, None).unwrap_err().to_string().contains("4 are configured"));
    assert!(!fast_path.detach(LOOPBACK).unwrap());
    assert!(matches!(FastPath::load(&Config { connections_max: 0, ..Config::default() }), Err(Error::Misuse(_))));
}

/// Set in the environment of the child that loads the fast path: the directory of its pins.
const PINS: &str = "MAINSTAY_TEST_FAST_PATH_PINS";
/// The child's output when all is attached.
const ATTACHED: &str = "the fast path is attached";
/// What the child keeps of its first connection.
const RECORD: &[u8] = b"a client and a server";
fn pinned_config(directory: &Path) -> Config {
    Config { connections_max: 16, next_hops_max: 2, pin_directory: Some(directory.into()), ..Config::default() }
}

/// A TCP connection whose sides differ in everything.
fn lopsided_plan() -> Plan {
    let original = Side { end: 1, end_max: 2, window_max: 3, acknowledged_max: 4, window_scale: 5, permits_sack: true };
    let reply = Side { end: 6, end_max: 7, window_max: 8, acknowledged_max: 9, window_scale: 10, permits_sack: false };
    Plan { windows: Some(Windows { sides: [original, reply] }), ..plan(ip_protocol::TCP, 1) }
}

/// The child: attaches the fast path to the gateway's interfaces, and waits to be killed.
fn attach_and_wait(directory: &Path) -> ! {
    let mut fast_path = FastPath::load(&pinned_config(directory)).unwrap();
    let ports = common::PORTS.map(|port| fast_path::interface_index(port).unwrap());
    common::PORTS.into_iter().for_each(|port| fast_path.attach(port).unwrap());
    fast_path.install_with_record(&translated_plan(ports), RECORD).unwrap();
    fast_path.install(&lopsided_plan()).unwrap();
    let too_long = fast_path.install_with_record(&plan(ip_protocol::UDP, 9), &[0; 300]).unwrap_err().to_string();
    assert!(too_long.contains("at most 254 bytes, not 300"), "{too_long}");
    fast_path.set_enabled(true);
    fast_path.allow_without_heartbeat_until(fast_path::now() + PATIENCE * 3);
    println!("{ATTACHED}");
    loop {
        thread::park();
    }
}

#[test]
fn a_pinned_fast_path_outlives_its_loader_and_is_taken_over() {
    if let Some(directory) = std::env::var_os(PINS) {
        attach_and_wait(Path::new(&directory));
    }
    let Some(network) = Network::new() else { return };
    if common::load(&Config::default()).is_none() {
        return;
    }
    let Some(bpffs) = Bpffs::mount() else { return };
    let directory = bpffs.path("pins");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_pinned_fast_path_outlives_its_loader_and_is_taken_over", "--nocapture"]);
    command.env(PINS, &directory).stdout(Stdio::piped());
    die_with_parent(&mut command);
    let hosts = Hosts::open(&network);
    assert!(!hosts.exchange(), "the gateway's kernel does not forward");

    let mut child = network.gateway.spawn_command(command).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(ATTACHED)), "the child could not attach the fast path");
    child.kill().unwrap();
    child.wait().unwrap();
    // The next hops are not set yet.
    assert!(!hosts.exchange());

    let take_over = || FastPath::load(&pinned_config(&directory)).unwrap();
    let mut fast_path = take_over();
    for (index, hop) in (0..).zip(network.next_hops()) {
        fast_path.set_next_hop(index, Some(&hop)).unwrap();
    }
    drop(fast_path);
    assert!(hosts.exchange(), "nobody has the fast path open, and it forwards");

    let mut fast_path = take_over();
    network.attach(&mut fast_path);
    let (index, activity) = fast_path.activities().next().expect("the connection is still installed");
    assert_eq!(activity.packets, [1, 1]);
    let records: Vec<_> = fast_path.records().unwrap().into_iter().map(|(_, record)| record).collect();
    assert_eq!(records, [RECORD, &[]]);
    let windows = fast_path.activities().nth(1).and_then(|(_, activity)| activity.windows);
    assert_eq!(windows, lopsided_plan().windows);
    assert!(matches!(fast_path.install(&translated_plan(network.ports())), Err(Error::Installed(_))));
    fast_path.allow_without_heartbeat_until(flow::Instant::ZERO);
    assert!(!hosts.exchange(), "there is no heartbeat");
    fast_path.beat(fast_path::now() + PATIENCE);
    assert!(hosts.exchange());
    assert_eq!(fast_path.read(index).unwrap().packets, [2, 2]);

    let other = Config { connections_max: 17, ..pinned_config(&directory) };
    let refused = FastPath::load(&other).unwrap_err().to_string();
    assert!(refused.contains("flows has 32 entries"), "{refused}");
    drop(fast_path);
    assert!(hosts.exchange());
    FastPath::remove_pins(&directory).unwrap();
    // The kernel detaches a program whose last pin is gone some time later, by its work queue.
    let deadline = Instant::now() + PATIENCE;
    while hosts.exchange() {
        assert!(Instant::now() < deadline, "all has ended");
    }
}

#[test]
fn an_attachment_ends_with_its_value() {
    HOOKS.into_iter().for_each(assert_attachment_ends);
}

fn assert_attachment_ends(hook: Hook) {
    let Some(network) = Network::new() else { return };
    let config = Config { heartbeat_age_max: PATIENCE, hook, ..Config::default() };
    let Some(mut fast_path) = common::load(&config) else { return };
    prepare(&network, hook);
    let hosts = Hosts::open(&network);
    fast_path.install(&translated_plan(network.ports())).unwrap();
    network.attach(&mut fast_path);
    assert!(hosts.exchange());
    assert!(fast_path.detach(network.ports()[0]).unwrap());
    assert!(!hosts.exchange());
    network.attach(&mut fast_path);
    assert!(hosts.exchange());
    drop(fast_path);
    assert!(!hosts.exchange());
}

#[test]
fn a_next_hop_may_skip_the_cable() {
    let Some(network) = Network::new() else { return };
    let Some(mut fast_path) = common::load(&Config { heartbeat_age_max: PATIENCE, ..Config::default() }) else {
        return;
    };
    let hosts = Hosts::open(&network);
    network.attach(&mut fast_path);
    for (index, hop) in (0..).zip(network.next_hops()) {
        fast_path.set_next_hop(index, Some(&NextHop { to_peer: true, ..hop })).unwrap();
    }
    fast_path.install(&translated_plan(network.ports())).unwrap();
    assert!(hosts.exchange());
    assert_eq!(fast_path.counters().unwrap().of(Outcome::Forwarded), 2);
}

#[test]
fn tagged_frames_are_left() {
    HOOKS.into_iter().for_each(assert_tagged_left);
}

fn assert_tagged_left(hook: Hook) {
    let Some(network) = Network::new() else { return };
    let config = Config { heartbeat_age_max: PATIENCE, hook, ..Config::default() };
    let Some(mut fast_path) = common::load(&config) else { return };
    prepare(&network, hook);
    network.attach(&mut fast_path);
    let plan = translated_plan(network.ports());
    fast_path.install(&plan).unwrap();
    let [to_client, _] = network.next_hops();
    let [source, destination] = [to_client.destination, to_client.source].map(MacAddress);
    let send = |vlans: &[u16]| {
        let envelope = build::Envelope { source, destination, vlans, ..build::Envelope::default() };
        let mut bytes = envelope.udp(&plan.directions[0].tuple, b"datagram");
        let length_bytes = bytes.len();
        let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
        let open = || AfPacketIo::open(&[PortConfig::new("host")]).unwrap();
        network.client.run(open).unwrap().transmit(PortId(0), &frame).unwrap();
    };
    for (vlans, outcome) in [(&[][..], Outcome::Forwarded), (&[5], Outcome::Tagged)] {
        send(vlans);
        let begin = Instant::now();
        while fast_path.counters().unwrap().of(outcome) == 0 {
            assert!(begin.elapsed() < PATIENCE, "{:?}", fast_path.counters());
            thread::yield_now();
        }
    }
}

#[test]
fn processors_raise_the_windows_of_one_connection_at_once() {
    const THREADS: u32 = 4;
    const SEGMENTS: u32 = 2000;
    let Some(mut fast_path) = common::load(&Config { heartbeat_age_max: PATIENCE, ..Config::default() }) else {
        return;
    };
    set_next_hop(&mut fast_path);
    let side = |end: u32| Side {
        end,
        end_max: end + 1_000_000,
        window_max: 1 << 30,
        acknowledged_max: end,
        ..Side::default()
    };
    let mut plan = plan(ip_protocol::TCP, 1);
    plan.windows = Some(Windows { sides: [side(0), side(0)] });
    let index = fast_path.install(&plan).unwrap();
    let envelope = build::Envelope { destination: MacAddress([0; 6]), ..build::Envelope::default() };
    let (fast_path, plan) = (&fast_path, &plan);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                // Each thread sends every fourth of the segments, from both sides.
                for number in (0..SEGMENTS).filter(|number| number % THREADS == thread) {
                    let segment =
                        build::Tcp { flags: 0x10, sequence: number * 100, window: 1000, ..build::Tcp::default() };
                    for direction in &plan.directions {
                        let frame = envelope.tcp(&direction.tuple, segment, &[0; 100]);
                        assert!(fast_path.test_run(&frame, TestContext::default()).unwrap().is_redirected);
                    }
                }
            });
        }
    });
    let activity = fast_path.read(index).unwrap();
    assert_eq!(activity.packets, [SEGMENTS; 2]);
    assert_eq!(activity.bytes, [u64::from(SEGMENTS) * 140; 2]);
    for side in activity.windows.unwrap().sides {
        assert_eq!((side.end, side.acknowledged_max), (SEGMENTS * 100, 0));
    }
}

#[test]
fn pins_need_a_bpffs() {
    let Some(_) = common::load(&Config::default()) else { return };
    let directory = std::env::temp_dir().join(format!("fast-path-no-bpffs-{}", std::process::id()));
    let error = FastPath::load(&pinned_config(&directory)).unwrap_err().to_string();
    let _ = std::fs::remove_dir_all(&directory);
    assert!(error.contains("mounted bpffs"), "{error}");
}
