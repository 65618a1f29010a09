//! Questions for names, over UDP and over TCP.

use super::*;

fn query(name: &str) -> Vec<u8> {
    query_with(name, [1, 0], 1)
}

/// With these flags, and the question so many times.
fn query_with(name: &str, flags: [u8; 2], questions: u8) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    let question = [&labels.collect::<Vec<u8>>()[..], b"\0\0\x01\0\x01"].concat();
    [&b"\x12\x34"[..], &flags, &[0, questions, 0, 0, 0, 0, 0, 0], &question.repeat(questions.into())].concat()
}

fn over_tcp(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

fn resolver(config: RuleConfig) -> Talk {
    Talk::new(config, tcp("10.0.0.2:4000", "198.51.100.53:53"))
}

#[test]
fn a_question_for_a_blocked_name_is_answered_that_there_is_none() {
    let mut talk = Talk::new(rule(), udp("10.0.0.2:4000", "198.51.100.53:53"));
    assert_eq!(talk.send(Direction::Original, 0, 0, &query("www.example.org")).verdict, Verdict::Forward);
    assert_eq!(talk.send(Direction::Original, 0, 0, &query("www.ads.example")).verdict, Verdict::SendBack);
    let length_bytes = talk.sent.len();
    let mut sent = talk.sent.clone();
    let frame = Frame::new(&mut sent, 0, length_bytes, PortId(0)).unwrap();
    let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("a sound packet") };
    assert_eq!(headers.tuple, talk.connection.original.inverse());
    let response = &frame.bytes()[usize::from(headers.payload_offset)..headers.l3_end()];
    assert_eq!(response[..4], [0x12, 0x34, 0x81, 0x83]);
    let dropping = RuleConfig { dns: DnsAction::Drop, ..rule() };
    let mut dropped = Talk::new(dropping, udp("10.0.0.2:4000", "198.51.100.53:53"));
    assert_eq!(
        dropped.send(Direction::Original, 0, 0, &query("ads.example")).verdict,
        Verdict::Drop(DropReason::UrlFiltered)
    );
}

#[test]
fn a_fragment_with_a_part_of_a_question_is_dropped() {
    let mut talk = Talk::new(rule(), udp("10.0.0.2:4000", "198.51.100.53:53"));
    let mut bytes = build::udp(talk.connection.tuple(Direction::Original), &query("www.example.org"));
    // More fragments follow.
    bytes[14 + 6] |= 0x20;
    set_ipv4_checksum(&mut bytes[14..]);
    let sent = talk.send_frame(Direction::Original, with_room(bytes)).verdict;
    assert_eq!(sent, Verdict::Drop(DropReason::UrlUnreadable), "the rest may name another host");
}

#[test]
fn a_server_ignores_what_the_filter_ignores_and_two_questions_are_refused() {
    let mut talk = Talk::new(rule(), udp("10.0.0.2:4000", "198.51.100.53:53"));
    let reserved_bit = query_with("ads.example", [1, 0x40], 1);
    assert_eq!(talk.client(&reserved_bit), Verdict::SendBack);
    let two = query_with("www.example.org", [1, 0], 2);
    assert_eq!(talk.client(&two), Verdict::SendBack);
    assert_eq!(talk.sent[talk.sent.len() - 12..][2..4], [0x81, 0x81], "a format error");
    let mut compressed = query("ads.example");
    compressed[12] = 0xc0;
    assert_eq!(talk.client(&compressed), Verdict::SendBack);
    assert_eq!((talk.counted(MALFORMED, Decided::Blocked), talk.counted("ads", Decided::Blocked)), (2, 1));
    let update = query_with("ads.example", [0x28, 0], 1);
    assert_eq!(talk.client(&update), Verdict::Forward);
}

#[test]
fn questions_over_tcp_are_read_one_after_another_however_they_are_divided() {
    let mut talk = resolver(rule());
    let allowed = over_tcp(&query("www.example.org"));
    assert_eq!(talk.client(&[&allowed[..], &allowed[..20]].concat()), Verdict::Forward);
    assert_eq!(talk.server(b"\0\x0canswer to it"), Verdict::Forward, "the server's answers do not end the reading");
    assert_eq!(talk.client(&allowed[20..]), Verdict::Forward);
    assert_eq!((talk.counted(UNCATEGORISED, Decided::Allowed), talk.phase()), (2, Phase::Reading));
    talk.fail_over();
    let blocked = over_tcp(&query("www.ads.example"));
    assert_eq!(talk.client(&blocked[..10]), Verdict::Forward);
    assert_eq!(talk.client(&blocked[10..]), Verdict::SendBack);
    let (tuple, segment, _) = talk.left();
    assert_eq!((tuple, segment.has(tcp_flags::FIN)), (talk.connection.original.inverse(), true));
    let response = &talk.sent[talk.sent.len() - segment.payload_bytes as usize..];
    assert_eq!(usize::from(u16::from_be_bytes([response[0], response[1]])), response.len() - 2);
    assert_eq!(response[2..6], [0x12, 0x34, 0x81, 0x83]);
    assert!(talk.gateway.refused.is_some(), "the server is reset");
    assert_eq!((talk.phase(), talk.answered(Answer::NxDomain)), (Phase::BlockedByReset, 1));
}

#[test]
fn a_blocked_question_behind_an_allowed_one_is_refused_with_it() {
    let both = [over_tcp(&query("www.example.org")), over_tcp(&query("ads.example"))].concat();
    assert_eq!(resolver(rule()).client(&both), Verdict::SendBack);
    let mut dropping = resolver(RuleConfig { dns: DnsAction::Drop, ..rule() });
    assert_eq!(dropping.client(&both), Verdict::SendBack);
    assert!(dropping.left().1.has(tcp_flags::RST), "no answer");
    let mut off = resolver(RuleConfig { dns: DnsAction::Off, ..rule() });
    assert_eq!((off.client(&both), off.phase()), (Verdict::Forward, Phase::Unfiltered));
}
