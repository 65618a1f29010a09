//! Looking on while a gateway works: what is asked of its workers, and what they pass on.

use std::sync::Weak;
use std::sync::mpsc::{SyncSender, TrySendError};

use cluster::node::Node;
use cluster::observation::{Dropped, Observed, OwnFrames, PacketFilter, Point, Sight, Subject, WatchId};
use flow::{DropReason, PortId};
use network_functions::tuple_filter::TupleFilter;

use super::flows::{FlowDescriber, tuple_filter};
use api::{FlowFilterText, PacketFilterText};

/// Things seen that wait for the client's thread; what a worker sees while there are so many is missed.
pub const SIGHTS_WAITING_MAX: usize = 256;

/// Reads the conditions on packets.
///
/// # Errors
/// A sentence that names the condition that cannot be read, and its syntax.
pub fn packet_filter(text: &PacketFilterText, describer: &FlowDescriber) -> Result<PacketFilter, String> {
    let PacketFilterText { protocol, source, destination, port, ingress, dropped, own_frames } = text.clone();
    let ends = FlowFilterText { protocol, source, destination, port, ..FlowFilterText::default() };
    let ingress = ingress.map(|name| port_of(&name, describer)).transpose()?;
    let dropped = dropped.map(|reason| drop_of(&reason)).transpose()?;
    let own_frames = if own_frames { OwnFrames::Included } else { OwnFrames::LeftOut(describer.own_addresses.clone()) };
    Ok(PacketFilter { tuple: tuple_filter(&ends)?, ingress, dropped, own_frames })
}

fn port_of(name: &str, describer: &FlowDescriber) -> Result<PortId, String> {
    let place = describer.port_names.iter().position(|known| known == name);
    let port = place.and_then(|place| u8::try_from(place).ok()).map(PortId);
    port.ok_or_else(|| format!("ingress: there is no port {name:?}: write one of {}", describer.port_names.join(", ")))
}

fn drop_of(reason: &str) -> Result<Dropped, String> {
    if reason == "any" {
        return Ok(Dropped::Anyhow);
    }
    let known = DropReason::ALL.iter().find(|known| known.label() == reason);
    known.map(|reason| Dropped::For(*reason)).ok_or_else(|| {
        let labels: Vec<_> = DropReason::ALL.iter().map(|reason| reason.label()).collect();
        format!("dropped: {reason:?} is not known: write any, or one of {}", labels.join(", "))
    })
}

/// Reads where frames are to be captured: `ingress`, `egress`, `drop` or `after:FUNCTION`.
///
/// # Errors
/// A sentence with its syntax.
pub fn point(text: &str, functions: &[&str]) -> Result<Point, String> {
    match text.split_once(':') {
        None if text == "ingress" => Ok(Point::Ingress),
        None if text == "egress" => Ok(Point::Egress),
        None if text == "drop" => Ok(Point::Drop),
        Some(("after", function)) if functions.contains(&function) => Ok(Point::After(function.to_owned())),
        Some(("after", function)) => {
            Err(format!("at: there is no function {function:?}: write one of {}", functions.join(", ")))
        }
        _ => Err(format!("at: {text:?} is not known: write ingress, egress, drop or after:FUNCTION")),
    }
}

/// What a worker is asked to look at.
#[derive(Clone)]
pub struct WatchOrder {
    /// The watch's name, its own among all of the gateway's.
    pub id: WatchId,
    /// What.
    pub subject: Subject,
    /// How many things at most.
    pub sights_max: u64,
    /// Where they go. The worker never waits for room.
    pub sink: SyncSender<Witnessed>,
    /// Gone when the client looks no more.
    pub alive: Weak<()>,
}

/// Something that a worker saw.
#[derive(Clone, Debug)]
pub struct Witnessed {
    /// Things that the worker saw before and could not pass on.
    pub missed: u64,
    /// What.
    pub sight: Sight,
}

/// The watches that run on a worker.
#[derive(Default)]
pub struct Watches {
    running: Vec<Running>,
}

struct Running {
    id: WatchId,
    sink: SyncSender<Witnessed>,
    alive: Weak<()>,
    /// What found no room in the queue to the client.
    missed: u64,
}

impl Watches {
    /// Begins to look.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub fn begin(&mut self, node: &mut Node, order: WatchOrder) -> Result<(), String> {
        let WatchOrder { id, subject, sights_max, sink, alive } = order;
        node.pipeline_mut().observation_mut().begin(id, subject, sights_max).map_err(|error| error.to_string())?;
        self.running.push(Running { id, sink, alive, missed: 0 });
        Ok(())
    }

    /// Passes on what was seen, and ends the watches of those who look no more. After every turn.
    #[inline]
    pub fn pass_on(&mut self, node: &mut Node) {
        if !self.running.is_empty() {
            self.pass_on_each(node);
        }
    }

    #[cold]
    fn pass_on_each(&mut self, node: &mut Node) {
        while let Some(Observed { watch, missed, sight }) = node.pipeline_mut().observation_mut().poll() {
            let Some(running) = self.running.iter_mut().find(|running| running.id == watch) else { continue };
            let witnessed = Witnessed { missed: missed + running.missed, sight };
            if let Err(TrySendError::Full(_)) = running.sink.try_send(witnessed) {
                running.missed += 1;
            }
        }
        self.running.retain(|running| {
            let is_wanted = running.alive.strong_count() > 0;
            if !is_wanted {
                node.pipeline_mut().observation_mut().end(running.id);
            }
            is_wanted
        });
    }
}

/// The conditions on connections that are followed. Their state and role change, and are no conditions.
///
/// # Errors
/// A sentence that names the condition that cannot be read, or has no meaning here.
pub fn followed(text: &FlowFilterText) -> Result<TupleFilter, String> {
    if text.state.is_some() || text.role.is_some() {
        return Err("state and role change while a connection is followed: leave them out".to_owned());
    }
    tuple_filter(text)
}
