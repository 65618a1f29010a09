//! Clients that send what their server reads otherwise than an observer, or not at all.

use super::*;

const UNREADABLE: Verdict = Verdict::Drop(DropReason::UrlUnreadable);
const COPY_DIFFERS: Verdict = Verdict::Drop(DropReason::UrlCopyDiffers);

/// An ordinary client sends decoys that its server ignores, and then asks for a blocked host.
#[test]
fn segments_that_the_server_may_ignore_are_not_read() {
    let decoy = get("www.example.org", "/");
    type Change = fn(&mut build::Tcp<'static>);
    let changes: [(&str, Change); 6] = [
        ("an old acknowledgement", |segment| segment.acknowledgement = segment.acknowledgement.wrapping_sub(60_000)),
        ("an acknowledgement of what was not sent", |segment| segment.acknowledgement += 1),
        ("no acknowledgement", |segment| segment.flags = tcp_flags::PSH),
        ("an older timestamp", |segment| segment.timestamps = Some((9, 20))),
        ("no timestamp", |segment| segment.timestamps = None),
        ("beyond what is read, behind a gap", |segment| segment.sequence = segment.sequence.wrapping_add(8000)),
    ];
    for (what, change) in changes {
        let mut talk = Talk::web(RuleConfig { undecided: Undecided::Block, ..rule() });
        assert_eq!(talk.client_sends(&decoy.repeat(8), change), UNREADABLE, "{what}");
        assert_eq!((talk.client(&get("ads.example", "/")), talk.phase()), (Verdict::SendBack, Phase::BlockedByPage));
    }
    let lower_ttl = |bytes: &mut Vec<u8>| bytes[14 + 8] -= 1;
    let router_alert = |bytes: &mut Vec<u8>| {
        bytes[14] = 0x46;
        bytes[14 + 3] += 4;
        bytes.splice(14 + 20..14 + 20, [148, 4, 0, 0]);
    };
    for change in [&lower_ttl as &dyn Fn(&mut Vec<u8>), &router_alert] {
        let mut talk = Talk::web(rule());
        assert_eq!(talk.client_sends_bytes(&decoy, change), UNREADABLE);
        assert_eq!((talk.client(&get("ads.example", "/")), talk.phase()), (Verdict::SendBack, Phase::BlockedByPage));
    }
}

#[test]
fn a_signature_that_was_not_negotiated_is_removed_so_that_the_server_reads_the_segment() {
    let mut talk = Talk::web(rule());
    let verdict = talk.client_sends_bytes(&get("www.example.org", "/"), |bytes| {
        let tcp = 14 + 20;
        let signature = [[1, 1, 19, 18], [7; 4], [7; 4], [7; 4], [7; 4]].concat();
        bytes[tcp + 12] = 13 << 4;
        bytes[14 + 3] += 20;
        bytes.splice(tcp + 32..tcp + 32, signature);
    });
    assert_eq!((verdict, talk.phase()), (Verdict::Forward, Phase::Confirming));
    assert_eq!(talk.sent[14 + 20 + 32..14 + 20 + 52], [1; 20], "no-operations");
}

#[test]
fn urgent_data_is_read_and_received_in_its_place() {
    let mut talk = Talk::web(rule());
    let verdict = talk.client_sends(&get("www.exaXmple.org", "/"), |segment| segment.flags |= tcp_flags::URG);
    assert_eq!(verdict, Verdict::Forward);
    assert!(!talk.left().1.has(tcp_flags::URG));
    // Also while the server has not acknowledged what was read.
    talk.client_sends(b"", |segment| segment.flags |= tcp_flags::URG);
    assert!(!talk.left().1.has(tcp_flags::URG));
}

#[test]
fn a_copy_with_other_bytes_never_reaches_the_server_before_it_has_the_first_one() {
    let (allowed, blocked) = (get("www.example.org", "/"), get("www.adsssss.org", "/"));
    let mut talk = Talk::web(rule());
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, 30, &allowed[30..]).verdict, Verdict::Forward);
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, 20, &blocked[20..]).verdict, COPY_DIFFERS);
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, 0, &allowed[..30]).verdict, Verdict::Forward);
    assert_eq!(talk.phase(), Phase::Confirming);
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, 0, &blocked).verdict, COPY_DIFFERS);
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, 0, &allowed).verdict, Verdict::Forward, "a repetition");
    let length_bytes = allowed.len() as u32;
    let from_before = [b"?", &blocked[..]].concat();
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, u32::MAX, &from_before).verdict, COPY_DIFFERS);
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, length_bytes, b"more").verdict, Verdict::Forward);
    assert_eq!(talk.gateway.counter("url_filter.allowed"), 1, "decided once");
}

#[test]
fn bytes_behind_one_before_the_first_are_read() {
    let mut talk = Talk::web(rule());
    let request = [b"?", &get("ads.example", "/")[..]].concat();
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, u32::MAX, &request).verdict, Verdict::SendBack);
    let mut keeps_alive = Talk::web(rule());
    assert_eq!(keeps_alive.send(Direction::Original, tcp_flags::ACK, u32::MAX, b"?").verdict, Verdict::Forward);
    assert_eq!(keeps_alive.client(&get("ads.example", "/")), Verdict::SendBack);
}

#[test]
fn a_syn_inside_the_connection_does_not_move_its_beginning() {
    let mut talk = Talk::web(rule());
    let decoy = get("www.example.org", "/");
    assert_eq!(talk.send(Direction::Original, tcp_flags::SYN, 4999, b"").verdict, Verdict::Forward);
    assert_eq!(
        talk.send(Direction::Original, tcp_flags::SYN, 4999, &decoy).verdict,
        Verdict::Drop(DropReason::UrlFiltered)
    );
    assert_eq!(
        talk.send(Direction::Original, tcp_flags::ACK, 5000, &decoy).verdict,
        Verdict::Forward,
        "ahead of a gap"
    );
    assert_eq!(talk.client(&get("ads.example", "/")), Verdict::SendBack);
}

#[test]
fn fragments_are_undecided() {
    let fragment = |bytes: &mut Vec<u8>| bytes[14 + 6] |= 0x20;
    let request = &get("ads.example", "/")[..];
    let request = &request[..request.len() / 8 * 8];
    let mut allowed = Talk::web(rule());
    assert_eq!(allowed.client_sends_bytes(request, fragment), Verdict::Forward);
    assert_eq!((allowed.phase(), allowed.gateway.counter("url_filter.undecided")), (Phase::Allowed, 1));
    let mut blocked = Talk::web(RuleConfig { undecided: Undecided::Block, ..rule() });
    let dropped = Verdict::Drop(DropReason::UrlFiltered);
    assert_eq!((blocked.client_sends_bytes(request, fragment), blocked.phase()), (dropped, Phase::BlockedByReset));
    assert_eq!(blocked.client_sends_bytes(request, fragment), dropped);
    assert_eq!(blocked.client(request), Verdict::SendBack, "a whole segment is answered");
}

#[test]
fn a_malformed_request_is_refused_and_is_not_undecided() {
    let request = b"GET / HTTP/1.1\r\nHost : www.example.org\r\nHost: ads.example\r\n\r\n";
    let mut talk = Talk::web(rule());
    assert_eq!((talk.client(request), talk.phase()), (Verdict::SendBack, Phase::BlockedByReset));
    assert_eq!((talk.counted(MALFORMED, Decided::Blocked), talk.gateway.counter("url_filter.malformed")), (1, 1));
    assert_eq!(talk.gateway.counter("url_filter.undecided"), 0);
    let mut logged = Talk::web(RuleConfig { action: Action::Log, ..rule() });
    assert_eq!((logged.client(request), logged.counted(MALFORMED, Decided::Logged)), (Verdict::Forward, 1));
}

#[test]
fn a_connection_of_many_segments_is_read_for_so_many_alone() {
    let mut talk = Talk::web(rule());
    let head = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 1000]].concat();
    let read = head.iter().take_while(|byte| {
        talk.client(&[**byte]);
        talk.phase() == Phase::Reading
    });
    assert_eq!(read.count(), usize::from(crate::inspect::assembly::INSERTIONS_MAX));
    assert_eq!((talk.gateway.counter("url_filter.malformed"), talk.phase()), (1, Phase::BlockedByReset));
}

/// The host of a head lies beyond what is read: servers read on.
#[test]
fn a_head_without_a_host_within_what_is_read_is_refused() {
    let long = "x".repeat(1000);
    let mut talk = Talk::web(rule());
    let mut verdicts = vec![talk.client(b"GET / HTTP/1.1\r\n")];
    verdicts.extend((0..9).map(|_| talk.client(format!("X: {long}\r\n").as_bytes())));
    assert_eq!((verdicts.pop(), talk.phase()), (Some(Verdict::SendBack), Phase::BlockedByReset));
    assert_eq!(talk.gateway.counter("url_filter.malformed"), 1);
}

/// A client's first segment is lost, and it has sent more than is read: nothing of it passes before the first one.
#[test]
fn segments_beyond_what_is_read_wait_for_the_first() {
    let mut talk = Talk::web(rule());
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, 9000, b"more").verdict, UNREADABLE);
    assert_eq!((talk.client(&get("ads.example", "/")), talk.phase()), (Verdict::SendBack, Phase::BlockedByPage));
}

/// A part was read by a node that has failed, and is not sent again.
#[test]
fn what_the_server_has_acknowledged_and_the_filter_lacks_is_undecided() {
    let mut talk = Talk::web(rule());
    talk.client(b"GET / HTTP/1.1\r\n");
    talk.fail_over();
    assert_eq!((talk.client(b"X: y\r\n"), talk.phase()), (Verdict::Forward, Phase::Reading));
    assert_eq!((talk.server(b""), talk.phase()), (Verdict::Forward, Phase::Allowed));
    let mut long = Talk::web(rule());
    long.client(b"GET / HTTP/1.1\r\n");
    long.fail_over();
    assert_eq!((long.client(&[b'x'; 9000]), long.phase()), (Verdict::Forward, Phase::Allowed));
    assert_eq!(long.gateway.counter("url_filter.undecided"), 1);
}

/// Browsers use a socket for connections to several hosts of a server.
#[test]
fn each_connection_of_quic_is_decided_by_its_connection_id() {
    let dropped = Verdict::Drop(DropReason::UrlFiltered);
    let web = udp("10.0.0.2:4000", "198.51.100.1:443");
    let [allowed, blocked] = ["www.example.org", "ads.example"].map(|name| hello(name)[5..].to_vec());
    let initial = |id: u8, message: &[u8], range: core::ops::Range<usize>| {
        let piece = (range.start, &message[range]);
        quic::decryption::client_initial_bytes(quic::Version::V1, &[id; 8], 0, &[piece]).expect("it fits")
    };
    let sent = |talk: &mut Talk, id, message: &[u8]| {
        [talk.client(&initial(id, message, 0..700)), talk.client(&initial(id, message, 700..message.len()))]
    };
    let mut talk = Talk::new(rule(), web);
    assert_eq!(sent(&mut talk, 1, &allowed), [Verdict::Forward; 2]);
    assert_eq!(sent(&mut talk, 2, &blocked), [Verdict::Forward, dropped], "after an allowed one");
    assert_eq!(talk.client(b"\x40 a packet of the first"), Verdict::Forward);
    assert_eq!((talk.phase(), talk.server(b"any")), (Phase::Initials, Verdict::Forward));
    talk.fail_over();
    assert_eq!(sent(&mut talk, 3, &blocked), [Verdict::Forward, dropped], "on another node");
    // And the other way round; their parts come in turns.
    let mut talk = Talk::new(rule(), web);
    assert_eq!(sent(&mut talk, 2, &blocked)[1], dropped);
    assert_eq!(talk.client(&initial(2, &blocked, 700..blocked.len())), Verdict::Forward, "a part alone is harmless");
    assert_eq!(talk.client(b"\x40 a packet of it"), dropped);
    assert_eq!(talk.client(&initial(4, &blocked, 0..700)), Verdict::Forward);
    assert_eq!(sent(&mut talk, 1, &allowed), [Verdict::Forward; 2]);
    assert_eq!(talk.client(&initial(4, &blocked, 700..blocked.len())), dropped);
    assert_eq!(talk.client(b"\x40 a packet of it"), Verdict::Forward);
}

#[test]
fn an_initial_packet_behind_others_in_its_datagram_is_read() {
    let mut talk = Talk::new(rule(), udp("10.0.0.2:4000", "198.51.100.1:443"));
    let message = hello("ads.example");
    let initial = quic::decryption::client_initial_bytes(quic::Version::V1, &[7; 8], 0, &[(0, &message[5..905])])
        .expect("it fits");
    let early = [&[0xd0, 0, 0, 0, 1, 8][..], &[7; 8], &[0, 4, 1, 2, 3, 4]].concat();
    assert_eq!(talk.client(&[&early[..], &initial].concat()), Verdict::Forward);
    assert_eq!(talk.phase(), Phase::Reading);
}
