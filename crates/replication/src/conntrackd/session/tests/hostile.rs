//! What a peer should not send.

use std::vec::Vec;

use flow::Instant;

use super::harness::{End, Node, TIME_OF_DAY_S, connection};
use crate::conntrackd::message::{self, Kind, Range, flags};
use crate::conntrackd::object::{self, ObjectError};
use crate::conntrackd::{FtfwConfig, FtfwError};
use crate::session::ApplyError;

const NOW: Instant = Instant::from_millis(1000);

fn node() -> Node {
    Node::new(FtfwConfig::default(), TIME_OF_DAY_S)
}

fn handle(node: &mut Node, datagram: &[u8]) -> Result<(), FtfwError> {
    node.session.handle_datagram(NOW, datagram, &mut node.table)
}

fn object(out: &mut Vec<u8>, number: u32, source_port: u16) {
    let at = message::begin(out, Kind::New, 0, number);
    object::encode(&connection(source_port, 1), false, out).unwrap();
    message::finish(out, at);
}

#[test]
fn one_bad_message_does_not_spoil_the_others() {
    let mut node = node();
    let mut datagram = Vec::new();
    object(&mut datagram, 1, 1);
    let at = message::begin(&mut datagram, Kind::New, 0, 2);
    datagram.extend([0, 5, 0, 99, 1, 0, 0, 0]);
    message::finish(&mut datagram, at);
    object(&mut datagram, 3, 3);
    let error = FtfwError::Object { kind: 0, error: ObjectError::Unknown(99) };
    assert_eq!(handle(&mut node, &datagram), Err(error));
    let status = node.session.status();
    assert_eq!((node.table.copies.len(), status.bad_messages, status.missed), (2, 1, 0));
}

#[test]
fn a_table_that_is_full_is_counted_and_reported() {
    let mut node = node();
    node.table.copies_max = Some(1);
    let mut datagram = Vec::new();
    object(&mut datagram, 1, 1);
    object(&mut datagram, 2, 2);
    assert_eq!(handle(&mut node, &datagram), Err(FtfwError::Apply(ApplyError::Full)));
    assert_eq!((node.session.status().apply_errors, node.session.status().messages_received), (1, 2));
}

#[test]
fn another_version_is_reported_once() {
    let mut node = node();
    let datagram = [0x20, 0, 0, 8, 0, 0, 0, 1];
    assert_eq!(handle(&mut node, &datagram), Err(FtfwError::Incompatible { theirs: 2 }));
    assert_eq!(handle(&mut node, &datagram), Ok(()));
    assert_eq!(node.session.status().bad_datagrams, 2);
    assert!(matches!(handle(&mut node, &datagram[..5]), Err(FtfwError::Malformed(_))));
}

#[test]
fn acknowledgements_of_what_was_never_sent_change_nothing() {
    let mut node = node();
    for (number, flag) in [(1, flags::ACK), (2, flags::NACK)] {
        let mut datagram = Vec::new();
        message::put_range(&mut datagram, flag, number, Range { from: 0, to: u32::MAX });
        assert_eq!(handle(&mut node, &datagram), Err(FtfwError::NeverSent));
    }
    let mut datagram = Vec::new();
    message::put_alive(&mut datagram, flags::ACK, 3);
    assert!(matches!(handle(&mut node, &datagram), Err(FtfwError::Malformed(_))));
}

#[test]
fn a_gap_as_wide_as_the_numbers_is_no_gap() {
    let mut node = node();
    let mut datagram = Vec::new();
    object(&mut datagram, 1, 1);
    object(&mut datagram, 1 << 30, 2);
    assert_eq!(handle(&mut node, &datagram), Ok(()));
    assert_eq!((node.table.copies.len(), node.session.status().missed), (2, 0));
}

#[test]
fn gaps_without_end_are_answered_within_bounds() {
    let mut node = node();
    let mut datagram = Vec::new();
    for gap in 0..2000 {
        datagram.clear();
        message::put_alive(&mut datagram, 0, gap * 2);
        handle(&mut node, &datagram).unwrap();
    }
    let mut bytes = 0;
    while node.poll(NOW, &mut datagram) {
        bytes += datagram.len();
    }
    assert!((256 * 16..300 * 16).contains(&bytes), "{bytes}");
}
