//! What the gateway sends in the place of servers: a page, resets, and a DNS response.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flow::Tuple;
use flow::wire::build::Tcp;
use flow::wire::tcp::SegmentOptions;
use flow::wire::{Packet, TcpSegment, tcp_flags};

/// The time to live of what the gateway sends itself (RFC 1700).
const TTL: u8 = 64;
const DNS_HEADER_BYTES: usize = 12;
const DNS_RESPONSE: u8 = 0x80;
const DNS_RECURSION_AVAILABLE: u8 = 0x80;
const DNS_NAME_ERROR: u8 = 3;
/// Type and class behind the name of a question.
const DNS_QUESTION_FIXED_BYTES: usize = 4;

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

/// Turns a question into the response that the name does not exist (RFC 1035 section 4.1.1, RFC 8020). False if it cannot be.
pub(super) fn become_name_error(packet: &mut Packet<'_, '_>) -> bool {
    let query = packet.payload();
    let Some(response) = name_error(query) else { return false };
    let query_bytes = query.len();
    let tuple = packet.headers.tuple.inverse();
    packet.rewrite(&tuple);
    packet.replace_payload(0..query_bytes, &response) && packet.turn_back()
}

/// The header and the question of a query, as the response has them.
fn name_error(query: &[u8]) -> Option<Vec<u8>> {
    let mut end = DNS_HEADER_BYTES;
    loop {
        let length_bytes = usize::from(*query.get(end)?);
        end += 1 + length_bytes;
        if length_bytes == 0 {
            break;
        }
    }
    let mut response = query.get(..end + DNS_QUESTION_FIXED_BYTES)?.to_vec();
    response[2] |= DNS_RESPONSE;
    response[3] = DNS_RECURSION_AVAILABLE | DNS_NAME_ERROR;
    // One question, and no records.
    response[4..DNS_HEADER_BYTES].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
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

    #[test]
    fn a_truncated_question_has_no_response() {
        let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x03ads\x07example\0\0\x01\0\x01\0\0\x29\x10\0\0\0\0\0\0\0";
        let response = name_error(query).unwrap();
        assert_eq!(response[..12], *b"\x12\x34\x81\x83\0\x01\0\0\0\0\0\0");
        assert_eq!(response[12..], query[12..12 + 13 + 4]);
        assert!((0..12 + 13 + 4).all(|end| name_error(&query[..end]).is_none()));
    }
}
