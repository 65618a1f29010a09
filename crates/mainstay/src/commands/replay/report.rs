//! What became of a capture's packets.

use std::collections::BTreeMap;
use std::time::Duration;

use flow::{DropReason, Instant, PortId};
use serde::Serialize;

use super::ingress::Certainty;
use super::player::{CapturedFrame, Outcome, Player};
use super::timeline::Stamp;
use config::Config;
use console::{Table, count};

/// What became of a capture's packets; `--json` prints it as it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ReplayReport {
    /// Packets played.
    pub packets: u64,
    /// Those that went on, perhaps translated, or were answered.
    pub forwarded: u64,
    /// Those that were for the gateway itself: ARP, neighbour discovery.
    pub taken: u64,
    /// Those that went no further.
    pub dropped: u64,
    /// The same by reason.
    pub dropped_by_reason: BTreeMap<&'static str, u64>,
    /// Connections.
    pub connections: Connections,
    /// What the functions counted, by function and event.
    pub functions: BTreeMap<String, BTreeMap<String, u64>>,
    /// Packets by port, in the order of the configuration.
    pub ports: Vec<PortReport>,
    /// Time from the first packet to the last, without leaps.
    pub duration_s: f64,
    /// Packets of which the capture holds the beginning only; their checksums were not checked.
    pub truncated: u64,
    /// Packets stamped earlier than one before them; they were played without delay.
    pub out_of_order: u64,
    /// Packets stamped more than a week before or after the one before them; they were played without delay.
    pub time_leaps: u64,
    /// Packets of which neither interface nor source said on which port they came in.
    pub ingress_guessed: u64,
    /// The capture ends within a packet.
    pub is_truncated: bool,
    #[serde(skip)]
    began_at: Option<Instant>,
}

/// Connections of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Connections {
    /// Begun.
    pub begun: u64,
    /// Ended, by their protocol or for want of packets.
    pub ended: u64,
    /// The most at a time.
    pub peak: u32,
    /// Left when the last packet had been played.
    pub at_end: u32,
}

/// Packets of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// Packets of the capture that came in on it.
    pub received: u64,
    /// Packets that the gateway sent on it: those forwarded, answers, ICMP errors.
    pub sent: u64,
}

impl ReplayReport {
    pub(super) fn new(config: &Config) -> Self {
        let ports = config.ports.iter().map(|port| PortReport { name: port.name.clone(), ..PortReport::default() });
        Self { ports: ports.collect(), ..Self::default() }
    }

    /// Counts a packet, played at `at` on the replay's clock.
    pub(super) fn note_packet(&mut self, stamp: Stamp, at: Instant, captured: &CapturedFrame<'_>) {
        self.packets += 1;
        self.truncated += u64::from(captured.is_truncated());
        self.out_of_order += u64::from(stamp == Stamp::Earlier);
        self.time_leaps += u64::from(stamp == Stamp::Leap);
        let began_at = *self.began_at.get_or_insert(at);
        self.duration_s = at.saturating_since(began_at).as_secs_f64();
    }

    pub(super) fn note_ingress(&mut self, port: PortId, certainty: Certainty) {
        self.ingress_guessed += u64::from(certainty == Certainty::Guessed);
        if let Some(port) = self.ports.get_mut(usize::from(port.0)) {
            port.received += 1;
        }
    }

    pub(super) fn note_sent(&mut self, port: PortId) {
        if let Some(port) = self.ports.get_mut(usize::from(port.0)) {
            port.sent += 1;
        }
    }

    pub(super) fn note_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Forwarded => self.forwarded += 1,
            Outcome::Taken => self.taken += 1,
            Outcome::Dropped(reason) => {
                self.dropped += 1;
                *self.dropped_by_reason.entry(reason.label()).or_default() += 1;
            }
        }
    }

    pub(super) fn note_connections(&mut self, connections: u32) {
        self.connections.peak = self.connections.peak.max(connections);
    }

    pub(super) fn finish(&mut self, player: &Player) {
        let pipeline = player.node().pipeline();
        self.connections.begun = pipeline.counters().begun;
        self.connections.ended = pipeline.counters().ended;
        self.connections.at_end = player.connections();
        for (name, value) in pipeline.chain().counter_names().iter().zip(pipeline.chain_counters().values()) {
            let (function, event) = name.split_once('.').unwrap_or(("", name));
            self.functions.entry(function.to_owned()).or_default().insert(event.to_owned(), *value);
        }
    }

    /// The report as people read it.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut sums = Table::of("|>");
        let mut row = |name: &str, value: String| sums.row([name.to_owned(), value]);
        row("packets", count(self.packets));
        row("time", console::duration(Duration::try_from_secs_f64(self.duration_s).unwrap_or_default()));
        row("forwarded", count(self.forwarded));
        row("for the gateway itself", count(self.taken));
        row("dropped", count(self.dropped));
        row("connections begun", count(self.connections.begun));
        row("connections ended", count(self.connections.ended));
        row("connections at a time, at most", count(self.connections.peak.into()));
        row("connections at the end", count(self.connections.at_end.into()));
        let mut text = sums.render().trim_start().to_owned();
        let mut section = |table: &Table| {
            if !table.is_empty() {
                text.push('\n');
                text.push_str(&table.render());
            }
        };
        let mut drops = Table::of("DROPPED AS|>PACKETS");
        for (reason, packets) in &self.dropped_by_reason {
            drops.row([(*reason).to_owned(), count(*packets)]);
        }
        section(&drops);
        let mut functions = Table::of("FUNCTION|EVENT|>COUNT");
        for (function, events) in &self.functions {
            for (event, value) in events {
                functions.row([function.clone(), event.clone(), count(*value)]);
            }
        }
        section(&functions);
        let mut ports = Table::of("PORT|>RECEIVED|>SENT");
        for port in &self.ports {
            ports.row([port.name.clone(), count(port.received), count(port.sent)]);
        }
        section(&ports);
        let remarks = self.remarks();
        if !remarks.is_empty() {
            text.push('\n');
            text.push_str(&remarks);
        }
        text
    }

    /// What may have made the result another than the network's.
    fn remarks(&self) -> String {
        let mut text = String::new();
        let mut remark_on = |packets: u64, remark: &str| {
            if packets > 0 {
                text.push_str(&format!("{}: {remark}\n", console::counted(packets as usize, "packet")));
            }
        };
        remark_on(self.truncated, "cut short by the capture; their checksums were not checked");
        remark_on(self.out_of_order, "stamped earlier than one before them; played without delay");
        remark_on(
            self.time_leaps,
            "stamped more than a week before or after the one before them; played without delay (a clock was set, or the file \
             is damaged)",
        );
        remark_on(
            self.ingress_guessed,
            "neither interface nor source identifies their ingress port, which was guessed: --port-map names it",
        );
        let dropped_as = |reason: DropReason| self.dropped_by_reason.get(reason.label()).copied().unwrap_or_default();
        remark_on(
            dropped_as(DropReason::BadTransportChecksum) + dropped_as(DropReason::BadIpChecksum),
            "a checksum is wrong, as in captures from the sending host (--ignore-checksums believes them)",
        );
        remark_on(
            dropped_as(DropReason::NoConnection),
            "of TCP connections whose beginning is not in the capture (--loose picks them up)",
        );
        remark_on(
            dropped_as(DropReason::OutOfWindow),
            "outside the window, as they are when the capture misses segments (tracking.liberal lets them pass)",
        );
        if self.is_truncated {
            text.push_str("the capture ends within a packet: it was cut off, or is still being written\n");
        }
        text
    }
}
