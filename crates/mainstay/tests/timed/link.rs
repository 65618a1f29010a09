//! Links of known quality, with the kernel's own traffic over them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use lab::emulator::channel::Settings;
use lab::emulator::{BOTH, Direction, LATENESS_P99_US_MAX, Link, LinkError, LinkPlan, LinkReport};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::tun::DeviceKind;

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 44, 0, 1), Ipv4Addr::new(10, 44, 0, 2)];
const PORT: u16 = 7000;
/// How long anything may take: longer is taken for never.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a measurement is made until one was not disturbed by the machine.
const ATTEMPTS: usize = 10;

/// Two namespaces with a link between them.
struct Network {
    ends: [Namespace; 2],
    link: Link,
    _turn: MutexGuard<'static, ()>,
}

impl Network {
    /// None, said aloud, where the machine forbids namespaces.
    fn new(plan: LinkPlan) -> Option<Self> {
        packet_io::namespace::for_tests()?;
        let turn = crate::take_turn();
        let ends = [Namespace::new().unwrap(), Namespace::new().unwrap()];
        let addresses = ADDRESSES.map(|address| vec![Prefix::new(address.into(), 30)]);
        let plan = LinkPlan { program: Some(env!("CARGO_BIN_EXE_mainstay").into()), addresses, ..plan };
        let link = Link::start(&plan, [&ends[0], &ends[1]]).unwrap();
        Some(Self { ends, link, _turn: turn })
    }

    fn with(settings: Settings) -> Option<Self> {
        Self::new(LinkPlan::symmetric(settings))
    }

    /// A socket at each end, connected to each other.
    fn sockets(&self) -> [UdpSocket; 2] {
        let bind = |end: usize| {
            let socket = self.ends[end].run(|| UdpSocket::bind((ADDRESSES[end], PORT))).unwrap().unwrap();
            socket.connect((ADDRESSES[1 - end], PORT)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            socket
        };
        [bind(0), bind(1)]
    }

    /// Sends `bytes` over TCP from the first end to the second. Returns how long it took.
    fn transfer(&self, bytes: usize) -> Duration {
        let address = SocketAddr::from((ADDRESSES[1], PORT));
        let listener = self.ends[1].run(|| TcpListener::bind(address)).unwrap().unwrap();
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = self.ends[0].run(|| TcpStream::connect(address)).unwrap().unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(&vec![7; bytes]).unwrap();
            });
            let mut stream = listener.accept().unwrap().0;
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert!(received.len() == bytes && received.iter().all(|byte| *byte == 7));
        });
        began.elapsed()
    }
}

/// Sends numbered datagrams with pauses between, and returns which arrived.
fn send_numbered([from, to]: &[UdpSocket; 2], count: u32, pause: Duration) -> Vec<u32> {
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..count {
                from.send(&number.to_be_bytes()).unwrap();
                thread::sleep(pause);
            }
        });
        let (mut arrived, mut bytes) = (Vec::new(), [0; 4]);
        while to.recv(&mut bytes).is_ok() {
            arrived.push(u32::from_be_bytes(bytes));
        }
        arrived
    })
}

/// Sends datagrams that are sent back, one after the other, and returns how long each was underway.
fn round_trips([near, far]: &[UdpSocket; 2], count: u32) -> Vec<Duration> {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 4];
            while far.recv(&mut bytes).is_ok_and(|length| length > 0) {
                far.send(&bytes).unwrap();
            }
        });
        let measured = (0..count).map(|number| {
            let (began, mut bytes) = (Instant::now(), [0; 4]);
            near.send(&number.to_be_bytes()).unwrap();
            near.recv(&mut bytes).unwrap();
            assert_eq!(bytes, number.to_be_bytes());
            began.elapsed()
        });
        let measured = measured.collect();
        near.send(&[]).unwrap();
        measured
    })
}

#[test]
fn a_round_trip_takes_the_delay_of_both_directions() {
    let settings = Settings { delay: Duration::from_millis(10), ..Settings::default() };
    let Some(mut network) = Network::with(settings) else { return };
    network.link.command("backward delay 15ms").unwrap();
    let sockets = network.sockets();
    for attempt in 1..=ATTEMPTS {
        network.link.reset().unwrap();
        let mut round_trips = round_trips(&sockets, 40);
        let report = network.link.report().unwrap();
        round_trips.sort();
        assert!(round_trips[0] >= Duration::from_millis(25), "never less than asked: {round_trips:?}");
        assert!(report.lateness.packets >= 80, "{report:?}");
        println!("attempt {attempt}: median {:?}, {:?}", round_trips[20], report.lateness);
        // The end points, too, need a processor, and the machine that runs tests may be busy: hence the median, and attempts.
        if report.lateness.p50_us < LATENESS_P99_US_MAX && round_trips[20] < Duration::from_millis(27) {
            return;
        }
    }
    panic!("no undisturbed measurement in {ATTEMPTS}: the machine is too busy");
}

#[test]
fn the_kernel_answers_pings_over_it() {
    let settings = Settings { delay: Duration::from_millis(5), ..Settings::default() };
    let Some(network) = Network::with(settings) else { return };
    let mut ping = Command::new("ping");
    ping.args(["-n", "-c", "5", "-i", "0.02", "-W", "5"]).arg(ADDRESSES[1].to_string());
    ping.stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(child) = network.ends[0].spawn_command(ping) else {
        packet_io::namespace::skip("there is no ping here");
        return;
    };
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let times: Vec<f64> =
        text.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok()).collect();
    assert!(times.len() == 5 && times.iter().all(|ms| *ms >= 10.0), "{text}");
}

#[test]
fn as_many_datagrams_are_lost_doubled_and_overtaken_as_asked() {
    let Some(mut network) = Network::with(Settings::default()) else { return };
    let sockets = network.sockets();
    network.link.set(Direction::Forward, &Settings { loss: 0.2, ..Settings::default() }).unwrap();
    network.link.reset().unwrap();
    let arrived = send_numbered(&sockets, 2000, Duration::from_micros(100));
    let report = network.link.report().unwrap();
    // Five standard deviations of a binomial distribution.
    assert!((1600 - 90..=1600 + 90).contains(&arrived.len()), "{}", arrived.len());
    assert!(arrived.is_sorted());
    assert!(report.forward.counters.lost >= 2000 - arrived.len() as u64, "{report:?}");

    network.link.command("forward loss 0 duplicate 0.1 reorder 0.1 hold 3ms").unwrap();
    let mut arrived = send_numbered(&sockets, 1000, Duration::from_micros(500));
    assert!(!arrived.is_sorted(), "some were overtaken");
    assert!((1050..=1150).contains(&arrived.len()), "{}", arrived.len());
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived.len(), 1000, "and none was lost");
}

#[test]
fn tcp_goes_through_although_one_packet_in_a_hundred_is_lost() {
    let settings = Settings { delay: Duration::from_millis(1), loss: 0.01, ..Settings::default() };
    let Some(network) = Network::with(settings) else { return };
    network.transfer(2_000_000);
    let report = network.link.finish().unwrap();
    assert!(report.forward.counters.lost > 0, "{report:?}");
    assert_eq!(report.forward.refused + report.backward.refused, 0, "{report:?}");
}

#[test]
fn bulk_tcp_keeps_to_the_rate() {
    const BYTES: usize = 3_000_000;
    for has_offload in [false, true] {
        let settings = Settings { rate_bits_per_s: Some(20_000_000), queue_packets: 100, ..Settings::default() };
        let Some(network) = Network::new(LinkPlan { has_offload, ..LinkPlan::symmetric(settings) }) else { return };
        let took = network.transfer(BYTES);
        let LinkReport { forward, .. } = network.link.finish().unwrap();
        // 1.2 s of payload alone, and headers.
        let least = Duration::from_secs_f64(forward.counters.delivered_bytes as f64 * 8.0 / 20e6);
        assert!(forward.counters.delivered_bytes > BYTES as u64 * 51 / 50, "{forward:?}");
        assert!(took + Duration::from_millis(20) >= least && least.as_secs_f64() > 1.2, "{took:?}, {forward:?}");
        assert!(took < 5 * least, "{took:?}, {forward:?}");
        let packets = forward.counters.received_packets;
        assert_eq!(has_offload, packets < BYTES as u64 / 3000, "runs of segments are carried as one: {packets}");
    }
}

#[test]
fn a_link_that_is_down_carries_nothing_until_it_is_restored() {
    let Some(mut network) = Network::with(Settings::default()) else { return };
    let sockets = network.sockets();
    let pass = |expected: usize| {
        let arrived = send_numbered(&sockets, 10, Duration::ZERO);
        assert_eq!(arrived.len(), expected);
    };
    pass(10);
    network.link.interrupt(&BOTH, None).unwrap();
    pass(0);
    network.link.command("backward restore").unwrap();
    pass(0);
    network.link.restore(&[Direction::Forward]).unwrap();
    pass(10);
    // By itself: a cut that ends.
    let began = Instant::now();
    network.link.interrupt(&[Direction::Forward], Some(Duration::from_millis(400))).unwrap();
    let mut bytes = [0; 4];
    while sockets[0].send(&[1; 4]).is_ok() && sockets[1].recv(&mut bytes).is_err() {
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(began.elapsed() >= Duration::from_millis(400));
    let report = network.link.report().unwrap();
    assert!(report.forward.counters.cut >= 20, "{report:?}");
}

#[test]
fn frames_pass_between_bridges() {
    let plan = LinkPlan {
        kind: DeviceKind::Ethernet,
        ..LinkPlan::symmetric(Settings { delay: Duration::from_millis(2), ..Settings::default() })
    };
    let Some(network) = Network::new(plan) else { return };
    for (end, address) in network.ends.iter().zip(ADDRESSES) {
        end.run(|| {
            let mut netlink = Netlink::open().unwrap();
            netlink.create_bridge("bridge").unwrap();
            netlink.set_up("bridge", true).unwrap();
            netlink.delete_address("link", Prefix::new(address.into(), 30)).unwrap();
            netlink.add_address("bridge", Prefix::new(address.into(), 30)).unwrap();
            netlink.attach_to_bridge("link", "bridge").unwrap();
        })
        .unwrap();
    }
    // Neighbours are asked for over the link, too.
    let [near, far] = &network.sockets();
    let (began, mut bytes) = (Instant::now(), [0; 4]);
    while near.send(&[1; 4]).is_ok() && far.recv(&mut bytes).is_err() {
        assert!(began.elapsed() < PATIENCE);
    }
    assert_eq!(bytes, [1; 4]);
}

#[test]
fn a_link_that_refuses_an_order_gives_the_reason() {
    let Some(mut network) = Network::with(Settings::default()) else { return };
    let refused = network.link.command("forward loss 2").unwrap_err();
    assert!(matches!(refused, LinkError::Refused { .. }) && refused.to_string().contains("from 0 to 1"), "{refused}");
    assert_eq!(network.link.report().unwrap().forward.counters.lost, 0, "it goes on");

    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["link", "--from", "no-such-namespace", "--to", "neither"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("/run/netns/no-such-namespace"), "{error}");
}

#[test]
fn operators_can_run_it_without_commands_and_end_it_by_a_signal() {
    let Some(network) = Network::with(Settings::default()) else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.arg("link");
    for (side, end) in ["from", "to"].into_iter().zip(&network.ends) {
        let path = end.pass_to(&mut command);
        command.arg(format!("--{side}")).arg(path).args([format!("--{side}-interface"), "second".into()]);
    }
    command.args(["delay 1ms", "backward loss 0.5"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut out, mut ready) = (child.stdout.take().unwrap(), [0; 8]);
    out.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"\"ready\"\n");
    packet_io::signal::send(child.id(), packet_io::signal::Signal::Terminate).unwrap();
    let mut report = String::new();
    out.read_to_string(&mut report).unwrap();
    assert!(child.wait().unwrap().success());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["report"]["lateness"]["p99_us"].is_u64(), "{report}");
}
