//! The quick starts as they are written: the gateway's is executed, and the files of both are checked.
//!
//! A fenced block of the document has its kind behind its language:
//!
//! | info string | the test |
//! |---|---|
//! | `toml left:/etc/…`, `right:`, `both:` | writes the file on that machine |
//! | `sh test left`, `right`, `both`, `standby` | runs the commands there, which must succeed |
//! | `sh test both until=TEXT` | repeats them until they print the text |
//! | `sh background both` | starts the gateway |
//! | `sh traffic` | opens a TCP connection through the gateway, which lasts |
//! | `sh kill active` | kills the active node with SIGKILL, sends on the connection, and starts the node again |
//!
//! Other blocks are left out: what builds, installs, and needs systemd or several real machines.

mod common;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;

use common::forwarded::exchange;
use common::program::{Folder, PATIENCE, Program, wait_until};
use lab::testbed::topology::{INTERFACES, SERVER, Topology};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};

const GATEWAY: &str = include_str!("../../../docs/quick-start-gateway.md");
const SYNC: &str = include_str!("../../../docs/quick-start-sync.md");
const PROGRAM: &str = env!("CARGO_BIN_EXE_mainstay");
/// The names that the documents give a node's interfaces, in the order of [`INTERFACES`].
const DOCUMENTED_INTERFACES: [&str; 3] = ["eth0", "eth1", "eth2"];
/// The two machines.
const MACHINES: [&str; 2] = ["left", "right"];
/// The router outside, which the documents route to, and the length of its network's prefix.
const OUTSIDE_ROUTER: ([u8; 4], u8) = ([198, 51, 100, 254], 24);
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
    /// In place of `/etc/mainstay` and `/run/mainstay`.
    folder: Folder,
    gateway: Option<Program>,
}

impl<'a> Machine<'a> {
    fn new(namespace: &'a Namespace) -> Self {
        Self { namespace, folder: Folder::new("quick-start"), gateway: None }
    }

    /// Text of the document with this machine's paths and interfaces.
    fn localised(&self, text: &str) -> String {
        let folder = self.folder.to_string_lossy();
        let socket = format!("{folder}/mainstay.sock");
        let mut text = text.replace("/run/mainstay/control.sock", &socket).replace("/etc/mainstay", &folder);
        for command in ["mainstay status", "mainstay flows"] {
            text = text.replace(command, &format!("{command} --socket {socket}"));
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

    /// Starts the gateway, as the unit and the document do.
    fn start(&mut self) {
        let mut gateway = Program::start_as_configured(self.namespace, &self.folder, "mainstay", &[PROGRAM, "gateway"]);
        gateway.wait_for_answer();
        self.gateway = Some(gateway);
    }

    /// The node's role, while it runs.
    fn role(&self) -> Option<String> {
        self.gateway.as_ref().map(Program::role)
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

/// A server outside that sends back what it is sent, and the router that the documents name.
fn serve_outside(topology: &Topology) {
    let address = SocketAddr::new(SERVER[0], SERVER_PORT);
    let listener = topology.server.run(|| {
        let mut netlink = Netlink::open().expect("netlink");
        netlink
            .add_address("bridge", Prefix::new(OUTSIDE_ROUTER.0.into(), OUTSIDE_ROUTER.1))
            .expect("the address is free");
        TcpListener::bind(address).expect("the port is free")
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
fn connect(topology: &Topology) -> TcpStream {
    let address = SocketAddr::new(SERVER[0], SERVER_PORT);
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
    serve_outside(&topology);
    for node in &topology.nodes {
        // Machines have a loopback interface, where the metrics are served.
        node.run(|| Netlink::open().expect("netlink").set_up("lo", true).expect("up")).expect("the namespace is there");
    }
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
                // The document copies the key by scp, which keeps its mode as this does.
                let key = machines.each_ref().map(|machine| machine.folder.join("cluster.key"));
                if key[0].exists() && !key[1].exists() {
                    fs::copy(&key[0], &key[1]).expect("a temporary file");
                }
            }
            "background" => {
                for machine in block.choose(&mut machines) {
                    let configuration = machine.folder.join("mainstay.toml");
                    let command = format!("mainstay gateway --config {}\n", configuration.display());
                    assert_eq!(machine.localised(block.text), command);
                    machine.start();
                }
            }
            "traffic" => {
                let mut stream = connect(&topology);
                exchange(&mut stream, b"before the failover");
                connection = Some(stream);
            }
            "kill" => {
                let mut active = block.choose(&mut machines);
                assert_eq!(active.len(), 1, "one node is active");
                active[0].gateway.take().expect("it runs").kill();
                exchange(connection.as_mut().expect("the document opens one"), b"after the failover");
                // systemd would do it after two seconds.
                active[0].start();
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
fn the_files_of_the_sync_quick_start_are_accepted() {
    if packet_io::namespace::for_tests().is_none() || !are_installed(&["nft"]) {
        return;
    }
    let namespaces = MACHINES.map(|_| Namespace::new().expect("they can be made"));
    let mut machines = namespaces.each_ref().map(Machine::new);
    for block in blocks(SYNC) {
        if let Some(path) = block.file() {
            write_file(&block, path, &mut machines);
        }
    }
    for machine in machines {
        let folder = machine.folder.display();
        machine.run_until(&format!("nft -c -f {folder}/nftables.conf"), None);
        machine.run_until(&format!("mainstay sync --config {folder}/sync.toml --check --config-only"), None);
        for file in ["keepalived.conf", "90-router.conf"] {
            assert!(fs::exists(machine.folder.join(file)).unwrap_or(false), "{file} is in the document");
        }
    }
}
