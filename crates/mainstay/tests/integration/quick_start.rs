//! The quick starts as they are written: both are executed, with two namespaces as the machines.
//!
//! A fenced block of the document has its kind behind its language:
//!
//! | info string | the test |
//! |---|---|
//! | `toml left:/etc/…`, `right:`, `both:` | writes the file on that machine |
//! | `sh test left`, `right`, `both`, `standby` | runs the commands there, which must succeed |
//! | `sh test both until=TEXT` | repeats them until they print the text |
//! | `sh background both` | starts the gateway |
//! | `sh services both` | runs the commands, and in place of `systemctl enable --now` what the units run |
//! | `sh traffic` | opens a TCP connection through the gateway, which lasts |
//! | `sh kill active`, `primary` | kills that node: the gateway by SIGKILL, a router by a power cut; sends on the connection, and starts the node again |
//!
//! Other blocks are left out: what builds, installs, and needs systemd or several real machines.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use crate::common::forwarded::exchange;
use crate::common::program::{Folder, PATIENCE, Program, wait_until};
use lab::testbed::topology::{INTERFACES, PREFIX_BITS, SERVER, Topology};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::signal::{self, Signal, die_with_parent};

const GATEWAY: &str = include_str!("../../../../docs/quick-start-gateway.md");
const SYNC: &str = include_str!("../../../../docs/quick-start-sync.md");
const PROGRAM: &str = env!("CARGO_BIN_EXE_mainstay");
/// The names that the documents give a node's interfaces, in the order of [`INTERFACES`].
const DOCUMENTED_INTERFACES: [&str; 3] = ["eth0", "eth1", "eth2"];
/// The two machines.
const MACHINES: [&str; 2] = ["left", "right"];
/// The routers outside that the documents name.
const GATEWAY_ROUTER: [u8; 4] = [198, 51, 100, 254];
const SYNC_ROUTER: [u8; 4] = [192, 0, 2, 254];
/// The host inside of the document of `sync`, and its default router.
const SYNC_CLIENT: [[u8; 4]; 2] = [[10, 0, 0, 50], [10, 0, 0, 1]];
/// The addresses of the routers' interfaces in that document, inside and outside.
const SYNC_ROUTERS: [[[u8; 4]; 2]; 2] = [[[10, 0, 0, 2], [192, 0, 2, 11]], [[10, 0, 0, 3], [192, 0, 2, 12]]];
/// Where the server listens.
const SERVER_PORT: u16 = 7000;

/// A fenced block of a document.
struct Block<'a> {
    /// What stands behind the language.
    info: &'a str,
    text: &'a str,
}

impl Block<'_> {
    /// The machines that it is for: by name, or by their present role.
    fn choose<'m, 'n>(&self, machines: &'m mut [Machine<'n>; 2]) -> Vec<&'m mut Machine<'n>> {
        let (words, _) = self.info.split_once("until=").unwrap_or((self.info, ""));
        let is_for = |word: &str| words.split([' ', ':']).filter(|other| !other.is_empty()).any(|other| other == word);
        let chosen = |(name, machine): &(&str, &mut Machine<'_>)| {
            is_for(name) || is_for("both") || machine.role().is_some_and(|role| is_for(&role))
        };
        MACHINES.into_iter().zip(machines).filter(chosen).map(|(_, machine)| machine).collect()
    }

    /// The path of the file that it is.
    fn file(&self) -> Option<&str> {
        let (machine, path) = self.info.split_once(':')?;
        (MACHINES.contains(&machine) || machine == "both").then_some(path)
    }

    /// Its first word: what is to be done with it.
    fn action(&self) -> &str {
        self.info.split(' ').next().unwrap_or_default()
    }

    /// The text that its commands are to print.
    fn expected(&self) -> Option<&str> {
        self.info.split_once("until=").map(|(_, text)| text)
    }
}

/// The fenced blocks of a document, in its order.
fn blocks(document: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut rest = document;
    while let Some((_, from)) = rest.split_once("\n```") {
        let (head, body) = from.split_once('\n').expect("a fence ends its line");
        // A block may be empty: its end then follows the head at once.
        let end = if body.starts_with("```") { 0 } else { body.find("\n```").expect("every fence is closed") + 1 };
        let info = head.split_once(' ').map_or("", |(_, info)| info.trim());
        blocks.push(Block { info, text: &body[..end] });
        rest = &body[end + 3..];
    }
    blocks
}

/// One of the two machines.
struct Machine<'a> {
    namespace: &'a Namespace,
    /// In place of the folders in `/etc` and of `/run/mainstay`.
    folder: Folder,
    /// The gateway, or `mainstay sync`.
    program: Option<Program>,
    keepalived: Option<Keepalived>,
}

/// A keepalived, which ends with the value.
struct Keepalived(Child);

impl Drop for Keepalived {
    fn drop(&mut self) {
        // Killed, it would leave the process that sends its advertisements.
        let _ = signal::send(self.0.id(), Signal::Terminate);
        let _ = self.0.wait();
    }
}

impl<'a> Machine<'a> {
    fn new(namespace: &'a Namespace) -> Self {
        Self { namespace, folder: Folder::new("quick-start"), program: None, keepalived: None }
    }

    /// Text of the document with this machine's paths and interfaces.
    fn localised(&self, text: &str) -> String {
        let folder = self.folder.to_string_lossy();
        let socket = format!("{folder}/mainstay.sock");
        let mut text = text.to_owned();
        for (documented, here) in [
            ("/run/mainstay/control.sock", socket.as_str()),
            ("/run/mainstay/sync.sock", &format!("{folder}/sync.sock")),
            ("/etc/mainstay", &folder),
            ("/usr/bin/mainstay", PROGRAM),
            // The user of the packages may be missing here.
            ("--user mainstay", "--user root"),
            ("keepalived --config-test", &format!("keepalived --config-test --use-file {folder}/keepalived.conf")),
        ] {
            text = text.replace(documented, here);
        }
        for command in ["mainstay status", "mainstay flows"] {
            if !text.contains("--socket") {
                text = text.replace(command, &format!("{command} --socket {socket}"));
            }
        }
        for (documented, interface) in DOCUMENTED_INTERFACES.into_iter().zip(INTERFACES) {
            text = text.replace(documented, interface);
        }
        text
    }

    /// Runs commands of the document as root on this machine.
    fn run(&self, commands: &str) -> Output {
        let (programs, _) = PROGRAM.rsplit_once('/').expect("the program's path is absolute");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-e", "-c", &self.localised(commands)]).env("PATH", format!("{programs}:{path}:/usr/sbin:/sbin"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.namespace.spawn_command(command).expect("there is a shell");
        child.wait_with_output().expect("it is a child")
    }

    /// Runs commands until they print `expected`, or once if nothing is expected of their output.
    fn run_until(&self, commands: &str, expected: Option<&str>) {
        let Some(expected) = expected else {
            let output = self.run(commands);
            assert!(output.status.success(), "{commands}{}", said(&output));
            return;
        };
        wait_until(expected, || {
            let output = self.run(commands);
            if said(&output).contains(expected) { Ok(()) } else { Err(said(&output)) }
        });
    }

    /// Starts the gateway or `mainstay sync`, as the unit and the document do. `name` is that of its files.
    fn start(&mut self, name: &str, command: &str) {
        let mut program = Program::start_as_configured(self.namespace, &self.folder, name, &[PROGRAM, command]);
        program.wait_for_answer();
        self.program = Some(program);
    }

    fn start_gateway(&mut self) {
        self.start("mainstay", "gateway");
    }

    /// Runs commands of the document, and starts the services that they enable.
    fn start_services(&mut self, commands: &str) {
        for line in commands.lines() {
            match line {
                "systemctl daemon-reload" => {}
                "systemctl enable --now nftables" => self.run_until("nft -f /etc/mainstay/nftables.conf", None),
                "sysctl --system" => self.run_until("sysctl -p /etc/mainstay/90-router.conf", None),
                "systemctl enable --now mainstay-sync" => self.start("sync", "sync"),
                "systemctl enable --now keepalived" => self.start_keepalived(),
                line => self.run_until(line, None),
            }
        }
    }

    fn start_keepalived(&mut self) {
        let mut command = Command::new("keepalived");
        command.args(["--dont-fork", "--log-console", "--vrrp", "--use-file"]).arg(self.folder.join("keepalived.conf"));
        for (option, name) in [("--pid", "keepalived.pid"), ("--vrrp_pid", "vrrp.pid")] {
            command.arg(option).arg(self.folder.join(name));
        }
        let log = || fs::File::options().create(true).append(true).open(self.folder.join("keepalived.log"));
        command.stdin(Stdio::null()).stdout(log().expect("a log file")).stderr(log().expect("a log file"));
        die_with_parent(&mut command);
        let child = self.namespace.spawn_command(command).expect("the program can be started");
        self.keepalived = Some(Keepalived(child));
    }

    /// Its interfaces work, or do not.
    fn set_interfaces(&self, are_up: bool) {
        let set = || {
            let mut netlink = Netlink::open().expect("netlink");
            INTERFACES.iter().for_each(|interface| netlink.set_up(interface, are_up).expect("it is there"));
        };
        self.namespace.run(set).expect("the namespace is there");
    }

    /// The node's role, while it runs.
    fn role(&self) -> Option<String> {
        self.program.as_ref().map(Program::role)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Whether the programs that the documents use are installed; prints a message if not.
fn are_installed(programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| {
        let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
            .iter()
            .any(|folder| fs::exists(format!("{folder}/{program}")).unwrap_or(false));
        !found
    };
    let missing = programs.iter().find(is_missing);
    if let Some(program) = missing {
        packet_io::namespace::skip(format_args!("{program} is not installed"));
    }
    missing.is_none()
}

/// A server outside, at `address`, that sends back what it is sent, and the router that the document names.
fn serve_outside(topology: &Topology, address: IpAddr, router: [u8; 4]) {
    let listener = topology.server.run(|| {
        let mut netlink = Netlink::open().expect("netlink");
        netlink.add_address("bridge", Prefix::new(router.into(), PREFIX_BITS[0])).expect("the address is free");
        TcpListener::bind((address, SERVER_PORT)).expect("the port is free")
    });
    let listener = listener.expect("the namespace is there");
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

/// A connection from inside to that server.
fn connect(topology: &Topology, address: IpAddr) -> TcpStream {
    let address = SocketAddr::new(address, SERVER_PORT);
    let stream =
        topology.client.run(|| TcpStream::connect_timeout(&address, PATIENCE)).expect("the namespace is there");
    let stream = stream.expect("the gateway lets hosts inside connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    stream.set_nodelay(true).expect("it can be set");
    stream
}

/// Writes a file of the document on the machines that it is for.
fn write_file(block: &Block<'_>, path: &str, machines: &mut [Machine<'_>; 2]) {
    for machine in block.choose(machines) {
        let (_, name) = path.rsplit_once('/').expect("an absolute path");
        fs::write(machine.folder.join(name), machine.localised(block.text)).expect("a temporary file");
    }
}

#[test]
fn a_connection_survives_the_failover_of_the_gateway_quick_start() {
    if packet_io::namespace::for_tests().is_none() || !are_installed(&["ip", "sysctl"]) {
        return;
    }
    let topology = Topology::build().expect("namespaces can be made");
    serve_outside(&topology, SERVER[0], GATEWAY_ROUTER);
    topology.nodes.iter().for_each(set_loopback_up);
    let mut machines = [Machine::new(&topology.nodes[0]), Machine::new(&topology.nodes[1])];
    let mut connection = None;
    let mut kills = 0;
    for block in blocks(GATEWAY) {
        if let Some(path) = block.file() {
            write_file(&block, path, &mut machines);
            continue;
        }
        match block.action() {
            "test" => {
                for machine in block.choose(&mut machines) {
                    machine.run_until(block.text, block.expected());
                }
                copy_key(&machines);
            }
            "background" => {
                for machine in block.choose(&mut machines) {
                    let configuration = machine.folder.join("mainstay.toml");
                    let command = format!("mainstay gateway --config {}\n", configuration.display());
                    assert_eq!(machine.localised(block.text), command);
                    machine.start_gateway();
                }
            }
            "traffic" => {
                let mut stream = connect(&topology, SERVER[0]);
                exchange(&mut stream, b"before the failover");
                connection = Some(stream);
            }
            "kill" => {
                let mut active = block.choose(&mut machines);
                assert_eq!(active.len(), 1, "one node is active");
                active[0].program.take().expect("it runs").kill();
                exchange(connection.as_mut().expect("the document opens one"), b"after the failover");
                // systemd would do it after two seconds.
                active[0].start_gateway();
                kills += 1;
            }
            _ => {}
        }
    }
    assert_eq!(kills, 1, "the document kills a node");
    let roles = machines.each_ref().map(|machine| machine.role().expect("it runs"));
    assert!(roles.iter().any(|role| role == "active") && roles.iter().any(|role| role == "standby"), "{roles:?}");
    exchange(&mut connection.expect("the document opens one"), b"after the node is back");
}

#[test]
fn a_connection_survives_the_power_failure_of_the_sync_quick_start() {
    let programs = ["ip", "sysctl", "nft", "conntrack", "keepalived"];
    if packet_io::namespace::for_tests().is_none() || !are_installed(&programs) {
        return;
    }
    let topology = Topology::build().expect("namespaces can be made");
    configure_network(&topology);
    let server = IpAddr::from(SYNC_ROUTER);
    let mut machines = [Machine::new(&topology.nodes[0]), Machine::new(&topology.nodes[1])];
    let mut connection = None;
    let mut services = Vec::new();
    let mut kills = 0;
    for block in blocks(SYNC) {
        if let Some(path) = block.file() {
            write_file(&block, path, &mut machines);
            continue;
        }
        match block.action() {
            "test" => {
                let chosen = block.choose(&mut machines);
                assert!(!chosen.is_empty(), "no machine is meant: {}", block.info);
                chosen.iter().for_each(|machine| machine.run_until(block.text, block.expected()));
                copy_key(&machines);
            }
            "services" => {
                block.choose(&mut machines).into_iter().for_each(|machine| machine.start_services(block.text));
                services.push(block.text);
            }
            "traffic" => {
                let mut stream = connect(&topology, server);
                exchange(&mut stream, b"before the power cut");
                connection = Some(stream);
            }
            "kill" => {
                let mut primary = block.choose(&mut machines);
                assert_eq!(primary.len(), 1, "one node is primary");
                let primary = &mut *primary[0];
                primary.set_interfaces(false);
                (primary.program, primary.keepalived) = (None, None);
                exchange(connection.as_mut().expect("the document opens one"), b"after the power cut");
                // The machine is back: its kernel knows nothing, and its services start.
                primary.run_until("conntrack -F", None);
                primary.set_interfaces(true);
                services.iter().for_each(|commands| primary.start_services(commands));
                primary.run_until(
                    "mainstay sync ready --socket /run/mainstay/sync.sock && echo is ready",
                    Some("is ready"),
                );
                kills += 1;
            }
            _ => {}
        }
    }
    assert_eq!(kills, 1, "the document kills a node");
    // keepalived finds a fault for as long as the kernel has not reported that the interfaces are running.
    wait_until("a primary and a backup", || {
        let mut roles = machines.each_ref().map(|machine| machine.role().expect("it runs"));
        roles.sort();
        if roles == ["backup", "primary"] { Ok(()) } else { Err(format!("{roles:?}")) }
    });
    exchange(&mut connection.expect("the document opens one"), b"after the node is back");
}

/// The addresses of the document's drawing.
fn configure_network(topology: &Topology) {
    serve_outside(topology, IpAddr::from(SYNC_ROUTER), SYNC_ROUTER);
    let add = |interface: &str, address: [u8; 4]| {
        let prefix = Prefix::new(address.into(), PREFIX_BITS[0]);
        Netlink::open().expect("netlink").add_address(interface, prefix).expect("the address is free");
    };
    for (node, addresses) in topology.nodes.iter().zip(SYNC_ROUTERS) {
        set_loopback_up(node);
        for (interface, address) in INTERFACES.iter().zip(addresses) {
            node.run(|| add(interface, address)).expect("the namespace is there");
        }
    }
    let [client, router] = SYNC_CLIENT;
    let set_client = || {
        add("bridge", client);
        // Preferred to the route that the network was built with.
        for half in ["0.0.0.0", "128.0.0.0"] {
            let half = Prefix::new(half.parse().expect("an address"), 1);
            Netlink::open().expect("netlink").add_route(half, router.into()).expect("the router is on the link");
        }
    };
    topology.client.run(set_client).expect("the namespace is there");
}

/// Machines have a loopback interface, where the metrics are served.
fn set_loopback_up(node: &Namespace) {
    node.run(|| Netlink::open().expect("netlink").set_up("lo", true).expect("up")).expect("the namespace is there");
}

/// The documents copy the key by scp, which keeps its mode as this does.
fn copy_key(machines: &[Machine<'_>; 2]) {
    let [left, right] = machines.each_ref().map(|machine| machine.folder.join("cluster.key"));
    if left.exists() && !right.exists() {
        fs::copy(&left, &right).expect("a temporary file");
    }
}
