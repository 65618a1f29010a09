//! What a peer says over plain UDP, and over a stream that is cut anywhere.

use flow::{Instant, NodeId};
use replication::SessionConfig;
use replication::baseline::{DatagramSession, MESSAGE_BYTES_MAX, QUEUE_BYTES_MAX, StreamSession};

use crate::session::{Numbers, SLOTS};

const NOW: Instant = Instant::from_millis(1);
const ANSWERS_MAX: usize = 16;

/// The first byte says over which, and how long the pieces of a stream are.
pub fn run(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    match first {
        0 => datagram(bytes),
        piece_bytes => stream(bytes, usize::from(*piece_bytes)),
    }
}

fn config() -> SessionConfig {
    SessionConfig { connections_max: SLOTS, ..SessionConfig::default() }
}

fn datagram(bytes: &[u8]) {
    let Ok(mut session) = DatagramSession::new(config(), NodeId(0), NodeId(1), 5) else { return };
    let mut numbers = Numbers::with_one();
    // A refusal is an answer as good as another.
    let _ = session.handle_datagram(NOW, bytes, &mut numbers);
    session.handle_timeout(NOW);
    let mut answer = Vec::new();
    let answers = (0..=ANSWERS_MAX).take_while(|_| session.poll_transmit(NOW, &mut numbers, &mut answer)).count();
    assert!(answers <= ANSWERS_MAX, "it sends for ever");
}

fn stream(bytes: &[u8], piece_bytes: usize) {
    let Ok(mut session) = StreamSession::new(config(), NodeId(0), NodeId(1), 5) else { return };
    let mut numbers = Numbers::with_one();
    session.handle_connected();
    for piece in bytes.chunks(piece_bytes) {
        if session.handle_bytes(NOW, piece, &mut numbers).is_err() {
            session.handle_disconnected();
            return;
        }
        assert!(session.poll_stream(NOW, &mut numbers).len() <= QUEUE_BYTES_MAX);
        assert!(session.unread_bytes() < MESSAGE_BYTES_MAX + piece_bytes);
    }
}
