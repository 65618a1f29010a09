//! Frames in memory.

use flow::{DropReason, SegmentationKind};

use super::*;

const LEFT: PortId = PortId(0);
const RIGHT: PortId = PortId(1);

fn decide(io: &mut MemoryIo, disposition: Disposition) -> usize {
    io.poll(&mut |batch| batch.iter_mut().for_each(|frame| frame.disposition = disposition)).unwrap()
}

#[test]
fn frames_pass_in_order_with_their_offload_state() {
    let mut io = MemoryIo::new(2);
    let mut large = MemoryFrame::new(&[5; 3000]);
    large.checksum = Checksum::Partial { start: 34, offset: 16 };
    large.segmentation =
        Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes: 1448, header_bytes: 66, ecn: true };
    io.inject(LEFT, b"first").unwrap();
    io.inject_frame(LEFT, large.clone()).unwrap();

    assert_eq!(decide(&mut io, Disposition::Transmit(RIGHT)), 2);
    assert_eq!(io.take_sent(RIGHT).unwrap().bytes(), b"first");
    assert_eq!(io.take_sent(RIGHT), Some(large));
    assert_eq!(io.take_sent(RIGHT), None);
    assert_eq!(io.counters(LEFT).received_bytes, 3005);
    assert_eq!(io.counters(RIGHT).sent_frames, 2);
}

#[test]
fn a_frame_may_be_rewritten_and_change_its_length() {
    let mut io = MemoryIo::new(2);
    io.inject(LEFT, b"question").unwrap();
    io.poll(&mut |batch| {
        let frame = &mut batch[0];
        assert!(frame.set_length(9));
        frame.bytes_mut().copy_from_slice(b"an answer");
        frame.disposition = Disposition::Transmit(LEFT);
    })
    .unwrap();
    assert_eq!(io.take_sent(LEFT).unwrap().bytes(), b"an answer");
}

#[test]
fn a_call_takes_one_batch_a_port_and_zero_means_empty() {
    let mut io = MemoryIo::new(1);
    for _ in 0..BATCH_FRAMES_MAX + 1 {
        io.inject(LEFT, b"x").unwrap();
    }
    let dropped = Disposition::Drop(DropReason::NoRoute);
    assert_eq!([decide(&mut io, dropped), decide(&mut io, dropped), decide(&mut io, dropped)], [64, 1, 0]);
    assert_eq!(io.take_sent(LEFT), None);
}

#[test]
fn every_unsent_frame_is_counted() {
    let mut io = MemoryIo::new(2);
    io.inject(LEFT, b"x").unwrap();
    decide(&mut io, Disposition::Undecided);
    io.inject(LEFT, b"x").unwrap();
    decide(&mut io, Disposition::Transmit(PortId(9)));
    let mut bytes = *b"own";
    let own = flow::Frame::new(&mut bytes, 0, 3, RIGHT).unwrap();
    io.set_up(RIGHT, false).unwrap();
    io.inject(LEFT, b"x").unwrap();
    decide(&mut io, Disposition::Transmit(RIGHT));
    let error = io.transmit(RIGHT, &own).unwrap_err();
    assert_eq!(error.to_string(), "port 1: the interface is down");

    assert_eq!(io.counters(LEFT).undecided, 1);
    assert_eq!(io.counters(LEFT).transmit_failures.no_such_port, 1);
    assert_eq!(io.counters(RIGHT).transmit_failures.down, 2);
    io.set_up(RIGHT, true).unwrap();
    io.transmit(RIGHT, &own).unwrap();
    assert_eq!(io.take_sent(RIGHT).unwrap().bytes(), b"own");
}

#[test]
fn a_full_queue_drops_the_newest_frame() {
    let mut io = MemoryIo::new(1);
    for _ in 0..QUEUE_FRAMES_MAX + 3 {
        io.inject(LEFT, b"x").unwrap();
    }
    assert_eq!(io.counters(LEFT).receive_queue_full, 3);
    assert!(io.inject(RIGHT, b"x").is_err());
}
