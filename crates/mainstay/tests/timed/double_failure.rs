//! Both nodes of a pair die at once, and one is started again: no node has the connections any more.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lab::testbed::topology::{INSIDE, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};

use crate::common::program::{Folder, PATIENCE, Program, wait_until};

const PORT: u16 = 7500;
const CONNECTIONS: usize = 26;

/// A node of a pair that translates the client's address to the shared one.
fn configuration(id: usize, key: &str, tracking: &str) -> String {
    let (inside, outside, bits) = (INSIDE[0], OUTSIDE[0], PREFIX_BITS[0]);
    format!(
        "chain = [\"firewall\", \"nat\"]\n\
         [node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [tracking]\n{tracking}\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/{bits}\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/{bits}\"]\n\
         [[firewall.rule]]\nname = \"out\"\nfrom = \"inside\"\naction = \"accept\"\n\
         [[nat.source]]\nsource = [\"10.1.0.0/24\"]\nto = [\"{outside}\"]\n\
         [replication]\nlocal = \"{local}:3781\"\n\
         [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
         [replication.security]\npre_shared_keys = [\"{key}\"]\n\
         [failure_detection]\ninterval = \"50ms\"\n",
        priority = 200 - 100 * id,
        local = SYNC[id],
        other = 1 - id,
        peer = SYNC[1 - id],
    )
}

/// Answers each four bytes by the same.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        thread::spawn(move || {
            let mut bytes = [0; 4];
            while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
        });
    }
}

fn exchange(stream: &mut TcpStream) -> Result<(), ErrorKind> {
    let mut answer = [0; 4];
    let exchanged = stream.write_all(b"ping").and_then(|()| stream.read_exact(&mut answer));
    exchanged.map_err(|error| error.kind())?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

fn connect(topology: &Topology) -> TcpStream {
    let server = SocketAddr::new(SERVER[0], PORT);
    let stream = topology.client.run(|| TcpStream::connect_timeout(&server, PATIENCE)).unwrap();
    let mut stream = stream.expect("the server answers");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    assert_eq!(exchange(&mut stream), Ok(()));
    stream
}

/// Kills both nodes of a pair within 30 ms and starts the second again. The outcome of the next exchange on each of the connections
/// that there were, and how long the longest took.
fn outcomes(name: &str, tracking: &str) -> Option<(Vec<Result<(), ErrorKind>>, Duration)> {
    packet_io::namespace::for_tests()?;
    let _turn = crate::take_turn();
    let topology = Topology::build().expect("the network can be built");
    let folder = Folder::new(name);
    let key = folder.make_key("cluster.key").display().to_string();
    let listener = topology.server.run(|| TcpListener::bind((SERVER[0], PORT))).unwrap().expect("a free port");
    thread::spawn(move || serve(&listener));
    let start = |id: usize| {
        let text = configuration(id, &key, tracking);
        Program::start(&topology.nodes[id], &folder, ["a", "b"][id], "gateway", &text)
    };
    let a = start(0);
    a.wait_for_role("active");
    let b = start(1);
    wait_until("b is synchronised", || {
        let takeover = a.status().map(|status| status.takeover);
        if takeover.as_ref().is_some_and(|takeover| takeover.ready) { Ok(()) } else { Err(format!("{takeover:?}")) }
    });
    let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&topology)).collect();
    a.kill();
    b.kill();
    let b = start(1);
    b.wait_for_role("active");
    let began = Instant::now();
    let outcomes = connections.iter_mut().map(exchange).collect();
    Some((outcomes, began.elapsed()))
}

#[test]
fn picked_up_connections_keep_their_translation_after_the_failure_of_both_nodes() {
    let Some((outcomes, _)) = outcomes("double-loose", "loose = true") else { return };
    let lost = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert_eq!(lost, 0, "{outcomes:?}");
}

#[test]
fn inside_hosts_learn_at_once_that_both_nodes_have_lost_their_connections() {
    let Some((outcomes, took)) = outcomes("double-strict", "") else { return };
    assert_eq!(outcomes, [Err(ErrorKind::ConnectionReset); CONNECTIONS]);
    assert!(took < PATIENCE, "they waited for {took:?}");
}
