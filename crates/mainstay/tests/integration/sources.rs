//! Forged sources: packets with the addresses of another side, or of the gateway itself, at a gateway that runs.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::common::program::{Folder, PATIENCE, Program, wait_for, wait_until};
use flow::wire::build::Envelope;
use flow::wire::ip_protocol;
use flow::{Frame, PortId, Tuple};
use lab::testbed::topology::{CLIENT, INSIDE, INTERFACES, OUTSIDE, PREFIX_BITS, SERVER, Topology, link_address};
use packet_io::PacketIo;
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::namespace::Namespace;

const PORT: u16 = 7600;
const GENUINE: &[u8] = b"genuine";
const FORGED: &[u8] = b"forged";
/// Exchanges of a flow before packets are forged: enough for the kernel to forward it.
const EXCHANGES: usize = 40;

fn configuration(port_options: &str) -> String {
    let mut text =
        "chain = [\"firewall\", \"nat\"]\n[node]\nid = 0\nnodes = 1\ncontrol_socket = \"CONTROL\"\n".to_owned();
    for (name, shared) in INTERFACES.into_iter().zip([INSIDE, OUTSIDE]) {
        let [v4, v6] = shared;
        let [bits4, bits6] = PREFIX_BITS;
        text += &format!(
            "[[port]]\nname = \"{name}\"\ninterface = \"{name}\"\naddresses = [\"{v4}/{bits4}\", \"{v6}/{bits6}\"]\n{port_options}"
        );
    }
    text += &format!("[[route]]\nto = \"0.0.0.0/0\"\nvia = \"{}\"\n", SERVER[0]);
    text += &format!("[[route]]\nto = \"::/0\"\nvia = \"{}\"\n", SERVER[1]);
    text += "[[firewall.rule]]\nname = \"out\"\nfrom = \"inside\"\naction = \"accept\"\n";
    for (client, shared) in CLIENT.into_iter().zip(OUTSIDE) {
        text += &format!("[[nat.source]]\nsource = [\"{client}\"]\nto = [\"{shared}\"]\n");
    }
    text
}

/// A gateway between a client and a server, with a flow between them.
struct World {
    topology: Topology,
    gateway: Program,
    _folder: Folder,
}

impl World {
    fn start(port_options: &str) -> Option<Self> {
        packet_io::namespace::for_tests()?;
        let (topology, folder) = (Topology::build().unwrap(), Folder::new("sources"));
        let gateway = Program::start(&topology.nodes[0], &folder, "gateway", "gateway", &configuration(port_options));
        gateway.wait_for_role("active");
        Some(Self { topology, gateway, _folder: folder })
    }

    /// A client's socket and a server's, with packets of both exchanged through the gateway.
    fn flow(&self, family: usize) -> [UdpSocket; 2] {
        let server = SocketAddr::new(SERVER[family], PORT);
        let bind = |namespace: &Namespace, address| namespace.run(|| UdpSocket::bind(address).unwrap()).unwrap();
        let serving = bind(&self.topology.server, server);
        let asking = bind(&self.topology.client, SocketAddr::new(CLIENT[family], 0));
        asking.connect(server).unwrap();
        for socket in [&serving, &asking] {
            socket.set_read_timeout(Some(PATIENCE / 100)).unwrap();
        }
        let mut exchanges = 0;
        wait_for("packets are exchanged", || {
            exchanges += usize::from(exchange(&asking, &serving));
            exchanges >= EXCHANGES
        });
        [asking, serving]
    }

    /// Sends a datagram with any source to a port of the gateway, from the host there.
    fn forge(&self, side: usize, source: SocketAddr, destination: SocketAddr) {
        let host = [&self.topology.client, &self.topology.server][side];
        let link =
            [link_address(host, "bridge").unwrap(), link_address(&self.topology.nodes[0], INTERFACES[side]).unwrap()];
        let envelope = Envelope { source: link[0], destination: link[1], ..Envelope::default() };
        let mut bytes = envelope.udp(&Tuple::new(ip_protocol::UDP, source, destination), FORGED);
        let length_bytes = bytes.len();
        let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
        host.run(|| AfPacketIo::open(&[PortConfig::new("bridge")]).unwrap().transmit(PortId(0), &frame).unwrap())
            .unwrap();
    }

    fn dropped(&self, reason: &str) -> u64 {
        let drops = self.gateway.status().map(|status| status.drops).unwrap_or_default();
        drops.iter().find(|drop| drop.reason == reason).map_or(0, |drop| drop.packets)
    }

    fn wait_for_drops(&self, reason: &str, packets: u64) {
        wait_until(&format!("{packets} are dropped as {reason}"), || {
            let dropped = self.dropped(reason);
            if dropped >= packets { Ok(()) } else { Err(format!("{dropped} are")) }
        });
    }
}

/// A datagram each way; whether both came.
fn exchange(asking: &UdpSocket, serving: &UdpSocket) -> bool {
    let mut buffer = [0; 64];
    asking.send(GENUINE).unwrap();
    let Ok((length, from)) = serving.recv_from(&mut buffer) else { return false };
    assert_eq!(&buffer[..length], GENUINE);
    serving.send_to(GENUINE, from).unwrap();
    matches!(asking.recv(&mut buffer), Ok(length) if &buffer[..length] == GENUINE)
}

#[test]
fn forged_packets_of_an_inside_flow_from_outside_and_the_gateways_own_sources_are_dropped() {
    let Some(world) = World::start("") else { return };
    for family in [0, 1] {
        let [asking, serving] = world.flow(family);
        let (client, server) = (asking.local_addr().unwrap(), SocketAddr::new(SERVER[family], PORT));
        let outside = |port| SocketAddr::new(OUTSIDE[family], port);
        let (reverse, martians) = (world.dropped("reverse_path"), world.dropped("martian_address"));
        // The tuple of the flow, on the wrong side; one that a rule for the inside would let begin; and a reply from the inside.
        world.forge(1, client, server);
        world.forge(1, SocketAddr::new(client.ip(), 4321), server);
        world.forge(0, server, client);
        world.wait_for_drops("reverse_path", reverse + 3);
        let own: [IpAddr; 2] = [INSIDE[family], OUTSIDE[family]];
        for side in [0, 1] {
            for source in own {
                world.forge(side, SocketAddr::new(source, 4321), server);
                world.forge(side, SocketAddr::new(source, 4321), outside(80));
            }
        }
        world.wait_for_drops("martian_address", martians + 8);
        // What the server has got besides would come before this.
        wait_for("the flow goes on", || exchange(&asking, &serving));
    }
}

#[test]
fn a_port_without_the_check_passes_what_a_rule_accepts() {
    let Some(world) = World::start("reverse_path = \"off\"\n") else { return };
    let [asking, serving] = world.flow(0);
    world.forge(1, asking.local_addr().unwrap(), SocketAddr::new(SERVER[0], PORT));
    wait_until("the forged packet passes", || {
        let mut buffer = [0; 64];
        let (length, _) = serving.recv_from(&mut buffer).map_err(|error| error.to_string())?;
        if &buffer[..length] == FORGED { Ok(()) } else { Err("another came".to_owned()) }
    });
    assert_eq!(world.dropped("reverse_path"), 0);
}
