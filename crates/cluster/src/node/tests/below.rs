//! A program below a node, of which the test plays the kernel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::vec::Vec;

use flow::fast_path::{Activity, NextHop, Plan, Side, Windows};
use flow::serial::{is_after, later};
use flow::wire::{Headers, Parsed, TcpSegment, Transport, build, parse, tcp_flags};
use flow::{Frame, Instant, PortId};

use crate::pipeline::{FastPathProgram, InstallError, Left};

/// The interface of the first port; that of the second is one more.
pub(super) const FIRST_INTERFACE: u32 = 10;
/// Connections that the program has room for.
pub(super) const PLACES: usize = 8;

/// What a node did with the program below it.
#[derive(Default)]
pub(super) struct Below {
    pub(super) installed: BTreeMap<u32, (Plan, Activity)>,
    /// Of the installed connections, if they are kept.
    pub(super) records: BTreeMap<u32, Vec<u8>>,
    pub(super) keeps_records: bool,
    /// It outlasts a node that ends now.
    pub(super) is_lasting: bool,
    pub(super) hops: BTreeMap<u32, NextHop>,
    /// That of all workers of the node.
    generation: Arc<AtomicU32>,
    pub(super) is_enabled: bool,
    pub(super) beaten_at: Option<Instant>,
    pub(super) installations: u32,
    /// In which generation each was installed.
    generations: BTreeMap<u32, u32>,
    /// Frames that it has forwarded.
    pub(super) forwarded: u64,
}

impl Below {
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Relaxed)
    }

    /// How many connections were installed, and how many are.
    pub(super) fn counts(&self) -> (u32, usize) {
        (self.installations, self.installed.len())
    }

    /// The generation in which it forwards; `None`: it is switched off.
    pub(super) fn forwards_in(&self) -> Option<u32> {
        self.is_enabled.then_some(self.generation())
    }

    /// The connections that it forwards now.
    pub(super) fn in_force(&self) -> impl Iterator<Item = &Plan> {
        let is_current = |index: &u32| self.is_enabled && self.generations[index] == self.generation();
        self.installed.iter().filter(move |(index, _)| is_current(index)).map(|(_, (plan, _))| plan)
    }

    /// The connection and the direction of a packet that it may forward.
    fn find(&self, headers: &Headers, ingress: PortId) -> Option<(u32, usize)> {
        let interface = FIRST_INTERFACE + u32::from(ingress.0);
        self.installed.iter().filter(|(index, _)| self.generations[index] == self.generation()).find_map(
            |(index, (plan, _))| {
                let comes = |direction: &usize| {
                    let planned = &plan.directions[*direction];
                    (planned.tuple, planned.ingress) == (headers.tuple, interface)
                };
                Some((*index, [0, 1].into_iter().find(comes)?))
            },
        )
    }

    /// The only connection.
    pub(super) fn only(&mut self) -> &mut (Plan, Activity) {
        assert_eq!(self.installed.len(), 1);
        self.installed.values_mut().next().expect("there is one")
    }
}

/// A program of which the test plays the kernel.
#[derive(Clone, Default)]
pub(super) struct Program(Arc<Mutex<Below>>);

impl Program {
    /// The programs of so many workers of a node.
    pub(super) fn of_workers(workers: usize) -> Vec<Self> {
        let generation = Arc::new(AtomicU32::new(0));
        let below = || Below { generation: Arc::clone(&generation), ..Below::default() };
        (0..workers).map(|_| Self(Arc::new(Mutex::new(below())))).collect()
    }

    pub(super) fn below(&self) -> MutexGuard<'_, Below> {
        self.0.lock().unwrap()
    }

    /// Forwards a frame as the kernel does. `None`: the node gets it. Else the interface's port, and the frame as it goes out.
    pub(super) fn forward(&self, now: Instant, frame: &[u8], ingress: PortId) -> Option<(PortId, Vec<u8>)> {
        let mut below = self.below();
        let mut bytes = frame.to_vec();
        let Ok(Parsed::Ip(headers)) = parse(&Frame::new(&mut bytes, 0, frame.len(), ingress)?) else { return None };
        let (index, direction) = below.find(&headers, ingress).filter(|_| below.is_enabled)?;
        let (plan, activity) = below.installed.get_mut(&index)?;
        let planned = plan.directions[direction];
        if let Transport::Tcp(segment) = &headers.transport {
            let others = tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST | tcp_flags::URG;
            let is_plain = segment.has(tcp_flags::ACK) && segment.flags & others == 0 && segment.window > 0;
            let is_inside = is_plain && track(&mut activity.windows.as_mut()?.sides, direction, segment);
            is_inside.then_some(())?;
        }
        activity.packets[direction] += 1;
        activity.bytes[direction] += u64::from(headers.l3_bytes);
        activity.last_packet_ns = now.as_nanos();
        let hop = *below.hops.get(&planned.next_hop)?;
        below.forwarded += 1;
        let [source, destination] = [hop.source, hop.destination].map(flow::wire::MacAddress);
        let envelope = build::Envelope { source, destination, ..build::Envelope::default() };
        let out = match &headers.transport {
            Transport::Tcp(segment) => {
                let TcpSegment { flags, sequence, acknowledgement, window, payload_bytes, .. } = *segment;
                let segment = build::Tcp { flags, sequence, acknowledgement, window, ..build::Tcp::default() };
                envelope.tcp(&planned.translated, segment, &frame[frame.len() - payload_bytes as usize..])
            }
            _ => envelope.udp(&planned.translated, &frame[14 + 20 + 8..]),
        };
        Some((PortId((hop.ifindex - FIRST_INTERFACE) as u8), out))
    }
}

/// Whether a segment is within the windows, which are raised then: the check of `fast_path.c` without its scales and options.
fn track(sides: &mut [Side; 2], direction: usize, segment: &TcpSegment) -> bool {
    const LAG_BYTES_MIN: u32 = 66_000;
    let (sender, receiver) = (sides[direction], sides[1 - direction]);
    let (end, acknowledged) = (segment.end(), segment.acknowledgement);
    let lag = sender.window_max.max(LAG_BYTES_MIN);
    let is_inside = !is_after(segment.sequence, sender.end_max)
        && !is_after(end, sender.end_max)
        && is_after(end, sender.end.wrapping_sub(receiver.window_max).wrapping_sub(1))
        && !is_after(acknowledged, receiver.end)
        && is_after(acknowledged, receiver.end.wrapping_sub(lag).wrapping_sub(1));
    if is_inside {
        let window = u32::from(segment.window);
        let sender = &mut sides[direction];
        sender.window_max = sender.window_max.max(window);
        sender.end = later(sender.end, end);
        sender.acknowledged_max = later(sender.acknowledged_max, acknowledged);
        let receiver = &mut sides[1 - direction];
        receiver.end_max = later(receiver.end_max, acknowledged.wrapping_add(window));
    }
    is_inside
}

impl FastPathProgram for Program {
    fn take_over(&mut self) -> Option<Left> {
        let below = self.below();
        let connections = below.records.iter().map(|(index, record)| (*index, record.clone())).collect();
        below.keeps_records.then_some(Left { generation: below.generation(), connections })
    }

    fn keeps_records(&self) -> bool {
        self.below().keeps_records
    }

    fn install(&mut self, plan: &Plan, record: &[u8]) -> Result<u32, InstallError> {
        plan.check().map_err(|_| InstallError::Refused)?;
        let mut below = self.below();
        if below.installed.len() == PLACES {
            return Err(InstallError::Full);
        }
        let index = below.installations;
        below.installations += 1;
        let activity = Activity { last_packet_ns: 0, packets: [0; 2], bytes: [0; 2], windows: plan.windows };
        below.installed.insert(index, (*plan, activity));
        let generation = below.generation();
        below.generations.insert(index, generation);
        if below.keeps_records {
            below.records.insert(index, record.to_vec());
        }
        Ok(index)
    }

    fn remove(&mut self, connection: u32) -> Option<Activity> {
        let mut below = self.below();
        below.records.remove(&connection);
        below.installed.remove(&connection).map(|(_, activity)| activity)
    }

    fn take_activity(&mut self, connection: u32) -> Option<Activity> {
        let mut below = self.below();
        let (_, activity) = below.installed.get_mut(&connection)?;
        let taken = *activity;
        (activity.packets, activity.bytes) = ([0; 2], [0; 2]);
        Some(taken)
    }

    fn raise(&mut self, connection: u32, windows: &Windows) {
        self.below().installed.get_mut(&connection).expect("it is installed").1.windows = Some(*windows);
    }

    fn set_next_hop(&mut self, index: u32, hop: Option<&NextHop>) {
        match hop {
            Some(hop) => self.below().hops.insert(index, *hop),
            None => self.below().hops.remove(&index),
        };
    }

    fn begin_generation(&mut self) -> u32 {
        self.below().generation.fetch_add(1, Relaxed) + 1
    }

    fn generation(&self) -> u32 {
        self.below().generation()
    }

    fn set_enabled(&mut self, is_enabled: bool) {
        self.below().is_enabled = is_enabled;
    }

    fn beat(&mut self, now: Instant, is_alone: bool) {
        let mut below = self.below();
        (below.beaten_at, below.is_lasting) = (Some(now), is_alone);
    }

    fn interfaces(&mut self) -> Vec<Option<u32>> {
        std::vec![Some(FIRST_INTERFACE), Some(FIRST_INTERFACE + 1)]
    }

    fn outcomes(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
