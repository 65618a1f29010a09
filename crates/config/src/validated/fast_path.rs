//! `[fast_path]`: connections that the kernel forwards.

/// The connections that the kernel forwards by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastPath {
    /// It does, where the host can.
    pub enabled: bool,
    /// The most at a time.
    pub connections_max: u32,
}
