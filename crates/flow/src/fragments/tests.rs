//! The fragment table, fed with fragments as they come off a wire.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::PortId;
use crate::wire::build::Envelope;
use crate::wire::ipv6::FragmentHeader;
use crate::wire::{Packet, Parsed, ip_protocol, parse};

/// A fragment on the wire: of which source and packet, from where to where.
#[derive(Clone, Copy, Debug)]
struct Piece {
    host: u8,
    is_ipv6: bool,
    identification: u32,
    start: u16,
    length_bytes: u16,
    more: bool,
}

const FIRST: Piece = Piece { host: 1, is_ipv6: false, identification: 7, start: 0, length_bytes: 16, more: true };
const MIDDLE: Piece = Piece { start: 16, ..FIRST };
const LAST: Piece = Piece { start: 32, length_bytes: 5, more: false, ..FIRST };

fn tuple(piece: Piece) -> Tuple {
    if piece.is_ipv6 {
        let source = Ipv6Addr::new(0x2001, 0xdb8, 0, piece.host.into(), 0, 0, 0, 9);
        Tuple::v6(ip_protocol::UDP, (source, 4000), (Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1), 53))
    } else {
        Tuple::v4(ip_protocol::UDP, (Ipv4Addr::new(10, 0, 0, piece.host), 4000), (Ipv4Addr::new(192, 0, 2, 1), 53))
    }
}

struct Bench {
    now: Instant,
    table: FragmentTable,
}

impl Bench {
    fn new(limits: FragmentLimits) -> Self {
        Self { now: Instant::from_millis(1000), table: FragmentTable::new(limits, HashKey([1, 2])) }
    }

    /// A piece comes in; a first one passes, with all that it had to wait for.
    fn feed(&mut self, piece: Piece) -> Result<Look, DropReason> {
        self.feed_and(piece, Fate::Passed)
    }

    fn feed_and(&mut self, piece: Piece, fate: impl Fn(Way) -> Fate) -> Result<Look, DropReason> {
        let Piece { identification, start, length_bytes, more, .. } = piece;
        let fragment = Some(FragmentHeader { offset_bytes: start.into(), more, identification });
        let envelope = Envelope { fragment, ..Envelope::default() };
        self.feed_frame(envelope.raw(&tuple(piece), &vec![0; length_bytes.into()]), fate)
    }

    fn feed_frame(&mut self, mut bytes: Vec<u8>, fate: impl Fn(Way) -> Fate) -> Result<Look, DropReason> {
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
        let Parsed::Ip(mut headers) = parse(&frame)? else { panic!("an IP packet") };
        let fragment = Fragment::of(&Packet { frame: &mut frame, headers: &mut headers })?;
        let look = self.table.handle_fragment(self.now, &fragment, &frame)?;
        if look == Look::First {
            let way = Way { incoming: headers.tuple, outgoing: headers.tuple, sequence_base: None };
            self.table.note_first(&fragment, fate(way));
        }
        Ok(look)
    }

    /// What was released comes in again.
    fn feed_released(&mut self) -> Vec<Result<Look, DropReason>> {
        let released = self.table.take_released().unwrap_or_default();
        released.into_iter().map(|frame| self.feed_frame(frame.bytes, Fate::Passed)).collect()
    }

    fn lost(&mut self) -> Vec<(DropReason, u64)> {
        self.table.take_lost().collect()
    }
}

fn follows(look: Result<Look, DropReason>) -> bool {
    matches!(look, Ok(Look::Follows(_)))
}

#[test]
fn later_fragments_follow_the_first_and_a_whole_packet_is_forgotten() {
    for is_ipv6 in [false, true] {
        let mut bench = Bench::new(FragmentLimits::default());
        let of_family = |piece| Piece { is_ipv6, ..piece };
        assert_eq!(bench.feed(of_family(FIRST)), Ok(Look::First));
        assert!(follows(bench.feed(of_family(MIDDLE))));
        assert_eq!(bench.table.len(), 1);
        assert!(follows(bench.feed(of_family(LAST))));
        assert!(bench.table.is_empty() && bench.table.poll_timeout().is_none());
    }
}

#[test]
fn fragments_before_the_first_are_held_and_released_by_it_in_the_order_in_which_they_came() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(LAST), Ok(Look::Held));
    assert_eq!(bench.feed(MIDDLE), Ok(Look::Held));
    assert!(!bench.table.has_released() && bench.table.held_bytes() > 0);
    assert_eq!(bench.feed(FIRST), Ok(Look::First));
    assert_eq!(bench.table.held_bytes(), 0);
    let again = bench.feed_released();
    assert!(again.len() == 2 && again.iter().all(|look| follows(*look)), "{again:?}");
    assert!(bench.table.is_empty());
}

#[test]
fn a_first_fragment_that_is_kept_back_lets_none_pass_until_it_comes_again() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed_and(FIRST, |_| Fate::KeptBack), Ok(Look::First));
    assert_eq!(bench.feed(MIDDLE), Ok(Look::Held));
    assert_eq!(bench.feed(FIRST), Ok(Look::First), "it is no duplicate of itself");
    assert!(bench.feed_released().into_iter().all(follows));
}

#[test]
fn what_the_first_was_dropped_for_the_others_are_dropped_for_too() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(LAST), Ok(Look::Held));
    assert_eq!(bench.feed_and(FIRST, |_| Fate::Refused(DropReason::FirewallDenied)), Ok(Look::First));
    assert_eq!(bench.lost(), [(DropReason::FirewallDenied, 1)]);
    assert_eq!(bench.feed(MIDDLE), Err(DropReason::FirewallDenied));
    assert!(!bench.table.has_released());
}

#[test]
fn an_overlap_condemns_what_came_before_and_what_comes_after() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(MIDDLE), Ok(Look::Held));
    assert_eq!(bench.feed(Piece { start: 24, ..MIDDLE }), Err(DropReason::OverlappingFragment));
    assert_eq!(bench.lost(), [(DropReason::OverlappingFragment, 1)]);
    assert_eq!(bench.feed(FIRST), Err(DropReason::OverlappingFragment));
    assert_eq!(bench.feed(LAST), Err(DropReason::OverlappingFragment));
}

#[test]
fn a_duplicate_is_dropped_and_harms_nobody() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(FIRST), Ok(Look::First));
    assert_eq!(bench.feed(FIRST), Err(DropReason::DuplicateFragment));
    assert!(follows(bench.feed(MIDDLE)));
    assert_eq!(bench.feed(MIDDLE), Err(DropReason::DuplicateFragment));
    assert!(follows(bench.feed(LAST)));
}

#[test]
fn without_its_first_fragment_a_packet_is_given_up_when_its_time_is_over() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(MIDDLE), Ok(Look::Held));
    let due = bench.table.poll_timeout().unwrap();
    assert_eq!(due.saturating_since(bench.now), FragmentLimits::default().timeout);
    bench.now = due;
    bench.table.expire(due);
    assert_eq!(bench.lost(), [(DropReason::FragmentTimeout, 1)]);
    assert_eq!((bench.table.len(), bench.table.held_bytes()), (0, 0));
}

#[test]
fn in_a_full_table_the_oldest_packet_gives_way() {
    let mut bench = Bench::new(FragmentLimits { datagrams_max: 4, ..FragmentLimits::default() });
    for host in 1..=4 {
        assert_eq!(bench.feed(Piece { host, ..MIDDLE }), Ok(Look::Held));
    }
    assert_eq!(bench.feed(Piece { host: 5, ..FIRST }), Ok(Look::First));
    assert_eq!(bench.lost(), [(DropReason::FragmentTableFull, 1)]);
    assert_eq!(bench.feed(Piece { host: 2, ..FIRST }), Ok(Look::First), "the younger ones are there");
    assert_eq!(bench.feed_released().len(), 1);
}

#[test]
fn one_source_has_its_share_and_others_theirs() {
    let limits = FragmentLimits { datagrams_per_source_max: 2, ..FragmentLimits::default() };
    let mut bench = Bench::new(limits);
    let nth = |identification| Piece { identification, ..MIDDLE };
    assert_eq!((bench.feed(nth(1)), bench.feed(nth(2))), (Ok(Look::Held), Ok(Look::Held)));
    assert_eq!(bench.feed(nth(3)), Err(DropReason::FragmentSourceLimit));
    assert_eq!(bench.feed(Piece { host: 2, ..MIDDLE }), Ok(Look::Held));
}

#[test]
fn the_identification_and_for_ipv4_the_protocol_tell_packets_apart() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(FIRST), Ok(Look::First));
    assert_eq!(bench.feed(Piece { identification: 8, ..MIDDLE }), Ok(Look::Held));
    let fragment = Some(FragmentHeader { offset_bytes: 16, more: true, identification: 7 });
    let other = Tuple { protocol: 47, ..tuple(FIRST) };
    let frame = Envelope { fragment, ..Envelope::default() }.raw(&other, &[0; 16]);
    assert_eq!(bench.feed_frame(frame, Fate::Passed), Ok(Look::Held));
    let wide = Piece { is_ipv6: true, identification: 0x0001_0007, ..FIRST };
    assert_eq!(bench.feed(wide), Ok(Look::First));
    assert_eq!(bench.feed(Piece { identification: 7, ..Piece { start: 16, ..wide } }), Ok(Look::Held));
}

#[test]
fn fragments_that_are_empty_or_end_between_eight_bytes_are_malformed() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(Piece { length_bytes: 0, ..LAST }), Err(DropReason::Malformed));
    assert_eq!(bench.feed(Piece { length_bytes: 13, ..MIDDLE }), Err(DropReason::Malformed));
    assert!(bench.table.is_empty());
}

const SMALL: FragmentLimits = FragmentLimits {
    datagrams_max: 6,
    datagrams_per_source_max: 4,
    held_bytes_max: 3000,
    held_bytes_per_source_max: 2000,
    timeout: Duration::from_millis(100),
    sources: crate::source_counts::SourcePrefixes { ipv4_bits: 32, ipv6_bits: 64 },
};

fn pieces() -> impl Strategy<Value = Piece> {
    (0u8..4, any::<bool>(), 0u32..4, 0u16..12, 1u16..4, any::<bool>()).prop_map(
        |(host, is_ipv6, identification, start, length, more)| Piece {
            host,
            is_ipv6,
            identification,
            start: start * 8,
            length_bytes: length * 8,
            more,
        },
    )
}

proptest! {
    #[test]
    fn no_input_makes_it_exceed_its_bounds_and_all_that_came_in_is_accounted_for(
        arrivals in prop::collection::vec((pieces(), 0u64..30, 0u8..4), 1..200),
    ) {
        let mut bench = Bench::new(SMALL);
        let (mut held, mut released, mut lost) = (0, 0, 0);
        for (piece, wait_ms, fate) in arrivals {
            bench.now = bench.now + Duration::from_millis(wait_ms);
            let look = bench.feed_and(piece, |way| match fate {
                0 => Fate::Refused(DropReason::FirewallDenied),
                1 => Fate::KeptBack,
                _ => Fate::Passed(way),
            });
            held += u64::from(look == Ok(Look::Held));
            released += bench.table.take_released().map_or(0, |frames| frames.len() as u64);
            lost += bench.lost().into_iter().map(|(_, frames)| frames).sum::<u64>();
            prop_assert!(bench.table.len() <= SMALL.datagrams_max as usize);
            prop_assert!(bench.table.held_bytes() <= SMALL.held_bytes_max);
            prop_assert!(bench.table.held_bytes_by_source.count(&tuple(piece)) <= SMALL.held_bytes_per_source_max);
            prop_assert!(bench.table.datagrams_by_source.count(&tuple(piece)) <= SMALL.datagrams_per_source_max);
        }
        bench.now = bench.now + SMALL.timeout;
        bench.table.expire(bench.now);
        lost += bench.lost().into_iter().map(|(_, frames)| frames).sum::<u64>();
        prop_assert_eq!(held, released + lost, "a held fragment is released or counted");
        prop_assert_eq!((bench.table.len(), bench.table.held_bytes()), (0, 0));
        prop_assert_eq!(bench.table.held_bytes_by_source.sources() + bench.table.datagrams_by_source.sources(), 0);
    }
}
