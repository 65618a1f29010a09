//! The table against a model, and records against their entries.

use std::collections::BTreeMap;
use std::vec::Vec;

use flow::netfilter::{
    Discriminator, Entry, HelperName, ProtocolInfo, Status, TcpFlags, TcpInfo, TcpSide, TcpState, Tuple,
};
use flow::{HashKey, NodeId};
use proptest::option::of;
use proptest::prelude::*;
use replication::Handle;

use super::*;

fn tuple() -> impl Strategy<Value = Tuple> {
    let v4 = any::<[[u8; 4]; 2]>().prop_map(|[source, destination]| [source.into(), destination.into()]);
    let v6 = any::<[[u8; 16]; 2]>().prop_map(|[source, destination]| [source.into(), destination.into()]);
    let protocol = prop_oneof![
        (prop_oneof![Just(6), Just(17), Just(132), Just(33)], any::<(u16, u16)>())
            .prop_map(|(protocol, (source, destination))| (protocol, Discriminator::Ports { source, destination })),
        any::<(u8, u8, u16)>().prop_map(|(kind, code, id)| (1, Discriminator::Icmp { kind, code, id })),
        Just((50, Discriminator::Nothing)),
    ];
    (prop_oneof![v4, v6], protocol).prop_map(|([source, destination], (protocol, discriminator))| Tuple {
        source,
        destination,
        protocol,
        discriminator,
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let stated = (of(1..u32::MAX), of(any::<u32>()), of(any::<u32>()), of(any::<u32>()), any::<u16>());
    let tcp = (0..10_usize, any::<[u8; 4]>(), any::<bool>());
    (tuple(), of(tuple()), stated, of(tcp), any::<[u32; 2]>(), of("[a-z]{1,15}")).prop_map(
        |(original, translated, (id, status, timeout_s, mark, zone), tcp, tags, helper)| {
            let inverse = original.inverse();
            let reply = translated.filter(|reply| reply.is_v6() == original.is_v6()).map_or(inverse, |reply| Tuple {
                source: reply.source,
                destination: reply.destination,
                ..inverse
            });
            let protocol_info = tcp.and_then(|(state, [one, other, a, b], has_sides)| match original.protocol {
                6 => {
                    let side = |window_scale, flags| TcpSide { window_scale, flags: TcpFlags(flags) };
                    let sides = has_sides.then(|| [side(one, a), side(other, b)]);
                    Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::ALL[state], sides }))
                }
                132 => Some(ProtocolInfo::Sctp { state: one, verification_tags: tags }),
                33 => Some(ProtocolInfo::Dccp { state: one, role: other }),
                _ => None,
            });
            let mut entry = Entry {
                id,
                zone,
                status: status.map(Status),
                timeout_s,
                mark,
                protocol_info,
                ..Entry::new(original, reply)
            };
            if let Some(helper) = helper {
                entry.extra_mut().helper = HelperName::new(helper.as_bytes());
            }
            entry
        },
    )
}

fn table(slots_max: u32) -> Mirror {
    Mirror::new(HashKey([3, 4]), slots_max)
}

proptest! {
    #[test]
    fn a_record_reproduces_its_entry(entry in entry()) {
        let mut table = table(4);
        let (handle, record) = table.insert(&entry, NodeId(9)).unwrap();
        record.id = entry.id.unwrap_or(0);
        prop_assert_eq!(record.entry(), entry.clone());
        prop_assert!(!record.merge(&entry), "an equal update is no change");
        prop_assert!(!record.set_reply(&entry.reply));
        prop_assert_eq!(table.find(&entry.original, entry.zone), Some(handle));
        prop_assert_eq!(table.find(&entry.original, entry.zone ^ 1), None);
    }

    #[test]
    fn updating_records_equals_updating_entries(first in entry(), second in entry()) {
        let second = Entry { original: first.original, reply: first.reply, zone: first.zone, ..second };
        let fits = match (&second.protocol_info, first.original.protocol) {
            (None, _) => true,
            (Some(ProtocolInfo::Tcp(info)), 6) => info.sides.is_some(),
            _ => false,
        };
        prop_assume!(fits);
        let mut table = table(1);
        let (_, record) = table.insert(&first, NodeId(0)).unwrap();
        record.merge(&second);
        let mut expected = first.clone();
        expected.update(&second);
        prop_assert_eq!(record.entry(), Entry { id: None, ..expected });
    }

    #[test]
    fn the_table_is_a_bounded_map(
        entries in proptest::collection::vec(entry(), 1..12),
        steps in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..80),
    ) {
        let mut table = table(8);
        let mut model: BTreeMap<(Tuple, u16), Handle> = BTreeMap::new();
        for (index, is_insert) in steps {
            let entry = &entries[index.index(entries.len())];
            let key = (entry.original, entry.zone);
            match (model.get(&key).copied(), is_insert) {
                (None, true) => match table.insert(entry, NodeId(1)) {
                    Ok((handle, _)) => {
                        prop_assert!(model.values().all(|known| *known != handle));
                        model.insert(key, handle);
                    }
                    Err(Full) => prop_assert_eq!(model.len(), 8),
                },
                (Some(handle), false) => {
                    table.remove(handle);
                    model.remove(&key);
                }
                _ => {}
            }
            prop_assert_eq!((table.len(), table.room()), (model.len() as u32, 8 - model.len() as u32));
            for entry in &entries {
                let expected = model.get(&(entry.original, entry.zone)).copied();
                prop_assert_eq!(table.find(&entry.original, entry.zone), expected);
            }
            let mut held: Vec<_> = model.values().copied().collect();
            held.sort_unstable();
            let (mut visited, mut from) = (Vec::new(), Handle(0));
            while let Some(handle) = table.next_occupied(from) {
                visited.push(handle);
                from = Handle(handle.0 + 1);
            }
            prop_assert_eq!(visited, held);
        }
    }
}

#[test]
fn memory_grows_with_the_connections_and_slots_are_reused() {
    let mut table = table(1 << 20);
    let entry = |number: u32| {
        let original = Tuple {
            source: number.to_be_bytes().into(),
            destination: [192, 0, 2, 1].into(),
            protocol: 17,
            discriminator: Discriminator::Ports { source: 1, destination: 2 },
        };
        Entry::new(original, original.inverse())
    };
    for number in 0..10_000 {
        table.insert(&entry(number), NodeId(0)).unwrap();
    }
    assert_eq!(table.chunks.len(), 3);
    for number in 0..10_000 {
        let handle = table.find(&entry(number).original, 0).unwrap();
        let generation = table.get(handle).unwrap().generation;
        table.remove(handle);
        assert!(table.get(handle).is_none());
        let (reused, record) = table.insert(&entry(number + 20_000), NodeId(0)).unwrap();
        assert_eq!((reused, record.generation), (handle, generation + 1));
    }
    assert_eq!((table.chunks.len(), table.slots_used()), (3, 10_000));
}
