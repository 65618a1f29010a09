//! `[fast_path]`: connections that the kernel forwards.

use std::path::PathBuf;
use std::time::Duration;

use flow::fast_path::Hook;

/// The connections that the kernel forwards by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FastPath {
    /// It does, where the host can.
    pub enabled: bool,
    /// Where, if the ports can have it.
    pub hook: Hook,
    /// The most at a time.
    pub connections_max: u32,
    /// How long the kernel goes on without the gateway while no peer is alive; zero: not at all.
    pub restart_grace: Duration,
    /// The directory of bpffs for that.
    pub pin_directory: PathBuf,
}
