//! What a sender sends, when, and how often.

use alloc::vec;

use super::*;
use crate::record::Record;

fn config() -> SenderConfig {
    SenderConfig {
        gather: Duration::from_millis(2),
        recover_within: Duration::from_millis(400),
        recovery_per_mille: 100,
        copies_per_mille: 0,
        bits_per_second: None,
    }
}

fn push(sender: &mut Sender, now: Instant, bytes: usize) {
    let (mut record, payload) = (Vec::new(), vec![7; bytes]);
    Record::FromEncoder(&payload).write(&mut record);
    sender.push(now, &record);
}

/// The numbers and lengths of what leaves now.
fn sent(sender: &mut Sender, now: Instant) -> Vec<(u64, usize)> {
    sender.handle_timeout(now);
    let mut numbers = Vec::new();
    while let Some(Datagram::Data { number, body, .. }) = sender.poll(now) {
        numbers.push((number, body.len()));
    }
    numbers
}

#[test]
fn records_share_a_datagram_and_a_long_one_has_several() {
    let at = Instant::from_millis;
    let mut sender = Sender::new(config(), 28);
    let full = usize::from(PLAIN_BYTES_MIN) - DATA_HEADER_BYTES;
    (0..3).for_each(|_| push(&mut sender, at(0), 96));
    assert_eq!(sent(&mut sender, at(1)), [], "others may come");
    assert_eq!(sender.poll_timeout(), Some(at(2)));
    assert_eq!(sent(&mut sender, at(2)), [(0, 294)]);
    push(&mut sender, at(3), 2 * full - 3 + 10);
    assert_eq!(sent(&mut sender, at(3)), [(1, full), (2, full)]);
    assert_eq!(sent(&mut sender, at(5)), [(3, 10)]);
}

#[test]
fn missing_records_are_retransmitted_once_a_round_trip_and_old_ones_given_up() {
    let at = Instant::from_millis;
    let mut sender = Sender::new(config(), 28);
    for ms in 0..4 {
        push(&mut sender, at(ms * 3), 1000);
        assert_eq!(sent(&mut sender, at(ms * 3 + 2)).len(), 1);
    }
    sender.handle_ack(at(62), 1, 4, core::slice::from_ref(&(1..2)));
    assert_eq!(sent(&mut sender, at(62)), [(1, 1003)]);
    sender.handle_ack(at(80), 1, 4, core::slice::from_ref(&(1..2)));
    assert_eq!(sent(&mut sender, at(80)), [], "it is in flight");
    sender.handle_ack(at(160), 1, 4, core::slice::from_ref(&(1..2)));
    assert_eq!(sent(&mut sender, at(160)), [(1, 1003)]);
    sender.handle_ack(at(500), 1, 4, core::slice::from_ref(&(1..2)));
    assert_eq!(sent(&mut sender, at(500)), []);
    assert_eq!(sender.counters().datagrams_given_up, 1);
    push(&mut sender, at(501), 10);
    sender.handle_timeout(at(503));
    let Some(Datagram::Data { number: 4, base: 4, .. }) = sender.poll(at(503)) else { panic!("the base is sent") };
}

#[test]
fn the_last_datagram_of_many_is_asked_after() {
    let at = Instant::from_millis;
    let mut sender = Sender::new(config(), 28);
    push(&mut sender, at(0), 100);
    assert_eq!(sent(&mut sender, at(2)), [(0, 102)]);
    let retry_at = sender.poll_timeout().expect("it is waited for");
    assert!(retry_at < at(250), "{retry_at:?}");
    assert_eq!(sent(&mut sender, retry_at), [(0, 102)]);
    sender.handle_ack(at(300), 1, 1, &[]);
    assert_eq!(sender.poll_timeout(), None);
}

#[test]
fn retransmissions_keep_to_their_share() {
    let at = Instant::from_millis;
    let mut sender = Sender::new(config(), 28);
    for _ in 0..1000 {
        push(&mut sender, at(0), 1176);
    }
    assert_eq!(sent(&mut sender, at(0)).len(), 1000);
    sender.handle_ack(at(50), 500, 1000, core::slice::from_ref(&(500..999)));
    let retransmitted = sent(&mut sender, at(50)).len() as u64;
    assert!((100..200).contains(&retransmitted), "{retransmitted}");
    assert_eq!(sender.counters().datagrams_given_up, 499 - retransmitted);
}

#[test]
fn datagrams_leave_at_the_rate_of_the_path_and_no_more_wait_than_a_tenth_of_a_second() {
    let mut sender = Sender::new(SenderConfig { bits_per_second: Some(10_000_000), ..config() }, 28);
    while sender.has_room() {
        push(&mut sender, Instant::ZERO, 1176);
    }
    let mut bytes = 0;
    for ms in 0..=50 {
        bytes += sent(&mut sender, Instant::from_millis(ms)).iter().map(|(_, length)| length + 48).sum::<usize>();
    }
    let bits_per_second = bytes as f64 * 8.0 / 0.05;
    assert!((9.5e6..11e6).contains(&bits_per_second), "{bits_per_second}");
    assert!(!sender.has_room() || sender.unsent_bytes < 125_000);
}

/// A sender to which a loss was reported at 60 ms.
fn sender_on_a_path_that_loses() -> Sender {
    let at = Instant::from_millis;
    let mut sender = Sender::new(SenderConfig { copies_per_mille: 500, ..config() }, 28);
    for ms in [2, 10] {
        push(&mut sender, at(ms), 100);
        assert_eq!(sent(&mut sender, at(ms)).len(), 1, "nothing waits where nothing was sent of late");
    }
    sender.handle_ack(at(60), 0, 2, core::slice::from_ref(&(0..1)));
    assert_eq!(sent(&mut sender, at(60)), [(0, 102)]);
    sender.handle_ack(at(110), 2, 2, &[]);
    sender
}

#[test]
fn what_was_saved_pays_for_copies_on_a_path_that_loses() {
    let at = Instant::from_millis;
    let mut sender = sender_on_a_path_that_loses();
    push(&mut sender, at(120), 100);
    assert_eq!(sent(&mut sender, at(120)), [(2, 102)]);
    assert_eq!(sent(&mut sender, at(122)), [], "nothing was saved");
    sender.note_saved(1400);
    push(&mut sender, at(130), 1000);
    assert_eq!(sent(&mut sender, at(130)).len(), 1);
    assert_eq!(sent(&mut sender, at(132)), [], "half of what was saved is less than it has");
    sender.note_saved(10_000);
    push(&mut sender, at(140), 100);
    assert_eq!(sent(&mut sender, at(140)), [(4, 102)]);
    assert_eq!(sent(&mut sender, at(141)), []);
    assert_eq!(sender.poll_timeout(), Some(at(142)));
    assert_eq!(sent(&mut sender, at(142)), [(4, 102)], "its copy");
    sender.handle_ack(at(190), 5, 5, &[]);
    push(&mut sender, at(200), 100);
    assert_eq!(sent(&mut sender, at(200)).len(), 1);
    sender.handle_ack(at(201), 6, 6, &[]);
    assert_eq!(sent(&mut sender, at(202)), [], "it has come already");
    let later = at(60) + COPIES_AFTER_LOSS;
    push(&mut sender, later, 100);
    assert_eq!(sent(&mut sender, later).len(), 1);
    assert_eq!(sent(&mut sender, later + COPY_AFTER), [], "nothing was lost for a long time");
    assert_eq!(sender.counters().datagrams_copied, 1);
}

#[test]
fn a_copied_record_is_retransmitted_when_both_are_lost() {
    let at = Instant::from_millis;
    let mut sender = sender_on_a_path_that_loses();
    sender.note_saved(100_000);
    for ms in [120, 130] {
        push(&mut sender, at(ms), 100);
        assert_eq!(sent(&mut sender, at(ms)).len(), 1);
        assert_eq!(sent(&mut sender, at(ms + 2)).len(), 1, "the copy");
    }
    sender.handle_ack(at(180), 2, 4, core::slice::from_ref(&(2..3)));
    assert_eq!(sent(&mut sender, at(180)), [(2, 102)], "the copy should have come with the first");
}

#[test]
fn marks_report_the_outcome_of_a_record() {
    let at = Instant::from_millis;
    let mut sender = Sender::new(config(), 28);
    let mut record = Vec::new();
    Record::FromEncoder(&[7; 2900]).write(&mut record);
    sender.push_marked(at(0), &record, [1]);
    sender.push_marked(at(0), &record, [2, 3]);
    assert_eq!(sent(&mut sender, at(2)).len(), 5);
    sender.handle_ack(at(50), 2, 3, &[]);
    assert_eq!(sender.poll_mark(), Some((1, true)), "the third datagram ends the one and begins the other");
    assert_eq!(sender.poll_mark(), None);
    sender.handle_ack(at(60), 3, 5, core::slice::from_ref(&(3..4)));
    assert_eq!(sender.poll_mark(), None, "it is retransmitted");
    assert_eq!(sent(&mut sender, at(403)), []);
    assert_eq!(
        [sender.poll_mark(), sender.poll_mark(), sender.poll_mark()],
        [Some((2, false)), Some((3, false)), None]
    );
    let many = 0..MARKS_MAX as u64 + 1;
    sender.push_marked(at(404), &record, many.clone());
    assert_eq!(sender.poll_mark(), Some((many.end - 1, false)), "more than are watched");
}
