//! The fast path: something below the node forwards packets of established connections by itself.
//!
//! ```text
//!   packet that reaches the node ─► take what was seen below ─► tracker ─► ┬ installed: raise the windows, or remove it
//!                                                                          └ plain, not installed: a candidate
//!   changes replicated ─► candidates that the backups have, and that no function needs, are installed
//!   the connection ends, is not plain any more, or another node becomes its owner ─► it is removed
//!   a new generation (reload, lost group, change of a link) ─► nothing is forwarded below until it is installed again
//! ```
//! Packets on the fast path change nothing that is replicated. What was seen of them comes back when the next packet reaches the
//! node, when the connection's time is over, and by a sweep from time to time.
//!
//! Where several nodes forward, a connection is installed at its owner alone, after packets of both directions have left there, and
//! only while it is not shared. So the program forwards what the node would forward without a message to a peer. A peer that receives a
//! packet of it becomes the owner of a TCP connection, and its update removes the connection here.

mod next_hops;
mod program;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use flow::connection::flags;
use flow::conntrack::Tracker;
use flow::fast_path::{Activity, Hook, Plan, Windows, is_settled};
use flow::table::{Slot, Table};
use flow::wire::ethernet::ETHERNET_HEADER_BYTES;
use flow::wire::ip_protocol;
use flow::{Connection, Direction, Instant, PortId};
use network_functions::chain::Chain;

pub use self::next_hops::FAST_PATH_NEXT_HOPS_MAX;
use self::next_hops::{Below, NextHops};
pub use self::program::{FastPathProgram, FastPathStatus, InstallError, Left, PortTraffic};
use super::classes::ClassCounters;
use super::connections::record_mut;
use super::packet_path::GatewayReason;
use crate::forwarding::Forwarder;
use crate::group::GroupSet;

/// Packets of a connection, in both directions, from which on it is installed. Installing and removing takes as long as forwarding
/// two or three packets in the node; a connection with one request and one answer is over by then.
pub const FAST_PATH_PACKETS_MIN: u64 = 10;
/// The time between sweeps …
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// … the most connections of which one takes what was seen …
const SWEPT_MAX: usize = 4096;
/// … and the most of an earlier generation that it removes, which takes system calls.
const SWEEP_REMOVALS_MAX: usize = 256;

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
struct PlannedRoute {
    /// The interface on which they come in, as the system numbers it.
    ingress: u32,
    egress: PortId,
    /// Where they go, translated.
    destination: IpAddr,
}

impl PlannedRoute {
    /// The neighbour that they are sent to; `None`: the route leads out of another port.
    fn neighbour(&self, forwarder: &Forwarder) -> Option<IpAddr> {
        let route = forwarder.route(self.destination).filter(|route| route.port == self.egress)?;
        Some(route.gateway.unwrap_or(self.destination))
    }
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
    next_hops: NextHops,
    generation: u32,
    /// The groups whose packets the node forwards.
    forwarded: GroupSet,
    /// What an earlier process installed is forwarded until the node knows its role.
    is_taken_over: bool,
    sweep_at: Instant,
    sweep_from: usize,
    status: FastPathStatus,
    /// By port.
    traffic: Vec<PortTraffic>,
    /// Packets of each class.
    classes: ClassCounters,
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
            next_hops: NextHops::default(),
            generation: 0,
            forwarded: GroupSet::EMPTY,
            is_taken_over: false,
            sweep_at: Instant::ZERO,
            sweep_from: 0,
            status: FastPathStatus::default(),
            classes: ClassCounters::default(),
        }
    }

    /// Records have the layout of this chain from now on.
    pub(super) fn follow_chain(&mut self, chain: &Chain) {
        self.classes.follow(chain);
    }

    /// Packets of each class.
    pub(super) const fn classes(&self) -> &ClassCounters {
        &self.classes
    }

    /// What an earlier process left below goes on until [`FastPath::follow_groups`] decides.
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
        if connection.flags & flags::SHARED != 0 {
            return Err(GatewayReason::Shared);
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
            let are_set = next_hops.is_some_and(|hops| hops.iter().all(|hop| self.next_hops.is_set(*hop)));
            return if are_set { Ok(()) } else { Err(GatewayReason::NextHop) };
        }
        self.check(connection)?;
        others()?;
        let routes = self.routes(connection)?;
        for route in &routes {
            let neighbour = route.neighbour(forwarder).ok_or(GatewayReason::NextHop)?;
            forwarder.link_to(route.egress, neighbour).ok_or(GatewayReason::NextHop)?;
        }
        Plan::of(connection, routes.map(|route| route.ingress), [0; 2]).ok_or(GatewayReason::Windows)?;
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
        self.generation = self.program.begin_generation();
        self.next_hops.forget_revision();
    }

    /// Another worker may have begun a generation, because the ports are others now.
    fn follow_generation(&mut self) {
        let generation = self.program.generation();
        if generation != self.generation {
            self.interfaces = self.program.interfaces();
            self.generation = generation;
            self.next_hops.forget_revision();
        }
    }

    /// Has it forward while the node forwards packets of a group. After the loss of a group, each connection passes the node before it is
    /// installed again. What was taken over goes on while the role `is_open`.
    pub(super) fn follow_groups(&mut self, forwarded: GroupSet, is_open: bool) {
        if self.is_taken_over && is_open {
            return;
        }
        let was_taken_over = core::mem::take(&mut self.is_taken_over);
        let has_lost = !core::mem::replace(&mut self.forwarded, forwarded).without(forwarded).is_empty();
        let (was_enabled, is_enabled) = (self.status.is_enabled, !forwarded.is_empty());
        if is_enabled && (was_taken_over || !was_enabled || has_lost) {
            // What was installed before may have gone on elsewhere meanwhile.
            self.invalidate();
        }
        if was_taken_over || was_enabled != is_enabled {
            self.status.is_enabled = is_enabled;
            self.program.set_enabled(is_enabled);
        }
    }

    pub(super) fn beat(&mut self, now: Instant, is_alone: bool) {
        self.follow_generation();
        self.program.beat(now, is_alone);
    }

    /// The connections that could be installed. The vector is given back by [`FastPath::return_candidates`].
    pub(super) fn take_candidates(&mut self) -> Vec<Slot> {
        self.follow_generation();
        core::mem::take(&mut self.candidates)
    }

    pub(super) fn return_candidates(&mut self, mut candidates: Vec<Slot>) {
        candidates.clear();
        self.candidates = candidates;
    }

    /// Installs a connection, if its routes out are known.
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

    /// The routes of both directions. Packets come in where those of the other direction go out, as long as routes are symmetric;
    /// others reach the node.
    fn routes(&self, connection: &Connection) -> Result<[PlannedRoute; 2], GatewayReason> {
        let interface = |port: PortId| self.interfaces.get(usize::from(port.0)).copied().flatten();
        let route = |direction: Direction| {
            let egress = connection.egress_port(direction).ok_or(GatewayReason::OneWay)?;
            let ingress_port = connection.egress_port(direction.reverse()).ok_or(GatewayReason::OneWay)?;
            let ingress = interface(ingress_port).ok_or(GatewayReason::Port)?;
            Ok(PlannedRoute { ingress, egress, destination: connection.translated(direction).destination_ip() })
        };
        Ok([route(Direction::Original)?, route(Direction::Reply)?])
    }

    fn plan(
        &mut self,
        now: Instant,
        connection: &Connection,
        forwarder: &mut Forwarder,
    ) -> Result<(Plan, [u32; 2], [PortId; 2]), GatewayReason> {
        let routes = self.routes(connection)?;
        let mut next_hop = |route: &PlannedRoute| self.next_hop(now, route, forwarder).ok_or(GatewayReason::NextHop);
        let next_hops = [next_hop(&routes[0])?, next_hop(&routes[1])?];
        let plan = Plan::of(connection, routes.map(|route| route.ingress), next_hops).ok_or(GatewayReason::Windows)?;
        Ok((plan, next_hops, routes.map(|route| route.egress)))
    }

    /// The index of a route's next hop.
    fn next_hop(&mut self, now: Instant, route: &PlannedRoute, forwarder: &mut Forwarder) -> Option<u32> {
        let (port, neighbour) = (route.egress, route.neighbour(forwarder)?);
        if let Some(index) = self.next_hops.index(port, neighbour) {
            return Some(index);
        }
        forwarder.use_neighbour(now, port, neighbour)?;
        if self.next_hops.is_full() {
            self.invalidate();
            self.next_hops.clear();
            return None;
        }
        let below = Below { program: &mut *self.program, interfaces: &self.interfaces };
        Some(self.next_hops.add(port, neighbour, forwarder, below))
    }

    /// Sets the next hops whose neighbour has another link address than when they were set, or none any more.
    pub(super) fn refresh_next_hops(&mut self, forwarder: &Forwarder) {
        self.next_hops.refresh(forwarder, Below { program: &mut *self.program, interfaces: &self.interfaces });
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
                    self.next_hops.note_packets(*hop, packets);
                }
            }
        }
        self.next_hops.confirm_used(now, forwarder);
        self.refresh_next_hops(forwarder);
    }

    pub(super) fn traffic(&self, port: PortId) -> PortTraffic {
        self.traffic.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    pub(super) fn status(&self) -> FastPathStatus {
        let (hook, reason) = self.program.hook();
        FastPathStatus {
            outcomes: self.program.outcomes(),
            hook,
            hook_reason: reason.map(Into::into),
            ..self.status.clone()
        }
    }

    /// Where packets are seen.
    pub(super) fn hook(&self) -> Hook {
        self.program.hook().0
    }

    /// Removes a connection, and takes over what was seen of it.
    pub(super) fn remove_and_fold(&mut self, slot: Slot, connection: &mut Connection, tracker: &Tracker) {
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
    fn fold_seen(&mut self, connection: &mut Connection, activity: &Activity, tracker: &Tracker) {
        for direction in 0..2 {
            let (packets, bytes) = (u64::from(activity.packets[direction]), activity.bytes[direction]);
            connection.packets[direction] += packets;
            connection.bytes[direction] += bytes;
            self.classes.note_packets(connection, packets, bytes);
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
