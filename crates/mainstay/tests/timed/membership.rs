//! Gateways that join a cluster and leave it while a connection passes: their list comes from etcd, or from gossip. What happens to etcd changes
//! nothing for packets.

mod tls;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;

use api::{DetectorState, EventKind, MemberState, MembershipStatus, Status};
use lab::testbed::etcd::EtcdCluster;
use packet_io::IoError;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::sysctl;

use crate::common::program::{Folder, PATIENCE, Program, wait_until};

const NODES: usize = 3;
const NAMES: [&str; NODES] = ["a", "b", "c"];
const SERVER: SocketAddr = SocketAddr::new(ip([198, 51, 100, 10]), 7000);
/// Where etcd runs, on the network between the nodes.
const HUB: IpAddr = ip([10, 99, 0, 100]);

const fn ip([a, b, c, d]: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// A client and a server, and places for gateways between them:
///
/// ```text
///   client ── bridge ─┬─ inside  a  outside ─┬─ bridge ── server
///                     ├─ inside  b  outside ─┤
///                     └─ inside  c  outside ─┘
///                           sync │ a, b, c
///                              bridge ── hub
/// ```
struct Site {
    client: Namespace,
    server: Namespace,
    hub: Namespace,
    nodes: Vec<Namespace>,
}

impl Site {
    fn build() -> Self {
        let new = || Namespace::new().expect("a namespace can be made");
        let site = Self { client: new(), server: new(), hub: new(), nodes: (0..NODES).map(|_| new()).collect() };
        for namespace in [&site.client, &site.server, &site.hub].into_iter().chain(&site.nodes) {
            namespace.run(sysctl::quieten_ipv6).unwrap().unwrap();
        }
        for node in &site.nodes {
            node.run(|| sysctl::write("net/ipv4/ip_forward", "0")).unwrap().unwrap();
        }
        site.switch(&site.client, "inside", ip([10, 1, 0, 10]));
        site.switch(&site.server, "outside", SERVER.ip());
        site.switch(&site.hub, "sync", HUB);
        let route = || Netlink::open()?.add_route(Prefix::DEFAULT_V4, ip([10, 1, 0, 1]));
        site.client.run(route).unwrap().expect("a route");
        for (node, namespace) in site.nodes.iter().enumerate() {
            let address = || Netlink::open()?.add_address("sync", Prefix::new(sync(node), 24));
            namespace.run(address).unwrap().expect("an address");
        }
        let listener = site.server.run(|| TcpListener::bind(SERVER)).unwrap().expect("the port is free");
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(thread::spawn(|| echo(stream)))));
        site
    }

    /// A bridge with a cable to each node.
    fn switch(&self, namespace: &Namespace, interface: &str, address: IpAddr) {
        let build = || -> Result<(), IoError> {
            let mut netlink = Netlink::open()?;
            netlink.create_bridge("bridge")?;
            netlink.set_up("bridge", true)?;
            netlink.add_address("bridge", Prefix::new(address, 24))?;
            for (number, node) in self.nodes.iter().enumerate() {
                let name = format!("to-{number}");
                netlink.create_veth(&name, interface, node)?;
                netlink.set_up(&name, true)?;
                netlink.attach_to_bridge(&name, "bridge")?;
                node.run(|| Netlink::open()?.set_up(interface, true))??;
            }
            Ok(())
        };
        namespace.run(build).unwrap().expect("the network can be built");
    }

    fn connect(&self) -> Talk {
        let stream = self.client.run(|| TcpStream::connect_timeout(&SERVER, PATIENCE)).unwrap();
        let stream = stream.expect("the server answers");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Talk(stream)
    }

    /// Starts a gateway with this section `[membership]`.
    fn start(&self, folder: &Folder, node: usize, membership: &str) -> Program {
        Program::start(
            &self.nodes[node],
            folder,
            NAMES[node],
            "gateway",
            &configuration(folder, node, NAMES[node], membership),
        )
    }
}

fn sync(node: usize) -> IpAddr {
    ip([10, 99, 0, u8::try_from(node + 1).expect("a number of a node")])
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
}

/// A client's connection.
struct Talk(TcpStream);

impl Talk {
    /// Sends bytes and receives them back.
    fn exchange(&mut self) {
        self.0.write_all(b"question").expect("it is open");
        let mut back = [0; 8];
        self.0.read_exact(&mut back).expect("they come back");
        assert_eq!(&back, b"question");
    }
}

fn configuration(folder: &Path, node: usize, name: &str, membership: &str) -> String {
    let mut text = format!(
        "chain = [\"firewall\", \"nat\"]\n\
         [node]\nid = {node}\nname = \"{name}\"\nnodes = 4\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [\"10.1.0.1/24\"]\n\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [\"198.51.100.1/24\"]\n\
         [[firewall.rule]]\nname = \"all\"\naction = \"accept\"\n\
         [[nat.source]]\nsource = [\"10.1.0.0/24\"]\nto = [\"198.51.100.1\"]\n\
         [failure_detection]\ninterval = \"50ms\"\n\
         [replication]\nlocal = \"{local}:3781\"\n\
         [replication.security]\npre_shared_keys = [\"{key}\"]\n",
        priority = 200 - 50 * node,
        local = sync(node),
        key = folder.join("key").display(),
    );
    let _ = write!(text, "[membership]\nforget_after = \"2s\"\nstart_wait = \"1s\"\n{membership}");
    text
}

fn status(node: &Program) -> Status {
    node.status().unwrap_or_else(|| panic!("it answers: {}", node.log()))
}

fn membership(node: &Program) -> MembershipStatus {
    *status(node).membership.expect("its members come from elsewhere")
}

fn events(node: &Program, kind: EventKind) -> Vec<String> {
    let events = node.client().events().unwrap_or_default();
    events.into_iter().filter(|event| event.kind == kind).map(|event| event.detail).collect()
}

fn wait_for(what: &str, node: &Program, is_so: impl Fn(&Status) -> bool) {
    wait_until(what, || match node.status() {
        Some(status) if is_so(&status) => Ok(()),
        Some(status) => Err(format!("{:?}\n{:?}\n{}", status.membership, status.peers, node.log())),
        None => Err(node.log()),
    });
}

/// Waits until the node has exactly these peers, is synchronised with them, and has as many connections as there are.
fn wait_for_peers(node: &Program, ids: &[u8], connections: u64) {
    wait_for(&format!("the peers are {ids:?}"), node, |status| {
        let peers: Vec<u8> = status.peers.iter().map(|peer| peer.id).collect();
        let are_up = status.peers.iter().all(|peer| peer.detector == DetectorState::Up && peer.synchronised);
        peers == ids && are_up && status.connections.count == connections
    });
}

/// A joins alone, b joins and then c. No session with another node is disturbed.
fn start_three(site: &Site, folder: &Folder, membership: &dyn Fn(usize) -> String) -> ([Program; NODES], Talk) {
    let a = site.start(folder, 0, &membership(0));
    a.wait_for_role("active");
    let mut talk = site.connect();
    talk.exchange();
    let b = site.start(folder, 1, &membership(1));
    wait_for_peers(&a, &[1], 1);
    wait_for_peers(&b, &[0], 1);
    let c = site.start(folder, 2, &membership(2));
    wait_for_peers(&a, &[1, 2], 1);
    wait_for_peers(&b, &[0, 2], 1);
    wait_for_peers(&c, &[0, 1], 1);
    talk.exchange();
    for node in [&a, &b, &c] {
        assert_eq!(events(node, EventKind::PeerDown), [""; 0], "{}", node.log());
        assert_eq!(events(node, EventKind::ReplicationDown), [""; 0], "{}", node.log());
    }
    assert_eq!(a.role(), "active");
    assert_eq!(events(&a, EventKind::MemberJoined).len(), 2, "{}", a.log());
    ([a, b, c], talk)
}

#[test]
fn etcd_is_followed_and_its_loss_changes_nothing_for_packets() {
    if packet_io::namespace::for_tests().is_none() {
        return;
    }
    let _turn = crate::take_turn();
    let (site, folder) = (Site::build(), Folder::new("etcd"));
    folder.make_key("key");
    let hub = site.hub.run(Namespace::current).unwrap().expect("it is there");
    let mut etcd = match EtcdCluster::start(hub, HUB, &folder.join("etcd")) {
        Ok(etcd) => etcd,
        Err(error) => return packet_io::namespace::skip(error),
    };
    let urls = etcd.endpoints().join("\", \"");
    let state = |node: usize| folder.join(NAMES[node]).with_extension("members");
    let section = |node: usize| {
        let state = state(node);
        format!(
            "source = \"etcd\"\nendpoints = [\"{urls}\"]\nplain = true\nlease = \"2s\"\nstate_file = \"{}\"\n",
            state.display()
        )
    };
    let ([a, b, c], mut talk) = start_three(&site, &folder, &section);
    let record = etcd.get("/mainstay/members/2").expect("etcd answers").expect("c has a record");
    assert!(record.contains("name=c replication=10.99.0.3:3781"), "{record}");

    // One member of etcd is killed: settings are read and applied all the same.
    etcd.kill_member(0);
    etcd.put("/mainstay/settings", "version=1 backups=2").expect("the others have a quorum");
    for node in [&a, &b, &c] {
        wait_for("the settings are applied", node, |status| {
            status.membership.as_ref().is_some_and(|membership| membership.backups == Some(2))
        });
        assert_eq!(events(node, EventKind::MembershipLost), [""; 0], "{}", node.log());
    }
    talk.exchange();

    // The settings ask for the configuration file to be read again.
    let text = configuration(&folder, 0, "a-renamed", &section(0));
    crate::common::program::write_configuration(&folder, NAMES[0], &text);
    etcd.put("/mainstay/settings", "version=2 backups=2 configuration=1").expect("there is a quorum");
    wait_for("a has read its file again", &a, |status| status.node.name == "a-renamed");

    // An operator drains c, and the others see it.
    c.order("drain");
    wait_for("c is drained", &a, |status| {
        let mut members = status.membership.iter().flat_map(|membership| &membership.members);
        members.any(|member| member.id == 2 && member.state == MemberState::Draining)
    });
    c.order("undrain");

    // Without a quorum, nothing changes but the report.
    etcd.kill_member(1);
    for node in [&a, &b, &c] {
        wait_for("the loss is reported", node, |status| {
            status.membership.as_ref().is_some_and(|membership| !membership.reachable && membership.error.is_some())
        });
        assert_eq!(events(node, EventKind::MembershipLost).len(), 1, "{}", node.log());
        assert_eq!(membership(node).members.len(), 2);
    }
    wait_for_peers(&b, &[0, 2], 1);
    talk.exchange();
    a.kill();
    b.wait_for_role("active");
    talk.exchange();

    // A node that starts meanwhile has the last known members.
    let a = site.start(&folder, 0, &section(0));
    wait_for_peers(&a, &[1, 2], 1);
    wait_for_peers(&b, &[0, 2], 1);
    assert!(!membership(&a).reachable && a.role() == "standby");

    // etcd is back.
    etcd.start_member(0).expect("it starts");
    etcd.start_member(1).expect("it starts");
    for node in [&a, &b, &c] {
        wait_for("the source is reachable", node, |status| {
            status.membership.as_ref().is_some_and(|membership| membership.reachable)
        });
        assert_eq!(events(node, EventKind::MemberLeft), [""; 0], "{}", node.log());
    }
    for node in [&b, &c] {
        assert_eq!(events(node, EventKind::MembershipRestored).len(), 1, "{}", node.log());
    }
    wait_for_peers(&c, &[0, 1], 1);
    talk.exchange();
    leave_and_crash(&site, &folder, [a, b, c], &mut talk, &section);
}

#[test]
fn nodes_that_gossip_join_leave_crash_and_come_back() {
    if packet_io::namespace::for_tests().is_none() {
        return;
    }
    let _turn = crate::take_turn();
    let (site, folder) = (Site::build(), Folder::new("gossip"));
    folder.make_key("key");
    let section = |node: usize| {
        let (own, seeds) = (sync(node), [sync(0), sync(1)]);
        format!(
            "source = \"gossip\"\nlisten = \"{own}:3785\"\nseeds = [\"{}:3785\", \"{}:3785\"]\n",
            seeds[0], seeds[1]
        )
    };
    let ([a, b, c], mut talk) = start_three(&site, &folder, &section);
    for node in [&a, &b, &c] {
        wait_for("others answer", node, |status| {
            status.membership.as_ref().is_some_and(|membership| membership.reachable && membership.members.len() == 2)
        });
    }
    // A stranger without the key changes nothing.
    let stranger = site.hub.run(|| UdpSocket::bind((HUB, 0))).unwrap().expect("a socket");
    stranger.send_to(&[1; 200], (sync(0), 3785)).expect("it is sent");
    wait_for("the datagram is refused", &a, |status| {
        let membership = status.membership.as_ref().expect("it gossips");
        membership.refused.as_ref().is_some_and(|refused| refused.contains("not authentic"))
    });
    leave_and_crash(&site, &folder, [a, b, c], &mut talk, &section);
}

/// Node c leaves. Node b, which is active, crashes, is forgotten, and comes back.
fn leave_and_crash(
    site: &Site,
    folder: &Folder,
    [a, b, c]: [Program; NODES],
    talk: &mut Talk,
    section: &dyn Fn(usize) -> String,
) {
    c.terminate();
    for (node, other) in [(&a, 1), (&b, 0)] {
        wait_for_peers(node, &[other], 1);
        let left = events(node, EventKind::MemberLeft);
        assert_eq!(left, ["node 2: it has left"], "{}", node.log());
    }
    talk.exchange();
    let (active, standby, crashed) = if a.role() == "active" { (a, b, 0) } else { (b, a, 1) };
    active.kill();
    standby.wait_for_role("active");
    talk.exchange();
    wait_for("the dead node is forgotten", &standby, |status| status.peers.is_empty());
    talk.exchange();
    let back = site.start(folder, crashed, &section(crashed));
    wait_for_peers(&standby, &[u8::try_from(crashed).unwrap_or_default()], 1);
    wait_for_peers(&back, &[u8::try_from(1 - crashed).unwrap_or_default()], 1);
    talk.exchange();
    standby.kill();
    back.wait_for_role("active");
    talk.exchange();
}
