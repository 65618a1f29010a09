//! The automata other than TCP's, and common properties of all.

use proptest::prelude::*;

use super::*;
use crate::Tuple;
use crate::connection::flags::{ASSURED, REPLIED};
use crate::wire::{IcmpError, IcmpQuery, TcpSegment};

fn headers(protocol: u8, transport: Transport) -> Headers {
    Headers {
        tuple: tuple(protocol),
        transport,
        l3_offset: 14,
        l4_offset: 34,
        payload_offset: 42,
        l3_bytes: 100,
        ttl: 64,
        is_fragment: false,
    }
}

fn tuple(protocol: u8) -> Tuple {
    Tuple {
        source: [1; 16],
        destination: [2; 16],
        source_port: 1000,
        destination_port: 53,
        protocol,
        version: 4,
        discriminator: 0,
    }
}

/// A connection with its tracker.
struct Tracked {
    tracker: Tracker,
    headers: Headers,
    state: ProtocolState,
    flags: u8,
}

impl Tracked {
    fn begin(headers: Headers) -> Self {
        let tracker = Tracker::default();
        let (state, _) = tracker.begin(&headers).expect("the packet begins a connection");
        Self { tracker, headers, state, flags: 0 }
    }

    fn at(&mut self, now_ms: u64, direction: Direction) -> Advance {
        let now = Instant::from_millis(now_ms);
        self.tracker.advance(now, &mut self.state, &mut self.flags, direction, &self.headers)
    }

    fn timeout_s(&mut self, now_ms: u64, direction: Direction) -> u64 {
        self.at(now_ms, direction).timeout.expect("every packet renews the timeout").as_secs()
    }
}

const UDP_HEADERS: fn() -> Headers = || headers(ip_protocol::UDP, Transport::Udp);

#[test]
fn a_udp_query_and_its_reply_have_a_timeout_of_thirty_seconds() {
    let mut query = Tracked::begin(UDP_HEADERS());
    assert_eq!(state_name(ip_protocol::UDP, &query.state), "UNREPLIED");
    assert_eq!(query.timeout_s(0, Direction::Original), 30);
    let answer = query.at(40, Direction::Reply);
    assert_eq!((answer.change, answer.timeout), (Change::State, Some(Duration::from_secs(30))));
    assert_eq!((state_name(ip_protocol::UDP, &query.state), query.flags), ("REPLIED", REPLIED));
    assert!(is_established(ip_protocol::UDP, &query.state));
}

#[test]
fn udp_that_goes_on_for_two_seconds_is_a_stream() {
    let mut stream = Tracked::begin(UDP_HEADERS());
    stream.at(100, Direction::Reply);
    assert_eq!(stream.timeout_s(2_099, Direction::Original), 30);
    let later = stream.at(2_100, Direction::Original);
    assert_eq!((later.change, later.timeout), (Change::State, Some(Duration::from_secs(120))));
    assert_eq!(stream.flags, REPLIED | ASSURED);
    assert_eq!(stream.at(2_101, Direction::Reply).change, Change::None);
}

#[test]
fn udp_without_a_reply_is_never_a_stream() {
    let mut shouting = Tracked::begin(UDP_HEADERS());
    for second in 0..100 {
        assert_eq!(shouting.timeout_s(second * 1000, Direction::Original), 30);
    }
    assert_eq!(shouting.flags, 0);
}

#[test]
fn a_udp_stream_is_recognised_across_the_wrap_of_milliseconds() {
    let mut stream = Tracked::begin(UDP_HEADERS());
    let answered_at_ms = u64::from(u32::MAX) - 500;
    stream.at(answered_at_ms, Direction::Reply);
    assert_eq!(stream.timeout_s(answered_at_ms + 1_999, Direction::Original), 30);
    assert_eq!(stream.timeout_s(answered_at_ms + 2_000, Direction::Original), 120);
}

#[test]
fn a_ping_may_have_many_replies_but_no_request_from_the_responder() {
    let query = |is_reply| {
        let kind = if is_reply { 0 } else { 8 };
        headers(ip_protocol::ICMP, Transport::IcmpQuery(IcmpQuery { kind, code: 0, is_reply }))
    };
    assert_eq!(Tracker::default().begin(&query(true)).unwrap_err(), DropReason::NoConnection);
    let mut ping = Tracked::begin(query(false));
    assert_eq!(ping.timeout_s(0, Direction::Original), 30);
    assert_eq!(ping.at(1, Direction::Reply).verdict, Err(DropReason::NoConnection), "a request of the responder");
    assert_eq!(ping.flags, 0);
    ping.headers = query(true);
    assert_eq!(ping.at(2, Direction::Original).verdict, Err(DropReason::NoConnection), "a reply without a request");
    let answer = ping.at(2, Direction::Reply);
    assert_eq!((answer.verdict, answer.change, answer.next), (Ok(()), Change::State, Next::Keep));
    assert_eq!(ping.at(3, Direction::Reply).change, Change::None);
}

#[test]
fn icmp_other_than_queries_belongs_to_no_connection() {
    let error = IcmpError { kind: 3, code: 1, inner: tuple(6), inner_l3_offset: 42, inner_l4_offset: 62 };
    let cases = [
        (Transport::IcmpError(error), DropReason::UnrelatedIcmpError),
        (Transport::IcmpOther(200, 0), DropReason::UnsupportedIcmp),
    ];
    for (transport, reason) in cases {
        let mut tracked = Tracked::begin(UDP_HEADERS());
        tracked.headers = headers(ip_protocol::ICMP, transport);
        assert_eq!(tracked.tracker.begin(&tracked.headers).unwrap_err(), reason);
        assert_eq!(tracked.at(0, Direction::Reply).verdict, Err(reason));
    }
}

#[test]
fn other_protocols_have_a_timeout_of_ten_minutes() {
    let mut tunnel = Tracked::begin(headers(47, Transport::Other));
    assert_eq!(tunnel.timeout_s(0, Direction::Original), 600);
    assert_eq!(tunnel.at(0, Direction::Reply).change, Change::State);
    assert_eq!((tunnel.flags, state_name(47, &tunnel.state)), (REPLIED, ""));
    assert!(!is_established(47, &tunnel.state) && !is_closing(47, &tunnel.state));
}

#[test]
fn tunnels_and_encrypted_packets_are_flows_between_two_addresses() {
    // Protocols without an automaton (GRE, ESP and others): both directions renew a single timeout, and only that
    // timeout ends them. They never become established, so under memory pressure they are evicted before established
    // connections.
    for protocol in [47, 50, 254] {
        let mut flow = Tracked::begin(headers(protocol, Transport::Other));
        let first_answer = flow.at(10, Direction::Reply);
        assert_eq!((first_answer.verdict, first_answer.change), (Ok(()), Change::State));
        for second in 1..100 {
            let direction = if second % 2 == 0 { Direction::Original } else { Direction::Reply };
            let later = flow.at(second * 1000, direction);
            assert_eq!((later.change, later.next), (Change::None, Next::Keep));
            assert_eq!(later.timeout, Some(Duration::from_secs(600)));
        }
        assert_eq!(flow.flags, REPLIED, "answered, but never assured");
        assert_eq!(flow.tracker.timeout(protocol, &flow.state, flow.flags).as_secs(), 600);
    }
}

#[test]
fn states_have_names_and_meanings() {
    let in_state = |number| ProtocolState { state: number, ..ProtocolState::default() };
    for state in TcpState::ALL {
        let name = state_name(ip_protocol::TCP, &in_state(state as u8));
        assert_eq!(name, state.name());
        assert_eq!(is_established(ip_protocol::TCP, &in_state(state as u8)), name == "ESTABLISHED");
        let closing = ["FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE"];
        assert_eq!(is_closing(ip_protocol::TCP, &in_state(state as u8)), closing.contains(&name));
    }
    assert_eq!(state_name(ip_protocol::TCP, &in_state(10)), "INVALID");
    assert_eq!(state_name(ip_protocol::UDP, &in_state(2)), "INVALID");
}

#[test]
fn configured_timeouts_apply() {
    let mut tracked = Tracked::begin(UDP_HEADERS());
    let timeouts = Timeouts { udp: Duration::from_secs(7), ..Timeouts::default() };
    tracked.tracker = Tracker::new(TrackerConfig { timeouts, ..TrackerConfig::default() });
    assert_eq!(tracked.timeout_s(0, Direction::Original), 7);
}

prop_compose! {
    /// Any segment, often with numbers near each other, so that it may belong to the connection.
    fn segment()(near in any::<bool>(), numbers in any::<[u32; 3]>(), flags in any::<u8>(), usual in any::<bool>(),
                 window in any::<u16>(), payload_bytes in 0u32..70_000, window_scale in any::<Option<u8>>(),
                 sack_permitted in any::<bool>()) -> TcpSegment {
        let number = |index: usize| if near { numbers[index] % 8 } else { numbers[index] };
        const USUAL: [u8; 6] = [0x02, 0x12, 0x10, 0x11, 0x04, 0x14];
        TcpSegment {
            sequence: number(0),
            acknowledgement: number(1),
            sack_end: number(2),
            flags: if usual { USUAL[usize::from(flags) % USUAL.len()] } else { flags },
            window,
            payload_bytes: if near { payload_bytes % 2 } else { payload_bytes },
            window_scale,
            sack_permitted,
            maximum_segment_bytes: None,
        }
    }
}

proptest! {
    /// Whatever comes, the state stays within its table, scales and windows within RFC 7323, and drops change no state.
    #[test]
    fn any_segments_keep_the_state_valid(
        first in segment(),
        loose in any::<bool>(),
        liberal in any::<bool>(),
        steps in prop::collection::vec((segment(), any::<bool>(), 0u8..20), 0..60),
    ) {
        let tracker = Tracker::new(TrackerConfig { loose, liberal, ..TrackerConfig::default() });
        let first = TcpSegment { flags: 0x02, ..first };
        let (mut state, _) = tracker.begin(&headers(ip_protocol::TCP, Transport::Tcp(first))).unwrap();
        let mut flags = 0;
        for (segment, is_reply, chance) in steps {
            if chance == 0 {
                tracker.take_over(ip_protocol::TCP, &mut state);
            }
            let before = (state.state, flags);
            let direction = if is_reply { Direction::Reply } else { Direction::Original };
            let packet = headers(ip_protocol::TCP, Transport::Tcp(segment));
            let advance = tracker.advance(Instant::ZERO, &mut state, &mut flags, direction, &packet);
            let after = TcpState::from_u8(state.state);
            prop_assert!(after.is_some_and(|state| state != TcpState::None), "{:?}", state);
            prop_assert_eq!(flags & !(REPLIED | ASSURED), 0);
            if advance.verdict.is_err() {
                prop_assert_eq!((state.state, flags), before);
                prop_assert_eq!((advance.change, advance.next), (Change::None, Next::Keep));
            } else if (state.state, flags) != before {
                prop_assert_eq!(advance.change, Change::State);
            }
            for peer in &state.peers {
                prop_assert!(peer.window_scale <= 14 && peer.window_max <= 1 << 30, "{:?}", peer);
            }
        }
    }
}
