//! What a pair of gateways is to the experiment, ours or others: something that is started, gets ready, and of which the
//! active one dies.
//!
//! ```text
//!   start ──► wait_until_ready ──► (traffic) ──► check_roles ──► kill_active ──► await_take_over ──► (traffic) ──► drop
//! ```

use std::net::IpAddr;

use crate::bench::BenchError;
use crate::testbed::clock::Epoch;
use crate::testbed::watch::Watch;
use api::{Event, EventKind};

/// Two gateways between the client and the server of a [`super::network::Network`], with the network's shared addresses.
/// Both filter statefully, translate the client's address, and pick up no TCP connection in the middle: a connection
/// whose state is lost is lost. A pair is made by a function of its own, as each kind needs something else; dropping
/// it ends whatever it has started.
pub trait Pair {
    /// Waits until one gateway is active and the other could go on in its place with all that it knows.
    ///
    /// # Errors
    /// The pair does not get ready: which part of it, and why.
    fn wait_until_ready(&mut self, watch: &Watch) -> Result<(), BenchError>;

    /// Checks that roles are still what they were when the pair was ready.
    ///
    /// # Errors
    /// They are not, or something of the pair has ended: killing the active one would prove nothing.
    fn check_roles(&mut self) -> Result<(), BenchError>;

    /// Kills the active gateway as a power cut would: from this call on it forwards nothing, and sends nothing, not to
    /// its peer either. The link between the two has been cut by the caller just before, so that what waits in the
    /// system's buffers is lost with the gateway. Returns the moment of the kill.
    ///
    /// # Errors
    /// The gateway cannot be killed, or was not the active one any more.
    fn kill_active(&mut self) -> Result<Epoch, BenchError>;

    /// Whether connections to this address of the server do not pass the gateway that is killed, because both are at work.
    fn spares(&self, server: IpAddr) -> bool {
        let _ = server;
        false
    }

    /// Waits until the other gateway has taken over. A pair whose gateways do not watch each other moves the addresses
    /// here, as the manager would that its operators use.
    ///
    /// # Errors
    /// A signal came. That no node takes over is a result, not an error.
    fn await_take_over(&mut self, watch: &Watch, killed_at: Epoch) -> Result<TakeOver, BenchError>;
}

/// When the survivor did what, in milliseconds from the kill; nothing where it never did or does not report it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TakeOver {
    /// It knew that the active gateway is dead.
    pub detected_ms: Option<f64>,
    /// It had announced the addresses.
    pub announced_ms: Option<f64>,
    /// It forwarded the first packet of a connection that the other had carried.
    pub first_packet_ms: Option<f64>,
}

impl TakeOver {
    /// What the survivor reports of it.
    pub(in crate::bench) fn of(events: &[Event], killed_at: Epoch) -> Self {
        let first = |kind| {
            let of_kind = events.iter().filter(|event| event.kind == kind);
            of_kind.map(|event| killed_at.ms_to_event(event.monotonic_ns)).find(|ms: &f64| *ms >= 0.0)
        };
        Self {
            detected_ms: first(EventKind::PeerDown),
            announced_ms: first(EventKind::Announced),
            first_packet_ms: first(EventKind::FirstPacketForwarded),
        }
    }
}
