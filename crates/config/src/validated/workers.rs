//! `[workers]`: the threads that move packets, and where each replicates.

use std::net::SocketAddr;

/// The threads that move packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workers {
    /// How many, 1 to [`flow::steering::WORKERS_MAX`].
    pub count: u8,
    /// Each stays on a processor of its own.
    pub pin: bool,
}

/// From one worker's replication port to the next one's. Not 1, lest the port of failure detection, which is near, is met.
const REPLICATION_PORT_STEP: u16 = 10;

/// Where a worker replicates, on a node whose replication address is `address`; `None` beyond the last port.
#[must_use]
pub fn replication_address(address: SocketAddr, worker: flow::WorkerId) -> Option<SocketAddr> {
    let port = address.port().checked_add(REPLICATION_PORT_STEP * u16::from(worker.0))?;
    Some(SocketAddr::new(address.ip(), port))
}
