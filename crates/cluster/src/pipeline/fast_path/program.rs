//! What a fast path below the node does, and how it stands.

use alloc::string::String;
use alloc::vec::Vec;

use flow::Instant;
use flow::fast_path::{Activity, Hook, NextHop, Plan, Windows};

#[cfg(doc)]
use super::FAST_PATH_NEXT_HOPS_MAX;

/// Whatever forwards packets below the node, as one of its workers uses it. Each worker has connections and next hops of its own, by
/// indices of its own.
pub trait FastPathProgram {
    /// What an earlier process left below, still forwarding; `None`: nothing. To be called once, before anything else.
    fn take_over(&mut self) -> Option<Left>;
    /// Where it sees packets, and why that is not where it was configured to be.
    fn hook(&self) -> (Hook, Option<&str>) {
        (Hook::default(), None)
    }
    /// Whether it keeps records for a later process.
    fn keeps_records(&self) -> bool;
    /// Installs a connection, and returns its index. `record` is the connection for a later process, if records are kept.
    ///
    /// # Errors
    /// There is no room, or the system refuses.
    fn install(&mut self, plan: &Plan, record: &[u8]) -> Result<u32, InstallError>;
    /// Removes a connection. Returns what was seen of it since it was taken last.
    fn remove(&mut self, connection: u32) -> Option<Activity>;
    /// What was seen of a connection; its packets and bytes are those since the last call.
    fn take_activity(&mut self, connection: u32) -> Option<Activity>;
    /// Raises the windows of a connection.
    fn raise(&mut self, connection: u32, windows: &Windows);
    /// Sets a next hop, below [`FAST_PATH_NEXT_HOPS_MAX`]; `None`: packets to it reach the node.
    fn set_next_hop(&mut self, index: u32, hop: Option<&NextHop>);
    /// Begins another generation, and returns it: from now on only connections are forwarded that are installed from now on, by this
    /// worker or another.
    fn begin_generation(&mut self) -> u32;
    /// The present generation. Any worker may have begun it.
    fn generation(&self) -> u32;
    /// This worker forwards, or does not. Packets are forwarded below while all workers do.
    fn set_enabled(&mut self, is_enabled: bool);
    /// This worker is alive. Packets are forwarded below while all workers are. If no peer is alive, the forwarding may outlast the node
    /// for a while.
    fn beat(&mut self, now: Instant, is_alone: bool);
    /// The interfaces of the ports, as the system numbers them now; `None` for a port without a fast path.
    fn interfaces(&mut self) -> Vec<Option<u32>>;
    /// Packets by what became of them, with names; of all workers, and known to the lead alone.
    fn outcomes(&self) -> Vec<(&'static str, u64)>;
}

/// What an earlier process left below.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Left {
    /// The generation in which connections are forwarded.
    pub generation: u32,
    /// Connections by their indices, with their records.
    pub connections: Vec<(u32, Vec<u8>)>,
}

/// Why a connection was not installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstallError {
    /// All places are taken.
    Full,
    /// Anything else.
    Refused,
}

/// How the fast path stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FastPathStatus {
    /// It forwards.
    pub is_enabled: bool,
    /// Where it sees packets.
    pub hook: Hook,
    /// Why that is not where it was configured to be.
    pub hook_reason: Option<String>,
    /// Connections that are installed.
    pub connections: u32,
    /// Packets that it has forwarded; a frame of many segments is one. The latest may be missing.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Installations that were refused for want of room.
    pub full: u64,
    /// Installations that were refused otherwise.
    pub refused: u64,
    /// Packets by what became of them.
    pub outcomes: Vec<(&'static str, u64)>,
}

/// What a port received and sent. A frame of many segments is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortTraffic {
    /// Frames that came in.
    pub received_frames: u64,
    /// Their bytes, from the link header on.
    pub received_bytes: u64,
    /// Frames that went out.
    pub sent_frames: u64,
    /// Their bytes, from the link header on.
    pub sent_bytes: u64,
}
