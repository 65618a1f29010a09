//! Detects a filter that excludes nearly all connections of this kernel.
//!
//! Excluded connections are not in the mirror, so their absence is visible only in the kernel's own count. Where the
//! kernel has many connections and few of them are known, its table is read, and the established ones are counted:
//! replicated and excluded.

use flow::netfilter::{Entry, Status, TcpState};

/// The minimum number of connections for an assessment of the filter.
pub const CONNECTIONS_MANY: u32 = 100;
/// Nearly none: less than one part in so many.
const NEARLY_NONE: u32 = 20;

/// The established connections of this kernel in one reading of its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FilterCoverage {
    /// Assured connections of protocols that are replicated; TCP only while it is established.
    pub established: u32,
    /// Of those, the ones that neither a rule nor a list excludes.
    pub replicated: u32,
}

impl FilterCoverage {
    /// Counts a connection of the kernel's table. `is_replicated`: no rule excludes it.
    pub fn note(&mut self, entry: &Entry, is_replicated: bool) {
        let is_assured = entry.status.is_some_and(|status| status.contains(Status::ASSURED));
        if is_assured && entry.tcp().is_none_or(|info| info.state == TcpState::Established) {
            self.established = self.established.saturating_add(1);
            self.replicated = self.replicated.saturating_add(u32::from(is_replicated));
        }
    }

    /// Whether there are many connections, and nearly none is replicated.
    #[must_use]
    pub const fn is_nearly_none(self) -> bool {
        is_nearly_none(self.replicated, self.established)
    }
}

pub(crate) const fn is_nearly_none(part: u32, of: u32) -> bool {
    of >= CONNECTIONS_MANY && part.saturating_mul(NEARLY_NONE) < of
}
