//! Two machines with `mainstay sync` on each: namespaces with a link between them, and the daemons in them.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::fs;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::process::Command;

use api::{SyncOrder, SyncReadiness};
use flow::netfilter::{
    Discriminator, Entry, Expectation, ProtocolInfo, Status, TcpFlags, TcpInfo, TcpSide, TcpState, Tuple,
};
use packet_io::ctnetlink::{Dump, DumpProgress, Request, RequestError, TableSocket};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::sysctl;

pub(crate) use super::program::wait_until;
use super::program::{Folder, Program, mainstay};

/// A running `mainstay sync`. It is killed when this is dropped.
pub(crate) struct SyncDaemon(Program);

impl Deref for SyncDaemon {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

impl SyncDaemon {
    /// Orders something, and returns how ready it is then.
    pub(crate) fn order(&self, order: SyncOrder) -> SyncReadiness {
        self.client().sync(order).unwrap_or_else(|error| panic!("{error}: {}", self.log()))
    }

    /// Runs `mainstay sync ORDER` as keepalived does; what it printed on standard error, and whether it succeeded.
    pub(crate) fn hook(&self, order: &str, timeout: &str) -> (bool, String) {
        let mut command = mainstay(&["sync", order, "--socket"]);
        command.arg(self.socket());
        if order != "ready" {
            command.args(["--timeout", timeout]);
        }
        let output = command.output().expect("the program can be started");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Waits until both nodes are synchronised and nothing is wrong.
    pub(crate) fn wait_until_safe(&self) {
        wait_until("a failover would be safe", || {
            let readiness = self.order(SyncOrder::Nothing);
            readiness.failover_safe.then_some(()).ok_or_else(|| format!("{:?}\n{}", readiness, self.log()))
        });
    }

    /// Ends it by SIGTERM; what it has logged.
    pub(crate) fn terminate(self) -> String {
        self.0.terminate()
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(self) {
        self.0.kill();
    }
}

/// Packets of the link between the machines belong to no connection.
const UNTRACKED_LINK: &str = "
table inet link {
    chain incoming { type filter hook prerouting priority raw; iifname sync notrack; }
    chain outgoing { type filter hook output priority raw; oifname sync notrack; }
}
";

/// Two machines with a link between them (`sync`, 10.99.0.1 and 10.99.0.2), and a folder for their files.
pub(crate) struct SyncPair {
    /// The machines, left and right.
    pub(crate) machines: [Namespace; 2],
    /// Where the files are.
    pub(crate) folder: Folder,
}

impl SyncPair {
    /// `None`, and said, where the machine forbids namespaces.
    pub(crate) fn new(name: &str) -> Option<Self> {
        packet_io::namespace::for_tests()?;
        let machines = [(); 2].map(|()| Namespace::new().expect("they can be made"));
        for machine in &machines {
            inside(machine, || sysctl::quieten_ipv6().expect("it can be set"));
        }
        inside(&machines[0], || {
            Netlink::open().expect("netlink").create_veth("sync", "sync", &machines[1]).expect("veth");
        });
        for (machine, last) in machines.iter().zip([1, 2]) {
            inside(machine, || {
                let mut netlink = Netlink::open().expect("netlink");
                netlink.set_up("sync", true).expect("up");
                netlink.add_address("sync", Prefix::new([10, 99, 0, last].into(), 30)).expect("an address");
            });
        }
        let pair = Self { machines, folder: Folder::new(&format!("sync-{name}")) };
        // Where nothing else has the machines track connections, the link would not be tracked without these, either.
        for machine in 0..2 {
            let _ = pair.load_rules(machine, UNTRACKED_LINK);
        }
        Some(pair)
    }

    /// Loads rules of nftables on a machine; false, and said, where nft is not installed.
    pub(crate) fn load_rules(&self, machine: usize, rules: &str) -> bool {
        let path = self.folder.join(format!("rules-{machine}.nft"));
        fs::write(&path, rules).expect("it is ours");
        let mut nft = Command::new("nft");
        nft.arg("-f").arg(&path);
        let Ok(mut child) = self.machines[machine].spawn_command(nft) else {
            println!("nft is not installed");
            return false;
        };
        assert!(child.wait().expect("it is a child").success(), "the kernel takes the rules");
        true
    }

    /// A configuration for the left (0) or the right machine (1), to which more can be added.
    pub(crate) fn configuration(side: usize, more: &str) -> String {
        let [own, other] = [side + 1, 2 - side];
        let id = 1 - side;
        format!(
            "{more}\n[node]\nid = {side}\nname = \"{}\"\ncontrol_socket = \"CONTROL\"\n\
             [replication]\nlocal = \"10.99.0.{own}:3781\"\n[[replication.peer]]\nid = {id}\n\
             address = \"10.99.0.{other}:3781\"\n[replication.security]\nmode = \"plain\"\n",
            ["left", "right"][side]
        )
    }

    /// Starts `mainstay sync` on a machine, and waits until it answers.
    pub(crate) fn start(&self, side: usize, configuration: &str) -> SyncDaemon {
        let name = ["left", "right"][side];
        let mut program = Program::start(&self.machines[side], &self.folder, name, "sync", configuration);
        program.wait_for_answer();
        SyncDaemon(program)
    }

    /// Starts it on both, with the same additions to their configurations.
    pub(crate) fn start_both(&self, more: &str) -> [SyncDaemon; 2] {
        [0, 1].map(|side| self.start(side, &Self::configuration(side, more)))
    }

    /// The connections of a machine's kernel.
    pub(crate) fn table(&self, side: usize) -> KernelTable<'_> {
        KernelTable { machine: &self.machines[side] }
    }
}

/// Runs `work` in a namespace.
pub(crate) fn inside<T: Send>(machine: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    machine.run(work).expect("the namespace is there")
}

/// The connections of a machine's kernel.
pub(crate) struct KernelTable<'a> {
    machine: &'a Namespace,
}

impl KernelTable<'_> {
    fn execute(&self, requests: &[Request<'_>]) {
        inside(self.machine, || {
            let refuse = &mut |place, error: RequestError| panic!("request {place} is refused: {error}");
            TableSocket::open().expect("netlink").execute(requests.iter().copied(), refuse).expect("netlink");
        });
    }

    /// Puts connections into it, as conntrack -I does.
    pub(crate) fn create(&self, entries: &[Entry]) {
        self.execute(&entries.iter().map(Request::Create).collect::<Vec<_>>());
    }

    /// Changes connections.
    pub(crate) fn update(&self, entries: &[Entry]) {
        self.execute(&entries.iter().map(Request::Update).collect::<Vec<_>>());
    }

    /// Deletes connections.
    pub(crate) fn delete(&self, entries: &[Entry]) {
        let named: Vec<Entry> = entries
            .iter()
            .map(|entry| Entry { zone: entry.zone_of_original(), ..Entry::new(entry.original, entry.reply) })
            .collect();
        self.execute(&named.iter().map(Request::Delete).collect::<Vec<_>>());
    }

    /// Its entry of a connection.
    pub(crate) fn find(&self, entry: &Entry) -> Option<Entry> {
        inside(self.machine, || {
            TableSocket::open().expect("netlink").get(&entry.original, entry.zone_of_original()).expect("netlink")
        })
    }

    /// How many it has.
    pub(crate) fn count(&self) -> usize {
        let count = inside(self.machine, || sysctl::read("net/netfilter/nf_conntrack_count"));
        count.expect("connections are tracked").parse().expect("a number")
    }

    /// Announces a connection, as a helper does.
    pub(crate) fn announce(&self, expectation: &Expectation) {
        self.execute(&[Request::CreateExpectation(expectation)]);
    }

    /// The connections that are announced.
    pub(crate) fn announced(&self) -> Vec<Expectation> {
        inside(self.machine, || {
            let mut dump = Dump::expectations().expect("netlink");
            let mut found = Vec::new();
            while dump.receive(&mut |one| found.push(one)).expect("netlink") == DumpProgress::More {}
            found
        })
    }

    /// Waits until its entry of a connection is as wanted.
    pub(crate) fn wait_for(&self, entry: &Entry, is_as_wanted: impl Fn(&Entry) -> bool) -> Entry {
        wait_until("the connection is in the kernel", || match self.find(entry) {
            Some(found) if is_as_wanted(&found) => Ok(found),
            other => Err(format!("{other:?}")),
        })
    }

    /// Waits until a connection is gone.
    pub(crate) fn wait_until_gone(&self, entry: &Entry) {
        wait_until("the connection is gone from the kernel", || {
            self.find(entry).map_or(Ok(()), |found| Err(format!("{found:?}")))
        });
    }

    /// Waits until it has so many.
    pub(crate) fn wait_for_count(&self, wanted: usize) {
        wait_until("the kernel has all connections", || {
            let count = self.count();
            if count == wanted { Ok(()) } else { Err(format!("{count} of {wanted}")) }
        });
    }
}

/// The tuple of packets from 10.1.x.x to 198.51.100.80; each number has another one.
pub(crate) fn tuple(protocol: u8, number: u32) -> Tuple {
    let [_, _, high, low] = (number / 50_000).to_be_bytes();
    Tuple {
        source: Ipv4Addr::new(10, 1, high, low + 1).into(),
        destination: Ipv4Addr::new(198, 51, 100, 80).into(),
        protocol,
        discriminator: Discriminator::Ports { source: 1024 + (number % 50_000) as u16, destination: 443 },
    }
}

/// An established TCP connection.
pub(crate) fn established(number: u32) -> Entry {
    let original = tuple(6, number);
    let side = TcpSide { window_scale: 7, flags: TcpFlags::WINDOW_SCALE.union(TcpFlags::BE_LIBERAL) };
    Entry {
        status: Some(Status::SEEN_REPLY.union(Status::ASSURED).union(Status::CONFIRMED)),
        timeout_s: Some(3600),
        protocol_info: Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::Established, sides: Some([side; 2]) })),
        ..Entry::new(original, original.inverse())
    }
}
