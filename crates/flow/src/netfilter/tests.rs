//! Tuples and descriptions of connections.

use core::net::{IpAddr, Ipv4Addr};

use super::*;

const fn tuple(protocol: u8, discriminator: Discriminator) -> Tuple {
    let source = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let destination = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 80));
    Tuple { source, destination, protocol, discriminator }
}

#[test]
fn the_inverse_of_the_inverse_is_the_tuple() {
    let cases = [
        tuple(6, Discriminator::Ports { source: 4000, destination: 80 }),
        tuple(1, Discriminator::Icmp { kind: 8, code: 0, id: 7 }),
        tuple(1, Discriminator::Icmp { kind: 3, code: 1, id: 7 }),
        tuple(50, Discriminator::Nothing),
    ];
    for original in cases {
        let reply = original.inverse();
        assert_eq!((reply.source, reply.destination), (original.destination, original.source));
        assert_eq!(reply.inverse(), original);
    }
    let request = tuple(1, Discriminator::Icmp { kind: 8, code: 0, id: 7 });
    assert_eq!(request.inverse().discriminator, Discriminator::Icmp { kind: 0, code: 0, id: 7 }, "the reply to a ping");
}

#[test]
fn an_event_changes_stated_fields_only() {
    let original = tuple(6, Discriminator::Ports { source: 4000, destination: 80 });
    let mut known = Entry { mark: Some(7), timeout_s: Some(120), ..Entry::new(original, original.inverse()) };
    known.extra_mut().helper = HelperName::new(b"ftp");
    let mut newer = Entry { timeout_s: Some(60), ..Entry::new(original, original.inverse()) };
    newer.extra_mut().labels = Some([1; LABELS_BYTES]);
    known.update(&newer);
    assert_eq!((known.mark, known.timeout_s), (Some(7), Some(60)));
    let extra = known.extra.expect("stated");
    assert_eq!((extra.helper.map(|name| name.as_str() == "ftp"), extra.labels), (Some(true), Some([1; LABELS_BYTES])));
}

#[test]
fn a_helper_s_name_is_short_and_printable() {
    assert!(HelperName::new(b"").is_none());
    assert!(HelperName::new(&[b'x'; HELPER_NAME_BYTES_MAX + 1]).is_none());
    assert_eq!(HelperName::new(b"nat-follow-master").map(|name| name.as_str().len()), Some(17));
    assert!(HelperName::new(b"f\0p").is_none());
    assert_eq!(HelperName::new(b"RAS").map(|name| name.as_str().len()), Some(3));
}

#[test]
fn states_have_the_kernel_s_numbers() {
    for (number, state) in TcpState::ALL.into_iter().enumerate() {
        assert_eq!((state as usize, TcpState::from_u8(number as u8)), (number, Some(state)));
    }
    assert_eq!(TcpState::from_u8(10), None);
}
