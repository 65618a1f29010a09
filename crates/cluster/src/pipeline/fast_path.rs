//! The fast path: something below the node forwards packets of established connections by itself.
//!
//! ```text
//!   packet that reaches the node ─► take what was seen below ─► tracker ─► ┬ installed: raise the windows, or remove it
//!                                                                          └ plain, not installed: a candidate
//!   changes replicated ─► candidates that the backups have, and that no function needs, are installed
//!   the connection ends, or is not plain any more ─► it is removed
//!   a new generation (reload, change of role, of a link) ─► nothing is forwarded below until it is installed again
//! ```
//! Packets on the fast path change nothing that is replicated. What was seen of them comes back when the next packet reaches the
//! node, when the connection's time is over, and by a sweep from time to time.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use flow::conntrack::Tracker;
use flow::fast_path::{Activity, NextHop, Plan, Windows, is_settled};
use flow::table::{Slot, Table};
use flow::wire::ethernet::ETHERNET_HEADER_BYTES;
use flow::wire::ip_protocol;
use flow::{Connection, Direction, Instant, PortId};

use super::connections::record_mut;
use super::packet_path::GatewayReason;
use crate::forwarding::Forwarder;

/// Next hops that are known below at a time. When there are more, all are entered anew.
pub const FAST_PATH_NEXT_HOPS_MAX: u32 = 4096;
/// Packets of a connection, in both directions, from which on it is installed. Installing and removing takes as long as forwarding
/// two or three packets in the node; a connection with one request and one answer is over by then.
pub const FAST_PATH_PACKETS_MIN: u64 = 10;
/// The time between sweeps …
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// … the most connections of which one takes what was seen …
const SWEPT_MAX: usize = 4096;
/// … and the most of an earlier generation that it removes, which takes system calls.
const SWEEP_REMOVALS_MAX: usize = 256;

/// Whatever forwards packets below the node. Connections and next hops have indices.
pub trait FastPathProgram {
    /// What an earlier process left below, still forwarding; `None`: nothing. To be called once, before anything else.
    fn take_over(&mut self) -> Option<Left>;
    /// Whether it keeps records for a later process.
    fn keeps_records(&self) -> bool;
    /// Installs a connection, and returns its index. `record` is the connection for a later process, if records are kept.
    ///
    /// # Errors
    /// There is no room, or the system refuses.
    fn install(&mut self, plan: &Plan, record: &[u8]) -> Result<u32, InstallError>;
    /// Removes a connection. Returns what was seen of it since it was taken last.
    fn remove(&mut self, connection: u32) -> Option<Activity>;
    /// What was seen of a connection; its packets and bytes are those since the last call.
    fn take_activity(&mut self, connection: u32) -> Option<Activity>;
    /// Raises the windows of a connection.
    fn raise(&mut self, connection: u32, windows: &Windows);
    /// Sets a next hop, below [`FAST_PATH_NEXT_HOPS_MAX`]; `None`: packets to it reach the node.
    fn set_next_hop(&mut self, index: u32, hop: Option<&NextHop>);
    /// From now on only connections are forwarded that are installed from now on.
    fn set_generation(&mut self, generation: u32);
    /// Switches the forwarding on or off.
    fn set_enabled(&mut self, is_enabled: bool);
    /// The node is alive. If no peer is, the forwarding may outlast the node for a while.
    fn beat(&mut self, now: Instant, is_alone: bool);
    /// The interfaces of the ports, as the system numbers them now; `None` for a port without a fast path.
    fn interfaces(&mut self) -> Vec<Option<u32>>;
    /// Packets by what became of them, with names.
    fn outcomes(&self) -> Vec<(&'static str, u64)>;
}

/// What an earlier process left below.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Left {
    /// The generation in which connections are forwarded.
    pub generation: u32,
    /// Connections by their indices, with their records.
    pub connections: Vec<(u32, Vec<u8>)>,
}

/// Why a connection was not installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstallError {
    /// All places are taken.
    Full,
    /// Anything else.
    Refused,
}

/// How the fast path stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FastPathStatus {
    /// It forwards.
    pub is_enabled: bool,
    /// Connections that are installed.
    pub connections: u32,
    /// Packets that it has forwarded; a frame of many segments is one. The latest may be missing.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Installations that were refused for want of room.
    pub full: u64,
    /// Installations that were refused otherwise.
    pub refused: u64,
    /// Packets by what became of them.
    pub outcomes: Vec<(&'static str, u64)>,
}

/// What a port received and sent. A frame of many segments is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortTraffic {
    /// Frames that came in.
    pub received_frames: u64,
    /// Their bytes, from the link header on.
    pub received_bytes: u64,
    /// Frames that went out.
    pub sent_frames: u64,
    /// Their bytes, from the link header on.
    pub sent_bytes: u64,
}

/// Where a connection is installed.
#[derive(Clone, Copy, Default)]
enum Place {
    #[default]
    Nowhere,
    /// Under this index below, in this generation.
    Installed { index: u32, generation: u32 },
    /// Its latest installation failed.
    Failed(InstallError),
}

/// An installed connection.
#[derive(Clone, Copy)]
struct Installed {
    slot: Slot,
    next_hops: [u32; 2],
    /// Egress ports, by direction.
    egress: [PortId; 2],
}

/// How packets of one direction go.
#[derive(Clone, Copy)]
struct Way {
    /// The interface on which they come in, as the system numbers it.
    ingress: u32,
    egress: PortId,
    /// Where they go, translated.
    destination: IpAddr,
}

impl Way {
    /// The neighbour that they are sent to; `None`: the route leads out of another port.
    fn neighbour(&self, forwarder: &Forwarder) -> Option<IpAddr> {
        let route = forwarder.route(self.destination).filter(|route| route.port == self.egress)?;
        Some(route.gateway.unwrap_or(self.destination))
    }
}

/// A next hop that is known below.
struct KnownHop {
    port: PortId,
    neighbour: IpAddr,
    /// As it was set last.
    set: Option<NextHop>,
    /// Packets went there since the last sweep.
    is_used: bool,
}

/// See the [module](self).
pub(super) struct FastPath {
    program: Box<dyn FastPathProgram + Send>,
    /// By port.
    interfaces: Vec<Option<u32>>,
    /// By slot.
    places: Vec<Place>,
    /// By index.
    installed: Vec<Option<Installed>>,
    candidates: Vec<Slot>,
    hops: Vec<KnownHop>,
    hops_by_name: BTreeMap<(PortId, IpAddr), u32>,
    /// The forwarder's neighbours as they were when the hops were compared with them.
    neighbours_revision: u64,
    generation: u32,
    /// What an earlier process installed is forwarded until the node knows its role.
    is_taken_over: bool,
    sweep_at: Instant,
    sweep_from: usize,
    status: FastPathStatus,
    /// By port.
    traffic: Vec<PortTraffic>,
}

impl FastPath {
    /// For a table of `connections_max` connections.
    pub(super) fn new(mut program: Box<dyn FastPathProgram + Send>, connections_max: u32) -> Self {
        let interfaces = program.interfaces();
        Self {
            traffic: vec![PortTraffic::default(); interfaces.len()],
            interfaces,
            program,
            places: vec![Place::default(); connections_max as usize],
            installed: Vec::new(),
            candidates: Vec::new(),
            hops: Vec::new(),
            hops_by_name: BTreeMap::new(),
            neighbours_revision: 0,
            generation: 0,
            is_taken_over: false,
            sweep_at: Instant::ZERO,
            sweep_from: 0,
            status: FastPathStatus::default(),
        }
    }

    /// What an earlier process left below goes on until [`FastPath::set_enabled`] decides.
    pub(super) fn take_over(&mut self) -> Vec<(u32, Vec<u8>)> {
        let Some(left) = self.program.take_over() else { return Vec::new() };
        self.generation = left.generation;
        self.is_taken_over = true;
        left.connections
    }

    /// A connection that an earlier process installed is in this slot now; `None`: it is in none, and is removed.
    pub(super) fn enter(&mut self, index: u32, slot: Option<Slot>) {
        let Some(slot) = slot else {
            self.program.remove(index);
            return;
        };
        self.remove(slot);
        // Its next hops are the earlier process's, and its ports unknown.
        self.note_installed(index, Installed { slot, next_hops: [u32::MAX; 2], egress: [PortId(u8::MAX); 2] });
    }

    pub(super) const fn is_enabled(&self) -> bool {
        self.status.is_enabled
    }

    pub(super) fn keeps_records(&self) -> bool {
        self.program.keeps_records()
    }

    /// Takes over what was seen of a connection, before one of its packets is tracked.
    #[inline]
    pub(super) fn take_seen(&mut self, slot: Slot, connection: &mut Connection, tracker: &Tracker) -> Option<Activity> {
        let Place::Installed { index, .. } = self.places[slot.0 as usize] else { return None };
        let activity = self.program.take_activity(index)?;
        self.count(index, &activity);
        self.fold_seen(connection, &activity, tracker);
        Some(activity)
    }

    /// A packet of the connection was tracked and sent on. Below, the windows are raised, or the connection is removed; one that
    /// could be installed is noted.
    #[inline]
    pub(super) fn follow(&mut self, slot: Slot, connection: &mut Connection, tracker: &Tracker) {
        let Some(index) = self.index(slot) else {
            if self.check(connection).is_ok() {
                self.candidates.push(slot);
            }
            return;
        };
        match Windows::of(&connection.protocol) {
            _ if !is_settled(connection) => self.remove_and_fold(slot, connection, tracker),
            Some(windows) => self.program.raise(index, &windows),
            None if connection.original.protocol == ip_protocol::TCP => self.remove_and_fold(slot, connection, tracker),
            None => {}
        }
    }

    /// The index below of a connection that is installed in the present generation.
    #[inline]
    fn index(&self, slot: Slot) -> Option<u32> {
        match self.places[slot.0 as usize] {
            Place::Installed { index, generation } if generation == self.generation => Some(index),
            _ => None,
        }
    }

    /// Whether a connection, which is not installed, is worth it and plain.
    #[inline]
    fn check(&self, connection: &Connection) -> Result<(), GatewayReason> {
        if !self.status.is_enabled {
            return Err(GatewayReason::Inactive);
        }
        if !matches!(connection.original.protocol, ip_protocol::TCP | ip_protocol::UDP) {
            return Err(GatewayReason::Protocol);
        }
        if connection.packets[0] + connection.packets[1] < FAST_PATH_PACKETS_MIN {
            return Err(GatewayReason::FewPackets);
        }
        if !is_settled(connection) {
            return Err(GatewayReason::State);
        }
        if connection.egress.contains(&0) {
            return Err(GatewayReason::OneWay);
        }
        Ok(())
    }

    /// Whether packets of an own connection are forwarded below, or why not. `others` checks what the fast path does not know.
    pub(super) fn forwards(
        &self,
        slot: Slot,
        connection: &Connection,
        forwarder: &Forwarder,
        others: impl FnOnce() -> Result<(), GatewayReason>,
    ) -> Result<(), GatewayReason> {
        if let Some(index) = self.index(slot).filter(|_| self.status.is_enabled) {
            // Packets to a next hop that is not set below reach the node.
            let next_hops = self.installed[index as usize].map(|installed| installed.next_hops);
            let is_set = |hop: &u32| self.hops.get(*hop as usize).is_some_and(|hop| hop.set.is_some());
            let are_set = next_hops.is_some_and(|hops| hops.iter().all(is_set));
            return if are_set { Ok(()) } else { Err(GatewayReason::NextHop) };
        }
        self.check(connection)?;
        others()?;
        let ways = self.ways(connection)?;
        for way in &ways {
            let neighbour = way.neighbour(forwarder).ok_or(GatewayReason::NextHop)?;
            forwarder.link_to(way.egress, neighbour).ok_or(GatewayReason::NextHop)?;
        }
        Plan::of(connection, ways.map(|way| way.ingress), [0; 2]).ok_or(GatewayReason::Windows)?;
        Err(match self.places[slot.0 as usize] {
            Place::Failed(InstallError::Full) => GatewayReason::Full,
            Place::Failed(InstallError::Refused) => GatewayReason::Refused,
            Place::Nowhere | Place::Installed { .. } => GatewayReason::NextPacket,
        })
    }

    /// The connection has left its slot.
    #[inline]
    pub(super) fn forget(&mut self, slot: Slot) {
        self.remove(slot);
    }

    /// From now on nothing is forwarded below until it is installed again. What was taken over goes on: a node whose role is open would
    /// drop its packets.
    pub(super) fn invalidate(&mut self) {
        if self.is_taken_over {
            return;
        }
        self.interfaces = self.program.interfaces();
        self.generation = self.generation.wrapping_add(1);
        self.program.set_generation(self.generation);
        self.neighbours_revision = 0;
    }

    /// Has it forward, or not. What was taken over goes on while the role `is_open`.
    pub(super) fn set_enabled(&mut self, is_enabled: bool, is_open: bool) {
        let stays = if self.is_taken_over { is_open } else { self.status.is_enabled == is_enabled };
        if stays {
            return;
        }
        self.is_taken_over = false;
        if is_enabled {
            // What was installed before may have gone on elsewhere meanwhile.
            self.invalidate();
        }
        self.status.is_enabled = is_enabled;
        self.program.set_enabled(is_enabled);
    }

    pub(super) fn beat(&mut self, now: Instant, is_alone: bool) {
        self.program.beat(now, is_alone);
    }

    /// The connections that could be installed. The vector is given back by [`FastPath::return_candidates`].
    pub(super) fn take_candidates(&mut self) -> Vec<Slot> {
        core::mem::take(&mut self.candidates)
    }

    pub(super) fn return_candidates(&mut self, mut candidates: Vec<Slot>) {
        candidates.clear();
        self.candidates = candidates;
    }

    /// Installs a connection, if its ways out are known.
    pub(super) fn install(
        &mut self,
        now: Instant,
        (slot, connection): (Slot, &Connection),
        record: &[u8],
        forwarder: &mut Forwarder,
    ) {
        if self.index(slot).is_some() {
            return;
        }
        let Ok((plan, next_hops, egress)) = self.plan(now, connection, forwarder) else { return };
        self.remove(slot);
        match self.program.install(&plan, record) {
            Ok(index) => self.note_installed(index, Installed { slot, next_hops, egress }),
            Err(error) => self.note_failed(slot, error),
        }
    }

    fn note_failed(&mut self, slot: Slot, error: InstallError) {
        self.places[slot.0 as usize] = Place::Failed(error);
        match error {
            InstallError::Full => self.status.full += 1,
            InstallError::Refused => self.status.refused += 1,
        }
    }

    fn note_installed(&mut self, index: u32, installed: Installed) {
        self.places[installed.slot.0 as usize] = Place::Installed { index, generation: self.generation };
        let number = index as usize;
        if number >= self.installed.len() {
            self.installed.resize(number + 1, None);
        }
        self.installed[number] = Some(installed);
        self.status.connections += 1;
    }

    /// The ways of both directions. Packets come in where those of the other direction go out, as long as routes are symmetric;
    /// others reach the node.
    fn ways(&self, connection: &Connection) -> Result<[Way; 2], GatewayReason> {
        let interface = |port: PortId| self.interfaces.get(usize::from(port.0)).copied().flatten();
        let way = |direction: Direction| {
            let egress = connection.egress_port(direction).ok_or(GatewayReason::OneWay)?;
            let ingress_port = connection.egress_port(direction.reverse()).ok_or(GatewayReason::OneWay)?;
            let ingress = interface(ingress_port).ok_or(GatewayReason::Port)?;
            Ok(Way { ingress, egress, destination: connection.translated(direction).destination_ip() })
        };
        Ok([way(Direction::Original)?, way(Direction::Reply)?])
    }

    fn plan(
        &mut self,
        now: Instant,
        connection: &Connection,
        forwarder: &mut Forwarder,
    ) -> Result<(Plan, [u32; 2], [PortId; 2]), GatewayReason> {
        let ways = self.ways(connection)?;
        let mut next_hop = |way: &Way| self.next_hop(now, way, forwarder).ok_or(GatewayReason::NextHop);
        let next_hops = [next_hop(&ways[0])?, next_hop(&ways[1])?];
        let plan = Plan::of(connection, ways.map(|way| way.ingress), next_hops).ok_or(GatewayReason::Windows)?;
        Ok((plan, next_hops, ways.map(|way| way.egress)))
    }

    /// The index of a way's next hop.
    fn next_hop(&mut self, now: Instant, way: &Way, forwarder: &mut Forwarder) -> Option<u32> {
        let (port, neighbour) = (way.egress, way.neighbour(forwarder)?);
        if let Some(index) = self.hops_by_name.get(&(port, neighbour)) {
            return Some(*index);
        }
        forwarder.use_neighbour(now, port, neighbour)?;
        let index = u32::try_from(self.hops.len()).ok()?;
        if index >= FAST_PATH_NEXT_HOPS_MAX {
            self.invalidate();
            self.hops.clear();
            self.hops_by_name.clear();
            return None;
        }
        self.hops.push(KnownHop { port, neighbour, set: None, is_used: true });
        self.hops_by_name.insert((port, neighbour), index);
        self.set_next_hop(index, forwarder);
        Some(index)
    }

    /// Sets the next hops whose neighbour has another link address than when they were set, or none any more.
    pub(super) fn refresh_next_hops(&mut self, forwarder: &Forwarder) {
        if self.neighbours_revision == forwarder.neighbours_revision() {
            return;
        }
        self.neighbours_revision = forwarder.neighbours_revision();
        for index in 0..self.hops.len() as u32 {
            self.set_next_hop(index, forwarder);
        }
    }

    fn set_next_hop(&mut self, index: u32, forwarder: &Forwarder) {
        let hop = &mut self.hops[index as usize];
        let interface = self.interfaces.get(usize::from(hop.port.0)).copied().flatten();
        let link = forwarder.link_to(hop.port, hop.neighbour);
        let new = interface
            .zip(link)
            .map(|(ifindex, link)| NextHop::new(ifindex, link.source.0, link.destination.0, link.mtu_bytes));
        if hop.set != new {
            hop.set = new;
            self.program.set_next_hop(index, new.as_ref());
        }
    }

    /// When [`FastPath::sweep`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.status.connections > 0 && !self.is_taken_over).then_some(self.sweep_at)
    }

    /// Takes over what was seen of some of the connections, and removes those of earlier generations.
    pub(super) fn sweep(&mut self, now: Instant, table: &mut Table, tracker: &Tracker, forwarder: &mut Forwarder) {
        if now < self.sweep_at || self.is_taken_over {
            return;
        }
        self.sweep_at = now + SWEEP_INTERVAL;
        let mut removals_left = SWEEP_REMOVALS_MAX;
        for _ in 0..SWEPT_MAX.min(self.installed.len()) {
            self.sweep_from = (self.sweep_from + 1) % self.installed.len();
            let Some(Installed { slot, next_hops, .. }) = self.installed[self.sweep_from] else { continue };
            let connection = record_mut(table, slot);
            let is_stale = self.index(slot).is_none() || !is_settled(connection);
            if is_stale && removals_left > 0 {
                removals_left -= 1;
                self.remove_and_fold(slot, connection, tracker);
            } else if let Some(activity) = self.take_seen(slot, connection, tracker) {
                if activity.packets != [0; 2] {
                    let expires_at = expiry_after(&activity, connection, tracker);
                    table.expire_sooner(slot, expires_at);
                }
                for (hop, packets) in next_hops.iter().zip(activity.packets) {
                    let hop = self.hops.get_mut(*hop as usize).filter(|_| packets > 0);
                    hop.into_iter().for_each(|hop| hop.is_used = true);
                }
            }
        }
        // Their link addresses are confirmed as if the packets had come through the node.
        for hop in self.hops.iter_mut().filter(|hop| hop.is_used) {
            hop.is_used = false;
            let _ = forwarder.use_neighbour(now, hop.port, hop.neighbour);
        }
        self.refresh_next_hops(forwarder);
    }

    pub(super) fn traffic(&self, port: PortId) -> PortTraffic {
        self.traffic.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    pub(super) fn status(&self) -> FastPathStatus {
        FastPathStatus { outcomes: self.program.outcomes(), ..self.status.clone() }
    }

    fn remove_and_fold(&mut self, slot: Slot, connection: &mut Connection, tracker: &Tracker) {
        if let Some(activity) = self.remove(slot) {
            self.fold_seen(connection, &activity, tracker);
        }
    }

    /// Removes the connection in a slot, if it is installed. Its packets are counted.
    fn remove(&mut self, slot: Slot) -> Option<Activity> {
        let place = core::mem::take(&mut self.places[slot.0 as usize]);
        let Place::Installed { index, .. } = place else { return None };
        self.status.connections -= 1;
        let activity = self.program.remove(index);
        activity.iter().for_each(|activity| self.count(index, activity));
        self.installed[index as usize] = None;
        activity
    }

    /// Counts what was seen of the connection that is installed under an index.
    fn count(&mut self, index: u32, activity: &Activity) {
        let Some(Installed { egress, .. }) = self.installed[index as usize] else { return };
        for direction in [Direction::Original, Direction::Reply] {
            let frames = u64::from(activity.packets[direction.index()]);
            let bytes = activity.bytes[direction.index()];
            self.status.packets += frames;
            self.status.bytes += bytes;
            let frame_bytes = bytes + frames * ETHERNET_HEADER_BYTES as u64;
            if let Some(egress) = self.traffic.get_mut(usize::from(egress[direction.index()].0)) {
                egress.sent_frames += frames;
                egress.sent_bytes += frame_bytes;
            }
            if let Some(ingress) = self.traffic.get_mut(usize::from(egress[direction.reverse().index()].0)) {
                ingress.received_frames += frames;
                ingress.received_bytes += frame_bytes;
            }
        }
    }

    /// Enters what was seen into the record: as if the packets had come through the node.
    fn fold_seen(&self, connection: &mut Connection, activity: &Activity, tracker: &Tracker) {
        for direction in 0..2 {
            connection.packets[direction] += u64::from(activity.packets[direction]);
            connection.bytes[direction] += activity.bytes[direction];
        }
        if let Some(windows) = &activity.windows {
            windows.raise_state(&mut connection.protocol);
        }
        if activity.packets != [0; 2] {
            let expires_at = expiry_after(activity, connection, tracker);
            connection.expires_at_nanos = connection.expires_at_nanos.max(expires_at.as_nanos());
        }
    }
}

/// When a connection ends without further packets than those that were seen.
pub(super) fn expiry_after(activity: &Activity, connection: &Connection, tracker: &Tracker) -> Instant {
    let (protocol, state, flags) = (connection.original.protocol, &connection.protocol, connection.flags);
    let timeout = tracker.timeout_after_last(protocol, state, flags);
    let timeout = timeout.unwrap_or_else(|| tracker.timeout(protocol, state, flags));
    Instant::from_nanos(activity.last_packet_ns) + timeout
}
