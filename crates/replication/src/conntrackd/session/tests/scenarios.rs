//! What two sessions do, case by case.

use core::time::Duration;
use std::vec::Vec;

use flow::netfilter::{Expectation, TcpState};

use super::harness::{End, Node, TIME_OF_DAY_S, Weather, World, agree, connection, pair};
use crate::conntrackd::{FtfwConfig, FtfwEvent, Link};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn together(config: FtfwConfig) -> World<Node, Node> {
    let mut world = pair(config, 1);
    world.until(3 * SECOND, "both agree", |world| agree(world));
    world
}

#[test]
fn nodes_that_meet_synchronise_fully() {
    let mut world = pair(FtfwConfig::default(), 1);
    (0..1000).for_each(|number| world.left.put(connection(number, 1)));
    (2000..2010).for_each(|number| world.right.put(connection(number, 2)));
    world.until(5 * SECOND, "both agree", |world| agree(world));
    assert_eq!((world.right.table.copies.len(), world.left.table.copies.len()), (1000, 10));
    for node in [&world.left, &world.right] {
        assert!(node.events.contains(&FtfwEvent::PeerUp) && node.events.contains(&FtfwEvent::SentAll));
        assert!(node.events.contains(&FtfwEvent::ResyncRequested));
    }
}

#[test]
fn a_change_is_sent_at_once_and_an_end_too() {
    let mut world = together(FtfwConfig::default());
    world.left.put(connection(1, 1));
    assert!(world.until(SECOND, "the copy", |world| world.right.table.copies.len() == 1) < 2 * MILLISECOND);
    world.left.put(connection(1, 2));
    world.until(SECOND, "the change", |world| world.right.copies() == world.left.own());
    world.left.end(1);
    assert!(world.until(SECOND, "the end", |world| world.right.table.copies.is_empty()) < 2 * MILLISECOND);
}

#[test]
fn a_connection_that_changes_while_it_waits_is_sent_once() {
    let config = FtfwConfig { batch_delay: 5 * MILLISECOND, ..FtfwConfig::default() };
    let mut world = together(config);
    let before = world.left.session.status().messages_sent;
    for version in 0..10 {
        (0..3).for_each(|number| world.left.put(connection(number, version)));
        world.flush();
    }
    assert!(world.right.table.copies.is_empty(), "it waits for company");
    world.until(SECOND, "all is sent", |world| world.right.copies() == world.left.own());
    assert_eq!(world.left.session.status().messages_sent - before, 3);
}

#[test]
fn a_connection_that_ends_before_it_was_sent_costs_nothing() {
    let config = FtfwConfig { batch_delay: 5 * MILLISECOND, ..FtfwConfig::default() };
    let mut world = together(config);
    let before = world.left.session.status().messages_sent;
    world.left.put(connection(1, 1));
    world.flush();
    world.left.end(1);
    world.run(SECOND);
    assert_eq!(world.left.session.status().messages_sent, before);
}

#[test]
fn a_lost_tail_is_found_in_milliseconds() {
    let mut world = together(FtfwConfig::default());
    world.weather.lost = 100;
    world.left.put(connection(1, 1));
    world.flush();
    world.weather.lost = 0;
    let took = world.until(SECOND, "the copy", |world| world.right.table.copies.len() == 1);
    assert!(took < 10 * MILLISECOND, "{took:?}");
    assert_eq!((world.left.session.status().lost, world.left.session.status().resent), (1, 1));
}

#[test]
fn a_lost_end_does_not_end_the_connection_that_came_after_it() {
    let mut world = together(FtfwConfig::default());
    world.left.put(connection(1, 1));
    world.until(3 * SECOND, "it is acknowledged", |world| agree(world));
    world.weather.lost = 100;
    world.left.end(1);
    world.flush();
    world.weather.lost = 0;
    world.left.put(connection(1, 9));
    world.until(3 * SECOND, "the later one", |world| agree(world));
    world.run(3 * SECOND);
    assert_eq!(world.right.copies(), world.left.own());
}

#[test]
fn a_restarted_peer_gets_a_full_synchronisation_and_is_asked_for_one() {
    let mut world = together(FtfwConfig::default());
    (0..100).for_each(|number| world.left.put(connection(number, 1)));
    (200..250).for_each(|number| world.right.put(connection(number, 1)));
    world.until(3 * SECOND, "both agree", |world| agree(world));
    world.left.events.clear();
    let own = core::mem::take(&mut world.right.table);
    world.right = Node::new(FtfwConfig::default(), TIME_OF_DAY_S + 60);
    own.connections.into_iter().flatten().for_each(|entry| world.right.put(entry));
    world.until(3 * SECOND, "both agree again", |world| agree(world));
    assert!(world.left.events.contains(&FtfwEvent::PeerRestarted), "{:?}", world.left.events);
}

#[test]
fn a_process_with_lower_numbers_is_known_by_its_hello() {
    let mut world = together(FtfwConfig::default());
    world.run(3 * SECOND);
    world.right = Node::new(FtfwConfig::default(), TIME_OF_DAY_S - 1000);
    world.right.put(connection(7, 7));
    world.until(3 * SECOND, "both agree", |world| agree(world));
}

#[test]
fn a_silent_peer_is_noticed_and_learns_what_ended_meanwhile() {
    let mut world = together(FtfwConfig::default());
    (0..20).for_each(|number| world.left.put(connection(number, 1)));
    world.until(3 * SECOND, "both agree", |world| agree(world));
    world.weather.lost = 100;
    world.until(7 * SECOND, "both are noticed", |world| {
        world.left.session.status().link == Link::Seeking && world.right.session.status().link == Link::Seeking
    });
    assert!(world.left.events.contains(&FtfwEvent::PeerSilent));
    world.left.end(3);
    world.left.put(connection(4, 9));
    world.weather.lost = 0;
    world.until(3 * SECOND, "both agree again", |world| agree(world));
    assert!(!world.left.events.contains(&FtfwEvent::PeerRestarted), "silence is no restart");
}

#[test]
fn expectations_go_with_their_connections() {
    let mut world = together(FtfwConfig::default());
    let master = connection(21, 1);
    let expectation = Expectation {
        master: master.original,
        expected: connection(0, 0).original,
        mask: connection(0xffff, 0).original,
        zone: 0,
        timeout_s: Some(300),
        flags: 0,
        class: 0,
        helper: None,
        function: None,
        nat: None,
    };
    world.left.put(master);
    let handle = world.left.table.put_expectation(expectation.clone());
    world.left.session.mark_expectation_changed(handle);
    world.until(SECOND, "it came", |world| world.right.table.expected.values().eq([&expectation]));
    // The next one that meets it receives it as well.
    world.right = Node::new(FtfwConfig::default(), TIME_OF_DAY_S + 60);
    world.until(3 * SECOND, "it came again", |world| world.right.table.expected.values().eq([&expectation]));
    let ended = world.left.table.take_expectation(handle).unwrap();
    world.left.session.mark_expectation_deleted(handle, &ended);
    world.until(SECOND, "it went", |world| world.right.table.expected.is_empty());
}

#[test]
fn no_more_is_in_flight_than_the_peer_s_socket_holds() {
    let config =
        FtfwConfig { in_flight_messages_max: 500, resync_in_flight_messages_max: 200, ..FtfwConfig::default() };
    let mut world = pair(config, 1);
    (0..5000).for_each(|number| world.left.put(connection(number, 1)));
    let mut most = 0;
    world.until(20 * SECOND, "both agree", |world| {
        most = most.max(world.left.session.status().in_flight);
        agree(world)
    });
    assert_eq!(most, 200);
    (0..5000).for_each(|number| world.left.put(connection(number, 2)));
    most = 0;
    world.until(20 * SECOND, "both agree", |world| {
        most = most.max(world.left.session.status().in_flight);
        agree(world)
    });
    assert_eq!(most, 500);
}

#[test]
fn a_quiet_peer_gets_nothing_but_a_keep_alive_a_second() {
    let mut world = together(FtfwConfig::default());
    world.run(3 * SECOND);
    let before = world.datagrams;
    world.run(10 * SECOND);
    assert!((18..=22).contains(&(world.datagrams - before)), "{}", world.datagrams - before);
}

#[test]
fn whoever_asks_for_everything_gets_it() {
    let mut world = together(FtfwConfig::default());
    (0..300).for_each(|number| world.left.put(connection(number, 1)));
    world.until(3 * SECOND, "both agree", |world| agree(world));
    world.right.table.copies.clear();
    world.right.session.request_resync();
    world.until(3 * SECOND, "all is there again", |world| world.right.copies() == world.left.own());
    world.right.table.copies.clear();
    world.left.session.resync();
    world.until(3 * SECOND, "all is sent again", |world| world.right.copies() == world.left.own());
}

#[test]
fn a_node_that_has_left_sends_nothing() {
    let mut world = together(FtfwConfig::default());
    world.left.session.close();
    let mut buffer = Vec::new();
    world.left.put(connection(1, 1));
    assert!(!world.left.poll(world.now, &mut buffer) && world.left.timeout().is_none());
    world.until(7 * SECOND, "silence", |world| world.right.events.contains(&FtfwEvent::PeerSilent));
}

#[test]
fn rough_weather_changes_nothing_in_the_end() {
    let mut world = pair(FtfwConfig::default(), 42);
    world.weather = Weather { lost: 20, doubled: 10, delay_max_ms: 3 };
    for round in 0..20 {
        for number in 0..200 {
            world.left.put(connection(number, round));
            world.right.put(connection(1000 + number, round));
        }
        (0..200).filter(|number| number % 20 == round as u16).for_each(|number| world.left.end(number));
        world.run(20 * MILLISECOND);
    }
    world.until(20 * SECOND, "both agree", |world| agree(world));
    let state = world.right.table.copies.values().next().unwrap().tcp().unwrap().state;
    assert_eq!(state, TcpState::Established);
}
