//! Sample connections and expectations, and strategies for arbitrary ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flow::netfilter::{
    Discriminator, Entry, Expectation, ExpectationNat, HelperName, LABELS_BYTES, ProtocolInfo, SequenceAdjustment,
    Status, SynProxy, TcpFlags, TcpInfo, TcpSide, TcpState, Tuple, ZoneDirection,
};
use proptest::prelude::*;

use super::super::{Cause, Event};

/// Replies were seen, and it is not evicted from a full table.
pub(in super::super) const ASSURED: Status = Status::SEEN_REPLY.union(Status::ASSURED).union(Status::CONFIRMED);

pub(in super::super) fn tuple(source: &str, destination: &str, protocol: u8, discriminator: Discriminator) -> Tuple {
    Tuple { source: source.parse().unwrap(), destination: destination.parse().unwrap(), protocol, discriminator }
}

pub(in super::super) const fn ports(source: u16, destination: u16) -> Discriminator {
    Discriminator::Ports { source, destination }
}

/// An established TCP connection from this port.
pub(in super::super) fn tcp(port: u16) -> Entry {
    let ports = Discriminator::Ports { source: port, destination: 80 };
    let original = tuple("10.0.0.1", "10.0.0.2", 6, ports);
    let side = |window_scale, flags| TcpSide { window_scale, flags: TcpFlags(flags) };
    let sides = Some([side(7, 0x0b), side(9, 0x23)]);
    Entry {
        status: Some(ASSURED),
        timeout_s: Some(1000),
        mark: Some(5),
        protocol_info: Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::Established, sides })),
        ..Entry::new(original, original.inverse())
    }
}

/// A connection of another protocol, of which replies were seen.
pub(in super::super) fn other(original: Tuple) -> Entry {
    Entry { status: Some(ASSURED), timeout_s: Some(1000), mark: Some(0), ..Entry::new(original, original.inverse()) }
}

/// Addresses of one family, of a few networks, so that filters meet some of them.
fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = || (0..4_u8, any::<u8>()).prop_map(|(net, host)| Ipv4Addr::new(10, 0, net, host));
    let v6 = || (0..4_u16, any::<u16>()).prop_map(|(net, host)| Ipv6Addr::new(0xfd00, 0, 0, net, 0, 0, 0, host));
    prop_oneof![
        (v4(), v4()).prop_map(|(source, destination)| (source.into(), destination.into())),
        (v6(), v6()).prop_map(|(source, destination)| (source.into(), destination.into())),
    ]
}

pub(in super::super) fn tuples() -> impl Strategy<Value = Tuple> {
    let ports = any::<(u16, u16)>().prop_map(|(source, destination)| Discriminator::Ports { source, destination });
    let kinds = prop_oneof![
        (prop::sample::select(vec![6, 17, 47, 132, 136]), ports),
        any::<u16>().prop_map(|id| (1, Discriminator::Icmp { kind: 8, code: 0, id })),
        Just((50, Discriminator::Nothing)),
    ];
    (addresses(), kinds).prop_map(|((source, destination), (protocol, discriminator))| {
        let (protocol, discriminator) = match discriminator {
            Discriminator::Icmp { code, id, .. } if source.is_ipv6() => {
                (58, Discriminator::Icmp { kind: 128, code, id })
            }
            discriminator => (protocol, discriminator),
        };
        Tuple { source, destination, protocol, discriminator }
    })
}

/// A tuple, and the reply tuple as some translation makes it.
fn translated() -> impl Strategy<Value = (Tuple, Tuple)> {
    (tuples(), addresses(), any::<[bool; 4]>(), 1024..u16::MAX).prop_map(|(original, other, change, port)| {
        let mut reply = original.inverse();
        if other.0.is_ipv4() == original.source.is_ipv4() {
            reply.source = if change[0] { other.0 } else { reply.source };
            reply.destination = if change[1] { other.1 } else { reply.destination };
        }
        match &mut reply.discriminator {
            // The kernel does not translate the keys of GRE.
            Discriminator::Ports { .. } if original.protocol == 47 => {}
            Discriminator::Ports { source, destination } => {
                *source = if change[2] { port } else { *source };
                *destination = if change[3] { port } else { *destination };
            }
            Discriminator::Icmp { id, .. } => *id = if change[3] { port } else { *id },
            Discriminator::Nothing => {}
        }
        (original, reply)
    })
}

fn protocol_infos(protocol: u8) -> BoxedStrategy<Option<ProtocolInfo>> {
    let side =
        (0..15_u8, 0..0x40_u8).prop_map(|(window_scale, flags)| TcpSide { window_scale, flags: TcpFlags(flags) });
    let sides = prop::option::of([side.clone(), side]);
    match protocol {
        6 => (prop::sample::select(TcpState::ALL.to_vec()), sides)
            .prop_map(|(state, sides)| Some(ProtocolInfo::Tcp(TcpInfo { state, sides })))
            .boxed(),
        132 => (0..10_u8, any::<[u32; 2]>())
            .prop_map(|(state, verification_tags)| Some(ProtocolInfo::Sctp { state, verification_tags }))
            .boxed(),
        _ => Just(None).boxed(),
    }
}

fn names() -> impl Strategy<Value = HelperName> {
    "[!-~]{1,31}".prop_map(|name| HelperName::new(name.as_bytes()).unwrap())
}

fn syn_proxies() -> impl Strategy<Value = SynProxy> {
    (1_u32.., any::<[u32; 2]>()).prop_map(|(initial_sequence, [server_initial_sequence, timestamp_offset])| SynProxy {
        initial_sequence,
        server_initial_sequence,
        timestamp_offset,
    })
}

fn adjustments() -> impl Strategy<Value = [SequenceAdjustment; 2]> {
    let adjustment = any::<[u32; 3]>().prop_map(|[correction_position, offset_before, offset_after]| {
        SequenceAdjustment { correction_position, offset_before, offset_after }
    });
    [adjustment.clone(), adjustment]
}

/// Properties of any connection. Rare ones are absent in most.
pub(in super::super) fn entries() -> impl Strategy<Value = Entry> {
    translated()
        .prop_flat_map(|(original, reply)| {
            let common = (
                prop::option::of(any::<u32>()),
                prop::option::of(0..0x1_0000_u32),
                prop::option::of(any::<u32>()),
                protocol_infos(original.protocol),
                prop::option::of(0..16_u32),
                prop_oneof![Just(0_u16), 0..4_u16],
            );
            let rare = (
                prop::option::weighted(0.3, any::<[u8; LABELS_BYTES]>()),
                prop::option::weighted(0.3, names()),
                prop::option::weighted(0.3, tuples()),
                prop::option::weighted(0.3, adjustments()),
                prop::option::weighted(0.3, syn_proxies()),
                prop::option::weighted(0.3, prop_oneof![Just(ZoneDirection::Original), Just(ZoneDirection::Reply)]),
            );
            (common, rare).prop_map(move |((id, status, timeout_s, protocol_info, mark, zone), rare)| {
                let status = status.map(Status);
                let mut entry =
                    Entry { zone, id, status, timeout_s, protocol_info, mark, ..Entry::new(original, reply) };
                let (labels, helper, master, sequence_adjustment, syn_proxy, zone_direction) = rare;
                // The default zone has no direction.
                let zone_direction = zone_direction.filter(|_| zone != 0);
                let extra =
                    flow::netfilter::Extra { labels, helper, master, sequence_adjustment, syn_proxy, zone_direction };
                if extra != flow::netfilter::Extra::default() {
                    entry.extra = Some(Box::new(extra));
                }
                entry
            })
        })
        .boxed()
}

/// Any expectation.
pub(in super::super) fn expectations() -> impl Strategy<Value = Expectation> {
    let nat = (any::<u32>(), addresses(), any::<u8>(), any::<u16>())
        .prop_map(|(direction, (address, _), protocol, port)| ExpectationNat { direction, address, protocol, port });
    let numbers = (any::<u16>(), prop::option::of(any::<u32>()), any::<u32>(), any::<u32>());
    let options = (prop::option::of(names()), prop::option::of(names()), prop::option::of(nat));
    ([tuples(), tuples(), tuples()], numbers, options).prop_map(|([master, expected, mask], numbers, options)| {
        let ((zone, timeout_s, flags, class), (helper, function, nat)) = (numbers, options);
        Expectation { master, expected, mask, zone, timeout_s, flags, class, helper, function, nat }
    })
}

/// Any event, caused by packets or by one of few programs.
pub(in super::super) fn events() -> impl Strategy<Value = (Cause, Event)> {
    let cause = prop_oneof![Just(Cause::Packets), (1..4_u32).prop_map(|port| Cause::Program(0x1234_5600 + port))];
    let event = prop_oneof![
        4 => entries().prop_map(Event::Began),
        4 => entries().prop_map(Event::Changed),
        4 => entries().prop_map(Event::Ended),
        1 => expectations().prop_map(Event::Expected),
        1 => expectations().prop_map(Event::ExpectationEnded),
    ];
    (cause, event)
}
