//! The networks that are measured: each a sender, something in between, and a receiver that throws away what comes.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use flow::BATCH_FRAMES_MAX;
use flow::wire::MacAddress;
use packet_io::namespace::Namespace;
use packet_io::netlink::Netlink;
use packet_io::{IoError, interface, usage};

use super::generator::{Generator, Path};
use super::{Backend, BenchError, KernelRules};
use crate::bench::bulk::{forward_only, load_rules};
use crate::testbed::cluster::{Cluster, ClusterPlan, Tuning};
use crate::testbed::topology::{CLIENT, INTERFACES, OUTSIDE, SERVER, Topology};
use crate::testbed::watch::Watch;

/// Connections that a node has room for.
const CONNECTIONS_MAX: usize = 65_536;
/// UDP port of the receiver.
const RECEIVER_PORT: u16 = 7400;
/// The cable from client to server, and the bridge that it ends at.
const CABLE: &str = "cable";
const BRIDGE: &str = "bridge";
/// The hosts' ends of the cables to the node.
const TO_NODE: &str = "to-a";
/// Sender and node have a processor each, as the network's interrupts and a node would. On one and the same the node would be
/// woken up for each packet in the midst of sending, for virtual cables have no batches of their own.
const SENDER_PROCESSOR: usize = 0;
const NODE_PROCESSOR: usize = 1;
/// An answer to a packet of the last batch comes within this time.
const ANSWER_WITHIN: Duration = Duration::from_millis(5);
/// So often each connection is given a packet until all have been answered: first packets may wait for link addresses.
const ANSWER_ROUNDS_MAX: usize = 20;
/// What is underway has arrived when nothing more does for so long.
const SETTLED_FOR: Duration = Duration::from_millis(100);

/// What is between sender and receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// A cable.
    Cable,
    /// A node with `AF_XDP`.
    AfXdp,
    /// A node with `AF_PACKET`, all of whose packets go through the process.
    AfPacket,
    /// A node with `AF_PACKET` and the fast path in the kernel.
    FastPath,
    /// The kernel with nftables.
    Kernel,
    /// The kernel, which only forwards.
    PlainKernel,
}

impl Way {
    pub(super) const ALL: [Self; 6] =
        [Self::Cable, Self::AfXdp, Self::AfPacket, Self::FastPath, Self::Kernel, Self::PlainKernel];
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
    way: Way,
    generator: Generator,
    cluster: Option<Cluster>,
    rules: Option<KernelRules>,
    /// Nobody reads from it: when it is full, the kernel throws away what comes.
    _receiver: UdpSocket,
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
    pub(super) fn build(way: Way, flows: u16, watch: &Watch) -> Result<Self, BenchError> {
        let topology = Topology::build()?;
        let receiver = SocketAddr::new(SERVER[0], RECEIVER_PORT);
        let socket = topology.server.run(|| UdpSocket::bind(receiver))?.map_err(BenchError::Socket)?;
        if way == Way::Cable {
            lay_cable(&topology)?;
        }
        let mut rules = None;
        let mut cluster = None;
        match way {
            Way::Cable => {}
            Way::AfXdp => cluster = Some(start_node(&topology, Backend::AfXdp, 0, watch)?),
            Way::AfPacket => cluster = Some(start_node(&topology, Backend::AfPacket, 0, watch)?),
            Way::FastPath => {
                cluster = Some(start_node(&topology, Backend::AfPacket, CONNECTIONS_MAX as u32, watch)?);
            }
            Way::Kernel => rules = Some(KernelRules::install(&topology.nodes[0])?),
            Way::PlainKernel => forward_only(&topology.nodes[0])?,
        }
        let (next_hop, source) = match way {
            Way::Cable => (mac(&topology.server, BRIDGE)?, OUTSIDE[0]),
            _ => (mac(&topology.nodes[0], INTERFACES[0])?, CLIENT[0]),
        };
        let path = Path { link: [mac(&topology.client, BRIDGE)?, next_hop], source, destination: receiver };
        let mut generator = Generator::open(&topology.client, first_interface(way), &path, flows)?;
        // Nothing is tracked on the others.
        if !matches!(way, Way::Cable | Way::PlainKernel) {
            answer_each_flow(&socket, &mut generator)?;
        }
        // Else what comes goes to a socket that nobody reads, which costs more on all sides alike.
        let _ = load_rules(&topology.server, &throw_away_on(last_interface(way)));
        Ok(Self { way, generator, cluster, rules, _receiver: socket, topology })
    }

    /// What the kernel does beside forwarding, where it is the kernel that forwards.
    pub(super) fn kernel_rules(&self) -> Option<KernelRules> {
        self.rules.clone()
    }

    /// Sends for `duration` and waits until what was sent has arrived; returns the cost of a packet.
    pub(super) fn pass(
        &mut self,
        duration: Duration,
        packets_per_second: Option<u32>,
        watch: &Watch,
    ) -> Result<Cost, BenchError> {
        let before = self.read()?;
        let (last, generator) = (last_interface(self.way), &mut self.generator);
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
        let last = last_interface(self.way);
        let arrived = self.topology.server.run(|| interface::received_packets(last))?;
        Ok(Reading {
            cpu: of_node.into_iter().sum::<Duration>() + usage::soft_interrupt_threads_cpu_time(),
            machine: usage::machine_cpu_time(),
            arrived: arrived.ok_or_else(|| IoError::NoSuchInterface { interface: last.into() })?,
        })
    }
}

/// Where the sender's frames leave from.
const fn first_interface(way: Way) -> &'static str {
    match way {
        Way::Cable => CABLE,
        _ => TO_NODE,
    }
}

/// Where they arrive.
const fn last_interface(way: Way) -> &'static str {
    first_interface(way)
}

fn mac(namespace: &Namespace, name: &str) -> Result<MacAddress, IoError> {
    namespace.run(|| Ok(MacAddress(Netlink::open()?.interface(name)?.mac)))?
}

/// What has arrived is counted and of no further use: it is to cost as little as can be, lest its cost hide the rest.
fn throw_away_on(interface: &str) -> String {
    format!(
        "table netdev receiver {{
            chain arrivals {{
                type filter hook ingress device \"{interface}\" priority 0; policy accept;
                udp dport {RECEIVER_PORT} drop
            }}
        }}"
    )
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

/// Sends a packet of each connection and has it answered: trackers then hold the connections to be established.
fn answer_each_flow(receiver: &UdpSocket, generator: &mut Generator) -> Result<(), BenchError> {
    receiver.set_read_timeout(Some(ANSWER_WITHIN)).map_err(BenchError::Socket)?;
    let mut answered = HashSet::new();
    for _ in 0..ANSWER_ROUNDS_MAX {
        for _ in 0..generator.flows().div_ceil(BATCH_FRAMES_MAX) {
            generator.send_batch();
            let mut bytes = [0; 64];
            while let Ok((length, from)) = receiver.recv_from(&mut bytes) {
                receiver.send_to(&bytes[..length], from).map_err(BenchError::Socket)?;
                answered.insert(from);
            }
        }
        if answered.len() >= generator.flows() {
            return Ok(());
        }
    }
    Err(BenchError::NothingPassed)
}

fn start_node(
    topology: &Topology,
    backend: Backend,
    fast_path_connections_max: u32,
    watch: &Watch,
) -> Result<Cluster, BenchError> {
    let plan = ClusterPlan {
        has_standby: false,
        is_replicated: false,
        connections_max: CONNECTIONS_MAX,
        workers: 1,
        backend,
        tuning: Tuning { fast_path_connections_max, ..Tuning::default() },
    };
    let mut cluster = Cluster::start(topology, plan)?;
    cluster.wait_until_ready(watch)?;
    if thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
        // Where it cannot be, the scheduler decides, and the figures scatter more.
        let _ = cluster.keep_on_processor(NODE_PROCESSOR);
    }
    Ok(cluster)
}
