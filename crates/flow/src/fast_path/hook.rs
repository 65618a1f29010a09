//! Where the kernel hands a packet to the fast path.

/// The place at which the fast path sees a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Hook {
    /// The ingress of traffic control, after the kernel has made its buffer of the frame. Any interface has it.
    #[default]
    Tc,
    /// XDP in the interface's driver, before that ("native").
    Xdp,
}

impl Hook {
    /// The hooks by their names.
    pub const ALL: [(&'static str, Self); 2] = [("tc", Self::Tc), ("xdp", Self::Xdp)];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tc => "tc",
            Self::Xdp => "xdp",
        }
    }
}
