//! The fragment table, fed with fragments from the wire.

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

/// A fragment on the wire: its source, packet and range.
#[derive(Clone, Copy, Debug)]
struct TestFragment {
    host: u8,
    is_ipv6: bool,
    identification: u32,
    start: u16,
    length_bytes: u16,
    more: bool,
}

const FIRST: TestFragment =
    TestFragment { host: 1, is_ipv6: false, identification: 7, start: 0, length_bytes: 16, more: true };
const MIDDLE: TestFragment = TestFragment { start: 16, ..FIRST };
const LAST: TestFragment = TestFragment { start: 32, length_bytes: 5, more: false, ..FIRST };

fn tuple(sample: TestFragment) -> Tuple {
    if sample.is_ipv6 {
        let source = Ipv6Addr::new(0x2001, 0xdb8, 0, sample.host.into(), 0, 0, 0, 9);
        Tuple::v6(ip_protocol::UDP, (source, 4000), (Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1), 53))
    } else {
        Tuple::v4(ip_protocol::UDP, (Ipv4Addr::new(10, 0, 0, sample.host), 4000), (Ipv4Addr::new(192, 0, 2, 1), 53))
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

    /// A fragment arrives; a first one passes, and releases all that waited for it.
    fn feed(&mut self, sample: TestFragment) -> Result<FragmentAction, DropReason> {
        self.feed_and(sample, FirstOutcome::Passed)
    }

    fn feed_and(
        &mut self,
        sample: TestFragment,
        outcome: impl Fn(FragmentRoute) -> FirstOutcome,
    ) -> Result<FragmentAction, DropReason> {
        let TestFragment { identification, start, length_bytes, more, .. } = sample;
        let fragment = Some(FragmentHeader { offset_bytes: start.into(), more, identification });
        let envelope = Envelope { fragment, ..Envelope::default() };
        self.feed_frame(envelope.raw(&tuple(sample), &vec![0; length_bytes.into()]), outcome)
    }

    fn feed_frame(
        &mut self,
        mut bytes: Vec<u8>,
        outcome: impl Fn(FragmentRoute) -> FirstOutcome,
    ) -> Result<FragmentAction, DropReason> {
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
        let Parsed::Ip(mut headers) = parse(&frame)? else { panic!("an IP packet") };
        let fragment = Fragment::of(&Packet { frame: &mut frame, headers: &mut headers })?;
        let action = self.table.handle_fragment(self.now, &fragment, &frame)?;
        if action == FragmentAction::First {
            let way = FragmentRoute { incoming: headers.tuple, outgoing: headers.tuple, sequence_base: None };
            self.table.note_first(&fragment, outcome(way));
        }
        Ok(action)
    }

    /// Released fragments are reinjected.
    fn feed_released(&mut self) -> Vec<Result<FragmentAction, DropReason>> {
        let released = self.table.take_released().unwrap_or_default();
        released.into_iter().map(|frame| self.feed_frame(frame.bytes, FirstOutcome::Passed)).collect()
    }

    fn lost(&mut self) -> Vec<(DropReason, u64)> {
        self.table.take_lost().collect()
    }
}

fn follows(action: Result<FragmentAction, DropReason>) -> bool {
    matches!(action, Ok(FragmentAction::Follows(_)))
}

#[test]
fn later_fragments_follow_the_first_and_a_complete_packet_is_removed() {
    for is_ipv6 in [false, true] {
        let mut bench = Bench::new(FragmentLimits::default());
        let of_family = |sample| TestFragment { is_ipv6, ..sample };
        assert_eq!(bench.feed(of_family(FIRST)), Ok(FragmentAction::First));
        assert!(follows(bench.feed(of_family(MIDDLE))));
        assert_eq!(bench.table.len(), 1);
        assert!(follows(bench.feed(of_family(LAST))));
        assert!(bench.table.is_empty() && bench.table.poll_timeout().is_none());
    }
}

#[test]
fn fragments_before_the_first_are_held_and_released_in_order() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(LAST), Ok(FragmentAction::Held));
    assert_eq!(bench.feed(MIDDLE), Ok(FragmentAction::Held));
    assert!(!bench.table.has_released() && bench.table.held_bytes() > 0);
    assert_eq!(bench.feed(FIRST), Ok(FragmentAction::First));
    assert_eq!(bench.table.held_bytes(), 0);
    let released = bench.feed_released();
    assert!(released.len() == 2 && released.iter().all(|action| follows(*action)), "{released:?}");
    assert!(bench.table.is_empty());
}

#[test]
fn a_waiting_first_fragment_holds_the_others_until_its_reinjection() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed_and(FIRST, |_| FirstOutcome::Waiting), Ok(FragmentAction::First));
    assert_eq!(bench.feed(MIDDLE), Ok(FragmentAction::Held));
    assert_eq!(bench.feed(FIRST), Ok(FragmentAction::First), "it is no duplicate of itself");
    assert!(bench.feed_released().into_iter().all(follows));
}

#[test]
fn later_fragments_are_dropped_for_the_reason_of_the_first() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(LAST), Ok(FragmentAction::Held));
    assert_eq!(bench.feed_and(FIRST, |_| FirstOutcome::Dropped(DropReason::FirewallDenied)), Ok(FragmentAction::First));
    assert_eq!(bench.lost(), [(DropReason::FirewallDenied, 1)]);
    assert_eq!(bench.feed(MIDDLE), Err(DropReason::FirewallDenied));
    assert!(!bench.table.has_released());
}

#[test]
fn an_overlap_discards_earlier_and_later_fragments() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(MIDDLE), Ok(FragmentAction::Held));
    assert_eq!(bench.feed(TestFragment { start: 24, ..MIDDLE }), Err(DropReason::OverlappingFragment));
    assert_eq!(bench.lost(), [(DropReason::OverlappingFragment, 1)]);
    assert_eq!(bench.feed(FIRST), Err(DropReason::OverlappingFragment));
    assert_eq!(bench.feed(LAST), Err(DropReason::OverlappingFragment));
}

#[test]
fn a_duplicate_is_dropped_without_effect() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(FIRST), Ok(FragmentAction::First));
    assert_eq!(bench.feed(FIRST), Err(DropReason::DuplicateFragment));
    assert!(follows(bench.feed(MIDDLE)));
    assert_eq!(bench.feed(MIDDLE), Err(DropReason::DuplicateFragment));
    assert!(follows(bench.feed(LAST)));
}

#[test]
fn a_packet_without_first_fragment_is_dropped_on_timeout() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(MIDDLE), Ok(FragmentAction::Held));
    let due = bench.table.poll_timeout().unwrap();
    assert_eq!(due.saturating_since(bench.now), FragmentLimits::default().timeout);
    bench.now = due;
    bench.table.expire(due);
    assert_eq!(bench.lost(), [(DropReason::FragmentTimeout, 1)]);
    assert_eq!((bench.table.len(), bench.table.held_bytes()), (0, 0));
}

#[test]
fn a_full_table_evicts_the_oldest_packet() {
    let mut bench = Bench::new(FragmentLimits { datagrams_max: 4, ..FragmentLimits::default() });
    for host in 1..=4 {
        assert_eq!(bench.feed(TestFragment { host, ..MIDDLE }), Ok(FragmentAction::Held));
    }
    assert_eq!(bench.feed(TestFragment { host: 5, ..FIRST }), Ok(FragmentAction::First));
    assert_eq!(bench.lost(), [(DropReason::FragmentTableFull, 1)]);
    assert_eq!(bench.feed(TestFragment { host: 2, ..FIRST }), Ok(FragmentAction::First), "the younger ones are there");
    assert_eq!(bench.feed_released().len(), 1);
}

#[test]
fn each_source_has_a_separate_limit() {
    let limits = FragmentLimits { datagrams_per_source_max: 2, ..FragmentLimits::default() };
    let mut bench = Bench::new(limits);
    let nth = |identification| TestFragment { identification, ..MIDDLE };
    assert_eq!((bench.feed(nth(1)), bench.feed(nth(2))), (Ok(FragmentAction::Held), Ok(FragmentAction::Held)));
    assert_eq!(bench.feed(nth(3)), Err(DropReason::FragmentSourceLimit));
    assert_eq!(bench.feed(TestFragment { host: 2, ..MIDDLE }), Ok(FragmentAction::Held));
}

#[test]
fn packets_are_distinguished_by_identification_and_for_ipv4_protocol() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(FIRST), Ok(FragmentAction::First));
    assert_eq!(bench.feed(TestFragment { identification: 8, ..MIDDLE }), Ok(FragmentAction::Held));
    let fragment = Some(FragmentHeader { offset_bytes: 16, more: true, identification: 7 });
    let other = Tuple { protocol: 47, ..tuple(FIRST) };
    let frame = Envelope { fragment, ..Envelope::default() }.raw(&other, &[0; 16]);
    assert_eq!(bench.feed_frame(frame, FirstOutcome::Passed), Ok(FragmentAction::Held));
    let wide = TestFragment { is_ipv6: true, identification: 0x0001_0007, ..FIRST };
    assert_eq!(bench.feed(wide), Ok(FragmentAction::First));
    assert_eq!(
        bench.feed(TestFragment { identification: 7, ..TestFragment { start: 16, ..wide } }),
        Ok(FragmentAction::Held)
    );
}

#[test]
fn fragments_that_are_empty_or_end_between_eight_bytes_are_malformed() {
    let mut bench = Bench::new(FragmentLimits::default());
    assert_eq!(bench.feed(TestFragment { length_bytes: 0, ..LAST }), Err(DropReason::Malformed));
    assert_eq!(bench.feed(TestFragment { length_bytes: 13, ..MIDDLE }), Err(DropReason::Malformed));
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

fn test_fragment() -> impl Strategy<Value = TestFragment> {
    (0u8..4, any::<bool>(), 0u32..4, 0u16..12, 1u16..4, any::<bool>()).prop_map(
        |(host, is_ipv6, identification, start, length, more)| TestFragment {
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
    fn no_input_exceeds_the_bounds_and_every_fragment_is_accounted_for(
        arrivals in prop::collection::vec((test_fragment(), 0u64..30, 0u8..4), 1..200),
    ) {
        let mut bench = Bench::new(SMALL);
        let (mut held, mut released, mut lost) = (0, 0, 0);
        for (sample, wait_ms, outcome) in arrivals {
            bench.now = bench.now + Duration::from_millis(wait_ms);
            let action = bench.feed_and(sample, |way| match outcome {
                0 => FirstOutcome::Dropped(DropReason::FirewallDenied),
                1 => FirstOutcome::Waiting,
                _ => FirstOutcome::Passed(way),
            });
            held += u64::from(action == Ok(FragmentAction::Held));
            released += bench.table.take_released().map_or(0, |frames| frames.len() as u64);
            lost += bench.lost().into_iter().map(|(_, frames)| frames).sum::<u64>();
            prop_assert!(bench.table.len() <= SMALL.datagrams_max as usize);
            prop_assert!(bench.table.held_bytes() <= SMALL.held_bytes_max);
            prop_assert!(bench.table.held_bytes_by_source.count(&tuple(sample)) <= SMALL.held_bytes_per_source_max);
            prop_assert!(bench.table.datagrams_by_source.count(&tuple(sample)) <= SMALL.datagrams_per_source_max);
        }
        bench.now = bench.now + SMALL.timeout;
        bench.table.expire(bench.now);
        lost += bench.lost().into_iter().map(|(_, frames)| frames).sum::<u64>();
        prop_assert_eq!(held, released + lost, "a held fragment is released or counted");
        prop_assert_eq!((bench.table.len(), bench.table.held_bytes()), (0, 0));
        prop_assert_eq!(bench.table.held_bytes_by_source.sources() + bench.table.datagrams_by_source.sources(), 0);
    }
}
