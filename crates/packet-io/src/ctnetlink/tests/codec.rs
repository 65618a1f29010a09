//! What is written is read, and nothing that is read does harm.

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
    fn what_is_written_is_read((cause, event) in samples::events()) {
        let mut read = Vec::new();
        let malformed = decode_events(&encoded(cause, &event), &mut |cause, event| read.push((cause, event)));
        prop_assert_eq!((malformed, read), (0, vec![(cause, event)]));
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        decode_events(&bytes, &mut |_, _| {});
    }

    #[test]
    fn damaged_messages_are_read_without_harm(
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
        let mut events = 0;
        let malformed = decode_events(&bytes, &mut |_, _| events += 1);
        prop_assert!(bytes.is_empty() || events + malformed > 0, "nothing is passed over without a word");
    }
}

#[test]
fn several_messages_of_a_datagram_are_all_read() {
    let mut datagram = Vec::new();
    let told = [Event::Began(samples::tcp(1)), Event::Changed(samples::tcp(2)), Event::Ended(samples::tcp(3))];
    for event in &told {
        encode_event(Cause::Packets, event, &mut datagram);
    }
    datagram.extend_from_slice(&[20, 0, 0]);
    let mut read = Vec::new();
    let malformed = decode_events(&datagram, &mut |_, event| read.push(event));
    assert_eq!((read, malformed), (told.to_vec(), 1), "and the rest that is no message is counted");
}

/// A message as a kernel 6.18 sent it: a masqueraded connection to a DNS server, whose reply has come.
#[test]
fn a_message_of_the_kernel_s_is_read() {
    let mut entry = samples::other(samples::tuple(
        "10.0.0.1",
        "192.0.2.53",
        17,
        Discriminator::Ports { source: 0x8001, destination: 53 },
    ));
    entry.reply.destination = "203.0.113.1".parse().unwrap();
    let event = Event::Changed(entry);
    let datagram = encoded(Cause::Packets, &event);
    assert_eq!(datagram[4..6], 0x0100_u16.to_ne_bytes(), "subsystem 1, message 0");
    assert_eq!(datagram[16], libc::AF_INET as u8);
    // The first attribute: the original tuple, nested, and within it the addresses.
    assert_eq!(datagram[20..24], [52_u16.to_ne_bytes(), 0x8001_u16.to_ne_bytes()].concat());
    assert_eq!(datagram[24..28], [20_u16.to_ne_bytes(), 0x8001_u16.to_ne_bytes()].concat());
    assert_eq!(datagram[28..36], [&8_u16.to_ne_bytes()[..], &1_u16.to_ne_bytes(), &[10, 0, 0, 1]].concat());
}
