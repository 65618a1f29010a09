//! Connections from outside, through gateways, to a host inside that sends back what it is sent.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use lab::testbed::topology::{CLIENT, INSIDE, OUTSIDE, SYNC, Topology};

use super::program::PATIENCE;

/// The port that clients outside connect to, and the one that they reach inside.
pub(crate) const FORWARDED: (u16, u16) = (443, 8443);
/// Where the nodes replicate.
pub(crate) const REPLICATION_PORT: u16 = 3781;

/// The configuration of node 0, which has the higher priority, or 1. `node`, `replication`, `of_peer` and `security` are added to
/// what they are called after.
pub(crate) fn configuration(id: usize, node: &str, replication: &str, of_peer: &str, security: &str) -> String {
    let (inside, outside, client, other) = (INSIDE[0], OUTSIDE[0], CLIENT[0], 1 - id);
    format!(
        "[node]\nid = {id}\nnodes = 2\npriority = {}\ncontrol_socket = \"CONTROL\"\n{node}\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"{inside}/24\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"{outside}/24\"]\n\
         [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
         [[nat.destination]]\ndestination = \"{outside}\"\nprotocol = \"tcp\"\nport = {}\nto = \"{client}:{}\"\n\
         [replication]\nlocal = \"{}:{REPLICATION_PORT}\"\n{replication}\n\
         [[replication.peer]]\nid = {other}\naddress = \"{}:{REPLICATION_PORT}\"\n{of_peer}\n\
         [replication.security]\n{security}\n",
        200 - 100 * id,
        FORWARDED.0,
        FORWARDED.1,
        SYNC[id],
        SYNC[other],
    )
}

/// A host inside that sends back what it is sent.
pub(crate) fn echo_inside(topology: &Topology) {
    let address = SocketAddr::new(CLIENT[0], FORWARDED.1);
    let listener = topology.client.run(|| TcpListener::bind(address).expect("the address is free")).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut writer = stream.try_clone().expect("descriptors are left");
                // It ends with its connection, or with the test.
                let _ = io::copy(&mut &stream, &mut writer);
            });
        }
    });
}

/// A connection from outside to that host.
pub(crate) fn connect(topology: &Topology) -> TcpStream {
    let address = SocketAddr::new(OUTSIDE[0], FORWARDED.0);
    let stream = topology.server.run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap();
    let stream = stream.expect("the connection is let through");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends text, which comes back.
pub(crate) fn exchange(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).unwrap();
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).expect("an answer comes");
    assert_eq!(answer, text);
}
