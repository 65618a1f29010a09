//! What a message costs. Run alone, with optimisation:
//! `cargo test --release -p packet-io ctnetlink::tests::measure -- --ignored --nocapture`.

use std::time::Instant;

use super::super::*;
use super::samples::tcp;
use super::{dump, namespace};

const COUNT: u16 = 50_000;

fn report(what: &str, begin: Instant, count: usize) {
    println!("{what}: {:.2} us each", begin.elapsed().as_secs_f64() * 1e6 / count as f64);
}

#[test]
#[ignore = "a measurement, to be run alone"]
fn costs() {
    let Some(namespace) = namespace() else { return };
    let work = || {
        let mut datagram = Vec::new();
        encode_event(Cause::Packets, &Event::Changed(tcp(1)), &mut datagram);
        let (begin, mut events) = (Instant::now(), 0);
        for _ in 0..COUNT {
            decode_events(&datagram, &mut |_, _| events += 1);
        }
        report("decode", begin, events);

        let entries: Vec<_> = (1..=COUNT).map(tcp).collect();
        let mut table = TableSocket::open().unwrap();
        let begin = Instant::now();
        table.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();
        report("create, nobody listening", begin, entries.len());
        let begin = Instant::now();
        assert_eq!(dump(DumpFilter::default()).len(), entries.len());
        report("dump", begin, entries.len());
        let begin = Instant::now();
        table.execute(entries.iter().map(Request::Update), &mut |_, error| panic!("{error}")).unwrap();
        report("update", begin, entries.len());
        let begin = Instant::now();
        table.execute(entries.iter().map(Request::Delete), &mut |_, error| panic!("{error}")).unwrap();
        report("delete", begin, entries.len());

        let options = EventOptions { receive_buffer_bytes: 256 << 20, ..EventOptions::default() };
        let mut socket = EventSocket::open(&options).unwrap();
        let begin = Instant::now();
        table.execute(entries.iter().map(Request::Create), &mut |_, error| panic!("{error}")).unwrap();
        report("create, with an event each", begin, entries.len());
        let (begin, mut heard) = (Instant::now(), 0);
        socket.receive(usize::MAX, &mut |_, _| heard += 1).unwrap();
        report("receive an event", begin, heard);
        socket.ignore_program(table.port());
        let begin = Instant::now();
        table.execute(entries.iter().map(Request::Update), &mut |_, error| panic!("{error}")).unwrap();
        report("update, its event ignored in the kernel", begin, entries.len());
    };
    namespace.run(work).unwrap();
}
