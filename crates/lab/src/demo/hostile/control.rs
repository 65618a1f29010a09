//! Attacks on the control plane: replication, the remote control API, metrics, and the sources of members.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::report::Observed;
use super::site::{PLAIN, Site};
use crate::demo::run::RunError;
use crate::testbed::cluster::{REPLICATION_PORT, guarded};
use crate::testbed::stranger::Stranger;
use crate::testbed::topology::{INTERFACES, SYNC, link_address};
use api::{DetectorState, VERSION};
use control::client::Client;
use control::target::{RemoteTarget, Target};
use flow::Tuple;
use flow::random::SplitMix64;
use flow::wire::ip_protocol;
use packet_io::namespace::Namespace;

/// Datagrams of a flood.
const FLOOD: u64 = 10_000;
/// Recorded datagrams, and how often each is sent again.
const RECORDED: usize = 20;
const TIMES: usize = 20;
/// Hosts that try tokens, and connections of each at a time.
const GUESSERS: usize = 3;
const GUESSES_AT_ONCE: usize = 6;
/// How often the operator asks meanwhile.
const OPERATOR_ASKS: usize = 5;
/// Clients of the metrics, and for how long they ask.
const SCRAPERS: usize = 16;
const SCRAPED_FOR: Duration = Duration::from_secs(2);
/// All within this time receive the same page.
const PAGE_AGE: Duration = Duration::from_millis(100);
/// The port of gossip.
const GOSSIP: u16 = 3785;

/// Datagrams that the channel of node a has refused, with their reasons.
fn refused(site: &Site<'_>) -> Result<Vec<(String, u64)>, RunError> {
    let peers = site.status(0)?.peers;
    let refused = peers.into_iter().flat_map(|peer| peer.channel.refused);
    Ok(refused.map(|refused| (refused.reason, refused.datagrams)).collect())
}

fn sum(refused: &[(String, u64)], only: Option<&str>) -> u64 {
    refused.iter().filter(|(reason, _)| only.is_none_or(|only| only == reason)).map(|(_, datagrams)| datagrams).sum()
}

fn refused_words(refused: &[(String, u64)]) -> String {
    let words: Vec<String> = refused.iter().map(|(reason, datagrams)| format!("{reason} {datagrams}")).collect();
    format!("channel refused: {}", words.join(", "))
}

/// A stranger on the link between the nodes, whose frames go to node a.
fn on_the_link(site: &Site<'_>) -> Result<Stranger, RunError> {
    let interface = INTERFACES[2];
    Ok(Stranger::open(&site.topology.nodes[1], interface, link_address(&site.topology.nodes[0], interface)?)?)
}

/// Datagrams of every kind at the replication port, from the peer's address and port.
pub(super) fn replication_flood(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let (mut stranger, before) = (on_the_link(site)?, refused(site)?);
    let [to, from] = SYNC.map(|address| SocketAddr::new(address, REPLICATION_PORT));
    let mut random = SplitMix64::new(2);
    for number in 0..FLOOD as usize {
        let mut datagram = vec![0; [68, 60, 200, 24, 1400][number % 5]];
        for bytes in datagram.chunks_mut(8) {
            let drawn = random.between(0, u64::MAX - 1).to_be_bytes();
            bytes.copy_from_slice(&drawn[..bytes.len()]);
        }
        // The channel's kinds of datagrams, plain replication, heartbeats and anything.
        datagram[..2].copy_from_slice(&[[0xe1, 0xe2, 0xe4, 0xf1, 0x00][number % 5], 1]);
        let frame = stranger.envelope().udp(&Tuple::new(ip_protocol::UDP, from, to), &datagram);
        stranger.send(&frame);
    }
    let mut now = before.clone();
    site.until(|| {
        now = refused(site)?;
        Ok(sum(&now, None) - sum(&before, None) >= FLOOD / 2)
    })?;
    let peer = site.status(0)?.peers.into_iter().next();
    let is_synchronised =
        peer.as_ref().is_some_and(|peer| peer.detector == DetectorState::Up && peer.channel.is_secured());
    let more = sum(&now, None) - sum(&before, None);
    Ok(Observed {
        held: more >= FLOOD / 2 && is_synchronised,
        observed: format!(
            "{more} of {FLOOD} datagrams refused so far; the peer is up and its channel secured: {is_synchronised}"
        ),
        operator_sees: refused_words(&now),
    })
}

/// Datagrams of the peer that were recorded on the link, sent again and again.
pub(super) fn replayed_replication(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let (mut stranger, before) = (on_the_link(site)?, refused(site)?);
    let interface = INTERFACES[2];
    let mut listener = Stranger::open(&site.topology.nodes[0], interface, stranger.source)?;
    let mut recorded: Vec<Vec<u8>> = Vec::new();
    site.until(|| {
        listener.see(&mut |frame, headers| {
            if headers.tuple.destination_port == REPLICATION_PORT && recorded.len() < RECORDED {
                // Its checksum is left to the interface: it is written anew.
                let end = usize::from(headers.l3_offset) + headers.l3_bytes as usize;
                let payload = &frame[usize::from(headers.payload_offset)..end];
                recorded.push(stranger.envelope().udp(&headers.tuple, payload));
            }
        })?;
        Ok(recorded.len() >= RECORDED)
    })?;
    for _ in 0..TIMES {
        recorded.iter().for_each(|frame| stranger.send(frame));
    }
    let sent = (recorded.len() * TIMES) as u64;
    let mut now = before.clone();
    let all = site.until(|| {
        now = refused(site)?;
        Ok(sum(&now, Some("replayed")) - sum(&before, Some("replayed")) >= sent)
    })?;
    let more = sum(&now, Some("replayed")) - sum(&before, Some("replayed"));
    Ok(Observed {
        held: all && sent > 0,
        observed: format!("{more} of {sent} repeated datagrams refused"),
        operator_sees: refused_words(&now),
    })
}

/// Three hosts try tokens without pause, while an operator at a fourth one asks for the status.
pub(super) fn wrong_tokens(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let is_over = Arc::new(AtomicBool::new(false));
    let denied = Arc::new(AtomicU64::new(0));
    let mut guessers = Vec::new();
    for _ in 0..GUESSERS {
        let (host, gateway) = site.management_host()?;
        let host = Arc::new(host);
        for _ in 0..GUESSES_AT_ONCE {
            let (is_over, denied, host) = (Arc::clone(&is_over), Arc::clone(&denied), Arc::clone(&host));
            guessers.push(thread::spawn(move || host.run(|| guess(gateway, &is_over, &denied))));
        }
    }
    let (office, gateway) = site.management_host()?;
    let has_begun = site.until(|| Ok(denied.load(Ordering::Relaxed) >= 2 * GUESSES_AT_ONCE as u64))?;
    let target = Target::Remote(Box::new(RemoteTarget {
        address: SocketAddr::new(gateway, guarded::CONTROL).to_string(),
        authority: None,
        server_name: None,
        identity: None,
        token: Some(site.cluster.token_file()),
    }));
    let mut longest = Duration::ZERO;
    let mut answered = 0;
    for _ in 0..OPERATOR_ASKS {
        let began = Instant::now();
        let status = office.run(|| Client::open(target.clone()).and_then(|mut client| client.status()))?;
        answered += usize::from(status.is_ok());
        longest = longest.max(began.elapsed());
    }
    is_over.store(true, Ordering::Relaxed);
    // A guesser that failed has tried for as long.
    guessers.into_iter().for_each(|guesser| drop(guesser.join()));
    let denied = denied.load(Ordering::Relaxed);
    let log = site.cluster.log_of(0);
    let logged = log.lines().rev().find(|line| line.contains("token")).unwrap_or_default().to_owned();
    Ok(Observed {
        held: has_begun && answered == OPERATOR_ASKS,
        observed: format!(
            "{denied} tokens denied from {GUESSERS} addresses; the operator was answered {answered} of {OPERATOR_ASKS} times, the \
             longest after {:.0} ms",
            longest.as_secs_f64() * 1e3
        ),
        operator_sees: logged,
    })
}

/// Tries tokens until it is over.
fn guess(gateway: IpAddr, is_over: &AtomicBool, denied: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect((gateway, guarded::CONTROL)) else { continue };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
        let line = format!("{{\"version\":{VERSION},\"token\":\"{}\"}}\n", "wrong".repeat(8));
        let mut answer = String::new();
        if stream.write_all(line.as_bytes()).is_ok()
            && BufReader::new(&stream).read_line(&mut answer).is_ok()
            && answer.contains("denied")
        {
            denied.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Many clients ask for the metrics without pause.
pub(super) fn scrapers(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let (host, gateway) = site.management_host()?;
    let host = Arc::new(host);
    let pages: Arc<Mutex<(usize, BTreeSet<Vec<u8>>)>> = Arc::default();
    let began = Instant::now();
    let clients: Vec<_> = (0..SCRAPERS)
        .map(|_| {
            let (pages, host) = (Arc::clone(&pages), Arc::clone(&host));
            thread::spawn(move || host.run(|| scrape(gateway, began + SCRAPED_FOR, &pages)))
        })
        .collect();
    let mut stranger = site.stranger(0)?;
    let mut tracked = site.tracked(&mut stranger, PLAIN)?;
    let mut unanswered = 0;
    while began.elapsed() < SCRAPED_FOR {
        unanswered += usize::from(tracked.exchange(b"meanwhile").is_none());
    }
    clients.into_iter().for_each(|client| drop(client.join()));
    let elapsed = began.elapsed();
    let pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
    let (answers, different) = (pages.0, pages.1.len());
    let may_differ = (elapsed.as_secs_f64() / PAGE_AGE.as_secs_f64()) as usize + 2;
    let name = |line: &str| line.starts_with("mainstay_drops_total") || line.starts_with("mainstay_dropped");
    let page = pages.1.iter().next().map(|page| String::from_utf8_lossy(page).into_owned()).unwrap_or_default();
    let line = page.lines().find(|line| name(line)).or_else(|| page.lines().find(|line| line.starts_with("mainstay_")));
    Ok(Observed {
        held: unanswered == 0 && answers > may_differ && different <= may_differ,
        observed: format!(
            "{answers} pages to {SCRAPERS} clients in {:.1} s, of which {different} were made anew; questions beside them \
             unanswered: {unanswered}",
            elapsed.as_secs_f64()
        ),
        operator_sees: line.map(|line| format!("the page itself: {line}")).unwrap_or_default(),
    })
}

/// Asks for the page again and again.
fn scrape(gateway: IpAddr, until: Instant, pages: &Mutex<(usize, BTreeSet<Vec<u8>>)>) {
    while Instant::now() < until {
        let Ok(mut stream) = TcpStream::connect((gateway, guarded::METRICS)) else { continue };
        let mut page = Vec::new();
        let asked = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n");
        if asked.is_ok() && stream.read_to_end(&mut page).is_ok() && page.starts_with(b"HTTP/1.1 200") {
            let mut pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
            pages.0 += 1;
            pages.1.insert(page);
        }
    }
}

/// A gateway whose members come from etcd at another host in plain text, without the word that allows it.
pub(super) fn etcd_in_plain_text(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let failed = |error: std::io::Error| RunError::Attack(format!("a further gateway: {error}"));
    let folder = site.cluster.token_file().parent().map(std::path::Path::to_owned).unwrap_or_default();
    let configured = std::fs::read_to_string(folder.join("a.toml")).map_err(failed)?;
    // Its peers come from etcd alone.
    let is_peers = |section: &&str| section.starts_with("[[replication.peer]]");
    let sections: Vec<&str> = configured.split("\n\n").filter(|section| !is_peers(section)).collect();
    let path = folder.join("etcd-in-plain-text.toml");
    let section = "\n[membership]\nsource = \"etcd\"\nendpoints = [\"http://10.99.0.100:2379\"]\n";
    std::fs::write(&path, sections.join("\n\n") + section).map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["gateway", "--config"]).arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = Namespace::new()?.spawn_command(command)?;
    let output = child.wait_with_output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stderr);
    let reason = text.lines().find(|line| line.contains("plain text")).unwrap_or_default().trim().to_owned();
    Ok(Observed {
        held: !output.status.success() && text.contains("or plain = true"),
        observed: format!("the gateway does not start: {}", output.status),
        operator_sees: reason,
    })
}

/// Datagrams to the port of gossip by a host without the key.
pub(super) fn gossip_without_key(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let failed = |error: std::io::Error| RunError::Attack(format!("a stranger's socket: {error}"));
    let members =
        |site: &Site<'_>| -> Result<_, RunError> { Ok(site.status(0)?.membership.map(|list| list.members.len())) };
    let before = members(site)?;
    let socket = site.topology.nodes[1].run(|| UdpSocket::bind((SYNC[1], 0)))?.map_err(failed)?;
    let mut random = SplitMix64::new(3);
    for length_bytes in 0..1000_usize {
        let datagram: Vec<u8> = (0..length_bytes).map(|_| random.between(0, 255) as u8).collect();
        // A full queue loses it, as a full link does.
        let _ = socket.send_to(&datagram, (SYNC[0], GOSSIP));
    }
    let mut refused = None;
    let is_refused = site.until(|| {
        refused = site.status(0)?.membership.and_then(|membership| membership.refused);
        Ok(refused.as_ref().is_some_and(|refused| refused.contains("not authentic")))
    })?;
    let after = members(site)?;
    Ok(Observed {
        held: is_refused && before == after && after.is_some(),
        observed: format!("members before and after: {before:?}, {after:?}"),
        operator_sees: refused.map(|refused| format!("membership refused: {refused}")).unwrap_or_default(),
    })
}
