//! The networks that are measured: each a sender, something in between, and a receiver that throws away what comes.

use std::thread;
use std::time::{Duration, Instant};

use flow::fast_path::Hook;
use flow::{Disposition, PacketBatch, PortId};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::interface::Offload;
use packet_io::namespace::Namespace;
use packet_io::netlink::Netlink;
use packet_io::{IoError, PacketIo, interface, sysctl, usage};

use super::datagram::{self, Path};
use super::generator::Generator;
use super::{Backend, BenchError, KernelRules};
use crate::bench::bulk::{forward_only, load_rules};
use crate::bench::port_pairs;
use crate::testbed::cluster::{Cluster, ClusterPlan, Tuning};
use crate::testbed::topology::{BRIDGE, CLIENT, INTERFACES, OUTSIDE, SERVER, Topology, link_address};
use crate::testbed::watch::Watch;

/// Connections that a node has room for, at least.
const CONNECTIONS_MAX_LEAST: usize = 65_536;
/// Connections stay without packets for so long at least: each has its turn more often.
const UDP_STREAM_TIMEOUT: Duration = Duration::from_secs(3600);
/// The cable from client to server.
const CABLE: &str = "cable";
/// The hosts' ends of the cables to the node.
const TO_NODE: &str = "to-a";
/// Sender and node have a processor each, as the network's interrupts and a node would. On one and the same the node would be
/// woken up for each packet in the midst of sending, for virtual cables have no batches of their own.
const SENDER_PROCESSOR: usize = 0;
const NODE_PROCESSOR: usize = 1;
/// How long each side is warmed up once it has its connections.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long filling a table may take, at most.
const FILLED_WITHIN: Duration = Duration::from_secs(300);
/// So often each connection is given a packet until all have been answered: first packets may wait for link addresses.
const ANSWER_ROUNDS_MAX: usize = 100;
/// What is underway has arrived when nothing more does for so long.
const SETTLED_FOR: Duration = Duration::from_millis(100);

/// What is between sender and receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SideKind {
    /// A cable.
    Cable,
    /// A node with `AF_XDP`.
    AfXdp,
    /// A node with `AF_PACKET`, all of whose packets go through the process.
    AfPacket,
    /// A node with `AF_PACKET` and the fast path in the kernel.
    FastPath,
    /// The same, which hands packets to the other ends of the ports' cables at once.
    FastPathPeer,
    /// The fast path at XDP, in the drivers of the ports.
    FastPathXdp,
    /// The kernel with nftables and masquerade.
    Kernel,
    /// The kernel, which only forwards.
    PlainKernel,
}

impl SideKind {
    pub(super) const ALL: [Self; 8] = [
        Self::Cable,
        Self::AfXdp,
        Self::AfPacket,
        Self::FastPath,
        Self::FastPathPeer,
        Self::FastPathXdp,
        Self::Kernel,
        Self::PlainKernel,
    ];

    /// The kernel forwards, as a node has it.
    const fn has_fast_path(self) -> bool {
        matches!(self, Self::FastPath | Self::FastPathPeer | Self::FastPathXdp)
    }
}

/// What a packet cost in one turn.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cost {
    pub(super) ns_per_packet: f64,
    pub(super) machine_ns_per_packet: f64,
    /// Share of the packets that arrived.
    pub(super) arrived: f64,
}

/// A sender, what is in between, and a receiver.
pub(super) struct Network {
    way: SideKind,
    generator: Generator,
    cluster: Option<Cluster>,
    rules: Option<KernelRules>,
    topology: Topology,
}

/// The meters' readings at a moment.
struct Reading {
    /// Of the node's process and of the kernel's threads.
    cpu: Duration,
    machine: Option<Duration>,
    arrived: u64,
}

impl Network {
    /// Builds it and begins so many connections.
    ///
    /// # Errors
    /// The machine lacks what is needed, or connections are not answered.
    pub(super) fn build(way: SideKind, connections: u32, watch: &Watch) -> Result<Self, BenchError> {
        let topology = Topology::build()?;
        if way == SideKind::Cable {
            lay_cable(&topology)?;
        }
        // Else what comes goes to the hosts, which costs more on all sides alike.
        let interface = interface_of(way);
        let _ = load_rules(&topology.client, &throw_away("sport", interface, connections));
        let _ = load_rules(&topology.server, &throw_away("dport", interface, connections));
        let mut rules = None;
        let mut cluster = None;
        match way {
            SideKind::Cable => {}
            SideKind::AfXdp
            | SideKind::AfPacket
            | SideKind::FastPath
            | SideKind::FastPathPeer
            | SideKind::FastPathXdp => {
                if way == SideKind::FastPathXdp {
                    take_redirected(&topology)?;
                }
                cluster = Some(start_node(&topology, way, connections, watch)?);
            }
            SideKind::Kernel => {
                rules = Some(KernelRules::install(&topology.nodes[0])?);
                topology.nodes[0].run(keep_connections)?;
            }
            SideKind::PlainKernel => forward_only(&topology.nodes[0])?,
        }
        let (next_hop, source) = match way {
            SideKind::Cable => (link_address(&topology.server, BRIDGE)?, OUTSIDE[0]),
            _ => (link_address(&topology.nodes[0], INTERFACES[0])?, CLIENT[0]),
        };
        let path = Path { link: [link_address(&topology.client, BRIDGE)?, next_hop], source, destination: SERVER[0] };
        let generator = Generator::open(&topology.client, interface, &path, connections)?;
        let mut network = Self { way, generator, cluster, rules, topology };
        // Nothing is tracked on the others.
        if !matches!(way, SideKind::Cable | SideKind::PlainKernel) {
            network.answer_each_connection()?;
        }
        Ok(network)
    }

    /// Sends a packet of each connection and has it answered: trackers then hold the connections to be established.
    fn answer_each_connection(&mut self) -> Result<(), BenchError> {
        let Self { way, generator, topology, .. } = self;
        let mut answers = Answers::open(topology, interface_of(*way), generator.connections())?;
        for _ in 0..ANSWER_ROUNDS_MAX {
            generator.send_each(|| answers.pass());
            if answers.missing == 0 {
                return Ok(());
            }
        }
        Err(BenchError::NothingPassed)
    }

    /// Has packets answered until the connections are where they are to be measured: on the fast path, or in the kernel's table.
    ///
    /// # Errors
    /// Some do not get there, or nothing passes.
    pub(super) fn warm_up(&mut self, packets_per_second: Option<u32>, watch: &Watch) -> Result<(), BenchError> {
        let (deadline, expected) = (Instant::now() + FILLED_WITHIN, self.generator.connections());
        while let Some(there) = self.established()?.filter(|there| *there < expected) {
            if Instant::now() > deadline {
                return Err(BenchError::NotFilled { there, expected, within_s: FILLED_WITHIN.as_secs() });
            }
            watch.pass_until(Instant::now())?;
            self.answer_each_connection()?;
        }
        self.pass(WARM_UP, packets_per_second, watch)?;
        Ok(())
    }

    /// How many connections are on the fast path, or in the kernel's table; `None` where there is neither.
    pub(super) fn established(&self) -> Result<Option<u32>, BenchError> {
        match self.way {
            way if way.has_fast_path() => Ok(self.on_fast_path()),
            SideKind::Kernel if self.rules == Some(KernelRules::Nftables) => {
                let count = self.topology.nodes[0].run(|| sysctl::read("net/netfilter/nf_conntrack_count"))??;
                Ok(count.parse().ok())
            }
            _ => Ok(None),
        }
    }

    /// What the kernel does beside forwarding, where it is the kernel that forwards.
    pub(super) fn kernel_rules(&self) -> Option<KernelRules> {
        self.rules.clone()
    }

    /// What is between sender and receiver.
    pub(super) const fn way(&self) -> SideKind {
        self.way
    }

    /// The fast path is where it is to be measured: at XDP, which not every kernel allows.
    pub(super) fn is_at_its_hook(&self) -> bool {
        let fast_path = self.cluster.iter().flat_map(Cluster::statuses).find_map(|status| status.fast_path);
        self.way != SideKind::FastPathXdp || fast_path.is_some_and(|fast_path| fast_path.hook == Hook::Xdp.name())
    }

    /// How many connections are on the node's fast path, if it has one.
    pub(super) fn on_fast_path(&self) -> Option<u32> {
        let fast_path = self.cluster.iter().flat_map(Cluster::statuses).find_map(|status| status.fast_path);
        fast_path.map(|fast_path| fast_path.connections as u32)
    }

    /// Sends for `duration` and waits until what was sent has arrived; returns the cost of a packet.
    pub(super) fn pass(
        &mut self,
        duration: Duration,
        packets_per_second: Option<u32>,
        watch: &Watch,
    ) -> Result<Cost, BenchError> {
        let before = self.read()?;
        let (last, generator) = (interface_of(self.way), &mut self.generator);
        let arrived = || interface::received_packets(last).unwrap_or_default();
        // Where packets arrive, in a thread of its own; the sender's socket stays where it was opened.
        let sent = self.topology.server.run(|| {
            let _ = usage::keep_on_processor(0, SENDER_PROCESSOR);
            generator.send_for(duration, packets_per_second, arrived)
        })?;
        let after = self.settle(before.arrived + sent.packets, watch)?;
        let arrived = after.arrived - before.arrived;
        if arrived * 2 < sent.packets {
            return Err(BenchError::NothingPassed);
        }
        let per_packet = |time: Duration| time.as_nanos() as f64 / arrived as f64;
        let machine = after.machine.zip(before.machine).map(|(after, before)| after.saturating_sub(before));
        Ok(Cost {
            ns_per_packet: per_packet(sent.cpu + after.cpu.saturating_sub(before.cpu)),
            machine_ns_per_packet: per_packet(machine.unwrap_or_default()),
            arrived: arrived as f64 / sent.packets as f64,
        })
    }

    /// Waits until `expected` packets have arrived, or no more do.
    fn settle(&self, expected: u64, watch: &Watch) -> Result<Reading, BenchError> {
        let mut last = self.read()?;
        while last.arrived < expected {
            watch.pass_until(Instant::now() + SETTLED_FOR)?;
            let next = self.read()?;
            if next.arrived == last.arrived {
                break;
            }
            last = next;
        }
        Ok(last)
    }

    fn read(&self) -> Result<Reading, BenchError> {
        let of_node = self.cluster.as_ref().map(Cluster::cpu_times).unwrap_or_default();
        let last = interface_of(self.way);
        let arrived = self.topology.server.run(|| interface::received_packets(last))?;
        Ok(Reading {
            cpu: of_node.into_iter().sum::<Duration>() + usage::soft_interrupt_threads_cpu_time(),
            machine: usage::machine_cpu_time(),
            arrived: arrived.ok_or_else(|| IoError::NoSuchInterface { interface: last.into() })?,
        })
    }
}

/// Where the sender's frames leave from, and, on the other host, where they arrive.
const fn interface_of(way: SideKind) -> &'static str {
    match way {
        SideKind::Cable => CABLE,
        _ => TO_NODE,
    }
}

/// What has arrived is counted and of no further use: it is to cost as little as can be, lest its cost hide the rest. The first
/// ports of receivers are `dport`s of packets and `sport`s of answers.
fn throw_away(port: &str, interface: &str, connections: u32) -> String {
    let (first, last) = (port_pairs::FIRST_DESTINATION, port_pairs::last_destination(connections));
    format!(
        "table netdev receiver {{
            chain arrivals {{
                type filter hook ingress device \"{interface}\" priority 0; policy accept;
                udp {port} {first}-{last} drop
            }}
        }}"
    )
}

/// Has the kernel of the calling thread's namespace keep connections for as long as a node does.
fn keep_connections() {
    for name in ["net/netfilter/nf_conntrack_udp_timeout", "net/netfilter/nf_conntrack_udp_timeout_stream"] {
        // Without tracking there is no such parameter.
        let _ = sysctl::write(name, &UDP_STREAM_TIMEOUT.as_secs().to_string());
    }
}

/// Has the hosts' ends of the node's cables take what XDP redirects into them.
fn take_redirected(topology: &Topology) -> Result<(), IoError> {
    for host in [&topology.client, &topology.server] {
        host.run(|| interface::set_offload(TO_NODE, Offload::GenericReceive, true))??;
    }
    Ok(())
}

/// Joins client and server past the nodes.
fn lay_cable(topology: &Topology) -> Result<(), IoError> {
    topology.client.run(|| -> Result<(), IoError> {
        let mut netlink = Netlink::open()?;
        netlink.create_veth(CABLE, CABLE, &topology.server)?;
        netlink.set_up(CABLE, true)
    })??;
    topology.server.run(|| -> Result<(), IoError> {
        let mut netlink = Netlink::open()?;
        netlink.attach_to_bridge(CABLE, BRIDGE)?;
        netlink.set_up(CABLE, true)
    })?
}

/// Answers the datagrams that arrive at the server, and takes the answers at the client.
struct Answers {
    client: AfPacketIo,
    server: AfPacketIo,
    /// By connection: an answer has arrived.
    is_answered: Vec<bool>,
    missing: usize,
    arrived: u64,
}

impl Answers {
    /// Those of so many connections, on these interfaces of the hosts.
    fn open(topology: &Topology, interface: &str, connections: u32) -> Result<Self, IoError> {
        let open = |host: &Namespace| host.run(|| AfPacketIo::open(&[PortConfig::new(interface)]))?;
        let is_answered = vec![false; connections as usize];
        let (client, server) = (open(&topology.client)?, open(&topology.server)?);
        Ok(Self { client, server, missing: is_answered.len(), is_answered, arrived: 0 })
    }

    /// Answers what has arrived; returns how many answers have so far.
    fn pass(&mut self) -> u64 {
        let Self { client, server, is_answered, missing, arrived } = self;
        let mut answer = |batch: &mut PacketBatch<'_>| {
            for frame in batch {
                frame.disposition = Disposition::Consumed;
                if datagram::connection_of(frame.bytes()).is_some() {
                    datagram::turn_round(frame.bytes_mut());
                    frame.disposition = Disposition::Transmit(PortId(0));
                }
            }
        };
        let mut take = |batch: &mut PacketBatch<'_>| {
            for frame in batch {
                frame.disposition = Disposition::Consumed;
                let connection = datagram::connection_of(frame.bytes());
                if let Some(is_answered) = connection.and_then(|number| is_answered.get_mut(number as usize)) {
                    *missing -= usize::from(!std::mem::replace(is_answered, true));
                    *arrived += 1;
                }
            }
        };
        // An interface that fails is noticed by what does not arrive.
        while server.poll(&mut answer).is_ok_and(|received| received > 0) {}
        while client.poll(&mut take).is_ok_and(|received| received > 0) {}
        self.arrived
    }
}

fn start_node(topology: &Topology, kind: SideKind, connections: u32, watch: &Watch) -> Result<Cluster, BenchError> {
    let connections_max = table_size(connections);
    let plan = ClusterPlan {
        nodes: 1,
        is_replicated: false,
        connections_max,
        workers: 1,
        backend: if kind == SideKind::AfXdp { Backend::AfXdp } else { Backend::AfPacket },
        tuning: Tuning {
            fast_path_connections_max: if kind.has_fast_path() { connections_max as u32 } else { 0 },
            redirects_peer: kind == SideKind::FastPathPeer,
            hook: if kind == SideKind::FastPathXdp { Hook::Xdp } else { Hook::Tc },
            udp_stream_timeout: Some(UDP_STREAM_TIMEOUT),
            ..Tuning::default()
        },
    };
    let mut cluster = Cluster::start(topology, plan)?;
    cluster.wait_until_ready(watch)?;
    if thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
        // Where it cannot be, the scheduler decides, and the figures scatter more.
        let _ = cluster.keep_on_processor(NODE_PROCESSOR);
    }
    Ok(cluster)
}

/// The connections that a table has room for that is to hold so many.
pub(super) fn table_size(connections: u32) -> usize {
    CONNECTIONS_MAX_LEAST.max(connections as usize + connections as usize / 8)
}
