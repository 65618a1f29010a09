//! Where packets come from.

use std::collections::BTreeMap;

use flow::wire::Transport;

use super::packet::Observed;
use crate::trace::{Admission, Packet, Trace, TraceError};

/// Why a packet that could be read was not studied: what it carries is not all there.
pub(super) const TRUNCATED: &str = "truncated";

/// A site's packets, in order.
pub trait Source {
    /// Lends the next packet. Returns false at the end; a frame that is no packet to be studied lends nothing.
    fn feed(&mut self, visit: &mut dyn FnMut(&Observed<'_>)) -> bool;

    /// Bytes read, and of how many.
    fn read_bytes(&self) -> [Option<u64>; 2];

    /// What was left out up to here, by reason: frames.
    fn skipped(&self) -> BTreeMap<String, u64>;

    /// Captures that end before they should, in words.
    fn damaged(&self) -> Vec<String>;
}

/// The packets of captures.
#[derive(Debug)]
pub struct TraceSource {
    trace: Trace,
    truncated: u64,
}

impl TraceSource {
    /// Opens captures, and admits what a gateway would drop as `admission` chooses.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn open(captures: &[std::path::PathBuf], admission: Admission) -> Result<Self, TraceError> {
        Trace::open(captures).map(|trace| Self { trace: trace.admitting(admission), truncated: 0 })
    }
}

impl From<Trace> for TraceSource {
    fn from(trace: Trace) -> Self {
        Self { trace, truncated: 0 }
    }
}

impl Source for TraceSource {
    fn feed(&mut self, visit: &mut dyn FnMut(&Observed<'_>)) -> bool {
        match self.trace.next() {
            None => return false,
            // Half a payload is no payload: what is missing could be redundant or not.
            Some(packet) if packet.is_truncated() => self.truncated += 1,
            Some(packet) => visit(&observed(&packet)),
        }
        true
    }

    fn read_bytes(&self) -> [Option<u64>; 2] {
        let progress = self.trace.progress();
        [Some(progress.read_bytes), progress.total_bytes]
    }

    fn skipped(&self) -> BTreeMap<String, u64> {
        let skips = self.trace.skips().iter().map(|(skip, frames, _)| (skip.label().to_owned(), frames));
        let truncated = (self.truncated > 0).then(|| (TRUNCATED.to_owned(), self.truncated));
        skips.chain(truncated).collect()
    }

    fn damaged(&self) -> Vec<String> {
        self.trace.damages().iter().map(ToString::to_string).collect()
    }
}

fn observed<'a>(packet: &Packet<'a>) -> Observed<'a> {
    let tuple = packet.tuple();
    let (source, destination) = (tuple.source_addr(), tuple.destination_addr());
    Observed {
        at: packet.at,
        source: source.ip(),
        destination: destination.ip(),
        source_port: source.port(),
        destination_port: destination.port(),
        ip_protocol: tuple.protocol,
        tcp: match packet.headers.transport {
            Transport::Tcp(segment) => Some((segment.sequence, segment.flags)),
            _ => None,
        },
        ip_bytes: packet.headers.l3_bytes,
        payload: packet.payload,
    }
}
