//! What the gateway sends in the place of servers: a page, resets, and a DNS response.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flow::Tuple;
use flow::wire::build::Tcp;
use flow::wire::tcp::SegmentOptions;
use flow::wire::{Packet, TcpSegment, tcp_flags};

use crate::inspect::dns;

/// The time to live of what the gateway sends itself (RFC 1700).
const TTL: u8 = 64;
const DNS_RESPONSE: u8 = 0x80;
const DNS_RECURSION_DESIRED: u8 = 0x01;
const DNS_RECURSION_AVAILABLE: u8 = 0x80;
/// How long a resolver may remember that a name does not exist, in seconds (RFC 2308 section 5). Lists change with a reload.
const NEGATIVE_TTL_S: u8 = 60;
/// The SOA record of the root: without one, a negative answer is not remembered (RFC 2308 section 2.1). Owner, type, class, time to live, length; then server
/// and mailbox, which are the root, serial, refresh, retry, expire and minimum.
const AUTHORITY: [u8; 33] = [
    0,
    0,
    6,
    0,
    1,
    0,
    0,
    0,
    NEGATIVE_TTL_S,
    0,
    22,
    0,
    0,
    0,
    0,
    0,
    1,
    0,
    0,
    14,
    16,
    0,
    0,
    2,
    88,
    0,
    1,
    81,
    128,
    0,
    0,
    0,
    NEGATIVE_TTL_S,
];
/// A record of EDNS, version 0: datagrams of up to 1232 bytes (RFC 6891 section 6.1.2).
const EDNS_RECORD: [u8; 11] = [0, 0, dns::EDNS as u8, 4, 208, 0, 0, 0, 0, 0, 0];

/// The response to a request of a blocked category. `HEAD` has no content (RFC 9110 section 9.3.2). It fits the smallest segment
/// that hosts must take, 536 bytes (RFC 9293 section 3.7.1).
pub(super) fn page(category: &str, is_head: bool) -> String {
    let content = format!(
        "<!doctype html><title>Blocked</title><h1>Blocked</h1><p>The gateway of this network does not permit pages of the category \
         <b>{category}</b>.\n"
    );
    let head = format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Connection: close\r\n\r\n",
        content.len()
    );
    if is_head { head } else { head + &content }
}

/// Turns a client's segment into the server's response to it, with the end of the stream. Returns false if its frame has no room; the packet
/// is then a segment without payload, and not to be sent.
pub(super) fn become_response(
    packet: &mut Packet<'_, '_>,
    to_client: &Tuple,
    segment: &TcpSegment,
    response: &[u8],
) -> bool {
    let timestamps = SegmentOptions::read(packet.tcp_header()).timestamps;
    let tcp = Tcp {
        flags: tcp_flags::PSH | tcp_flags::ACK | tcp_flags::FIN,
        sequence: segment.acknowledgement,
        acknowledgement: segment.end(),
        timestamps: timestamps.map(|(value, echo)| (echo, value)),
        ..Tcp::default()
    };
    packet.become_segment(to_client, TTL, &tcp) && packet.replace_payload(0..0, response) && packet.turn_back()
}

/// Turns a client's segment into a reset of the client (RFC 9293 section 3.10.7.1). False if it cannot be.
pub(super) fn become_reset_of_client(packet: &mut Packet<'_, '_>, to_client: &Tuple, segment: &TcpSegment) -> bool {
    let tcp = Tcp { flags: tcp_flags::RST, sequence: segment.acknowledgement, window: 0, ..Tcp::default() };
    packet.become_segment(to_client, TTL, &tcp) && packet.turn_back()
}

/// Turns a server's segment into a reset of the client that it goes to. False if it cannot be.
pub(super) fn become_reset_of_receiver(packet: &mut Packet<'_, '_>, segment: &TcpSegment) -> bool {
    let tcp = Tcp {
        flags: tcp_flags::RST | tcp_flags::ACK,
        sequence: segment.sequence,
        acknowledgement: segment.acknowledgement,
        window: 0,
        ..Tcp::default()
    };
    let (tuple, ttl) = (packet.headers.tuple, packet.headers.ttl);
    packet.become_segment(&tuple, ttl, &tcp)
}

/// Why a DNS query has no answer (RFC 1035 section 4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResponseCode {
    /// It cannot be interpreted, or has several questions (RFC 9619).
    FormatError = 1,
    /// The name does not exist (RFC 8020).
    NameError = 3,
}

/// Turns a query into the response to it. False if it cannot be.
pub(super) fn become_refusal(packet: &mut Packet<'_, '_>, code: ResponseCode) -> bool {
    let query = packet.payload();
    let Some(response) = refusal(query, code) else { return false };
    let query_bytes = query.len();
    let tuple = packet.headers.tuple.inverse();
    packet.rewrite(&tuple);
    packet.replace_payload(0..query_bytes, &response) && packet.turn_back()
}

/// The response to a query over TCP, behind its length.
pub(super) fn over_tcp(query: &[u8], code: ResponseCode) -> Option<Vec<u8>> {
    let response = refusal(query, code)?;
    Some([&(response.len() as u16).to_be_bytes()[..], &response].concat())
}

/// The response to a query: its header, and for a name that does not exist its question, the authority for that, and EDNS if the query has it.
fn refusal(query: &[u8], code: ResponseCode) -> Option<Vec<u8>> {
    let mut response = query.get(..dns::HEADER_BYTES)?.to_vec();
    response[2] = (response[2] & DNS_RECURSION_DESIRED) | DNS_RESPONSE;
    response[3] = DNS_RECURSION_AVAILABLE | code as u8;
    response[4..].fill(0);
    if code == ResponseCode::FormatError {
        return Some(response);
    }
    let has_edns = dns::has_edns(query);
    // A question, a record of the authority, and one of EDNS.
    (response[5], response[9], response[11]) = (1, 1, u8::from(has_edns));
    let mut end = dns::HEADER_BYTES;
    loop {
        let length_bytes = usize::from(*query.get(end)?);
        end += 1 + length_bytes;
        if length_bytes == 0 {
            break;
        }
    }
    response.extend(query.get(dns::HEADER_BYTES..end + dns::QUESTION_FIXED_BYTES)?);
    response.extend(AUTHORITY);
    if has_edns {
        response.extend(EDNS_RECORD);
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_fits_the_smallest_segment() {
        let page = page(&"x".repeat(32), false);
        assert!(page.len() <= 536 - 12, "{} bytes, with timestamps", page.len());
        let (head, content) = page.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", content.len())), "{head}");
        assert!(super::page("ads", true).ends_with("\r\n\r\n"));
    }

    /// Resolvers take these messages apart: header, question, SOA, EDNS.
    #[test]
    fn a_refused_name_has_an_authority_and_edns_if_the_query_has_it() {
        let question = b"\x03ads\x07example\0\0\x01\0\x01";
        let edns = b"\0\0\x29\x10\0\0\0\x80\0\0\x0c\0\x0a\0\x08abcdefgh";
        for (additional, edns) in [(0, &b""[..]), (1, edns)] {
            let query = [&b"\x12\x34\x01\x20\0\x01\0\0\0\0\0"[..], &[additional], question, edns].concat();
            let response = refusal(&query, ResponseCode::NameError).unwrap();
            assert_eq!(response[..12], [&b"\x12\x34\x81\x83\0\x01\0\0\0\x01\0"[..], &[additional]].concat());
            assert_eq!(&response[12..12 + question.len()], question);
            let records = &response[12 + question.len()..];
            assert_eq!(records[..11], [0, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22]);
            assert_eq!(records.len(), 11 + 22 + 11 * usize::from(additional));
            assert!(additional == 0 || records[33..] == [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
            assert!((0..12 + question.len()).all(|end| refusal(&query[..end], ResponseCode::NameError).is_none()));
        }
        let two = [&b"\x12\x34\x01\0\0\x02\0\0\0\0\0\0"[..], question, question].concat();
        assert_eq!(refusal(&two, ResponseCode::FormatError).unwrap(), b"\x12\x34\x81\x81\0\0\0\0\0\0\0\0");
    }
}
