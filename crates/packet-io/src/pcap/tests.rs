//! Captures written and read back.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;

/// A capture of one frame stamped 5 s and `fraction`, in either byte order.
fn capture(magic: u32, fraction: u32, big_endian: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |number: u32| {
        bytes.extend_from_slice(&if big_endian { number.to_be_bytes() } else { number.to_le_bytes() });
    };
    let version = if big_endian { 0x0002_0004 } else { 0x0004_0002 };
    [magic, version, 0, 0, 65_535, 1, 5, fraction, 3, 60].into_iter().for_each(&mut put);
    bytes.extend_from_slice(b"abc");
    bytes
}

fn records(bytes: &[u8]) -> Result<Vec<(Record, Vec<u8>)>, PcapError> {
    let mut reader = PcapReader::new(bytes)?;
    let mut records = Vec::new();
    let mut frame = Vec::new();
    while let Some(record) = reader.read(&mut frame)? {
        records.push((record, frame.clone()));
    }
    Ok(records)
}

#[test]
fn micro_and_nanoseconds_in_both_byte_orders_are_read() {
    for (magic, fraction) in [(0xa1b2_c3d4, 250_000), (0xa1b2_3c4d, 250_000_000)] {
        for big_endian in [false, true] {
            let expected = Record { timestamp: Instant::from_millis(5250), wire_bytes: 60 };
            assert_eq!(records(&capture(magic, fraction, big_endian)).unwrap(), [(expected, b"abc".to_vec())]);
        }
    }
}

#[test]
fn files_other_than_ethernet_captures_are_rejected_with_the_reason() {
    let good = capture(0xa1b2_c3d4, 0, false);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        records(&bytes).unwrap_err()
    };
    assert!(matches!(with(0, 0), PcapError::BadMagic(_)));
    assert!(matches!(with(4, 3), PcapError::BadVersion(3)));
    assert!(matches!(with(20, 113), PcapError::NotEthernet(113)));
    assert!(matches!(with(35, 1), PcapError::OversizedRecord(_)));
    for length in [0, 23, 30, 40, 42] {
        assert!(matches!(records(&good[..length]), Err(PcapError::Truncated)), "{length} bytes");
    }
    assert_eq!(records(&good[..24]).unwrap(), []);
}

proptest! {
    #[test]
    fn written_captures_are_read_back(
        frames in prop::collection::vec((0..u64::from(u32::MAX) * 1_000_000_000, prop::collection::vec(any::<u8>(), 0..200)), 0..20)
    ) {
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        for (nanos, frame) in &frames {
            writer.write(Instant::from_nanos(*nanos), frame).unwrap();
        }
        let read = records(&writer.finish().unwrap()).unwrap();
        let read: Vec<_> = read.into_iter().map(|(record, frame)| (record.timestamp.as_nanos(), frame)).collect();
        prop_assert_eq!(read, frames);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), keep_header: bool) {
        if keep_header && bytes.len() >= 24 {
            bytes[..24].copy_from_slice(&capture(0xa1b2_c3d4, 0, false)[..24]);
        }
        drop(records(&bytes));
    }
}

/// A writer that keeps its bytes for inspection.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn source(frames: &[(u64, &str)]) -> PcapReader<Box<dyn Read + Send>> {
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for (millis, frame) in frames {
        writer.write(Instant::from_millis(*millis), frame.as_bytes()).unwrap();
    }
    PcapReader::new(Box::new(Cursor::new(writer.finish().unwrap())) as Box<dyn Read + Send>).unwrap()
}

#[test]
fn captures_of_two_ports_are_replayed_in_the_order_of_time() {
    let sent = Shared::default();
    let mut io = PcapIo::new();
    io.add_port(Some(source(&[(1, "a"), (1, "b"), (4, "d")])), None).unwrap();
    let sink = PcapWriter::new(Box::new(sent.clone()) as Box<dyn Write + Send>).unwrap();
    io.add_port(Some(source(&[(3, "c"), (9, "e")])), Some(sink)).unwrap();

    io.play_until(Instant::from_millis(4));
    let mut seen = Vec::new();
    let mut play = |io: &mut PcapIo| {
        io.poll(&mut |batch| {
            for frame in batch {
                seen.push((frame.ingress.0, frame.bytes()[0]));
                frame.disposition = Disposition::Transmit(PortId(1));
            }
        })
        .unwrap()
    };
    assert_eq!([play(&mut io), play(&mut io), play(&mut io), play(&mut io)], [2, 1, 1, 0]);
    assert_eq!(io.next_timestamp().unwrap(), Some(Instant::from_millis(9)));
    io.play_until(Instant::FAR_FUTURE);
    assert_eq!(play(&mut io), 1);
    assert_eq!(seen, [(0, b'a'), (0, b'b'), (1, b'c'), (0, b'd'), (1, b'e')]);
    assert_eq!(io.next_timestamp().unwrap(), None);

    let written = sent.0.lock().unwrap().clone();
    let times: Vec<u64> = records(&written).unwrap().iter().map(|(record, _)| record.timestamp.as_nanos()).collect();
    assert_eq!(times, [1_000_000, 1_000_000, 3_000_000, 4_000_000, 9_000_000]);
    assert_eq!((io.counters(PortId(0)).received_frames, io.counters(PortId(1)).sent_frames), (3, 5));
}
