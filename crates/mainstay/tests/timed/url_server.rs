//! Real clients behind two gateways that ask a categorisation server: requests wait for their category, verdicts and connections survive a killed
//! node, and a killed server is treated as the configuration states.

use std::net::{SocketAddr, TcpListener};

use api::{EventKind, UrlServerStatus};
use lab::categorise::{Catalogue, CategoryServer};
use lab::testbed::topology::{SERVER, SYNC, Topology};

use super::url_filter::{TLS, Talk, WEB, decided, filter, get, hello, serve, start_node, start_pair};
use crate::common::program::{Folder, Program, wait_until};

/// The category server is a process of the host on which node a runs.
const PORT: u16 = 8080;
const CATALOGUE: &str = "ads.example ads\nbig.example news\nbig.example/ads ads\n";

fn sections(on_failure: &str) -> String {
    format!(
        "[url_filter.server]\naddress = \"{}:{PORT}\"\ncategories = [\"ads\", \"news\"]\non_failure = \"{on_failure}\"\n\
         [[url_filter.rule]]\nname = \"web\"\nports = [{WEB}, {TLS}]\nblock = [\"ads\"]\naction = \"block-page\"\n",
        SYNC[0]
    )
}

fn start_server(topology: &Topology) -> CategoryServer {
    let address = SocketAddr::new(SYNC[0], PORT);
    let listener = topology.nodes[0].run(|| TcpListener::bind(address)).unwrap().expect("the port is free");
    CategoryServer::start(listener, Catalogue::read(CATALOGUE).expect("a catalogue"))
}

fn server(node: &Program) -> UrlServerStatus {
    filter(node).server.expect("a server is configured")
}

fn has_event(node: &Program, kind: EventKind) -> bool {
    node.client().events().unwrap_or_default().iter().any(|event| event.kind == kind)
}

fn ask_through_a_failover(family: usize) {
    if packet_io::namespace::for_tests().is_none() {
        return;
    }
    let _turn = crate::take_turn();
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new("url-server");
    let address = SERVER[family];
    serve(&topology, address);
    let categories = start_server(&topology);
    let [a, b] = start_pair(&topology, &folder, family, &sections("block"));

    // Blocked and allowed hosts, and paths of one host: each request waits until the server has answered.
    let page = Talk::begin(&topology, address, WEB).ask(&get("www.ads.example")).expect("a page comes");
    assert!(page.starts_with("HTTP/1.1 403 Forbidden\r\n") && page.contains("<b>ads</b>"), "{page}");
    assert!(Talk::begin(&topology, address, TLS).ask(&hello("www.ads.example")).is_err(), "it is reset");
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: big.example\r\n\r\n").into_bytes();
    let page = Talk::begin(&topology, address, WEB).ask(&request("/ads/top")).expect("a page comes");
    assert!(page.contains("<b>ads</b>"), "{page}");
    Talk::begin(&topology, address, WEB).exchange(&request("/news"));
    let mut talks = [Talk::begin(&topology, address, TLS), Talk::begin(&topology, address, WEB)];
    talks[0].exchange(&hello("www.example.org"));
    talks[1].exchange(&get("www.example.org"));
    let known = server(&a);
    assert!(known.available && known.failures == 0 && known.unanswered == 0, "{known:?}");
    assert_eq!((known.asked, categories.asked()), (4, 4), "each host and path once: {known:?}");
    assert_eq!((decided(&a, "ads", "blocked"), decided(&a, "news", "allowed")), (3, 1), "{:?}", filter(&a));
    assert!(known.hits >= 2 && known.misses >= 4 && known.entries == 5, "{known:?}");

    // Node b has the verdicts, and the answers of the server: it asks about nothing that node a has asked about.
    wait_until("b has the answers", || {
        let known = server(&b);
        if known.received >= 4 && known.entries == 5 { Ok(()) } else { Err(format!("{known:?}\n{}", b.log())) }
    });
    wait_until("b has the verdicts", || {
        let status = a.status().map(|status| status.peers.iter().all(|peer| peer.queued + peer.in_flight == 0));
        if status == Some(true) { Ok(()) } else { Err(a.log()) }
    });
    a.kill();
    b.wait_for_role("active");
    talks.iter_mut().for_each(|talk| talk.exchange(b"the rest"));
    assert_eq!(server(&b).asked, 0, "{:?}", server(&b));
    assert!(Talk::begin(&topology, address, TLS).ask(&hello("www.ads.example")).is_err(), "it is reset");
    let page = Talk::begin(&topology, address, WEB).ask(&request("/ads/top")).expect("a page comes");
    assert!(page.contains("<b>ads</b>"), "{page}");
    Talk::begin(&topology, address, WEB).exchange(&request("/news"));
    Talk::begin(&topology, address, WEB).exchange(&get("www.example.org"));
    assert_eq!((server(&b).asked, categories.asked()), (0, 4), "{:?}", server(&b));
    let page = Talk::begin(&topology, address, WEB).ask(&get("ads.example")).expect("a page comes");
    assert!(page.contains("<b>ads</b>"), "{page}");
    assert_eq!((server(&b).asked, server(&b).entries), (1, 6));

    // Without the server, what is cached is decided as before, and all else as on_failure states.
    drop(categories);
    assert!(Talk::begin(&topology, address, TLS).ask(&hello("new.example")).is_err(), "it is reset");
    wait_until("b reports that the server fails", || {
        if has_event(&b, EventKind::CategoriesUnavailable) { Ok(()) } else { Err(b.log()) }
    });
    let known = server(&b);
    assert!(!known.available && known.failures >= 1 && known.unanswered >= 1, "{known:?}");
    let page = Talk::begin(&topology, address, WEB).ask(&get("ads.example")).expect("a page comes");
    assert!(page.contains("<b>ads</b>"), "{page}");
    talks.iter_mut().for_each(|talk| talk.exchange(b"still open"));
    assert!(decided(&b, "unanswered", "blocked") >= 1, "{:?}", filter(&b));

    // A server that is back is asked again after the pause.
    let _categories = start_server(&topology);
    wait_until("new hosts are known again", || {
        let answer = Talk::begin(&topology, address, WEB).try_exchange(&get("later.example"));
        if answer { Ok(()) } else { Err(format!("{:?}", server(&b))) }
    });
    assert!(server(&b).available && has_event(&b, EventKind::CategoriesAvailable), "{:?}", server(&b));

    // A node that starts is filled by its peer.
    let a = start_node(&topology, &folder, 0, family, &sections("block"));
    wait_until("a has the answers", || {
        let entries = filter(&a).server.map_or(0, |known| known.entries);
        if entries == server(&b).entries { Ok(()) } else { Err(format!("{entries}\n{}", a.log())) }
    });
    assert!(server(&a).asked == 0 && server(&a).received >= 6, "{:?}", server(&a));
}

#[test]
fn requests_wait_for_their_category_and_verdicts_survive_over_ipv4() {
    ask_through_a_failover(0);
}

#[test]
fn requests_wait_for_their_category_and_verdicts_survive_over_ipv6() {
    ask_through_a_failover(1);
}
