//! Connections through a pair of routers whose active one dies.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::bench::replication::network::Links;

const CONNECTIONS: usize = 100;
/// How long a connection may stand still: a retransmission or two, and a busy machine.
const STANDSTILL_MAX: Duration = Duration::from_secs(20);

/// None, said aloud, where it cannot be.
fn network() -> Option<Network> {
    packet_io::namespace::for_tests()?;
    if let Err(reason) = available() {
        packet_io::namespace::skip(format_args!("{reason}"));
        return None;
    }
    Some(Network::build(Links::default()).unwrap())
}

/// A server that sends back what it gets.
fn serve(listener: &TcpListener, connections: usize) {
    thread::scope(|scope| {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            scope.spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(count) = stream.read(&mut bytes) {
                    if count == 0 || stream.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// Whether a connection still carries bytes there and back.
fn echoes(stream: &mut TcpStream) -> bool {
    let mut echoed = [0; 5];
    stream.write_all(b"hello").is_ok() && stream.read_exact(&mut echoed).is_ok() && &echoed == b"hello"
}

/// Opens connections, kills the active router, and returns how many go on, and the take-over's times.
fn survivors_of_a_kill(plan: ConntrackdPlan) -> Option<(usize, TakeOver)> {
    let mut network = network()?;
    let watch = Watch::new().unwrap();
    let mut pair = ConntrackdPair::start(&network, plan).unwrap();
    pair.wait_until_ready(&watch).unwrap();
    let address: SocketAddr = network.server_addresses()[0];
    let (topology, listener) =
        (network.topology().clone(), network.server().run(|| TcpListener::bind(address)).unwrap().unwrap());
    let outcome = thread::scope(|scope| {
        scope.spawn(|| serve(&listener, CONNECTIONS));
        let connect = || (0..CONNECTIONS).map(|_| TcpStream::connect(address)).collect::<Result<Vec<_>, _>>();
        let mut streams = topology.client.run(connect).unwrap().unwrap();
        for stream in &mut streams {
            stream.set_read_timeout(Some(STANDSTILL_MAX)).unwrap();
            assert!(echoes(stream), "through the first router");
        }
        // The first router's connections are replicated within a second at the latest; without, there is nothing to be
        // seen.
        let replicated = watch.until(Instant::now() + STANDSTILL_MAX, || {
            Ok::<_, BenchError>(pair.known_to_backup()? >= CONNECTIONS as u64)
        });
        assert_eq!(replicated.unwrap(), Waited::Met);
        pair.check_roles().unwrap();
        network.disconnect_dedicated_link().unwrap();
        let killed_at = pair.kill_active().unwrap();
        let surviving = scope.spawn(move || streams.iter_mut().map(|stream| usize::from(echoes(stream))).sum());
        let take_over = pair.await_take_over(&watch, killed_at).unwrap();
        (surviving.join().unwrap(), take_over)
    });
    Some(outcome)
}

#[test]
fn connections_survive_the_active_router_in_every_mode() {
    for mode in Mode::ALL {
        let plan = ConntrackdPlan { mode, ..ConntrackdPlan::default() };
        let Some((survivors, take_over)) = survivors_of_a_kill(plan) else { return };
        println!("{}: {survivors} of {CONNECTIONS}, {take_over:?}", mode.name());
        assert_eq!(survivors, CONNECTIONS, "{}", mode.name());
        let [detected, announced, first] =
            [take_over.detected_ms, take_over.announced_ms, take_over.first_packet_ms].map(Option::unwrap);
        assert!((100.0..=announced).contains(&detected) && first >= detected, "{take_over:?}");
    }
}

#[test]
fn connections_survive_without_an_external_cache() {
    let plan = ConntrackdPlan { has_external_cache: false, ..ConntrackdPlan::default() };
    let Some((survivors, take_over)) = survivors_of_a_kill(plan) else { return };
    println!("{survivors} of {CONNECTIONS}, {take_over:?}");
    assert_eq!(survivors, CONNECTIONS);
}

#[test]
fn a_daemon_that_ended_is_noticed() {
    let Some(network) = network() else { return };
    let mut pair = ConntrackdPair::start(&network, ConntrackdPlan::default()).unwrap();
    pair.wait_until_ready(&Watch::new().unwrap()).unwrap();
    pair.daemons[1].kill().unwrap();
    let error = pair.check_roles().unwrap_err().to_string();
    assert!(error.contains("router b ended") && error.contains("initialization"), "{error}");
}
