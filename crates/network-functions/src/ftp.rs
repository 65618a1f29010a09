//! The FTP helper: expects data connections that are announced on a control connection (RFC 959, RFC 2428), and
//! translates the announcements where addresses are translated.
//!
//! ```text
//!   client 10.0.0.2 ──"PORT 10,0,0,2,19,136"──► node ──"PORT 192,0,2,1,19,136"──► server      expect server ─► 192.0.2.1:5000
//!   client          ◄─"227 … 192,0,2,9,…"────── node ◄─"227 … 10,0,0,9,…"──────── server      expect client ─► 192.0.2.9:…
//! ```
//!
//! **Accepted announcements.** A client's announcements, and those of a server after a request; whole lines, at the
//! beginning of a line, outside multi-line replies. The address must be the announcer's, in its view or in the other
//! side's.
//!
//! Another address can make a server attack a third party (RFC 2577) and is ignored unless [`FtpConfig::loose`] is set;
//! ports below 1024 need [`FtpConfig::privileged_ports`]. Ignored lines pass unchanged, and the rules apply to the data
//! connection.
//!
//! **Segments.** A relevant line must lie in one segment and be read in order. A line in several segments, or behind a
//! gap, is refused ([`DropReason::PartialLine`]) until its sender retransmits it whole: three times at most, then it
//! passes unread. Of several announcements in one segment the first is used.
//!
//! **Numbers.** A changed line has another length, so later sequence numbers, acknowledgements and SACK blocks are
//! shifted ([`state`](mod@state)); connection tracking uses the sender's numbers, and so do ICMP errors ([`Renumbering`]).
//!
//! On translated connections the maximum segment size is lowered by [`GROWTH_BYTES_MAX`], so that a segment which grows
//! still fits the path. The helper's position in the chain does not matter.
//!
//! **Encrypted** control connections (RFC 4217) cannot be read after the server's `234`: use passive mode, and rules
//! for the server's data ports.

mod line;
mod reading;
pub mod state;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::num::NonZeroU8;
use core::time::Duration;

use flow::wire::{Packet, QuotedTcp, TcpSegment, Transport, ip_protocol, tcp_flags};
use flow::{Direction, DropReason, HashKey, NodeId, Tuple};

use crate::function::{Context, NetworkFunction, Renumbering, Verdict};
use crate::port_range::PortRange;
use crate::restoration::{Restoring, Unrestorable};
use reading::{SegmentData, repeat_change};
pub use state::FtpState;
use state::flags;

/// The name of the function.
pub const NAME: &str = "ftp";
/// The port of control connections (IANA).
pub const CONTROL_PORT: u16 = 21;
/// The maximum growth of a line in bytes, by which the segments of translated control connections are reduced.
pub const GROWTH_BYTES_MAX: u16 = 64;

const _: () = assert!(line::TEXT_BYTES_MAX <= GROWTH_BYTES_MAX as usize);
const _: () = assert!(line::LINE_BYTES_MAX <= i8::MAX as usize);

/// The configuration of the helper.
#[derive(Clone, Debug)]
pub struct FtpConfig {
    /// Ports of control connections, before or after translation.
    pub control_ports: Vec<PortRange>,
    /// Accept announcements of addresses other than the announcer's, as site-to-site transfers (FXP) need.
    pub loose: bool,
    /// Accept announcements of ports below 1024.
    pub privileged_ports: bool,
    /// The timeout of expectations.
    pub timeout: Duration,
    /// Ports on translated addresses that are announced for clients, divided between the nodes: those of source NAT.
    pub ports: PortRange,
    /// This node.
    pub node: NodeId,
    /// The number of nodes that divide the ports.
    pub nodes: NonZeroU8,
    /// The secret that randomises ports.
    pub key: HashKey,
}

/// A mistake in the helper's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FtpError {
    /// The range has no part for this node.
    #[error("the ports {ports} cannot be divided between {nodes} nodes so that node {} has a part", node.0)]
    NoPorts {
        /// The ports.
        ports: PortRange,
        /// The node.
        node: NodeId,
        /// The nodes.
        nodes: NonZeroU8,
    },
}

/// The helper; see the module's documentation.
#[derive(Debug)]
pub struct Ftp {
    config: FtpConfig,
    /// This node's part of the ports.
    ports: PortRange,
}

/// The counters, in their order.
#[derive(Clone, Copy)]
enum Counter {
    ActiveExpected,
    PassiveExpected,
    Rewritten,
    AddressesRefused,
    PortsRefused,
    PartsRefused,
}

const COUNTER_NAMES: [&str; 6] =
    ["active_expected", "passive_expected", "rewritten", "addresses_refused", "ports_refused", "parts_refused"];

impl Ftp {
    /// A helper for control connections on these ports.
    ///
    /// # Errors
    /// [`FtpError`].
    pub fn new(config: FtpConfig) -> Result<Self, FtpError> {
        let FtpConfig { ports, node, nodes, .. } = config;
        let ports = ports.slice(node, nodes).ok_or(FtpError::NoPorts { ports, node, nodes })?;
        Ok(Self { config, ports })
    }

    /// Whether a connection is a control connection by its ports, before or after translation.
    fn is_control(&self, original: &Tuple, outgoing: &Tuple) -> bool {
        let ports = [original.destination_port, outgoing.destination_port];
        original.protocol == ip_protocol::TCP
            && self.config.control_ports.iter().any(|range| ports.iter().any(|port| range.contains(*port)))
    }

    fn handle(
        &self,
        state: &mut FtpState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
        segment: &TcpSegment,
    ) -> Result<(), DropReason> {
        let data = SegmentData { direction, sequence: segment.sequence, payload: packet.payload() };
        let has_payload = !data.payload.is_empty() && !segment.has(tcp_flags::SYN);
        if has_payload {
            self.refuse_part(state, context, data)?;
        }
        // A dropped segment must not change the state.
        let mut next = *state;
        let (own, other) = (direction.index(), direction.reverse().index());
        if segment.has(tcp_flags::ACK) {
            next.sides[other].note_acknowledgement(segment.acknowledgement);
        }
        let mut edit = None;
        if has_payload {
            let repeated = repeat_change(&next, context, data)?;
            // A refused line is expected again before later data.
            let announced = self.read(&mut next, context, data).inspect_err(|_| state.note_awaited(direction))?;
            edit = repeated.or(announced);
        }
        // A later SYN is a retransmission, or not of this connection.
        if segment.has(tcp_flags::SYN) && next.next(Direction::Reply).is_none() {
            next.begin(direction, segment.sequence.wrapping_add(1));
        }
        lower_maximum_segment(context, packet, segment);
        let (own, other) = (next.sides[own], next.sides[other]);
        if !own.is_plain() || !other.is_plain() {
            let acknowledgement = other.backwards(segment.acknowledgement);
            packet.renumber_tcp(own.forwards(segment.sequence), acknowledgement, |edge| other.backwards(edge));
        }
        if let Some(edit) = edit
            && !packet.replace_payload(edit.range, edit.text.as_bytes())
        {
            return Err(DropReason::PayloadUnchangeable);
        }
        *state = next;
        Ok(())
    }
}

/// Segments of a translated connection may grow: its SYNs announce a smaller maximum.
fn lower_maximum_segment(context: &Context<'_>, packet: &mut Packet<'_, '_>, segment: &TcpSegment) {
    if let Some(bytes) = segment.maximum_segment_bytes
        && context.original != context.reply.inverse()
        && bytes > 2 * GROWTH_BYTES_MAX
    {
        packet.clamp_mss(bytes - GROWTH_BYTES_MAX);
    }
}

impl NetworkFunction for Ftp {
    type State = FtpState;

    fn name(&self) -> &'static str {
        NAME
    }

    /// `active_expected` and so on; see the table in `docs/configuration.md`.
    fn counter_names(&self) -> Vec<String> {
        COUNTER_NAMES.map(|name| name.to_string()).into()
    }

    fn on_init(&self, context: &mut Context<'_>, _packet: &Packet<'_, '_>) -> Result<FtpState, DropReason> {
        let is_control = context.expected.is_none() && self.is_control(&context.original, &context.outgoing());
        let mut state = FtpState::default();
        state.set(flags::CONTROL, is_control);
        Ok(state)
    }

    fn on_packet(
        &self,
        state: &mut FtpState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Verdict {
        if !state.has(flags::CONTROL) {
            return Verdict::Forward;
        }
        let Transport::Tcp(segment) = packet.headers.transport else { return Verdict::Forward };
        match self.handle(state, context, packet, direction, &segment) {
            Ok(()) => Verdict::Forward,
            Err(reason) => Verdict::Drop(reason),
        }
    }

    fn needs_packets(&self, state: &FtpState) -> bool {
        state.has(flags::CONTROL)
    }

    /// Except for control connections, for which it keeps the read position.
    fn restorable(&self) -> Result<(), Unrestorable> {
        Ok(())
    }

    fn is_restorable(&self, state: &FtpState) -> bool {
        !state.has(flags::CONTROL)
    }

    fn restore(&self, restoring: &mut Restoring) -> Option<FtpState> {
        (!self.is_control(&restoring.original, &restoring.outgoing())).then(FtpState::default)
    }

    fn renumbering(&self) -> Option<&dyn Renumbering<FtpState>> {
        Some(self)
    }
}

impl Renumbering<FtpState> for Ftp {
    fn as_sent(&self, state: &FtpState, segment: &mut TcpSegment, direction: Direction) {
        let other = &state.sides[direction.reverse().index()];
        if !state.has(flags::CONTROL) || other.is_plain() || !segment.has(tcp_flags::ACK) {
            return;
        }
        segment.acknowledgement = other.backwards(segment.acknowledgement);
        segment.sack_end = other.backwards(segment.sack_end);
    }

    fn restore(&self, state: &FtpState, quoted: &mut QuotedTcp<'_>, direction: Direction) {
        let (own, other) = (&state.sides[direction.index()], &state.sides[direction.reverse().index()]);
        if state.has(flags::CONTROL) && !(own.is_plain() && other.is_plain()) {
            quoted.renumber(|number| own.backwards(number), |number| other.forwards(number));
        }
    }
}
