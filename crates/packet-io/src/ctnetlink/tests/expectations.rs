//! Expectations in the kernel's table, and the reported capabilities.

use flow::netfilter::{Expectation, ExpectationNat, HelperName};

use super::super::*;
use super::samples::{ports, tcp, tuple};
use super::{dump_expectations, execute, namespace};
use crate::sysctl;

#[test]
fn expectations_are_read_back_and_deleted() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut table = TableSocket::open().unwrap();
        let mut master = tcp(1000);
        master.extra_mut().helper = HelperName::new(b"sip");
        if execute(&mut table, Request::Create(&master)) == Err(RequestError::Unsupported) {
            crate::namespace::skip("the kernel has no helper for SIP");
            return;
        }
        let expected = |port| Expectation {
            master: master.original,
            expected: tuple("10.0.0.2", "10.0.0.1", 17, ports(0, port)),
            mask: tuple("255.255.255.255", "255.255.255.255", 17, ports(0, u16::MAX)),
            zone: 0,
            timeout_s: None,
            flags: 0,
            class: 1,
            helper: None,
            function: None,
            nat: None,
        };
        let address = "192.0.2.1".parse().unwrap();
        let translated = Expectation {
            flags: 2,
            function: HelperName::new(b"nat-follow-master"),
            // The kernel reports the master's protocol whatever is given here.
            nat: Some(ExpectationNat { direction: 1, address, protocol: 6, port: 5555 }),
            ..expected(4001)
        };
        let from_anywhere = Expectation {
            expected: tuple("0.0.0.0", "10.0.0.1", 17, ports(0, 4002)),
            mask: tuple("0.0.0.0", "255.255.255.255", 17, ports(0, u16::MAX)),
            ..expected(4002)
        };
        let all = [expected(4000), translated, from_anywhere];
        for expectation in &all {
            assert_eq!(execute(&mut table, Request::CreateExpectation(expectation)), Ok(()), "{expectation:?}");
        }
        let mut found = dump_expectations();
        found.sort_by_key(|expectation| expectation.expected.ports());
        for (found, asked) in found.iter_mut().zip(&all) {
            // The kernel's helper sets the timeout, and the kernel sets the helper.
            assert!(found.timeout_s.take().is_some());
            assert_eq!(found.helper.take(), HelperName::new(b"sip"));
            assert_eq!(found, asked);
        }
        assert_eq!(found.len(), all.len());

        assert_eq!(execute(&mut table, Request::DeleteExpectation(&all[0])), Ok(()));
        assert_eq!(execute(&mut table, Request::DeleteExpectation(&all[0])), Err(RequestError::Missing));
        let alone = Expectation { master: tcp(7).original, ..expected(4003) };
        assert_eq!(execute(&mut table, Request::CreateExpectation(&alone)), Err(RequestError::Missing));
        table.flush_expectations().unwrap();
        assert_eq!(dump_expectations(), []);
    };
    namespace.run(work).unwrap();
}

#[test]
fn support_reports_missing_capabilities() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut table = TableSocket::open().unwrap();
        let entries: Vec<_> = (1..=10).map(tcp).collect();
        table.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();
        sysctl::write("net/netfilter/nf_conntrack_events", "1").unwrap();
        let found = support();
        assert_eq!((found.connections, found.events), (Some(10), Some(1)));
        assert!(!found.lacks.iter().any(Lack::is_fatal), "{:?}", found.lacks);
        assert!(!found.lacks.contains(&Lack::EventsOfOlder));

        sysctl::write("net/netfilter/nf_conntrack_events", "2").unwrap();
        assert!(support().lacks.contains(&Lack::EventsOfOlder));
        sysctl::write("net/netfilter/nf_conntrack_events", "0").unwrap();
        let lacks = support().lacks;
        assert!(lacks.contains(&Lack::Events) && Lack::Events.is_fatal());
        assert!(Lack::Events.to_string().ends_with("sysctl -w net.netfilter.nf_conntrack_events=1"));
    };
    namespace.run(work).unwrap();
}
