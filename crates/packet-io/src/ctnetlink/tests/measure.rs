//! The processor time of a message, including the kernel's share. Run separately, with optimisation: `cargo test
//! --release -p packet-io ctnetlink::tests::measure -- --ignored --nocapture`.

use std::time::Duration;

use flow::netfilter::TcpState;

use super::super::filter::{Ignore, TcpStates};
use super::super::*;
use super::samples::tcp;
use super::{dump, namespace};
use crate::netlink::Prefix;
use crate::usage::thread_cpu_time;

const COUNT: u16 = 50_000;

/// Processor time, as other programs influence the wall clock.
fn report(what: &str, begin: Duration, count: usize) {
    println!("{what}: {:.2} us each", (thread_cpu_time() - begin).as_secs_f64() * 1e6 / count as f64);
}

#[test]
#[ignore = "a measurement, to be run alone"]
fn costs() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut datagram = Vec::new();
        encode_event(Cause::Packets, &Event::Changed(tcp(1)), &mut datagram);
        let (begin, mut events) = (thread_cpu_time(), 0);
        for _ in 0..COUNT {
            decode_events(&datagram, &mut |_, _| events += 1);
        }
        report("decode", begin, events);

        let entries: Vec<_> = (1..=COUNT).map(tcp).collect();
        let mut table = TableSocket::open().unwrap();
        let begin = thread_cpu_time();
        table.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();
        report("create, without a listener", begin, entries.len());
        let begin = thread_cpu_time();
        assert_eq!(dump(DumpFilter::default()).len(), entries.len());
        report("dump", begin, entries.len());
        let begin = thread_cpu_time();
        table.execute(entries.iter().map(Request::Update), &mut |_, error| panic!("{error}")).unwrap();
        report("update of everything", begin, entries.len());
        let bare = |entry: &Entry| Entry { timeout_s: Some(500), ..Entry::new(entry.original, entry.reply) };
        let refreshed: Vec<_> = entries.iter().map(bare).collect();
        let begin = thread_cpu_time();
        table.execute(refreshed.iter().map(Request::Update), &mut |_, error| panic!("{error}")).unwrap();
        report("update of the timeout", begin, entries.len());
        let begin = thread_cpu_time();
        for entry in &refreshed {
            table.execute([Request::Update(entry)], &mut |_, error| panic!("{error}")).unwrap();
        }
        report("update of the timeout, one a call", begin, entries.len());
        let begin = thread_cpu_time();
        table.execute(entries.iter().map(Request::Delete), &mut |_, error| panic!("{error}")).unwrap();
        report("delete", begin, entries.len());

        let options = EventOptions { receive_buffer_bytes: 256 << 20, ..EventOptions::default() };
        let mut socket = EventSocket::open(&options).unwrap();
        let begin = thread_cpu_time();
        table.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();
        report("create, with an event each", begin, entries.len());
        let (begin, mut received) = (thread_cpu_time(), 0);
        socket.receive(usize::MAX, &mut |_, _| received += 1).unwrap();
        report("receive an event", begin, received);
        let ignore = Ignore { addresses: vec![Prefix::new([10, 9, 0, 0].into(), 16)], ..Ignore::default() };
        let tcp_states = Some(TcpStates::from_iter([TcpState::SynSent]));
        let filter = EventFilter { ignore: vec![ignore], tcp_states, ..EventFilter::default() };
        socket.set_filter(&filter).unwrap();
        let begin = thread_cpu_time();
        table.execute(entries.iter().map(Request::Update), &mut |_, error| panic!("{error}")).unwrap();
        report("update of everything, its event filtered in the kernel", begin, entries.len());
        socket.ignore_program(table.port());
        let begin = thread_cpu_time();
        table.execute(entries.iter().map(Request::Update), &mut |_, error| panic!("{error}")).unwrap();
        report("update of everything, its event ignored in the kernel", begin, entries.len());
    };
    namespace.run(work).unwrap();
}
