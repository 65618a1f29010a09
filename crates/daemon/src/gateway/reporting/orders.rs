//! What operators want done with the node.

use cluster::node::DrainRefused;
use packet_io::clock;

use super::answers::Answers;
use super::roles::hindrances;
use api::EventKind;
use control::OrderOutcome;
use control::orders::{Order, ReloadOrder, ServicePaths};

impl Answers<'_> {
    /// Does what an operator wants, and remembers it.
    pub(super) fn carry_out(&mut self, order: Order) -> OrderOutcome {
        let now = clock::now();
        match order {
            Order::Reload(order) => {
                let ReloadOrder {
                    reconfiguration,
                    lazy,
                    start,
                    tracking,
                    announce_refresh,
                    service_paths,
                    peers,
                    node_name,
                    summary,
                } = *order;
                let reloaded = self.node.reload(now, reconfiguration).map_err(|error| error.to_string())?;
                self.reporting.set_peers(peers);
                if let Some(ServicePaths { ports, detector, seed, bytes_per_s_max }) = service_paths {
                    self.node.set_service_paths(&ports, detector, seed).map_err(|error| error.to_string())?;
                    self.node.set_service_path_rate(bytes_per_s_max);
                }
                self.node.set_lazy(now, lazy).map_err(|error| error.to_string())?;
                self.node.set_start(now, start);
                if self.reporting.place.leads() {
                    self.node.set_tracking(now, tracking);
                }
                self.node.set_announce_refresh(now, announce_refresh);
                self.reporting.name = node_name;
                self.reporting.reloads.applied += 1;
                // The lead worker is last to apply it: its event then holds for all workers.
                if self.reporting.place.leads() {
                    self.reporting.note(now, EventKind::Reloaded, &summary);
                }
                Ok(reloaded.reevaluates)
            }
            Order::Drain { is_forced } => {
                let drained = self.node.drain(now, is_forced);
                drained.map_err(|refused| match refused {
                    DrainRefused::NobodyReady => {
                        let hindrances = hindrances(&self.node.status(now)).join("; ");
                        format!("{refused}: {hindrances} (--force drains all the same)")
                    }
                    _ => format!("{refused} (--force drains all the same)"),
                })?;
                self.reporting.note(now, EventKind::Draining, if is_forced { "forced" } else { "" });
                Ok(false)
            }
            Order::Undrain => {
                self.node.undrain(now);
                self.reporting.note(now, EventKind::Undrained, "");
                Ok(false)
            }
            Order::EndFailed => {
                self.node.handle_input_change();
                Ok(true)
            }
            Order::HandleAnswer => {
                self.node.handle_answer(now);
                Ok(true)
            }
            Order::DrainNode { .. } => Err("this is a gateway, not an edge".to_owned()),
            Order::Sync(_) | Order::SyncReload(_) => Err("this is a gateway, not mainstay sync".to_owned()),
            Order::Note(kind, detail) => {
                self.reporting.reloads.refused += u64::from(kind == EventKind::ReloadRefused);
                self.reporting.note(now, kind, &detail);
                Ok(false)
            }
        }
    }
}
