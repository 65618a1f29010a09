//! The node's ports, opened with the backends that serve them.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use flow::steering::program;
use flow::{Disposition, Frame, PacketBatch, PortId, Steering};
use packet_io::af_packet::{self, AfPacketIo, Fanout};
use packet_io::af_xdp::{self, AfXdpIo, AttachMode, AttachedPort};
use packet_io::tun::{self, TunIo};
use packet_io::{IoError, PacketIo, PortCounters};

use config::validated::{Backend, Port};

/// A port of no backend: what is sent on it is counted as [`packet_io::TransmitFailure::NoSuchPort`].
const NOWHERE: PortId = PortId(u8::MAX);

/// Ports of one backend, which numbers them from 0 for itself.
struct Served {
    io: Box<dyn PacketIo + Send>,
    /// What the node calls the backend's ports.
    ports: Vec<PortId>,
}

/// Ports of several backends. Between ports of one backend frames pass as that backend does it; between ports of different
/// ones they are copied, one by one.
struct MixedPorts {
    backends: Vec<Served>,
    /// Of each of the node's ports: its backend, and what that calls it.
    places: Vec<(usize, PortId)>,
}

/// What the workers of a node share of its ports: every worker has sockets of its own on each.
pub(crate) struct Sharing {
    workers: u8,
    /// Of each port by `AF_XDP`: the interface, whose queues are shared out.
    attached: Vec<Option<Arc<AttachedPort>>>,
    /// Of each port by `AF_PACKET`: the places of all workers among its sockets; none for a worker alone.
    fanouts: Vec<Vec<Fanout>>,
}

impl Sharing {
    /// For the ports as configured and so many workers, among which `program` divides frames.
    pub(crate) fn new(ports: &[Port], workers: u8) -> Result<Self, IoError> {
        let steering = Steering::new(workers).unwrap_or(Steering::ALONE);
        let attach = |port: &Port| {
            let config =
                || af_xdp::PortConfig { promiscuous: true, ..af_xdp::PortConfig::new(port.interface.as_str()) };
            (port.backend == Backend::AfXdp).then(|| AttachedPort::attach(&config())).transpose()
        };
        let attached = ports.iter().map(attach).collect::<Result<Vec<_>, _>>()?;
        for (port, attached) in ports.iter().zip(&attached) {
            let Some(attached) = attached.as_ref().filter(|attached| attached.queues() < workers.into()) else {
                continue;
            };
            let message = format!(
                "port {:?} has {} receive queues and workers.count is {workers}: give it as many (ethtool -L), or lower \
                 workers.count",
                port.name,
                attached.queues()
            );
            return Err(IoError::Misuse(message));
        }
        let fanout = |port: &Port| match port.backend {
            Backend::AfPacket if workers > 1 => Fanout::group(workers.into(), &program(steering)),
            _ => Vec::new(),
        };
        Ok(Self { workers, attached, fanouts: ports.iter().map(fanout).collect() })
    }

    fn fanout(&self, port: PortId, worker: u8) -> Option<Fanout> {
        self.fanouts.get(usize::from(port.0))?.get(usize::from(worker)).cloned()
    }

    /// A worker's part of the queues of a port.
    fn queues(&self, port: PortId, worker: u8) -> Option<(Arc<AttachedPort>, Range<u32>)> {
        let attached = self.attached.get(usize::from(port.0))?.as_ref()?;
        let bound = |worker: u32| attached.queues() * worker / u32::from(self.workers);
        Some((Arc::clone(attached), bound(worker.into())..bound(u32::from(worker) + 1)))
    }
}

/// What is received of ports by `AF_PACKET`.
#[derive(Clone, Copy)]
pub(crate) enum Receiving {
    /// Every frame as it is on the wire.
    Everything,
    /// What programs at the ingress let pass: frames of these EtherTypes for this host, without VLAN tags.
    ForThisHost(&'static [u16]),
    /// The same, for any host.
    ForAnyHost(&'static [u16]),
}

/// Opens a worker's part of the ports as configured. A backend that serves all ports numbers them as the node does.
pub(crate) fn open(
    ports: &[Port],
    sharing: &Sharing,
    worker: u8,
    receiving: Receiving,
) -> Result<Box<dyn PacketIo + Send>, IoError> {
    let mut mixed = MixedPorts { backends: Vec::new(), places: vec![(usize::MAX, NOWHERE); ports.len()] };
    for (_, backend) in Backend::ALL {
        let chosen: Vec<&Port> = ports.iter().filter(|port| port.backend == backend).collect();
        if chosen.is_empty() {
            continue;
        }
        let io: Box<dyn PacketIo + Send> = match backend {
            Backend::AfPacket => Box::new(open_af_packet(&chosen, sharing, worker, receiving)?),
            Backend::AfXdp => Box::new(open_af_xdp(&chosen, sharing, worker)?),
            Backend::Tun => Box::new(open_tun(&chosen, ports)?),
        };
        if chosen.len() == ports.len() {
            return Ok(io);
        }
        mixed.add(io, chosen.iter().map(|port| port.id).collect());
    }
    Ok(Box::new(mixed))
}

impl MixedPorts {
    fn add(&mut self, io: Box<dyn PacketIo + Send>, ports: Vec<PortId>) {
        for (port, local) in ports.iter().zip((0..u8::MAX).map(PortId)) {
            self.places[usize::from(port.0)] = (self.backends.len(), local);
        }
        self.backends.push(Served { io, ports });
    }

    fn place(&self, port: PortId) -> Option<(usize, PortId)> {
        self.places.get(usize::from(port.0)).copied()
    }
}

/// The shared addresses answer to multicast solicitations that the interface itself has not subscribed to.
fn open_af_packet(ports: &[&Port], sharing: &Sharing, worker: u8, receiving: Receiving) -> Result<AfPacketIo, IoError> {
    let (ether_types, any_host) = match receiving {
        Receiving::Everything => (&[][..], false),
        Receiving::ForThisHost(types) => (types, false),
        Receiving::ForAnyHost(types) => (types, true),
    };
    let config = |port: &&Port| af_packet::PortConfig {
        promiscuous: true,
        fanout: sharing.fanout(port.id, worker),
        ether_types: ether_types.to_vec(),
        any_host,
        ..af_packet::PortConfig::new(port.interface.as_str())
    };
    AfPacketIo::open(&ports.iter().map(config).collect::<Vec<_>>())
}

fn open_af_xdp(ports: &[&Port], sharing: &Sharing, worker: u8) -> Result<AfXdpIo, IoError> {
    let io =
        AfXdpIo::open_shares(&ports.iter().filter_map(|port| sharing.queues(port.id, worker)).collect::<Vec<_>>())?;
    for (port, local) in ports.iter().zip((0..u8::MAX).map(PortId)) {
        let name = &port.name;
        let mode = io.attach_mode(local).map_or("no", AttachMode::name);
        tracing::info!(
            "port {name}: AF_XDP, {mode} XDP, {}",
            if io.is_zero_copy(local) { "zero-copy" } else { "copying" }
        );
        for fallback in io.fallbacks(local) {
            tracing::info!("port {name}: {fallback}");
        }
    }
    Ok(io)
}

/// Runs of segments are taken from the kernel only where every other port can send them.
fn open_tun(ports: &[&Port], all: &[Port]) -> Result<TunIo, IoError> {
    let offload = all.iter().all(|port| port.backend != Backend::AfXdp);
    let config = |port: &&Port| tun::PortConfig { offload, ..tun::PortConfig::new(port.interface.as_str()) };
    TunIo::open(&ports.iter().map(config).collect::<Vec<_>>())
}

impl PacketIo for MixedPorts {
    fn poll(&mut self, process: &mut dyn FnMut(&mut PacketBatch<'_>)) -> Result<usize, IoError> {
        let Self { backends, places } = self;
        let mut total = 0;
        for number in 0..backends.len() {
            let (before, rest) = backends.split_at_mut(number);
            let Some((Served { io, ports }, after)) = rest.split_first_mut() else { break };
            total += io.poll(&mut |batch| {
                for frame in batch.iter_mut() {
                    frame.ingress = ports[usize::from(frame.ingress.0)];
                }
                process(batch);
                for frame in batch.iter_mut() {
                    let Disposition::Transmit(egress) = frame.disposition else { continue };
                    let place = places.get(usize::from(egress.0)).copied();
                    frame.disposition = match place {
                        Some((backend, local)) if backend == number => Disposition::Transmit(local),
                        Some((backend, local)) => {
                            let other =
                                if backend < number { &mut before[backend] } else { &mut after[backend - number - 1] };
                            // A failure has been counted by the other port.
                            let _ = other.io.transmit(local, frame);
                            Disposition::Consumed
                        }
                        None => Disposition::Transmit(NOWHERE),
                    };
                }
            })?;
        }
        Ok(total)
    }

    fn transmit(&mut self, port: PortId, frame: &Frame<'_>) -> Result<(), IoError> {
        let (backend, local) = self.place(port).unwrap_or((0, NOWHERE));
        let sent = self.backends[backend].io.transmit(local, frame);
        sent.map_err(|error| match error {
            IoError::Transmit { cause, .. } => IoError::Transmit { port, cause },
            error => error,
        })
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.backends.iter().flat_map(|served| served.io.descriptors()).collect()
    }

    fn counters(&self, port: PortId) -> PortCounters {
        let place = self.place(port);
        place.map_or_else(PortCounters::default, |(backend, local)| self.backends[backend].io.counters(local))
    }
}

#[cfg(test)]
mod tests {
    use packet_io::memory::MemoryIo;

    use super::*;

    /// Ports 0 and 2 of one backend, port 1 of another, each with a frame whose first byte is its egress port.
    fn mixed(wishes: [u8; 3]) -> MixedPorts {
        let (mut one, mut other) = (MemoryIo::new(2), MemoryIo::new(1));
        one.inject(PortId(0), &[wishes[0]; 60]).unwrap();
        one.inject(PortId(1), &[wishes[2]; 60]).unwrap();
        other.inject(PortId(0), &[wishes[1]; 60]).unwrap();
        let mut ports = MixedPorts { backends: Vec::new(), places: vec![(usize::MAX, NOWHERE); 3] };
        ports.add(Box::new(one), vec![PortId(0), PortId(2)]);
        ports.add(Box::new(other), vec![PortId(1)]);
        ports
    }

    fn poll(ports: &mut MixedPorts) -> Vec<PortId> {
        let mut ingress = Vec::new();
        let process = &mut |batch: &mut PacketBatch<'_>| {
            for frame in batch {
                ingress.push(frame.ingress);
                frame.disposition = Disposition::Transmit(PortId(frame.bytes()[0]));
            }
        };
        assert_eq!(ports.poll(process).unwrap(), 3);
        ingress
    }

    #[test]
    fn frames_pass_within_a_backend_and_between_backends() {
        let mut ports = mixed([1, 2, 0]);
        assert_eq!(poll(&mut ports), [PortId(0), PortId(2), PortId(1)]);
        let sent = [0, 1, 2].map(|port| ports.counters(PortId(port)).sent_frames);
        assert_eq!(sent, [1, 1, 1]);
        let mut bytes = [0; 60];
        let frame = Frame::new(&mut bytes, 0, 60, PortId(0)).unwrap();
        ports.transmit(PortId(2), &frame).unwrap();
        assert_eq!(ports.counters(PortId(2)).sent_frames, 2);
    }

    #[test]
    fn a_port_that_is_not_there_is_counted_where_the_frame_came_in() {
        let mut ports = mixed([7, 7, 1]);
        poll(&mut ports);
        let nowhere = [0, 1, 2].map(|port| ports.counters(PortId(port)).transmit_failures.no_such_port);
        assert_eq!(nowhere, [1, 1, 0]);
        assert_eq!(ports.counters(PortId(9)), PortCounters::default());
    }
}
