//! The parsers on bytes made by hand, and properties: they never panic, and a settled answer stays with every further byte.

use std::format;
use std::vec;
use std::vec::Vec;

use flow::Tuple;
use proptest::prelude::*;

use super::assembly::{ASSEMBLIES_MAX, ASSEMBLY_BYTES_MAX, Assemblies, Comparison, INSERTIONS_MAX, StreamKey, Unheld};
use super::protocol::{self, Protocol, of_datagram, of_server};
use super::quic::{INITIAL_DATAGRAM_BYTES_MIN, Version};
use super::*;

fn name(text: &str) -> Option<HostName> {
    Some(HostName::new(text.as_bytes()).expect(text))
}

fn hello(server: &str) -> Vec<u8> {
    // As browsers send it: a large key share before the name.
    tls::client_hello_bytes(&[(51, &[7; 1216]), (0, &tls::server_name_bytes(server)), (16, b"\0\x03\x02h2")])
}

/// The protocol of a whole prefix.
fn of_client(prefix: &[u8]) -> Inspected<Protocol> {
    protocol::of_client(prefix, &mut Progress::default())
}

/// The parser's answer for every prefix. Once it is settled it must stay.
fn answers<T: PartialEq + core::fmt::Debug>(bytes: &[u8], parse: impl Fn(&[u8]) -> Inspected<T>) -> Inspected<T> {
    let mut settled: Option<Inspected<T>> = None;
    for end in 0..=bytes.len() {
        let answer = parse(&bytes[..end]);
        if let Some(settled) = &settled {
            assert_eq!(&answer, settled, "changed with byte {end} of {bytes:02x?}");
        } else if answer.is_settled() {
            settled = Some(answer);
        }
    }
    settled.unwrap_or(Inspected::Partial)
}

#[test]
fn the_server_name_of_a_client_hello_is_found_in_records_of_any_size() {
    let message = hello("Video.Example.org");
    for record_bytes in [1, 7, 100, 1300, 1 << 14] {
        let stream = tls::in_records(&message, record_bytes);
        let found = answers(&stream, tls::client_hello).found().expect("a ClientHello");
        assert_eq!(found.server_name, name("video.example.org"), "records of {record_bytes}");
    }
}

#[test]
fn a_client_hello_without_a_name_is_one() {
    let address = tls::server_name_bytes("2001:db8::1");
    for extensions in [&[][..], &[(16, &b"\0\x03\x02h2"[..])], &[(0, b"\0\0")], &[(0, &address)]] {
        let stream = tls::in_records(&tls::client_hello_bytes(extensions), 1 << 14);
        assert_eq!(answers(&stream, tls::client_hello).found().expect("a ClientHello").server_name, None);
    }
}

/// nginx takes what is before the colon for the name.
#[test]
fn a_server_name_that_is_none_is_malformed() {
    let names =
        ["ads.example:443", "ads.example/", "u@ads.example", "ads..example", "ads.example ", "", "[2001:db8::1]"];
    let lists = names.map(tls::server_name_bytes);
    for list in lists.iter().map(Vec::as_slice).chain([&b""[..], b"\0\x05\0\0\x02\xff\xfe", b"\0\x05\0\0\x09ad"]) {
        let stream = tls::in_records(&tls::client_hello_bytes(&[(0, list)]), 1 << 14);
        assert_eq!(answers(&stream, tls::client_hello), Inspected::Malformed, "{list:02x?}");
    }
}

#[test]
fn other_records_and_impossible_lengths_are_no_client_hello() {
    let serverhello = tls::in_records(&[2, 0, 0, 0], 1 << 14);
    let alert = [21, 3, 3, 0, 2, 2, 40];
    let too_long = [22, 3, 1, 0x40, 1, 1];
    let mut beyond = tls::client_hello_bytes(&[]);
    beyond.splice(39..41, [0xff, 0xff]); // The cipher suites end behind the message.
    for bytes in [&serverhello[..], &alert, &too_long, &tls::in_records(&beyond, 1 << 14)] {
        assert_eq!(answers(bytes, tls::client_hello), Inspected::Other, "{bytes:02x?}");
    }
}

#[test]
fn the_host_of_a_request_is_its_field_or_its_target() {
    type Case = (&'static [u8], &'static str, Option<&'static [u8]>);
    let cases: [Case; 5] = [
        (b"GET /a?b HTTP/1.1\r\nAccept: */*\r\nhOST:  A.example:80 \r\n\r\n", "a.example", Some(b"/a?b")),
        (b"GET http://u@b.example:8080/x HTTP/1.1\r\nHost: b.example:8080\r\n\r\n", "b.example", Some(b"/x")),
        (b"GET http://b.example HTTP/1.1\r\n\r\n", "b.example", Some(b"/")),
        (b"CONNECT c.example:443 HTTP/1.1\n\n", "c.example", None),
        (b"M-SEARCH * HTTP/1.1\nHost:239.255.255.250:1900\n\n", "239.255.255.250", None),
    ];
    for (bytes, host, path) in cases {
        let request = answers(bytes, |prefix| http::request(prefix).map(|request| request.host));
        assert_eq!(request.found(), Some(name(host)));
        assert_eq!(http::request(bytes).found().unwrap().path(), path);
    }
    let without = answers(b"GET / HTTP/1.0\r\n\r\n", |prefix| http::request(prefix).map(|request| request.host));
    assert_eq!(without, Inspected::Found(None));
}

/// Each is answered by nginx, Apache or HAProxy with the page of the host.
#[test]
fn a_request_is_read_as_the_most_lenient_recipient_reads_it() {
    let forms = [
        "\r\n\r\nGET /ads HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        " GET /ads HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET /ads HTTP/1.1\r\nHost:\r\n ads.example\r\n\r\n",
        "GET /ads HTTP/1.1\r\nHost: \r\n\t\r\n ads.example:80 \r\nAccept: x\r\n\r\n",
        "GET  /ads   HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET\t/ads\tHTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET /ads HTTP/1.1 \r\nHost:\tads.example\r\n\r\n",
        "get /ads HTTP/1.1\r\nhOSt:ads.example.\r\n\r\n",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF /ads HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "VERSION_CONTROL /ads HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET /ads HTTP/2.0\r\nHost: ads.example\r\n\r\n",
        "GET /ads http/1.1\nX: a\n b\nHost: ads.example\n\n",
        "GET http://ads.example/ads HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET http://ads.example/ads\r\n\r\n",
        "GET /ads\r\nHost: ads.example\r\n\r\n",
        "G(T: /ads HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET /ads ICAP/1.0\r\nHost: ads.example\r\n\r\n",
        "GET /ads HTTPS/1.1\r\nHost: ads.example\r\n\r\n",
    ];
    for form in forms {
        let read = answers(form.as_bytes(), |prefix| {
            http::request(prefix).map(|request| (request.host.clone(), request.path().map(<[u8]>::to_vec)))
        });
        assert_eq!(read, Inspected::Found((name("ads.example"), Some(b"/ads".to_vec()))), "{form:?}");
    }
}

#[test]
fn a_request_that_recipients_read_in_different_ways_is_malformed() {
    let forms = [
        "GET / HTTP/1.1\r\nHost : good.example\r\nHost: ads.example\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: good.example\r\nHost: ads.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: good.example\r\n ads.example\r\n\r\n",
        "GET / HTTP/1.1\r\nX: a\rHost: ads.example\r\n\r\n",
        "GET / HTTP/1.1\rX: a\r\nHost: ads.example\r\n\r\n",
        "GET /\u{1} HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET / HTTP/1.1 x\r\nHost: ads.example\r\n\r\n",
        "GET HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET\r/ HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET http://good.example/ HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET http://[2001:db8::1]/ HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET http://a!b/ HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET ws://good.example?/ HTTP/1.0\r\nHost: ads.example\r\n\r\n",
        "CONNECT good.example:80 HTTP/1.1\r\nHost: ads.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ads.example\0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ads.example\0.good.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\u{b}ads.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ads.example\u{a0}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: good.example,ads.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: good.example:x@ads.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [ads.example]\r\n\r\n",
    ];
    for form in forms {
        let read = answers(form.as_bytes(), |prefix| http::request(prefix).map(|_| ()));
        assert_eq!(read, Inspected::Malformed, "{form:?}");
    }
}

#[test]
fn what_is_no_request_is_none() {
    for bytes in [
        &b"hello\r\n"[..],
        b"NICK a\r\n",
        b"\xef\xbb\xbfGET / HTTP/1.1\r\n",
        b"SSH-2.0-x\r\n",
        b"get key\r\n",
        b"A\x01",
        b"<a b\r\n",
        b"GET\r\n",
        b"POST /\r\n",
    ] {
        assert_eq!(answers(bytes, |prefix| http::request(prefix).map(|_| ())), Inspected::Other, "{bytes:?}");
    }
    for bytes in [
        &b"GET /\r\n\r\n"[..],
        b"INVITE sip:a SIP/2.0\r\nTo: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n",
        b"GET / HTTP/1.1\nHost:\n\n",
    ] {
        assert_eq!(answers(bytes, |prefix| http::request(prefix).map(|it| it.host)), Inspected::Found(None));
    }
}

/// Servers read longer heads than a reader that holds their beginning.
#[test]
fn a_head_that_is_given_up_is_malformed_and_other_bytes_are_not() {
    let given_up = |bytes: &[u8]| {
        let mut progress = Progress::default();
        assert!(!progress.client_hello.read(bytes).is_settled() || !progress.request.read(bytes).is_settled());
        progress.given_up(bytes)
    };
    let long = vec![b'a'; ASSEMBLY_BYTES_MAX];
    let client_hello =
        tls::in_records(&tls::client_hello_bytes(&[(21, &long), (0, &tls::server_name_bytes("ads.example"))]), 1 << 14);
    for head in [
        &b"\r\n\r\n"[..],
        b"GET   ",
        b"GET /aaa",
        b"GET http://aaa",
        b"GET / HTTP/1.1\r\nX: aaa",
        b"GET / HTTP/1.1\r\nX: aaa\r\nHost:",
        b"GET http://good.example/ HTTP/1.1\r\nX: aaa",
        &client_hello[..ASSEMBLY_BYTES_MAX],
    ] {
        assert_eq!(given_up(head), Inspected::Malformed, "{:?}", &head[..head.len().min(40)]);
    }
    for other in [&long[..], b"a bbb"] {
        assert_eq!(given_up(other), Inspected::Other, "{:?}", &other[..other.len().min(40)]);
    }
}

#[test]
fn empty_records_and_alerts_between_the_parts_of_a_client_hello_are_skipped() {
    let message = hello("ads.example");
    let (first, second) = message.split_at(700);
    let stream = [&tls::in_records(first, 1 << 14)[..], &[22, 3, 1, 0, 0], &[21, 3, 3, 0, 2, 1, 90]].concat();
    let stream = [stream, tls::in_records(second, 1 << 14)].concat();
    let found = answers(&stream, tls::client_hello).found().expect("a ClientHello");
    assert_eq!(found.server_name, name("ads.example"));
}

#[test]
fn a_response_has_a_status_and_a_media_type() {
    let bytes = b"HTTP/1.1 206 Partial Content\r\nServer: x\r\nContent-Type: Video/MP4; codecs=\"a\"\r\n\r\n";
    let response = answers(bytes, http::response).found().unwrap();
    assert_eq!((response.status, response.media_type.as_deref()), (206, Some(&b"video/mp4"[..])));
    let bytes = b"HTTP/1.1 304 Not Modified\r\n\r\n";
    assert_eq!(answers(bytes, http::response).found().unwrap().media_type, None);
    for bytes in [&b"HTTP/1.1 20 x\r\n"[..], b"HTTP/2 200\r\n", b"220 x\r\n"] {
        assert_eq!(answers(bytes, http::response), Inspected::Other);
    }
}

/// A query for `labels`, of type A.
fn query(flags: u16, labels: &[&str]) -> Vec<u8> {
    let mut message = vec![0xab, 0xcd];
    message.extend(flags.to_be_bytes());
    message.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    for label in labels {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

#[test]
fn a_question_names_what_is_asked_for() {
    let message = query(0x0100, &["WWW", "example", "org"]);
    let expected = dns::Question { name: name("www.example.org"), kind: 1, is_response: false };
    assert_eq!(dns::question(&message), Inspected::Found(expected.clone()));
    let stream = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
    assert_eq!(answers(&stream, dns::question_over_tcp), Inspected::Found(expected));
    assert!(dns::question(&query(0x8180, &["a"])).found().unwrap().is_response);
    assert_eq!(dns::question(&query(0, &[])).found().unwrap().name, None);
}

#[test]
fn compressed_names_other_operations_and_truncated_messages_are_no_question() {
    let mut compressed = query(0, &["a"]);
    compressed[12..14].copy_from_slice(&[0xc0, 12]);
    let update = query(5 << 11, &["a"]);
    let truncated = query(0, &["example"]);
    for message in [&compressed[..], &update, &truncated[..truncated.len() - 1], &[]] {
        assert_eq!(dns::question(message), Inspected::Other, "{message:02x?}");
    }
    let long = ["a123456789b123456789c123456789d123456789e123456789f123456789"; 5];
    assert_eq!(dns::question(&query(0, &long)), Inspected::Other, "longer than a name may be");
}

/// An Initial packet with an id of 8 bytes, in a datagram of the least length.
fn initial(version: u32, first: u8) -> Vec<u8> {
    let mut datagram = vec![first];
    datagram.extend(version.to_be_bytes());
    datagram.extend([8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x80]);
    datagram.resize(INITIAL_DATAGRAM_BYTES_MIN, 0);
    datagram
}

#[test]
fn long_headers_show_version_and_connection_ids() {
    for (number, first, version) in [(1, 0xc3, Version::V1), (0x6b33_43cf, 0xd3, Version::V2)] {
        let datagram = initial(number, first);
        let header = quic::long_header(&datagram).found().expect("a long header");
        assert_eq!((header.version, header.destination_id), (number, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
        let initial = header.initial.expect("an Initial packet");
        assert_eq!((initial.version, initial.number_offset, initial.protected.len()), (version, 18, 0x480));
        assert!(quic::is_first(&datagram) && !quic::is_first(&datagram[..1199]));
    }
    let handshake = initial(1, 0xe3);
    assert_eq!(quic::long_header(&handshake).found().unwrap().initial, None);
    assert!(!quic::is_first(&handshake));
    assert!(quic::is_first(&initial(0xff00_001d, 0xc3)), "of a version that is not known");
    for (version, first) in [(1, 0x43), (1, 0x83)] {
        assert_eq!(quic::long_header(&initial(version, first)), Inspected::Other, "{first:x}");
    }
}

#[test]
fn protocols_are_recognised_by_what_their_clients_send_first() {
    let dns = query(0, &["a"]);
    let cases: Vec<(Vec<u8>, Protocol)> = vec![
        (tls::in_records(&hello("a.example"), 1 << 14), Protocol::Tls(name("a.example"))),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Protocol::Http(name("a"))),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), Protocol::Http2),
        (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), Protocol::Ssh),
        (b"INVITE sip:a@example.org SIP/2.0\r\n".to_vec(), Protocol::Sip),
        (b"OPTIONS rtsp://example.org RTSP/2.0\r\n".to_vec(), Protocol::Rtsp),
        (b"\x13BitTorrent protocol\0\0".to_vec(), Protocol::PeerToPeer),
        (b"GNUTELLA CONNECT/0.6\r\n".to_vec(), Protocol::PeerToPeer),
        (b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x03\0\0\0".to_vec(), Protocol::RemoteDesktop),
        (b"<?xml version='1.0'?><stream:stream xmlns='jabber:client'>".to_vec(), Protocol::Messages),
        (b"NICK a\r\n".to_vec(), Protocol::Messages),
        (b"\x10\x84\x01\0\x04MQTT\x05".to_vec(), Protocol::Messages),
        (b"EHLO a.example\r\n".to_vec(), Protocol::Mail),
        ([&(dns.len() as u16).to_be_bytes()[..], &dns].concat(), Protocol::Dns),
    ];
    for (bytes, expected) in cases {
        assert_eq!(answers(&bytes, of_client), Inspected::Found(expected), "{}", bytes.escape_ascii());
    }
    for bytes in [&b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"[..], b"hello\r\n", b"\x05\x01\0"]
    {
        let padded = [bytes, &[0xff; 300]].concat();
        assert_eq!(answers(&padded, of_client), Inspected::Other, "{bytes:02x?}");
    }
}

#[test]
fn protocols_are_recognised_by_what_their_servers_send_first() {
    let cases: [(&[u8], Protocol); 7] = [
        (b"SSH-2.0-x\r\n", Protocol::Ssh),
        (b"RFB 003.008\n", Protocol::RemoteDesktop),
        (b"220 mx.example.org ESMTP\r\n", Protocol::Mail),
        (b"220 (vsFTPd 3.0)\r\n", Protocol::FileTransfer),
        (b"+OK ready\r\n", Protocol::Mail),
        (b"* OK IMAP4rev2\r\n", Protocol::Mail),
        (b"@RSYNCD: 31.0\n", Protocol::FileTransfer),
    ];
    for (bytes, expected) in cases {
        assert_eq!(answers(bytes, of_server), Inspected::Found(expected));
    }
    assert_eq!(answers(b"220 welcome\r\n", of_server), Inspected::Other);
}

#[test]
fn protocols_are_recognised_by_a_datagram() {
    let stun = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[9; 12]].concat();
    let cases: [(Vec<u8>, Protocol); 6] = [
        (initial(1, 0xc0), Protocol::Quic(None)),
        (stun, Protocol::Stun),
        (b"\x16\xfe\xfd\0\0".to_vec(), Protocol::Dtls),
        (b"d1:ad2:id20:aaaaaaaaaaaaaaaaaaaae1:q4:ping".to_vec(), Protocol::PeerToPeer),
        (b"REGISTER sip:example.org SIP/2.0\r\n".to_vec(), Protocol::Sip),
        (query(0, &["a"]), Protocol::Dns),
    ];
    for (datagram, expected) in cases {
        assert_eq!(of_datagram(&datagram), Inspected::Found(expected));
    }
    for datagram in [&b""[..], b"x", &[0; 40]] {
        assert_eq!(of_datagram(datagram), Inspected::Other);
    }
}

/// The function that reads the streams.
const READER: u16 = 6;

fn tuple(number: u16) -> Tuple {
    Tuple {
        source: [1; 16],
        destination: [2; 16],
        source_port: number,
        destination_port: 443,
        protocol: 6,
        version: 6,
        discriminator: 0,
    }
}

fn stream(number: u16) -> StreamKey {
    StreamKey::new(READER, &tuple(number))
}

/// What is there from the beginning, once these bytes are, too.
fn inserted(held: &mut Assemblies, number: u16, start: u32, offset: usize, bytes: &[u8]) -> Result<Vec<u8>, Unheld> {
    held.insert(&stream(number), start, offset, bytes).map(|held| held.prefix.to_vec())
}

#[test]
fn segments_out_of_order_are_joined_and_copies_with_other_bytes_are_refused() {
    let mut held = Assemblies::default();
    let mut insert = |start, offset, bytes: &[u8]| inserted(&mut held, 1, start, offset, bytes);
    let prefix = |bytes: &[u8]| Ok(bytes.to_vec());
    assert_eq!(insert(5, 0, b"abc"), prefix(b"abc"));
    assert_eq!(insert(5, 6, b"ghi"), prefix(b"abc"), "after a gap");
    assert_eq!(insert(5, 1, b"bX"), Err(Unheld::Differs));
    assert_eq!(insert(5, 20, b"far"), prefix(b"abc"), "after another gap");
    assert_eq!(insert(5, 3, b"defXX"), Err(Unheld::Differs), "from what came too early");
    assert_eq!(insert(5, 2, b"cdefgh"), prefix(b"abcdefghi"));
    assert_eq!(insert(5, 9, b"jklmnopqrst"), prefix(b"abcdefghijklmnopqrstfar"));
    assert_eq!(insert(6, 0, b"new"), prefix(b"new"), "another connection with the tuple");
    held.remove(&stream(1));
    assert!(held.is_empty() && !held.holds(&stream(1), 6));
}

#[test]
fn ranges_are_joined_in_any_order_and_limited_in_number() {
    let stream: Vec<u8> = (0..100).collect();
    // Every second byte from behind, as far as there is room, then the others.
    let mut held = Assemblies::default();
    let refused = (1..100)
        .step_by(2)
        .rev()
        .filter(|at| inserted(&mut held, 1, 0, *at, &stream[*at..=*at]).is_err_and(|unheld| unheld == Unheld::Ahead));
    assert!(refused.count() > 0);
    for at in (0..100).step_by(2) {
        let _ = inserted(&mut held, 1, 0, at, &stream[at..=at]);
    }
    let prefix = inserted(&mut held, 1, 0, 0, b"").expect("nothing contradicts");
    assert!(!prefix.is_empty() && prefix.len() < 100 && stream.starts_with(&prefix), "{}", prefix.len());
    assert_eq!(inserted(&mut held, 1, 0, 0, &stream), Ok(stream));
}

#[test]
fn what_is_held_is_limited_in_bytes_insertions_and_connections() {
    let mut held = Assemblies::default();
    let mut length = |offset, bytes: &[u8]| inserted(&mut held, 0, 0, offset, bytes).map(|prefix| prefix.len());
    assert_eq!(length(100, &[1; ASSEMBLY_BYTES_MAX]), Err(Unheld::Ahead));
    assert_eq!(length(0, &[1; ASSEMBLY_BYTES_MAX + 9]), Ok(ASSEMBLY_BYTES_MAX));
    assert_eq!(length(ASSEMBLY_BYTES_MAX, &[1; 9]), Ok(ASSEMBLY_BYTES_MAX));
    assert_eq!(length(usize::MAX, &[1; 9]), Err(Unheld::Ahead));
    for number in 1..=ASSEMBLIES_MAX as u16 {
        inserted(&mut held, number, 0, 0, b"a").expect("it finds room");
    }
    assert_eq!((held.len(), held.evicted()), (ASSEMBLIES_MAX, 1));
    assert!(!held.holds(&stream(0), 0) && held.holds(&stream(1), 0), "the one that waited longest has gone");
    // Connections that come and go do not make the queue grow.
    for number in 0..10_000 {
        inserted(&mut held, number, 1, 0, b"a").expect("it finds room");
        held.remove(&stream(number));
    }
    assert!(held.len() <= ASSEMBLIES_MAX);
    for _ in 0..INSERTIONS_MAX {
        inserted(&mut held, 1, 2, 0, b"a").expect("a repetition");
    }
    assert_eq!(inserted(&mut held, 1, 2, 1, b"b"), Err(Unheld::TooMany));
}

#[test]
fn what_is_held_is_compared_until_its_receiver_has_acknowledged_it() {
    let mut held = Assemblies::default();
    let start = u32::MAX - 1;
    inserted(&mut held, 1, start, 0, b"abcd").expect("it finds room");
    let compare = |held: &Assemblies, sequence: u32, bytes: &[u8]| held.compare(&stream(1), sequence, bytes);
    assert_eq!(compare(&held, start, b"abcdef"), Comparison::Same);
    assert_eq!(compare(&held, start.wrapping_sub(1), b"?ab"), Comparison::Same);
    assert_eq!(compare(&held, start.wrapping_sub(1), b"?aX"), Comparison::Differs);
    assert_eq!(compare(&held, 1, b"Xy"), Comparison::Differs, "the last byte");
    assert_eq!(compare(&held, 2, b"Xy"), Comparison::Same, "behind it");
    assert!(!held.confirm(&stream(1), 1) && held.confirm(&stream(1), 2));
    assert_eq!(compare(&held, start, b"X"), Comparison::NotHeld);
}

/// Parsers go on where they were, however a stream is divided.
#[test]
fn a_parser_that_goes_on_has_the_answer_of_one_that_begins_anew() {
    let streams = [
        tls::in_records(&hello("video.example.org"), 1),
        b"\r\nGET  /a HTTP/1.1\r\nX: y\r\nHost:\r\n a.example\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
    ];
    for stream in streams {
        for part_bytes in [1, 3, 100] {
            let mut progress = Progress::default();
            for end in (part_bytes..stream.len()).step_by(part_bytes).chain([stream.len()]) {
                let prefix = &stream[..end];
                assert_eq!(protocol::of_client(prefix, &mut progress), of_client(prefix), "{end} of {part_bytes}");
            }
        }
    }
}

/// Bytes that lead far into the parsers: beginnings of valid ones, changed.
fn near_valid() -> impl Strategy<Value = Vec<u8>> {
    let seeds = prop::sample::select(vec![
        tls::in_records(&tls::client_hello_bytes(&[(0, &tls::server_name_bytes("a.example"))]), 60),
        b"GET http://a.example/ HTTP/1.1\r\nHost: b\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\n\r\n".to_vec(),
        b"OPTIONS sip:a SIP/2.0\r\n".to_vec(),
        b"220 a SMTP\r\n".to_vec(),
        b"<?xml ?><stream:stream xmlns='jabber:client'>".to_vec(),
        b"\x10\x84\x01\0\x04MQTT\x05".to_vec(),
        [&[0, 19][..], &query(0, &["a"])].concat(),
        initial(1, 0xc3)[..40].to_vec(),
    ]);
    (seeds, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), any::<prop::sample::Index>())
        .prop_map(|(mut bytes, changes, end)| {
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(end.index(bytes.len() + 1));
            bytes
        })
}

proptest! {
    #[test]
    fn more_bytes_never_change_a_settled_answer(
        bytes in prop_oneof![near_valid(), prop::collection::vec(any::<u8>(), 0..80)],
    ) {
        answers(&bytes, tls::client_hello);
        answers(&bytes, tls::client_hello_message);
        answers(&bytes, |prefix| http::request(prefix).map(|request| format!("{request:?}")));
        answers(&bytes, http::response);
        answers(&bytes, dns::question_over_tcp);
        answers(&bytes, of_client);
        answers(&bytes, of_server);
        let _ = (dns::question(&bytes), quic::long_header(&bytes).found().is_some(), of_datagram(&bytes));
    }

    #[test]
    fn a_stream_in_any_order_of_segments_is_joined(
        stream in prop::collection::vec(any::<u8>(), 1..600),
        cut in 1usize..200,
        order in any::<u64>(),
    ) {
        let mut segments: Vec<(usize, &[u8])> = stream.chunks(cut).enumerate().map(|(n, part)| (n * cut, part)).collect();
        let by = |offset: usize| (offset as u64 ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        segments.sort_by_key(|(offset, _)| by(*offset));
        let mut held = Assemblies::default();
        // A sender retransmits what was not kept; each pass adds at least the next segment.
        for _ in 0..segments.len() {
            for (offset, part) in &segments {
                if let Ok(prefix) = inserted(&mut held, 1, 0, *offset, part) {
                    prop_assert_eq!(&prefix[..], &stream[..prefix.len()]);
                }
            }
        }
        prop_assert!(held.holds(&StreamKey::new(READER, &tuple(1)), 0));
    }
}
