//! The cipher alone, without sockets.

use std::sync::Arc;
use std::time::Duration;

use flow::{Instant, NodeId, WorkerId};
use packet_io::usage::thread_cpu_time;
use replication::secure::{Channel, ChannelConfig, Content, Credentials, PreSharedKey, Rotation, Seed};

use crate::bench::rounds::Rounds;

/// Contents whose times give the cost of a datagram and of a byte: a small one and the largest of an Ethernet frame.
const CONTENT_BYTES: [usize; 2] = [64, 1439];
/// Datagrams of a round.
const DATAGRAMS: usize = 4000;
/// Handshakes of a round.
const HANDSHAKES: u32 = 10;

/// Nanoseconds, a figure a round.
#[derive(Default)]
pub(super) struct Cipher {
    /// Of a datagram of either length.
    pub(super) seal: [Rounds; 2],
    pub(super) open: [Rounds; 2],
    /// Both nodes' part in a handshake.
    pub(super) handshake: Rounds,
}

pub(in crate::bench) fn channels(seed: u8) -> [Channel; 2] {
    let credentials = Arc::new(Credentials::new(vec![PreSharedKey::new([7; 32])], None).expect("there is a key"));
    let rotation = Rotation { interval: Duration::from_secs(86_400), datagrams: u64::MAX };
    let channel = |local: u8| {
        let config = ChannelConfig { local: NodeId(local), peer: NodeId(1 - local), worker: WorkerId::LEAD, rotation };
        let seed = Seed::new([seed.wrapping_mul(2).wrapping_add(local); 32]);
        Channel::new(config, Arc::clone(&credentials), seed, Instant::ZERO, Duration::from_secs(1_800_000_000))
    };
    [channel(0), channel(1)]
}

/// One node begins, the other answers.
pub(in crate::bench) fn shake_hands([initiator, responder]: &mut [Channel; 2]) {
    let (now, mut datagram, mut content) = (Instant::from_millis(1), Vec::new(), Vec::new());
    initiator.handle_timeout(now);
    for _ in 0..2 {
        while initiator.poll_transmit(&mut datagram) {
            let _ = responder.handle_datagram(now, &datagram, &mut content);
        }
        while responder.poll_transmit(&mut datagram) {
            let _ = initiator.handle_datagram(now, &datagram, &mut content);
        }
    }
}

impl Cipher {
    /// Measures one round.
    pub(super) fn measure(&mut self) {
        let mut handshakes = Duration::ZERO;
        let mut pair = channels(0);
        for seed in 0..HANDSHAKES {
            pair = channels(seed as u8);
            let began = thread_cpu_time();
            shake_hands(&mut pair);
            handshakes += thread_cpu_time().saturating_sub(began);
        }
        self.handshake.push(handshakes.as_secs_f64() * 1e9 / f64::from(HANDSHAKES));
        let [left, right] = &mut pair;
        for (index, length_bytes) in CONTENT_BYTES.into_iter().enumerate() {
            let [seal_ns, open_ns] = seal_and_open(left, right, length_bytes);
            self.seal[index].push(seal_ns);
            self.open[index].push(open_ns);
        }
    }

    /// What a byte costs, by the difference of both lengths.
    pub(super) fn per_byte(of: &[Rounds; 2]) -> f64 {
        let [short, long] = CONTENT_BYTES;
        (of[1].median() - of[0].median()).max(0.0) / (long - short) as f64
    }
}

fn seal_and_open(left: &mut Channel, right: &mut Channel, length_bytes: usize) -> [f64; 2] {
    let now = Instant::from_millis(2);
    let mut datagrams = core::array::from_fn::<_, DATAGRAMS, _>(|_| Vec::with_capacity(2048));
    let mut content = Vec::with_capacity(2048);
    let began = thread_cpu_time();
    for datagram in &mut datagrams {
        content.clear();
        content.resize(length_bytes, 0x5a);
        assert!(left.seal(now, Content::Replication, &mut content, datagram), "the handshake succeeded");
    }
    let sealed = thread_cpu_time();
    for datagram in &datagrams {
        let opened = right.handle_datagram(now, datagram, &mut content);
        assert_eq!(opened, Ok(Some(Content::Replication)));
    }
    let opened = thread_cpu_time();
    [sealed.saturating_sub(began), opened.saturating_sub(sealed)]
        .map(|spent| spent.as_secs_f64() * 1e9 / DATAGRAMS as f64)
}
