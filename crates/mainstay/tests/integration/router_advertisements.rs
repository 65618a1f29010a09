//! A Linux host that configures itself by the gateways' router advertisements: its address, its default router, and both through failovers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::program::{Folder, PATIENCE, Program, wait_for, wait_until};
use lab::testbed::topology::{CLIENT, INSIDE, OUTSIDE, PREFIX_BITS, SERVER, SYNC, Topology};
use packet_io::netlink::{Netlink, Prefix};
use packet_io::signal::die_with_parent;
use packet_io::sysctl;

const PORT: u16 = 7700;
const HOST: &str = "bridge";
const ROUTER: &str = "fe80::1";
/// Failovers by a killed active node, one after the other.
const FAILOVERS: usize = 4;

fn configuration(id: usize, section: &str) -> String {
    let shared = |both: [IpAddr; 2]| format!("\"{}/{}\", \"{}/{}\"", both[0], PREFIX_BITS[0], both[1], PREFIX_BITS[1]);
    format!(
        "chain = [\"firewall\"]\n[node]\nid = {id}\nnodes = 2\npriority = {priority}\ncontrol_socket = \"CONTROL\"\n\
         [[port]]\nname = \"inside\"\ninterface = \"inside\"\naddresses = [{inside}, \"{ROUTER}/64\"]\n{section}\
         [[port]]\nname = \"outside\"\ninterface = \"outside\"\naddresses = [{outside}, \"{ROUTER}/64\"]\n\
         [[firewall.rule]]\nname = \"out\"\nfrom = \"inside\"\naction = \"accept\"\n\
         [replication]\nlocal = \"{local}:3781\"\n\
         [[replication.peer]]\nid = {other}\naddress = \"{peer}:3781\"\n\
         [replication.security]\nmode = \"plain\"\n\
         [failure_detection]\ninterval = \"50ms\"\n",
        priority = 200 - 100 * id,
        inside = shared(INSIDE),
        outside = shared(OUTSIDE),
        local = SYNC[id],
        other = 1 - id,
        peer = SYNC[1 - id],
    )
}

const SECTION: &str =
    "[port.router_advertisements]\ninterval_max = \"4s\"\ninterval_min = \"3s\"\npreference = \"high\"\nmtu = 1400\n";

/// Two nodes, a host inside without a configuration of its own, and what became of its default routes.
struct World {
    nodes: [Option<Program>; 2],
    /// Lines of `ip monitor` about default routes.
    changes: Arc<Mutex<Vec<String>>>,
    monitor: Child,
    topology: Topology,
    folder: Folder,
}

impl World {
    fn start(section: &str) -> Option<Self> {
        packet_io::namespace::for_tests()?;
        let (topology, folder) = (Topology::build().unwrap(), Folder::new("router-advertisements"));
        topology.client.run(make_automatic).unwrap();
        let back = Prefix::new(Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0).into(), 64);
        topology.server.run(|| Netlink::open().unwrap().add_route(back, OUTSIDE[1]).unwrap()).unwrap();
        let (monitor, changes) = watch_routes(&topology);
        let mut world = Self { nodes: [None, None], changes, monitor, topology, folder };
        for id in [0, 1] {
            world.start_node(id, section);
        }
        world.wait_for_roles();
        Some(world)
    }

    fn start_node(&mut self, id: usize, section: &str) {
        let name = ["a", "b"][id];
        let text = configuration(id, section);
        self.nodes[id] = Some(Program::start(&self.topology.nodes[id], &self.folder, name, "gateway", &text));
    }

    /// One is active, and the other could take over at any time.
    fn wait_for_roles(&self) {
        wait_until("a node is active and the other ready", || {
            let mut roles: Vec<_> = self.nodes.iter().flatten().map(Program::role).collect();
            roles.sort_unstable();
            let is_ready =
                self.nodes.iter().flatten().all(|node| node.status().is_some_and(|status| status.takeover.ready));
            if roles == ["active", "standby"] && is_ready { Ok(()) } else { Err(format!("{roles:?}")) }
        });
    }

    fn active(&self) -> usize {
        let active = |node: &Option<Program>| node.as_ref().is_some_and(|node| node.role() == "active");
        self.nodes.iter().position(active).expect("one is")
    }

    fn ip(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("ip");
        command.args(arguments).stdout(Stdio::piped());
        let child = self.topology.client.spawn_command(command).expect("iproute2 is installed");
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    fn default_routes(&self) -> Vec<String> {
        self.ip(&["-6", "route", "show", "default"]).lines().map(str::to_owned).collect()
    }

    fn changes(&self) -> Vec<String> {
        self.changes.lock().unwrap().clone()
    }

    /// The address that the host has made itself in the inside network.
    fn own_address(&self) -> Ipv6Addr {
        wait_until("the host makes itself an address", || {
            let shown = self.ip(&["-6", "-oneline", "address", "show", "dev", HOST, "scope", "global", "dynamic"]);
            let found = shown.split_whitespace().skip_while(|word| *word != "inet6").nth(1);
            let address = found.and_then(|text| text.split('/').next()).and_then(|text| text.parse().ok());
            address.ok_or_else(|| format!("{shown:?}, routes {:?}", self.default_routes()))
        })
    }

    /// Waits until a datagram from the host comes back from the server, by way of the default router.
    fn wait_for_answer(&self, host: Ipv6Addr) {
        let server = SocketAddr::new(SERVER[1], PORT);
        let serving = self.topology.server.run(|| UdpSocket::bind(server).unwrap()).unwrap();
        let asking = self.topology.client.run(|| UdpSocket::bind((host, 0)).unwrap()).unwrap();
        for socket in [&serving, &asking] {
            socket.set_read_timeout(Some(PATIENCE / 300)).unwrap();
        }
        wait_for("the host reaches the server", || {
            let mut buffer = [0; 16];
            let _ = asking.send_to(b"question", server);
            let Ok((length, from)) = serving.recv_from(&mut buffer) else { return false };
            let _ = serving.send_to(&buffer[..length], from);
            asking.recv_from(&mut buffer).is_ok_and(|(_, from)| from == server)
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
    }
}

/// Has the host of the calling thread's namespace configure itself for IPv6.
fn make_automatic() {
    let mut netlink = Netlink::open().unwrap();
    netlink.delete_route(Prefix::DEFAULT_V6, INSIDE[1]).unwrap();
    netlink.delete_address(HOST, Prefix::new(CLIENT[1], PREFIX_BITS[1])).unwrap();
    let set = |name: &str, value: &str| sysctl::write(&format!("net/ipv6/conf/{HOST}/{name}"), value).unwrap();
    for (name, value) in [
        ("forwarding", "0"),
        ("accept_ra", "1"),
        ("autoconf", "1"),
        ("accept_ra_defrtr", "1"),
        ("accept_ra_pinfo", "1"),
        ("router_solicitations", "3"),
    ] {
        set(name, value);
    }
    // Up anew, it solicits routers.
    set("disable_ipv6", "1");
    set("disable_ipv6", "0");
}

/// Collects the route events of the host's kernel.
fn watch_routes(topology: &Topology) -> (Child, Arc<Mutex<Vec<String>>>) {
    let mut command = Command::new("ip");
    command.args(["-6", "monitor", "route"]).stdout(Stdio::piped());
    die_with_parent(&mut command);
    let mut monitor = topology.client.spawn_command(command).expect("iproute2 is installed");
    let (lines, changes) = (BufReader::new(monitor.stdout.take().unwrap()), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&changes);
    thread::spawn(move || {
        let about_default = lines.lines().map_while(Result::ok).filter(|line| line.contains("default"));
        about_default.for_each(|line| kept.lock().unwrap().push(line));
    });
    (monitor, changes)
}

#[test]
fn a_host_that_configures_itself_keeps_its_default_router_through_failovers() {
    let Some(mut world) = World::start(SECTION) else { return };
    let host = world.own_address();
    assert_eq!(host.segments()[..4], [0xfd00, 1, 0, 0], "in the network that is advertised");
    let routes = world.default_routes();
    assert!(
        matches!(&routes[..], [route] if route.contains(&format!("via {ROUTER}")) && route.contains("pref high")),
        "{routes:?}"
    );
    world.wait_for_answer(host);
    assert_eq!(
        world
            .topology
            .client
            .run(|| fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{HOST}/mtu")))
            .unwrap()
            .unwrap()
            .trim(),
        "1400"
    );
    let before = world.changes();
    for _ in 0..FAILOVERS {
        let active = world.active();
        world.nodes[active].take().expect("it runs").kill();
        world.wait_for_answer(host);
        world.start_node(active, SECTION);
        world.wait_for_roles();
    }
    // A hand-over in good order is none of the host's business, either.
    let active = world.active();
    world.nodes[active].take().expect("it runs").terminate();
    world.wait_for_answer(host);
    assert_eq!(world.changes(), before, "the default route is never touched");
    // The last node that could be a router goes.
    let last = world.active();
    world.nodes[last].take().expect("it runs").terminate();
    wait_for("the host learns that its router is none any more", || world.default_routes().is_empty());
}

#[test]
fn a_router_that_a_reload_ends_is_withdrawn_and_comes_back_with_the_section() {
    let Some(world) = World::start(SECTION) else { return };
    let _ = world.own_address();
    wait_for("the host has a default router", || world.default_routes().len() == 1);
    for (section, routes) in [("", 0), (SECTION, 1)] {
        for (id, name) in ["a", "b"].into_iter().enumerate() {
            crate::common::program::write_configuration(&world.folder, name, &configuration(id, section));
            world.nodes[id].as_ref().expect("it runs").order("reload");
        }
        wait_for("the host follows", || world.default_routes().len() == routes);
    }
}

#[test]
fn a_host_uses_the_network_that_a_reload_adds_and_no_more_the_one_that_it_removes() {
    let Some(world) = World::start(SECTION) else { return };
    let former = world.own_address();
    for (id, name) in ["a", "b"].into_iter().enumerate() {
        let text = configuration(id, SECTION).replace(&format!("\"{}/", INSIDE[1]), "\"fd00:9::1/");
        crate::common::program::write_configuration(&world.folder, name, &text);
        world.nodes[id].as_ref().expect("it runs").order("reload");
    }
    let addresses = || world.ip(&["-6", "-oneline", "address", "show", "dev", HOST, "scope", "global", "dynamic"]);
    wait_until("the host has an address in the new network, and the former one is deprecated", || {
        let shown = addresses();
        let is_new = |line: &&str| line.contains("fd00:9:") && !line.contains("deprecated");
        let is_former = |line: &&str| line.contains(&former.to_string()) && line.contains("deprecated");
        let is_so = shown.lines().any(|line| is_new(&line)) && shown.lines().any(|line| is_former(&line));
        if is_so { Ok(()) } else { Err(shown) }
    });
    assert_eq!(world.default_routes().len(), 1, "the router is the same");
}
