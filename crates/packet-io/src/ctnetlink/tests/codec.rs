//! Encoded messages decode to their content, and malformed ones do no harm.

use flow::netfilter::{ProtocolInfo, Status, TcpFlags, TcpInfo, TcpSide, TcpState};
use proptest::prelude::*;

use super::super::*;
use super::samples;

fn encoded(cause: Cause, event: &Event) -> Vec<u8> {
    let mut datagram = Vec::new();
    encode_event(cause, event, &mut datagram);
    datagram
}

proptest! {
    #[test]
    fn encoded_events_decode_to_the_same_events((cause, event) in samples::events()) {
        let mut read = Vec::new();
        let malformed = decode_events(&encoded(cause, &event), &mut |cause, event| read.push((cause, event)));
        prop_assert_eq!((malformed, read), (0, vec![(cause, event)]));
    }

    #[test]
    fn any_bytes_are_decoded_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        decode_events(&bytes, &mut |_, _| {});
    }

    #[test]
    fn damaged_messages_are_decoded_without_panic(
        (cause, event) in samples::events(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(cause, &event);
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(length.index(bytes.len() + 1));
        let mut events = Vec::new();
        let malformed = decode_events(&bytes, &mut |cause, event| events.push((cause, event)));
        prop_assert!(bytes.is_empty() || events.len() + malformed > 0, "every malformed message is counted");
        for (cause, event) in events {
            let mut decoded = Vec::new();
            decode_events(&encoded(cause, &event), &mut |cause, event| decoded.push((cause, event)));
            prop_assert_eq!(decoded, vec![(cause, event)], "what could be read can be written");
        }
    }
}

#[test]
fn all_messages_of_a_datagram_are_decoded() {
    let mut datagram = Vec::new();
    let events = [Event::Began(samples::tcp(1)), Event::Changed(samples::tcp(2)), Event::Ended(samples::tcp(3))];
    for event in &events {
        encode_event(Cause::Packets, event, &mut datagram);
    }
    datagram.extend_from_slice(&[20, 0, 0]);
    let mut read = Vec::new();
    let malformed = decode_events(&datagram, &mut |_, event| read.push(event));
    assert_eq!((read, malformed), (events.to_vec(), 1), "and the rest that is no message is counted");
}

/// Linux 6.18's message for the answer to a datagram of a translated connection.
const ANSWERED: &str = "9c000000000100000000000000000000020000003400018014000180080001007f000001080002007f0000021c000280\
    0500010011000000060002000fa0000006000300003500003400028014000180080001007f000002080002007f0000071c0002800500010011000000\
    06000200003500000600030014b4000008000c007ad07474080003000000019a080007000000001e0800080001020304";
/// Its message for an established TCP connection.
const ESTABLISHED: &str = "cc000000000100000000000000000000020000003400018014000180080001007f000001080002007f0000031c00028\
    00500010006000000060002000fa1000006000300005000003400028014000180080001007f000003080002007f0000011c000280050001000600000\
    00600020000500000060003000fa1000008000c00dac6c22e080003000000018e0800070000069780300004802c00018005000100030000000500020\
    00a000000050003000a000000060004002300000006000500230000000800080001020304";

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "the messages are of a machine with the lowest byte first")]
fn messages_of_a_kernel_are_decoded() {
    let mut events = Vec::new();
    for digits in [ANSWERED, ESTABLISHED] {
        assert_eq!(decode_events(&bytes(digits), &mut |cause, event| events.push((cause, event))), 0);
    }
    let ports = |source, destination| Discriminator::Ports { source, destination };
    let original = samples::tuple("127.0.0.1", "127.0.0.2", 17, ports(4000, 53));
    let reply = samples::tuple("127.0.0.2", "127.0.0.7", 17, ports(53, 5300));
    let answered = Entry {
        id: Some(0x7ad0_7474),
        status: Some(Status(0x19a)),
        timeout_s: Some(30),
        mark: Some(0x0102_0304),
        ..Entry::new(original, reply)
    };
    let original = samples::tuple("127.0.0.1", "127.0.0.3", 6, ports(4001, 80));
    let side = TcpSide { window_scale: 10, flags: TcpFlags(0x23) };
    let tcp = TcpInfo { state: TcpState::Established, sides: Some([side; 2]) };
    let established = Entry {
        id: Some(0xdac6_c22e),
        status: Some(Status(0x18e)),
        timeout_s: Some(432_000),
        protocol_info: Some(ProtocolInfo::Tcp(tcp)),
        mark: Some(0x0102_0304),
        ..Entry::new(original, original.inverse())
    };
    let expected = [answered, established].map(|entry| (Cause::Packets, Event::Changed(entry)));
    assert_eq!(events, expected);
}
