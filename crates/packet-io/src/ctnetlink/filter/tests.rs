//! Filters, run by the kernel: a program is attached to one end of a socket pair, and messages are sent from the other.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;

use flow::netfilter::TcpState;
use proptest::prelude::*;

use super::super::tests::samples;
use super::super::{Cause, Event, encode_event};
use super::*;
use crate::system::attach_filter;

/// Whether the kernel passes a message.
fn passes(program: &mut Program, cause: Cause, event: &Event) -> bool {
    let (here, there) = UnixDatagram::pair().unwrap();
    there.set_nonblocking(true).unwrap();
    attach_filter(there.as_fd(), program.instructions_mut()).unwrap();
    let mut message = Vec::new();
    encode_event(cause, event, &mut message);
    // The sender sees a message that the other end's filter drops as refused.
    let _ = here.send(&message);
    let mut buffer = [0; 4096];
    match there.recv(&mut buffer) {
        Ok(length) => {
            assert_eq!(&buffer[..length], message, "it comes whole");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            false
        }
    }
}

fn prefixes() -> impl Strategy<Value = Prefix> {
    let v4 = (0..4_u8, any::<u8>(), 20..=32_u8)
        .prop_map(|(net, host, length)| Prefix::new(std::net::Ipv4Addr::new(10, 0, net, host).into(), length));
    let v6 =
        (0..4_u16, any::<u16>(), prop_oneof![0..=16_u8, 60..=70_u8, 112..=128_u8]).prop_map(|(net, host, length)| {
            Prefix::new(std::net::Ipv6Addr::new(0xfd00, 0, 0, net, 0, 0, 0, host).into(), length)
        });
    prop_oneof![v4, v6, Just(Prefix::DEFAULT_V4)]
}

fn states() -> impl Strategy<Value = TcpStates> {
    prop::collection::vec(prop::sample::select(TcpState::ALL.to_vec()), 0..9).prop_map(TcpStates::from_iter)
}

fn ignores() -> impl Strategy<Value = Ignore> {
    let mask = prop_oneof![Just(1), Just(3), Just(u32::MAX), any::<u32>()];
    (
        prop_oneof![Just(Vec::new()), prop::collection::vec(prefixes(), 1..4)],
        prop::option::of(prop::sample::select(vec![1_u8, 6, 17, 58, 132])),
        prop::option::weighted(0.3, states()),
        prop::option::weighted(0.3, (0..4_u32, mask)),
        prop::option::weighted(0.3, 0..4_u16),
    )
        .prop_map(|(addresses, protocol, tcp_states, mark, zone)| Ignore {
            addresses,
            protocol,
            tcp_states,
            mark,
            zone,
        })
}

fn filters() -> impl Strategy<Value = EventFilter> {
    (
        prop::collection::vec(ignores(), 0..4),
        prop::option::weighted(0.3, states()),
        prop::option::weighted(0.3, prop::collection::vec(prop::sample::select(vec![1_u8, 6, 17, 50, 58]), 0..4)),
        prop::collection::vec((1..3_u32).prop_map(|port| 0x1234_5600 + port), 0..2),
    )
        .prop_map(|(ignore, tcp_states, protocols, programs)| EventFilter {
            ignore,
            tcp_states,
            protocols,
            programs,
        })
}

proptest! {
    #[test]
    fn the_kernel_passes_exactly_the_expected_events(
        filter in filters(),
        events in prop::collection::vec(samples::events(), 1..16),
    ) {
        let mut program = Program::new(&filter, &[]);
        prop_assert_eq!(program.left_out(), 0);
        for (cause, event) in &events {
            prop_assert_eq!(passes(&mut program, *cause, event), filter.passes(*cause, event), "{:?} {:?}", cause, event);
        }
    }
}

#[test]
fn all_events_of_an_ignored_program_are_filtered() {
    let mut program = Program::new(&EventFilter::default(), &[0x0102_0304]);
    let event = Event::Ended(samples::tcp(1));
    assert!(!passes(&mut program, Cause::Program(0x0102_0304), &event));
    assert!(passes(&mut program, Cause::Program(0x0403_0201), &event));
    assert!(passes(&mut program, Cause::Packets, &event));
}

#[test]
fn conditions_beyond_the_program_size_are_ignored() {
    let network = |number: u32| Prefix::new(std::net::Ipv4Addr::from(0x0a00_0000 + (number << 8)).into(), 24);
    let ignore = |number| Ignore { addresses: vec![network(number)], ..Ignore::default() };
    let filter = EventFilter { ignore: (0..1000).map(ignore).collect(), ..EventFilter::default() };
    let left_out = filter.left_out();
    assert!((1..900).contains(&left_out), "{left_out}");
    let mut program = Program::new(&filter, &[]);
    let event = |number: u32| {
        let mut entry = samples::tcp(1);
        entry.original.source = std::net::Ipv4Addr::from(0x0a00_0001 + (number << 8)).into();
        entry.original.destination = "192.0.2.1".parse().unwrap();
        entry.reply = entry.original.inverse();
        Event::Began(entry)
    };
    let last_that_fits = 1000 - left_out as u32 - 1;
    assert!(!passes(&mut program, Cause::Packets, &event(0)));
    assert!(!passes(&mut program, Cause::Packets, &event(last_that_fits)));
    assert!(passes(&mut program, Cause::Packets, &event(last_that_fits + 1)));
}

#[test]
fn a_rule_without_conditions_ignores_nothing() {
    let filter = EventFilter { ignore: vec![Ignore::default()], ..EventFilter::default() };
    let event = Event::Began(samples::tcp(1));
    assert!(filter.passes(Cause::Packets, &event) && passes(&mut Program::new(&filter, &[]), Cause::Packets, &event));
}

#[test]
fn a_malformed_message_passes() {
    let ignore = Ignore { protocol: Some(6), ..Ignore::default() };
    let filter = EventFilter { ignore: vec![ignore], tcp_states: Some(TcpStates::default()), ..EventFilter::default() };
    let (here, there) = UnixDatagram::pair().unwrap();
    attach_filter(there.as_fd(), Program::new(&filter, &[]).instructions_mut()).unwrap();
    // Subsystem 1, message 0, without content: the receiver counts it as malformed.
    let mut message = [0; 24];
    message[4..6].copy_from_slice(&0x0100_u16.to_ne_bytes());
    here.send(&message).unwrap();
    assert_eq!(there.recv(&mut [0; 64]).unwrap(), message.len());
}
