//! A client of a categorisation server, with hosts and time of tests.

use std::format;
use std::vec;
use std::vec::Vec;

use super::*;

fn config() -> ServerConfig {
    ServerConfig {
        categories: vec!["ads".into(), "news".into()],
        on_unknown: OnUnknown::Wait,
        on_failure: OnFailure::Block,
        timeout: Duration::from_secs(1),
        cache_entries: 1000,
        cache_lifetime: Duration::from_secs(70),
    }
}

fn client() -> CategoryClient {
    CategoryClient::new(config(), [1, 2], 1).expect("a shape")
}

fn host(name: &str) -> HostName {
    HostName::new(name.as_bytes()).expect("a name")
}

fn path(path: &str) -> NormalPath {
    NormalPath::new(path.as_bytes())
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(100_000 + millis)
}

const fn known(category: u8) -> Lookup {
    Lookup::Known { category, has_paths: false }
}

const fn of_path(category: u8) -> Lookup {
    Lookup::Known { category, has_paths: true }
}

#[test]
fn a_host_is_asked_about_once_and_then_known() {
    let mut client = client();
    let wait = Lookup::Wait(at(1000));
    assert_eq!(client.look_up(at(0), &host("ads.example"), None), wait);
    assert_eq!(client.look_up(at(10), &host("ads.example"), None), wait, "the limit is that of the question");
    assert_eq!(client.poll_targets(), ["ads.example"]);
    assert!(client.poll_targets().is_empty() && !client.has_targets(), "one request at a time");
    assert_eq!(client.handle_response(at(20), b"ads host\n"), Ok(false));
    assert_eq!(client.look_up(at(30), &host("ads.example"), Some(&path("/any"))), known(1));
    let View { counters, entries, questions, .. } = client.view();
    assert_eq!((counters.hits, counters.misses, counters.asked, entries, questions), (1, 2, 1, 1, 0));
}

#[test]
fn paths_of_a_host_have_categories_of_their_own_by_the_scope_of_the_answer() {
    let mut client = client();
    let big = host("big.example");
    assert!(matches!(client.look_up(at(0), &big, Some(&path("/ads/x"))), Lookup::Wait(_)));
    assert_eq!(client.poll_targets(), ["big.example/ads/x"]);
    client.handle_response(at(1), b"ads path").expect("an answer");
    assert_eq!(client.look_up(at(2), &big, Some(&path("/ads/x"))), of_path(1));
    // Another path, and the host alone (TLS), are not known.
    assert!(matches!(client.look_up(at(2), &big, Some(&path("/news"))), Lookup::Wait(_)));
    assert!(matches!(client.look_up(at(2), &big, None), Lookup::Wait(_)));
    assert_eq!(client.poll_targets(), ["big.example/news", "big.example"]);
    client.handle_response(at(3), b"news path\n- path\n").expect("answers");
    assert_eq!(client.look_up(at(4), &big, Some(&path("/news"))), of_path(2));
    assert_eq!(client.look_up(at(4), &big, None), of_path(0));
    assert_eq!(client.look_up(at(4), &big, Some(&path("/"))), of_path(0), "the root is the host");
}

#[test]
fn a_connection_waits_for_the_timeout_at_most() {
    let mut client = client();
    client.look_up(at(0), &host("slow.example"), None);
    assert_eq!(client.poll_targets().len(), 1);
    assert_eq!(client.look_up(at(999), &host("slow.example"), None), Lookup::Wait(at(1000)));
    assert_eq!(client.look_up(at(1000), &host("slow.example"), None), Lookup::Block);
    assert_eq!(client.view().counters.unanswered, 1);
    client.handle_response(at(1100), b"- host").expect("it comes late");
    assert_eq!(client.look_up(at(1200), &host("slow.example"), None), known(0));
}

#[test]
fn a_server_that_fails_is_retried_after_growing_pauses() {
    let mut client = client();
    client.look_up(at(0), &host("a.example"), None);
    client.poll_targets();
    assert!(client.handle_failure(at(10)), "it is down now");
    let view = client.view();
    assert!(view.is_down && view.questions == 0);
    assert_eq!(client.look_up(at(11), &host("a.example"), None), Lookup::Block, "on_failure");
    assert!(!client.has_targets(), "nothing is asked during the pause");
    let mut now = at(10);
    for pause_s in [1, 2, 4, 8, 16, 30, 30] {
        assert_eq!(
            client.look_up(now + Duration::from_millis(pause_s * 1000 - 1), &host("a.example"), None),
            Lookup::Block
        );
        now = now + Duration::from_secs(pause_s);
        assert!(matches!(client.look_up(now, &host("a.example"), None), Lookup::Wait(_)), "after {pause_s} s");
        assert_eq!(client.poll_targets().len(), 1);
        assert!(!client.handle_failure(now), "it was down before");
    }
    now = now + PAUSE_MAX;
    client.look_up(now, &host("a.example"), None);
    client.poll_targets();
    assert_eq!(client.handle_response(now, b"news host"), Ok(true), "it is up again");
    assert_eq!((client.look_up(now, &host("a.example"), None), client.view().is_down), (known(2), false));
    assert_eq!(client.view().counters.failures, 8);
}

#[test]
fn until_the_answer_connections_pass_or_are_blocked_by_choice() {
    for (on_unknown, expected) in [(OnUnknown::Pass, Lookup::Pass), (OnUnknown::Block, Lookup::Block)] {
        let mut client = CategoryClient::new(ServerConfig { on_unknown, ..config() }, [1, 2], 1).expect("a shape");
        assert_eq!(client.look_up(at(0), &host("a.example"), None), expected);
        assert_eq!((client.poll_targets().len(), client.view().counters.unanswered), (1, 0));
    }
}

#[test]
fn questions_are_bounded_and_asked_in_parts() {
    let mut client = client();
    for number in 0..=QUESTIONS_MAX {
        let expected = if number < QUESTIONS_MAX { Lookup::Wait(at(1000)) } else { Lookup::Block };
        assert_eq!(client.look_up(at(0), &host(&format!("h{number}.example")), None), expected);
    }
    assert_eq!((client.view().counters.no_room, client.view().questions), (1, QUESTIONS_MAX));
    let mut parts = 0;
    while client.has_targets() {
        let count = client.poll_targets().len();
        assert!(count <= TARGETS_MAX);
        client.handle_response(at(1), "- host\n".repeat(count).as_bytes()).expect("answers");
        parts += 1;
    }
    assert_eq!((parts, client.view().questions), (QUESTIONS_MAX / TARGETS_MAX, 0));
}

#[test]
fn an_old_answer_is_used_and_refreshed() {
    let mut client = client();
    let answered = |client: &mut CategoryClient, now, body: &[u8]| {
        let targets: Vec<String> = client.poll_targets().to_vec();
        client.handle_response(now, body).expect("an answer");
        targets
    };
    client.look_up(at(0), &host("a.example"), None);
    answered(&mut client, at(1), b"ads host");
    assert_eq!(client.look_up(at(30_000), &host("a.example"), None), known(1));
    assert!(!client.has_targets(), "it is not old yet");
    assert_eq!(client.look_up(at(55_000), &host("a.example"), None), known(1));
    assert_eq!(answered(&mut client, at(55_001), b"news host"), ["a.example"]);
    assert_eq!(client.look_up(at(90_000), &host("a.example"), None), known(2), "the new answer has its own lifetime");
    let counters = client.view().counters;
    assert_eq!((counters.refreshed, counters.contradicted, counters.expired), (1, 1, 0));
}

#[test]
fn answers_that_cannot_be_used_change_nothing() {
    let mut client = client();
    client.look_up(at(0), &host("a.example"), None);
    client.poll_targets();
    assert!(client.handle_response(at(1), b"ads host\nads host").is_err());
    assert!(client.handle_failure(at(1)));
    assert_eq!(client.view().entries, 0);
    client.look_up(at(2000), &host("a.example"), None);
    client.poll_targets();
    client.handle_response(at(2001), b"weapons host").expect("a category that is not configured is none");
    assert_eq!(client.look_up(at(2002), &host("a.example"), None), known(0));
    assert_eq!(client.view().counters.unknown_categories, 1);
}

/// Two nodes exchange what they have to send.
fn share(now: Instant, clients: &mut [CategoryClient; 2]) {
    for (from, to) in [(0, 1), (1, 0), (0, 1)] {
        let mut datagram = Vec::new();
        let peer = (NodeId(to as u8), clients[to].sharing_run());
        while clients[from].poll_shared(now, peer, &mut datagram) {
            clients[to].handle_shared(now, NodeId(from as u8), &datagram).expect("it is sound");
            datagram.clear();
        }
    }
}

#[test]
fn a_node_asks_nothing_that_another_one_has_asked() {
    let [first, second] = [1, 2].map(|run| CategoryClient::new(config(), [run, 2], run).expect("a shape"));
    let mut clients = [first, second];
    let (ads, big) = (host("ads.example"), host("big.example"));
    let ask = |client: &mut CategoryClient, now, body: &[u8]| {
        client.look_up(now, &ads, None);
        client.look_up(now, &big, Some(&path("/news")));
        client.look_up(now, &host("odd.example"), None);
        client.poll_targets();
        client.handle_response(now, body).expect("answers");
    };
    ask(&mut clients[0], at(0), b"ads host\nnews path\nother host\n");
    // The second node starts later.
    share(at(20_000), &mut clients);
    assert_eq!(clients[1].look_up(at(20_000), &ads, Some(&path("/x"))), known(1));
    assert_eq!(clients[1].look_up(at(20_000), &big, Some(&path("/news"))), of_path(2));
    let View { counters, entries, .. } = clients[1].view();
    assert_eq!((counters.received, counters.asked, entries, clients[1].has_targets()), (2, 0, 3, false));
    // A category that is not configured here is asked about here.
    assert!(matches!(clients[1].look_up(at(20_000), &host("odd.example"), None), Lookup::Wait(_)));
    // The lifetime counts from when the server has answered.
    clients[1].handle_timeout(at(71_000));
    assert_eq!(clients[1].view().entries, 0);
    assert_eq!(clients[0].view().counters.received, 0, "nothing comes back");
}
