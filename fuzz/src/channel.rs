//! The secure channel: a stranger's datagrams, and genuine ones that are changed on the path.

use std::sync::Arc;
use std::time::Duration;

use flow::{Instant, NodeId, WorkerId};
use replication::secure::{Channel, ChannelConfig, Content, Credentials, PreSharedKey, Rotation, Seed};

const TODAY: Duration = Duration::from_secs(1_800_000_000);

fn channel(local: u8) -> Channel {
    let credentials = Credentials::new(vec![PreSharedKey::new([42; 32])], None).expect("there is a key");
    let (local_node, peer) = (NodeId(local), NodeId(1 - local));
    let config = ChannelConfig { local: local_node, peer, worker: WorkerId::LEAD, rotation: Rotation::default() };
    Channel::new(config, Arc::new(credentials), Seed::new([local; 32]), Instant::ZERO, TODAY)
}

/// Two channels and the fuzzer between them. Of each three bytes, the first chooses what happens, the others the byte
/// of the datagram. The rest is one datagram.
pub fn run(data: &[u8]) {
    let mut channels = [channel(0), channel(1)];
    let (mut now, mut buffer, mut content) = (Instant::from_millis(1), Vec::new(), Vec::new());
    let mut sent: [u64; 2] = [0; 2];
    let mut received: [Vec<u64>; 2] = [Vec::new(), Vec::new()];
    let mut datagrams: Vec<(usize, Vec<u8>)> = Vec::new();
    let (steps, rest) = data.split_at(data.len().min(96));
    for step in steps.chunks_exact(3) {
        let from = usize::from(step[0] & 1);
        match step[0] >> 1 & 7 {
            0 => now = now + Duration::from_millis(u64::from(step[1]) * 4),
            1 => {
                let mut plain = sent[from].to_be_bytes().to_vec();
                if channels[from].seal(now, Content::Replication, &mut plain, &mut buffer) {
                    sent[from] += 1;
                    datagrams.push((1 - from, buffer.clone()));
                }
            }
            // What was sent once arrives, or arrives again.
            2..=4 if !datagrams.is_empty() => {
                let (to, datagram) = datagrams[usize::from(step[1]) % datagrams.len()].clone();
                deliver(&mut channels[to], now, &datagram, &mut content, &mut received[to]);
            }
            5 if !datagrams.is_empty() => {
                let (to, mut datagram) = datagrams[usize::from(step[1]) % datagrams.len()].clone();
                let at = usize::from(step[2]) % datagram.len();
                datagram[at] ^= 1 << (step[1] % 8);
                // A changed datagram is not accepted.
                let before = received[to].len();
                deliver(&mut channels[to], now, &datagram, &mut content, &mut received[to]);
                assert_eq!(received[to].len(), before, "a changed datagram is refused");
            }
            _ => {}
        }
        for (from, channel) in channels.iter_mut().enumerate() {
            if channel.poll_timeout().is_some_and(|due| due <= now) {
                channel.handle_timeout(now);
            }
            while channel.poll_transmit(&mut buffer) {
                datagrams.push((1 - from, buffer.clone()));
            }
        }
    }
    for channel in &mut channels {
        let _ = channel.handle_datagram(now, rest, &mut content);
    }
    for (to, numbers) in received.iter_mut().enumerate() {
        let length = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), length, "nothing is taken twice");
        assert!(numbers.iter().all(|number| *number < sent[1 - to]), "nothing is taken that was not sent");
    }
}

fn deliver(channel: &mut Channel, now: Instant, datagram: &[u8], content: &mut Vec<u8>, received: &mut Vec<u64>) {
    if let Ok(Some(kind)) = channel.handle_datagram(now, datagram, content) {
        assert_eq!(kind, Content::Replication);
        let number: [u8; 8] = content[..].try_into().expect("a content is a number");
        received.push(u64::from_be_bytes(number));
    }
}
