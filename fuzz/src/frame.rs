//! Frames: read, changed in every way that a node changes them, and read again.

use flow::wire::{self, Headers, Packet, Parsed, Transport};
use flow::{Checksum, Frame, PortId, Tuple};

/// Room behind a frame, in bytes: as real receive buffers have it.
const TAILROOM_BYTES: usize = 64;

/// The first byte chooses what is known of the checksum, the rest is the frame.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let checksum = match choice % 4 {
        0 | 1 => Checksum::Unverified,
        2 => Checksum::Valid,
        _ => Checksum::Partial { start: 34, offset: u16::from(choice >> 2) },
    };
    let mut buffer = bytes.to_vec();
    buffer.resize(bytes.len() + TAILROOM_BYTES, 0xaa);
    let mut frame = Frame::new(&mut buffer, 0, bytes.len(), PortId(0)).expect("it is the beginning of its buffer");
    frame.checksum = checksum;
    let Ok(Parsed::Ip(headers)) = wire::parse(&frame) else { return };
    check_offsets(&headers, bytes.len());
    change(&mut frame, headers);
}

fn check_offsets(headers: &Headers, length_bytes: usize) {
    assert!(headers.l3_offset < headers.l4_offset && headers.l4_offset <= headers.payload_offset);
    assert!(usize::from(headers.payload_offset) <= headers.l3_end() && headers.l3_end() <= length_bytes);
}

/// Whatever a node changes of a packet that was whole leaves it whole.
fn change(frame: &mut Frame<'_>, headers: Headers) {
    let mut changing = headers;
    let mut packet = Packet { frame, headers: &mut changing };
    let translated = translated(&headers.tuple);
    let _ = packet.payload().len();
    let _ = packet.clamp_mss(536);
    if packet.decrement_ttl().is_err() {
        assert!(headers.ttl <= 1, "only a packet at the end of its time is refused");
    }
    match headers.transport {
        Transport::IcmpError(error) => {
            let quoted = self::translated(&error.inner);
            packet.rewrite_icmp_error(&quoted, &translated.source, &quoted.source);
        }
        Transport::IcmpOther(..) => return,
        _ => packet.rewrite(&translated),
    }
    if headers.is_fragment || packet.frame.checksum != Checksum::Unverified {
        // The transport checksum covers what is not there, or was never right.
        return;
    }
    let read_back = match wire::parse(packet.frame) {
        Ok(Parsed::Ip(headers)) => headers,
        other => panic!("{headers:?} became {other:?}"),
    };
    assert_eq!(read_back.tuple.source, translated.source);
    if !matches!(headers.transport, Transport::IcmpError(_)) {
        assert_eq!(read_back.tuple, translated);
    }
}

/// As source NAT would have it: another source address, and another port where there is one.
fn translated(tuple: &Tuple) -> Tuple {
    let mut translated = *tuple;
    translated.source[15] = 77;
    translated.source[14] = 2;
    translated.source[13] = 0;
    translated.source[12] = 192;
    if tuple.source_port != 0 || tuple.destination_port != 0 {
        translated.source_port = 4321;
        if tuple.discriminator != 0 {
            // A query's identifier stands for both ports.
            translated.destination_port = 4321;
        }
    }
    translated
}
