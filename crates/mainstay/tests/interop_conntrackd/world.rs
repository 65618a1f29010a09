//! A conntrackd on a kernel of its own, a cable, and a small peer at its other end: a socket, a session, a table in memory.

use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flow::NodeId;
use flow::netfilter::{Entry, Tuple};
use packet_io::ctnetlink::{Request, TableSocket};
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::poller::{Poller, Token};
use packet_io::udp::{UdpOptions, UdpSocket};
use packet_io::{clock, sysctl};
use replication::conntrackd::testing::MemoryTable;
use replication::conntrackd::{FtfwConfig, FtfwEvent, FtfwSession};

use super::daemon::{Cache, Conntrackd, GROUP_V4, GROUP_V6, LINK, PORT, Transport, V4, V6};

/// The longest that anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What the peer loses on purpose.
#[derive(Default)]
pub(crate) struct Losses {
    /// Share of the datagrams each way, in percent.
    pub(crate) percent: u64,
    /// So many of the next ones that it sends.
    pub(crate) next_sent: u32,
    /// So many of the next ones that it receives.
    pub(crate) next_received: u32,
    random: u64,
}

impl Losses {
    fn takes(&mut self, is_sent: bool) -> bool {
        let next = if is_sent { &mut self.next_sent } else { &mut self.next_received };
        if *next > 0 {
            *next -= 1;
            return true;
        }
        // Xorshift (Marsaglia 2003), from a seed that makes each run the same.
        self.random = if self.random == 0 { 0x9e37_79b9_7f4a_7c15 } else { self.random };
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100 < self.percent
    }
}

/// The peer at the other end of the cable.
pub(crate) struct Peer {
    pub(crate) session: FtfwSession,
    pub(crate) table: MemoryTable,
    pub(crate) events: Vec<FtfwEvent>,
    pub(crate) losses: Losses,
    pub(crate) errors: Vec<String>,
    socket: UdpSocket,
    to: SocketAddr,
    poller: Poller,
}

pub(crate) fn session() -> FtfwSession {
    let config = FtfwConfig { replicates_window_scales: true, datagram_bytes_max: 1452, ..FtfwConfig::default() };
    let time_of_day_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as u32;
    FtfwSession::new(config, NodeId(1), time_of_day_s).unwrap()
}

impl Peer {
    fn open(namespace: &Namespace, transport: Transport) -> Self {
        let options = UdpOptions::default();
        let unicast = |addresses: [&str; 2]| {
            let [to, own] = addresses.map(|address| SocketAddr::new(address.parse().unwrap(), PORT));
            (UdpSocket::bind(own, &options).unwrap(), to)
        };
        let multicast = |group: &str| {
            let group = SocketAddr::new(group.parse().unwrap(), PORT);
            (UdpSocket::bind_multicast(group, LINK, &options).unwrap(), group)
        };
        let opened = namespace.run(|| match transport {
            Transport::V4 => unicast(V4),
            Transport::V6 => unicast(V6),
            Transport::MulticastV4 => multicast(GROUP_V4),
            Transport::MulticastV6 => multicast(GROUP_V6),
        });
        let (socket, to) = opened.unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&socket, Token(0)).unwrap();
        Self {
            session: session(),
            table: MemoryTable::default(),
            events: Vec::new(),
            losses: Losses::default(),
            errors: Vec::new(),
            socket,
            to,
            poller,
        }
    }

    /// Handles what has been received, and sends what is due.
    pub(crate) fn pump(&mut self) {
        let mut buffer = [0; 65536];
        while let Some(received) = self.socket.receive(&mut buffer).unwrap() {
            if !self.losses.takes(false) {
                let datagram = &buffer[..received.length_bytes];
                let handled = self.session.handle_datagram(clock::now(), datagram, &mut self.table);
                self.errors.extend(handled.err().map(|error| error.to_string()));
            }
        }
        self.session.handle_timeout(clock::now());
        let mut datagram = Vec::new();
        while self.session.poll_transmit(clock::now(), &mut self.table, &mut datagram) {
            if !self.losses.takes(true) {
                self.socket.send_to(&datagram, self.to).unwrap();
            }
        }
        self.events.extend(std::iter::from_fn(|| self.session.poll_event()));
    }

    pub(crate) fn put(&mut self, entry: Entry) {
        let handle = self.table.put(entry);
        self.session.mark_changed(handle);
    }

    pub(crate) fn end(&mut self, original: &Tuple) {
        let (handle, entry) = self.table.take(original, 0).expect("it is there");
        self.session.mark_deleted(handle, &entry);
    }
}

/// All of it.
pub(crate) struct World {
    pub(crate) namespace: Namespace,
    pub(crate) kernel: TableSocket,
    pub(crate) daemon: Conntrackd,
    pub(crate) peer: Peer,
    _far: Namespace,
}

/// Whether a program can be run.
pub(crate) fn is_installed(program: &str) -> bool {
    Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

impl World {
    /// Builds it, and waits until the two have met. None, said aloud, where it cannot be.
    pub(crate) fn build(transport: Transport, cache: Cache) -> Option<Self> {
        packet_io::namespace::for_tests()?;
        if !is_installed("conntrackd") {
            packet_io::namespace::skip("conntrackd cannot be run: install the package conntrackd");
            return None;
        }
        let [near, far] = [Namespace::new().unwrap(), Namespace::new().unwrap()];
        near.run(|| Netlink::open().unwrap().create_veth(LINK, LINK, &far).unwrap()).unwrap();
        for (number, namespace) in [&near, &far].into_iter().enumerate() {
            namespace.run(|| set_up(number)).unwrap();
        }
        let mut world = Self {
            kernel: near.run(TableSocket::open).unwrap().unwrap(),
            daemon: Conntrackd::start(&near, transport, cache),
            peer: Peer::open(&far, transport),
            namespace: near,
            _far: far,
        };
        world.until("both have met", |world| world.peer.session.status().is_synchronised());
        Some(world)
    }

    /// Lets the peer work until the condition holds.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut ready = Vec::new();
        loop {
            self.peer.pump();
            if holds(self) {
                return;
            }
            if Instant::now() >= until {
                let (status, errors) = (self.peer.session.status(), &self.peer.errors);
                panic!("not in time: {what}\n{status:?}\n{errors:?}\n{}", self.daemon.log());
            }
            self.peer.poller.wait(&mut ready, Some(POLL_INTERVAL)).unwrap();
        }
    }

    /// The output of conntrackd's client.
    pub(crate) fn ask(&self, request: &str) -> String {
        self.daemon.ask(&self.namespace, request).unwrap_or_default()
    }

    /// Lines of conntrackd's external cache.
    pub(crate) fn external(&self, kind: &str) -> Vec<String> {
        self.ask(&format!("-e {kind}")).lines().map(str::to_owned).collect()
    }

    /// Changes conntrackd's kernel's table; all must be done.
    #[track_caller]
    pub(crate) fn change<'a>(&mut self, requests: impl IntoIterator<Item = Request<'a>>) {
        let mut refused = Vec::new();
        self.kernel.execute(requests, &mut |index, error| refused.push((index, error))).unwrap();
        assert_eq!(refused, []);
    }

    /// What conntrackd's kernel knows of a connection.
    pub(crate) fn kernel_entry(&mut self, original: &Tuple, zone: u16) -> Option<Entry> {
        self.kernel.get(original, zone).unwrap()
    }
}

fn set_up(number: usize) {
    sysctl::quieten_ipv6().unwrap();
    let mut netlink = Netlink::open().unwrap();
    netlink.set_up(LINK, true).unwrap();
    for (address, bits) in [(V4[number], 24), (V6[number], 64)] {
        netlink.add_address(LINK, Prefix::new(address.parse::<IpAddr>().unwrap(), bits)).unwrap();
    }
}
