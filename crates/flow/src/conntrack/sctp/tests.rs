//! Associations as seen by a tracker.

use Direction::{Original, Reply};
use SctpState::*;

use super::*;
use crate::connection::flags::{ASSURED, REPLIED};
use crate::conntrack::TrackerConfig;

/// The tag of packets to the initiator, and of those from it.
const TO_INITIATOR: u32 = 0xa1a1_a1a1;
const FROM_INITIATOR: u32 = 0xb2b2_b2b2;

fn of(verification_tag: u32, chunks: u16) -> SctpPacket {
    SctpPacket { verification_tag, chunks, ..SctpPacket::default() }
}

fn reflecting(verification_tag: u32, chunks: u16) -> SctpPacket {
    SctpPacket { reflects_tag: true, ..of(verification_tag, chunks) }
}

fn init(initiate_tag: u32) -> SctpPacket {
    SctpPacket { initiate_tag, ..of(0, chunk::INIT) }
}

fn init_ack(verification_tag: u32, initiate_tag: u32) -> SctpPacket {
    SctpPacket { initiate_tag, ..of(verification_tag, chunk::INIT_ACK) }
}

/// An association under test, advanced by a tracker.
struct Association {
    state: ProtocolState,
    flags: u8,
}

impl Association {
    fn begun(packet: &SctpPacket) -> Self {
        let (state, _) = begin(&TrackerConfig::default(), packet).expect("it begins one");
        Self { state, flags: 0 }
    }

    fn established() -> Self {
        let mut association = Self::begun(&init(TO_INITIATOR));
        association.pass(Reply, init_ack(TO_INITIATOR, FROM_INITIATOR));
        association.pass(Original, of(FROM_INITIATOR, chunk::COOKIE_ECHO | chunk::OTHER));
        association.pass(Reply, of(TO_INITIATOR, chunk::COOKIE_ACK));
        assert_eq!(association.state(), Established);
        association
    }

    fn state(&self) -> SctpState {
        SctpState::from_u8(self.state.state).unwrap()
    }

    fn advance(&mut self, direction: Direction, packet: &SctpPacket) -> Advance {
        advance(&Timeouts::default(), &mut self.state, &mut self.flags, direction, packet)
    }

    #[track_caller]
    fn pass(&mut self, direction: Direction, packet: SctpPacket) -> Change {
        let advance = self.advance(direction, &packet);
        assert_eq!(advance.verdict, Ok(()), "{packet:?} in {:?}", self.state());
        advance.change
    }

    #[track_caller]
    fn refuse(&mut self, direction: Direction, packet: SctpPacket) -> DropReason {
        let before = (self.state, self.flags);
        let advance = self.advance(direction, &packet);
        assert_eq!((self.state, self.flags), before, "a refused packet changes nothing");
        advance.verdict.expect_err("it is refused")
    }
}

#[test]
fn an_association_is_followed_from_init_to_shutdown_complete() {
    // (direction, packet, state after it, lifetime in seconds: Linux's defaults)
    let script = [
        (Reply, init_ack(TO_INITIATOR, FROM_INITIATOR), CookieWait, 3),
        (Original, of(FROM_INITIATOR, chunk::COOKIE_ECHO | chunk::OTHER), CookieEchoed, 3),
        (Reply, of(TO_INITIATOR, chunk::COOKIE_ACK | chunk::OTHER), Established, 210),
        (Original, of(FROM_INITIATOR, chunk::OTHER), Established, 210),
        (Reply, of(TO_INITIATOR, chunk::HEARTBEAT), Established, 210),
        (Original, of(FROM_INITIATOR, chunk::HEARTBEAT_ACK), Established, 210),
        (Original, of(FROM_INITIATOR, chunk::SHUTDOWN | chunk::OTHER), ShutdownSent, 3),
        (Reply, of(TO_INITIATOR, chunk::SHUTDOWN_ACK), ShutdownAckSent, 3),
        (Original, of(FROM_INITIATOR, chunk::SHUTDOWN_COMPLETE), Closed, 10),
    ];
    let mut association = Association::begun(&init(TO_INITIATOR));
    assert_eq!(association.state(), CookieWait);
    for (step, (direction, packet, state, lives_s)) in script.into_iter().enumerate() {
        let advance = association.advance(direction, &packet);
        assert_eq!((advance.verdict, association.state()), (Ok(()), state), "step {step}");
        assert_eq!(advance.timeout, Some(Duration::from_secs(lives_s)), "step {step}");
        assert!((advance.change == Change::None) == (step == 3 || step == 4 || step == 5), "step {step}");
    }
    assert_eq!(association.flags, REPLIED | ASSURED);
    assert_eq!(association.advance(Original, &init(7)).next, Next::Reopen);
}

#[test]
fn every_state_handles_every_chunk_by_the_table() {
    let all = [
        None,
        Closed,
        CookieWait,
        CookieEchoed,
        Established,
        ShutdownSent,
        ShutdownRecd,
        ShutdownAckSent,
        HeartbeatSent,
    ];
    assert_eq!(all, SctpState::ALL);
    for (kind, after) in [
        (
            chunk::OTHER,
            [
                Established,
                Closed,
                CookieWait,
                CookieEchoed,
                Established,
                ShutdownSent,
                ShutdownRecd,
                ShutdownAckSent,
                HeartbeatSent,
            ],
        ),
        (
            chunk::HEARTBEAT_ACK,
            [
                Established,
                Closed,
                CookieWait,
                CookieEchoed,
                Established,
                ShutdownSent,
                ShutdownRecd,
                ShutdownAckSent,
                Established,
            ],
        ),
        (
            chunk::COOKIE_ECHO,
            [
                None,
                Closed,
                CookieEchoed,
                CookieEchoed,
                Established,
                ShutdownSent,
                ShutdownRecd,
                ShutdownAckSent,
                HeartbeatSent,
            ],
        ),
        (
            chunk::COOKIE_ACK,
            [
                Established,
                Closed,
                CookieWait,
                Established,
                Established,
                ShutdownSent,
                ShutdownRecd,
                ShutdownAckSent,
                HeartbeatSent,
            ],
        ),
        (
            chunk::SHUTDOWN,
            [
                ShutdownRecd,
                Closed,
                CookieWait,
                ShutdownRecd,
                ShutdownRecd,
                ShutdownSent,
                ShutdownRecd,
                ShutdownAckSent,
                ShutdownRecd,
            ],
        ),
        (
            chunk::SHUTDOWN_ACK,
            [
                ShutdownAckSent,
                Closed,
                CookieWait,
                CookieEchoed,
                Established,
                ShutdownAckSent,
                ShutdownAckSent,
                ShutdownAckSent,
                HeartbeatSent,
            ],
        ),
        (
            chunk::SHUTDOWN_COMPLETE,
            [Closed, Closed, CookieWait, CookieEchoed, Established, ShutdownSent, ShutdownRecd, Closed, HeartbeatSent],
        ),
        (chunk::ABORT, [Closed; 9]),
    ] {
        for (state, expected) in all.into_iter().zip(after) {
            let mut association = Association::established();
            association.state.state = state as u8;
            association.pass(Reply, of(TO_INITIATOR, kind));
            assert_eq!(association.state(), expected, "chunk {kind:#x} in {state:?}");
        }
    }
}

#[test]
fn a_packet_with_another_tag_is_refused() {
    let mut association = Association::established();
    for chunks in
        [chunk::OTHER, chunk::SHUTDOWN, chunk::SHUTDOWN_ACK, chunk::ABORT, chunk::COOKIE_ECHO, chunk::INIT_ACK]
    {
        assert_eq!(association.refuse(Original, of(TO_INITIATOR, chunks)), DropReason::InvalidSctpTag, "{chunks:#x}");
        assert_eq!(association.refuse(Reply, of(7, chunks)), DropReason::InvalidSctpTag, "{chunks:#x}");
    }
    let mut waiting = Association::begun(&init(TO_INITIATOR));
    assert_eq!(waiting.refuse(Original, of(7, chunk::OTHER)), DropReason::InvalidSctpState);
    assert_eq!(waiting.refuse(Reply, init_ack(7, 8)), DropReason::InvalidSctpTag);
}

#[test]
fn the_t_bit_selects_the_tag_of_an_abort() {
    for (packet, passes) in [
        (of(FROM_INITIATOR, chunk::ABORT), true),
        (reflecting(TO_INITIATOR, chunk::ABORT), true),
        (of(TO_INITIATOR, chunk::ABORT), false),
        (reflecting(FROM_INITIATOR, chunk::ABORT), false),
    ] {
        let mut association = Association::established();
        let advance = association.advance(Original, &packet);
        assert_eq!((advance.verdict.is_ok(), association.state() == Closed), (passes, passes), "{packet:?}");
    }
    let mut ending = Association::established();
    ending.state.state = ShutdownAckSent as u8;
    ending.refuse(Original, of(TO_INITIATOR, chunk::SHUTDOWN_COMPLETE));
    ending.pass(Original, reflecting(TO_INITIATOR, chunk::SHUTDOWN_COMPLETE));
    assert_eq!(ending.state(), Closed);
}

#[test]
fn a_refused_init_ends_in_closed() {
    let mut association = Association::begun(&init(TO_INITIATOR));
    association.pass(Reply, of(TO_INITIATOR, chunk::ABORT));
    assert_eq!(association.state(), Closed);
}

#[test]
fn a_retransmitted_init_may_offer_another_tag() {
    let mut association = Association::begun(&init(7));
    assert_eq!(association.pass(Original, init(TO_INITIATOR)), Change::Detail);
    association.pass(Reply, init_ack(TO_INITIATOR, 8));
    // The INIT ACK is lost behind this node; the next one offers another tag.
    association.pass(Original, init(TO_INITIATOR));
    association.pass(Reply, init_ack(TO_INITIATOR, FROM_INITIATOR));
    association.pass(Original, of(FROM_INITIATOR, chunk::COOKIE_ECHO));
    association.pass(Reply, of(TO_INITIATOR, chunk::COOKIE_ACK));
    assert_eq!(association.state(), Established);
}

#[test]
fn both_sides_may_open_at_once() {
    let mut association = Association::begun(&init(TO_INITIATOR));
    association.pass(Reply, init(FROM_INITIATOR));
    association.pass(Reply, init_ack(TO_INITIATOR, FROM_INITIATOR));
    association.pass(Original, init_ack(FROM_INITIATOR, TO_INITIATOR));
    association.pass(Original, of(FROM_INITIATOR, chunk::COOKIE_ECHO));
    association.pass(Reply, of(TO_INITIATOR, chunk::COOKIE_ECHO));
    association.pass(Reply, of(TO_INITIATOR, chunk::COOKIE_ACK));
    association.pass(Original, of(FROM_INITIATOR, chunk::COOKIE_ACK));
    assert_eq!(association.state(), Established);
}

#[test]
fn a_restarted_end_point_continues_with_new_tags_once_proven() {
    let mut association = Association::established();
    association.pass(Reply, init(0xc3));
    assert_eq!(association.state(), Established, "an INIT can be forged");
    association.pass(Reply, of(TO_INITIATOR, chunk::OTHER));
    association.pass(Original, init_ack(0xc3, 0xd4));
    association.pass(Original, of(FROM_INITIATOR, chunk::OTHER));
    association.refuse(Reply, of(0xd4, chunk::OTHER));
    association.pass(Reply, of(0xd4, chunk::COOKIE_ECHO));
    assert_eq!(association.state(), CookieEchoed);
    association.pass(Original, of(0xc3, chunk::COOKIE_ACK));
    assert_eq!(association.state(), Established);
    association.refuse(Original, of(FROM_INITIATOR, chunk::OTHER));
    association.pass(Reply, of(0xd4, chunk::OTHER));
}

#[test]
fn an_abort_of_a_handshake_beside_the_association_does_not_end_it() {
    let mut association = Association::established();
    association.pass(Original, init(0xc3));
    association.pass(Reply, of(0xc3, chunk::ABORT));
    assert_eq!(association.state(), Established);
    association.pass(Reply, of(TO_INITIATOR, chunk::OTHER));
}

#[test]
fn a_further_path_begins_with_a_heartbeat() {
    let mut path = Association::begun(&of(FROM_INITIATOR, chunk::HEARTBEAT));
    assert_eq!(path.state(), HeartbeatSent);
    path.refuse(Original, of(7, chunk::HEARTBEAT));
    path.pass(Reply, of(TO_INITIATOR, chunk::HEARTBEAT_ACK));
    assert_eq!((path.state(), path.flags), (Established, REPLIED | ASSURED));
    path.refuse(Reply, of(7, chunk::OTHER));
}

#[test]
fn no_other_chunk_begins_an_association_by_default() {
    let loose = TrackerConfig { loose: true, ..TrackerConfig::default() };
    for chunks in [chunk::OTHER, chunk::COOKIE_ECHO, chunk::SHUTDOWN, chunk::COOKIE_ACK, chunk::HEARTBEAT_ACK] {
        let packet = of(7, chunks);
        assert_eq!(begin(&TrackerConfig::default(), &packet).err(), Some(DropReason::NoConnection), "{chunks:#x}");
        assert!(begin(&loose, &packet).is_ok(), "{chunks:#x}");
    }
    for packet in
        [of(7, chunk::ABORT), of(7, chunk::SHUTDOWN_COMPLETE), init_ack(7, 8), of(7, chunk::HEARTBEAT | chunk::ABORT)]
    {
        assert!(begin(&loose, &packet).is_err(), "{packet:?}");
    }
}

#[test]
fn a_replica_without_tags_learns_them_and_one_with_tags_enforces_them() {
    // The replica comes from a node without SCTP states.
    let mut unknown = Association { state: ProtocolState::default(), flags: 0 };
    take_over(&mut unknown.state);
    unknown.pass(Reply, of(TO_INITIATOR, chunk::OTHER));
    unknown.pass(Original, of(FROM_INITIATOR, chunk::OTHER));
    assert_eq!(unknown.state(), Established);
    unknown.refuse(Original, of(7, chunk::OTHER));

    let mut known = Association::established();
    take_over(&mut known.state);
    known.refuse(Original, of(7, chunk::ABORT));
    known.pass(Original, of(FROM_INITIATOR, chunk::OTHER));

    // The replica contains the INIT only.
    let mut waiting = Association::begun(&init(TO_INITIATOR));
    take_over(&mut waiting.state);
    waiting.pass(Original, of(FROM_INITIATOR, chunk::COOKIE_ECHO));
    waiting.pass(Reply, of(TO_INITIATOR, chunk::COOKIE_ACK));
    assert_eq!(waiting.state(), Established);
    waiting.refuse(Original, of(7, chunk::OTHER));
}
