//! The fast path for nearly all segments: an ACK, with or without data, inside the windows of an established connection
//! of which both sides are known.
//!
//! Its result and side effects equal those of the general path, which the test below verifies. All other segments take
//! the general path.

use core::time::Duration;

use super::automaton::Kind;
use super::{ProtocolState, TCP_RETRANSMISSIONS_MAX, TcpPeer, TcpState, TrackerConfig, peer_flags, window};
use crate::Direction;
use crate::connection::flags::{ASSURED, REPLIED, SHARED};
use crate::serial::{is_after, is_before, later};
use crate::wire::TcpSegment;
use crate::wire::tcp_flags::{ACK, FIN, RST, SYN, URG};

/// Passes a segment on the fast path and returns the connection's lifetime. `None`, without side effects: the segment
/// or the connection needs the general path.
#[inline(always)]
pub(in crate::conntrack) fn pass_plain(
    config: &TrackerConfig,
    state: &mut ProtocolState,
    flags: u8,
    direction: Direction,
    segment: &TcpSegment,
) -> Option<Duration> {
    let is_settled =
        state.state == TcpState::Established as u8 && flags & (REPLIED | ASSURED | SHARED) == REPLIED | ASSURED;
    // An open window: with a closed one the connection has a shorter timeout, and is probed beyond it.
    let is_plain = segment.flags & (SYN | FIN | RST | URG | ACK) == ACK
        && segment.sack_end == segment.acknowledgement
        && segment.window != 0;
    let [one, other] = &mut state.peers;
    let (sender, receiver) = if direction == Direction::Original { (one, other) } else { (other, one) };
    if !is_settled || !is_plain || !is_known(sender, receiver) {
        return None;
    }
    let TcpSegment { sequence, acknowledgement, .. } = *segment;
    let end = sequence.wrapping_add(segment.payload_bytes);
    let window = u32::from(segment.window) << sender.window_scale.min(window::WINDOW_SCALE_MAX);
    let is_in_window = !is_after(sequence, sender.end_max)
        && !is_after(end, sender.end_max)
        && is_after(end, sender.end.wrapping_sub(receiver.window_max).wrapping_sub(1))
        && !is_after(acknowledgement, receiver.end)
        && is_after(acknowledgement, window::lowest_acknowledgement(sender, receiver).wrapping_sub(1));
    if !is_in_window {
        return None;
    }

    sender.window_max = sender.window_max.max(window);
    if is_after(end, sender.end) {
        sender.end = end;
        sender.flags |= peer_flags::UNACKNOWLEDGED;
    }
    let edge = acknowledgement.wrapping_add(window);
    if !is_before(edge, receiver.end_max) {
        receiver.end_max = edge;
    }
    sender.acknowledged_max = later(acknowledgement, sender.acknowledged_max);
    if acknowledgement == receiver.end {
        receiver.flags &= !peer_flags::UNACKNOWLEDGED;
    }
    let is_unacknowledged = (sender.flags | receiver.flags) & peer_flags::UNACKNOWLEDGED != 0;
    window::note_numbers(state, direction, segment, end);
    state.last_kind = Kind::Ack as u8;
    Some(timeout(config, state.retransmissions, is_unacknowledged))
}

/// Both sides are known and neither is being relearnt.
#[inline(always)]
const fn is_known(sender: &TcpPeer, receiver: &TcpPeer) -> bool {
    const WANTED: u8 = peer_flags::ACKNOWLEDGED;
    (sender.flags | receiver.flags) & (peer_flags::RELEARNING | peer_flags::DIRECT) == 0
        && sender.flags & receiver.flags & WANTED == WANTED
        && sender.window_max != 0
        && receiver.window_max != 0
}

#[inline(always)]
fn timeout(config: &TrackerConfig, retransmissions: u8, is_unacknowledged: bool) -> Duration {
    let timeouts = &config.timeouts;
    if retransmissions >= TCP_RETRANSMISSIONS_MAX && timeouts.tcp_established > timeouts.tcp_retransmission {
        timeouts.tcp_retransmission
    } else if is_unacknowledged {
        timeouts.tcp_established.min(timeouts.tcp_unacknowledged)
    } else {
        timeouts.tcp_established
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Advance, Change, general};
    use super::*;
    use crate::conntrack::last_flags;

    /// Numbers of which any two are often close, equal, or half the circle apart.
    fn sequence() -> impl Strategy<Value = u32> {
        prop_oneof![
            4 => (0u32..6).prop_map(|step| step * 500),
            1 => (0u32..4).prop_map(|step| u32::MAX - step * 500),
            1 => any::<u32>(),
        ]
    }

    fn peer() -> impl Strategy<Value = TcpPeer> {
        let flags = prop_oneof![3 => Just(peer_flags::ACKNOWLEDGED), 1 => any::<u8>()];
        (sequence(), sequence(), prop_oneof![Just(0), 1u32..4000], sequence(), 0u8..16, flags, any::<u16>()).prop_map(
            |(end, more, window_max, acknowledged_max, window_scale, flags, relearnt_at)| TcpPeer {
                end,
                end_max: end.wrapping_add(more % 4000),
                window_max,
                acknowledged_max,
                window_scale,
                flags,
                relearnt_at,
            },
        )
    }

    fn segment() -> impl Strategy<Value = TcpSegment> {
        let flags = prop_oneof![8 => Just(ACK), 4 => Just(ACK | 8), 1 => any::<u8>()];
        (sequence(), sequence(), flags, prop_oneof![Just(0u16), 1u16..2000], 0u32..600, any::<bool>()).prop_map(
            |(sequence, acknowledgement, flags, window, payload_bytes, has_sack)| TcpSegment {
                sequence,
                acknowledgement,
                flags,
                window,
                payload_bytes,
                sack_end: acknowledgement.wrapping_add(if has_sack { 500 } else { 0 }),
                ..TcpSegment::default()
            },
        )
    }

    fn state() -> impl Strategy<Value = ProtocolState> {
        (prop_oneof![9 => Just(3u8), 1 => 0u8..10], [peer(), peer()], 0u8..6, 0u8..2, segment(), any::<bool>())
            .prop_map(|(state, peers, retransmissions, last_direction, last, is_challenged)| ProtocolState {
                state,
                peers,
                retransmissions,
                last_direction,
                last_sequence: last.sequence,
                last_acknowledgement: last.acknowledgement,
                last_end: last.end(),
                last_window: last.window,
                last_flags: if is_challenged { last_flags::CHALLENGE_EXPECTED } else { 0 },
                ..ProtocolState::default()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn the_fast_path_equals_the_general_path(
            before in state(),
            flags in prop_oneof![9 => Just(REPLIED | ASSURED), 1 => any::<u8>()],
            is_reply: bool,
            segment in segment(),
            liberal: bool,
            unacknowledged_s in 1u64..1_000_000,
        ) {
            let mut config = TrackerConfig { liberal, ..TrackerConfig::default() };
            config.timeouts.tcp_unacknowledged = Duration::from_secs(unacknowledged_s);
            let direction = if is_reply { Direction::Reply } else { Direction::Original };
            let (mut plain, mut general_state, mut general_flags) = (before, before, flags);
            match pass_plain(&config, &mut plain, flags, direction, &segment) {
                None => prop_assert_eq!(plain, before, "nothing is noted"),
                Some(timeout) => {
                    let advance = general(&config, &mut general_state, &mut general_flags, direction, &segment);
                    prop_assert_eq!(advance, Advance::pass(Change::None, Some(timeout)));
                    prop_assert_eq!((plain, flags), (general_state, general_flags));
                }
            }
        }
    }

    #[test]
    fn segments_of_a_running_exchange_are_plain() {
        let peer = |end: u32| TcpPeer {
            end,
            end_max: end + 60_000,
            window_max: 60_000,
            acknowledged_max: 1,
            flags: peer_flags::ACKNOWLEDGED,
            ..TcpPeer::default()
        };
        let mut state = ProtocolState { state: TcpState::Established as u8, ..ProtocolState::default() };
        state.peers = [peer(1000), peer(9000)];
        let config = TrackerConfig::default();
        let mut pass = |direction, sequence, acknowledgement, payload_bytes| {
            let segment = TcpSegment {
                sequence,
                acknowledgement,
                flags: ACK,
                window: 60_000,
                payload_bytes,
                sack_end: acknowledgement,
                ..TcpSegment::default()
            };
            pass_plain(&config, &mut state, REPLIED | ASSURED, direction, &segment)
        };
        assert_eq!(pass(Direction::Original, 1000, 9000, 500), Some(config.timeouts.tcp_unacknowledged));
        assert_eq!(pass(Direction::Reply, 9000, 1500, 0), Some(config.timeouts.tcp_established));
        assert_eq!(pass(Direction::Reply, 9000, 1500, 1400), Some(config.timeouts.tcp_unacknowledged));
        assert_eq!(pass(Direction::Original, 1500, 10_400, 0), Some(config.timeouts.tcp_established));
        assert_eq!(pass(Direction::Original, 200_000, 10_400, 0), None, "far outside the window");
    }
}
