//! Whether the filter leaves out nearly everything that this kernel forwards.
//!
//! Connections that a filter leaves out reach nobody, so their absence cannot be seen in the table of what is known. The
//! kernel's own count shows it: where the kernel has many connections and few of them are known here, its table is read, and the
//! established ones are counted, replicated and left out.

use flow::netfilter::{Entry, Status, TcpState};

/// A kernel with fewer connections says nothing about a filter.
pub const CONNECTIONS_MANY: u32 = 100;
/// Nearly none: less than one part in so many.
const NEARLY_NONE: u32 = 20;

/// The established connections of this kernel, as one reading of its table shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Assured connections of protocols that are replicated; TCP only while it is established.
    pub established: u32,
    /// Of those, the ones that neither a rule nor a list leaves out.
    pub replicated: u32,
}

impl Share {
    /// Counts a connection of the kernel's table. `is_replicated`: nothing leaves it out.
    pub fn note(&mut self, entry: &Entry, is_replicated: bool) {
        let is_assured = entry.status.is_some_and(|status| status.contains(Status::ASSURED));
        if is_assured && entry.tcp().is_none_or(|info| info.state == TcpState::Established) {
            self.established = self.established.saturating_add(1);
            self.replicated = self.replicated.saturating_add(u32::from(is_replicated));
        }
    }

    /// Many connections are there, and nearly none is replicated.
    #[must_use]
    pub const fn is_nearly_none(self) -> bool {
        is_nearly_none(self.replicated, self.established)
    }
}

pub(crate) const fn is_nearly_none(part: u32, of: u32) -> bool {
    of >= CONNECTIONS_MANY && part.saturating_mul(NEARLY_NONE) < of
}
