//! The record of a run: a digest of all events, and readable lines if requested.

use flow::random::mix;
use flow::wire::{self, Parsed};
use flow::{Frame, Instant, PortId};

/// The maximum number of lines; beyond it the oldest are dropped.
const LINES_MAX: usize = 200_000;

/// A record of a run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    digest: u64,
    lines: Option<std::collections::VecDeque<String>>,
}

impl Trace {
    pub(crate) fn new(keeps_lines: bool) -> Self {
        Self { digest: 0, lines: keeps_lines.then(Default::default) }
    }

    /// Records an event: a number for the digest, a line for readers.
    pub(crate) fn note(&mut self, now: Instant, what: u64, line: impl FnOnce() -> String) {
        self.digest = mix(self.digest ^ now.as_nanos()).wrapping_add(mix(what));
        if let Some(lines) = &mut self.lines {
            if lines.len() >= LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(format!("{:>13.6} {}", now.as_nanos() as f64 / 1e9, line()));
        }
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default().into()
    }
}

/// A hash of some bytes (FNV-1a).
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A frame in words.
pub(crate) fn describe(bytes: &[u8]) -> String {
    let mut copy = bytes.to_vec();
    let length_bytes = copy.len();
    let Some(frame) = Frame::new(&mut copy, 0, length_bytes, PortId(0)) else { return String::from("nothing") };
    match wire::parse(&frame) {
        Ok(Parsed::Ip(headers)) => match headers.transport {
            wire::Transport::Tcp(segment) => format!(
                "{} flags {:#04x} seq {} ack {} window {} {} bytes",
                headers.tuple,
                segment.flags,
                segment.sequence,
                segment.acknowledgement,
                segment.window,
                segment.payload_bytes
            ),
            _ => format!("{} {} bytes", headers.tuple, headers.l3_bytes),
        },
        Ok(Parsed::Arp(offset)) => {
            let view = wire::arp::ArpView::new_checked(&bytes[usize::from(offset)..]);
            view.map_or_else(|_| String::from("arp"), |arp| format!("{:?}", arp.message()))
        }
        Err(reason) => format!("an unreadable frame ({})", reason.label()),
    }
}
