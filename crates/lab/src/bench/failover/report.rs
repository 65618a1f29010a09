//! What `mainstay bench failover` prints.

use serde::Serialize;

use console::count;

/// The result. Times are from the kill on.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Report {
    /// Established connections.
    pub(super) connections: u32,
    /// Those on the fast path of the active node when it was killed.
    pub(super) installed_before: u32,
    /// Until the standby knew that the active node is dead.
    pub(super) detection_ms: Option<f64>,
    /// Until it had announced the addresses.
    pub(super) takeover_ms: Option<f64>,
    /// Until the first packet of a connection came through.
    pub(super) first_packet_ms: Option<f64>,
    /// Until packets of all connections that are not broken had come through, one each way.
    pub(super) last_packet_ms: Option<f64>,
    /// Connections whose packets did not come through.
    pub(super) broken: u32,
    /// Connections on the survivor's fast path, after some more packets of each.
    pub(super) installed_after: u32,
}

impl Report {
    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let ms = |time: Option<f64>| time.map_or_else(|| "unknown".to_owned(), |ms| format!("{ms:.1} ms"));
        let count = |connections: u32| count(connections.into());
        format!(
            "{} TCP connections through a pair of nodes, {} of them on the fast path when the active node was killed\n\n\
             kill to detection                     {}\n\
             kill to addresses announced           {}\n\
             kill to the first packet              {}\n\
             kill to a packet each way on all      {}\n\n\
             {} connections are broken. {} are on the survivor's fast path.\n",
            count(self.connections),
            count(self.installed_before),
            ms(self.detection_ms),
            ms(self.takeover_ms),
            ms(self.first_packet_ms),
            ms(self.last_packet_ms),
            count(self.broken),
            count(self.installed_after),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_counts_and_times() {
        let report = Report {
            connections: 200_000,
            installed_before: 200_000,
            detection_ms: Some(98.4),
            takeover_ms: None,
            first_packet_ms: Some(103.0),
            last_packet_ms: Some(900.0),
            broken: 2,
            installed_after: 199_998,
        };
        let text = report.describe();
        for part in ["200 000 TCP connections", "98.4 ms", "unknown", "2 connections are broken", "199 998 are on"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
