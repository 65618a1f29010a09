//! Connections and their names there and back.

use core::net::IpAddr;
use std::vec::Vec;

use flow::NodeId;
use flow::netfilter::*;
use flow::wire::tlv;
use proptest::option::of;
use proptest::prelude::*;

use super::*;
use crate::session::DELETION_BYTES_MAX;

fn address(is_v6: bool) -> BoxedStrategy<IpAddr> {
    if is_v6 {
        any::<[u8; 16]>().prop_map(IpAddr::from).boxed()
    } else {
        any::<[u8; 4]>().prop_map(IpAddr::from).boxed()
    }
}

fn discriminator() -> impl Strategy<Value = Discriminator> {
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(source, destination)| Discriminator::Ports { source, destination }),
        any::<(u8, u8, u16)>().prop_map(|(kind, code, id)| Discriminator::Icmp { kind, code, id }),
        Just(Discriminator::Nothing),
    ]
}

fn tuple(is_v6: bool) -> impl Strategy<Value = Tuple> {
    (address(is_v6), address(is_v6), any::<u8>(), discriminator()).prop_map(
        |(source, destination, protocol, discriminator)| Tuple { source, destination, protocol, discriminator },
    )
}

fn name() -> impl Strategy<Value = HelperName> {
    "[a-z]{1,15}".prop_map(|name| HelperName::new(name.as_bytes()).unwrap())
}

fn protocol_info() -> impl Strategy<Value = ProtocolInfo> {
    let side = any::<(u8, u8)>().prop_map(|(window_scale, flags)| TcpSide { window_scale, flags: TcpFlags(flags) });
    prop_oneof![
        (0..10_usize, of([side.clone(), side]))
            .prop_map(|(state, sides)| ProtocolInfo::Tcp(TcpInfo { state: TcpState::ALL[state], sides })),
        any::<(u8, [u32; 2])>().prop_map(|(state, verification_tags)| ProtocolInfo::Sctp { state, verification_tags }),
        any::<(u8, u8)>().prop_map(|(state, role)| ProtocolInfo::Dccp { state, role }),
    ]
}

fn extra() -> impl Strategy<Value = Extra> {
    let adjustment = any::<[u32; 3]>().prop_map(|[correction_position, offset_before, offset_after]| {
        SequenceAdjustment { correction_position, offset_before, offset_after }
    });
    let proxy = any::<[u32; 3]>().prop_map(|[initial_sequence, server_initial_sequence, timestamp_offset]| SynProxy {
        initial_sequence,
        server_initial_sequence,
        timestamp_offset,
    });
    let master = any::<bool>().prop_flat_map(tuple);
    let direction = prop_oneof![Just(ZoneDirection::Original), Just(ZoneDirection::Reply)];
    let shifted = of([adjustment.clone(), adjustment]);
    (any::<[u8; LABELS_BYTES]>(), of(name()), of(master), shifted, of(proxy), of(direction)).prop_map(
        |(labels, helper, master, sequence_adjustment, syn_proxy, zone_direction)| Extra {
            zone_direction,
            labels: Some(labels),
            helper,
            master,
            sequence_adjustment,
            syn_proxy,
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    any::<bool>().prop_flat_map(|is_v6| {
        let said = (of(any::<u32>()), of(any::<u32>()), of(any::<u32>()), any::<u16>());
        (tuple(is_v6), of(tuple(is_v6)), said, of(protocol_info()), of(extra())).prop_map(
            |(original, translated, (status, timeout_s, mark, zone), protocol_info, extra)| {
                let reply = translated
                    .map_or_else(|| original.inverse(), |reply| Tuple { protocol: original.protocol, ..reply });
                Entry {
                    zone,
                    status: status.map(Status),
                    timeout_s,
                    mark,
                    protocol_info,
                    extra: extra.map(Into::into),
                    ..Entry::new(original, reply)
                }
            },
        )
    })
}

fn expectation() -> impl Strategy<Value = Expectation> {
    any::<bool>().prop_flat_map(|is_v6| {
        let nat = (any::<(u32, u8, u16)>(), address(is_v6))
            .prop_map(|((direction, protocol, port), address)| ExpectationNat { direction, address, protocol, port });
        (
            tuple(is_v6),
            tuple(is_v6),
            tuple(is_v6),
            any::<(u16, Option<u32>, u32, u32)>(),
            of(name()),
            of(name()),
            of(nat),
        )
            .prop_map(|(master, expected, mask, (zone, timeout_s, flags, class), helper, function, nat)| {
                Expectation { master, expected, mask, zone, timeout_s, flags, class, helper, function, nat }
            })
    })
}

fn origin() -> impl Strategy<Value = Origin> {
    any::<(u32, u8, bool)>().prop_map(|(version, owner, is_unseen)| Origin { version, owner: NodeId(owner), is_unseen })
}

proptest! {
    #[test]
    fn what_is_sent_arrives_and_later_attributes_are_skipped(
        entry in entry(), origin in origin(), expectations in proptest::collection::vec(expectation(), 0..4),
    ) {
        let mut bytes = Vec::new();
        encode(&entry, origin, &expectations, &mut bytes);
        let update = Update { entry, origin, expectations };
        prop_assert_eq!(decode(&bytes), Ok(update.clone()));
        tlv::put(&mut bytes, 999, b"from a later release");
        prop_assert_eq!(decode(&bytes), Ok(update));
    }

    #[test]
    fn names_of_ended_connections_fit_and_arrive(
        original in any::<bool>().prop_flat_map(tuple), zone in any::<u16>(), origin in origin(),
    ) {
        let ended = Ended { original, zone, origin };
        let mut bytes = Vec::new();
        encode_ended(&ended, &mut bytes);
        prop_assert!(bytes.len() <= DELETION_BYTES_MAX);
        prop_assert_eq!(decode_ended(&bytes), Ok(ended));
    }

    #[test]
    fn arbitrary_and_damaged_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), entry in entry(), at in any::<prop::sample::Index>(),
        byte in any::<u8>(), expectation in expectation(),
    ) {
        let _ = (decode(&bytes), decode_ended(&bytes));
        let mut update = Vec::new();
        let origin = Origin { version: 1, owner: NodeId(1), is_unseen: false };
        encode(&entry, origin, &[expectation], &mut update);
        let at = at.index(update.len());
        update[at] = byte;
        let _ = (decode(&update), decode(&update[..at]));
    }
}

#[test]
fn a_plain_connection_takes_as_many_bytes_as_is_said() {
    let source = Discriminator::Ports { source: 4000, destination: 80 };
    let original =
        Tuple { source: [10, 0, 0, 1].into(), destination: [192, 0, 2, 80].into(), protocol: 6, discriminator: source };
    let sides = Some([TcpSide::default(); 2]);
    let plain = Entry {
        protocol_info: Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::Established, sides })),
        ..Entry::new(original, original.inverse())
    };
    let reply = Tuple { destination: [198, 51, 100, 1].into(), ..original.inverse() };
    let translated = Entry { reply, ..plain.clone() };
    let bytes = [plain, translated].map(|entry| {
        let mut bytes = Vec::new();
        encode(&entry, Origin { version: 1, owner: NodeId(0), is_unseen: false }, &[], &mut bytes);
        bytes.len()
    });
    assert_eq!(bytes, [56, 76]);
}
