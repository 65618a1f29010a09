//! How a run is described to its reader.

use std::format;
use std::string::{String, ToString as _};
use std::vec::Vec;

use flow::wire::tlv;

use super::Exploration;
use super::state::{Flight, State};
use super::steps::Action;
use crate::message::{ACK, AckView, DELETE, Header, NEW, RESYNC_END, UPDATE, flags};

/// Steps described after the last action, while the network is quiet.
const QUIET_STEPS: usize = 40;

impl Exploration {
    /// Takes the actions again and describes each step, and then how the network grows quiet.
    pub(super) fn describe(&self, actions: &[Action]) -> String {
        let mut state = self.begin();
        let mut lines = std::vec![describe_state(&state)];
        for action in actions {
            state = self.step(&state, *action);
            lines.push(format!("{action:?}: {}", describe_state(&state)));
        }
        lines.push("the network grows quiet".to_string());
        for _ in 0..QUIET_STEPS {
            let Some(next) = self.next_when_quiet(&state).filter(|_| state.broken.is_none()) else { break };
            state = next;
            lines.push(describe_state(&state));
        }
        lines.join("\n")
    }
}

fn describe_state(state: &State) -> String {
    let nodes: Vec<String> = state
        .nodes
        .iter()
        .map(|node| {
            let status = node.session.status();
            let copies: Vec<_> =
                node.table.copies.values().map(|copy| (copy.tuple, copy.incarnation, copy.version)).collect();
            format!(
                "{:x} {:?} of {:x} sent all {} received all {} in flight {} copies {copies:?}",
                status.session >> 16,
                status.link,
                status.peer_session.unwrap_or(0) >> 16,
                status.sent_all,
                status.received_all,
                status.in_flight,
            )
        })
        .collect();
    let wire: Vec<String> = state.wire.iter().map(|flight| describe_flight(flight)).collect();
    let broken = state.broken.map_or(String::new(), |property| format!("  BROKEN: {property:?}"));
    format!(
        "at {} ms\n    {}\n    wire {}{broken}",
        state.now.as_nanos() / 1_000_000,
        nodes.join("\n    "),
        wire.join(", ")
    )
}

fn describe_flight(flight: &Flight) -> String {
    let (header, body) = Header::parse(&flight.bytes).expect("sessions send datagrams");
    let names = [
        (flags::HELLO, "Hello"),
        (flags::HELLO_BACK, "Hello Back"),
        (flags::PROBE, "Probe"),
        (flags::OUT_OF_SYNC, "Out of Sync"),
        (flags::RESYNC, "Resync"),
        (flags::GOODBYE, "Goodbye"),
    ];
    let mut said: Vec<String> =
        names.iter().filter(|(flag, _)| header.has(*flag)).map(|(_, name)| (*name).to_string()).collect();
    for (message_type, body) in tlv::read(body).flatten() {
        said.push(match message_type {
            ACK => format!("Ack {:x}", AckView::parse(body).map_or(0, |ack| ack.next)),
            NEW => "New".to_string(),
            UPDATE => "Update".to_string(),
            DELETE => "Delete".to_string(),
            RESYNC_END => "Resync End".to_string(),
            other => format!("message {other:x}"),
        });
    }
    let (session, peer) = (header.session >> 16, header.peer_session >> 16);
    format!(
        "[to {} {session:x} for {peer:x} round {} number {:x}: {}]",
        flight.to,
        header.round,
        header.first,
        said.join(" ")
    )
}
