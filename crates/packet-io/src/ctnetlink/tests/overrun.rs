//! Events beyond the buffer's size.

use super::super::*;
use super::samples::tcp;
use super::{dump, execute, namespace};

#[test]
fn an_overrun_is_reported_once_and_no_event_is_lost_afterwards() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let options = EventOptions { receive_buffer_bytes: 8192, ..EventOptions::default() };
        let mut socket = EventSocket::open(&options).unwrap();
        let mut table = TableSocket::open().unwrap();
        let entries: Vec<_> = (1..=2000).map(tcp).collect();
        table.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();

        // Until all messages before the loss are read, further ones are lost silently. So the overrun is not reported
        // yet.
        let mut received_events = 0;
        let first = socket.receive(1, &mut |_, _| received_events += 1).unwrap();
        assert_eq!((first.messages, first.overrun, first.is_drained), (1, false, false));
        execute(&mut table, Request::Delete(&entries[0])).unwrap();
        let rest = socket.receive(usize::MAX, &mut |_, event| {
            received_events += 1;
            assert!(matches!(event, Event::Began(_)), "the end was lost");
        });
        let rest = rest.unwrap();
        assert!(rest.overrun && rest.is_drained && rest.malformed == 0);
        assert!(received_events < 100, "{received_events} fitted the buffer");

        // From now on events are complete, and the table shows the earlier changes.
        execute(&mut table, Request::Delete(&entries[1])).unwrap();
        let mut reported = Vec::new();
        let received = socket.receive(usize::MAX, &mut |_, event| reported.push(event)).unwrap();
        assert_eq!((received.messages, received.overrun), (1, false));
        assert!(matches!(&reported[..], [Event::Ended(entry)] if entry.original == entries[1].original));
        assert_eq!(dump(DumpFilter::default()).len(), 1998);
    };
    namespace.run(work).unwrap();
}

#[test]
fn a_larger_buffer_holds_all_events() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut socket = EventSocket::open(&EventOptions::default()).unwrap();
        let mut table = TableSocket::open().unwrap();
        assert!(socket.set_receive_buffer(8192).unwrap() < 100_000);
        if socket.set_receive_buffer(16 << 20).unwrap() < 16 << 20 {
            crate::namespace::skip("the process may not go beyond net.core.rmem_max");
            return;
        }
        let entries: Vec<_> = (1..=2000).map(tcp).collect();
        table.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();
        let mut received_events = 0;
        let part = socket.receive(1500, &mut |_, _| received_events += 1).unwrap();
        assert_eq!((part.messages, part.is_drained), (1500, false));
        let rest = socket.receive(1500, &mut |_, _| received_events += 1).unwrap();
        assert_eq!((received_events, rest.is_drained, rest.overrun), (2000, true, false));
    };
    namespace.run(work).unwrap();
}
