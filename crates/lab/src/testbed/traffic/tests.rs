//! Client and server over loopback.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, Command, Plan, Progress};
use super::server::Server;
use super::{Kind, Preamble};

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("loopback").port()
}

fn wait_until(what: &str, progress: &Mutex<Progress>, condition: impl Fn(&Progress) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition(&progress.lock().expect("not poisoned")) {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        thread::yield_now();
    }
}

#[test]
fn every_kind_of_connection_makes_progress_and_every_byte_is_checked() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let stop = Arc::new(AtomicBool::new(false));
    let server = Server::bind(&[address]).expect("a free port");
    let serving = thread::spawn({
        let stop = Arc::clone(&stop);
        move || server.run(&stop)
    });

    let plan = Plan {
        servers: vec![address],
        connections: Kind::ALL.map(|kind| (kind, 3)).to_vec(),
        bulk_bytes_per_s: 4_000_000,
        ramp_per_s: 1000,
    };
    let progress = Arc::new(Mutex::new(Progress::default()));
    let (client, waker) = Client::new(plan, Arc::clone(&progress)).expect("an event queue");
    let (commands, inbox) = mpsc::channel();
    let running = thread::spawn(move || client.run(&inbox));

    wait_until("all to be established", &progress, |progress| progress.established == 18);
    wait_until("the first answers", &progress, |progress| progress.answered == 6);
    let woken_at = Instant::now();
    commands.send(Command::Wake).expect("the client runs");
    waker.wake().expect("the client runs");
    wait_until("the second answers, and as much again of the rest", &progress, |progress| {
        progress.answered == 12 && progress.verified_bytes > 1_000_000
    });
    commands.send(Command::Stop).expect("the client runs");
    let report = running.join().expect("no panic").expect("events");
    stop.store(true, Ordering::Relaxed);
    serving.join().expect("no panic").expect("events");

    for outcome in &report.outcomes {
        assert_eq!(outcome.broken, None, "{outcome:?}");
        assert!(outcome.verified_bytes > 0, "{outcome:?}");
        assert!(outcome.survived(woken_at), "{outcome:?}");
    }
    let sampled: u64 = report.timeline.samples().map(|sample| sample.bytes).sum();
    let verified: u64 = report.outcomes.iter().map(|outcome| outcome.verified_bytes).sum();
    assert_eq!(sampled, verified);
}

#[test]
fn a_refused_connection_is_reported_as_broken() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let plan = Plan { servers: vec![address], connections: vec![(Kind::Ticks, 1)], bulk_bytes_per_s: 1, ramp_per_s: 1 };
    let progress = Arc::new(Mutex::new(Progress::default()));
    let (client, _waker) = Client::new(plan, Arc::clone(&progress)).expect("an event queue");
    let (commands, inbox) = mpsc::channel();
    let running = thread::spawn(move || client.run(&inbox));
    wait_until("the refusal", &progress, |progress| progress.broken == 1);
    commands.send(Command::Stop).expect("the client runs");
    let report = running.join().expect("no panic").expect("events");
    let reason = report.outcomes[0].broken.as_deref().unwrap_or_default();
    assert!(reason.contains("refused"), "{reason}");
}

#[test]
fn a_preamble_is_read_back_and_noise_is_not() {
    for kind in Kind::ALL {
        let preamble = Preamble { kind, seed: 0x0123_4567_89ab_cdef, bytes_per_s: 5_000_000 };
        assert_eq!(Preamble::from_bytes(&preamble.to_bytes()), Some(preamble));
    }
    assert_eq!(Preamble::from_bytes(&[b'x'; Preamble::BYTES]), None);
    let mut unknown_kind = Preamble { kind: Kind::Udp, seed: 0, bytes_per_s: 0 }.to_bytes();
    unknown_kind[4] = 200;
    assert_eq!(Preamble::from_bytes(&unknown_kind), None);
}
