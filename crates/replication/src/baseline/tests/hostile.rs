//! Bytes of whatever making: nothing panics, and no more is kept than is told.

use flow::{Instant, NodeId};
use proptest::prelude::*;

use super::table::{Table, small_config};
use crate::baseline::{DatagramSession, MESSAGE_BYTES_MAX, QUEUE_BYTES_MAX, StreamSession};

const NOW: Instant = Instant::from_millis(1);

/// A stream's first message, as the peer would say it.
const HELLO: [u8; 12] = [0x80, 0xf0, 0, 12, 1, 1, 0, 0, 0, 0, 0, 9];

/// Messages that are whole as messages go, of any type and body.
fn messages() -> impl Strategy<Value = std::vec::Vec<u8>> {
    let kinds = prop::sample::select(&[0u16, 1, 2, 3, 4, 5, 0x8001, 0x80f0, 0x80f1, 0x80f2][..]);
    let message = (kinds, prop::collection::vec(any::<u8>(), 0..24)).prop_map(|(kind, body)| {
        let mut bytes = std::vec::Vec::new();
        flow::wire::tlv::put(&mut bytes, kind, &body);
        bytes
    });
    prop::collection::vec(message, 0..20).prop_map(|messages| messages.concat())
}

proptest! {
    #[test]
    fn a_datagram_of_anything_is_taken_or_refused(
        flags: u8,
        body in prop_oneof![messages(), prop::collection::vec(any::<u8>(), 0..64)],
        cut in 0..80_usize,
    ) {
        let mut session = DatagramSession::new(small_config(), NodeId(0), NodeId(1), 5).unwrap();
        let mut table = Table::default();
        let mut datagram = std::vec![0xfe, flags, 1, 0, 0, 0, 0, 7];
        datagram.extend(body);
        datagram.truncate(cut.max(4));
        let _ = session.handle_datagram(NOW, &datagram, &mut table);
        session.handle_timeout(NOW);
        let (mut answer, mut answers) = (std::vec::Vec::new(), 0);
        while session.poll_transmit(NOW, &mut table, &mut answer) {
            answers += 1;
            prop_assert!(answers < 10, "it never stops answering");
        }
    }

    #[test]
    fn a_stream_of_anything_is_read_or_given_up(
        body in prop_oneof![messages(), prop::collection::vec(any::<u8>(), 0..256)],
        says_hello: bool,
        piece_bytes in 1..40_usize,
    ) {
        let mut session = StreamSession::new(small_config(), NodeId(0), NodeId(1), 5).unwrap();
        let mut table = Table::default();
        session.handle_connected();
        let mut bytes = if says_hello { HELLO.to_vec() } else { std::vec::Vec::new() };
        bytes.extend(body);
        for piece in bytes.chunks(piece_bytes) {
            if session.handle_bytes(NOW, piece, &mut table).is_err() {
                session.handle_disconnected();
                break;
            }
            prop_assert!(session.poll_stream(NOW, &mut table).len() <= QUEUE_BYTES_MAX);
            prop_assert!(session.unread_bytes() < MESSAGE_BYTES_MAX + piece_bytes);
        }
    }
}
