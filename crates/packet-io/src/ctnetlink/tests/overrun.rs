//! Events that find no room.

use super::super::*;
use super::samples::tcp;
use super::{dump, execute, namespace};

#[test]
fn an_overrun_is_told_once_and_after_it_nothing_is_lost() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let options = EventOptions { receive_buffer_bytes: 8192, ..EventOptions::default() };
        let mut socket = EventSocket::open(&options).unwrap();
        let mut table = TableSocket::open().unwrap();
        let entries: Vec<_> = (1..=2000).map(tcp).collect();
        table.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();

        // While not all that came before the loss is read, more is lost without a word. So the overrun is not told yet.
        let mut heard = 0;
        let first = socket.receive(1, &mut |_, _| heard += 1).unwrap();
        assert_eq!((first.messages, first.overrun, first.is_drained), (1, false, false));
        execute(&mut table, Request::Delete(&entries[0])).unwrap();
        let rest = socket.receive(usize::MAX, &mut |_, event| {
            heard += 1;
            assert!(matches!(event, Event::Began(_)), "the end was lost");
        });
        let rest = rest.unwrap();
        assert!(rest.overrun && rest.is_drained && rest.malformed == 0);
        assert!(heard < 100, "{heard} found room");

        // What happens from now on is told, and the table says the rest.
        execute(&mut table, Request::Delete(&entries[1])).unwrap();
        let mut told = Vec::new();
        let received = socket.receive(usize::MAX, &mut |_, event| told.push(event)).unwrap();
        assert_eq!((received.messages, received.overrun), (1, false));
        assert!(matches!(&told[..], [Event::Ended(entry)] if entry.original == entries[1].original));
        assert_eq!(dump(DumpFilter::default()).len(), 1998);
    };
    namespace.run(work).unwrap();
}

#[test]
fn a_larger_buffer_takes_them_all() {
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
        let mut heard = 0;
        let part = socket.receive(1500, &mut |_, _| heard += 1).unwrap();
        assert_eq!((part.messages, part.is_drained), (1500, false));
        let rest = socket.receive(1500, &mut |_, _| heard += 1).unwrap();
        assert_eq!((heard, rest.is_drained, rest.overrun), (2000, true, false));
    };
    namespace.run(work).unwrap();
}
