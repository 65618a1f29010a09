//! Attacks on the URL filter: requests that a server would read otherwise than the filter, and requests that cost much to read.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::report::Observed;
use super::site::{DNS, Drops, PLAIN, Site, of_reasons, words};
use super::tracked::{Tracked, transport_of, with_md5_option, with_urgent_pointer};
use crate::demo::run::RunError;
use crate::testbed::cluster::guarded::{BLOCKED_HOST, GOOD_HOST, LENIENT, STRICT};
use crate::testbed::stranger::Stranger;
use crate::testbed::topology::SERVER;
use flow::wire::build::{Envelope, Tcp};
use flow::wire::ipv6::FragmentHeader;
use flow::wire::tcp_flags;
use network_functions::inspect::quic::Version;
use network_functions::inspect::quic::decryption::client_initial_bytes;
use network_functions::inspect::tls;

const HTTP: u16 = STRICT[0];
const TLS: u16 = STRICT[1];
/// How long a server may take to answer what reaches it.
const ANSWERED_WITHIN: Duration = Duration::from_millis(700);
/// Response code of DNS: the question is malformed.
const FORMAT_ERROR: u8 = 1;
/// How long a connection of one-byte records is sent, and again.
const RECORDS_FOR: Duration = Duration::from_secs(3);
/// What they are sent at: 14 Mbit/s.
const RECORDS_BYTES_PER_S: f64 = 14e6 / 8.0;
/// What half of the answers beside them may take at most. It was 98 ms when each segment cost as much as all before it.
const MEDIAN_MAX: Duration = Duration::from_millis(20);
/// Answers that are measured.
const ANSWERS_MIN: usize = 100;

fn request(host: &str, marker: &str) -> Vec<u8> {
    format!("GET /{marker} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

/// The decisions of the URL filter that blocked, and its drops.
fn blocked(site: &Site<'_>) -> Result<(u64, Drops), RunError> {
    let status = site.status(0)?;
    let rules = status.url_filter.iter().flat_map(|filter| &filter.rules);
    let decisions = rules.flat_map(|rule| &rule.decisions).filter(|decisions| decisions.outcome == "blocked");
    Ok((decisions.map(|decisions| decisions.count).sum(), site.drops()?))
}

/// What an operator sees of what was blocked since.
fn seen_since(site: &Site<'_>, before: &(u64, Drops)) -> Result<String, RunError> {
    let now = blocked(site)?;
    let (decisions, drops) = (now.0 - before.0, of_reasons(&before.1, &now.1, &[]));
    let parts = [(decisions > 0).then(|| format!("url_filter: blocked {decisions}")), Some(words(&drops))];
    Ok(parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; "))
}

/// Requests in forms that some servers answer, for a blocked host, where what shows no host passes.
pub(super) fn odd_forms(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let forms: [&dyn Fn(&str) -> String; 9] = [
        &|marker| format!("\r\nGET /{marker} HTTP/1.1\r\nHost: {BLOCKED_HOST}\r\n\r\n"),
        &|marker| format!("GET /{marker} HTTP/1.1\r\nHost:\r\n {BLOCKED_HOST}\r\n\r\n"),
        &|marker| format!("GET  /{marker}  HTTP/1.1\r\nHost: {BLOCKED_HOST}\r\n\r\n"),
        &|marker| format!("GET\t/{marker}\tHTTP/1.1\r\nHost: {BLOCKED_HOST}\r\n\r\n"),
        &|marker| format!("GET /{marker} HTTP/1.1 \r\nHost: {BLOCKED_HOST}\r\n\r\n"),
        &|marker| format!("get /{marker} HTTP/1.1\r\nHost: {BLOCKED_HOST}\r\n\r\n"),
        &|marker| format!("ABCDEFGHIJKLMNOPQRSTUVWXYZABCD /{marker} HTTP/1.1\r\nHost: {BLOCKED_HOST}\r\n\r\n"),
        &|marker| format!("MY_METHOD /{marker} HTTP/1.1\r\nHost: {BLOCKED_HOST}\r\n\r\n"),
        &|marker| format!("GET /{marker} HTTP/2.0\r\nHost: {BLOCKED_HOST}\r\n\r\n"),
    ];
    let before = blocked(site)?;
    let mut stranger = site.stranger(0)?;
    let mut passed = Vec::new();
    for (number, form) in forms.iter().enumerate() {
        let marker = format!("form-{number}");
        let mut tracked = site.tracked(&mut stranger, LENIENT)?;
        if tracked.is_answered(form(&marker).as_bytes(), ANSWERED_WITHIN)
            || site.servers.lenient.has_seen(marker.as_bytes())
        {
            passed.push(marker);
        }
    }
    let mut tracked = site.tracked(&mut stranger, LENIENT)?;
    let good = tracked.exchange(&request(GOOD_HOST, "good")).is_some();
    Ok(Observed {
        held: passed.is_empty() && good,
        observed: format!(
            "{} of {} forms reached the server ({}); another host's request passes: {good}",
            passed.len(),
            forms.len(),
            passed.join(", ")
        ),
        operator_sees: seen_since(site, &before)?,
    })
}

/// Sends by `forge` what the filter is to read, then the request for a blocked host by the client's own stack.
fn decoy(site: &mut Site<'_>, marker: &str, forge: &dyn Fn(&mut Stranger, &Tracked)) -> Result<Observed, RunError> {
    let before = blocked(site)?;
    let mut stranger = site.stranger(0)?;
    let mut tracked = site.tracked(&mut stranger, HTTP)?;
    forge(&mut stranger, &tracked);
    // Packets of one host are taken in their order: what the stranger sent comes first.
    let is_answered = tracked.is_answered(&request(BLOCKED_HOST, marker), ANSWERED_WITHIN);
    let has_passed = site.servers.http.has_seen(marker.as_bytes());
    drop(tracked);
    let good = site.tracked(&mut stranger, HTTP)?.exchange(&request(GOOD_HOST, "good")).is_some();
    Ok(Observed {
        held: !has_passed && good,
        observed: format!(
            "the server got the blocked request: {has_passed}; the client got an answer: {is_answered}; a request for the allowed \
             host passes: {good}"
        ),
        operator_sees: seen_since(site, &before)?,
    })
}

pub(super) fn decoy_with_old_acknowledgement(site: &mut Site<'_>) -> Result<Observed, RunError> {
    decoy(site, "old-acknowledgement", &|stranger, tracked| {
        let segment = tracked.segment();
        let segment = Tcp { acknowledgement: segment.acknowledgement.wrapping_sub(60_000), ..segment };
        let frame = stranger.envelope().tcp(&tracked.tuple, segment, &request(GOOD_HOST, "decoy"));
        stranger.send(&frame);
    })
}

pub(super) fn decoy_with_md5_option(site: &mut Site<'_>) -> Result<Observed, RunError> {
    decoy(site, "md5-option", &|stranger, tracked| {
        let decoy = request(GOOD_HOST, "decoy");
        let frame = with_md5_option(&stranger.envelope(), &tracked.tuple, tracked.segment(), &decoy);
        stranger.send(&frame);
    })
}

pub(super) fn decoy_with_low_ttl(site: &mut Site<'_>) -> Result<Observed, RunError> {
    decoy(site, "low-ttl", &|stranger, tracked| {
        let envelope = Envelope { ttl: 2, ..stranger.envelope() };
        let frame = envelope.tcp(&tracked.tuple, tracked.segment(), &request(GOOD_HOST, "decoy"));
        stranger.send(&frame);
    })
}

/// The end of an allowed request comes first, ahead of a gap. Then all of a blocked one, over it.
pub(super) fn overlapping_segments(site: &mut Site<'_>) -> Result<Observed, RunError> {
    decoy(site, "overlap", &|stranger, tracked| {
        let allowed = request(GOOD_HOST, "overlap");
        for start in [8, 20] {
            let segment = Tcp { sequence: tracked.next.wrapping_add(start), ..tracked.segment() };
            let frame = stranger.envelope().tcp(&tracked.tuple, segment, &allowed[start as usize..]);
            stranger.send(&frame);
        }
    })
}

/// A byte that a server takes out of the request, as urgent data, makes an allowed name of a blocked one.
pub(super) fn urgent_data(site: &mut Site<'_>) -> Result<Observed, RunError> {
    decoy(site, "urgent", &|stranger, tracked| {
        // The server that takes the last byte of "urgents" out reads the marker and the blocked host.
        let bytes = request(BLOCKED_HOST, "urgents");
        let urgent_bytes = 5 + "urgents".len() as u16;
        let segment = Tcp { flags: tracked.segment().flags | tcp_flags::URG, ..tracked.segment() };
        let mut frame = stranger.envelope().tcp(&tracked.tuple, segment, &bytes);
        with_urgent_pointer(&mut frame, urgent_bytes);
        stranger.send(&frame);
    })
}

/// The request for a blocked host in fragments of IP.
pub(super) fn request_in_fragments(site: &mut Site<'_>) -> Result<Observed, RunError> {
    decoy(site, "fragments", &|stranger, tracked| {
        let whole = stranger.envelope().tcp(&tracked.tuple, tracked.segment(), &request(BLOCKED_HOST, "fragments"));
        let transport = transport_of(&whole);
        let (first, last) = transport.split_at(40);
        for (offset_bytes, more, bytes) in [(0, true, first), (40, false, last)] {
            let fragment = FragmentHeader { offset_bytes, more, identification: tracked.next & 0xffff };
            let frame = Envelope { fragment: Some(fragment), ..stranger.envelope() }.raw(&tracked.tuple, bytes);
            stranger.send(&frame);
        }
    })
}

fn datagram_socket(site: &Site<'_>, port: u16) -> Result<UdpSocket, RunError> {
    let failed = |error: std::io::Error| RunError::Attack(format!("a client's socket: {error}"));
    let socket = site.topology.client.run(|| UdpSocket::bind("0.0.0.0:0"))?.map_err(failed)?;
    socket.connect(SocketAddr::new(SERVER[0], port)).map_err(failed)?;
    socket.set_read_timeout(Some(ANSWERED_WITHIN)).map_err(failed)?;
    Ok(socket)
}

/// Sends a datagram; what comes back.
fn ask(socket: &UdpSocket, datagram: &[u8]) -> Option<Vec<u8>> {
    let mut answer = [0; 2048];
    socket.send(datagram).ok()?;
    socket.recv(&mut answer).ok().map(|bytes| answer[..bytes].to_vec())
}

/// An Initial for a blocked host, of another connection, behind one that is allowed.
pub(super) fn second_initial(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let before = blocked(site)?;
    let initial = |host: &str, connection: u8| {
        let hello = tls::client_hello_bytes(&[(0, &tls::server_name_bytes(host))]);
        client_initial_bytes(Version::V1, &[connection; 8], 0, &[(0, &hello)]).unwrap_or_default()
    };
    let socket = datagram_socket(site, TLS)?;
    let [good, bad] = [initial(GOOD_HOST, 1), initial(BLOCKED_HOST, 2)];
    let is_first_answered = ask(&socket, &good).as_ref() == Some(&good);
    let is_second_answered = ask(&socket, &bad).is_some();
    let has_passed = site.servers.quic.has_seen(&bad[..64]);
    let goes_on = ask(&socket, &good).is_some();
    Ok(Observed {
        held: is_first_answered && !is_second_answered && !has_passed && goes_on,
        observed: format!(
            "the allowed connection's datagram passes: {is_first_answered}, and again: {goes_on}; the blocked one's passes: \
             {has_passed}"
        ),
        operator_sees: seen_since(site, &before)?,
    })
}

/// A message with a question for an allowed name and one for a blocked name.
pub(super) fn two_questions(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let before = blocked(site)?;
    let mut message = b"\x12\x34\x01\0\0\x02\0\0\0\0\0\0".to_vec();
    for host in [GOOD_HOST, BLOCKED_HOST] {
        for label in host.split('.') {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
        message.extend(b"\0\0\x01\0\x01");
    }
    let answer = ask(&datagram_socket(site, DNS)?, &message);
    let code = answer.as_ref().and_then(|answer| answer.get(3)).map(|byte| byte & 0xf);
    let has_passed = site.servers.dns.has_seen(&message);
    Ok(Observed {
        held: !has_passed && code == Some(FORMAT_ERROR),
        observed: format!("the server got the message: {has_passed}; the gateway's response code: {code:?}"),
        operator_sees: seen_since(site, &before)?,
    })
}

/// Records of one byte at 14 Mbit/s, beside questions to another server.
pub(super) fn one_byte_records(site: &mut Site<'_>) -> Result<Observed, RunError> {
    let before = blocked(site)?;
    let mut stranger = site.stranger(0)?;
    let mut tracked = site.tracked(&mut stranger, PLAIN)?;
    let quiet = times(&mut tracked, |answers| answers >= ANSWERS_MIN);
    let (is_over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let sender = {
        let (topology, is_over, sent) = (Arc::clone(&site.topology), Arc::clone(&is_over), Arc::clone(&sent));
        thread::spawn(move || topology.client.run(|| send_records(&is_over, &sent)))
    };
    let began = Instant::now();
    let busy = times(&mut tracked, |answers| answers >= ANSWERS_MIN && began.elapsed() >= RECORDS_FOR);
    is_over.store(true, Ordering::Relaxed);
    // It ends with its last connection, which may have failed.
    let _ = sender.join();
    let megabits_per_s = sent.load(Ordering::Relaxed) as f64 * 8.0 / 1e6 / began.elapsed().as_secs_f64();
    let (Some(quiet), Some(busy)) = (quiet, busy) else {
        return Ok(Observed::broken("a question beside the records was not answered".to_owned()));
    };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Observed {
        held: busy.0 <= MEDIAN_MAX && sent.load(Ordering::Relaxed) > 0,
        observed: format!(
            "answers beside {megabits_per_s:.1} Mbit/s of records took {:.2} ms (median) and {:.2} ms (1 % longer), without \
             {:.2} and {:.2} ms",
            ms(busy.0),
            ms(busy.1),
            ms(quiet.0),
            ms(quiet.1)
        ),
        operator_sees: seen_since(site, &before)?,
    })
}

/// Median and 99th percentile of the times that answers take, until there are enough. `None`: one did not come.
fn times(tracked: &mut Tracked, is_enough: impl Fn(usize) -> bool) -> Option<(Duration, Duration)> {
    let mut times = Vec::new();
    while !is_enough(times.len()) {
        times.push(tracked.exchange(b"ping")?);
        thread::sleep(Duration::from_millis(1));
    }
    times.sort_unstable();
    Some((times[times.len() / 2], times[times.len() * 99 / 100]))
}

/// Sends records of one byte, connection after connection.
fn send_records(is_over: &AtomicBool, sent: &AtomicU64) {
    let extensions = vec![(1, &b""[..]); 4000];
    let records = tls::in_records(&tls::client_hello_bytes(&extensions), 1);
    let began = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut stream) = std::net::TcpStream::connect((SERVER[0], TLS)) else { continue };
        for piece in records.chunks(1400) {
            let due = sent.load(Ordering::Relaxed) as f64 / RECORDS_BYTES_PER_S;
            thread::sleep(Duration::from_secs_f64(due).saturating_sub(began.elapsed()));
            if stream.write_all(piece).is_err() {
                break;
            }
            sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    }
}
