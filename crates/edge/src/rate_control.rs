//! Rate control after a failover by the advertised window [HALR, chapter 6].
//!
//! ```text
//!              a node fails                 all nodes are back             nothing was clamped for an interval
//!  inactive ─────────────────► active ────────────────────────► releasing ────────────────────────────────────► inactive
//!                                ▲                                   │
//!                                └─────────── a node fails ──────────┘
//! ```
//!
//! While it is active, each surviving node has one clamp for all its connections, computed at the end of each interval:
//!
//! ```text
//!  window(n+1) = window(n) − α · (bytes in − δ · bytes that the node can forward) / (connections · interval / round trip)   (9)
//!  clamp(n+1)  = max(window_bytes_min, window(n+1))                                                                         (10)
//! ```
//!
//! The first clamp is a multiple of the fair share, not the advertised window, and during an overload the clamp is never more. The
//! window of (9) is kept within the range of (10): otherwise it would fall without limit, and be late to recover. It rises by a
//! sixteenth in an interval at most: connections that lost their packets are silent for some round trips, and then send again.
//!
//! Connections are counted in a census, which lasts for two round trips at least. In a shorter interval not every connection sends.
//!
//! A sender gets whole segments, since it sends no parts of segments. The first acknowledgement of a connection that was moved leaves
//! room for two new segments behind what it has sent. Their acknowledgements show the sender at once which others were lost.
//!
//! Only acknowledgements that leave the cluster towards a sender are changed, and only their window field. A window is never raised.
//! The right edge that a sender was given may move left: a sender must be robust against that (RFC 9293 section 3.8.6), and would
//! otherwise send megabytes, which today's receivers advertise, before the control took effect.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use flow::wire::checksum::{self, Sum};
use flow::wire::tcp::TCP_CHECKSUM_OFFSET;
use flow::wire::{Headers, TcpSegment, tcp_flags};
use flow::{Checksum, Frame, Instant, NODES_MAX, NodeId, NodeSet};

use crate::config::{Capacity, RateControlConfig};
use crate::flows::Record;
use crate::tcp::{End, WINDOW_BYTES_MAX};

const TCP_WINDOW_OFFSET: usize = 14;
const MICROS_PER_S: f64 = 1e6;
/// The clamp rises by this share of itself in an interval at most.
const RISE_MAX: f64 = 1.0 / 16.0;
/// Round trips that a census lasts at least.
const CENSUS_ROUND_TRIPS: f64 = 2.0;
/// New segments that a connection may send with the first acknowledgement after its move.
const SEGMENTS_AFTER_MOVE: u32 = 2;
/// It does so only if all that it has sent is at most so many clamps.
const CLAMPS_AFTER_MOVE_MAX: u32 = 4;

/// The phase of a node's rate control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RatePhase {
    /// Windows stay as they are.
    #[default]
    Inactive,
    /// Windows are clamped.
    Active,
    /// The clamp grows until no window is clamped any more.
    Releasing,
}

/// The rate control of a node, for status and events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateStatus {
    /// Its phase.
    pub phase: RatePhase,
    /// The clamp in bytes; meaningless while it is inactive.
    pub window_bytes: u32,
    /// Connections that sent data into the cluster in the last census: the interval, or two round trips if they are longer.
    pub connections: u32,
    /// What the node can forward, in bytes of payload a second; 0: not known yet.
    pub capacity_bytes_per_s: u64,
    /// Acknowledgements whose window was lowered.
    pub clamped: u64,
}

/// What was seen in the present interval.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    bytes_in: u64,
    bytes_acknowledged: u64,
    clamped: u32,
    is_saturated: bool,
}

/// The connections that sent data during a census.
#[derive(Clone, Copy, Debug, Default)]
struct Census {
    connections: u32,
    round_trips_us: u64,
    round_trips: u32,
}

/// The control of one node.
#[derive(Clone, Copy, Debug, Default)]
struct Controller {
    phase: RatePhase,
    window_bytes: f64,
    /// Bytes a second, if known.
    capacity: Option<f64>,
    current: Interval,
    last: Interval,
    census: Census,
    last_census: Census,
    is_saturated: bool,
    clamped: u64,
}

/// Rate control of all nodes.
#[derive(Debug)]
pub(crate) struct RateControl {
    config: RateControlConfig,
    controllers: Box<[Controller]>,
    nodes: NodeSet,
    failed: NodeSet,
    /// The number of the census; never 0, which new connections have.
    census: u16,
    census_began_at: Instant,
    interval_began_at: Option<Instant>,
    changes: VecDeque<(NodeId, RateStatus)>,
}

impl RateControl {
    pub(crate) fn new(config: RateControlConfig, nodes: NodeSet) -> Self {
        let capacity = match config.capacity {
            Capacity::Configured(bytes_per_s) => Some(bytes_per_s as f64),
            Capacity::Measured => None,
        };
        let controller = Controller { capacity, ..Controller::default() };
        Self {
            config,
            controllers: vec![controller; NODES_MAX].into_boxed_slice(),
            nodes,
            failed: NodeSet::EMPTY,
            census: 1,
            census_began_at: Instant::ZERO,
            interval_began_at: None,
            changes: VecDeque::new(),
        }
    }

    pub(crate) fn status(&self, node: NodeId) -> RateStatus {
        self.controllers.get(usize::from(node.0)).map_or_else(RateStatus::default, Controller::status)
    }

    /// Whether windows of this node's connections may be lowered.
    pub(crate) fn is_controlled(&self, node: NodeId) -> bool {
        self.status(node).phase != RatePhase::Inactive
    }

    /// A node whose phase changed, and its status then.
    pub(crate) fn poll_change(&mut self) -> Option<(NodeId, RateStatus)> {
        self.changes.pop_front()
    }

    /// A node reports that its queue or processor is saturated, or is not.
    pub(crate) fn note_saturated(&mut self, node: NodeId, is_saturated: bool) {
        if let Some(controller) = self.controllers.get_mut(usize::from(node.0)) {
            controller.is_saturated = is_saturated;
            controller.current.is_saturated |= is_saturated;
        }
    }

    /// A node failed or returned.
    pub(crate) fn set_failed(&mut self, node: NodeId, is_failed: bool) {
        if is_failed {
            self.failed.insert(node);
        } else {
            self.failed.remove(node);
        }
        self.change_phases(is_failed);
    }

    /// Begins the control of the survivors, or its release. `has_failed`: one more node has just failed, so that there are more
    /// connections for each survivor.
    fn change_phases(&mut self, has_failed: bool) {
        let survivors = self.nodes.without(self.failed);
        let moved = self.failed.iter().map(|node| self.controllers[usize::from(node.0)].recent().connections).sum();
        let share = Share { moved, survivors: survivors.len().max(1) };
        for node in self.nodes.iter() {
            let controller = &mut self.controllers[usize::from(node.0)];
            let before = controller.phase;
            controller.phase = match (before, self.failed.is_empty(), survivors.contains(node)) {
                (RatePhase::Inactive | RatePhase::Releasing, false, true) => controller.start(&self.config, share),
                (RatePhase::Active, false, true) if has_failed => {
                    let window_bytes = controller.window_bytes;
                    let phase = controller.start(&self.config, share);
                    controller.window_bytes = controller.window_bytes.min(window_bytes);
                    phase
                }
                (RatePhase::Active, true, _) => RatePhase::Releasing,
                (_, _, false) => RatePhase::Inactive,
                (phase, _, true) => phase,
            };
            if controller.phase != before {
                self.changes.push_back((node, controller.status()));
            }
        }
    }

    /// Data of a connection enters the cluster.
    pub(crate) fn note_entering(&mut self, record: &mut Record, payload_bytes: u32) {
        let Some(controller) = self.controllers.get_mut(usize::from(record.node.0)) else { return };
        controller.current.bytes_in += u64::from(payload_bytes);
        if record.active_in != self.census {
            record.active_in = self.census;
            let census = &mut controller.census;
            census.connections += 1;
            if let Some(round_trip_us) = record.tcp.least_round_trip_us() {
                census.round_trips_us += u64::from(round_trip_us);
                census.round_trips += 1;
            }
        }
    }

    /// Data of a connection was acknowledged.
    pub(crate) fn note_acknowledged(&mut self, node: NodeId, bytes: u32) {
        if let Some(controller) = self.controllers.get_mut(usize::from(node.0)) {
            controller.current.bytes_acknowledged += u64::from(bytes);
        }
    }

    /// The window field that a segment to the near host gets. `None`: its own. A connection whose numbers are not known for
    /// certain is left alone.
    pub(crate) fn clamped_window(&mut self, record: &Record, segment: &TcpSegment) -> Option<u16> {
        let controller = self.controllers.get_mut(usize::from(record.node.0))?;
        let is_acknowledgement = segment.has(tcp_flags::ACK) && segment.flags & (tcp_flags::SYN | tcp_flags::RST) == 0;
        let is_valid = is_acknowledgement && record.tcp.is_valid_from_far(segment);
        if controller.phase == RatePhase::Inactive || !is_valid {
            return None;
        }
        let shift = record.tcp.window_shift(End::Far)?;
        let segment_bytes = u32::from(record.tcp.near_segment_bytes_max());
        let mut bytes = (controller.window_bytes as u32).next_multiple_of(segment_bytes);
        if record.moved_from().is_some() {
            let sent_bytes = record.tcp.near_next().wrapping_sub(segment.acknowledgement);
            let room_bytes = sent_bytes.saturating_add(SEGMENTS_AFTER_MOVE * segment_bytes);
            // A sender that has sent far more than its share is one that losses do not slow down.
            if room_bytes <= CLAMPS_AFTER_MOVE_MAX.saturating_mul(bytes) {
                bytes = bytes.max(room_bytes);
            }
        }
        let field = u64::from(bytes).div_ceil(1 << shift);
        let field = u16::try_from(field).ok().filter(|field| *field < segment.window)?;
        controller.current.clamped += 1;
        controller.clamped += 1;
        Some(field)
    }

    /// When the interval ends.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        Some(self.interval_began_at.map_or(Instant::ZERO, |began_at| began_at + self.config.granularity))
    }

    /// Ends the interval if it is over.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let Some(began_at) = self.interval_began_at else {
            (self.interval_began_at, self.census_began_at) = (Some(now), now);
            return;
        };
        let elapsed = now.saturating_since(began_at);
        if elapsed < self.config.granularity {
            return;
        }
        self.interval_began_at = Some(now);
        let is_census_over = self.is_census_over(now);
        if is_census_over {
            self.census = self.census.checked_add(1).unwrap_or(1);
            self.census_began_at = now;
        }
        for node in self.nodes.iter() {
            let controller = &mut self.controllers[usize::from(node.0)];
            let before = controller.phase;
            if is_census_over {
                controller.last_census = core::mem::take(&mut controller.census);
            }
            controller.end_interval(&self.config, elapsed.as_secs_f64());
            if controller.phase != before {
                self.changes.push_back((node, controller.status()));
            }
        }
        // A capacity that was measured meanwhile begins the control.
        self.change_phases(false);
    }

    fn is_census_over(&self, now: Instant) -> bool {
        let round_trips_s =
            self.nodes.iter().map(|node| self.controllers[usize::from(node.0)].round_trip_s(&self.config));
        let lasts_s = CENSUS_ROUND_TRIPS * round_trips_s.fold(0.0, f64::max);
        now.saturating_since(self.census_began_at).as_secs_f64() >= lasts_s
    }
}

/// The connections that failed nodes leave to the survivors.
#[derive(Clone, Copy)]
struct Share {
    moved: u32,
    survivors: u32,
}

impl Controller {
    fn status(&self) -> RateStatus {
        RateStatus {
            phase: self.phase,
            window_bytes: self.window_bytes as u32,
            connections: self.last_census.connections,
            capacity_bytes_per_s: self.capacity.unwrap_or_default() as u64,
            clamped: self.clamped,
        }
    }

    /// The census with more connections: the present one has just begun, or the last one was idle.
    const fn recent(&self) -> &Census {
        if self.census.connections > self.last_census.connections { &self.census } else { &self.last_census }
    }

    /// The mean of the active connections' lowest round trips, in seconds. With the present ones, which contain queues, the clamp would
    /// keep the queues.
    fn round_trip_s(&self, config: &RateControlConfig) -> f64 {
        let recent = self.recent();
        match recent.round_trips {
            0 => config.round_trip_default.as_secs_f64(),
            count => recent.round_trips_us as f64 / f64::from(count) / MICROS_PER_S,
        }
    }

    /// The first clamp: a multiple of the fair share of so many connections.
    fn initial_bytes(&self, config: &RateControlConfig, capacity: f64, connections: f64) -> f64 {
        config.initial_share * capacity * self.round_trip_s(config) / connections.max(1.0)
    }

    /// The control begins at a multiple of the fair share. It does not while the capacity is unknown.
    fn start(&mut self, config: &RateControlConfig, share: Share) -> RatePhase {
        let Some(capacity) = self.capacity else { return self.phase };
        let connections = f64::from(self.recent().connections) + f64::from(share.moved) / f64::from(share.survivors);
        self.window_bytes = in_range(self.initial_bytes(config, capacity, connections), config);
        RatePhase::Active
    }

    fn end_interval(&mut self, config: &RateControlConfig, elapsed_s: f64) {
        let interval = self.current;
        if config.capacity == Capacity::Measured && interval.is_saturated {
            let goodput = interval.bytes_acknowledged as f64 / elapsed_s;
            self.capacity =
                Some(self.capacity.map_or(goodput, |before| before.max(goodput))).filter(|known| *known > 0.0);
        }
        self.last = interval;
        self.current = Interval { is_saturated: self.is_saturated, ..Interval::default() };
        match self.phase {
            RatePhase::Inactive => {}
            RatePhase::Active => self.adjust(config, elapsed_s),
            RatePhase::Releasing => {
                self.window_bytes = in_range(self.window_bytes * config.release_factor, config);
                if interval.clamped == 0 || self.window_bytes >= f64::from(WINDOW_BYTES_MAX) {
                    self.phase = RatePhase::Inactive;
                }
            }
        }
    }

    /// Equations 9 and 10 [HALR, section 6.3].
    fn adjust(&mut self, config: &RateControlConfig, elapsed_s: f64) {
        let Some(capacity) = self.capacity else { return };
        let connections = f64::from(self.recent().connections.max(1));
        let excess_bytes = self.last.bytes_in as f64 - config.delta * capacity * elapsed_s;
        if excess_bytes > 0.0 {
            // The clamp may be far above what senders use, if they were few or idle. Then (9) would lower it for many intervals
            // without any effect on them.
            self.window_bytes = self.window_bytes.min(self.initial_bytes(config, capacity, connections));
        }
        let windows = connections * elapsed_s / self.round_trip_s(config);
        let rise = (-config.alpha * excess_bytes / windows).min(RISE_MAX * self.window_bytes);
        self.window_bytes = in_range(self.window_bytes + rise, config);
    }
}

fn in_range(window_bytes: f64, config: &RateControlConfig) -> f64 {
    window_bytes.clamp(config.window_bytes_min.into(), WINDOW_BYTES_MAX.into())
}

/// Writes the window field of a TCP segment, and updates its checksum (RFC 1624). A checksum that is left to hardware covers
/// the field when it is completed.
pub(crate) fn set_window(frame: &mut Frame<'_>, headers: &mut Headers, segment: &mut TcpSegment, window: u16) {
    let l4 = usize::from(headers.l4_offset);
    let is_partial = matches!(frame.checksum, Checksum::Partial { start, .. } if start == headers.l4_offset);
    let Some(header) = frame.bytes_mut().get_mut(l4..l4 + TCP_CHECKSUM_OFFSET + 2) else { return };
    let delta = Sum::ZERO.plus_u16(window).minus(Sum::ZERO.plus_u16(segment.window));
    header[TCP_WINDOW_OFFSET..][..2].copy_from_slice(&window.to_be_bytes());
    if !is_partial {
        let field = u16::from_be_bytes([header[TCP_CHECKSUM_OFFSET], header[TCP_CHECKSUM_OFFSET + 1]]);
        header[TCP_CHECKSUM_OFFSET..].copy_from_slice(&checksum::updated(field, delta).to_be_bytes());
    }
    segment.window = window;
}
